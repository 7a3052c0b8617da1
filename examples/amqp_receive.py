"""Receive messages from an address over AMQP 1.0 with Proton's Python client.

    python examples/amqp_receive.py --address orders --count 10

A message is gone for good when it is accepted; one that is only received comes back if this program
dies. Needs `pip install 'sluicegate[client]'` and a running gateway (`sluicegate run`).
"""

from __future__ import annotations

import argparse

from proton import Event
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Receive(MessagingHandler):
    """Prints and accepts messages until it has as many as asked for."""

    def __init__(self, url: str, address: str, count: int) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url, self.address, self.count = url, address, count
        self.received = 0

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self.url)
        receiver = event.container.create_receiver(connection, self.address)
        receiver.flow(self.count)  # credit for what is wanted and no more

    def on_message(self, event: Event) -> None:
        message = event.message
        body = message.body
        text = bytes(body).decode() if isinstance(body, bytes | bytearray | memoryview) else body
        print(f"{message.id}: {text}")
        self.accept(event.delivery)
        self.received += 1
        if self.received == self.count:
            event.receiver.close()
            event.connection.close()

    def on_transport_error(self, event: Event) -> None:
        raise SystemExit(f"no connection to {self.url}: {event.transport.condition}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", default="amqp://127.0.0.1:5672")
    parser.add_argument("--address", default="orders")
    parser.add_argument("--count", type=int, default=10)
    given = parser.parse_args()
    Container(Receive(given.url, given.address, given.count)).run()


if __name__ == "__main__":
    main()
