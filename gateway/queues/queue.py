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
from functools import partial
from operator import attrgetter
from typing import Any

from gateway.model.address import RoutingType
from gateway.model.attributes import PLAIN, QueueAttributes
from gateway.model.message import EXPIRES, GROUPED, Message, Share
from gateway.model.ports import Consumer
from gateway.model.run import MixedRun, Run
from gateway.queues.counted import Counters
from gateway.queues.grouped import Grouping
from gateway.queues.in_delivery import InDelivery
from gateway.queues.indexed import Condition, IndexedReady
from gateway.queues.line import Line
from gateway.queues.making import made, made_mixed
from gateway.queues.ports import Account, Backlog, Effects, Gone
from gateway.queues.returns import DueOf, Returns
from gateway.queues.ring import Leave, Ring
from gateway.queues.scheduled import NEVER
from gateway.queues.searching import Ahead, Searching
from gateway.queues.seats import Consumers
from gateway.queues.selecting import Browser, Held
from gateway.queues.sharing import Shares
from gateway.queues.start import Start

__all__ = ["Account", "Effects", "Gone", "Held", "Queue"]


def _of(path: str) -> Any:  # noqa: ANN401 - the attribute says its type
    """Return a property that shows what a part has, by the part's name and its own."""
    return property(attrgetter(path))


