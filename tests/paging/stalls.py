"""How long a gateway stands still while its pages are read: `python -m tests.paging.stalls`.

A real gateway whose disk takes 5 ms for each read of a page file. A queue is filled, most of it on
pages, and then looked at, drained, moved and emptied in all ways that clients and operators have.
Beside it a call of the gateway's reactor comes back each millisecond; the longest time that it did
not, less what other processes took of it, is told for each way, with the time that all of it took.
"""

from __future__ import annotations

import argparse
import http.client
import json
import mmap
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from proton.reactor import Copy
from proton.utils import BlockingConnection

from gateway.bench.drive import Job
from gateway.bench.run import timed
from gateway.trial.scratch import HOST, ScratchGateway

SECONDS = 600
DRAINED = 5000
SETTINGS = {
    "max-size-bytes": "1M",
    "dead-letter-address": "DLQ",
    "expiry-address": "EXPIRED",
    "auto-create-dead-letter-resources": True,
    "auto-create-expiry-resources": True,
}

#: Runs in the gateway's process before it starts: the slow disk, and the probe of the reactor.
SURROUNDINGS = """
import mmap, struct, time
from storage.files import RealFiles
from gateway.assembly.service import Run
_open, _pread, _pages = RealFiles.open, RealFiles.pread, set()
def opened(self, path, **how):
    fd = _open(self, path, **how)
    (_pages.add if path.endswith(".page") else _pages.discard)(fd)
    return fd
def pread(self, fd, count, offset):
    if fd in _pages:
        time.sleep({delay!r})
    return _pread(self, fd, count, offset)
RealFiles.open, RealFiles.pread = opened, pread
_file = open({probe!r}, "r+b")
_worst = mmap.mmap(_file.fileno(), 8)
_start = Run.start
_schedule = open("/proc/thread-self/schedstat", "rb", buffering=0)
def start(self, *given):
    def own():
        _schedule.seek(0)
        waited = int(_schedule.read().split()[1]) / 1e9
        return time.monotonic() - waited
    last = own()
    def probe():
        nonlocal last
        now = own()
        if now - last > struct.unpack("d", _worst)[0]:
            _worst[:] = struct.pack("d", now - last)
        last = now
        self._reactor.callLater(0.001, probe)
    probe()
    return _start(self, *given)
Run.start = start
from gateway.cli.main import main
main()
"""


class ProbedGateway(ScratchGateway):
    """A gateway with `SURROUNDINGS`."""

    def __init__(self, folder: Path, delay: float, config: Path) -> None:
        super().__init__(folder, config=config)
        probe = folder / "probe"
        probe.write_bytes(bytes(8))
        self._code = SURROUNDINGS.format(delay=delay, probe=str(probe))
        with probe.open("r+b") as file:
            self._worst = mmap.mmap(file.fileno(), 8)

    def command(self) -> list[str]:
        given = super().command()
        return [sys.executable, "-c", self._code, *given[given.index("run") :]]

    def forget(self) -> None:
        self._worst[:] = bytes(8)

    def worst(self) -> float:
        """Return the longest stall, in seconds, since `forget`."""
        return float(struct.unpack("d", self._worst)[0])

    def call(
        self, method: str, path: str, body: object | None = None, status: int = 200
    ) -> dict[str, object]:
        """Ask the management API, with patience."""
        connection = http.client.HTTPConnection(HOST, self.management_port, timeout=SECONDS)
        try:
            payload = None if body is None else json.dumps(body).encode()
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, f"/api/v1/{path}", body=payload, headers=headers)
            answer = connection.getresponse()
            found = json.loads(answer.read())
            assert answer.status == status, found
            return dict(found)
        finally:
            connection.close()


@contextmanager
def receiving(
    gateway: ProbedGateway, address: str, credit: int, *options: object
) -> Iterator[tuple[BlockingConnection, object]]:
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=SECONDS)
    try:
        yield connection, connection.create_receiver(address, credit=credit, options=list(options))
    finally:
        connection.close()


