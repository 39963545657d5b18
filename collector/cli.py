"""The command `greenscope-collector`: the only part of the collector that prints and exits."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from collector.config import SOCKET_NAME, ServeConfig, default_data_directory, read_token
from collector.query import LATEST, open_source
from collector.reports.build import build_report
from collector.reports.document import sessions_to_json, to_json
from collector.reports.sessions import render_sessions
from collector.reports.text import render
from collector.serve import serve as run_server
from greenscope import __version__
from greenscope.errors import GreenscopeError, UsageError
from greenscope.records.address import DEFAULT_PORT, TcpAddress, UnixAddress, parse_address

INTERRUPTED_EXIT_CODE = 130
_DEFAULT_LISTEN = str(TcpAddress("127.0.0.1", DEFAULT_PORT))

_data = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=default_data_directory,
    show_default="/var/lib/greenscope, or ~/.local/share/greenscope without root",
    help="Directory of the store.",
)
_token_file = click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the token that agents must know on TCP.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="greenscope-collector")
def cli() -> None:
    """Take the records of many greenscope agents, store them, and report."""


@cli.command()
@click.option(
    "--listen", default=_DEFAULT_LISTEN, show_default=True, help='TCP address; "none" for none.'
)
@click.option(
    "--unix",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"Unix socket [default: {SOCKET_NAME} in the data directory].",
)
@_data
@_token_file
@click.option(
    "--insecure-listen",
    is_flag=True,
    help="Let --listen be reachable from other machines: plain text, token included.",
)
def serve(
    listen: str, unix: Path | None, data: Path, token_file: Path | None, insecure_listen: bool
) -> None:
    """Take records over TCP and a unix socket until Ctrl-C or SIGTERM.

    What has arrived by then is stored; agents keep the rest and send it again.
    """
    tcp = None if listen == "none" else parse_address(listen)
    if isinstance(tcp, UnixAddress):
        raise UsageError("--listen takes a TCP address", "Give the unix socket with --unix.")
    socket_path = (unix or data / SOCKET_NAME).absolute()
    config = ServeConfig(
        data=data,
        tcp=tcp,
        unix=UnixAddress(socket_path),
        token=read_token(token_file),
        insecure_listen=insecure_listen,
    )
    run_server(config)


@cli.command()
@click.argument("what", type=click.Choice(["hotspots", "greenlets", "sessions"]))
@click.option("--session", default=LATEST, show_default=True, help="Id, or its beginning.")
@click.option("--collector", metavar="ADDRESS", help="Ask this collector instead of the store.")
@_data
@_token_file
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--verbose", "-v", is_flag=True, help="Show each hotspot's stack, and by whom.")
def report(
    what: str,
    session: str,
    collector: str | None,
    data: Path,
    token_file: Path | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Print what is stored: one session's hotspots or greenlets, or the list of sessions.

    While a collector has the data directory open, that one is asked.
    """
    address = parse_address(collector) if collector else None
    with open_source(data, address, read_token(token_file)) as source:
        if what == "sessions":
            sessions = source.sessions()
            if as_json:
                click.echo(json.dumps(sessions_to_json(sessions)))
            else:
                render_sessions(sessions, Console())
            return
        found = build_report(*source.session(session))
        if as_json:
            click.echo(json.dumps(to_json(found)))
        else:
            render(found, Console(), [what], verbose)


def main() -> None:
    """Runs the command line; a failure is one message, a hint and its exit code."""
    try:
        sys.exit(cli(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except GreenscopeError as error:
        click.echo(f"greenscope-collector: {error.message}", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED_EXIT_CODE)


if __name__ == "__main__":
    main()
