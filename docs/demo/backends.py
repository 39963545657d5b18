"""What the shop depends on: a slow payment service, and a worker that locks the stock file.

Usage: backends.py STOCK_FILE. Prints the payment service's port, and ends when stdin is closed.
"""

from __future__ import annotations

import fcntl
import socketserver
import sys
import threading
import time

PAYMENT_S = 0.12
STOCK_LOCKED_S = 0.15
STOCK_FREE_S = 0.05


class Payment(socketserver.StreamRequestHandler):
    """Approves every charge, after a while."""

    def handle(self) -> None:
        charge = self.rfile.readline().decode().split()
        time.sleep(PAYMENT_S)
        self.wfile.write(f"approved {charge[-1]}\n".encode())


def take_inventory(stock_file: str) -> None:
    """Hold the lock of the stock file most of the time, for ever."""
    with open(stock_file, "r+", encoding="ascii") as stock:
        while True:
            fcntl.flock(stock, fcntl.LOCK_EX)
            time.sleep(STOCK_LOCKED_S)
            fcntl.flock(stock, fcntl.LOCK_UN)
            time.sleep(STOCK_FREE_S)


def main() -> None:
    (stock_file,) = sys.argv[1:]
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Payment)
    server.daemon_threads = True
    threading.Thread(target=take_inventory, args=(stock_file,), daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