class Stalls:
    """The ways to read pages, each of which returns how many messages it concerned."""

    def __init__(self, gateway: ProbedGateway, count: int, window: int) -> None:
        self.gateway = gateway
        self.count = count
        self.window = window

    def fill(self) -> int:
        job = Job(
            protocol="amqp",
            role="send",
            host=HOST,
            port=self.gateway.port,
            address="q",
            count=self.count,
            size=200,
            durable=True,
            window=self.window,
        )
        timed(None, [job])
        time.sleep(1)
        return self.count

    def _list(self, query: str) -> int:
        return len(self.gateway.call("GET", f"queues/q/messages?{query}")["items"])

    def first(self) -> int:
        return self._list("limit=200")

    def deep(self) -> int:
        return self._list(f"limit=200&offset={self.count - 200}")

    def filtered(self) -> int:
        return self._list(f"limit=200&filter={quote('JMSPriority > 4')}")

    def counted(self) -> int:
        return int(
            self.gateway.call("GET", f"queues/q/countMessages?filter={quote('JMSPriority = 4')}")[
                "messages"
            ]
        )

    def total(self) -> int:
        return int(self.gateway.call("GET", "queues/q/countMessages")["messages"])

    def browsed(self) -> int:
        with receiving(self.gateway, "q", 1000, Copy()) as (_, receiver):
            for number in range(self.count):
                receiver.receive()
                if number % 500 == 499:
                    receiver.flow(500)
        return self.count

    def browsed_stomp(self) -> int:
        with socket.create_connection((HOST, self.gateway.stomp_port), timeout=SECONDS) as peer:
            peer.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
            peer.sendall(b"SUBSCRIBE\nid:1\ndestination:q\nbrowser:true\nack:auto\n\n\0")
            seen, rest = 0, b""
            while b"browser:end" not in rest:
                data = peer.recv(1 << 18)
                assert data, rest
                seen += data.count(b"\0")
                rest = rest[-100:] + data
        return seen - 2

    def drained(self) -> int:
        with receiving(self.gateway, "q", 0) as (connection, receiver):
            link = receiver.link
            link.drain(DRAINED)
            came = receiver.fetcher.incoming
            connection.wait(lambda: len(came) >= min(DRAINED, self.count))
            return len(came)

    def _post(self, queue: str, call: str, **fields: object) -> int:
        return int(self.gateway.call("POST", f"queues/{queue}/{call}", fields)["messages"])

    def killed(self) -> int:
        return self._post("q", "sendMessagesToDeadLetterAddress")

    def retried(self) -> int:
        return self._post("DLQ.q", "retryMessages")

    def expired(self) -> int:
        return self._post("q", "expireMessages", limit=self.count // 4)

    def moved(self) -> int:
        self.gateway.call("POST", "queues", {"name": "r", "address": "r"}, status=201)
        return self._post("q", "moveMessages", target="r", filter="JMSPriority = 4")

    def some_removed(self) -> int:
        return self._post("r", "removeAllMessages", filter="JMSPriority = 4", limit=self.count // 4)

    def purged(self) -> int:
        return self._post("r", "removeAllMessages")


def ways(stalls: Stalls) -> list[tuple[str, Callable[[], int]]]:
    return [
        ("idle", lambda: time.sleep(2) or 0),
        ("fill, durable", stalls.fill),
        ("list, the first 200", stalls.first),
        ("list, the last 200", stalls.deep),
        ("list by filter, none fits", stalls.filtered),
        ("count", stalls.total),
        ("count by filter", stalls.counted),
        ("browse over AMQP", stalls.browsed),
        ("browse over STOMP", stalls.browsed_stomp),
        ("drain over AMQP", stalls.drained),
        ("give up to dead letters", stalls.killed),
        ("retry dead letters", stalls.retried),
        ("expire a quarter", stalls.expired),
        ("move by filter", stalls.moved),
        ("remove a quarter by filter", stalls.some_removed),
        ("purge", stalls.purged),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="stalls")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--delay", type=float, default=0.005, help="seconds for each read")
    parser.add_argument("--window", type=int, default=100, help="of the sender: sizes of blocks")
    parser.add_argument("--only", default="", help="part of the names of ways")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluicegate-stalls-") as path:
        config = Path(path) / "f.toml"
        settings = "\n".join(f"{k} = {json.dumps(v)}" for k, v in SETTINGS.items())
        config.write_text(f'[address-settings."#"]\n{settings}\n')
        with ProbedGateway(Path(path), wanted.delay, config) as gateway:
            for name, way in ways(Stalls(gateway, wanted.messages, wanted.window)):
                if wanted.only and wanted.only not in name and "fill" not in name:
                    continue
                gateway.forget()
                began = time.monotonic()
                count = way()
                took = time.monotonic() - began
                time.sleep(0.1)
                stall = gateway.worst() * 1000
                print(f"{name:<28}{count:>9,}{took:>8.1f} s{stall:>10.0f} ms", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
