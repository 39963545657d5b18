"""Finding kernel headers for bcc, and making one tree of Debian's two.

Our programs read no kernel structure by header (BTF gives the offsets), so the headers of any
6.x kernel will do; they need not be those of the running one.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from greenscope.cachedir import cache_dir
from greenscope.errors import BpfUnavailable

ENVIRONMENT = "BCC_KERNEL_SOURCE"
SEARCHED = ("/lib/modules", "/usr/src", "/usr/src/kernels")
MAJOR_VERSION = 6

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:-(\d+))?")
# Debian's Makefile in linux-headers-*-amd64: "include /usr/src/linux-headers-*-common/Makefile".
_INCLUDED = re.compile(r"^include\s+(\S+)/Makefile\s*$", re.MULTILINE)
# What bcc 0.26 puts on clang's command line (src/cc/frontends/clang/kbuild_helper.cc).
_NEEDED = (
    "include/linux/kconfig.h",
    "include/linux/sched.h",
    "include/generated/autoconf.h",
    "include/uapi/linux/ptrace.h",
    "arch/x86/include/asm",
    "arch/x86/include/generated",
)
_MERGED = ("include", "arch/x86")
_HINT = (
    "Install them with `apt-get install linux-headers-amd64` (any 6.x version will do, the "
    "running kernel's is not needed); in a container, mount the host's /usr/src and "
    "/lib/modules read-only; or set BCC_KERNEL_SOURCE to a directory of kernel headers."
)


@dataclass(frozen=True, slots=True)
class KernelHeaders:
    """A tree of headers that bcc can use: `path` is the value for BCC_KERNEL_SOURCE.

    `source` are the directories that it comes from, more than one where it was merged.
    """

    path: Path
    version: str
    source: tuple[Path, ...]


def find_kernel_headers(
    environment: str | None = None, searched: tuple[str, ...] = SEARCHED
) -> KernelHeaders:
    """The best tree of headers: the user's own, the running kernel's, else the newest 6.x.

    Args:
        environment: the value of BCC_KERNEL_SOURCE, None to take it from the environment.
        searched: where to look for modules (`VERSION/build`) and header packages.

    Raises:
        BpfUnavailable: there are none, or BCC_KERNEL_SOURCE names a directory without.
    """
    given = os.environ.get(ENVIRONMENT, "") if environment is None else environment
    if given:
        return _checked(Path(given))
    release = platform.release()
    for candidate in sorted(_candidates(searched), key=lambda p: _rank(p, release), reverse=True):
        parts = _parts(candidate)
        if not all(any((part / needed).exists() for part in parts) for needed in _NEEDED):
            continue
        version = _version_text(candidate)
        path = parts[0] if len(parts) == 1 else _merge(parts, version)
        return KernelHeaders(path, version, parts)
    raise BpfUnavailable("no kernel headers of version 6.x were found", _HINT)


def _checked(path: Path) -> KernelHeaders:
    missing = [name for name in _NEEDED if not (path / name).exists()]
    if missing:
        raise BpfUnavailable(
            f"{ENVIRONMENT} is set to {path}, which has no {missing[0]}",
            f"Unset {ENVIRONMENT} to let greenscope look for itself. {_HINT}",
        )
    return KernelHeaders(path, _version_text(path.resolve()), (path,))


def _candidates(searched: tuple[str, ...]) -> set[Path]:
    """Directories that may hold (the generated half of) kernel headers, links resolved."""
    found = set()
    for base in map(Path, searched):
        for entry in base.iterdir() if base.is_dir() else ():
            tree = entry / "build" if (entry / "build").is_dir() else entry
            if (tree / "include/generated/autoconf.h").is_file():
                found.add(tree.resolve())
    return {path for path in found if _version(path)[:1] == (MAJOR_VERSION,)}


def _parts(tree: Path) -> tuple[Path, ...]:
    """The tree and, where it is split as Debian does, the common half that it includes."""
    try:
        included = _INCLUDED.search((tree / "Makefile").read_text(errors="replace"))
    except OSError:
        return (tree,)
    if included is None:
        return (tree,)
    # Below another root (a container's mount of the host's /usr/src) the absolute path does
    # not lead there, but the two always lie side by side.
    common = Path(included[1])
    beside = tree.parent / common.name
    return (tree, beside if beside.is_dir() else common)


def _merge(parts: tuple[Path, ...], version: str) -> Path:
    """A directory of symlinks that shows the parts as one tree; made once per pair."""
    tree = cache_dir("headers") / "_".join(
        [version, *(str(p).strip("/").replace("/", "-") for p in parts)]
    )
    if (tree / ".complete").exists() and all((tree / name).exists() for name in _NEEDED):
        return tree
    for name in _MERGED:
        _merge_directory(tree / name, [part / name for part in parts if (part / name).is_dir()])
    (tree / ".complete").touch()
    return tree


def _merge_directory(target: Path, sources: list[Path]) -> None:
    """Show the union of `sources` at `target`: links, and real directories where both have one."""
    target.mkdir(parents=True, exist_ok=True)
    for name in sorted({entry.name for source in sources for entry in source.iterdir()}):
        owners = [source / name for source in sources if (source / name).exists()]
        if len(owners) > 1 and all(owner.is_dir() for owner in owners):
            _merge_directory(target / name, owners)
        elif owners and not (target / name).exists():
            # Two agents may make the tree at once, and a removed package leaves dead links:
            # a link is put in place whole, over whatever is there.
            fresh = target / f"{name}.{os.getpid()}"
            fresh.symlink_to(owners[0])
            fresh.replace(target / name)


def _rank(tree: Path, release: str) -> tuple[bool, tuple[int, ...], str]:
    return _version_text(tree) == release, _version(tree), str(tree)


def _version_text(tree: Path) -> str:
    """The version in a directory's name: 6.1.0-57-amd64 of linux-headers-6.1.0-57-amd64."""
    name = tree.parent.name if tree.name == "build" else tree.name
    return name.removeprefix("linux-headers-")


def _version(tree: Path) -> tuple[int, ...]:
    match = _VERSION.search(_version_text(tree))
    return tuple(int(part or 0) for part in match.groups()) if match else ()
