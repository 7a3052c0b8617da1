"""A large backlog on pages, measured: `python -m tests.paging.backlog [--messages N] [--body B]`.

Sends, kills, starts, counts, reads all in order and acknowledges. The suite runs a small one.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from gateway.addresses.match import SettingsEntry
from gateway.model.message import MAYBE_SEEN
from gateway.model.run import Run
from gateway.model.stomp_form import unpack
from tests.broker.core import flags_of, stomp
from tests.paging.node import Node, node

RUN = 500
#: Kept in memory before page mode begins.
MEMORY = 1000


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a backlog cost: seconds, and bytes that the process grew by."""

    send_seconds: float
    start_seconds: float
    read_seconds: float
    sent_bytes: int
    restarted_bytes: int
    disk_bytes: int


def resident_bytes() -> int:
    """Return the memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


def run_backlog(path: Path, messages: int, body: int) -> Measured:
    """Run one backlog through its life; raises AssertionError when a figure or an order is off."""
    entry = SettingsEntry(match="#", values={"max_size_messages": MEMORY})
    before = resident_bytes()
    gateway = node(path, entry, segment_bytes=32 << 20)
    started = time.perf_counter()
    _fill(gateway, messages, body)
    sent = time.perf_counter()
    queue = gateway.gateway.queues["q"]
    assert (queue.message_count, queue.paged_count) == (messages, messages - MEMORY)
    sent_bytes = resident_bytes() - before
    disk = sum(file.stat().st_size for file in (path / "paging").iterdir())
    began = time.perf_counter()
    gateway.restart()
    restarted = time.perf_counter()
    queue = gateway.gateway.queues["q"]
    assert (queue.message_count, queue.paged_count) == (messages, messages - MEMORY)
    restarted_bytes = resident_bytes() - before
    read_from = time.perf_counter()
    _drain(gateway, messages)
    read = time.perf_counter()
    gateway.check()
    assert gateway.gateway.addresses["q"].paging is None
    assert gateway.page_files() == []
    gateway.close()
    return Measured(
        send_seconds=sent - started,
        start_seconds=restarted - began,
        read_seconds=read - read_from,
        sent_bytes=sent_bytes,
        restarted_bytes=restarted_bytes,
        disk_bytes=disk,
    )


def _fill(gateway: Node, messages: int, body: int) -> None:
    route = gateway.producer("q")
    tail = b"x" * (body - 8)
    for first in range(0, messages, RUN):
        count = min(RUN, messages - first)
        run = [stomp(b"%08d" % number + tail) for number in range(first, first + count)]
        assert route.send(Run(run, flags_of())).refusal is None
        gateway.sync()
    route.close()


def _drain(gateway: Node, messages: int) -> None:
    taker = gateway.consume("q")
    number = 0
    while number < messages:
        taker.take(2000)
        gateway.sync()
        assert taker.got, f"nothing comes after {number}"
        for message in taker.got:
            assert int(unpack(message.body)[1][:8]) == number, f"not {number}"
            assert message.flags & MAYBE_SEEN
            number += 1
        taker.ack()
        taker.left = 0
        gateway.sync()
    assert gateway.gateway.queues["q"].message_count == 0
    taker.leave()
    gateway.sync()


def main() -> int:
    parser = argparse.ArgumentParser(prog="backlog")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--body", type=int, default=200)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        found = run_backlog(Path(path), wanted.messages, wanted.body)
    mib = 1 << 20
    print(f"{wanted.messages} messages of {wanted.body} B, {found.disk_bytes / mib:.0f} MiB paged")
    print(f"sent in {found.send_seconds:.1f} s, {found.sent_bytes / mib:.1f} MiB more memory")
    print(f"restarted in {found.start_seconds:.2f} s, {found.restarted_bytes / mib:.1f} MiB")
    print(f"read, in order, in {found.read_seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
