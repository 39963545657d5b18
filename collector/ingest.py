"""Listening: takes batches from agents and answers queries, each connection on its own."""

from __future__ import annotations

import contextlib
import hmac
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent  # type: ignore[import-untyped]
from gevent import socket as gevent_socket
from gevent.pool import Pool  # type: ignore[import-untyped]
from gevent.server import StreamServer  # type: ignore[import-untyped]

from collector.config import ServeConfig
from collector.worker import StoreWorker
from greenscope.errors import CollectorError, GreenscopeError
from greenscope.records.address import Address, TcpAddress, UnixAddress
from greenscope.records.decode import DamagedBatch
from greenscope.records.encode import encode_session
from greenscope.records.kinds import SCHEMA_VERSION
from greenscope.records.protocol import (
    PROTOCOL_VERSION,
    End,
    Hello,
    Message,
    MessageReader,
    NumberedBatch,
    ProtocolError,
    Query,
    Refused,
    Stored,
    StoredSession,
    Welcome,
    pack,
)

_log = logging.getLogger("greenscope.collector")

MAX_CONNECTIONS = 1000
# Nobody who has not said a token may make us keep more than this, or for longer.
_MAX_HELLO_BYTES = 64 << 10
_HELLO_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 30.0


class Ingest:
    """The listening sockets and the connections that came of them.

    Runs on the gevent loop of the thread that makes it. What one peer does costs only its own
    connection.
    """

    def __init__(self, config: ServeConfig, worker: StoreWorker) -> None:
        self._config = config
        self._worker = worker
        self._pool = Pool(MAX_CONNECTIONS)
        self._connections: set[Any] = set()
        self._stopping = False
        self._servers: list[Any] = []
        self.addresses: list[Address] = []

    def start(self) -> None:
        """Listens.

        Raises:
            CollectorError: an address cannot be had.
        """
        for address in (self._config.unix, self._config.tcp):
            if address is None:
                continue
            listener = _listen(address)
            server = StreamServer(listener, self._guarded(address), spawn=self._pool)
            server.start()
            self._servers.append(server)
            # Port 0 asks the kernel for a free one: the socket knows which.
            if isinstance(address, TcpAddress):
                self.addresses.append(TcpAddress(address.host, listener.getsockname()[1]))
            else:
                self.addresses.append(address)

    def stop(self) -> None:
        """Takes no new connection, finishes the batches that have arrived, and returns."""
        self._stopping = True
        for server in self._servers:
            server.close()
        with contextlib.suppress(FileNotFoundError):
            self._config.unix.path.unlink()
        for connection in self._connections:
            # Who waits for a message gets the end of the stream instead.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        if not self._pool.join(timeout=_STOP_TIMEOUT_S):
            _log.warning("connections did not end in %.0f s", _STOP_TIMEOUT_S)
            self._pool.kill()

    def _guarded(self, listening: Address) -> Any:
        def handle(connection: Any, peer: object) -> None:
            name = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unix socket"
            self._connections.add(connection)
            try:
                needs_token = isinstance(listening, TcpAddress)
                self._converse(_Peer(connection, name, self._config.token if needs_token else ""))
            except ProtocolError as error:
                _log.warning("%s: %s", name, error.message)
            except GreenscopeError as error:
                _log.error("%s: %s", name, error.message)
            except OSError as error:
                _log.info("%s: connection lost: %s", name, error)
            finally:
                self._connections.discard(connection)

        return handle

    def _converse(self, peer: _Peer) -> None:
        first = peer.first_message()
        refusal = peer.refusal(first)
        if refusal:
            _log.warning("%s: refused: %s", peer.name, refusal)
            peer.send(Refused(refusal))
        elif isinstance(first, Hello):
            self._take(peer, first)
        elif isinstance(first, Query):
            self._answer(peer, first)

    def _take(self, peer: _Peer, hello: Hello) -> None:
        """Stores a session's batches, one after the other."""
        try:
            session_id = self._worker.add_session(hello.session)
        except DamagedBatch as error:
            peer.send(Refused(error.message))
            raise
        _log.info("%s: session %s", peer.name, session_id)
        peer.send(Welcome(PROTOCOL_VERSION))
        while not self._stopping:
            message = peer.reader.read()
            if message is None:
                break
            if not isinstance(message, NumberedBatch):
                raise ProtocolError(f"expected a batch, not {type(message).__name__}")
            try:
                new = self._worker.add_batch(session_id, message.number, message.batch)
            except DamagedBatch as error:
                # Said as a refusal, so that the agent does not send it for ever.
                peer.send(Refused(error.message))
                raise
            if not new:
                _log.info("%s: batch %d had been stored before", peer.name, message.number)
            peer.send(Stored(message.number))
        _log.info("%s: session %s hung up", peer.name, session_id)

    def _answer(self, peer: _Peer, query: Query) -> None:
        try:
            wanted = query.session
            answer = self._session(wanted) if wanted else self._session_list()
            first = next(answer, None)
        except CollectorError as error:
            peer.send(Refused(error.message))
            return
        peer.send(Welcome(PROTOCOL_VERSION))
        if first is not None:
            peer.send(first)
        for message in answer:
            peer.send(message)
        peer.send(End())

    def _session_list(self) -> Iterator[Message]:
        for row in self._worker.sessions():
            yield StoredSession(encode_session(row.session), row.batches)

    def _session(self, wanted: str) -> Iterator[Message]:
        row = self._worker.find(wanted)
        yield StoredSession(encode_session(row.session), row.batches)
        for number, batch in self._worker.batches(row.session.session_id):
            yield NumberedBatch(number, batch)


