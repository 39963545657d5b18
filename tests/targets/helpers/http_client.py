"""Sends HTTP requests to 127.0.0.1:PORT in a known order when told to.

Usage: http_client.py PORT TIMES PAUSE_MS PATH... After a line on stdin it asks for each path
TIMES times, one request after the other with a pause between, and writes one JSON line: for
each request its path, status, and begin and end in ns of the monotonic clock.
"""

from __future__ import annotations

import http.client
import json
import sys
import time


def ask(port: int, path: str) -> list[object]:
    begin_ns = time.monotonic_ns()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Connection": "close"})
    response = connection.getresponse()
    response.read()
    connection.close()
    return [path, response.status, begin_ns, time.monotonic_ns()]


def main() -> None:
    port, times, pause_ms = sys.argv[1:4]
    paths = sys.argv[4:]
    if not sys.stdin.readline():
        return
    asked = []
    for _ in range(int(times)):
        for path in paths:
            asked.append(ask(int(port), path))
            time.sleep(float(pause_ms) / 1000)
    print(json.dumps(asked), flush=True)


if __name__ == "__main__":
    main()
