"""From addresses to names, and from events to holds: rebuilding what the target did."""
