from pathlib import Path

import pytest

from greenscope import cachedir
from greenscope.cachedir import cache_dir
from greenscope.errors import PermissionMissing


def test_configured_directory_is_used_and_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = cache_dir("headers")
    assert path == tmp_path / "greenscope" / "headers"
    assert path.stat().st_mode & 0o077 == 0


def use(monkeypatch: pytest.MonkeyPatch, *candidates: Path) -> None:
    monkeypatch.setattr(cachedir, "_candidates", lambda: iter(candidates))


def test_directory_that_others_may_write_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    use(monkeypatch, tmp_path / "open", tmp_path / "own")
    assert cache_dir("headers") == tmp_path / "own" / "headers"


def test_link_that_someone_laid_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    use(monkeypatch, tmp_path / "link", tmp_path / "own")
    assert cache_dir("headers") == tmp_path / "own" / "headers"


def test_no_writable_directory_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    use(monkeypatch, tmp_path / "file")
    with pytest.raises(PermissionMissing) as caught:
        cache_dir("headers")
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_relative_configuration_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert all(path.is_absolute() for path in cachedir._candidates())
