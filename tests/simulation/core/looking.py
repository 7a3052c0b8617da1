"""Who looks into queues of the simulated core: browsers, and operators with their errands.

Blocks of pages come late and in between, while messages are sent, taken, given back and lost. What
is shown waits then, is on disk, and is shown once; at rest all of it was. What an operator does
concerns what waited when he asked, each message once; with nobody else about, all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.operations.errand import Errand, counting, removing
from gateway.management import browsing
from gateway.model.address import parse_destination
from gateway.model.errors import Refusal, RefusedError
from gateway.model.message import DURABLE, PAGED, Message
from gateway.queues.queue import Gone, Queue
from gateway.selectors import compile_selector
from tests.simulation.core.clients import wanted
from tests.simulation.core.ledger import Copy, State, key_of
from tests.simulation.model import ViolationError

if TYPE_CHECKING:
    from tests.simulation.core.world import CoreWorld

SELECTORS = ("", "", "k = 'a'", "k = 'b'")
EVERYTHING = 1 << 20


class Viewer:
    """A browser; `left` is what it has room for, `seen` what it was shown, `told` the end."""

    def __init__(self, world: CoreWorld, queue: str, selector: str) -> None:
        self.world = world
        self.queue = queue
        self.wants = wanted(selector)
        self.left = 0
        self.seen: set[bytes] = set()
        self.told = False
        destination = parse_destination(f"{world.gateway.queues[queue].address}::{queue}")
        self.hold = world.gateway.subscribe(destination, None, self, selector=selector, browse=True)
        world.viewers.append(self)

    def room(self) -> int:
        return self.left

    def deliver(self, messages: list[Message], any_flags: int) -> None:
        if len(messages) > self.left or not messages:
            raise ViolationError(f"{len(messages)} messages for a browser's room of {self.left}")
        if any(m.flags & ~any_flags for m in messages):
            raise ViolationError("a message has flags that its run does not have")
        self.left -= len(messages)
        queue = self.world.gateway.queues[self.queue]
        for message in messages:
            copy = judge_shown(self.world, queue, message)
            if copy.key in self.seen:
                raise ViolationError(f"shown twice: {copy}")
            if not self.wants(copy.key):
                raise ViolationError(f"shown and not asked for: {copy}")
            self.seen.add(copy.key)
        self.world.figures["browsed"] += len(messages)

    def exhausted(self) -> None:
        """All that is on disk was shown, by what it was told."""
        self.told = True
        storing = {key_of(m) for m in self.world.gateway.queues[self.queue].storing()}
        for copy in _there(self.world, self.queue):
            known = self.world.ledger.is_stored(copy) and copy.key not in storing
            if (
                self.left > 0
                and known
                and not copy.floating
                and self.wants(copy.key)
                and copy.key not in self.seen
            ):
                raise ViolationError(f"a browser was told the end before {copy}")

    def removed(self, refusal: object) -> None:
        self.close()

    def close(self) -> None:
        if self in self.world.viewers:
            self.world.viewers.remove(self)
            self.hold.close()

    def check_seen(self) -> None:
        """At rest, with room: nothing that waits was kept from it, and the end was told."""
        if self.left <= 0:
            return
        for copy in _there(self.world, self.queue):
            if self.wants(copy.key) and copy.key not in self.seen:
                raise ViolationError(f"a browser with room was not shown {copy}")
        if not self.told:
            raise ViolationError(f"a browser of {self.queue} was never told the end")


class Job:
    """An operator's errand; what it takes is for the reason `why`."""

    def __init__(self, world: CoreWorld, queue: str, selector: str, why: Gone) -> None:
        self.world = world
        self.queue = queue
        self.why = why
        self.wants = wanted(selector)
        self.upto = world.ledger.last_order
        self.taken = 0
        self.count: int | None = None
        self.cancelled = False
        gateway = world.gateway
        found = gateway.queues[queue]
        self._remove = removing(found, why)
        self.errand = Errand(
            gateway,
            found,
            self._act,
            selects=compile_selector(selector, found.address).matches if selector else None,
            limit=world.chance.choice([None, None, 1, 3]),
            step=world.chance.choice([None, None, 1, 2]),
        )
        world.jobs.append(self)
        self.errand.start(self._done)

    def takes(self, queue: str, copy: Copy, why: Gone) -> bool:
        """Whether it may take a copy; it does."""
        self.taken += 1
        fits = queue == self.queue and why is self.why and self.wants(copy.key)
        return fits and copy.state is State.WAITING and copy.order <= self.upto

    def _act(self, messages: list[Message]) -> tuple[int, Refusal | None]:
        if self not in self.world.jobs:
            raise ViolationError("an errand goes on that has ended")
        self.world.acting = self
        try:
            return self._remove(messages)
        finally:
            self.world.acting = None

    def _done(self, count: int, refusal: object) -> None:
        if self.cancelled:
            raise ViolationError("who is gone was answered")
        self.count = count
        self.world.jobs.remove(self)
        self.world.figures["errands"] += 1
        if refusal is None and count != self.taken:
            raise ViolationError(f"an errand tells {count}, and took {self.taken}")

    def cancel(self) -> None:
        self.cancelled = True
        self.errand.cancel()
        self.world.jobs.remove(self)


def judge_shown(world: CoreWorld, queue: Queue, message: Message, *, stored: bool = True) -> Copy:
    """Return the copy that somebody is shown; raises ViolationError if he must not see it."""
    copy = world.ledger.find(queue.name, message)
    if copy.state is not State.WAITING:
        raise ViolationError(f"shown and not waiting: {copy}")
    late = 0 < copy.expires <= world.gateway.now_ms()
    if late:
        raise ViolationError(f"shown and expired: {copy}")
    recorded = queue.durable and (message.flags & DURABLE or message.flags & PAGED)
    if stored and recorded and message.seq not in world.model.durable.of(queue.queue_id):
        raise ViolationError(f"shown before it was on disk: {copy}")
    return copy


