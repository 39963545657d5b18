import contextlib
import json
import signal
import socket
import time
from contextlib import closing
from pathlib import Path

import pytest

from collector.query import RemoteSource, Source, StoreSource, find_session
from collector.store.base import SessionRow
from collector.store.embedded import EmbeddedStore
from greenscope.errors import CollectorError
from greenscope.model import Record
from greenscope.records.address import Address, UnixAddress, connect, parse_address
from greenscope.records.batching import Batcher
from greenscope.records.encode import BatchEncoder, encode_session
from greenscope.records.kinds import SCHEMA_VERSION
from greenscope.records.protocol import (
    PROTOCOL_VERSION,
    Hello,
    Message,
    MessageReader,
    NumberedBatch,
    Query,
    Refused,
    Stored,
    Welcome,
    pack,
)
from greenscope.ship.collector import CollectorSink
from tests.harness.collector import TIMEOUT_S, Collector, run_command, running_collector
from tests.harness.records import SESSION, sample_records

HELLO = Hello(PROTOCOL_VERSION, SCHEMA_VERSION, encode_session(SESSION), "")


def batch_of(records: list[Record]) -> bytes:
    encoder = BatchEncoder()
    for record in records:
        encoder.add(record)
    return encoder.finish()


BATCH = batch_of(sample_records())


class Peer:
    """Says what it is told to, right or wrong."""

    def __init__(self, address: Address) -> None:
        self.socket = connect(address, TIMEOUT_S)
        self._reader = MessageReader(self.socket.recv)

    def close(self) -> None:
        self.socket.close()

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, message: Message) -> Message | None:
        self.say(pack(message))
        return self.answer()

    def answer(self) -> Message | None:
        try:
            return self._reader.read()
        except ConnectionResetError:
            return None


