"""Run floods against a gateway and measure what it and an honest client come to."""

from __future__ import annotations

import http.client
import multiprocessing
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.trial.scratch import HOST, ScratchGateway
from tests.attack.floods import FLOODS
from tests.attack.saying import Where
from tests.attack.stream_floods import STREAM_FLOODS, make_history

#: Of the gateway that is flooded: also what is off by default is attacked.
SETTINGS: Final = ("acceptors.all.ws-compression=deflate",)
_PAUSE_SECONDS: Final = 0.02
#: What counts as no answer at all.
_GIVEN_UP_SECONDS: Final = 20.0
_MIB: Final = 1 << 20


@dataclass(kw_only=True)
class Seen:
    """What one flood did; times in seconds, sizes in bytes.

    Attributes:
        waits: of a bystander's SEND, from the frame to its receipt.
        live: of `GET /livez`, each on a connection of its own.
    """

    flood: str
    peers: int
    before: int
    most: int = 0
    descriptors: int = 0
    waits: list[float] = field(default_factory=list)
    live: list[float] = field(default_factory=list)
    alive: bool = True

    @property
    def grew(self) -> float:
        """How much resident memory rose, in MiB."""
        return max(0, self.most - self.before) / _MIB


def part(times: list[float], share: float) -> float:
    """Return that quantile, in ms; of nothing it is infinite."""
    if not times:
        return float("inf")
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1000


def resident(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * 4096


def descriptors(pid: int) -> int:
    """Return how many files and sockets a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


class Bystander:
    """An honest STOMP client: one SEND at a time, with a receipt."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        sock = socket.create_connection((HOST, port), timeout=_GIVEN_UP_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock if tls is None else tls.wrap_socket(sock, server_hostname="localhost")
        self._ask(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0", b"CONNECTED")

    def _ask(self, frame: bytes, answer: bytes) -> None:
        self._sock.sendall(frame)
        came = b""
        while b"\0" not in came:
            more = self._sock.recv(65536)
            if not more:
                raise ConnectionError("the gateway cut an honest client")
            came += more
        if not came.lstrip(b"\n").startswith(answer):
            raise ConnectionError(f"an honest client was told {came[:200]!r}")

    def send(self) -> float:
        """Send a message; returns how long it took until it was confirmed."""
        begun = time.perf_counter()
        self._ask(b"SEND\ndestination:honest\nreceipt:1\n\nx\0", b"RECEIPT")
        return time.perf_counter() - begun

    def close(self) -> None:
        """Leave."""
        self._sock.close()


def live(port: int) -> float:
    """Ask whether the gateway lives; returns how long that took."""
    begun = time.perf_counter()
    connection = http.client.HTTPConnection(HOST, port, timeout=_GIVEN_UP_SECONDS)
    try:
        connection.request("GET", "/livez")
        if connection.getresponse().status != http.client.OK:
            return _GIVEN_UP_SECONDS
    except (OSError, http.client.HTTPException):
        return _GIVEN_UP_SECONDS
    finally:
        connection.close()
    return time.perf_counter() - begun


@contextmanager
def flooding(name: str, where: Where, peers: int) -> Iterator[None]:
    """Run so many of one flood, each in a process of its own."""
    made = multiprocessing.get_context("fork")
    running = [made.Process(target=FLOODS[name], args=(where,), daemon=True) for _ in range(peers)]
    for one in running:
        one.start()
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.join()


def attack(
    gateway: ScratchGateway,
    name: str,
    *,
    peers: int,
    seconds: float,
    tls: ssl.SSLContext | None = None,
    tell: Callable[[float], None] = lambda _: None,
) -> Seen:
    """Flood a gateway that runs, and return what was seen; `tell` gets the seconds that passed."""
    where = Where(port=gateway.port, management=gateway.management_port, tls=tls)
    if name in STREAM_FLOODS:
        make_history(where)
    bystander = Bystander(gateway.port, tls)
    pid = gateway.pid
    for _ in range(20):
        bystander.send()
    seen = Seen(flood=name, peers=peers, before=resident(pid))
    with flooding(name, where, peers):
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < seconds:
            tell(passed)
            try:
                seen.waits.append(bystander.send())
                seen.live.append(live(gateway.management_port))
                seen.most = max(seen.most, resident(pid))
                seen.descriptors = max(seen.descriptors, descriptors(pid))
            except (OSError, ConnectionError):
                seen.alive = gateway.running()
                seen.waits.append(_GIVEN_UP_SECONDS)
                break
            time.sleep(_PAUSE_SECONDS)
    bystander.close()
    seen.alive = seen.alive and gateway.running()
    return seen