def _there(world: CoreWorld, queue: str) -> list[Copy]:
    """Return what waits for a consumer in a queue now."""
    return [
        copy
        for copy in world.ledger.live[queue].values()
        if copy.state is State.WAITING
        and copy.due <= world.now
        and not 0 < copy.expires <= world.now
    ]


def _alone(world: CoreWorld, queue: str) -> bool:
    """Whether nobody else does anything with a queue."""
    busy = [one.queue for one in [*world.takers, *world.jobs]]
    return queue not in busy and world.gateway.queues[queue].ring_size < 0


def _some_queue(world: CoreWorld) -> str | None:
    queues = sorted(name for name, queue in world.gateway.queues.items() if queue.durable)
    return world.chance.choice(queues) if queues else None


# ---- operations


def view(world: CoreWorld) -> None:
    """A browser comes, takes more, or goes."""
    kind = world.chance.random()
    if world.viewers and kind < 0.6:
        viewer = world.chance.choice(world.viewers)
        if kind < 0.1:
            viewer.close()
            return
    else:
        queue = _some_queue(world)
        if queue is None or len(world.viewers) > 3:
            return
        try:
            viewer = Viewer(world, queue, world.chance.choice(SELECTORS))
        except RefusedError:
            return
    viewer.left += world.chance.choice([1, 3, 100])
    viewer.hold.ready()
    if world.chance.random() < 0.2:
        viewer.hold.dispatch_now()


def errand(world: CoreWorld) -> None:
    """An operator removes or expires or gives up what a selector finds, or gives up himself."""
    if world.jobs and world.chance.random() < 0.6:
        # Few have more to do in a later turn, and those few are what it is about.
        going = [job for job in world.jobs if not job.errand._ended]
        world.chance.choice(going or world.jobs).cancel()
        return
    queue = _some_queue(world)
    if queue is None or len(world.jobs) > 2:
        return
    quiet = world.chance.random() < 0.4
    if quiet:
        world.settle()
        quiet = not world.failed and _alone(world, queue)
    if world.failed or queue not in world.gateway.queues:
        return
    why = world.chance.choice([Gone.REMOVED, Gone.REMOVED, Gone.EXPIRED, Gone.KILLED])
    if why is not Gone.REMOVED and world.gateway.queues[queue].address in ("DLQ", "ExpiryQueue"):
        why = Gone.REMOVED  # they would be lost, and that has no name in the ledger
    before = list(world.ledger.live[queue].values())
    job = Job(world, queue, world.chance.choice(SELECTORS), why)
    if not quiet:
        return
    world.settle()
    if world.failed or job.cancelled:
        return
    if job.count is None:
        raise ViolationError(f"an errand on {queue} has no end")
    left = [c for c in before if c.state is State.WAITING and job.wants(c.key)]
    limit = job.errand._limit
    if job.count < limit and [c for c in left if c.order <= job.upto]:
        raise ViolationError(f"an errand took {job.count} of {limit} and left {left}")


def listing(world: CoreWorld) -> None:
    """An operator asks what waits, and is told when its pages have come."""
    name = _some_queue(world)
    if name is None:
        return
    quiet = world.chance.random() < 0.5
    if quiet:
        world.settle()
        quiet = not world.failed and _alone(world, name)
    if world.failed or name not in world.gateway.queues:
        return
    queue = world.gateway.queues[name]
    told: list[list[Message]] = []
    offset = world.chance.choice([0, 0, 2])
    limit = world.chance.choice([3, EVERYTHING])
    whole = offset == 0 and limit == EVERYTHING
    found = browsing.Window(queue, offset, limit, world.now)

    def tell(messages: list[Message]) -> None:
        told.append(messages)
        for message, _ in browsing.shown(queue, messages, world.gateway.now_ms()):
            # Of what is in memory the answer waits for the disk.
            judge_shown(world, queue, message, stored=bool(message.flags & PAGED))

    found.read(tell)
    if world.chance.random() < 0.2:
        found.cancel()
        return
    if not quiet:
        return
    there = {copy.key for copy in _there(world, name)}
    world.settle()
    if world.failed:
        return
    shown = [key_of(message) for message, _ in browsing.shown(queue, *told, world.gateway.now_ms())]
    world.figures["listed"] += len(shown)
    if len(set(shown)) != len(shown):
        raise ViolationError(f"listed twice: {shown}")
    if whole and not there <= set(shown):
        raise ViolationError(f"{name}: not listed {there - set(shown)}")


def count(world: CoreWorld) -> None:
    """An operator counts what a selector finds."""
    name = _some_queue(world)
    if name is None:
        return
    world.settle()
    if world.failed or name not in world.gateway.queues or not _alone(world, name):
        return
    queue = world.gateway.queues[name]
    matches = compile_selector("k = 'a'", queue.address).matches
    keys: list[bytes] = []
    told: list[int] = []
    act = counting(lambda message: keys.append(key_of(message)))
    Errand(world.gateway, queue, act, selects=matches).start(lambda n, _: told.append(n))
    world.settle()
    if world.failed:
        return
    live = world.ledger.live[name].values()
    there = {c.key for c in live if c.state is State.WAITING and wanted("k = 'a'")(c.key)}
    if told != [len(keys)] or set(keys) != there or len(there) != len(keys):
        raise ViolationError(f"{name}: counted {told} {sorted(keys)}, there is {sorted(there)}")


LOOKING = {operation.__name__: operation for operation in (view, errand, listing, count)}
