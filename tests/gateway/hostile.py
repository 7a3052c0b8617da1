"""Peers of our own that mean harm, and what they cost: used by the tests of the real process.

running = Exposed(folder, "tls")
with running.flood(CONNECT) as flood:
    flood.pour(data)              for as long as it is read
    flood.peak                    by how much the process grew meanwhile, in bytes
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.trial.scratch import HOST, ScratchGateway
from tests.certificates import Authority
from tests.gateway.stomp_peer import StompPeer

MIB = 1 << 20
#: By which no peer may have the process grow.
GROWTH_MAX = 64 * MIB
#: Who is not read from for so long is not read from.
STILL_SECONDS = 1.5
PATIENCE = 20.0


class Exposed:
    """A gateway that speaks all over TLS, or nothing."""

    def __init__(self, folder: Path, wire: str, *settings: str) -> None:
        self.context: ssl.SSLContext | None = None
        pair = None
        if wire == "tls":
            authority = Authority(folder / "made")
            pair = authority.issue()
            self.context = authority.client()
        self.gateway = ScratchGateway(
            folder,
            settings=settings,
            tls=None if pair is None else (pair.certificate, pair.key),
            tls_management=True,
        )

    def flood(self, hello: bytes = b"", *, http: bool = False) -> Flood:
        """Return a peer that has said this."""
        gateway = self.gateway
        one = Flood(gateway, gateway.management_port if http else gateway.port, self.context)
        one.say(hello)
        return one

    def peer(self) -> StompPeer:
        """Return a STOMP client that means well."""
        return StompPeer(self.gateway.port, context=self.context)

    def log(self) -> str:
        return self.gateway.log.read_text()


def resident(gateway: ScratchGateway) -> int:
    """Return the resident memory of a gateway's process, in bytes."""
    for line in Path(f"/proc/{gateway.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


class Flood:
    """One connection that sends on and on, and reads nothing unless it is told to."""

    def __init__(
        self, gateway: ScratchGateway, port: int, context: ssl.SSLContext | None = None
    ) -> None:
        self.gateway = gateway
        self.socket = socket.create_connection((HOST, port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.before = resident(gateway)
        self.peak = 0
        self.sent = 0
        self.gone = False

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> bytes:
        return self.socket.recv(65536)

    def measure(self) -> int:
        grown = resident(self.gateway) - self.before
        self.peak = max(self.peak, grown)
        return grown

    def pour(self, data: bytes | Callable[[], bytes], *, seconds: float = PATIENCE) -> bool:
        """Send until nothing is taken for `STILL_SECONDS`; False when all was taken, up to the end.

        Ends early when the process has grown by much more than it may, or the peer is cut.
        """
        self.socket.setblocking(False)
        last = began = time.monotonic()
        left = b""
        while time.monotonic() - began < seconds and self.measure() < 2 * GROWTH_MAX:
            left = left or (data if isinstance(data, bytes) else data())
            try:
                count = self.socket.send(left)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                if time.monotonic() - last > STILL_SECONDS:
                    return True
                select.select([], [self.socket], [], 0.1)
                continue
            except (OSError, ssl.SSLError):
                self.gone = True
                return True
            left = left[count:]
            self.sent += count
            last = time.monotonic()
        return False

    def cut_within(self, seconds: float) -> bool:
        """Whether the gateway cuts the connection, while nothing is read."""
        self.socket.setblocking(True)
        poll = select.poll()
        poll.register(self.socket.fileno(), select.POLLHUP | select.POLLERR | select.POLLRDHUP)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
