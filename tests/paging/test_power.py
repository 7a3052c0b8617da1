"""Page files on a disk that loses its power at any call: what was confirmed is there, in order.

A short life (memory, pages, acknowledgements out of order, a commit, a purge of pages by consuming)
is cut at each call that the disk sees, with several fates of what was not synced.
"""

from __future__ import annotations

import random

import pytest

from gateway.addresses.match import SettingsEntry
from gateway.model.message import MAYBE_SEEN
from gateway.model.run import Run
from tests.broker.core import body_of, flags_of, stomp
from tests.paging.node import Node
from tests.simulation.disk import Crash, SimDisk

FATES = 3
SETTINGS = SettingsEntry(
    match="#", values={"max_size_messages": 3, "page_size_bytes": 1024, "max_read_page_bytes": 4096}
)


class Life:
    """A gateway on a disk, and what its clients know."""

    def __init__(self, disk: SimDisk, seed: str) -> None:
        self.disk = disk
        self.chance = random.Random(seed)
        self.sent: list[bytes] = []
        self.waiting: dict[bytes, int] = {}  # by body: ticket
        self.confirmed: set[bytes] = set()
        self.acked: dict[bytes, int] = {}
        self.settled: set[bytes] = set()
        self.taker = None
        self.begin()

    def begin(self) -> None:
        uuids = random.Random(self.chance.random())
        self.node = Node(
            self.disk, "d", SETTINGS, segment_bytes=2048, make_uuid=lambda: uuids.randbytes(16)
        )
        told = self.node.journal.on_durable

        def durable(ticket: int) -> None:
            told(ticket)
            self.confirmed |= {body for body, own in self.waiting.items() if own <= ticket}
            self.settled |= {body for body, own in self.acked.items() if own <= ticket}

        self.node.journal.on_durable = durable
        self.waiting, self.acked = {}, {}

    def send(self, count: int) -> None:
        first = len(self.sent)
        bodies = [b"%04d" % number + b"x" * 60 for number in range(first, first + count)]
        self.sent += bodies
        route = self.node.producer("q")
        ticket = route.send(Run([stomp(body) for body in bodies], flags_of())).ticket
        self.waiting |= dict.fromkeys(bodies, ticket)
        self.node.turn()
        route.close()

    def take(self, room: int) -> None:
        if self.taker is None:
            self.taker = self.node.consume("q")
        self.taker.take(room)
        self.node.sync()

    def ack(self, places: list[int]) -> None:
        messages = [self.taker.got[place] for place in places if place < len(self.taker.got)]
        if messages:
            self.taker.got = [m for m in self.taker.got if m not in messages]
            ticket = self.taker.hold.acknowledge(messages)
            self.acked |= {body_of(m): ticket for m in messages}

    def run(self) -> None:
        """The life that is cut somewhere."""
        self.send(2)
        self.send(4)
        self.node.sync()
        self.send(9)
        self.send(1)
        self.node.sync()
        self.take(8)
        self.ack([1, 3, 6])
        self.node.sync()
        self.send(5)
        self.ack([0])
        self.node.sync()
        self.ack([0, 1, 2, 3])
        self.node.sync()
        self.take(30)
        self.ack(list(range(30)))
        self.node.sync()
        self.send(7)
        self.node.sync()

    def check(self, asked: set[bytes]) -> None:
        """Compare with what a start finds, then read all; `asked`: acknowledged before."""
        self.node.check()
        queue = self.node.gateway.queues.get("q")
        found = [] if queue is None else self.node.drain("q", step=3)
        assert found == sorted(found), "the order is broken"
        missing = self.confirmed - asked - set(found)
        assert not missing, f"confirmed and gone: {sorted(missing)}"
        assert not self.settled & set(found), "what was settled came back"
        assert set(found) <= set(self.sent)
        assert len(found) == len(set(found))
        self.node.check()
        assert self.node.page_files() == []


def cut(calls: int, fate: str, *, power: bool) -> bool:
    """Run a life that ends at that call; returns whether it came to its own end before."""
    disk = SimDisk(random.Random(fate))
    life = Life(disk, "life")
    disk.crash_at = disk.calls + calls
    ended = True
    try:
        life.run()
    except Crash:
        ended = False
    asked = set(life.acked)
    if power:
        disk.lose_power()
    else:
        disk.boot()
    disk.crash_at = -1
    life.begin()
    life.taker = None
    life.check(asked)
    return ended


@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_any_call_loses_nothing_that_was_confirmed(part):
    calls = part + 1
    while True:
        done = cut(calls, f"{calls}/kill", power=False)
        for number in range(FATES):
            cut(calls, f"{calls}/{number}", power=True)
        if done:
            break
        calls += 4
    assert calls > 30


def test_what_came_over_a_crash_is_marked():
    disk = SimDisk(random.Random("marks"))
    life = Life(disk, "life")
    life.send(10)
    life.node.sync()
    disk.boot()
    life.begin()
    life.taker = None
    life.take(10)
    assert [bool(m.flags & MAYBE_SEEN) for m in life.taker.got] == [True] * 10


@pytest.mark.parametrize("clean", [False, True])
def test_a_restart_in_the_middle_keeps_figures_and_places(clean, tmp_path):
    disk = SimDisk(random.Random("middle"))
    life = Life(disk, "life")
    life.send(40)
    life.node.sync()
    life.take(20)
    life.ack([1, 3, 5, 7, 9, 11, 13])
    life.node.sync()
    for _ in range(3):
        life.node.restart(clean=clean)
        life.node.check()
        assert life.node.gateway.queues["q"].message_count == 33
    gone = {1, 3, 5, 7, 9, 11, 13}
    kept = [body for number, body in enumerate(life.sent) if number not in gone]
    assert life.node.drain("q") == kept


def test_a_rolled_segment_remembers_what_is_done():
    disk = SimDisk(random.Random("roll"))
    life = Life(disk, "life")
    life.send(40)
    life.node.sync()
    life.take(30)
    life.ack([20, 22, 24])
    life.node.sync()
    before = life.node.journal.segment
    filler = life.node.producer("filler")
    while life.node.journal.segment < before + 3:
        filler.send(Run([stomp(b"f" * 300)], flags_of()))
        life.node.sync()
    life.node.restart()
    assert life.node.gateway.queues["q"].message_count == 37
    kept = [body for number, body in enumerate(life.sent) if number not in {20, 22, 24}]
    assert life.node.drain("q") == kept
