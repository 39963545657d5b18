"""The sink of `--collector`: sends batches, keeps them until the collector has stored them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from greenscope.errors import CollectorError
from greenscope.model import Loss, Record, Session
from greenscope.records.address import Address, connect
from greenscope.records.batching import Batcher
from greenscope.records.encode import encode_session
from greenscope.records.kinds import SCHEMA_VERSION
from greenscope.records.protocol import (
    PROTOCOL_VERSION,
    Hello,
    Message,
    MessageReader,
    NumberedBatch,
    Refused,
    Stored,
    Welcome,
    pack,
)
from greenscope.records.recording import LOST_BATCHES

DEFAULT_QUEUE_BYTES = 16 << 20
# Longer than a store needs, even one that merges; then the connection is taken for dead.
_ANSWER_TIMEOUT_S = 30.0
_FIRST_RETRY_S = 0.2
_LAST_RETRY_S = 10.0


@dataclass(slots=True)
class _Waiting:
    """A batch that is not acknowledged yet; `loss` is what it says of batches dropped before."""

    message: bytes
    number: int
    made_ktime_ns: int
    loss: Loss | None


class CollectorSink:
    """Sends one session's records to a collector, from a thread of its own.

    Writing never waits for the network. Batches are kept until they are acknowledged, up to
    `queue_bytes`; then the oldest are dropped and counted as lost in a later batch. While the
    collector is away the thread tries again, with growing pauses.
    """

    def __init__(
        self,
        address: Address,
        session: Session,
        token: str = "",
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
    ) -> None:
        self._address = address
        self._hello = Hello(PROTOCOL_VERSION, SCHEMA_VERSION, encode_session(session), token)
        self._queue_bytes = queue_bytes
        self._batcher = Batcher(time.monotonic_ns)
        self._next_number = 0
        self._loss_in_batch: Loss | None = None
        self._thread = threading.Thread(target=self._run, name="ship", daemon=True)
        # Guards what is below; notified when a batch comes and when the sink is closed.
        self._changed = threading.Condition()
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._dropped: Loss | None = None
        self._deadline_s: float | None = None  # set by close()
        self._connection: socket.socket | None = None
        self.last_error = ""

    @property
    def unacknowledged(self) -> int:
        """Batches that the collector has not confirmed; after close() they are lost."""
        with self._changed:
            return len(self._queue)

    def connect_or_fail(self, timeout_s: float = 5.0) -> None:
        """Connects before the first record, so that a wrong address is found out at once.

        Raises:
            CollectorError: nobody answers, or the session is refused.
        """
        self._connection = self._greet(timeout_s)

    def write(self, records: Sequence[Record]) -> None:
        """Takes records; the thread sends them, at the latest a second later."""
        for batch in self._batcher.add([*self._losses(), *records]):
            self._enqueue(batch)
        self._start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Sends what is left and waits for its acknowledgement, at most `timeout_s`."""
        # Nothing is dropped for these: nobody would say so any more.
        for batch in self._batcher.add(self._losses()):
            self._enqueue(batch, may_drop=False)
        for batch in self._batcher.cut():
            self._enqueue(batch, may_drop=False)
        self._start()
        with self._changed:
            self._deadline_s = time.monotonic() + timeout_s
            self._changed.notify()
        self._thread.join(timeout_s)
        with self._changed:
            # Wakes the thread if it still waits for an answer; nobody waits for the thread.
            if self._connection is not None and self._thread.is_alive():
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    def _start(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    # The queue. The first batch may be under way, so what is dropped is the second.

    def _enqueue(self, batch: bytes, may_drop: bool = True) -> None:
        message = pack(NumberedBatch(self._next_number, batch))
        waiting = _Waiting(message, self._next_number, time.monotonic_ns(), self._loss_in_batch)
        self._next_number += 1
        self._loss_in_batch = None
        with self._changed:
            self._queue.append(waiting)
            self._queued_bytes += len(message)
            while may_drop and self._queued_bytes > self._queue_bytes and len(self._queue) > 1:
                self._drop(1)
            self._changed.notify()

    def _drop(self, index: int) -> None:
        dropped = self._queue[index]
        del self._queue[index]
        self._queued_bytes -= len(dropped.message)
        made_ns = dropped.made_ktime_ns
        loss = _sum(self._dropped, Loss(LOST_BATCHES, 1, made_ns, made_ns))
        # What it said of others is lost with it, so it is said again.
        self._dropped = loss if dropped.loss is None else _sum(dropped.loss, loss)

    def _losses(self) -> list[Loss]:
        """What is to be said in the next batch."""
        with self._changed:
            dropped, self._dropped = self._dropped, None
        if dropped is None:
            return []
        self._loss_in_batch = _sum(self._loss_in_batch, dropped)
        return [dropped]

    # The thread. One batch is under way at a time: an answer takes milliseconds.

    def _run(self) -> None:
        retry_s = _FIRST_RETRY_S
        while self._wait_for_batch():
            try:
                if self._connection is None:
                    self._connection = self._greet(self._patience_s())
                self._send_first()
                retry_s = _FIRST_RETRY_S
            except (CollectorError, OSError) as error:
                self.last_error = str(error)
                self._disconnect()
                self._pause(retry_s)
                retry_s = min(retry_s * 2, _LAST_RETRY_S)
        self._disconnect()

    def _wait_for_batch(self) -> bool:
        """Whether there is something to send and time for it."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._deadline_s is not None)
            return bool(self._queue) and self._left_s() > 0

    def _left_s(self) -> float:
        if self._deadline_s is None:
            return _ANSWER_TIMEOUT_S
        return self._deadline_s - time.monotonic()

    def _patience_s(self) -> float:
        return max(0.05, min(_ANSWER_TIMEOUT_S, self._left_s()))

    def _pause(self, pause_s: float) -> None:
        with self._changed:
            closing = self._deadline_s is not None
            # close() ends a pause, but only once: afterwards it is waited for the collector.
            self._changed.wait_for(
                lambda: not closing and self._deadline_s is not None,
                timeout=min(pause_s, self._patience_s()),
            )

    def _greet(self, timeout_s: float) -> socket.socket:
        connection = connect(self._address, timeout_s)
        try:
            connection.sendall(pack(self._hello))
            answer = self._answer(connection)
            if isinstance(answer, Refused):
                raise CollectorError(f"the collector at {self._address} refuses: {answer.text}")
            if not isinstance(answer, Welcome):
                raise self._no_collector()
        except OSError as error:
            connection.close()
            raise CollectorError(
                f"the collector at {self._address} does not answer: {error}"
            ) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _send_first(self) -> None:
        connection = self._connection
        assert connection is not None
        with self._changed:
            waiting = self._queue[0]
        connection.settimeout(self._patience_s())
        connection.sendall(waiting.message)
        answer = self._answer(connection)
        if isinstance(answer, Refused):
            # It would be refused again and keep all others waiting.
            with self._changed:
                self._drop(0)
            raise CollectorError(f"the collector refuses batch {waiting.number}: {answer.text}")
        if answer != Stored(waiting.number):
            raise self._no_collector()
        with self._changed:
            self._queue.popleft()
            self._queued_bytes -= len(waiting.message)

    def _answer(self, connection: socket.socket) -> Message | None:
        return MessageReader(connection.recv).read()

    def _no_collector(self) -> CollectorError:
        return CollectorError(
            f"what answers at {self._address} is no collector of greenscope",
            "Check the address, and the version of the collector.",
        )

    def _disconnect(self) -> None:
        with self._changed:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _sum(first: Loss | None, second: Loss) -> Loss:
    if first is None:
        return second
    from_ns = min(first.from_ktime_ns, second.from_ktime_ns)
    to_ns = max(first.to_ktime_ns, second.to_ktime_ns)
    return Loss(second.what, first.count + second.count, from_ns, to_ns)
