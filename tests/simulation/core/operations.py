"""What happens in a life of the simulated core: one function for each thing that clients do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.model.address import RoutingType, parse_destination
from gateway.model.errors import RefusedError
from gateway.model.message import DURABLE, EXPIRES, STOMP
from gateway.model.run import MixedRun, Run
from gateway.model.stomp_form import pack
from tests.simulation.core.clients import Taker, wanted
from tests.simulation.core.ledger import Copy, State
from tests.simulation.core.looking import LOOKING
from tests.simulation.core.plan import DROPS
from tests.simulation.core.steps import STEPS

if TYPE_CHECKING:
    from tests.simulation.core.world import CoreWorld

#: No two places of it look alike; without the zero that opens an AMQP section, and the @
#: that names where a message died.
POOL = random.Random("core bodies").randbytes(1 << 16).translate(bytes.maketrans(b"\0@", b"\1#"))
KINDS = ("a", "b", "c")
#: A durable subscription's selector, or none.
SELECTORS = ("", "", "k = 'a'")


class Sending:
    """A run of messages on its way: what all share, and the copies that should come of each."""

    def __init__(self, world: CoreWorld, address: str, count: int) -> None:
        chance, plan = world.chance, world.plan
        self.address = address
        self.stomp = chance.random() >= plan.amqp
        self.priority = chance.choice([4, 4, 4, 4, 0, 9])
        self.durable = chance.random() < plan.durable
        self.expires = world.now + chance.randint(1, 80) if chance.random() < plan.expiring else 0
        self.due = world.now + chance.randint(1, 60) if chance.random() < plan.later else 0
        self.payloads = [self._payload(world) for _ in range(count)]
        self.bodies = [self._body(payload) for payload in self.payloads]

    @property
    def flags(self) -> int:
        return (
            self.priority
            | (DURABLE if self.durable else 0)
            | (STOMP if self.stomp else 0)
            | (EXPIRES if self.expires else 0)
        )

    @staticmethod
    def _payload(world: CoreWorld) -> bytes:
        world.serial += 1
        size = world.chance.randint(0, world.plan.body_bytes)
        if world.chance.random() < 0.02:
            size = 1100
        at = world.chance.randrange(len(POOL) - size)
        kind = world.chance.choice(KINDS)
        return b"%d:%s:" % (world.serial, kind.encode()) + POOL[at : at + size]

    def _body(self, payload: bytes) -> bytes:
        kind = payload.split(b":", 2)[1]
        if self.stomp:
            return pack(
                self.address,
                payload,
                priority=self.priority,
                persistent=self.durable,
                headers=[("k", kind.decode())],
            )
        properties = b"\x00\x53\x74\xc1\x07\x02\xa1\x01k\xa1\x01" + kind
        if len(payload) < 256:
            return properties + b"\x00\x53\x75\xa0" + bytes([len(payload)]) + payload
        return properties + b"\x00\x53\x75\xb0" + len(payload).to_bytes(4, "big") + payload

    def arrive(self, world: CoreWorld, part: int = 0) -> list[list[Copy]]:
        """Tell the ledger what should come of it; returns the copies of each."""
        queues = world.gateway.addresses[self.address].queues
        later = self.due > world.gateway.now_ms()
        copies = []
        for payload in self.payloads:
            takers = [q for q in queues if wanted(q.filter_text)(payload)]
            copies.append(
                [
                    world.ledger.arrive(
                        queue.name,
                        payload,
                        self.priority,
                        durable=self.durable,
                        lasting=self.durable and queue.durable,
                        expires=self.expires,
                        due=self.due if later else 0,
                        part=part,
                        transit=1,
                    )
                    for queue in takers
                ]
            )
        return copies


# ---- sending


def send(world: CoreWorld) -> None:
    """Send a run, or messages that differ."""
    address = world.chance.choice(world.plan.addresses)
    count = 1 if address in DROPS else world.chance.choice([1, 1, 2, 3, 7, 12])
    if count > 1 and world.chance.random() < 0.2:
        _send_mixed(world, address, count)
        return
    producer = world.producer(address)
    run = Sending(world, address, count)
    copies = run.arrive(world)
    dropped = world.gateway.addresses[address].dropped
    outcome = producer.send(Run(run.bodies, run.flags, run.expires, run.due))
    if world.gateway.addresses[address].dropped > dropped:
        _refused(world, copies)
        return
    taken = count if outcome.refusal is None else outcome.taken
    _refused(world, copies[taken:])
    _stored(copies[:taken], outcome.ticket)


def _send_mixed(world: CoreWorld, address: str, count: int) -> None:
    producer = world.producer(address)
    runs = [Sending(world, address, 1) for _ in range(count)]
    for run in runs:
        run.due = 0
    copies = [copy for run in runs for copy in run.arrive(world)]
    outcome = producer.send_mixed(
        MixedRun(
            [run.bodies[0] for run in runs], [r.flags for r in runs], [r.expires for r in runs]
        )
    )
    taken = count if outcome.refusal is None else outcome.taken
    _refused(world, copies[taken:])
    _stored(copies[:taken], outcome.ticket)


def _refused(world: CoreWorld, copies: list[list[Copy]]) -> None:
    for copy in [one for some in copies for one in some]:
        world.ledger.refuse(copy)


def _stored(copies: list[list[Copy]], ticket: int) -> None:
    for copy in [one for some in copies for one in some]:
        copy.ticket, copy.transit = ticket, False
        assert ticket or not copy.lasting, f"confirmed without a record: {copy}"


# ---- taking


def take(world: CoreWorld) -> None:
    """A consumer asks for more; sometimes a new one comes."""
    if not world.takers or world.chance.random() < 0.3:
        queues = sorted(world.gateway.queues)
        if not queues or len(world.takers) > 5:
            return
        selector = world.chance.choice(["", "", "", "k = 'a'", "k = 'b'"])
        try:
            taker = world.attach(
                world.chance.choice(queues), selector, priority=world.chance.choice([0, 0, 5])
            )
        except RefusedError:
            return
    else:
        taker = world.chance.choice(world.takers)
    taker.left += world.chance.choice([1, 2, 5, 100])
    taker.hold.ready()
    if world.chance.random() < 0.2:
        taker.drain()


def ack(world: CoreWorld) -> None:
    """Acknowledge some, in order or not."""
    taker = _holder(world)
    if taker is None:
        return
    if world.chance.random() < 0.3:
        world.chance.shuffle(taker.held)
    world.acknowledge(taker, world.chance.randint(1, len(taker.held)))


def release(world: CoreWorld) -> None:
    """Give some back."""
    taker = _holder(world)
    if taker is None:
        return
    messages = taker.take_out(world.chance.randint(1, len(taker.held)))
    failed = world.chance.random() < 0.6
    world.release(
        taker,
        messages,
        failed=failed,
        delayed=failed and world.chance.random() < 0.5,
        undeliverable_here=world.chance.random() < 0.1,
    )


def reject(world: CoreWorld) -> None:
    """Refuse some for good."""
    taker = _holder(world)
    if taker is None:
        return
    messages = taker.take_out(world.chance.randint(1, min(3, len(taker.held))))
    for message in messages:
        world.ledger.find(taker.queue, message).intent = "rejected"
    taker.hold.reject(messages)


def follow(world: CoreWorld) -> None:
    """A consumer refuses some, and another one settles the dead letters while they are new.

    The disk had kept up until then. Often a crash comes with the next that is written: what was
    told needed no disk, or had it.
    """
    while world.writer.step() or world.writer.answer():
        world.note_handed()
    reject(world)
    world.turn()
    if "DLQ" not in world.gateway.queues:
        return
    known = [taker for taker in world.takers if taker.queue == "DLQ"]
    taker = known[0] if known else world.attach("DLQ")
    taker.left += 100
    taker.hold.ready()
    world.turn()
    if taker.held:
        world.acknowledge(taker, len(taker.held))
    if world.chance.random() < 0.3:
        world.disk.crash_at = world.disk.calls + world.chance.randint(1, 3)


def leave(world: CoreWorld) -> None:
    """A consumer goes."""
    if world.takers:
        world.chance.choice(world.takers).close()


def _holder(world: CoreWorld):
    holders = [taker for taker in world.takers if taker.held]
    return world.chance.choice(holders) if holders else None


# ---- transactions


def transact(world: CoreWorld) -> None:
    """Begin a transaction, or end one."""
    if world.works and world.chance.random() < 0.6:
        work = world.chance.choice(world.works)
        if world.chance.random() < 0.7:
            _commit(world, work)
        else:
            world.roll_back(work)
        return
    work = (world.gateway.begin(), [], [])
    world.works.append(work)
    for _ in range(world.chance.randint(1, 5)):
        if world.chance.random() < 0.5:
            _work_ack(world, work)
        else:
            _work_send(world, work)


def _work_ack(world: CoreWorld, work) -> None:
    taker = _holder(world)
    if taker is None:
        return
    messages = taker.take_out(world.chance.randint(1, min(4, len(taker.held))))
    taker.bound += messages
    work[0].acknowledge(taker.hold, messages)
    work[2].append((taker, messages))


def _work_send(world: CoreWorld, work) -> None:
    addresses = [a for a in world.plan.addresses if a not in DROPS]
    if not addresses:
        return
    address = world.chance.choice(addresses)
    producer = world.producer(address)
    run = Sending(world, address, 1)
    refusal = work[0].send(producer, Run((run.bodies[0],), run.flags, run.expires, due=run.due))
    assert refusal is None, refusal
    work[1].append(run)


def _commit(world: CoreWorld, work) -> None:
    world.parts += 1
    copies = [c for run in work[1] for some in run.arrive(world, world.parts) for c in some]
    acked = [(t, m, world.ledger.find(t.queue, m)) for t, messages in work[2] for m in messages]
    for _, _, copy in acked:
        copy.intent, copy.parting = "acknowledged", world.parts
    try:
        ticket = work[0].commit()
    except RefusedError:
        for copy in copies:
            world.ledger.refuse(copy)
        for _, _, copy in acked:
            copy.intent, copy.parting = "", 0
        world.roll_back(work)
        return
    world.works.remove(work)
    world.figures["commits"] += 1
    for taker, message, copy in acked:
        taker.bound.remove(message)
        copy.gone_ticket = ticket
    for copy in copies:
        copy.ticket, copy.transit = ticket, False


# ---- operators


def purge(world: CoreWorld) -> None:
    """Empty a queue of what waits."""
    queue = _some_queue(world)
    if queue is None:
        return
    _doom(world, queue)
    world.gateway.queues[queue].purge()
    _doomed(world, queue, keep_held=True)


def delete_queue(world: CoreWorld) -> None:
    """Delete a queue; who sends makes it anew."""
    queue = _some_queue(world)
    if queue is None:
        return
    _doom(world, queue)
    world.gateway.administration.delete_queue(queue, remove_consumers=True)
    _doomed(world, queue, keep_held=False)


def _doom(world: CoreWorld, queue: str) -> None:
    for copy in world.ledger.live[queue].values():
        copy.intent = "removed"


def _doomed(world: CoreWorld, queue: str, *, keep_held: bool) -> None:
    for copy in list(world.ledger.live[queue].values()):
        if keep_held and copy.state is State.HELD:
            copy.intent = ""
            continue
        world.ledger.gone(copy, "removed")
        copy.gone_ticket = world.store.ticket


def subscribe(world: CoreWorld) -> None:
    """Make a subscription on the topic: durable, with or without a selector, or temporary."""
    if "topic" not in world.plan.addresses:
        return
    names = [n for n in ("s1", "s2", "s3") if n not in world.gateway.queues]
    if names and world.chance.random() < 0.7:
        world.gateway.administration.create_queue(
            world.chance.choice(names),
            "topic",
            RoutingType.MULTICAST,
            selector=world.chance.choice(SELECTORS),
            ring_size=world.chance.choice([-1, -1, -1, 3]),
        )
        return
    if len(world.takers) > 5:
        return
    taker = Taker(world, "", "")
    hold = world.gateway.subscribe(parse_destination("topic"), RoutingType.MULTICAST, taker)
    taker.hold, taker.queue = hold, hold.queue_name
    world.takers.append(taker)


def unsubscribe(world: CoreWorld) -> None:
    """Delete a subscription."""
    names = [n for n in ("s1", "s2", "s3") if n in world.gateway.queues]
    if names:
        queue = world.chance.choice(names)
        _doom(world, queue)
        world.gateway.administration.delete_queue(queue, remove_consumers=True)
        _doomed(world, queue, keep_held=False)


def pause(world: CoreWorld) -> None:
    """Pause a queue, or let it go on."""
    queue = _some_queue(world)
    if queue is not None and world.gateway.queues[queue].durable:
        paused = not world.gateway.queues[queue].paused
        world.gateway.administration.update_queue(queue, paused=paused)


def _some_queue(world: CoreWorld) -> str | None:
    queues = sorted(world.gateway.queues)
    return world.chance.choice(queues) if queues else None


# ---- time and the disk


def time(world: CoreWorld) -> None:
    """Time goes by."""
    world.turn()
    world.pass_time(world.chance.choice([1, 5, 30, 90]))


def spare(world: CoreWorld) -> None:
    """A segment is made ahead."""
    world.writer.make_spare()


def cover(world: CoreWorld) -> None:
    """The journal says on its own what is durable."""
    world.journal.cover()
    world.journal.cover()


def settle(world: CoreWorld) -> None:
    """All that waits goes to the disk, and what consumers have room for to them."""
    world.settle()
    if not world.failed:
        world.gateway.on_time()
        world.settle()
        world.check_fed()
        if world.steady.chance.random() < 0.3:
            world.steady.check_keeps_up()
        for viewer in world.viewers:
            viewer.check_seen()


#: What happens in some seeds alone: their plan names it.
RARE: dict[str, Callable[[CoreWorld], None]] = {"follow": follow}
OPERATIONS: dict[str, Callable[[CoreWorld], None]] = (
    {
        operation.__name__: operation
        for operation in (
            send,
            take,
            ack,
            release,
            reject,
            leave,
            transact,
            purge,
            delete_queue,
            subscribe,
            unsubscribe,
            pause,
            time,
            spare,
            cover,
            settle,
        )
    }
    | LOOKING
    | STEPS
)
