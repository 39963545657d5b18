"""What the probes cost the target, and keeping that within the user's budget."""
