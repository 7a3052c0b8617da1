"""The queue against a naive one: whatever is done to both, they hold and count the same.

After every step: the conservation law, delivery order, figures, and the flags that let the broker
skip work (a flag too few would lose a record of the journal).
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from gateway.model.message import COUNT_SHIFT, DURABLE, EXPIRES, PRIORITY_MASK, SCHEDULED
from gateway.model.run import MixedRun, Run
from gateway.queues import selecting
from gateway.queues.last_value import LastValueQueue
from gateway.queues.queue import Gone, Queue
from gateway.queues.scheduled import NEVER
from tests.lanes import examples
from tests.queues.naive import NaiveQueue, Seat

PRIORITIES = st.sampled_from([0, 4, 4, 4, 9])
SUBSET = st.sets(st.integers(0, 30))
KEYS = st.sampled_from([b"a", b"b", b"-"])


def key_of_body(body: bytes) -> str | None:
    return None if body[:1] == b"-" else chr(body[0])


def key_of(message) -> str | None:
    return key_of_body(message.body)


class Selector:
    """A selector: the same condition on a message and on an item of the naive queue."""

    def __init__(self, text, matches, wants) -> None:
        self.text = text
        self.matches = matches
        self.wants = wants


SELECTORS = [
    Selector("durable", lambda m: bool(m.flags & DURABLE), lambda i: i.durable),
    Selector("odd", lambda m: m.seq % 2 == 1, lambda i: i.seq % 2 == 1),
    Selector("high", lambda m: m.priority > 4, lambda i: i.priority > 4),
    Selector("fresh", lambda m: m.delivery_count == 0, lambda i: i.attempts == 0),
    Selector("none", lambda m: False, lambda i: False),
]


class Taker:
    """A consumer whose room is its seat's; the naive queue judges what it gets."""

    def __init__(self, machine: QueueMachine, priority: int, selector=None) -> None:
        self.machine = machine
        self.seat = Seat(priority)
        if selector is not None:
            self.seat.wants = selector.wants
        self.messages = {}
        self.held = None

    def room(self) -> int:
        return self.seat.room

    def deliver(self, messages, any_flags) -> None:
        assert messages, "an empty delivery"
        machine = self.machine
        for message in messages:
            assert message.flags & ~any_flags == 0, "any_flags lacks a flag of the message"
            self.messages[message.seq] = message
        seqs = [m.seq for m in messages]
        machine.naive.delivered(self.seat, seqs, machine.now, hasty=machine.hasty)

    def removed(self, refusal) -> None:
        raise AssertionError("the queue itself removes nobody")


class Viewer:
    """A browser: `shown` are seqs in the order in which it saw them."""

    def __init__(self, machine: QueueMachine, selector, room: int) -> None:
        self.machine = machine
        self.wants = Seat(0).wants if selector is None else selector.wants
        self.left = room
        self.shown = []
        self.ended = False
        self.browser = machine.queue.searches.join_browser(self, selector)

    def room(self) -> int:
        return self.left

    def deliver(self, messages, any_flags) -> None:
        assert 0 < len(messages) <= self.left
        self.left -= len(messages)
        naive = self.machine.naive
        for message in messages:
            assert message.flags & ~any_flags == 0
            item = next(i for i in naive.waiting if i.seq == message.seq)
            assert self.wants(item)
            assert item.expires is None or item.expires > self.machine.now, "shown, but expired"
            assert message.seq not in self.shown, "shown twice"
            assert message.seq < self.machine.synced, "shown before it is on disk"
            self.shown.append(message.seq)

    def exhausted(self) -> None:
        assert not self.ended, "told twice"
        assert self.left > 0
        self.ended = True

    def owed(self) -> list[int]:
        """Return what it should have been shown by now."""
        now = self.machine.now
        return [
            i.seq
            for i in self.machine.naive.waiting
            if self.wants(i) and (i.expires is None or i.expires > now)
            if i.seq < self.machine.synced
            if i.seq not in self.shown
        ]


