"""A greenlet reads from a real, unpatched socket whose server answers 50 ms late."""

from __future__ import annotations

import os
import socket

import gevent
from gevent.os import nb_read

from helper_process import Helper
from truth import Truth, option, scripted


def read_answer(truth: Truth, connection: socket.socket) -> bytes:
    with truth.act("syscall:recvfrom", "caller"):
        return connection.recv(100)  # GUILTY


def caller(truth: Truth, connection: socket.socket, times: int) -> None:
    for _ in range(times):
        connection.sendall(b"please")
        read_answer(truth, connection)
        gevent.sleep(0.01)


def main() -> None:
    server = Helper(os.read, "late_server", "tcp", str(option("ms", 50.0)))
    # No timeout is set: with one, CPython would wait in poll before recv.
    connection = socket.create_connection(("127.0.0.1", int(server.hear())))
    with connection, scripted(nb_read) as truth:
        gevent.spawn(caller, truth, connection, option("times", 8)).get()


if __name__ == "__main__":
    main()
