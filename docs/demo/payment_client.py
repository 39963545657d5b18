"""The client library of a payment service, as a vendor might ship it.

It takes `socket` out of the module by name. A program that imports it before
`monkey.patch_all()` leaves it with the real one, which blocks the thread, not the greenlet.
"""

from __future__ import annotations

from socket import AF_INET, SOCK_STREAM, socket


class PaymentClient:
    """One connection to the payment service for each charge."""

    def __init__(self, port: int) -> None:
        self.port = port

    def charge_card(self, card: str, cents: int) -> str:
        """Gives the service's answer; it takes its time."""
        with socket(AF_INET, SOCK_STREAM) as connection:
            connection.connect(("127.0.0.1", self.port))
            connection.sendall(f"charge {card} {cents}\n".encode())
            return connection.recv(100).decode()
