"""Has the kernel side built by a process of its own, and takes over its file descriptors.

The descriptors come as SCM_RIGHTS (unix(7)) over a socket that only the two have. Whoever of the
two dies, and when: what is in the kernel ends with the last descriptor.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from greenscope.bpf.programs import Built, Limits, Order
from greenscope.errors import BpfUnavailable, GreenscopeError

_MODULE = "greenscope.bpf.builder"
_IMPORT_ROOT = Path(__file__).resolve().parents[2]
_MAX_FDS = 200  # of the 253 that one message may carry
_SIZE_BYTES = 4


def build(order: Order) -> Built:
    """What the builder hands over; the descriptors are the caller's.

    Raises:
        BpfUnavailable: what kept the builder from it.
    """
    ours, theirs = socket.socketpair()
    with ours:
        # In a process group of its own: Ctrl-C is the agent's, which ends it then.
        builder = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": _python_path()},
            process_group=0,
        )
        theirs.close()
        try:
            _send(ours, dataclasses.asdict(order))
            return _receive_built(ours)
        except OSError as error:
            raise BpfUnavailable(
                f"the programs were not built: {_MODULE} ended with {builder.wait()}",
                "Is the machine out of memory? `greenscope doctor` checks what is needed.",
            ) from error
        finally:
            builder.kill()
            builder.wait()


def read_order(channel: socket.socket) -> Order:
    """The builder's end."""
    document, _ = _receive(channel)
    document["limits"] = Limits(**document["limits"])
    document["parts"] = tuple(document["parts"])
    return Order(**document)


def send_built(channel: socket.socket, built: Built) -> None:
    """The builder's end; it may close its own descriptors then."""
    document = {
        "programs": list(built.programs),
        "maps": list(built.maps),
        "syscalls": list(built.syscalls.items()),
    }
    _send(channel, document, built.fds)


def send_failure(channel: socket.socket, error: GreenscopeError) -> None:
    """The builder's end."""
    _send(channel, {"error": error.message, "hint": error.hint})


def _receive_built(channel: socket.socket) -> Built:
    document, fds = _receive(channel)
    if "error" in document:
        raise BpfUnavailable(document["error"], document["hint"])
    programs, maps = document["programs"], document["maps"]
    return Built(
        dict(zip(programs, fds[: len(programs)], strict=True)),
        dict(zip(maps, fds[len(programs) :], strict=True)),
        dict(document["syscalls"]),
    )


def _send(channel: socket.socket, document: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    payload = json.dumps(document).encode()
    # The size apart, with the descriptors: the payload may come in pieces.
    socket.send_fds(channel, [len(payload).to_bytes(_SIZE_BYTES, "little")], fds)
    channel.sendall(payload)


def _receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size, fds, _, _ = socket.recv_fds(channel, _SIZE_BYTES, _MAX_FDS)
    for fd in fds:
        os.set_inheritable(fd, False)  # recv_fds() takes flags for that and drops them
    payload = b""
    if len(size) < _SIZE_BYTES:
        raise ConnectionError("the other side ended")
    while len(payload) < int.from_bytes(size, "little"):
        piece = channel.recv(int.from_bytes(size, "little") - len(payload))
        if not piece:
            raise ConnectionError("the other side ended")
        payload += piece
    document: dict[str, Any] = json.loads(payload)
    return document, fds


def _python_path() -> str:
    """The child finds greenscope where we did, whatever the working directory is."""
    known = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(_IMPORT_ROOT), *([known] if known else [])])
