"""Reads the shared headers of probes/ and asks the C compiler about them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

PROBES = Path(__file__).resolve().parents[2] / "probes"
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc)")
SHARED_HEADERS = ("gs_events.h", "gs_target.h")

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_STRUCT = re.compile(r"^struct (\w+) \{(.*?)^\};", re.DOTALL | re.MULTILINE)
_ENUM = re.compile(r"^enum (\w+) \{(.*?)^\};", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"\s*((?:struct )?\w+) (\w+)(?:\[\w+\])?;\s*")
_VALUE = re.compile(r"\s*(\w+) = \w+\s*")
_FLAG = re.compile(r"^#define (GS_FLAG_\w+)\s", re.MULTILINE)


class Field(NamedTuple):
    """One field of a struct as the compiler lays it out."""

    name: str
    offset: int
    size: int
    signed: bool


def header_text(name: str) -> str:
    """A file of probes/ without its comments."""
    return _COMMENT.sub("", (PROBES / name).read_text())


def struct_fields(text: str) -> dict[str, list[tuple[str, str]]]:
    """{struct: [(type, field)]}; a field that is not understood is an error."""
    found = {}
    for name, body in _STRUCT.findall(text):
        parts = [part for part in body.split("\n") if part.strip()]
        fields = [_FIELD.fullmatch(part) for part in parts]
        assert all(fields), f"struct {name}: one field a line is expected, got {parts}"
        found[name] = [(match[1], match[2]) for match in fields if match]
    return found


def enum_names(text: str) -> dict[str, list[str]]:
    """{enum: names of its values}; a value that is not written out is an error."""
    found = {}
    for name, body in _ENUM.findall(text):
        parts = [part for part in body.split(",") if part.strip()]
        values = [_VALUE.fullmatch(part) for part in parts]
        assert all(values), f"enum {name}: NAME = NUMBER is expected, got {parts}"
        found[name] = [match[1] for match in values if match]
    return found


def enum_definition(file: str, name: str) -> str:
    """The text of one enum, for a file that cannot be included on the host."""
    match = re.search(rf"^enum {name} \{{.*?^\}};", header_text(file), re.DOTALL | re.MULTILINE)
    assert match, f"{file} defines no enum {name}"
    return match[0]


def flag_names(text: str) -> list[str]:
    """The names of the flags."""
    return _FLAG.findall(text)


def evaluate(directory: Path, expressions: Iterable[str], definitions: str = "") -> dict[str, int]:
    """{C expression: its value}, compiled with the shared headers."""
    wanted = list(dict.fromkeys(expressions))
    prints = "\n".join(f'    printf("%lld\\n", (long long)({code}));' for code in wanted)
    includes = "\n".join(f'#include "{name}"' for name in SHARED_HEADERS)
    source, program = directory / "values.c", directory / "values"
    source.write_text(
        f"#include <stddef.h>\n#include <stdio.h>\n{includes}\n{definitions}\n"
        f"int main(void)\n{{\n{prints}\n    return 0;\n}}\n"
    )
    compile_c(source, program, "-Werror")
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return dict(zip(wanted, map(int, output.split()), strict=True))


def compile_c(source: Path, target: Path, *options: str) -> None:
    """Compiles one C file as the host's compiler does, with probes/ on its path."""
    # The headers speak to clang too, whose pragmas gcc does not know.
    warnings = ("-Wall", "-Wno-unknown-pragmas")
    command = ["cc", "-O2", *warnings, f"-I{PROBES}", *options, str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
