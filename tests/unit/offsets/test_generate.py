"""rows.py is what generate.py makes from the headers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from greenscope.offsets import generate
from greenscope.offsets.rows import ROWS

HEADERS = {version: Path("/usr/include/python{}.{}".format(*version)) for version in ROWS}
PRESENT = [version for version, path in HEADERS.items() if (path / "Python.h").exists()]


def skip_without(version: tuple[int, int]) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc)")
    if version not in PRESENT:
        pytest.skip(
            f"no {HEADERS[version]}/Python.h (Debian: libpython{version[0]}.{version[1]}-dev)"
        )
    return HEADERS[version]


@pytest.mark.parametrize("version", ROWS)
def test_row_is_what_the_headers_say(version: tuple[int, int]) -> None:
    include = skip_without(version)
    found, row = generate.read_row(include)
    assert found == version
    text = generate.render({version: row})
    names: dict[str, object] = {}
    exec(compile(text, "rows.py", "exec"), names)
    assert names["ROWS"] == {version: ROWS[version]}


def test_check_passes_for_the_rows_that_are_there() -> None:
    includes = [str(skip_without(version)) for version in ROWS]
    assert generate.main(["--check", *includes]) == 0


def test_check_finds_a_row_that_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    includes = [str(skip_without(version)) for version in ROWS]
    changed = tmp_path / "rows.py"
    changed.write_text(generate.ROWS.read_text().replace("frame_code=32", "frame_code=40"))
    monkeypatch.setattr(generate, "ROWS", changed)
    assert generate.main(["--check", *includes]) == 1
    assert "frame_code=40" in changed.read_text()


def test_generating_writes_the_rows_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    includes = [str(skip_without(version)) for version in ROWS]
    expected = generate.ROWS.read_text()
    monkeypatch.setattr(generate, "ROWS", tmp_path / "rows.py")
    assert generate.main(includes) == 0
    assert (tmp_path / "rows.py").read_text() == expected


def test_directory_without_headers_is_an_error(tmp_path: Path) -> None:
    skip_without(next(iter(ROWS)))
    with pytest.raises(subprocess.CalledProcessError):
        generate.main(["--check", str(tmp_path)])


def test_every_field_of_the_table_has_a_source() -> None:
    for version, row in ROWS.items():
        sources = generate.COMMON | generate.BY_VERSION[version] | generate.LITERALS[version]
        assert sources.keys() == set(row.__dataclass_fields__)
