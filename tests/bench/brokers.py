"""Brokers of a few lines on real sockets, for driver processes to run against.

One keeps every message in the order of arrival, whatever its address, and hands them out again.
AMQP is Proton's engine; STOMP knows CONNECT, SEND, SUBSCRIBE, ACK and DISCONNECT.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from proton import Link

from tests.bench.proton_peer import ProtonPeer


class Store:
    """The one queue of a broker; also counts what was acknowledged."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bodies: list[bytes] = []
        self.sent = 0

    def put(self, bodies: list[bytes]) -> None:
        with self.lock:
            self.bodies += bodies

    def take(self, most: int) -> list[bytes]:
        with self.lock:
            found, self.bodies = self.bodies[:most], self.bodies[most:]
            self.sent += len(found)
            return found


def serve_amqp(client: socket.socket, store: Store) -> None:
    peer = ProtonPeer(credit=200)
    client.settimeout(0.01)
    number = 0
    while not peer.closed:
        try:
            data = client.recv(1 << 16)
            if not data:
                return
            peer.push(data)
        except TimeoutError:
            pass
        store.put(list(peer.received))
        peer.received.clear()
        link: Link | None = peer.link
        if link is not None and link.is_sender and link.credit > 0:
            for body in store.take(link.credit):
                link.delivery(b"%d" % number)
                link.send(body)
                link.advance()
                number += 1
        client.sendall(peer.pull())


def serve_stomp(client: socket.socket, store: Store) -> None:
    client.settimeout(0.01)
    rest = b""
    subscribed = ""
    number = 0
    while True:
        try:
            data = client.recv(1 << 16)
            if not data:
                return
            rest += data
        except TimeoutError:
            pass
        *frames, rest = rest.split(b"\0")
        out = []
        for frame in frames:
            head, _, body = frame.partition(b"\n\n")
            command, *lines = head.decode().split("\n")
            headers = dict(line.split(":", 1) for line in lines)
            if command == "CONNECT":
                out.append(b"CONNECTED\nversion:1.2\n\n\0\n")
            elif command == "SEND":
                store.put([body])
            elif command == "SUBSCRIBE":
                subscribed = headers["ack"]
            elif command not in ("ACK", "DISCONNECT"):
                client.sendall(b"ERROR\nmessage:no such command\n\n\0\n")
                return
            if "receipt" in headers:
                out.append(f"RECEIPT\nreceipt-id:{headers['receipt']}\n\n\0\n".encode())
            if command == "DISCONNECT":
                client.sendall(b"".join(out))
                return
        for body in store.take(500 if subscribed else 0):
            ack = "" if subscribed == "auto" else f"ack:{number}\n"
            out.append(
                f"MESSAGE\nsubscription:0\nmessage-id:{number}\n{ack}\n".encode() + body + b"\0\n"
            )
            number += 1
        client.sendall(b"".join(out))


@contextmanager
def broker(protocol: str) -> Iterator[tuple[int, Store]]:
    """Run a broker for `amqp` or `stomp`; gives its port and what it holds."""
    store = Store()
    serve = serve_amqp if protocol == "amqp" else serve_stomp

    def client_thread(client: socket.socket) -> None:
        with client:
            serve(client, store)

    def accept_all() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=client_thread, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=accept_all, daemon=True)
        accepting.start()
        yield listening.getsockname()[1], store
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join()
