"""One queue: ready and delivering messages, consumers, counters and the ring.

What each message is, and the way between:

    add ──> ready ──take──> delivering ──acknowledge──> gone (acknowledged)
              ^                  │ ├─────reject / attempts used up──> gone (killed, dead letter)
              └────release───────┘ └─────ring full on return────────> gone (replaced)
    ready ──ring──> gone (replaced)      ready ──time──> gone (expired)
    ready ──purge─> gone (killed, no dead letter)
    add, release ──with a time──> scheduled ──time──> ready
                                            └─ring full when due──> gone (replaced)
    ready, release, scheduled ──a later value of its key──> gone (replaced), see `last_value`
    paged ──read back, in order──> ready     paged ──purge, unreadable──> gone (killed)
    add ──> storing ──it is on disk──> ready, scheduled   where dispatch waits for the disk

The conservation law holds after every call:
    added = storing + ready + scheduled + delivering + paged
            + acknowledged + expired + killed + replaced

A deleted queue is empty but for what is in delivery, which is settled as it comes back, and takes
nothing in.

The queue changes only itself. Whatever must also happen elsewhere (journal, memory, dead letters)
it tells its `Effects`, in runs. It knows no clock, store, protocol or logger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat

from gateway.model.address import RoutingType
from gateway.model.message import (
    ACQUIRED,
    COUNT_SHIFT,
    DURABLE,
    EXPIRES,
    GROUPED,
    ONE_DELIVERY,
    PRIORITY_MASK,
    SCHEDULED,
    SHARED,
    Message,
    Share,
    SharedMessage,
)
from gateway.model.ports import Consumer
from gateway.model.run import MixedRun, Run
from gateway.queues.indexed import Condition
from gateway.queues.ports import Account, Effects, Gone
from gateway.queues.scheduled import NEVER, Scheduled
from gateway.queues.selecting import Held
from gateway.queues.sharing import Sharing

_COUNT_MAX = 0xFFFF


__all__ = ["Account", "Effects", "Gone", "Held", "Queue"]


class Queue(Sharing):
    """See the module text. Anyone may read fields without underscore; only methods write them."""

    __slots__ = (
        "_effects",
        "_scheduled",
        "account",
        "address",
        "auto_created",
        "deleted",
        "dispatching",
        "made_by",
        "name",
        "owner",
        "queue_id",
        "routing",
        "temporary",
        "touched",
    )

    def __init__(
        self,
        name: str,
        address: str,
        queue_id: int,
        effects: Effects[Queue],
        *,
        routing: RoutingType = RoutingType.ANYCAST,
        durable: bool = True,
        temporary: bool = False,
        auto_created: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.address = address
        self.queue_id = queue_id
        self.routing = routing
        self.durable = durable
        self.temporary = temporary
        self.auto_created = auto_created
        self.owner: object | None = None  # the connection that alone consumes
        self.made_by: str | None = None  # the user who had it made, while it counts for one
        self.account: Account | None = None
        self.deleted = False
        self.touched = self.dispatching = False
        self.delivering = 0
        self._effects = effects
        self._scheduled = Scheduled()
        self._prepare()

    # ---- kinds of queues

    def _prepare(self) -> None:
        """Make what this kind of queue needs beside."""

    @property
    def replaces(self) -> bool:
        """Whether later values replace earlier ones: `drop_superseded` follows each add."""
        return False

    @property
    def keeps(self) -> bool:
        """Whether consumers take nothing away."""
        return False

    def drop_superseded(self) -> None:
        """Let go of what later values have replaced, now that those are recorded."""

    # ---- figures

    @property
    def message_count(self) -> int:
        """All that the queue holds: storing, ready, scheduled, delivering and paged."""
        held = len(self._ready) + len(self._scheduled) + self.delivering + self.paged_count
        return held if self._storing is None else held + self._storing.count

    @property
    def scheduled_count(self) -> int:
        """Messages that wait for their time."""
        return len(self._scheduled)

    @property
    def next_time(self) -> int:
        """When the queue has something to do without being asked; NEVER if it has not."""
        due = self._scheduled.next_due
        return due if self.start is None else min(due, self.start.opens_at)

    # ---- in

    def add_run(self, run: Run, shares: Sequence[Share] = (), *, origin: str = "") -> int:
        """Append a run. `origin`: where it comes from; wanted while `told_apart` is not 0.

        Returns the seq of the first; the others follow without a gap. The caller, once it has
        recorded them, calls `trim_ring` in the same step when the queue is a ring. `shares`, one
        for each body, belong to what other queues get as well.
        """
        first = self.next_seq
        flags, expires = run.flags, run.expires
        self.next_seq = last = first + run.count
        if shares:
            assert len(shares) == run.count, "a share for each"
            flags |= SHARED
            messages: list[Message] = list(
                map(SharedMessage, run.bodies, range(first, last), repeat(flags), shares)
            )
        else:
            messages = list(map(Message, run.bodies, range(first, last), repeat(flags)))
        if expires:
            for message in messages:
                message.expires = expires
        if origin:
            for message in messages:
                message.origin = origin
        self.any_flags |= flags
        self.all_flags &= flags
        if flags & SCHEDULED:
            for message in messages:
                message.due = run.due
            self._come_in_later(messages)
        else:
            self._tail.add_run(messages, flags & PRIORITY_MASK)
        self.added += run.count
        self.size_bytes += run.size
        return first

    def add_mixed(self, run: MixedRun) -> int:
        """As `add_run` for messages that differ in flags or expiry, and are for now."""
        first = self.next_seq
        self.next_seq = first + run.count
        add = self._tail.add
        for message in map(Message, run.bodies, range(first, self.next_seq), run.flags):
            add(message)
            self.any_flags |= message.flags
            self.all_flags &= message.flags
            if message.flags & EXPIRES:
                message.expires = run.expires[message.seq - first]
        self.added += run.count
        self.size_bytes += run.size
        return first

    def restore(self, messages: list[Message]) -> None:
        """Put recovered messages back, in arrival order.

        Whoever has charged for them then calls `trim`: a ring that was lowered is applied at start.
        """
        if not messages:
            return
        kinds = {m.flags for m in messages}
        amid = self.reads_amid and not self.replaces
        if len(kinds) == 1 and not amid and not messages[0].flags & SCHEDULED:
            self._ready.add_run(messages, messages[0].flags & PRIORITY_MASK)
        else:
            add = self._ready.put_back if amid else self._ready.add
            for message in messages:
                # What has come due meanwhile passes the ring's check as if it had come due now.
                (self._scheduled.add if message.flags & SCHEDULED else add)(message)
        for flags in kinds:
            self.any_flags |= flags
            self.all_flags &= flags
        self.size_bytes += sum([len(m.body) for m in messages])
        self.added += len(messages)
        self.next_seq = max(self.next_seq, messages[-1].seq + 1)

    def _wake(self, at_ms: int) -> None:
        self._effects.wake(self, at_ms)

    def _leave(self, messages: list[Message], why: Gone) -> None:
        """Account for messages that left and tell the broker."""
        size = sum([len(m.body) for m in messages])
        self.size_bytes -= size
        self._effects.gone(self, messages, why, size)
        if not self.delivering and self._scheduled.next_due == NEVER and not self._ready:
            self.any_flags = 0
            self.all_flags = -1
            self._forget_index()

    # ---- time

    def _schedule(self, messages: list[Message]) -> None:
        """Keep messages until they are due."""
        scheduled = self._scheduled
        before = scheduled.next_due
        for message in messages:
            scheduled.add(message)
        if scheduled.next_due < before:
            self._effects.wake(self, scheduled.next_due)

    def _come_due(self, now_ms: int) -> None:
        """Put what is due in front of what waits; a full ring keeps what was due last."""
        due = self._scheduled.take_due(now_ms)
        late = [m for m in due if m.flags & EXPIRES and m.expires <= now_ms]
        if late:
            due = [m for m in due if not (m.flags & EXPIRES and m.expires <= now_ms)]
        replaced = self._admit_due(due)
        # Those that go are told of last: an empty queue forgets which flags its messages have.
        if late:
            self.expired += len(late)
            self._leave(late, Gone.EXPIRED)
        if replaced:
            self.replaced += len(replaced)
            self._leave(replaced, Gone.REPLACED)
        if self.next_time < NEVER:
            self._effects.wake(self, self.next_time)

    # ---- consumers

    def attach(
        self, consumer: Consumer, priority: int = 0, condition: Condition | None = None
    ) -> Held:
        """Add a consumer; higher `priority` is served first, and gets what meets `condition`."""
        held = Held(consumer, priority)
        held.acknowledge = self.acknowledge
        if condition is not None:
            held.group = self._search().join(condition)
        self._seat(held)
        return held

    def detach(self, held: Held) -> None:
        """Take a consumer away; it must have given back what it held."""
        assert held.count == 0, "a consumer left with messages"
        self._unseat(held)
        self._leave_group(held.group)
        if self.start is not None and not self._consumers:
            self.start.left()

    # ---- out

    def synced_below(self) -> int:
        """See Searched."""
        return self._effects.synced_below(self)

    def dispatch(self, now_ms: int, limit: int) -> int:
        """Hand out about `limit` messages to consumers with room; returns how many went out."""
        self.dispatching = True
        try:
            return self._dispatch(now_ms, limit)
        finally:
            self.dispatching = False

    def _dispatch(self, now_ms: int, limit: int) -> int:
        if self._scheduled.next_due <= now_ms:
            self._come_due(now_ms)
        searches = self._begin_searches(now_ms, self.any_flags)
        if self.start is not None:
            opened = self.start.is_open(len(self._consumers), now_ms)
            if self.next_time < NEVER:
                self._effects.wake(self, self.next_time)
            if not opened:
                return 0
        if (self._own_way or self.any_flags & GROUPED) and self._has_own_way():
            total = self._hand_out(now_ms, limit)
        else:
            total = 0
            while self._ready and not self.paused and total < limit:
                went = self._round(now_ms, limit - total)
                if not went:
                    break
                total += went
        if searches is not None:
            self._end_searches(searches, limited=total >= limit)
        return total

    def expire(self, now_ms: int) -> int:
        """Remove what has expired while waiting; returns how many. O(n) when any can expire."""
        if not self.any_flags & EXPIRES:
            return 0
        doomed = {m.seq for m in self._ready if m.flags & EXPIRES and m.expires <= now_ms}
        late = self._ready.remove_if(doomed) if doomed else []
        late += self._scheduled.take_expired(now_ms)
        if not late:
            return 0
        self.expired += len(late)
        self._leave(late, Gone.EXPIRED)
        return len(late)

    # ---- back

    def acknowledge(self, held: Held, messages: list[Message]) -> None:
        """Remove messages in delivery for good."""
        if self._marked:
            messages = self._as_held(messages)
        count = len(messages)
        held.count -= count
        self.delivering -= count
        if self._out.seqs:
            self._out.remove(messages)
        self.acknowledged += count
        self._leave(messages, Gone.ACKNOWLEDGED)

    def kill(self, held: Held, messages: list[Message]) -> None:
        """Remove messages in delivery as undeliverable: they go to the dead-letter address."""
        if self._marked:
            messages = self._as_held(messages)
        count = len(messages)
        held.count -= count
        self.delivering -= count
        if self._out.seqs:
            self._out.remove(messages)
        self.killed += count
        self._leave(messages, Gone.KILLED)

    def release(
        self,
        held: Held,
        messages: list[Message],
        *,
        failed: bool = False,
        due: Callable[[Message], int] | None = None,
    ) -> None:
        """Put messages in delivery back to their old places.

        `failed` counts an attempt; one that has used up `max_attempts` is killed instead. A full
        ring keeps the newest, see `ring`. `due` says until when each waits, with the attempt
        counted; a ring that has no place for it now replaces it all the same.
        """
        dead: list[Message] = []
        if self._marked:
            messages = self._as_held(messages)
        if failed:
            messages, dead = self._count_attempt(messages)
        if dead:
            self.kill(held, dead)
        count = len(messages)
        held.count -= count
        self.delivering -= count
        if self._out.seqs:
            self._out.remove(messages)
        if self.deleted and count:
            self.killed += count
            self._leave(messages, Gone.REMOVED)
            messages = []
        elif count > 1:
            messages = sorted(messages, key=lambda m: m.seq, reverse=True)
        kept, replaced = self._sort_returned(messages, later=due is not None)
        if due is not None:
            self._postpone(kept, due)
        else:
            if failed and kept:
                self._effects.counted(self, [m for m in kept if m.flags & DURABLE])
            for message in self._back_to_pages(kept):
                self._ready.put_back(message)
            replaced = replaced + self._push_out(len(kept))
        if replaced:
            self.replaced += len(replaced)
            self._leave(replaced, Gone.REPLACED)

    def _postpone(self, messages: list[Message], due: Callable[[Message], int]) -> None:
        for message in messages:
            message.flags |= SCHEDULED
            message.due = due(message)
            self.any_flags |= message.flags
        self._schedule(messages)
        self._effects.postponed(self, [m for m in messages if m.flags & DURABLE])

    def _count_attempt(self, messages: list[Message]) -> tuple[list[Message], list[Message]]:
        """Count one delivery more for each; returns those that stay and those that are dead."""
        stay: list[Message] = []
        dead: list[Message] = []
        for message in messages:
            if message.flags >> COUNT_SHIFT < _COUNT_MAX:
                message.flags += ONE_DELIVERY
            self.any_flags |= message.flags
            attempts = message.flags >> COUNT_SHIFT
            (dead if 0 < self.max_attempts <= attempts else stay).append(message)
        return stay, dead

    def note_acquired(self, messages: list[Message]) -> None:
        """Messages in delivery were with a consumer: the next one is not the first."""
        for message in self.unmarked(messages):
            message.flags |= ACQUIRED
        self.any_flags |= ACQUIRED

    def unmarked(self, messages: list[Message]) -> list[Message]:
        """Return messages in delivery as the queue holds them, without marks; they stay there."""
        marked = self._marked
        return [marked.get(m.seq, m) for m in messages] if marked else messages

    def rewrite(self, message: Message, body: bytes, growth: int) -> None:
        """Give a message in delivery another body, by `growth` bytes longer."""
        message.body = body
        self.size_bytes += growth

    def bar(self, held: Held, messages: list[Message]) -> None:
        """Never offer these to that consumer again (`undeliverable-here`) [AMQP 3.4.5]."""
        if held.barred is None:
            held.barred = set()
        held.barred.update(m.seq for m in messages)

    # ---- operator

    def browse(self, offset: int, limit: int) -> list[Message]:
        """Return ready messages, then those on pages, without touching them."""
        found = self._ready.window(offset, limit)
        if self.backlog is None or len(found) == limit:
            return found
        return found + self.backlog.browse(max(0, offset - len(self._ready)), limit - len(found))

    def oldest(self) -> int | None:
        """Return about the lowest seq of what waits to be handed out; None when nothing does."""
        first = self._ready.oldest()
        if self.paged_count and self.backlog is not None:
            paged = self.backlog.skip(0)
            return paged if first is None else min(first, paged)
        return first

    def holdings(self) -> Iterator[Message]:
        """Go through all that waits: ready in delivery order, then scheduled in due order."""
        return chain(self._ready, self._scheduled)

    def purge(self) -> int:
        """Remove all that waits; it counts as killed but goes nowhere. Returns how many."""
        self._store_none()
        messages = self._ready.clear() + self._scheduled.clear()
        if messages:
            self.killed += len(messages)
            self._leave(messages, Gone.REMOVED)
        return len(messages) + self.purge_pages()

    def take_out(self, seqs: set[int], why: Gone) -> list[Message]:
        """Remove those of these that wait, for an operator; returns them. O(n) of the queue."""
        messages = self._ready.remove_if(seqs) + self._scheduled.remove_if(seqs)
        messages += self._remove_storing(seqs)
        self.acknowledged += len(messages) if why is Gone.ACKNOWLEDGED else 0
        self.expired += len(messages) if why is Gone.EXPIRED else 0
        self.killed += len(messages) if why in (Gone.KILLED, Gone.REMOVED) else 0
        self.replaced += len(messages) if why is Gone.REPLACED else 0
        if messages:
            self._leave(messages, why)
        return messages

    def delete(self) -> None:
        """Take nothing in and hold nothing that waits any more."""
        self.deleted = True
        self.purge()

    def check_invariants(self) -> None:
        """Assert the conservation law; tests call it after each command."""
        gone = self.acknowledged + self.expired + self.killed + self.replaced
        assert self.added == self.message_count + gone, "messages were lost or made up"
        assert self.delivering == sum(h.count for h in self._consumers), "delivering is miscounted"
        assert self.size_bytes >= 0, "size went below zero"
