"""Message groups against what they promise: sticky, in order, nobody held up by another's group.

After every step: the conservation law; each delivery goes to the consumer that its group belongs
to; of what a consumer could get nothing earlier is left; with room nobody starves.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.model.message import DURABLE, EXPIRES, GROUPED, SCHEDULED
from gateway.model.run import Run
from gateway.queues.last_value import LastValueQueue
from gateway.queues.queue import Gone, Queue
from gateway.queues.scheduled import NEVER
from tests.lanes import examples
from tests.queues.test_queue_model import PRIORITIES, SELECTORS, SUBSET

GROUPS = st.sampled_from([b"a", b"b", b"c", b"-", b"-"])


def group_of(message) -> tuple[str | None, bool]:
    if message.body[:1] == b"-":
        return None, False
    return chr(message.body[0]), message.body.endswith(b"!")


class Member:
    """A consumer that judges what it gets."""

    def __init__(self, machine: GroupedMachine, room: int, priority: int, selector) -> None:
        self.machine = machine
        self.left = room
        self.matches = (lambda m: True) if selector is None else selector.matches
        self.holds = []
        self.barred = set()
        self.held = machine.queue.attach(self, priority, selector)

    def room(self) -> int:
        return self.left

    def wants(self, message) -> bool:
        return message.seq not in self.barred and self.matches(message)

    def deliver(self, messages, any_flags) -> None:
        assert 0 < len(messages) <= self.left
        self.left -= len(messages)
        assert len({m.priority for m in messages}) == 1
        for message in messages:
            assert message.flags & ~any_flags == 0
            assert self.wants(message)
            assert not (message.flags & EXPIRES and message.expires <= self.machine.now)
            self.machine.delivered(self, message)
        self.holds += messages

    def exhausted(self) -> None:
        """It does not drain."""


class GroupedMachine(RuleBasedStateMachine):
    @initialize(last_value=st.booleans())
    def start(self, last_value: bool) -> None:
        self.now = 1000
        self.queue = (LastValueQueue if last_value else Queue)("q", "a", 7, self)
        if last_value:
            self.queue.be_keyed(lambda m: group_of(m)[0])
        self.queue.groups.group_of = group_of
        self.owners = {}  # group -> the member that has it, as far as deliveries have shown
        self.members = []
        for _ in range(2):
            self.attach(3, 0, None)

    # ---- Effects

    def gone(self, queue, messages, why, size) -> int:
        assert size == sum(len(m.body) for m in messages)
        if any(m.flags & DURABLE for m in messages):
            assert queue.any_flags & DURABLE
        return 0

    def counted(self, queue, messages) -> int:
        """The delivery counts are looked at elsewhere."""
        return 0

    def postponed(self, queue, messages) -> None:
        raise AssertionError("nothing is postponed")

    def synced_below(self, queue) -> int:
        return 1 << 60

    def wake(self, queue, at_ms) -> None:
        """Time passes in steps that dispatch."""

    # ---- what groups promise

    def delivered(self, member, message) -> None:
        group, closes = group_of(message)
        if group is None or self.queue.exclusive:
            return
        owner = self.owners.get(group)
        if owner is not None and owner.wants(message):
            assert owner is member, f"group {group} has moved"
        elif owner is None and self.queue.groups.groups.pinned.get(group) is member.held:
            # Not what its consumer's selector left to another one.
            self.owners[group] = member
        if closes:
            self.owners.pop(group, None)

    # ---- steps

    @rule(
        groups=st.lists(GROUPS, min_size=1, max_size=6),
        priority=PRIORITIES,
        ttl=st.sampled_from([None, None, None, 20]),
        delay=st.sampled_from([None, None, 5]),
        closes=st.sampled_from([False, False, False, True]),
    )
    def send(self, groups, priority, ttl, delay, closes) -> None:
        for group in groups:
            body = group * 3 + (b"!" if closes and group != b"-" else b"")
            flags = priority | DURABLE | (GROUPED if group != b"-" else 0)
            flags |= (EXPIRES if ttl else 0) | (SCHEDULED if delay else 0)
            expires = self.now + ttl if ttl else 0
            due = self.now + delay if delay else 0
            self.queue.add_run(Run([body], flags, expires, due=due))
            self.queue.drop_superseded()
            self.queue.trim_ring(1)

    @precondition(lambda self: len(self.members) < 4)
    @rule(
        room=st.integers(0, 5),
        priority=st.sampled_from([0, 0, 5]),
        selector=st.sampled_from([None, None, None, *SELECTORS[:3]]),
    )
    def attach(self, room, priority, selector) -> None:
        rebalance = self.queue.attributes.group_rebalance and self.members
        self.members.append(Member(self, room, priority, selector))
        if rebalance:
            self.owners.clear()

    @rule(limit=st.sampled_from([1, 3, 1000]))
    def dispatch(self, limit) -> None:
        before = sum(len(m.holds) for m in self.members)
        went = self.queue.dispatch(self.now, limit)
        assert went == sum(len(m.holds) for m in self.members) - before
        turns = 0
        while limit == 1000 and self.queue.searching:
            self.queue.dispatch(self.now, limit)
            turns += 1
            assert turns < 100, "a queue that never comes to rest"
        if limit == 1000:
            self.nobody_starves()

    def nobody_starves(self) -> None:
        selective = any(m.held.group is not None or m.barred for m in self.members)
        for message in self.queue.browse(0, 1000):
            if message.flags & EXPIRES and message.expires <= self.now:
                continue
            owner = self.owners.get(group_of(message)[0] or "")
            if owner is not None and owner.wants(message):
                assert not owner.left, "it has room, and its group waits"
            elif not selective and not self.pinned_without_room(message):
                assert not any(m.left for m in self.members), "somebody has room for it"

    def pinned_without_room(self, message) -> bool:
        """Whether its group waits for its consumer, which it got when no other one wanted it."""
        groups = self.queue.groups.groups
        holder = None if groups is None else groups.pinned.get(group_of(message)[0] or "")
        return holder is not None and holder.consumer.room() == 0

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, 3), room=st.integers(0, 8))
    def give_credit(self, which, room) -> None:
        self.members[which % len(self.members)].left = room
        self.dispatch(1000)

    def holding(self) -> bool:
        return any(m.holds for m in self.members)

    def pick(self, which, subset):
        holders = [m for m in self.members if m.holds]
        member = holders[which % len(holders)]
        chosen = [m for i, m in enumerate(member.holds) if i in subset] or member.holds[:]
        member.holds = [m for m in member.holds if m not in chosen]
        return member, chosen

    @precondition(holding)
    @rule(which=st.integers(0, 3), subset=SUBSET, how=st.sampled_from(["acknowledge", "kill"]))
    def settle(self, which, subset, how) -> None:
        member, chosen = self.pick(which, subset)
        getattr(self.queue, how)(member.held, chosen)

    @precondition(holding)
    @rule(which=st.integers(0, 3), subset=SUBSET, failed=st.booleans(), bar=st.booleans())
    def release(self, which, subset, failed, bar) -> None:
        member, chosen = self.pick(which, subset)
        if bar:
            member.held.bar(chosen)
            member.barred.update(m.seq for m in chosen)
        self.queue.release(member.held, chosen, failed=failed)

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, 3))
    def leave(self, which) -> None:
        member = self.members.pop(which % len(self.members))
        if member.holds:
            self.queue.release(member.held, member.holds)
        self.queue.detach(member.held)
        self.owners = {g: m for g, m in self.owners.items() if m is not member}

    @rule(by=st.integers(1, 12))
    def time_passes(self, by) -> None:
        self.now += by
        self.dispatch(1000)

    @rule(how=st.sampled_from(["purge", "expire", "take_out", "trim"]))
    def operate(self, how) -> None:
        if how == "expire":
            self.queue.expire(self.now)
        elif how == "take_out":
            seqs = set(range(0, self.queue.next_seq, 2))
            self.queue.take_out(seqs, Gone.REMOVED)
        else:
            getattr(self.queue, how)()

    @rule(ring=st.sampled_from([-1, -1, 2, 5]), rebalance=st.booleans())
    def change(self, ring, rebalance) -> None:
        self.queue.ring_size = ring
        attributes = self.queue.attributes
        self.queue.behave(type(attributes)(group_rebalance=rebalance))

    @invariant()
    def adds_up(self) -> None:
        self.queue.check_invariants()
        assert self.queue.delivering == sum(len(m.holds) for m in self.members)
        waiting = list(self.queue.holdings())
        held = [m for member in self.members for m in member.holds]
        assert self.queue.size_bytes == sum(len(m.body) for m in waiting + held)
        assert len({m.seq for m in waiting + held}) == len(waiting + held)
        assert self.queue.next_time == NEVER or self.queue.scheduled_count


GroupedMachine.TestCase.settings = settings(
    max_examples=examples(200), stateful_step_count=40, deadline=None, derandomize=True
)
TestGrouped = GroupedMachine.TestCase


def test_what_expired_in_a_lane_gives_its_place_to_another() -> None:
    """Found by the machine: a consumer with room for one waited behind what nobody would get."""
    one = GroupedMachine()
    one.start(last_value=False)
    one.send(closes=False, delay=None, groups=[b"b"], priority=0, ttl=None)
    one.dispatch(limit=1)
    one.send(closes=False, delay=None, groups=[b"a", b"a"], priority=0, ttl=20)
    one.send(closes=False, delay=None, groups=[b"a", b"a"], priority=4, ttl=None)
    one.time_passes(by=12)
    one.leave(which=0)
    one.time_passes(by=8)
    one.give_credit(room=1, which=0)
    assert [m.body for m in one.members[0].holds][-1] == b"bbb"


def test_what_was_purged_out_of_a_lane_gives_its_place_to_another() -> None:
    """Found by the machine: its place in the lane was still counted."""
    one = GroupedMachine()
    one.start(last_value=False)
    one.give_credit(room=0, which=0)
    one.send(closes=False, delay=None, groups=[b"a"] * 4, priority=0, ttl=None)
    one.time_passes(by=1)
    one.operate(how="purge")
    one.settle(how="acknowledge", subset=set(), which=0)
    one.send(closes=False, delay=None, groups=[b"a"], priority=0, ttl=None)
    one.give_credit(room=1, which=1)
    assert len(one.members[1].holds) == 1


def test_what_waits_for_one_without_room_is_for_one_that_comes() -> None:
    """Found by the machine: it had been put into a lane while nobody else could have it."""
    one = GroupedMachine()
    one.start(last_value=False)
    one.send(closes=False, delay=None, groups=[b"a", b"b"], priority=0, ttl=None)
    one.dispatch(limit=1)
    one.dispatch(limit=1)
    one.leave(which=0)
    one.attach(priority=0, room=1, selector=None)
    one.release(bar=True, failed=False, subset=set(), which=0)
    one.dispatch(limit=1)
    one.dispatch(limit=1)
    one.leave(which=0)
    one.attach(priority=0, room=0, selector=None)
    one.give_credit(room=1, which=1)
    assert [m.body for m in one.members[1].holds] == [b"bbb"]
