"""The command line as a whole: its commands, and how it ends when something fails."""

from __future__ import annotations

import sys

import click

from greenscope import __version__
from greenscope.cli.attach import attach
from greenscope.cli.doctor import doctor
from greenscope.cli.report import report
from greenscope.cli.run import run
from greenscope.errors import GreenscopeError

INTERRUPTED_EXIT_CODE = 130
"""As shells say it: 128 + SIGINT."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="greenscope")
def cli() -> None:
    """Find out which code holds the gevent hub of a running process, and why."""


cli.add_command(attach)
cli.add_command(run)
cli.add_command(report)
cli.add_command(doctor)


def main() -> None:
    """Runs the command line; a failure is one message, a hint and its exit code."""
    try:
        # click itself prints usage errors and returns what `ctx.exit` was given.
        sys.exit(cli(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except GreenscopeError as error:
        click.echo(f"greenscope: {error.message}", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED_EXIT_CODE)
    except BrokenPipeError:
        # `greenscope report FILE | head`: nobody reads on, and the interpreter's own flush at
        # the end must not complain about that either.
        sys.stdout = None
        sys.exit(0)
