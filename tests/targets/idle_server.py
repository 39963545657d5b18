"""A gevent.pywsgi server with one request a second: idle is idle, nothing is a hotspot."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Iterable, List

from gevent.os import nb_read
from gevent.pywsgi import WSGIServer

from helper_process import Helper
from hold_clock import HoldClock
from truth import option, scripted


def hello(environ: Dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello\n"]


def main() -> None:
    server = WSGIServer(("127.0.0.1", 0), hello, log=None)
    server.start()
    requests = str(option("requests", 4))
    pause_ms = str(option("pause_ms", 1000.0))
    client = Helper(nb_read, "http_client", str(server.server_port), requests, pause_ms, "/")
    with scripted(nb_read, port=server.server_port) as truth:
        clock = HoldClock()
        clock.start()
        client.say("go")
        asked: List[Any] = json.loads(client.hear())
        clock.stop()
        clock.write(truth)
        truth.figure("requests", [asked])
    server.stop()


if __name__ == "__main__":
    main()
