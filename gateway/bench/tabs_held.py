"""The idle tabs of `gateway.bench.tabs`, in a process of their own.

    python -m gateway.bench.tabs_held PORT COUNT

opens as many WebSockets, logs each in over STOMP with heart-beats as stompjs has them, subscribes
it to a topic, prints a line, and keeps all of them alive until its standard input ends.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from typing import Final

from gateway.bench.amqp import PeerError
from gateway.bench.websocket import WebSocket

#: What stompjs asks for unless a page says otherwise, both ways.
BEAT_SECONDS: Final = 10.0
_CONNECT: Final = b"CONNECT\naccept-version:1.2\nhost:localhost\nheart-beat:10000,10000\n\n\x00"
_SUBSCRIBE: Final = b"SUBSCRIBE\nid:0\ndestination:/topic/news\nreceipt:s\n\n\x00"
#: How often it is looked which of them have to beat.
STEP_SECONDS: Final = 0.005


def open_tab(port: int, host: str = "127.0.0.1", *, said: bytes) -> tuple[socket.socket, WebSocket]:
    """Return a WebSocket that is logged in and has had a receipt for `said`; raises PeerError."""
    plain = socket.create_connection((host, port), timeout=30)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tab = WebSocket(plain, None, host, "stomp")
    for frame, answer in ((_CONNECT, b"CONNECTED"), (said, b"RECEIPT")):
        tab.sendall(frame)
        came = b""
        while not came.endswith((b"\x00", b"\x00\n")):
            data = tab.recv()
            if data == b"":
                raise PeerError("the gateway closed a tab's connection")
            came += data or b""
        if not came.lstrip(b"\n").startswith(answer):
            raise PeerError(f"a tab was refused: {came[:300]!r}")
    return plain, tab


def hold(port: int, count: int) -> None:
    """Open the tabs, say so, and keep them until standard input ends."""
    epoll = select.epoll()
    epoll.register(sys.stdin, select.EPOLLIN)
    by_fd: dict[int, WebSocket] = {}
    kept = []
    for _ in range(count):
        plain, tab = open_tab(port, said=_SUBSCRIBE)
        plain.settimeout(0)
        kept.append(plain)
        by_fd[plain.fileno()] = tab
        epoll.register(plain, select.EPOLLIN)
    sys.stdout.write("open\n")
    sys.stdout.flush()
    order, place = list(by_fd.values()), 0
    began = time.monotonic()
    while True:
        for fd, _ in epoll.poll(STEP_SECONDS):
            if fd not in by_fd:
                return
            if by_fd[fd].recv() == b"":
                raise PeerError("the gateway closed a tab's connection")
        due = int((time.monotonic() - began) / BEAT_SECONDS * count)
        while place < due:
            order[place % count].sendall(b"\n")
            place += 1


def main() -> int:
    """Hold tabs; status 1 with a line of text when the gateway ends one."""
    try:
        hold(int(sys.argv[1]), int(sys.argv[2]))
    except (PeerError, OSError) as error:
        sys.stdout.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
