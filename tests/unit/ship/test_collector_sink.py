import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from greenscope.errors import CollectorError
from greenscope.model import Loss, Record
from greenscope.records.address import TcpAddress, UnixAddress
from greenscope.records.batching import Batcher
from greenscope.records.decode import decode_batch, decode_session
from greenscope.records.protocol import (
    Hello,
    Message,
    MessageReader,
    NumberedBatch,
    ProtocolError,
    Refused,
    Stored,
    Welcome,
    pack,
)
from greenscope.ship.collector import CollectorSink
from tests.harness.records import SESSION, sample_records

TIMEOUT_S = 20.0
Answer = Callable[[Message], Message | None]


def take(message: Message) -> Message | None:
    if isinstance(message, NumberedBatch):
        return Stored(message.number)
    return Welcome(1)


class FakeCollector:
    """Accepts connections; `answer` decides on each message, None hangs up without an answer."""

    def __init__(self, path: Path) -> None:
        self.address = UnixAddress(path)
        self.answer: Answer = take
        self.messages: list[Message] = []
        self._changed = threading.Condition()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=[connection], daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        # The sink may hang up at any time: when it gives up, and when it was refused.
        with connection, contextlib.suppress(OSError, ProtocolError):
            reader = MessageReader(connection.recv)
            while (message := reader.read()) is not None:
                answer = self.answer(message)
                with self._changed:
                    self.messages.append(message)
                    self._changed.notify_all()
                if answer is None:
                    return
                connection.sendall(pack(answer))

    def wait_for(self, ready: Callable[[list[Message]], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: ready(self.messages), TIMEOUT_S)

    def batches(self) -> list[tuple[int, tuple[Record, ...]]]:
        with self._changed:
            return [
                (message.number, decode_batch(message.batch).records)
                for message in self.messages
                if isinstance(message, NumberedBatch)
            ]


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[FakeCollector]:
    with closing(FakeCollector(tmp_path / "c.sock")) as fake:
        yield fake


def sink_to(collector: FakeCollector, **values: int) -> CollectorSink:
    sink = CollectorSink(collector.address, SESSION, token="secret", **values)
    # Every write is a batch of its own, whatever the clock says.
    sink._batcher = Batcher(time.monotonic_ns, max_age_ns=0)
    return sink


def test_every_batch_arrives_once_and_in_order(collector: FakeCollector) -> None:
    sink = sink_to(collector)
    sink.connect_or_fail()
    for record in sample_records():
        sink.write([record])
    sink.close()
    assert sink.unacknowledged == 0
    assert collector.batches() == [(n, (r,)) for n, r in enumerate(sample_records())]
    hello = collector.messages[0]
    assert isinstance(hello, Hello)
    assert (decode_session(hello.session), hello.token) == (SESSION, "secret")


def test_nobody_there_is_said_at_once(tmp_path: Path) -> None:
    sink = CollectorSink(UnixAddress(tmp_path / "none"), SESSION)
    with pytest.raises(CollectorError, match="no collector answers"):
        sink.connect_or_fail()


def test_refusal_is_said_in_the_collectors_words(collector: FakeCollector) -> None:
    collector.answer = lambda _: Refused("the token is wrong")
    with pytest.raises(CollectorError, match="the token is wrong"):
        sink_to(collector).connect_or_fail()


def test_something_else_at_the_address_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def http() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=http, daemon=True).start()
        address = TcpAddress("127.0.0.1", listener.getsockname()[1])
        with pytest.raises(CollectorError):
            CollectorSink(address, SESSION).connect_or_fail()


def test_batch_without_acknowledgement_is_sent_again(collector: FakeCollector) -> None:
    lost = iter([True, True, False])

    def answer(message: Message) -> Message | None:
        if isinstance(message, NumberedBatch) and message.number == 1 and next(lost):
            return None
        return take(message)

    collector.answer = answer
    sink = sink_to(collector)
    sink.connect_or_fail()
    for record in sample_records()[:3]:
        sink.write([record])
    sink.close(TIMEOUT_S)
    assert sink.unacknowledged == 0
    assert [number for number, _ in collector.batches()] == [0, 1, 1, 1, 2]


