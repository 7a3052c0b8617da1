"""A chat room over STOMP with stomp.py: every line typed reaches everyone in the room.

    python examples/stomp_chat.py ann --room lobby

A room is a topic (`/topic/...`): each subscriber gets its own copy. Ctrl-D leaves. Needs
`pip install 'sluicegate[client]'` and a running gateway (`sluicegate run`).
"""

from __future__ import annotations

import argparse
import sys
import threading

import stomp
from stomp.utils import Frame


class Room(stomp.ConnectionListener):
    """Prints what the others say."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.confirmed: dict[str, threading.Event] = {}

    def on_message(self, frame: Frame) -> None:
        if frame.headers.get("speaker") != self.name:
            print(f"{frame.headers.get('speaker')}: {frame.body}", flush=True)

    def on_receipt(self, frame: Frame) -> None:
        self.confirmed.setdefault(frame.headers["receipt-id"], threading.Event()).set()

    def on_error(self, frame: Frame) -> None:
        print(f"refused: {frame.headers.get('message', frame.body)}", file=sys.stderr, flush=True)

    def wait_for(self, receipt: str) -> None:
        event = self.confirmed.setdefault(receipt, threading.Event())
        if not event.wait(10):
            raise SystemExit(f"no receipt for {receipt!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name")
    parser.add_argument("--room", default="lobby")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=61613)
    given = parser.parse_args()

    destination = f"/topic/{given.room}"
    room = Room(given.name)
    connection = stomp.Connection12([(given.host, given.port)], heartbeats=(10_000, 10_000))
    connection.set_listener("room", room)
    connection.connect(wait=True)
    connection.subscribe(destination, id="1", ack="auto", headers={"receipt": "joined"})
    room.wait_for("joined")
    print(f"{given.name} is in {given.room}", flush=True)
    number = 0
    for number, line in enumerate(sys.stdin, 1):
        connection.send(
            destination, line.rstrip("\n"), speaker=given.name, receipt=f"line-{number}"
        )
    if number:
        room.wait_for(f"line-{number}")
    connection.disconnect(receipt="left")


if __name__ == "__main__":
    main()
