"""A gevent.pywsgi server, monkey-patched, whose routes block in every way the others do.

A client process asks for each route in a fixed order while another asks for the innocent
ones. Each guilty route makes its guilty call in a method of its own. The server enters a
network namespace if it may, to have a slow name server there (`/dns`, left out otherwise).
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import time
import zlib
from typing import Any, Callable, Dict, Iterable, List

import gevent
from gevent import monkey
from gevent.event import Event
from gevent.os import nb_read
from gevent.pywsgi import WSGIServer

from calibration import sized_for
from helper_process import Helper
from own_network import enter_own_network
from truth import Truth, option, scripted, sleep_reason

GUILTY_NS = 50_000_000
GUILTY_MS = str(GUILTY_NS / 1e6)
INNOCENT_ROUTES = ("/fine", "/nap")

StartResponse = Callable[[str, List[Any]], Any]


class Shop:
    """The innocent routes, and those that block in a system call."""

    truth: Truth

    def __init__(self, directory: str) -> None:
        self.real_sleep = monkey.get_original("time", "sleep")
        self.ledger = open(os.path.join(directory, "ledger"), "w")  # noqa: SIM115  # for life
        self.lock_holder = Helper(nb_read, "lock_holder", self.ledger.name, GUILTY_MS)
        self.late_server = Helper(os.read, "late_server", "tcp", GUILTY_MS)
        self.payments = monkey.get_original("socket", "socket")()
        self.payments.connect(("127.0.0.1", int(self.late_server.hear())))
        self.routes: Dict[str, Callable[[], None]] = {
            "/fine": self.short_work,
            "/nap": self.friendly_nap,
            "/sleep": self.wait_in_sleep,
            "/flock": self.wait_for_lock,
            "/recv": self.wait_for_answer,
        }

    def __call__(self, environ: Dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        self.routes[environ["PATH_INFO"]]()
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"done\n"]

    def add_slow_names(self) -> None:
        """Start the name server, and let glibc load its resolver before it is watched."""
        self.real_getaddrinfo = monkey.get_original("socket", "getaddrinfo")
        self.name_server = Helper(os.read, "late_server", "dns", GUILTY_MS)
        self.name_server.hear()
        self.real_getaddrinfo("first.example", 80, socket.AF_INET)
        self.routes["/dns"] = self.wait_for_name

    def short_work(self) -> None:
        sum(range(1000))

    def friendly_nap(self) -> None:
        time.sleep(0.03)  # patched: the hub goes on

    def wait_in_sleep(self) -> None:
        with self.truth.act(sleep_reason(), "/sleep"):
            self.real_sleep(GUILTY_NS / 1e9)  # GUILTY

    def wait_for_lock(self) -> None:
        self.lock_holder.say("lock")
        self.lock_holder.hear()
        with self.truth.act("syscall:flock", "/flock"):
            fcntl.flock(self.ledger, fcntl.LOCK_EX)  # GUILTY
        fcntl.flock(self.ledger, fcntl.LOCK_UN)

    def wait_for_answer(self) -> None:
        self.payments.sendall(b"please")
        with self.truth.act("syscall:recvfrom", "/recv"):
            self.payments.recv(100)  # GUILTY

    def wait_for_name(self) -> None:
        with self.truth.act("syscall:poll", "/dns"):
            self.real_getaddrinfo("host.example", 80, socket.AF_INET)  # GUILTY


class ComputingShop(Shop):
    """And the routes that compute."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.archive = sized_for(GUILTY_NS, b"one line of text\n".__mul__, zlib.compress)
        self.rows = sized_for(GUILTY_NS, lambda size: list(range(size)), json.dumps)
        self.routes.update(
            {
                "/cpu": self.compute,
                "/zlib": self.compress,
                "/json": self.dump_rows,
                "/hub": self.refresh_by_hub,
            }
        )

    def compute(self) -> None:
        total = 0
        with self.truth.act("cpu", "/cpu"):
            deadline_ns = time.monotonic_ns() + GUILTY_NS
            while time.monotonic_ns() < deadline_ns:  # GUILTY
                total += 1  # GUILTY

    def compress(self) -> None:
        with self.truth.act("cpu", "/zlib"):
            zlib.compress(self.archive)  # GUILTY

    def dump_rows(self) -> None:
        with self.truth.act("cpu", "/json"):
            json.dumps(self.rows)  # GUILTY

    def refresh_by_hub(self) -> None:
        finished = Event()
        gevent.get_hub().loop.run_callback(self.refresh, finished)
        finished.wait()

    def refresh(self, finished: Event) -> None:
        total = 0
        with self.truth.act("cpu", "/hub", is_hub=True):
            deadline_ns = time.monotonic_ns() + GUILTY_NS
            while time.monotonic_ns() < deadline_ns:  # GUILTY
                total += 1  # GUILTY
        finished.set()


def made_shop(directory: str) -> ComputingShop:
    try:
        enter_own_network(directory)
    except OSError as error:
        print("no /dns:", error, file=sys.stderr)
        return ComputingShop(directory)
    shop = ComputingShop(directory)
    shop.add_slow_names()
    return shop


def main() -> None:
    shop = made_shop(sys.argv[1])
    server = WSGIServer(("127.0.0.1", 0), shop, log=None)
    server.start()
    times = option("times", 4)
    guilty = [route for route in shop.routes if route not in INNOCENT_ROUTES]
    clients = [
        Helper(nb_read, "http_client", str(server.server_port), str(times), "10", *guilty),
        Helper(nb_read, "http_client", str(server.server_port), "40", "5", *INNOCENT_ROUTES),
    ]
    # Only now: a patched os.close (gevent 26) keeps the real subprocess from starting helpers.
    monkey.patch_all()
    with scripted(nb_read, port=server.server_port) as truth:
        shop.truth = truth
        for client in clients:
            client.say("go")
        truth.figure("requests", [json.loads(client.hear()) for client in clients])
        truth.figure("routes", list(shop.routes))
    server.stop()


if __name__ == "__main__":
    main()