class QueueMachine(RuleBasedStateMachine):
    hasty = False

    @initialize(evicts_next=st.booleans(), last_value=st.booleans())
    def start(self, evicts_next: bool, last_value: bool) -> None:
        self.now = 1000
        self.gone_now = []
        self.counted_now = {}
        self.dues_now = {}
        self.planned = NEVER
        self.synced = 1 << 60
        self.queue = (LastValueQueue if last_value else Queue)("q", "a", 7, self)
        if last_value:
            self.queue.be_keyed(key_of)
        self.queue.ring.evicts_next = evicts_next
        self.naive = NaiveQueue(evicts_next=evicts_next, last_value=last_value)
        self.takers = []
        self.viewers = []
        for priority in (0, 0, 5):
            self.attach_one(priority, 2)

    # ---- Effects

    def gone(self, queue, messages, why, size) -> int:
        assert queue is self.queue
        assert messages, "nothing has gone"
        assert size == sum(len(m.body) for m in messages)
        if any(m.flags & DURABLE for m in messages):
            assert queue.any_flags & DURABLE, "a record would stay in the journal"
        if queue.all_flags & DURABLE:
            assert all(m.flags & DURABLE for m in messages), "a record that never was"
        self.gone_now += [(why.value, m.seq) for m in messages]
        return 0

    def counted(self, queue, messages) -> int:
        assert all(m.flags & DURABLE for m in messages)
        self.counted_now.update({m.seq: m.flags >> COUNT_SHIFT for m in messages})
        return 0

    def postponed(self, queue, messages) -> int:
        self.counted(queue, messages)
        self.dues_now.update({m.seq: m.due for m in messages})
        return 0

    def synced_below(self, queue) -> int:
        assert queue is self.queue
        return self.synced

    def wake(self, queue, at_ms) -> None:
        assert queue is self.queue
        self.planned = min(self.planned, at_ms)

    # ---- in

    @precondition(lambda self: not self.queue.deleted)
    @rule(
        keys=st.lists(KEYS, min_size=1, max_size=6),
        priority=PRIORITIES,
        durable=st.booleans(),
        ttl=st.integers(-1, 40),
        delay=st.sampled_from([None, None, 0, 3, 20, 50]),
    )
    def send_run(self, keys, priority, durable, ttl, delay) -> None:
        bodies = [key * (i + 1) for i, key in enumerate(keys)]
        count = len(bodies)
        expires = 0 if ttl < 0 else self.now + ttl
        flags = priority | (DURABLE if durable else 0) | (EXPIRES if expires else 0)
        due = None if delay is None else self.now + delay
        flags |= 0 if due is None else SCHEDULED
        first = self.queue.add_run(Run(bodies, flags, expires, due=due or 0))
        assert first == self.naive.next_seq
        self.queue.drop_superseded()
        if due is None:
            self.queue.trim_ring(count)
        for body in bodies:
            self.naive.add(
                body,
                priority,
                durable=durable,
                expires=expires or None,
                due=due,
                key=key_of_body(body),
            )
        if count & 1:
            self.dispatch(1000)

    @precondition(lambda self: not self.queue.deleted)
    @rule(
        shapes=st.lists(
            st.tuples(PRIORITIES, st.booleans(), st.integers(-1, 40), KEYS), min_size=1, max_size=6
        )
    )
    def send_mixed(self, shapes) -> None:
        # Of a last-value queue the broker splits what differs: which of two values of one run a
        # ring evicts would depend on both.
        size = 1 if self.naive.last_value else len(shapes)
        for at in range(0, len(shapes), size):
            self.send_together(shapes[at : at + size])

    def send_together(self, shapes) -> None:
        bodies = [key * 3 for *_, key in shapes]
        expires = [0 if ttl < 0 else self.now + ttl for _, _, ttl, _ in shapes]
        flags = [
            priority | (DURABLE if durable else 0) | (EXPIRES if due else 0)
            for (priority, durable, *_), due in zip(shapes, expires, strict=True)
        ]
        self.queue.add_mixed(MixedRun(bodies, flags, expires))
        self.queue.drop_superseded()
        self.queue.trim_ring(len(bodies))
        for body, (priority, durable, *_), due in zip(bodies, shapes, expires, strict=True):
            key = key_of_body(body)
            self.naive.add(body, priority, durable=durable, expires=due or None, key=key)

    # ---- consumers

    @precondition(lambda self: len(self.takers) < 4 and not self.queue.deleted)
    @rule(
        priority=st.sampled_from([0, 0, 5]),
        room=st.integers(0, 5),
        selector=st.sampled_from([None, None, *SELECTORS]),
    )
    def attach(self, priority, room, selector) -> None:
        self.attach_one(priority, room, selector)

    def attach_one(self, priority, room, selector=None) -> None:
        taker = Taker(self, priority, selector)
        taker.seat.room = room
        taker.held = self.queue.attach(taker, priority, selector)
        self.takers.append(taker)
        self.naive.seats.append(taker.seat)

    @precondition(lambda self: self.takers)
    @rule(which=st.integers(0, 3), room=st.integers(0, 8))
    def give_credit(self, which, room) -> None:
        self.takers[which % len(self.takers)].seat.room = room
        self.dispatch(1000)

    @rule(limit=st.sampled_from([1, 2, 5, 1000]))
    def dispatch(self, limit) -> None:
        before = sum(len(t.seat.held) for t in self.takers)
        self.naive.come_due(self.now)
        went = self.queue.dispatch(self.now, limit)
        assert went == sum(len(t.seat.held) for t in self.takers) - before
        self.take_expiries()
        while limit == 1000 and self.queue.searching:
            self.queue.dispatch(self.now, limit)
            self.take_expiries()
        if limit == 1000:
            assert not self.naive.starving(self.now), "somebody has room for what waits"
            for viewer in self.viewers:
                assert viewer.left == 0 or not viewer.owed(), "a browser is not shown something"
                late = self.synced < self.queue.next_seq
                assert viewer.ended or viewer.left == 0 or late, "a browser waits for its end"

    @precondition(lambda self: len(self.viewers) < 2)
    @rule(selector=st.sampled_from([None, *SELECTORS]), room=st.sampled_from([2, 1000]))
    def browse(self, selector, room) -> None:
        self.viewers.append(Viewer(self, selector, room))

    @precondition(lambda self: self.viewers)
    @rule(room=st.sampled_from([0, 3, 1000]))
    def stop_browsing(self, room) -> None:
        if room:
            self.viewers[0].left = room
            self.dispatch(1000)
        else:
            self.queue.searches.leave_browser(self.viewers.pop(0).browser)

    def take_expiries(self) -> None:
        """What is behind the last delivery may have been found expired as well."""
        told = {seq for why, seq in self.gone_now if why == "expired"}
        known = {seq for why, seq in self.naive.gone if why == "expired"}
        for item in list(self.naive.waiting):
            if item.seq in told - known:
                assert item.expires is not None
                assert item.expires <= self.now
                self.naive.waiting.remove(item)
                self.naive._leave("expired", item)

    def pick(self, which, subset):
        holders = [t for t in self.takers if t.seat.held] or self.takers
        taker = holders[which % len(holders)]
        held = taker.seat.held
        items = [item for i, item in enumerate(held) if i in subset] or list(held)
        return taker, items, [taker.messages[item.seq] for item in items]

    def holding(self) -> bool:
        return any(t.seat.held for t in self.takers)

    @precondition(holding)
    @rule(which=st.integers(0, 3), subset=SUBSET)
    def acknowledge(self, which, subset) -> None:
        taker, items, messages = self.pick(which, subset)
        if items:
            self.queue.acknowledge(taker.held, messages)
            self.naive.acknowledge(taker.seat, items)

    @precondition(holding)
    @rule(
        which=st.integers(0, 3),
        subset=SUBSET,
        failed=st.booleans(),
        bar=st.booleans(),
        delay=st.sampled_from([None, None, 1, 5, 30]),
    )
    def release(self, which, subset, failed, bar, delay) -> None:
        taker, items, messages = self.pick(which, subset)
        if not items:
            return
        if bar:
            taker.held.bar(messages)
            taker.seat.barred.update(item.seq for item in items)
        if delay is None:
            self.queue.release(taker.held, messages, failed=failed)
            self.naive.release(taker.seat, items, failed=failed)
        else:
            self.release_later(taker, items, messages, failed, delay)
        if (failed or delay) and not self.queue.deleted:
            kept = {item.seq for item in self.naive.waiting + self.naive.scheduled}
            for item in items:
                if item.durable and item.seq in kept:
                    assert self.counted_now[item.seq] == item.attempts, "a count is not recorded"
                    assert not delay or self.dues_now[item.seq] == item.due, "a time is not"

    def release_later(self, taker, items, messages, failed, delay) -> None:
        """Each waits longer the more attempts it has seen."""
        dues = {i.seq: self.now + delay * (1 + i.attempts + failed) for i in items}

        def due(message) -> int:
            assert dues[message.seq] == self.now + delay * (1 + message.delivery_count)
            return dues[message.seq]

        self.queue.release(taker.held, messages, failed=failed, due=due)
        self.naive.release(taker.seat, items, failed=failed, due=dues)

    @precondition(holding)
    @rule(which=st.integers(0, 3), subset=SUBSET)
    def reject(self, which, subset) -> None:
        taker, items, messages = self.pick(which, subset)
        if items:
            self.queue.kill(taker.held, messages)
            self.naive.kill(taker.seat, items)

    @precondition(lambda self: self.takers)
    @rule(which=st.integers(0, 3), failed=st.booleans())
    def leave(self, which, failed) -> None:
        taker, items, messages = self.pick(which, set())
        if items:
            self.queue.release(taker.held, messages, failed=failed)
            self.naive.release(taker.seat, items, failed=failed)
        self.queue.detach(taker.held)
        self.takers.remove(taker)
        self.naive.seats.remove(taker.seat)

    # ---- time and operators

    @rule(by=st.integers(1, 25))
    def time_passes(self, by) -> None:
        self.now += by
        if self.planned <= self.now:
            self.planned = NEVER
            if self.now < self.queue.next_time < NEVER:
                self.planned = self.queue.next_time
            self.dispatch(1000)

    @rule(behind=st.sampled_from([None, None, 0, 1, 3]))
    def sync(self, behind) -> None:
        """The disk falls behind, or catches up; what was on it stays there."""
        if behind is None:
            self.synced = 1 << 60
        elif self.synced == 1 << 60:
            self.synced = self.queue.next_seq
        else:
            self.synced = max(self.synced, self.queue.next_seq - behind)
        self.dispatch(1000)

    @rule()
    def scan(self) -> None:
        self.queue.expire(self.now)
        self.naive.drop_late(self.now)

    @rule(
        ring=st.sampled_from([None, None, -1, 1, 2, 3, 6]),
        attempts=st.sampled_from([None, None, -1, 1, 2, 10]),
        paused=st.sampled_from([False, False, False, True]),
    )
    def change(self, ring, attempts, paused) -> None:
        if ring is not None:
            self.queue.ring_size = self.naive.ring = ring
        if attempts is not None:
            self.queue.returns.max_attempts = self.naive.attempts_max = attempts
        self.queue.paused = self.naive.paused = paused

    @rule(how=st.sampled_from(["trim", "trim", "purge", "delete"]))
    def operate(self, how) -> None:
        if how == "trim":
            assert self.queue.trim() == self.naive.trim()
        elif how == "purge":
            assert self.queue.purge() == self.naive.purge()
        elif self.queue.added > 40:
            self.queue.delete()
            self.naive.deleted = True
            self.naive.purge()

    @rule(
        every=st.integers(1, 4),
        why=st.sampled_from([Gone.ACKNOWLEDGED, Gone.EXPIRED, Gone.KILLED, Gone.REMOVED]),
    )
    def take_out(self, every, why) -> None:
        chosen = {seq for seq in range(self.queue.next_seq + 2) if seq % every == 0}
        taken = self.queue.take_out(chosen, why)
        assert len(taken) == self.naive.take_out(chosen, why.value)
        assert all(m.seq in chosen for m in taken)

    # ---- what always holds

    @invariant()
    def same(self) -> None:
        queue, naive = self.queue, self.naive
        queue.check_invariants()
        assert [m.seq for m in queue.browse(0, 10_000)] == [i.seq for i in naive.waiting]
        assert sorted(self.gone_now) == sorted(naive.gone)
        for name, count in naive.counts.items():
            assert getattr(queue, name) == count, name
        held = [item for seat in naive.seats for item in seat.held]
        assert queue.delivering == len(held)
        later = sorted(naive.scheduled, key=lambda i: (i.due, i.seq))
        assert queue.scheduled_count == len(later)
        assert queue.message_count == len(held) + len(naive.waiting) + len(later)
        assert queue.size_bytes == sum(len(i.body) for i in held + naive.waiting + later)
        attempts = [(i.seq, i.attempts) for i in naive.waiting + later]
        assert [(m.seq, m.delivery_count) for m in queue.holdings()] == attempts

    @invariant()
    def woken_in_time(self) -> None:
        if self.naive.scheduled:
            first = min(i.due for i in self.naive.scheduled)
            assert self.queue.next_time == first
            assert self.planned <= first, "nobody wakes the queue when the first is due"
        else:
            assert self.queue.next_time == NEVER

    @invariant()
    def flags_cover_all(self) -> None:
        held = [t.messages[i.seq] for t in self.takers for i in t.seat.held]
        for message in held + list(self.queue.holdings()):
            assert message.flags & ~self.queue.any_flags == 0
            if self.queue.all_flags & DURABLE:
                assert message.flags & DURABLE
            assert message.flags & PRIORITY_MASK == message.priority


