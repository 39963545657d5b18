"""`python -m collector` is the command `greenscope-collector`."""

from collector.cli import main

main()
