"""The command line as a whole: its commands, and how it ends when something fails."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from greenscope import __version__
from greenscope.errors import GreenscopeError

COMMANDS = {
    "attach": "greenscope.cli.attach",
    "run": "greenscope.cli.run",
    "report": "greenscope.cli.report",
    "doctor": "greenscope.cli.doctor",
}
"""Each command, and the module that has it under its name."""

INTERRUPTED_EXIT_CODE = 130
"""As shells say it: 128 + SIGINT."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for.

    An attach should not wait for the imports of the other commands.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's
        """The names, in the order in which help lists them."""
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002  click's
        cmd_name: str,
    ) -> click.Command | None:
        """The command of a name, None when there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="greenscope")
def cli() -> None:
    """Find out which code holds the gevent hub of a running process, and why."""


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
