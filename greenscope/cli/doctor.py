"""`greenscope doctor [PID]`: what this machine and a process lack, and what to do about it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from greenscope.checks.machine import machine_checks
from greenscope.checks.result import Check, Status, exit_code_of
from greenscope.checks.target import target_checks

_STYLES = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red"}


@click.command(short_help="Check machine and process.")
@click.argument("pid", type=click.IntRange(min=1), required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def doctor(pid: int | None, as_json: bool) -> None:
    """Check this machine, and the process PID when given, for all that greenscope needs.

    The exit code is 0, or that of the first failure (docs/exit-codes.md).
    """
    checks = machine_checks()
    if pid is not None:
        checks += target_checks(pid)
    code = exit_code_of(checks)
    if as_json:
        click.echo(json.dumps({"exit_code": code, "checks": [_as_json(c) for c in checks]}))
    else:
        _print_table(checks)
    sys.exit(code)


def _as_json(check: Check) -> dict[str, str]:
    return {
        "name": check.name,
        "status": check.status.value,
        "found": check.found,
        "advice": check.advice,
    }


def _print_table(checks: Sequence[Check]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("check", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("found, and what to do", overflow="fold")
    for check in checks:
        found = Text(check.found)
        if check.advice:
            found.append(f"\n-> {check.advice}", style=_STYLES[check.status])
        table.add_row(check.name, Text(check.status.value, _STYLES[check.status]), found)
    console = Console()
    console.print(table)
    failed = sum(check.status is Status.FAIL for check in checks)
    warned = sum(check.status is Status.WARN for check in checks)
    if failed:
        console.print(f"{failed} of {len(checks)} checks failed: greenscope cannot work yet.")
    else:
        console.print(f"greenscope can work here ({len(checks)} checks, {warned} warnings).")
