"""A small web shop on gevent with three believable mistakes that block its hub.

Usage: shop.py PAYMENT_PORT STOCK_FILE. Prints the port it listens on. See README.md.
"""

from __future__ import annotations

import fcntl
import json
import sys
from collections.abc import Callable, Iterable
from string import Template
from typing import Any

from gevent import monkey
from payment_client import PaymentClient  # the first mistake: imported before the patching

monkey.patch_all()

import time  # noqa: E402

from gevent.pywsgi import WSGIServer  # noqa: E402

PRODUCTS = [{"id": number, "name": f"tea no. {number}", "cents": 450} for number in range(40)]
ORDERS = [{"number": number, "cents": number * 7 % 9900} for number in range(12_000)]
REPORT_ROW = Template("order $number: $cents cents\n")

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]


def list_products(_shop: Shop) -> str:
    """Innocent: quick."""
    return json.dumps(PRODUCTS)


def recommend(_shop: Shop) -> str:
    """Innocent: slow, but waits in a way that lets the others run."""
    time.sleep(0.08)  # patched, so it is gevent's
    return json.dumps(PRODUCTS[:3])


def checkout(shop: Shop) -> str:
    return shop.payments.charge_card("4242", cents=450)


def reserve_stock(shop: Shop) -> str:
    """The second mistake: the lock of a file is waited for in the kernel, hub and all."""
    with open(shop.stock_file, "r+", encoding="ascii") as stock:
        fcntl.flock(stock, fcntl.LOCK_EX)
        left = int(stock.read() or 1_000_000) - 1
        stock.seek(0)
        stock.write(str(left))
        stock.truncate()
    return f"{left} left"


def render_report(_shop: Shop) -> str:
    """The third mistake: a tenth of a second of computing without ever letting go."""
    report = ""
    for order in ORDERS:
        report += REPORT_ROW.substitute(order)
    return report


ROUTES = {
    "/products": list_products,
    "/recommendations": recommend,
    "/checkout": checkout,
    "/reserve": reserve_stock,
    "/report": render_report,
}


class Shop:
    """The WSGI application."""

    def __init__(self, payments: PaymentClient, stock_file: str) -> None:
        self.payments = payments
        self.stock_file = stock_file

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        view = ROUTES.get(environ["PATH_INFO"])
        if view is None:
            start_response("404 Not Found", [])
            return [b""]
        body = view(self)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [body.encode()]


def main() -> None:
    payment_port, stock_file = sys.argv[1:]
    shop = Shop(PaymentClient(int(payment_port)), stock_file)
    server = WSGIServer(("127.0.0.1", 0), shop, log=None)
    server.start()
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
