"""The command `greenscope`: the only part of the agent that prints and exits."""
