"""A greenlet looks names up with the real getaddrinfo; the name server answers 60 ms late.

The name server is 127.0.0.1:53 in a network namespace of the target's own. glibc's resolver
sends its query and waits in poll.
"""

from __future__ import annotations

import os
import socket
import sys

import gevent
from gevent.os import nb_read

from helper_process import Helper
from own_network import enter_own_network
from truth import Truth, option, scripted, unavailable


def find_host(truth: Truth, name: str) -> None:
    with truth.act("syscall:poll", "resolver"):
        socket.getaddrinfo(name, 80, socket.AF_INET)  # GUILTY


def resolver(truth: Truth, times: int) -> None:
    for number in range(times):
        find_host(truth, "host%d.example" % number)
        gevent.sleep(0.01)


def main() -> None:
    try:
        enter_own_network(sys.argv[1])
    except OSError as error:
        unavailable("no namespace of its own: %s" % error)
    server = Helper(os.read, "late_server", "dns", str(option("ms", 60.0)))
    server.hear()
    # The first look-up loads glibc's resolver modules from disk.
    socket.getaddrinfo("first.example", 80, socket.AF_INET)
    with scripted(nb_read) as truth:
        gevent.spawn(resolver, truth, option("times", 6)).get()


if __name__ == "__main__":
    main()
