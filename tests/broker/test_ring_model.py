"""A ring through the whole core against a list: of what comes back the newest stay.

Consumers take, settle, give back in any order and pieces, in transactions too; after each step what
waits is what the list says, and the store has the same.
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

from gateway.addresses.settings import RingVictim
from tests.broker.core import ANYCAST, Core, entry
from tests.lanes import examples

SIZES = st.sampled_from([1, 2, 3])
WHICH = st.integers(0, 3)


class RingMachine(RuleBasedStateMachine):
    @initialize(size=SIZES, victim=st.sampled_from(list(RingVictim)))
    def start(self, size, victim) -> None:
        self.core = Core(entry("#", ring_victim=victim, max_delivery_attempts=-1))
        self.core.administration.create_queue("q", "q", ANYCAST, ring_size=size)
        self.size, self.victim = size, victim
        self.takers = []
        self.retired = []  # (taker, message) of the open transaction
        self.work = None
        self.waiting = []  # (seq, priority)
        self.next_seq = self.core.queue("q").next_seq
        self.attach(room=4)

    def held(self):
        in_work = [m for _, m in self.retired]
        return [m.seq for taker in self.takers for m in taker.got] + [m.seq for m in in_work]

    def settle_down(self) -> None:
        """Let the queue hand out, and take that from the list; who gets what is not asked."""
        self.core.turn()
        held = set(self.held())
        self.waiting = [one for one in self.waiting if one[0] not in held]

    def come_back(self, seqs) -> None:
        """The rule, from the description: newest first, by what is there that is newer."""
        stay = []
        for seq in sorted(seqs, reverse=True):
            held = [s for s in self.held() if s not in seqs]
            there = held + stay + [s for s, _ in self.waiting]
            stay += [seq] if sum(s > seq for s in there) < self.size else []
        room = {m.seq: m.priority for m in self.known}
        self.waiting += [(seq, room[seq]) for seq in stay]
        for _ in stay:
            if len(self.waiting) > self.size:
                self.waiting.remove(min(self.waiting))

    @rule(count=st.integers(1, 4), priority=st.sampled_from([4, 4, 9, 0]))
    def send(self, count, priority) -> None:
        for _ in range(count):
            seq, self.next_seq = self.next_seq, self.next_seq + 1
            self.waiting.append((seq, priority))
            if len(self.waiting) > self.size:
                if self.victim is RingVictim.OLDEST:
                    self.waiting.remove(min(self.waiting))
                else:
                    self.waiting.remove(min(self.waiting, key=lambda one: (-one[1], one[0])))
            self.core.send("q", b"%d" % seq, priority=priority)
            self.settle_down()

    @precondition(lambda self: len(self.takers) < 3)
    @rule(room=st.integers(0, 5))
    def attach(self, room) -> None:
        self.takers.append(self.core.consume("q", room=room))
        self.settle_down()

    @rule(which=WHICH, room=st.integers(1, 3))
    def give_credit(self, which, room) -> None:
        self.takers[which % len(self.takers)].take(room)
        self.settle_down()

    def holder(self, which):
        holders = [taker for taker in self.takers if taker.got]
        return holders[which % len(holders)]

    @precondition(lambda self: any(taker.got for taker in self.takers))
    @rule(which=WHICH, picked=st.sets(st.integers(0, 4), min_size=1), failed=st.booleans())
    def release(self, which, picked, failed) -> None:
        taker = self.holder(which)
        back = [m for at, m in enumerate(taker.got) if at in picked] or taker.got[:1]
        self.known = back
        self.come_back([m.seq for m in back])
        taker.got = [m for m in taker.got if m not in back]
        taker.hold.release(back, failed=failed)
        self.same()
        self.settle_down()

    @precondition(lambda self: any(taker.got for taker in self.takers))
    @rule(which=WHICH, at=st.integers(0, 4))
    def acknowledge(self, which, at) -> None:
        taker = self.holder(which)
        message = taker.got.pop(at % len(taker.got))
        taker.hold.acknowledge([message])
        self.settle_down()

    @precondition(lambda self: any(taker.got for taker in self.takers))
    @rule(which=WHICH, at=st.integers(0, 4))
    def retire(self, which, at) -> None:
        if self.work is None:
            self.work = self.core.gateway.begin()
        taker = self.holder(which)
        message = taker.got.pop(at % len(taker.got))
        self.work.acknowledge(taker.hold, [message])
        self.retired.append((taker, message))

    @precondition(lambda self: self.work is not None)
    @rule(commit=st.booleans())
    def end(self, commit) -> None:
        work, self.work = self.work, None
        if commit:
            self.retired = []
            work.commit()
        else:
            self.known = [m for _, m in self.retired]
            self.come_back([m.seq for m in self.known])
            self.retired = []
            work.rollback()
            self.same()
        self.settle_down()

    @precondition(lambda self: len(self.takers) > 1)
    @rule(which=WHICH, failed=st.booleans())
    def leave(self, which, failed) -> None:
        taker = self.takers[which % len(self.takers)]
        if any(one is taker for one, _ in self.retired):
            return
        self.known = list(taker.got)
        self.come_back([m.seq for m in taker.got])
        taker.leave(failed=failed)
        self.takers.remove(taker)
        self.settle_down()

    @rule(paused=st.booleans())
    def pause(self, paused) -> None:
        self.core.administration.update_queue("q", paused=paused)
        self.settle_down()

    def same(self) -> None:
        found = {m.seq for m in self.core.queue("q").browse(0, 100)}
        assert found == {seq for seq, _ in self.waiting}, "not the newest stay"

    @invariant()
    def nothing_else_waits(self) -> None:
        self.core.check()
        self.same()
        assert self.core.queue("q").delivering == len(self.held())


RingMachine.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None, derandomize=True
)
TestRingAgainstAList = RingMachine.TestCase
