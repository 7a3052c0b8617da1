"""Send messages to an address over AMQP 1.0 with Proton's Python client.

    python examples/amqp_send.py --address orders --count 10

Each message is durable, so `accepted` means that it is on the gateway's disk. Needs
`pip install 'sluicegate[client]'` and a running gateway (`sluicegate run`).
"""

from __future__ import annotations

import argparse
import json

from proton import Event, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Send(MessagingHandler):
    """Sends as many as the gateway gives credit for, and counts what it accepts."""

    def __init__(self, url: str, address: str, count: int) -> None:
        super().__init__()
        self.url, self.address, self.count = url, address, count
        self.sent = self.accepted = 0

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self.url)
        event.container.create_sender(connection, self.address)

    def on_sendable(self, event: Event) -> None:
        while event.sender.credit and self.sent < self.count:
            self.sent += 1
            body = json.dumps({"number": self.sent}).encode()
            event.sender.send(
                Message(
                    id=f"{self.address}-{self.sent}",
                    content_type=symbol("application/json"),
                    durable=True,
                    inferred=True,  # bytes go as a data section
                    body=body,
                )
            )

    def on_accepted(self, event: Event) -> None:
        self.accepted += 1
        if self.accepted == self.count:
            print(f"{self.accepted} messages accepted at {self.address}")
            event.connection.close()

    def on_rejected(self, event: Event) -> None:
        raise SystemExit(f"rejected: {event.delivery.remote.condition}")

    def on_transport_error(self, event: Event) -> None:
        raise SystemExit(f"no connection to {self.url}: {event.transport.condition}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", default="amqp://127.0.0.1:5672")
    parser.add_argument("--address", default="orders")
    parser.add_argument("--count", type=int, default=10)
    given = parser.parse_args()
    Container(Send(given.url, given.address, given.count)).run()


if __name__ == "__main__":
    main()