QueueMachine.TestCase.settings = settings(
    max_examples=examples(400), stateful_step_count=40, deadline=None, derandomize=True
)
TestQueueAgainstNaive = QueueMachine.TestCase


class HastyQueueMachine(QueueMachine):
    """The same with searches that look at a place or two in a turn."""

    hasty = True

    def __init__(self) -> None:
        self.limits = selecting.TURN_PLACES, selecting.PLACES_MIN
        selecting.TURN_PLACES, selecting.PLACES_MIN = 3, 1
        super().__init__()

    def teardown(self) -> None:
        selecting.TURN_PLACES, selecting.PLACES_MIN = self.limits


HastyQueueMachine.TestCase.settings = settings(
    max_examples=examples(200), stateful_step_count=40, deadline=None, derandomize=True
)
TestHastyQueueAgainstNaive = HastyQueueMachine.TestCase


def test_a_value_in_place_of_a_scheduled_one_takes_room_in_the_ring() -> None:
    """What comes back late took no room; its successor does."""
    machine = QueueMachine()
    machine.start(evicts_next=False, last_value=True)
    machine.change(ring=1, attempts=None, paused=False)
    machine.send_mixed(shapes=[(0, False, 1, b"b")])
    machine.dispatch(limit=1)
    machine.release(which=0, subset=set(), failed=False, bar=False, delay=1)
    for key in (b"a", b"b"):
        machine.send_mixed(shapes=[(0, False, -1, key)])
        machine.same()
    assert [m.seq for m in machine.queue.browse(0, 9)] == [3]
