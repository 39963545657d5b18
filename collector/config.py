"""What `greenscope-collector serve` is told, checked before anything is opened."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from greenscope.errors import CollectorError, UsageError
from greenscope.records.address import TcpAddress, UnixAddress

SOCKET_NAME = "collector.sock"
# sockaddr_un.sun_path has 108 bytes, the last of them zero (unix(7)).
_MAX_SOCKET_PATH_BYTES = 107


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Where to listen and what to require. `tcp` None: only on the unix socket.

    `token` "" lets everybody in who can connect. It is asked for on TCP; a unix socket is
    guarded by the mode of its directory.
    """

    data: Path
    tcp: TcpAddress | None
    unix: UnixAddress
    token: str = ""
    insecure_listen: bool = False

    def check(self) -> None:
        """Raises UsageError for what must not or cannot be."""
        if self.tcp is not None and not self.tcp.is_loopback and not self.insecure_listen:
            raise UsageError(
                f"{self.tcp} can be reached from other machines, and records and the token "
                "would cross the network in plain text",
                "Listen on 127.0.0.1 and put a tunnel in front, or say --insecure-listen.",
            )
        if len(os.fsencode(self.unix.path)) > _MAX_SOCKET_PATH_BYTES:
            raise UsageError(
                f"the path of a unix socket must not be longer than {_MAX_SOCKET_PATH_BYTES} "
                f"bytes: {self.unix.path}",
                "Give a shorter one with --unix.",
            )


def default_data_directory() -> Path:
    """/var/lib/greenscope for root, else the user's own place for data."""
    if os.geteuid() == 0:
        return Path("/var/lib/greenscope")
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "greenscope"


def read_token(path: Path | None) -> str:
    """The token in a file, "" without a file.

    Raises:
        CollectorError: the file cannot be read or is empty, which must not mean "no token".
    """
    if path is None:
        return ""
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CollectorError(f"cannot read the token in {path}: {error}") from error
    if not token:
        raise CollectorError(f"the token file {path} is empty", "Write a token into it.")
    return token
