"""A gateway over a store of lists, driven turn by turn, that can lose its power at any batch.

`Core.restart` brings it back from what the store had kept, as the service does at its start.
"""

from __future__ import annotations

from collections import Counter
from itertools import count

from gateway.addresses.match import SettingsEntry, SettingsTable
from gateway.broker import Gateway, Limits
from gateway.model.address import RoutingType, parse_destination
from gateway.model.definitions import (
    AddressDefinition,
    DivertDefinition,
    IdsDefinition,
    PageGone,
    PagesDefinition,
    QueueDefinition,
)
from gateway.model.message import DURABLE, EXPIRES, MAYBE_SEEN, SCHEDULED, STOMP, Message
from gateway.model.objects import Kind
from gateway.model.ports import ConsumerFacts
from gateway.model.run import Run
from gateway.model.stomp_form import pack, unpack
from gateway.model.turn import Turn
from tests.broker.paged import PageMemory, found_pages

ANYCAST = RoutingType.ANYCAST
MULTICAST = RoutingType.MULTICAST


class DiskStore(PageMemory):
    """Batches of records. A batch ends before each append that is not in an atomic part."""

    congested = False
    relieved = True

    def __init__(self, batches=()) -> None:
        super().__init__()
        self.batches = [list(batch) for batch in batches]
        self.open = []
        self.atomic = 0
        self.relaxed = set()
        self.synced = len(self.batches)

    @property
    def ticket(self) -> int:
        return len(self.batches) + 1

    @property
    def unsynced(self) -> int:
        if self.open:
            return self.ticket
        return len(self.batches) if len(self.batches) > self.synced else 0

    @property
    def told(self) -> list[tuple]:
        """All records, in order."""
        return [record for batch in [*self.batches, self.open] for record in batch]

    def first_unsynced(self, queue_id):
        batches = [*self.batches, self.open]
        for at, batch in enumerate(batches[self.synced :], self.synced + 1):
            for what, *record in batch:
                if what == "add":
                    for number, first in record[0]:
                        if number == queue_id:
                            return at, first
        return None

    def _record(self, *record) -> int:
        self.open.append(record)
        return self.ticket

    def _close(self) -> None:
        if self.open:
            self.batches.append(self.open)
            self.open = []

    def page_room(self) -> int:
        if not self.atomic and len(self.open) > 3:
            self._close()
        return self.ticket

    def append(self, targets, run, size, now_ms) -> int:
        amount = len(run.bodies)
        flags, expires = run.flags, run.expires
        if isinstance(flags, int):
            assert bool(flags & SCHEDULED) == bool(run.due)
            flags, expires = [flags] * amount, [expires] * amount
        assert size >= sum(len(b) for b in run.bodies if b is not None)
        if not self.atomic:
            self._close()
        record = list(targets), list(run.bodies), list(flags), list(expires)
        ticket = self._record("add", *record)
        if run.due:
            for queue_id, first in targets:
                self.postpone(queue_id, [(first + i, run.due) for i in range(amount)])
        return ticket

    def remove(self, queue_id, first, last, amount) -> int:
        assert amount == last - first + 1, "a range with holes"
        return self._record("remove", queue_id, first, last)

    replace = remove

    def count(self, queue_id, entries) -> int:
        return self._record("count", queue_id, list(entries))

    def postpone(self, queue_id, entries) -> int:
        return self._record("postpone", queue_id, list(entries))

    def define(self, definition) -> int:
        return self._record("define", definition)

    def undefine(self, definition) -> int:
        return self._record("undefine", definition)

    def begin_atomic(self) -> None:
        self.atomic += 1

    def end_atomic(self) -> None:
        self.atomic -= 1

    def flush(self) -> None:
        """The test syncs."""

    def relax(self, queue_id) -> None:
        self.relaxed.add(queue_id)

    def tighten(self, queue_id) -> None:
        self.relaxed.discard(queue_id)

    def sync(self) -> list[int]:
        """Make everything durable; returns the tickets, in order."""
        self._close()
        before, self.synced = self.synced, len(self.batches)
        return list(range(before + 1, self.synced + 1))

    def kept(self, batches: int):
        """Return (definitions, messages by queue id, highest seqs) after so many batches."""
        definitions, held, highest = {}, {}, {}
        for record in [r for batch in self.batches[:batches] for r in batch]:
            match record:
                case (("define" | "undefine"), PagesDefinition() | PageGone()):
                    pass  # see found_pages
                case "define", definition:
                    definitions[key_of(definition)] = definition
                case "undefine", definition:
                    definitions.pop(key_of(definition), None)
                case "add", targets, bodies, flags, expires:
                    for queue_id, first in targets:
                        messages = held.setdefault(queue_id, {})
                        for i, body in enumerate(bodies):
                            highest[queue_id] = first + i
                            if body is not None:
                                assert flags[i] & DURABLE
                                messages[first + i] = [body, flags[i], expires[i], 0]
                case "remove", queue_id, first, last:
                    for seq in range(first, last + 1):
                        assert held[queue_id].pop(seq, None), "a removal of nothing"
                case "count", queue_id, entries:
                    for seq, flag in entries:
                        if seq in held.get(queue_id, {}):
                            held[queue_id][seq][1] = flag
                case "postpone", queue_id, entries:
                    for seq, due in entries:
                        if seq in held.get(queue_id, {}):
                            held[queue_id][seq][3] = due
        return definitions, held, highest


