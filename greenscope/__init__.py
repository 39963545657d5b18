"""greenscope: which code holds the gevent hub of a running process, and why."""

__version__ = "0.1.0"
