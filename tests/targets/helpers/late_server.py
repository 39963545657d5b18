"""A server on 127.0.0.1 that answers every request MS late; ends when stdin is closed.

Usage: late_server.py tcp|dns MS. Writes its port when it listens. `tcp` answers any bytes
with "late". `dns` listens on port 53 and knows one address for every name.
"""

from __future__ import annotations

import selectors
import socket
import struct
import sys
import time
from typing import Iterator, cast

DNS_PORT = 53
DNS_RESPONSE = 0x8180  # an answer, recursion desired and available
DNS_HEADER_SIZE = 12


def dns_answer(query: bytes) -> bytes:
    """127.0.0.1 for the name in the query, which is asked for by type A alone."""
    (query_id,) = struct.unpack_from("!H", query)
    name_end = query.index(b"\0", DNS_HEADER_SIZE)
    question = query[DNS_HEADER_SIZE : name_end + 5]
    header = struct.pack("!6H", query_id, DNS_RESPONSE, 1, 1, 0, 0)
    # 0xC00C points back at the name in the question.
    record = struct.pack("!3HIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton("127.0.0.1")
    return header + question + record


def serve_dns(late_s: float) -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", DNS_PORT))
    print(DNS_PORT, flush=True)
    for source in readable(server):
        query, client = source.recvfrom(4096)
        time.sleep(late_s)
        server.sendto(dns_answer(query), client)


def serve_tcp(late_s: float) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    for source in readable(server, accepts=True):
        if source.recv(4096):
            time.sleep(late_s)
            source.sendall(b"late")
        else:
            source.close()


def readable(server: socket.socket, accepts: bool = False) -> Iterator[socket.socket]:
    """Sockets with something to read, until stdin is closed."""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        selector.register(server, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return
                if accepts and key.fileobj is server:
                    selector.register(server.accept()[0], selectors.EVENT_READ)
                    continue
                source = cast(socket.socket, key.fileobj)
                yield source
                if source.fileno() < 0:
                    selector.unregister(source)


def main() -> None:
    kind, late_ms = sys.argv[1:]
    serve = serve_dns if kind == "dns" else serve_tcp
    serve(float(late_ms) / 1000)


if __name__ == "__main__":
    main()