def key_of(definition):
    if isinstance(definition, QueueDefinition):
        return "queue", definition.queue_id
    if isinstance(definition, IdsDefinition):
        return "ids", definition.ids_id
    if isinstance(definition, DivertDefinition):
        return "divert", definition.name
    return "address", definition.name


class Taker:
    """A consumer with room for `room` messages."""

    def __init__(self, room: int) -> None:
        self.left = room
        self.got = []
        self.refusals = []
        self.hold = None
        self.on_deliver = None

    def room(self) -> int:
        return self.left

    def deliver(self, messages, any_flags) -> None:
        assert messages
        assert len(messages) <= self.left
        assert all(m.flags & ~any_flags == 0 for m in messages)
        self.left -= len(messages)
        self.got += messages
        if self.on_deliver is not None:
            self.on_deliver(messages)

    def facts(self) -> ConsumerFacts:
        return ConsumerFacts(
            protocol="test", connection="c1", remote="127.0.0.1", user="ann", name="taker"
        )

    def expelled(self, refusal) -> None:
        self.refusals.append(refusal)
        self.leave(failed=True)

    def removed(self, refusal) -> None:
        self.refusals.append(refusal)
        self.leave()

    def exhausted(self) -> None:
        """All that waits was shown."""

    def take(self, room: int) -> None:
        self.left += room
        self.hold.ready()

    def bodies(self) -> list[bytes]:
        return [body_of(m) for m in self.got]

    def _settle(self, settle, amount, **how) -> int:
        messages = self.got[:amount] if amount is not None else list(self.got)
        del self.got[: len(messages)]
        return settle(messages, **how)

    def ack(self, amount: int | None = None) -> int:
        return self._settle(self.hold.acknowledge, amount)

    def release(self, amount: int | None = None, **how) -> int:
        return self._settle(self.hold.release, amount, **how)

    def reject(self, amount: int | None = None) -> int:
        return self._settle(self.hold.reject, amount)

    def leave(self, *, failed: bool = False) -> None:
        if self.got:
            self.release(failed=failed)
        self.hold.close()


class Owner:
    """A producer's protocol side: `blocked` is what it was told last."""

    def __init__(self) -> None:
        self.blocked = False
        self.told = []

    def producer_unblocked(self) -> None:
        self.blocked = False
        self.told.append("unblocked")

    def producer_blocked(self, refusal) -> None:
        self.blocked = True
        self.told.append("blocked")

    def producer_refused(self, refusal) -> None:
        self.told.append(refusal.code.value)


class Listener:
    """Waits for a ticket."""

    def __init__(self) -> None:
        self.up_to = 0

    def durable_up_to(self, ticket) -> None:
        self.up_to = ticket


def body_of(message) -> bytes:
    return unpack(message.body)[1]