def test_collector_that_comes_late_gets_everything(tmp_path: Path) -> None:
    path = tmp_path / "late.sock"
    sink = CollectorSink(UnixAddress(path), SESSION)
    sink._batcher = Batcher(time.monotonic_ns, max_age_ns=0)
    for record in sample_records():
        sink.write([record])
    deadline = time.monotonic() + TIMEOUT_S
    while not sink.last_error and time.monotonic() < deadline:
        time.sleep(0.01)
    with closing(FakeCollector(path)) as collector:
        sink.close(TIMEOUT_S)
        assert sink.unacknowledged == 0
        assert [records[0] for _, records in collector.batches()] == sample_records()


def test_full_queue_drops_the_oldest_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "late.sock"
    sink = CollectorSink(UnixAddress(path), SESSION, queue_bytes=1500)
    sink._batcher = Batcher(time.monotonic_ns, max_age_ns=0)
    began_ns = time.monotonic_ns()
    for number in range(100):
        sink.write([Loss("x", number, 0, 0)])
    assert sink.unacknowledged < 50
    with closing(FakeCollector(path)) as collector:
        sink.close(TIMEOUT_S)
        assert sink.unacknowledged == 0
        batches = collector.batches()
    records = [record for _, found in batches for record in found if isinstance(record, Loss)]
    dropped = [loss for loss in records if loss.what == "batches"]
    numbers = [number for number, _ in batches]
    assert numbers == sorted(set(numbers))
    # 100 batches were made by the writes above and one by close(), for the last loss.
    assert sum(loss.count for loss in dropped) == numbers[-1] + 1 - len(numbers)
    assert all(began_ns <= loss.from_ktime_ns <= loss.to_ktime_ns for loss in dropped)
    assert 99 in [loss.count for loss in records if loss.what == "x"]


def test_refused_batch_does_not_keep_the_others_waiting(collector: FakeCollector) -> None:
    def answer(message: Message) -> Message | None:
        refuse = isinstance(message, NumberedBatch) and message.number == 0
        return Refused("damaged") if refuse else take(message)

    collector.answer = answer
    sink = sink_to(collector)
    sink.connect_or_fail()
    for record in sample_records()[:3]:
        sink.write([record])
    collector.wait_for(lambda messages: any(getattr(m, "number", 0) == 2 for m in messages))
    sink.close(TIMEOUT_S)
    lost = [r for _, records in collector.batches() for r in records if isinstance(r, Loss)]
    assert [(loss.what, loss.count) for loss in lost] == [("batches", 1)]


def test_close_gives_up_in_time_and_counts(collector: FakeCollector) -> None:
    hold_back = threading.Event()

    def answer(message: Message) -> Message | None:
        if isinstance(message, NumberedBatch):
            hold_back.wait(TIMEOUT_S)
        return take(message)

    collector.answer = answer
    sink = sink_to(collector)
    sink.connect_or_fail()
    for record in sample_records()[:3]:
        sink.write([record])
    began = time.monotonic()
    sink.close(timeout_s=0.3)
    assert time.monotonic() - began < 5
    assert sink.unacknowledged == 3
    hold_back.set()


def test_writing_does_not_wait_for_a_collector_that_does_not_answer(
    collector: FakeCollector,
) -> None:
    hold_back = threading.Event()
    collector.answer = lambda message: take(message) if hold_back.wait(TIMEOUT_S) else None
    sink = sink_to(collector)
    began = time.monotonic()
    for record in sample_records():
        sink.write([record])
    assert time.monotonic() - began < 5
    hold_back.set()
    sink.close(TIMEOUT_S)
    assert sink.unacknowledged == 0
