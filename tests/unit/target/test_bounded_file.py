"""A file that stops giving bytes to a parser that asks for too many."""

from pathlib import Path

import pytest

from greenscope.target import bounded_file
from greenscope.target.bounded_file import BoundedFile, LimitReached


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "file").write_bytes(b"0123456789")
    return str(tmp_path / "file")


def test_file_within_its_limits_reads_as_any_other(path: str) -> None:
    with BoundedFile(path) as file:
        assert file.size_bytes == 10
        assert (file.read(4), file.seek(8), file.read()) == (b"0123", 8, b"89")


def test_one_read_too_many_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_file, "MAX_READS", 2)
    with BoundedFile(path) as file:
        assert file.read(1) + file.read(1) == b"01"
        with pytest.raises(LimitReached):
            file.read(1)


def test_one_byte_too_many_is_refused_before_it_is_read(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_file, "MAX_BYTES", 6)
    with BoundedFile(path) as file:
        assert file.read(4) == b"0123"
        with pytest.raises(LimitReached):
            file.read(3)
        assert file.read(2) == b"45"