class Core:
    def __init__(
        self,
        *entries: SettingsEntry,
        limits: Limits | None = None,
        serialized=(),
        lag: tuple[float, float] | None = None,
    ) -> None:
        """`lag`: (limit, calm) of a disk that lags, in seconds; without it, it is never judged."""
        self.entries = entries
        self.lag = lag
        self.serialized = frozenset(serialized)
        self.limits = limits or Limits()
        self.now = 1_000_000
        self.names = count()
        self.store = DiskStore()
        self._make()

    def _make(self) -> None:
        self.later = []
        self.alarm = None
        self.timers = []
        self.gateway = Gateway(
            turn=Turn(self.later.append),
            settings=SettingsTable(self.entries),
            store=self.store,
            limits=self.limits,
            now_ms=lambda: self.now,
            make_name=lambda: f"temp-{next(self.names)}",
        )
        self.gateway.dispatch.timetable.alarm = self._set_alarm
        self.directory.serialized = self.serialized
        if self.lag is not None:
            limit, calm = self.lag
            self.gateway.pressure.lag.watch(
                limit, now=self.seconds, later=self._call_later, calm=calm
            )

    @property
    def directory(self):
        return self.gateway.directory

    @property
    def administration(self):
        return self.gateway.administration

    # ---- time

    def seconds(self) -> float:
        return self.now / 1000

    def _call_later(self, seconds: float, call) -> None:
        self.timers.append((self.now + seconds * 1000, call))

    def _ring(self, end: int) -> None:
        """Call back whom that was promised until `end`, each in its time."""
        while self.timers and min(due for due, _ in self.timers) <= end:
            self.timers.sort(key=lambda timer: timer[0])
            due, call = self.timers.pop(0)
            self.now = max(self.now, due)
            call()
            self.turn()

    def _set_alarm(self, at_ms: int) -> None:
        self.alarm = at_ms if self.alarm is None else min(self.alarm, at_ms)

    def pass_time(self, by_ms: int) -> None:
        """Let time go by, and the gateway's alarm ring when its time comes."""
        end = self.now + by_ms
        while self.alarm is not None and self.alarm <= end:
            self.now = max(self.now, self.alarm)
            self.alarm = None
            self.gateway.on_time()
            self.turn()
        self._ring(end)
        self.now = end
        self.gateway.on_time()
        self.turn()

    def turn(self) -> None:
        """Let turns end until nothing waits for one."""
        while self.later:
            waiting, self.later[:] = list(self.later), []
            for action in waiting:
                action()

    def sync(self) -> None:
        self.turn()
        for ticket in self.store.sync():
            self.gateway.durable_up_to(ticket)
        self.turn()

    def restart(self, *, clean: bool = False, batches: int | None = None) -> None:
        """Stop, by default by kill -9 after what was synced, and start on what the store kept."""
        if clean:
            self.sync()
        kept = self.store.synced if batches is None else batches
        definitions, held, highest = self.store.kept(kept)
        pages = self.store.pages
        self.store = DiskStore(self.store.batches[:kept])
        self.store.pages = {
            place: [block for block in blocks if block.ticket <= kept]
            for place, blocks in pages.items()
        }
        self._make()
        directory = self.directory
        found = found_pages(self.store.batches, clean=clean)
        exist = {(f.definition.store_id, page.number) for f in found for page in f.pages}
        for place in [place for place in self.store.pages if place not in exist]:
            del self.store.pages[place]  # as a start does with files that nothing names
        for definition in definitions.values():
            if isinstance(definition, AddressDefinition):
                directory.restore_address(definition)
        directory.next_id = 1
        for definition in definitions.values():
            if isinstance(definition, DivertDefinition):
                self.gateway.branches.restore(definition)
            if isinstance(definition, IdsDefinition):
                self._restore_ids(definition, held, highest)
            if not isinstance(definition, QueueDefinition):
                continue
            directory.next_id = max(directory.next_id, definition.queue_id + 1)
            queue = directory.restore_queue(definition)
            queue.restore(
                [
                    recovered(seq, *stored, clean=clean)
                    for seq, stored in sorted(held.get(definition.queue_id, {}).items())
                ]
            )
            queue.counts.next_seq = max(queue.next_seq, highest.get(definition.queue_id, 0) + 1)
            self.gateway.restored(queue)
        self.gateway.recovered()
        stores = [pages.definition.store_id for pages in found]
        directory.next_id = max([directory.next_id, *(store + 1 for store in stores)])
        self.gateway.operations.pager.restore(found)
        self.gateway.routing.retro.start()
        self.turn()

    def _restore_ids(self, definition, held, highest) -> None:
        number = definition.ids_id
        self.directory.next_id = max(self.directory.next_id, number + 1)
        ids = [(seq, stored[0]) for seq, stored in sorted(held.get(number, {}).items())]
        self.gateway.routing.duplicates.restore(definition, ids, highest.get(number, 0))

    # ---- clients

    def producer(self, name: str, routing: RoutingType | None = None):
        """Return (producer, owner)."""
        owner = Owner()
        return self.gateway.open_producer(parse_destination(name), routing, owner), owner

    def send(
        self,
        name: str,
        *bodies: bytes,
        priority: int = 4,
        durable: bool = True,
        ttl: int | None = None,
        delay: int | None = None,
        routing: RoutingType | None = None,
        together: bool = False,
    ) -> list[bool]:
        """Send one by one, a turn each, or in one run; returns which were taken."""
        route, _ = self.producer(name, routing)
        expires = 0 if ttl is None else self.now + ttl
        flags = flags_of(priority, durable=durable) | (EXPIRES if expires else 0)
        runs = [bodies] if together else [(body,) for body in bodies]
        taken = []
        for run in runs:
            stored = [stomp(body) for body in run]
            due = 0 if delay is None else self.now + delay
            outcome = route.send(Run(stored, flags, expires, due))
            accepted = len(run) if outcome.refusal is None else outcome.taken
            taken += [i < accepted for i in range(len(run))]
            self.turn()
        route.close()
        return taken

    def consume(self, name: str, room: int = 100, **how) -> Taker:
        """Attach a consumer, anycast unless `routing` says more, and let the queue hand out."""
        taker = Taker(room)
        routing = how.pop("routing", None)
        taker.hold = self.gateway.subscribe(parse_destination(name), routing, taker, **how)
        self.turn()
        return taker

    def queue(self, name: str):
        return self.gateway.queues[name]

    def waiting(self, name: str) -> list[bytes]:
        """Return what waits in a queue, in delivery order."""
        return [body_of(m) for m in self.queue(name).browse(0, 100_000)]

    def figures(self, name: str) -> tuple[int, int, int]:
        """Return (message count, delivering, replaced)."""
        queue = self.queue(name)
        return queue.message_count, queue.delivering, queue.replaced

    def check(self) -> None:
        """Assert what always holds: conservation, and that accounts are the sum of what is held."""
        gateway = self.gateway
        for queue in gateway.queues.values():
            queue.check_invariants()
        for address in gateway.addresses.values():
            if address.paging is not None:
                address.paging.check_invariants()
        addresses = gateway.addresses.values()
        assert gateway.load.messages == sum(a.messages for a in addresses)
        assert gateway.load.memory == sum(a.size_bytes for a in addresses)
        self.check_objects()
        for address in addresses:
            if not sum(q.message_count for q in address.queues):
                assert (address.messages, address.size_bytes) == (0, 0), address.name

    def check_objects(self) -> None:
        """Assert that what is counted of each user is what there is."""
        there = Counter()
        for kind, made in (
            *((Kind.ADDRESSES, address) for address in self.gateway.addresses.values()),
            *((Kind.QUEUES, queue) for queue in self.gateway.queues.values()),
        ):
            if made.auto_created or made.temporary:
                there[kind, None] += 1
                there[kind, made.made_by] += made.made_by is not None
        objects = self.directory.objects
        counted = {(kind, None): objects.held(kind) for kind in (Kind.ADDRESSES, Kind.QUEUES)}
        for user, held in objects.users.items():
            assert any(held.values()), f"{user!r} has nothing and is remembered"
            counted |= {(kind, user): number for kind, number in held.items()}
        assert +Counter(counted) == +there


def recovered(seq, body, flags, expires, due, *, clean: bool) -> Message:
    message = Message(body, seq, flags if clean else flags | MAYBE_SEEN)
    if flags & EXPIRES:
        message.expires = expires
    if flags & SCHEDULED:
        message.due = due
    return message


def stomp(body: bytes) -> bytes:
    return pack("a", body, persistent=True)


def flags_of(priority: int = 4, *, durable: bool = True) -> int:
    return STOMP | priority | (DURABLE if durable else 0)


def entry(match: str = "#", **values: object) -> SettingsEntry:
    return SettingsEntry(match=match, values=values)
