"""What the scripted broker hands out: producers, relays and subscriptions that note each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gateway.model.amqp_types import Value
from gateway.model.errors import Refusal
from gateway.model.message import DURABLE, ONE_DELIVERY, SCHEDULED, Message
from gateway.model.ports import Consumer, ProducerOwner, Progress
from gateway.model.run import MixedRun, Outcome, Run

if TYPE_CHECKING:
    from tests.protocols.scripted_broker import ScriptedBroker


class ScriptedProducer:
    """Takes everything, or what the test says.

    Attributes:
        capacity: how many messages it takes before it refuses (FAIL); None: all.
        full: why it holds its sender back (BLOCK).
        share: bytes that its sender may be promised; None: no limit.
    """

    durability = "fsync"
    stamps = False
    remakes = True
    waits = True

    def __init__(self, broker: ScriptedBroker, address: str, owner: ProducerOwner) -> None:
        self.broker = broker
        self.address = address
        self.owner = owner
        self.credited = True
        self.capacity: int | None = None
        self.full: Refusal | None = None
        self.share: int | None = None
        self.closed = False

    def send(self, run: Run) -> Outcome:
        if run.due:
            self.broker.note("due", run.due)
        flags = run.flags & ~SCHEDULED
        taken = self._take(run.bodies)
        self.broker.note("send", self.address, list(run.bodies[:taken]), flags, run.expires)
        return self._outcome(taken, run.count, durable=bool(flags & DURABLE))

    def send_mixed(self, run: MixedRun) -> Outcome:
        assert not run.dues, "what is due later comes in runs"
        assert len(run.bodies) == len(run.flags) == len(run.expires)
        taken = self._take(run.bodies)
        flags = list(run.flags[:taken])
        self.broker.note(
            "send mixed", self.address, list(run.bodies[:taken]), flags, list(run.expires[:taken])
        )
        return self._outcome(taken, len(run.bodies), durable=any(f & DURABLE for f in flags))

    def _take(self, bodies: Sequence[bytes]) -> int:
        assert not self.closed, "a closed producer was used"
        assert bodies, "an empty run"
        assert all(type(body) is bytes for body in bodies)
        if self.capacity is None:
            return len(bodies)
        taken = min(self.capacity, len(bodies))
        self.capacity -= taken
        return taken

    def _outcome(self, taken: int, count: int, *, durable: bool) -> Outcome:
        ticket = self.broker.record() if durable and taken else 0
        return Outcome(ticket) if taken == count else Outcome(ticket, self.broker.refusal, taken)

    def stamped(self, run: Run) -> Run:
        return run

    def blocked(self) -> Refusal | None:
        return self.full

    @property
    def holds(self) -> bool:
        return self.capacity is None

    def credit(self, most: int, size: int) -> int:
        return most if self.share is None else max(1, min(most, self.share // size))

    def block(self) -> None:
        self.full = self.broker.refusal
        self.owner.producer_blocked(self.full)

    def unblock(self) -> None:
        self.full = None
        self.owner.producer_unblocked()

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True
        self.broker.note("close producer", self.address)


class ScriptedRelay:
    """Told when the disk is full."""

    def __init__(self, broker: ScriptedBroker, owner: ProducerOwner) -> None:
        self.broker = broker
        self.owner = owner
        self.closed = False

    def blocked(self) -> Refusal | None:
        return self.broker.disk

    def refuse(self, count: int) -> Refusal | None:
        if self.broker.disk is not None:
            self.broker.note("refuse", count)
        return self.broker.disk

    def credit(self, most: int, size: int) -> int:
        return most

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True


class ScriptedSubscription:
    """Hands out what the test offers, as far as there is room; `queue` is shared by its name."""

    browses = False
    progress: Progress | None = None

    def __init__(self, broker: ScriptedBroker, address: str, name: str, consumer: Consumer) -> None:
        self.broker = broker
        self.address = address
        self.queue_name = name
        self.consumer = consumer
        self.queue = broker.queues.setdefault(name, [])
        self.delivering: dict[int, Message] = {}
        self.barred: set[int] = set()
        self.closed = False

    @property
    def in_flight(self) -> int:
        return len(self.delivering)

    def ready(self) -> None:
        assert not self.closed, "a closed subscription has room"
        self.broker.touched[id(self)] = self

    def keeps_searching(self) -> bool:
        return False

    def dispatch_now(self) -> None:
        while not self.closed:
            able = [m for m in self.queue if m.seq not in self.barred]
            room = self.consumer.room() if able else 0
            if room <= 0:
                return
            now = able[: min(room, self.broker.run_max)]
            gone = {m.seq for m in now}
            self.queue[:] = [m for m in self.queue if m.seq not in gone]
            self.delivering.update((m.seq, m) for m in now)
            any_flags = 0
            for message in now:
                any_flags |= message.flags
            self.consumer.deliver(now, any_flags)

    def _settle(self, what: str, messages: list[Message]) -> int:
        assert not self.closed, "settled after close"
        for message in messages:
            assert self.delivering.pop(message.seq) is message, "not in delivery"
        self.broker.note(what, self.queue_name, [m.seq for m in messages])
        durable = any(m.flags & DURABLE for m in messages)
        return self.broker.record() if durable and what != "release" else 0

    def acknowledge(self, messages: list[Message]) -> int:
        return self._settle("acknowledge", messages)

    def release(
        self,
        messages: list[Message],
        *,
        failed: bool = False,
        undeliverable_here: bool = False,
        delayed: bool = False,
        unseen: bool = False,
    ) -> int:
        if undeliverable_here:
            self.barred |= {m.seq for m in messages}
        ticket = self._settle("release failed" if failed else "release", messages)
        for message in messages:
            message.flags += ONE_DELIVERY if failed else 0
        if self.broker.redelivers:
            self.queue[:] = sorted([*self.queue, *messages], key=lambda m: m.seq)
            self.broker.touch(self.queue)
        return ticket

    def annotate(
        self, messages: list[Message], annotations: Mapping[str, Value], size_max: int
    ) -> None:
        self.broker.note("annotate", [m.seq for m in messages], annotations, size_max)

    def reject(self, messages: list[Message]) -> int:
        return self._settle("reject", messages)

    def close(self) -> None:
        assert not self.delivering, "a consumer left with messages"
        assert not self.closed, "closed twice"
        self.closed = True
        self.broker.subscriptions.remove(self)
        self.broker.note("close subscription", self.queue_name)
