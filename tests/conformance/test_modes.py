"""Rows of the durability modes: what a sender is told, and what its confirmation waits for."""

from __future__ import annotations

import random

import pytest

from gateway.addresses.settings import Durability
from gateway.model.definitions import QueueDefinition
from gateway.model.errors import Code
from gateway.model.run import Run
from gateway.store.persistence import JournalStore, open_journal
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.opening import our_open
from protocols.amqp.performatives import Attach
from storage.segments import Segments
from tests.broker.core import ANYCAST, Core, Listener, entry
from tests.conformance.clients import Amqp, Stomp
from tests.protocols.amqp.peer import of
from tests.simulation.disk import SimDisk
from tests.simulation.writer import TurnWriter


class Disk:
    """A core over a real journal on a simulated disk; `calls` are its syncs so far."""

    def __init__(self, mode: Durability) -> None:
        self.core = Core(entry("#", durability=mode))
        self.disk = SimDisk(random.Random(1))
        self.journal, _ = open_journal(self.disk, "j", 1 << 20)
        core = self.core
        store = JournalStore(self.journal)
        core.store = store
        core._make()
        segments = Segments(self.disk, "j", lambda: bytes(16))
        self.writer = TurnWriter(self.journal, segments, 1 << 20)
        self.journal.start(self.writer)
        self.journal.on_durable = core.gateway.durable_up_to
        self.listener = Listener()
        core.administration.create_queue("q", "q", ANYCAST)
        self.work()

    def work(self) -> None:
        """Let the turn and the disk do all they can."""
        self.core.turn()
        self.core.store.flush()
        self.writer.run()
        self.core.turn()

    @property
    def syncs(self) -> int:
        return sum("sync j" in line for line in self.disk.log)

    def send(self) -> int:
        """Send one durable message; returns its ticket."""
        route, _ = self.core.producer("q")
        ticket = route.send(Run([b"destination:q\n\nm"], 0x34)).ticket
        self.core.gateway.await_durable(self.listener)
        return ticket


def test_k11_what_is_written_is_confirmed_and_synced_at_the_next_interval():
    life = Disk(Durability.WRITE)
    before = life.syncs
    ticket = life.send()
    life.work()
    assert life.listener.up_to == ticket
    assert life.syncs == before, "a confirmation waited for a sync"
    assert life.journal.synced < ticket
    life.journal.sync()
    life.work()
    assert life.syncs == before + 1
    assert life.journal.synced > ticket
    life.journal.sync()
    life.work()
    assert life.syncs == before + 1, "idle, and it syncs"


def test_k12_what_must_be_synced_is_confirmed_by_its_sync():
    life = Disk(Durability.FSYNC)
    before = life.syncs
    ticket = life.send()
    life.core.turn()
    assert (life.listener.up_to, life.syncs) == (0, before)
    life.work()
    assert (life.listener.up_to, life.syncs) == (ticket, before + 1)
    assert life.journal.synced == ticket


def test_k12_what_stays_in_memory_waits_for_nothing_and_goes_with_the_process():
    core = Core(entry("m", durability=Durability.MEMORY))
    taker = core.consume("m")
    client = Stomp(core)
    client.send("m", "1")
    assert taker.bodies() == [b"1"]
    assert not [r for batch in core.store.batches for r in batch if r[0] == "add"]
    taker.ack()
    client.send("m", "2")
    core.check()
    core.restart()
    assert core.waiting("m") == []
    assert core.queue("m").durable, "the queue itself is remembered"


@pytest.mark.parametrize("mode", list(Durability))
def test_the_mode_is_told_to_senders(mode):
    core = Core(entry("q", durability=mode))
    peer = Amqp.at(core)
    (attached,) = of(peer.sender(0, "q"), Attach)
    assert attached.properties == {"x-durability": mode.value}
    assert Stomp(core, durability=mode.value).greeting[0][1]["x-durability"] == mode.value
    assert our_open(AmqpLimits(durability=mode.value)).properties["x-durability"] == mode.value


def test_only_queues_of_a_written_address_are_relaxed():
    core = Core(entry("w", durability=Durability.WRITE))
    core.send("w", b"1")
    core.send("q", b"1")
    assert core.store.relaxed == {core.queue("w").queue_id}
    core.sync()
    core.restart()
    assert core.store.relaxed == {core.queue("w").queue_id}


def test_a_deleted_queue_is_forgotten():
    life = Disk(Durability.WRITE)
    assert life.journal.lax
    definition = QueueDefinition(
        queue_id=next(iter(life.journal.lax)), name="q", address="q", routing=ANYCAST
    )
    life.core.store.undefine(definition)
    assert not life.journal.lax


def test_k8_senders_wait_while_too_much_waits_for_the_disk():
    core = Core()
    named, owner = core.producer("q")
    core.send("q", b"1")
    core.store.congested = True
    core.store.relieved = False
    core.send("q", b"2")
    assert owner.blocked
    assert named.blocked().code is Code.STORE_BUSY
    fresh, _ = core.producer("other")
    assert fresh.blocked().code is Code.STORE_BUSY, "senders of every queue wait"
    assert core.send("q", b"3") == [True], "what comes on credit given before is taken"
    core.sync()
    assert owner.blocked, "not before there is room"
    core.store.congested = False
    core.store.relieved = True
    core.send("q", b"4")
    core.sync()
    assert not owner.blocked
    assert named.blocked() is None
    assert core.waiting("q") == [b"1", b"2", b"3", b"4"]


def test_k8_who_waits_for_its_address_too_goes_on_when_both_have_room():
    core = Core(entry("q", max_size_messages=1, address_full_policy="BLOCK"))
    _, owner = core.producer("q")
    core.store.congested, core.store.relieved = True, False
    core.send("q", b"1")
    core.store.congested, core.store.relieved = False, True
    core.sync()
    assert core.gateway.pressure.busy.refusal is None
    assert core.gateway.pressure.busy.times == 1
    assert owner.told.count("unblocked") <= 1
