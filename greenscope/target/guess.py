"""Where a command that has not begun yet will probably load greenlet from.

`greenscope run` probes these files before the command's first instruction. A wrong guess costs
nothing: the real file is seen when it is mapped.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_MAX_SHEBANG_BYTES = 256  # BINPRM_BUF_SIZE of the kernel
_SITES = (
    "lib*/python3.*/site-packages",
    "lib/python3/dist-packages",
    "local/lib/python3.*/dist-packages",
)
_EXTENSION = "greenlet/_greenlet.*so"


def greenlet_candidates(command: Sequence[str], environment: Mapping[str, str]) -> list[Path]:
    """Files of greenlet's in the places where the command's interpreter looks; may be empty."""
    found: dict[tuple[int, int], Path] = {}
    for directory in _directories(command, environment):
        for path in sorted(directory.glob(_EXTENSION)):
            stat = path.stat()
            found.setdefault((stat.st_dev, stat.st_ino), path)
    return list(found.values())


def _directories(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Path]:
    for entry in environment.get("PYTHONPATH", "").split(":"):
        if entry:
            yield Path(entry)
    for program in _interpreters(command, environment):
        # Not resolved first: a virtual environment's python is a link to another prefix.
        for executable in (program, program.resolve()):
            for pattern in _SITES:
                yield from sorted(executable.parent.parent.glob(pattern))
    home = environment.get("HOME")
    if home:
        yield from sorted(Path(home, ".local").glob(_SITES[0]))


def _interpreters(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Path]:
    """The program itself, and the one that its first line names."""
    search = environment.get("PATH")
    for word in (command[0], *_shebang(shutil.which(command[0], path=search))):
        program = shutil.which(word, path=search)
        if program:
            yield Path(program)


def _shebang(program: str | None) -> list[str]:
    """The words of a script's first line; `#!/usr/bin/env python3` has two programs."""
    if program is None:
        return []
    try:
        with open(program, "rb") as file:
            line = file.read(_MAX_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return []
    return line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
