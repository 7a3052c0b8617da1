"""Non-destructive queues against a naive one: lists, and what each consumer has seen.

After every step: the conservation law, what waits, what each consumer was shown and in which order,
and that nobody with room is behind.
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

from gateway.model.message import DURABLE, EXPIRES, SCHEDULED
from gateway.model.run import Run
from gateway.queues import non_destructive
from gateway.queues.non_destructive import NonDestructiveQueue
from gateway.queues.queue import Gone
from gateway.queues.scheduled import NEVER
from tests.lanes import examples
from tests.queues.naive import NaiveQueue
from tests.queues.test_queue_model import (
    KEYS,
    PRIORITIES,
    SELECTORS,
    SUBSET,
    key_of,
    key_of_body,
)


class Spectator:
    """A consumer: `seen` are seqs that need not be shown again, `again` those that must."""

    def __init__(self, machine: KeptMachine, room: int, selector) -> None:
        self.machine = machine
        self.left = room
        self.wants = (lambda item: True) if selector is None else selector.wants
        self.holds = []
        self.seen = set()
        self.again = set()
        self.barred = set()
        self.attempts = {}
        self.held = machine.queue.attach(self, 0, selector)

    def room(self) -> int:
        return self.left

    def deliver(self, messages, any_flags) -> None:
        machine = self.machine
        assert 0 < len(messages) <= self.left, "more than there is room for"
        self.left -= len(messages)
        for message in messages:
            assert message.flags & ~any_flags == 0, "any_flags lacks a flag of the message"
            assert message.seq < machine.synced, "it is not on disk yet"
            item = next(i for i in machine.naive.waiting if i.seq == message.seq)
            assert not machine.naive._late(item, machine.now), "an expired message is shown"
            assert message.delivery_count == self.attempts.get(message.seq, 0)
            if message.seq in self.again:
                assert message.seq == min(self.again_now(), key=machine.place)
                self.again.remove(message.seq)
            else:
                owed = self.owed()
                assert not self.again_now(), "what was given back comes first"
                assert message.seq == owed[0], f"{message.seq} is shown where {owed[0]} is next"
                self.seen.add(message.seq)
            self.holds.append(message)

    def again_now(self) -> list[int]:
        machine = self.machine
        fresh = {i.seq for i in machine.naive.waiting if not machine.naive._late(i, machine.now)}
        return [seq for seq in self.again if seq in fresh and seq not in self.barred]

    def owed(self) -> list[int]:
        """Return what it has not seen, in order."""
        naive, now = self.machine.naive, self.machine.now
        return [
            i.seq
            for i in naive.waiting
            if i.seq not in self.seen | self.barred and self.wants(i) and not naive._late(i, now)
            if i.seq < self.machine.synced
        ]

    def exhausted(self) -> None:
        assert self.left == 0 or not self.owed()


class KeptMachine(RuleBasedStateMachine):
    looks = 512

    @initialize(evicts_next=st.booleans(), last_value=st.booleans())
    def start(self, evicts_next: bool, last_value: bool) -> None:
        self.limits = non_destructive.TURN_LOOKS, non_destructive.SHOWN_MIN
        non_destructive.TURN_LOOKS = self.looks
        non_destructive.SHOWN_MIN = 3
        self.now = 1000
        self.gone_now = []
        self.dead = []
        self.planned = NEVER
        self.synced = 1 << 60
        self.queue = NonDestructiveQueue("q", "a", 7, self)
        if last_value:
            self.queue.be_keyed(key_of)
        self.queue.ring.evicts_next = evicts_next
        self.naive = NaiveQueue(evicts_next=evicts_next, last_value=last_value)
        self.spectators = []
        for _ in range(2):
            self.attach(3, None)

    def teardown(self) -> None:
        if hasattr(self, "limits"):
            non_destructive.TURN_LOOKS, non_destructive.SHOWN_MIN = self.limits

    def place(self, seq):
        return next(i.place for i in self.naive.waiting if i.seq == seq)

    # ---- Effects

    def gone(self, queue, messages, why, size) -> int:
        assert messages
        assert size == sum(len(m.body) for m in messages)
        if any(m.flags & DURABLE for m in messages):
            assert queue.any_flags & DURABLE, "a record would stay in the journal"
        if queue.all_flags & DURABLE:
            assert all(m.flags & DURABLE for m in messages), "a record that never was"
        self.gone_now += [(why.value, m.seq) for m in messages]
        return 0

    def given_up(self, queue, messages) -> None:
        self.dead += [m.seq for m in messages]

    def counted(self, queue, messages) -> None:
        raise AssertionError("an attempt of one consumer is nobody else's")

    def postponed(self, queue, messages) -> None:
        raise AssertionError("nothing is postponed")

    def synced_below(self, queue) -> int:
        return self.synced

    def wake(self, queue, at_ms) -> None:
        self.planned = min(self.planned, at_ms)

    # ---- in

    @rule(
        keys=st.lists(KEYS, min_size=1, max_size=6),
        priority=PRIORITIES,
        durable=st.booleans(),
        ttl=st.integers(-1, 40),
        delay=st.sampled_from([None, None, 0, 3, 20, 50]),
    )
    def send(self, keys, priority, durable, ttl, delay) -> None:
        bodies = [key * (i + 1) for i, key in enumerate(keys)]
        expires = 0 if ttl < 0 else self.now + ttl
        flags = priority | (DURABLE if durable else 0) | (EXPIRES if expires else 0)
        due = None if delay is None else self.now + delay
        flags |= 0 if due is None else SCHEDULED
        self.queue.add_run(Run(bodies, flags, expires, due=due or 0))
        self.queue.drop_superseded()
        if due is None:
            self.queue.trim_ring(len(bodies))
        for body in bodies:
            key = key_of_body(body)
            self.naive.add(
                body, priority, durable=durable, expires=expires or None, due=due, key=key
            )

    # ---- consumers

    @precondition(lambda self: len(self.spectators) < 4)
    @rule(room=st.integers(0, 5), selector=st.sampled_from([None, None, *SELECTORS[:3]]))
    def attach(self, room, selector) -> None:
        self.spectators.append(Spectator(self, room, selector))

    @precondition(lambda self: self.spectators)
    @rule(which=st.integers(0, 3), room=st.integers(0, 8))
    def give_credit(self, which, room) -> None:
        self.spectators[which % len(self.spectators)].left = room
        self.dispatch(1000)

    @rule(limit=st.sampled_from([1, 2, 5, 1000]))
    def dispatch(self, limit) -> None:
        self.naive.come_due(self.now)
        before = sum(len(s.holds) for s in self.spectators)
        went = self.queue.dispatch(self.now, limit)
        assert went == sum(len(s.holds) for s in self.spectators) - before
        self.take_expiries()
        turns = 0
        while limit == 1000 and self.queue.searching:
            self.queue.dispatch(self.now, limit)
            self.take_expiries()
            turns += 1
            assert turns < 200, "a queue that never comes to rest"
        if limit == 1000 and not self.queue.paused:
            for spectator in self.spectators:
                behind = spectator.owed() or spectator.again_now()
                assert not spectator.left or not behind, "somebody has room and is not shown"

    def take_expiries(self) -> None:
        told = {seq for why, seq in self.gone_now if why == "expired"}
        known = {seq for why, seq in self.naive.gone if why == "expired"}
        for item in list(self.naive.waiting):
            if item.seq in told - known:
                assert self.naive._late(item, self.now)
                self.naive.waiting.remove(item)
                self.naive._leave("expired", item)

    def holding(self) -> bool:
        return any(s.holds for s in self.spectators)

    def pick(self, which, subset):
        holders = [s for s in self.spectators if s.holds]
        spectator = holders[which % len(holders)]
        chosen = [m for i, m in enumerate(spectator.holds) if i in subset] or spectator.holds[:]
        spectator.holds = [m for m in spectator.holds if m not in chosen]
        return spectator, chosen

    @precondition(holding)
    @rule(which=st.integers(0, 3), subset=SUBSET)
    def acknowledge(self, which, subset) -> None:
        spectator, chosen = self.pick(which, subset)
        self.queue.acknowledge(spectator.held, chosen)

    @precondition(holding)
    @rule(which=st.integers(0, 3), subset=SUBSET)
    def reject(self, which, subset) -> None:
        spectator, chosen = self.pick(which, subset)
        before = len(self.dead)
        self.queue.kill(spectator.held, chosen)
        assert sorted(self.dead[before:]) == sorted(m.seq for m in chosen)

    @precondition(holding)
    @rule(
        which=st.integers(0, 3),
        subset=SUBSET,
        failed=st.booleans(),
        bar=st.booleans(),
        delayed=st.booleans(),
    )
    def release(self, which, subset, failed, bar, delayed) -> None:
        spectator, chosen = self.pick(which, subset)
        if bar:
            spectator.held.bar(chosen)
            spectator.barred.update(m.seq for m in chosen)
        before = len(self.dead)
        due = (lambda m: self.now + 50) if delayed else None
        self.queue.release(spectator.held, chosen, failed=failed, due=due)
        dead = []
        for message in chosen:
            attempts = spectator.attempts.get(message.seq, 0) + failed
            spectator.attempts[message.seq] = attempts
            if failed and 0 < self.queue.max_attempts <= attempts:
                dead.append(message.seq)
            else:
                spectator.again.add(message.seq)
        assert sorted(self.dead[before:]) == sorted(dead)

    @precondition(lambda self: self.spectators)
    @rule(which=st.integers(0, 3), failed=st.booleans())
    def leave(self, which, failed) -> None:
        spectator = self.spectators.pop(which % len(self.spectators))
        if spectator.holds:
            self.queue.release(spectator.held, spectator.holds, failed=failed)
        self.queue.detach(spectator.held)

    # ---- time and operators

    @rule(by=st.integers(1, 25))
    def time_passes(self, by) -> None:
        self.now += by
        if self.planned <= self.now:
            self.planned = NEVER
            if self.now < self.queue.next_time < NEVER:
                self.planned = self.queue.next_time
            self.dispatch(1000)

    @rule(lags=st.booleans())
    def sync(self, lags) -> None:
        self.synced = self.queue.next_seq if lags else 1 << 60
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
            self.queue.returns.max_attempts = attempts
        self.queue.paused = paused

    @rule(how=st.sampled_from(["trim", "trim", "purge"]))
    def operate(self, how) -> None:
        assert getattr(self.queue, how)() == getattr(self.naive, how)()

    @rule(every=st.integers(1, 4), why=st.sampled_from([Gone.ACKNOWLEDGED, Gone.REMOVED]))
    def take_out(self, every, why) -> None:
        chosen = {seq for seq in range(self.queue.next_seq + 2) if seq % every == 0}
        taken = self.queue.take_out(chosen, why)
        assert len(taken) == self.naive.take_out(chosen, why.value)

    # ---- what always holds

    @invariant()
    def same(self) -> None:
        queue, naive = self.queue, self.naive
        queue.check_invariants()
        assert [m.seq for m in queue.browse(0, 10_000)] == [i.seq for i in naive.waiting]
        assert all(m.delivery_count == 0 for m in queue.holdings()), "others see an attempt"
        assert sorted(self.gone_now) == sorted(naive.gone)
        for name, count in naive.counts.items():
            assert getattr(queue, name) == count, name
        there = {i.seq for i in naive.waiting + naive.scheduled}
        held = {m.seq for s in self.spectators for m in s.holds}
        assert queue.delivering == len(held & there), "in delivery once, however many hold it"
        assert queue.scheduled_count == len(naive.scheduled)
        assert queue.message_count == len(there)
        items = naive.waiting + naive.scheduled
        assert queue.size_bytes == sum(len(i.body) for i in items)


KeptMachine.TestCase.settings = settings(
    max_examples=examples(200), stateful_step_count=40, deadline=None, derandomize=True
)
TestKeptAgainstNaive = KeptMachine.TestCase


class HastyKeptMachine(KeptMachine):
    """The same with consumers that look at a place or two in a turn."""

    looks = 2


HastyKeptMachine.TestCase.settings = settings(
    max_examples=examples(100), stateful_step_count=40, deadline=None, derandomize=True
)
TestHastyKeptAgainstNaive = HastyKeptMachine.TestCase