def stored(source: Source) -> list[Record]:
    return list(source.session(SESSION.session_id)[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_with_0_and_everything_acknowledged_is_there(
    tmp_path: Path, number: int
) -> None:
    with running_collector(tmp_path) as collector:
        with closing(Peer(collector.unix)) as peer:
            assert peer.ask(HELLO) == Welcome(PROTOCOL_VERSION)
            assert peer.ask(NumberedBatch(0, BATCH)) == Stored(0)
            # The connection is still open and idle: it must not delay the end.
            began = time.monotonic()
            assert collector.end(number) == 0
            assert time.monotonic() - began < 10
        assert isinstance(collector.unix, UnixAddress)
        assert not collector.unix.path.exists()
    with closing(EmbeddedStore(tmp_path)) as store:
        assert stored(StoreSource(store)) == sample_records()


def test_batch_that_arrived_before_the_signal_is_stored_and_acknowledged(tmp_path: Path) -> None:
    # Stopped inside of the store, so that the signal comes while a batch is under way.
    fifo = tmp_path / "go"
    prelude = (
        "import os; from collector.store.embedded import EmbeddedStore as store\n"
        f"os.mkfifo({str(fifo)!r})\n"
        "real = store.add_batch\n"
        "def add_batch(*values):\n"
        "    print('storing', file=sys.stderr)\n"
        f"    open({str(fifo)!r}).close()\n"
        "    return real(*values)\n"
        "store.add_batch = add_batch\n"
    )
    data = tmp_path / "data"
    with (
        running_collector(data, prelude=prelude) as collector,
        closing(Peer(collector.tcp)) as peer,
    ):
        assert peer.ask(HELLO) == Welcome(PROTOCOL_VERSION)
        peer.say(pack(NumberedBatch(0, BATCH)))
        collector.wait_for_log("storing")
        collector.process.send_signal(signal.SIGTERM)
        collector.wait_for_log("stopping")
        fifo.write_text("")
        assert peer.answer() == Stored(0)
        assert collector.wait() == 0
    with closing(EmbeddedStore(data)) as store:
        assert stored(StoreSource(store)) == sample_records()


def test_batch_killed_between_store_and_acknowledgement_is_counted_once(tmp_path: Path) -> None:
    prelude = (
        "import os; from collector.store.embedded import EmbeddedStore as store\n"
        "real = store.add_batch\n"
        "def add_batch(self, session_id, number, *values):\n"
        "    done = real(self, session_id, number, *values)\n"
        "    return done if number < 2 else os.kill(os.getpid(), 9)\n"
        "store.add_batch = add_batch\n"
    )
    records = sample_records()
    with running_collector(tmp_path, prelude=prelude) as collector:
        sink = CollectorSink(collector.tcp, SESSION)
        sink._batcher = Batcher(time.monotonic_ns, max_age_ns=0)
        sink.connect_or_fail()
        for record in records:
            sink.write([record])
        assert collector.wait() == -signal.SIGKILL
    # The same port, as an agent knows no other.
    with running_collector(tmp_path, "--listen", str(collector.tcp)) as collector:
        sink.close(TIMEOUT_S)
        assert sink.unacknowledged == 0
        collector.wait_for_log("batch 2 had been stored before")
        assert stored(RemoteSource(collector.unix)) == records


def test_bad_peers_cost_only_their_own_connection(tmp_path: Path) -> None:
    with running_collector(tmp_path) as collector, closing(Peer(collector.tcp)) as good:
        assert good.ask(HELLO) == Welcome(PROTOCOL_VERSION)
        bad: list[bytes] = [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\xff" * 100,
            b"\x00\x00\x00\x01\xc1",
            b"\x00\x00\x00",
            pack(Stored(1)),
            pack(HELLO) + pack(Stored(1)),
            pack(HELLO) + pack(NumberedBatch(7, b"no batch")),
            pack(Hello(1, 1, b"no session", "")),
            # Larger than anybody may send before it has said who it is.
            pack(Hello(1, 1, bytes(1 << 20), "")),
            pack(HELLO) + b"\xff\xff\xff\xff",
        ]
        for data in bad:
            with closing(Peer(collector.tcp)) as peer:
                # The collector may have hung up before it is all said.
                with contextlib.suppress(OSError):
                    peer.say(data)
                    peer.socket.shutdown(socket.SHUT_WR)
                while (answer := peer.answer()) is not None:
                    assert isinstance(answer, Welcome | Refused)
        assert good.ask(NumberedBatch(0, BATCH)) == Stored(0)
        assert stored(RemoteSource(collector.tcp)) == sample_records()
        assert not [line for line in collector.log if "Traceback" in line]
        assert collector.end() == 0


def test_damaged_batch_is_refused_in_words(tmp_path: Path) -> None:
    with running_collector(tmp_path) as collector, closing(Peer(collector.tcp)) as peer:
        assert peer.ask(HELLO) == Welcome(PROTOCOL_VERSION)
        answer = peer.ask(NumberedBatch(0, BATCH[:-5]))
        assert isinstance(answer, Refused)
        assert "damaged batch" in answer.text


def test_newer_agent_is_refused_by_its_version(tmp_path: Path) -> None:
    with running_collector(tmp_path) as collector:
        for hello, word in (
            (Hello(PROTOCOL_VERSION, SCHEMA_VERSION + 1, HELLO.session, ""), "schema version"),
            (Hello(PROTOCOL_VERSION + 1, SCHEMA_VERSION, HELLO.session, ""), "protocol version"),
        ):
            with closing(Peer(collector.tcp)) as peer:
                answer = peer.ask(hello)
                assert isinstance(answer, Refused)
                assert word in answer.text


def test_token_is_asked_for_on_tcp(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    with running_collector(tmp_path / "data", "--token-file", str(token)) as collector:
        for wrong in ("", "secre", "secret2"):
            with pytest.raises(CollectorError, match="token"):
                CollectorSink(collector.tcp, SESSION, wrong).connect_or_fail()
            with pytest.raises(CollectorError, match="token"):
                RemoteSource(collector.tcp, wrong).sessions()
        sink = CollectorSink(collector.tcp, SESSION, "secret")
        sink.connect_or_fail()
        sink.write(sample_records())
        sink.close(TIMEOUT_S)
        assert stored(RemoteSource(collector.tcp, "secret")) == sample_records()
        assert stored(RemoteSource(collector.unix)) == sample_records()
        assert not [line for line in collector.log if "secret" in line]


def test_many_agents_at_once(tmp_path: Path) -> None:
    with running_collector(tmp_path) as collector:
        peers = [Peer(collector.tcp) for _ in range(100)]
        for peer in peers:
            peer.say(pack(HELLO))
        for number, peer in enumerate(peers):
            assert peer.answer() == Welcome(PROTOCOL_VERSION)
            peer.say(pack(NumberedBatch(number // 2, BATCH)))
        for number, peer in enumerate(peers):
            assert peer.answer() == Stored(number // 2)
            peer.close()
        assert stored(RemoteSource(collector.unix)) == sample_records() * 50


def report_json(*arguments: str) -> dict[str, object]:
    done = run_command("report", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, object] = json.loads(done.stdout)
    return document


def send_sample(collector: Collector) -> None:
    sink = CollectorSink(collector.unix, SESSION)
    sink.connect_or_fail()
    sink.write(sample_records())
    sink.close(TIMEOUT_S)
    assert sink.unacknowledged == 0


def test_report_asks_the_collector_that_runs_and_reads_the_store_of_one_that_does_not(
    tmp_path: Path,
) -> None:
    data = ["--data", str(tmp_path)]
    with running_collector(tmp_path) as collector:
        send_sample(collector)
        while_running = report_json("hotspots", *data)
        assert report_json("hotspots", "--collector", str(collector.tcp)) == while_running
        sessions = report_json("sessions", *data)
        assert collector.end() == 0
    assert report_json("hotspots", *data, "--session", SESSION.session_id[:4]) == while_running
    assert report_json("sessions", *data) == sessions
    text = run_command("report", "greenlets", *data).stdout
    assert "GREENLETS" in text
    assert "HOTSPOTS" not in text
    assert SESSION.session_id[:12] in run_command("report", "sessions", *data).stdout


def test_report_says_what_is_wrong(tmp_path: Path) -> None:
    missing = run_command("report", "hotspots", "--data", str(tmp_path / "none"))
    assert (missing.returncode, missing.stdout) == (10, "")
    assert "there is no data directory" in missing.stderr
    nobody = run_command("report", "hotspots", "--collector", f"unix:{tmp_path}/none")
    assert nobody.returncode == 10
    assert "no collector answers" in nobody.stderr
    with running_collector(tmp_path) as collector:
        empty = run_command("report", "hotspots", "--data", str(tmp_path))
        assert (empty.returncode, "no session is stored yet" in empty.stderr) == (10, True)
        send_sample(collector)
        unknown = run_command("report", "hotspots", "--data", str(tmp_path), "--session", "ff")
        assert "no session with an id that begins with 'ff'" in unknown.stderr
        second = run_command("serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0")
        assert second.returncode == 10
        assert "is open in another process" in second.stderr
        taken = run_command("serve", "--data", str(tmp_path / "b"), "--listen", str(collector.tcp))
        assert taken.returncode == 10
        assert "cannot listen on" in taken.stderr


def test_listening_to_other_machines_must_be_said_in_words(tmp_path: Path) -> None:
    refused = run_command("serve", "--data", str(tmp_path), "--listen", "0.0.0.0:0")
    assert refused.returncode == 2
    assert "--insecure-listen" in refused.stderr
    with running_collector(tmp_path, "--listen", "0.0.0.0:0", "--insecure-listen") as collector:
        assert str(collector.tcp).startswith("tcp://0.0.0.0:")


def test_socket_left_by_a_killed_collector_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with running_collector(tmp_path / "data", "--unix", str(path)) as collector:
        collector.process.kill()
        collector.wait()
        assert path.is_socket()
    with running_collector(tmp_path / "data", "--unix", str(path)) as collector:
        assert RemoteSource(parse_address(str(path))).sessions() == []
        other = run_command(
            "serve", "--data", str(tmp_path / "b"), "--unix", str(path), "--listen", "none"
        )
        assert other.returncode == 10
        assert "another collector listens on" in other.stderr


def test_query_of_a_newer_asker_is_refused(tmp_path: Path) -> None:
    with running_collector(tmp_path) as collector, closing(Peer(collector.unix)) as peer:
        assert isinstance(peer.ask(Query(PROTOCOL_VERSION + 1, 1, "", "")), Refused)


def test_ambiguous_session_is_refused() -> None:
    rows = [SessionRow(SESSION, 1), SessionRow(SESSION, 2)]
    with pytest.raises(CollectorError, match="2 sessions"):
        find_session(rows, "0123")
    assert find_session(rows, "latest") == rows[0]
