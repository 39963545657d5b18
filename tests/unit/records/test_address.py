from pathlib import Path

import pytest

from greenscope.errors import CollectorError, UsageError
from greenscope.records.address import Address, TcpAddress, UnixAddress, connect, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://127.0.0.1:4040", TcpAddress("127.0.0.1", 4040)),
        ("collector.example:7400", TcpAddress("collector.example", 7400)),
        ("collector", TcpAddress("collector", 4040)),
        ("tcp://[::1]:5", TcpAddress("::1", 5)),
        ("unix:/run/g.sock", UnixAddress(Path("/run/g.sock"))),
        ("unix:///run/g.sock", UnixAddress(Path("/run/g.sock"))),
        ("unix:g.sock", UnixAddress(Path("g.sock"))),
        ("/run/g.sock", UnixAddress(Path("/run/g.sock"))),
        ("./g.sock", UnixAddress(Path("g.sock"))),
    ],
)
def test_address_is_understood(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", "http://x:1", "x:y", "a:99999", "::1", "tcp://", "a b:c"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


def test_loopback_is_recognised() -> None:
    hosts = ["127.0.0.1", "127.9.9.9", "::1", "localhost", "0.0.0.0", "10.0.0.1", "web-1"]
    loopback = [host for host in hosts if TcpAddress(host, 1).is_loopback]
    assert loopback == ["127.0.0.1", "127.9.9.9", "::1", "localhost"]


def test_nobody_at_the_address_is_said(tmp_path: Path) -> None:
    with pytest.raises(CollectorError, match="no collector answers") as caught:
        connect(UnixAddress(tmp_path / "none"), 1)
    assert caught.value.hint
