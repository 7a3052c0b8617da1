"""The order board's worker: takes orders from the queue over STOMP, and acknowledges each.

    ORDER_BOARD_PASSCODE=... python examples/web/worker.py --port 5672 --login board

An order that is not right gets a NACK and becomes a dead letter. The worker comes back by itself
when the connection breaks; what it had not acknowledged is delivered again, so that an order may be
seen twice by it, and work that must not be done twice goes by the order's id.
"""

from __future__ import annotations

import argparse
import sys
import threading

import stomp
from board import ORDERS, fault, passcode, say, when_input_ends
from stomp.exception import StompException
from stomp.utils import Frame

AGAIN_SECONDS = 1.0
#: A line on the screen comes at most so often.
TELL_SECONDS = 1.0
#: Bytes of orders that may be on their way to this worker and not acknowledged.
WINDOW = "65536"


class Worker(stomp.ConnectionListener):
    """Answers every order; `lost` is set when the connection is gone."""

    def __init__(self, connection: stomp.Connection12) -> None:
        self.connection = connection
        self.lost = threading.Event()
        self.done = 0

    def on_message(self, frame: Frame) -> None:
        wrong = fault(frame.body)
        if wrong is None:
            self.connection.ack(frame.headers["ack"])
            self.done += 1
        else:
            say(f"refused an order: {wrong}")
            self.connection.nack(frame.headers["ack"])

    def on_error(self, frame: Frame) -> None:
        say(f"the gateway says: {frame.headers.get('message', frame.body)}")

    def on_disconnected(self) -> None:
        self.lost.set()

    def on_heartbeat_timeout(self) -> None:
        self.lost.set()


def work(host: str, port: int, login: str, stop: threading.Event) -> int:
    """Take orders until the connection is gone or the worker is to stop; returns how many."""
    connection = stomp.Connection12(
        [(host, port)], heartbeats=(10_000, 10_000), reconnect_attempts_max=1
    )
    worker = Worker(connection)
    connection.set_listener("worker", worker)
    try:
        connection.connect(login, passcode(), wait=True)
        connection.subscribe(
            ORDERS, id="orders", ack="client-individual", headers={"consumer-window-size": WINDOW}
        )
        say("ready")
        told = 0
        while not worker.lost.wait(TELL_SECONDS) and not stop.is_set():
            if worker.done != told:
                told = worker.done
                say(f"{told:,} orders acknowledged on this connection")
        if not worker.lost.is_set():
            connection.disconnect()
    except (OSError, StompException) as error:
        say(f"cannot reach the gateway: {type(error).__name__}")
    return worker.done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5672)
    parser.add_argument("--login", default="board")
    given = parser.parse_args()

    stop = threading.Event()
    when_input_ends(stop.set)
    done = 0
    while not stop.is_set():
        done += work(given.host, given.port, given.login, stop)
        if not stop.wait(AGAIN_SECONDS):
            say("connects again")
    say(f"{done:,} orders acknowledged")


if __name__ == "__main__":
    sys.exit(main())
