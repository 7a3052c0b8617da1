"""A large backlog on pages in a real gateway: `python -m tests.paging.soak [--messages N]`.

A STOMP client fills one queue, all confirmed; the gateway is killed; the next one on the directory
must listen soon and know the exact depth; a client then takes everything and checks the order.
Measured on the gateway's process from outside: resident memory now and at its highest, seconds.
"""

from __future__ import annotations

import argparse
import re
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from gateway.trial.scratch import HOST, ScratchGateway

QUEUE = "soak"
RUN = 1000
#: Kept in memory before page mode begins; small, so that pages are what is measured.
SETTINGS = ('address-settings."#".max-size-bytes="20 MiB"',)
#: What the backlog may cost: resident bytes, and seconds until a restarted gateway listens.
MOST_BYTES = 400 << 20
MOST_SECONDS = 30.0


class Client:
    """One STOMP 1.2 connection over a plain socket."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=60)
        self._rest = b""
        self.write(b"CONNECT\naccept-version:1.2\nhost:x\n\n\x00")
        assert next(self.frames()).startswith(b"CONNECTED\n")

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frames(self) -> Iterator[bytes]:
        """Yield frames without end; the bodies of this test hold no NUL."""
        while True:
            *whole, self._rest = self._rest.split(b"\x00")
            for frame in whole:
                yield frame.lstrip(b"\n")
            data = self._socket.recv(1 << 18)
            assert data, "the gateway closed the connection"
            self._rest += data

    def close(self) -> None:
        self._socket.close()


def memory(pid: int) -> tuple[int, int]:
    """Return the resident bytes of a process, now and at their highest."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    known = {line.split(":")[0]: line.split()[1] for line in lines if line.endswith(" kB")}
    return int(known["VmRSS"]) << 10, int(known["VmHWM"]) << 10


def fill(port: int, messages: int, body: int, bar: Progress) -> None:
    client = Client(port)
    frames = client.frames()
    task = bar.add_task("sent", total=messages)
    head = f"SEND\ndestination:/queue/{QUEUE}\npersistent:true\ncontent-length:{body}\n".encode()
    tail = b"x" * (body - 8)
    under_way = 0
    for first in range(0, messages, RUN):
        count = min(RUN, messages - first)
        last = first + count - 1
        sends = [head + b"\n%08d" % at + tail + b"\x00" for at in range(first, last)]
        sends.append(head + b"receipt:%d\n\n%08d" % (last, last) + tail + b"\x00")
        client.write(b"".join(sends))
        under_way += 1
        while under_way > 8 or (under_way and last == messages - 1):
            assert next(frames).startswith(b"RECEIPT\n")
            under_way -= 1
        bar.update(task, completed=last + 1)
    client.close()


def drain(port: int, messages: int, bar: Progress) -> None:
    """Take all, in order, each marked as perhaps seen before: a gateway was killed."""
    client = Client(port)
    task = bar.add_task("read", total=messages)
    headers = f"id:0\ndestination:/queue/{QUEUE}\nack:client\nprefetch-count:5000\n"
    client.write(f"SUBSCRIBE\n{headers}\n\x00".encode())
    for at, frame in enumerate(client.frames()):
        assert frame.startswith(b"MESSAGE\n"), frame
        head, _, text = frame.partition(b"\n\n")
        assert int(text[:8]) == at, f"{text[:8]!r} instead of {at}"
        if at % RUN == RUN - 1 or at == messages - 1:
            name = head.partition(b"\nack:")[2].partition(b"\n")[0]
            client.write(b"ACK\nid:" + name + b"\n\n\x00")
            bar.update(task, completed=at + 1)
        if at == messages - 1:
            break
    client.write(b"DISCONNECT\nreceipt:bye\n\n\x00")
    assert next(client.frames()).startswith(b"RECEIPT\n")
    client.close()


def depth(gateway: ScratchGateway) -> tuple[int, int]:
    """Return how many messages the queue has, and how many of them are on pages."""
    status, facts = gateway.request("GET", f"/api/v1/queues/{QUEUE}")
    assert status == 200
    assert isinstance(facts, dict)
    with urllib.request.urlopen(f"{gateway.url}/metrics", timeout=60) as answer:
        figures = answer.read().decode()
    paged = re.search(rf'queue_paged_count{{[^}}]*queue="{QUEUE}"[^}}]*}} (\d+)', figures)
    assert paged is not None, "no figure for the queue"
    return facts["messageCount"], int(paged[1])


def run_soak(folder: Path, messages: int, body: int, console: Console) -> bool:
    """Run one; returns whether memory and start were within what they may be."""
    gateway = ScratchGateway(folder, settings=SETTINGS)
    gateway.start()
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        began = time.perf_counter()
        fill(gateway.stomp_port, messages, body, bar)
        sent = time.perf_counter() - began
        found = depth(gateway)
        now, most = memory(gateway.pid)
        assert found[0] == messages, found
        console.print(f"{messages:,} of {body} B confirmed in {sent:.1f} s, {found[1]:,} on pages")
        console.print(f"resident {now >> 20} MiB, at its highest {most >> 20} MiB")
        gateway.kill()
        began = time.perf_counter()
        gateway.start()
        started = time.perf_counter() - began
        assert depth(gateway)[0] == messages
        again = memory(gateway.pid)[1]
        console.print(f"killed; listens again after {started:.2f} s, {again >> 20} MiB")
        began = time.perf_counter()
        drain(gateway.stomp_port, messages, bar)
        read = time.perf_counter() - began
    assert depth(gateway)[0] == 0
    last = memory(gateway.pid)[1]
    console.print(f"read in order in {read:.1f} s, {last >> 20} MiB at the highest")
    assert gateway.stop() == 0
    return max(most, again, last) <= MOST_BYTES and started <= MOST_SECONDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak")
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--body", type=int, default=200)
    wanted = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        good = run_soak(Path(folder), wanted.messages, wanted.body, console)
    if not good:
        console.print(f"MORE than {MOST_BYTES >> 20} MiB, or than {MOST_SECONDS:.0f} s to start")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
