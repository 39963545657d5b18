from pathlib import Path

import pytest

from greenscope.bpf.headers import find_kernel_headers
from greenscope.errors import BpfUnavailable

COMMON = ("include/linux/kconfig.h", "include/linux/sched.h", "include/uapi/linux/ptrace.h")
GENERATED = "include/generated/autoconf.h"
ARCH = "arch/x86/include"


@pytest.fixture
def src(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "src").mkdir()
    return tmp_path / "src"


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def add_debian(src: Path, version: str, include_from: Path | None = None) -> None:
    common, amd64 = (src / f"linux-headers-{version}-{half}" for half in ("common", "amd64"))
    for name in (*COMMON, f"{ARCH}/asm/ptrace.h", f"{ARCH}/uapi/asm/ptrace.h"):
        write(common / name, "common")
    for name in (GENERATED, f"{ARCH}/generated/asm/rwonce.h"):
        write(amd64 / name, "amd64")
    write(amd64 / "Makefile", f"include {(include_from or src) / common.name}/Makefile\n")


def add_whole(src: Path, name: str) -> None:
    for file in (*COMMON, GENERATED, f"{ARCH}/asm/ptrace.h", f"{ARCH}/generated/asm/rwonce.h"):
        write(src / name / file)


def test_debians_two_trees_are_shown_as_one(src: Path) -> None:
    add_debian(src, "6.1.0-57")
    found = find_kernel_headers("", (str(src),))
    assert found.version == "6.1.0-57-amd64"
    assert len(found.source) == 2
    shown = {
        name: (found.path / name).read_text()
        for name in ("include/linux/sched.h", GENERATED, f"{ARCH}/asm/ptrace.h")
    }
    assert list(shown.values()) == ["common", "amd64", "common"]
    assert (found.path / ARCH / "generated/asm/rwonce.h").read_text() == "amd64"


def test_merged_tree_is_made_once(src: Path) -> None:
    add_debian(src, "6.1.0-57")
    first = find_kernel_headers("", (str(src),))
    made = (first.path / ".complete").stat().st_mtime_ns
    assert find_kernel_headers("", (str(src),)) == first
    assert (first.path / ".complete").stat().st_mtime_ns == made


def test_tree_whose_package_was_reinstalled_elsewhere_is_made_again(src: Path) -> None:
    add_debian(src, "6.1.0-57")
    link = find_kernel_headers("", (str(src),)).path / "include/linux"
    link.unlink()
    link.symlink_to(src / "gone")
    assert (find_kernel_headers("", (str(src),)).path / "include/linux/sched.h").exists()


def test_halves_below_a_containers_mount_are_found_beside_each_other(src: Path) -> None:
    add_debian(src, "6.1.0-57", include_from=Path("/usr/src-of-the-host"))
    assert len(find_kernel_headers("", (str(src),)).source) == 2


def test_newest_version_6_wins_and_numbers_are_compared_as_numbers(src: Path) -> None:
    for name in ("linux-headers-6.9.1", "linux-headers-6.10.0", "linux-headers-5.15.0"):
        add_whole(src, name)
    assert find_kernel_headers("", (str(src),)).version == "6.10.0"


def test_headers_of_the_running_kernel_win(src: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: "6.9.1")
    for name in ("linux-headers-6.9.1", "linux-headers-6.10.0"):
        add_whole(src, name)
    assert find_kernel_headers("", (str(src),)).version == "6.9.1"


def test_build_link_of_a_modules_directory_is_followed(src: Path, tmp_path: Path) -> None:
    add_whole(src, "linux-headers-6.9.1")
    modules = tmp_path / "modules" / "6.9.1"
    modules.mkdir(parents=True)
    (modules / "build").symlink_to(src / "linux-headers-6.9.1")
    found = find_kernel_headers("", (str(tmp_path / "modules"),))
    assert found.path == src / "linux-headers-6.9.1"


def test_incomplete_tree_is_passed_over(src: Path) -> None:
    add_whole(src, "linux-headers-6.9.1")
    write(src / "linux-headers-6.10.0" / GENERATED)
    assert find_kernel_headers("", (str(src),)).version == "6.9.1"


def test_directory_of_the_user_is_taken_as_it_is(src: Path) -> None:
    add_whole(src, "mine-6.2.0")
    assert find_kernel_headers(str(src / "mine-6.2.0"), ()).path == src / "mine-6.2.0"


def test_directory_of_the_user_without_headers_is_refused_by_name(src: Path) -> None:
    with pytest.raises(BpfUnavailable, match=r"include/linux/kconfig\.h") as caught:
        find_kernel_headers(str(src), ())
    assert "Unset BCC_KERNEL_SOURCE" in caught.value.hint


def test_no_headers_says_which_package_or_mount_gives_them(src: Path) -> None:
    with pytest.raises(BpfUnavailable) as caught:
        find_kernel_headers("", (str(src),))
    assert "apt-get install linux-headers-amd64" in caught.value.hint
    assert "mount the host's /usr/src" in caught.value.hint