class _Peer:
    """One connection: messages both ways, and whether to listen to it at all."""

    def __init__(self, connection: Any, name: str, token: str) -> None:
        self.name = name
        self.reader = MessageReader(connection.recv)
        self._connection = connection
        self._token = token

    def send(self, message: Message) -> None:
        """Sends a message; waits while the peer does not read."""
        self._connection.sendall(pack(message))

    def first_message(self) -> Message | None:
        """A Hello or a Query; None if the peer hung up before it said anything."""
        reader = MessageReader(self._connection.recv, _MAX_HELLO_BYTES)
        with gevent.Timeout(_HELLO_TIMEOUT_S, ProtocolError("said nothing for too long")):
            first = reader.read()
        if first is not None and not isinstance(first, Hello | Query):
            raise ProtocolError(f"began with {type(first).__name__}")
        return first

    def refusal(self, first: Message | None) -> str:
        """Why the peer must not go on, "" if it may."""
        if not isinstance(first, Hello | Query):
            return ""
        if first.protocol_version != PROTOCOL_VERSION:
            return f"this collector speaks protocol version {PROTOCOL_VERSION}"
        if first.schema_version > SCHEMA_VERSION and isinstance(first, Hello):
            return f"this collector knows records up to schema version {SCHEMA_VERSION}"
        if self._token and not hmac.compare_digest(first.token.encode(), self._token.encode()):
            return "the token is wrong" if first.token else "a token is needed"
        return ""


def _listen(address: Address) -> Any:
    try:
        if isinstance(address, UnixAddress):
            return _listen_unix(address.path)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listener = gevent_socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(128)
    except OSError as error:
        raise CollectorError(
            f"cannot listen on {address}: {error.strerror or error}",
            "Another collector may be there already; give another address.",
        ) from error
    return listener


def _listen_unix(path: Path) -> Any:
    if path.is_socket():
        # Left by a collector that was killed, or in use: only who answers has it.
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(ConnectionRefusedError):
            probe.connect(str(path))
            raise CollectorError(f"another collector listens on {path}", "Give another --unix.")
        path.unlink()
    listener = gevent_socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(128)
    return listener
