"""The greenlet extension of a process: which build, and where its functions can be probed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from greenscope.errors import GreenletNotFound
from greenscope.target.elf import ElfImage
from greenscope.target.maps import MappedFile
from greenscope.target.python import find_extension, package_version

# Itanium C++ names of src/greenlet/TGreenlet.cpp and TUserGreenlet.cpp, greenlet 2.0 and
# later; in .dynsym, so also there when stripped.
SWITCH = "_ZN8greenlet8Greenlet13g_switchstackEv"
FINISHED = "_ZN8greenlet11PythonState10did_finishEP3_ts"  # 3.0 and later
# The destructor of the base class runs once for each greenlet, also for a thread's main one;
# UserGreenlet's deleting destructor calls its complete one, so probing those counts twice.
FREED = "_ZN8greenlet8GreenletD2Ev"
# Without a dot: the compiler's `.cold` fragments of it begin with the same name.
_CREATED = re.compile(r"_ZN8greenlet12UserGreenletC[12]E[^.]*$")
_EXTENSION_PATH = re.compile(r"/greenlet/_greenlet\.[^/]*so$")


@dataclass(frozen=True, slots=True)
class GreenletPlaces:
    """Where greenlet's functions begin in its file, for uprobes.

    `created`, `finished` and `freed` are None where the build has no such symbol; without
    `created` a greenlet's identity follows from its address alone.
    """

    switch: int
    created: int | None
    finished: int | None
    freed: int | None


@dataclass(frozen=True, slots=True)
class GreenletExtension:
    """greenlet's shared object in a process."""

    file: MappedFile
    version: str
    places: GreenletPlaces


def greenlet_places(path: str) -> GreenletPlaces | None:
    """The places in a file of greenlet's, None when it has no symbol for the switch.

    Raises:
        ElfError: it is no sound ELF file.
    """
    with ElfImage(path) as image:
        switch = image.entry_offset(SWITCH)
        created = next(iter(image.find_symbols(_CREATED)), None)
        if switch is None:
            return None
        return GreenletPlaces(
            switch=switch,
            created=image.entry_offset(created.name) if created else None,
            finished=image.entry_offset(FINISHED),
            freed=image.entry_offset(FREED),
        )


def find_greenlet(files: Iterable[MappedFile]) -> GreenletExtension:
    """The greenlet extension among a process's mapped files.

    Raises:
        GreenletNotFound: not loaded, or of a build without the symbols that are probed.
    """
    file = find_extension(files, "greenlet", "_greenlet")
    if file is None:
        raise GreenletNotFound(
            "the process has not loaded greenlet",
            "Give the pid of the Python process that runs gevent (a wrapper's child, or a "
            "worker of a prefork server), after it has imported gevent.",
        )
    version = package_version(file, "greenlet")
    places = greenlet_places(file.readable_path())
    if places is None:
        raise GreenletNotFound(
            f"greenlet {version or 'of an unknown version'} at {file.path} has no symbol for its "
            "switch",
            "greenscope needs greenlet 2.0 or later, as built for PyPI; a build with hidden "
            "symbols cannot be traced.",
        )
    return GreenletExtension(file, version, places)


def is_greenlet_path(path: str) -> bool:
    """Whether a mapped file is greenlet's extension, by its path in the target."""
    return _EXTENSION_PATH.search(path) is not None