class Queue:
    """See the module text. Anyone may read fields without underscore; only methods write them.

    Attributes:
        counts: messages that came, and where they went.
        ring: what bounds it.
        line: what waits.
        seats: its consumers.
        out: what consumers hold.
        ahead: what was read from pages before its elders.
        searches: selectors and browsers.
        groups: message groups.
        returns: what comes back.
        backlog: what it has on pages, while its address is in page mode.
        max_consumers: -1 no limit.
        paused: nothing is delivered.
        attributes: as `behave` was told; `start` is of them.
        filter: what the address lets in; the address looks, not the queue.
        no_local: the connection whose messages it does not let in; "" for none.
        told_apart: consumers for which messages are marked with where they come from.
        owner: the connection that alone consumes.
        made_by: the user that had it made, while it counts for one.
    """

    __slots__ = (
        "_effects", "_shares", "account", "address", "ahead", "attributes",
        "auto_created", "backlog", "counts", "deleted", "dispatching", "durable", "filter",
        "groups", "line", "made_by", "max_consumers", "name", "no_local", "out", "owner", "paused",
        "queue_id", "returns", "ring", "routing", "searches", "seats", "start", "temporary",
        "told_apart", "touched",
    )  # fmt: skip

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
        self.name = name
        self.address = address
        self.queue_id = queue_id
        self.routing = routing
        self.durable = durable
        self.temporary = temporary
        self.auto_created = auto_created
        self.owner: object | None = None
        self.made_by: str | None = None
        self.account: Account | None = None
        self.deleted = self.paused = self.touched = self.dispatching = False
        self.max_consumers = -1
        self.filter: Condition | None = None
        self.no_local = ""
        self.told_apart = 0
        self.attributes = PLAIN
        self.start: Start | None = None
        self.backlog: Backlog | None = None
        self._effects = effects
        self._make_parts(durable=durable)

    def _make_parts(self, *, durable: bool) -> None:
        leave, wake = self._leave, lambda at_ms: self._effects.wake(self, at_ms)
        self.counts = Counters()
        self.seats = seats = Consumers()
        self.line = line = self._make_line(wake, durable=durable)
        self.out = out = InDelivery()
        self.ring = self._make_ring(leave)
        self._shares = shares = Shares(line, seats, out, leave)
        self.searches = searching = Searching(line, seats, self._forget_index)
        self.ahead = ahead = Ahead(line, seats, searching, shares, self.counts)
        self.returns = Returns(
            line, out, self.ring, ahead, leave=leave, effects=self._effects, queue=self
        )
        self.groups = Grouping(line, seats, out, searching, leave=leave, wake=wake)

    # ---- what its parts have, as others ask for it

    next_seq: int = _of("counts.next_seq")
    added: int = _of("counts.added")
    acknowledged: int = _of("counts.acknowledged")
    expired: int = _of("counts.expired")
    killed: int = _of("counts.killed")
    replaced: int = _of("counts.replaced")
    size_bytes: int = _of("counts.size_bytes")

    any_flags: int = _of("line.any_flags")
    all_flags: int = _of("line.all_flags")
    ready_count: int = _of("line.ready_count")
    scheduled_count: int = _of("line.scheduled_count")
    waiting_count: int = _of("line.waiting_count")
    storing_count: int = _of("line.storing_count")
    serialized: bool = _of("line.serialized")
    stores_first: bool = _of("line.stores_first")
    storing: Callable[[], Iterator[Message]] = _of("line.storing")
    holdings: Callable[[], Iterator[Message]] = _of("line.holdings")

    delivering: int = _of("out.count")
    group_count: int = _of("groups.count")
    consumers: Sequence[Held] = _of("seats.all")
    consumer_count: int = _of("seats.count")
    exclusive: bool = _of("seats.exclusive")

    searching: bool = _of("searches.more")
    selective: bool = _of("searches.selective")
    browsers: Sequence[Browser] = _of("searches.browsers")

    max_attempts: int = _of("returns.max_attempts")
    victims: Callable[[], Iterator[Message]] = _of("ring.victims")
    trim_ring: Callable[[int], None] = _of("ring.make_room")
    trim: Callable[[], int] = _of("ring.trim")

    # ---- kinds of queues

    def _make_line(self, wake: Callable[[int], None], *, durable: bool) -> Line:
        return Line(wake, durable=durable)

    def _make_ring(self, leave: Leave) -> Ring:
        return Ring(self.line, self.out, leave)

    @property
    def replaces(self) -> bool:
        """Whether later values replace earlier ones: `drop_superseded` follows each add."""
        return False

    #: Whether consumers take nothing away.
    keeps = False

    def drop_superseded(self) -> None:
        """Let go of what later values have replaced, now that those are recorded."""

    def behave(self, attributes: QueueAttributes) -> None:
        """Use these attributes from now on; a start that changes is waited for anew."""
        before, self.attributes = self.attributes, attributes
        wanted = attributes.consumers_before_dispatch, attributes.delay_before_dispatch
        if wanted != (before.consumers_before_dispatch, before.delay_before_dispatch):
            self.start = Start(*wanted) if wanted[0] > 0 else None
        self.seats.be_exclusive(attributes.exclusive)
        self.groups.behave(attributes)

    # ---- figures

    @property
    def message_count(self) -> int:
        """All that the queue holds: storing, ready, scheduled, delivering and paged."""
        return len(self.line) + self.out.count + self.paged_count

    @property
    def filter_text(self) -> str:
        """The filter as it was written; "" for none."""
        return "" if self.filter is None else self.filter.text

    @property
    def ring_size(self) -> int:
        """Most that may wait; -1 no limit."""
        return self.ring.size

    @ring_size.setter
    def ring_size(self, size: int) -> None:
        self.ring.size = size
        self.out.is_listed = size >= 0

    @property
    def paged_count(self) -> int:
        """Messages on page files that were not read back yet."""
        return self.backlog.count if self.backlog is not None else 0

    @property
    def next_time(self) -> int:
        """When the queue has something to do without being asked; NEVER if it has not."""
        due = self.line.scheduled.next_due
        return due if self.start is None else min(due, self.start.opens_at)

    @property
    def reads_amid(self) -> bool:
        """Whether what is read back from pages may have its place between others.

        Also where others were: an index keeps the places of those that were taken ahead.
        """
        if self.backlog is None:
            return False
        return bool(self.backlog.ahead) or isinstance(self.line.ready, IndexedReady)

    # ---- in

    def add_run(self, run: Run, shares: Sequence[Share] = (), *, origin: str = "") -> int:
        """Append a run. `origin`: where it comes from; wanted while `told_apart` is not 0.

        Returns the seq of the first; the others follow without a gap. The caller, once it has
        recorded them, calls `trim_ring` in the same step when the queue is a ring. `shares`, one
        for each body, belong to what other queues get as well.
        """
        counts = self.counts
        first = counts.next_seq
        counts.next_seq = first + run.count
        messages, flags = made(run, first, shares, origin)
        counts.added += run.count
        counts.size_bytes += run.size
        self.line.add_run(messages, flags)
        return first

    def add_mixed(self, run: MixedRun) -> int:
        """As `add_run` for messages that differ in flags or expiry, and are for now."""
        first = self.counts.take(run.count)
        self.counts.size_bytes += run.size
        add = self.line.add
        for message in made_mixed(run, first):
            add(message)
        return first

    def restore(self, messages: list[Message]) -> None:
        """Put recovered messages back, in arrival order.

        The caller, once it has charged for them, calls `trim`: a ring that was lowered is applied
        at start.
        """
        if not messages:
            return
        self.line.restore(messages, amid=self.reads_amid and not self.replaces)
        counts = self.counts
        counts.size_bytes += sum([len(m.body) for m in messages])
        counts.added += len(messages)
        counts.next_seq = max(counts.next_seq, messages[-1].seq + 1)

    def _leave(self, messages: list[Message], why: Gone) -> int:
        """Account for messages that left and tell the broker; returns the ticket."""
        counts = self.counts
        if why is Gone.ACKNOWLEDGED:
            counts.acknowledged += len(messages)
        else:
            counts.gone(len(messages), why)
        size = sum([len(m.body) for m in messages])
        counts.size_bytes -= size
        ticket = self._effects.gone(self, messages, why, size)
        if not self.out.count and self.line.forget_flags():
            self._forget_index()
        return ticket

    def _forget_index(self) -> None:
        """Go back to the cheap order once nothing waits, and nothing searches."""
        if self.groups.end_if_idle() and self.searches.open is None:
            self.line.forget_index()

    # ---- time

    def _come_due(self, now_ms: int) -> None:
        """Put what is due in front of what waits; a full ring keeps what was due last."""
        due = self.line.scheduled.take_due(now_ms)
        late = [m for m in due if m.flags & EXPIRES and m.expires <= now_ms]
        if late:
            due = [m for m in due if not (m.flags & EXPIRES and m.expires <= now_ms)]
        replaced = self.ring.admit_due(due)
        # Those that go are told of last: an empty queue forgets which flags its messages have.
        if late:
            self._leave(late, Gone.EXPIRED)
        if replaced:
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
            held.group = self.searches.join(condition)
        self.seats.seat(held)
        self.groups.seated()
        return held

    def detach(self, held: Held) -> None:
        """Take a consumer away; it must have given back what it held."""
        assert held.count == 0, "a consumer left with messages"
        self.seats.unseat(held)
        self.groups.unseated(held)
        if held.group is not None:
            self.searches.leave(held.group)
        if self.start is not None and not len(self.seats):
            self.start.left()

    def wait_for_search(self, member: Held) -> bool:
        """Whether its search has not seen all yet; then `Consumer.exhausted` tells its end."""
        return self.groups.wait(member) or self.searches.wait(member, self.backlog)

    # ---- out

    def dispatch(self, now_ms: int, limit: int) -> int:
        """Hand out about `limit` messages to consumers with room; returns how many went out."""
        self.dispatching = True
        try:
            return self._dispatch(now_ms, limit)
        finally:
            self.dispatching = False

    def _dispatch(self, now_ms: int, limit: int) -> int:
        line, searching = self.line, self.searches
        if line.scheduled.next_due <= now_ms:
            self._come_due(now_ms)
        searches = None
        if searching.open is not None:
            synced_below = partial(self._effects.synced_below, self)
            searches = searching.begin(now_ms, synced_below, self.backlog)
        if self.start is not None:
            opened = self.start.is_open(len(self.seats), now_ms)
            if self.next_time < NEVER:
                self._effects.wake(self, self.next_time)
            if not opened:
                return 0
        total = self._hand_out(now_ms, limit)
        if searches is not None:
            searching.end(searches, self.backlog, limited=total >= limit)
            searching.more = searching.more or self.groups.unfinished
        return total

    def _hand_out(self, now_ms: int, limit: int) -> int:
        if self.paused:
            return 0
        line, grouping = self.line, self.groups
        if (grouping.groups is not None or line.any_flags & GROUPED) and grouping.is_on():
            return grouping.hand_out(now_ms, limit)
        total = 0
        hand_round = self._shares.hand_round
        while line.ready and total < limit:
            went = hand_round(now_ms, limit - total)
            if not went:
                break
            total += went
        return total

    def expire(self, now_ms: int) -> int:
        """Remove what has expired while waiting; returns how many. O(n) when any can expire."""
        if late := self.line.take_expired(now_ms):
            self._leave(late, Gone.EXPIRED)
        return len(late)

    # ---- back

    def acknowledge(self, held: Held, messages: list[Message]) -> int:
        """Remove messages in delivery for good; returns the ticket."""
        return self._settle(held, messages, Gone.ACKNOWLEDGED)

    def kill(self, held: Held, messages: list[Message]) -> int:
        """Have messages in delivery go to the dead-letter address; returns the ticket."""
        return self._settle(held, messages, Gone.KILLED)

    def _settle(self, held: Held, messages: list[Message], why: Gone) -> int:
        out = self.out
        if out.marked:
            messages = out.as_held(messages)
        out.take_back(held, messages)
        return self._leave(messages, why)

    def release(
        self,
        held: Held,
        messages: list[Message],
        *,
        failed: bool = False,
        due: DueOf | None = None,
    ) -> int:
        """Put messages in delivery back to their old places; returns the ticket.

        `failed` counts an attempt; one that has used up `max_attempts` is killed instead. `due`
        says until when each waits, with the attempt counted; a ring that has no place for it now
        replaces it all the same.
        """
        return self.returns.take_back(
            held, messages, self.backlog, failed=failed, due=due, deleted=self.deleted
        )

    # ---- operator

    def browse(self, offset: int, limit: int) -> list[Message]:
        """Return ready messages, then those on pages, without touching them."""
        ready = self.line.ready
        found = ready.window(offset, limit)
        if self.backlog is None or len(found) == limit:
            return found
        return found + self.backlog.browse(max(0, offset - len(ready)), limit - len(found))

    def oldest(self) -> int | None:
        """Return about the lowest seq of what waits to be handed out; None when nothing does."""
        first = self.line.ready.oldest()
        if self.paged_count and self.backlog is not None:
            paged = self.backlog.skip(0)
            return paged if first is None else min(first, paged)
        return first

    def purge(self) -> int:
        """Remove all that waits; it counts as killed but goes nowhere. Returns how many."""
        if messages := self.line.clear():
            self._leave(messages, Gone.REMOVED)
        return len(messages) + self.purge_pages()

    def take_out(self, seqs: set[int], why: Gone) -> list[Message]:
        """Remove those of these that wait, for an operator; returns them. O(n) of the queue."""
        if messages := self.line.remove_if(seqs):
            self._leave(messages, why)
        return messages

    def delete(self) -> None:
        """Take nothing in and hold nothing that waits any more."""
        self.deleted = True
        self.purge()

    def check_invariants(self) -> None:
        """Assert the conservation law, and of all parts; tests call it after each command."""
        counts = self.counts
        assert counts.added == self.message_count + counts.gone_count, "messages lost or made up"
        for part in (counts, self.line, self.seats, self.ring, self.searches, self.groups):
            part.check_invariants()
        counts.check_size((self.line.holdings(), self.line.storing()), exact=not self.out.count)
        if self.start is not None:
            self.start.check_invariants(len(self.seats))
        self._check_held()

    def _check_held(self) -> None:
        self.out.check_invariants(sum(h.count for h in self.seats.all))

    # ---- pages

    def take_places(self, count: int) -> int:
        """Count messages that go to pages; returns the seq of the first."""
        return self.counts.take(count)

    def purge_pages(self) -> int:
        """Let go of what was not read back; returns how many that were."""
        count = self.backlog.purge() if self.backlog is not None else 0
        self.counts.killed += count
        return count
