"""Looking at the target from outside: /proc, its mapped files and its memory."""
