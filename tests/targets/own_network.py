"""Puts a target into its own network and mount namespace, to have its own name server there."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
IFF_UP = 1


def enter_own_network(directory: str) -> None:
    """Loopback only, and 127.0.0.1 as the name server; OSError where it is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(CLONE_NEWNS | CLONE_NEWNET), "unshare")
    _check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount /")
    files = {
        "resolv.conf": "nameserver 127.0.0.1\noptions attempts:1 timeout:10\n",
        "nsswitch.conf": "hosts: dns\n",
    }
    for name, text in files.items():
        ours = os.path.join(directory, name)
        with open(ours, "w") as out:
            out.write(text)
        etc = "/etc/" + name
        _check(libc.mount(ours.encode(), etc.encode(), None, MS_BIND, None), "mount " + etc)
    _bring_up_loopback()


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anything:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        _, flags, _ = struct.unpack("16sH14s", fcntl.ioctl(anything, SIOCGIFFLAGS, request))
        request = struct.pack("16sH14s", b"lo", flags | IFF_UP, b"")
        fcntl.ioctl(anything, SIOCSIFFLAGS, request)
