"""`python -m greenscope` is the command `greenscope`."""

from greenscope.cli.main import main

main()
