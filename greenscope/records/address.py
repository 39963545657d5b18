"""Where a collector listens: `tcp://HOST:PORT`, `HOST:PORT`, `unix:PATH` or a path."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from greenscope.errors import CollectorError, UsageError

DEFAULT_PORT = 4040
_TCP = re.compile(
    r"(?:tcp://)?(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^:/\[\]]+))(?::(?P<port>\d+))?"
)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host (a name or an address, IPv6 without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether nobody outside of this machine can be at the other end."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket in the file system."""

    path: Path

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """The address that a user gave.

    Raises:
        UsageError: it is of none of the forms.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        # unix:///run/x is how other tools write it.
        return UnixAddress(Path(path.removeprefix("//") if path.startswith("///") else path))
    if text.startswith(("/", "./", "../")):
        return UnixAddress(Path(text))
    match = _TCP.fullmatch(text)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or port > 0xFFFF:
        raise UsageError(
            f"{text!r} is no address of a collector",
            "Write tcp://HOST:PORT, HOST:PORT, unix:PATH or a path that begins with / or ./",
        )
    return TcpAddress(match["v6"] or match["host"], port)


def connect(address: Address, timeout_s: float) -> socket.socket:
    """A connected socket, whose operations time out after `timeout_s` too.

    Raises:
        CollectorError: nobody answers there.
    """
    try:
        if isinstance(address, TcpAddress):
            connection = socket.create_connection((address.host, address.port), timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return connection
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(address.path))
        except BaseException:
            connection.close()
            raise
    except OSError as error:
        raise CollectorError(
            f"no collector answers at {address}: {error.strerror or error}",
            "Start one with `greenscope-collector serve`, or check the address.",
        ) from error
    return connection
