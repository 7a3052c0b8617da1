"""The gateway against lists: sends, settlements, transactions, power cuts, and what is there after.

Two addresses: `q` with one queue, whose dead letters go to `dead` and expired ones to `late`, and
`t` with two subscriptions, one of them a ring. The model knows for each queue what waits, what each
consumer holds, and, batch by batch, what a cut would leave.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from gateway.addresses.settings import FullPolicy
from gateway.model.errors import RefusedError
from gateway.model.message import DURABLE, EXPIRES, MAYBE_SEEN, SCHEDULED
from gateway.model.run import Run
from gateway.model.stomp_form import unpack
from gateway.queues.queue import Gone
from tests.broker.core import ANYCAST, MULTICAST, Core, Taker, body_of, entry, flags_of, stomp
from tests.lanes import examples

QUEUES = ("q", "s.plain", "s.ring")
RING = 3
LIMIT = 8


def due_of(message) -> int:
    return message.due if message.flags & SCHEDULED else 0


def too_late(message, now: int) -> bool:
    """Whether a stored message comes due with a start, and has expired before."""
    return 0 < message[2] <= now and 0 < message[3] <= now


def through_ring(messages, ring: int, now: int):
    """Return what of stored messages (body, count, due, expires), by arrival, a start lets in."""
    messages = [m[:3] for m in messages if not too_late(m, now)]
    if ring < 0:
        return messages
    kept = [m for m in messages if not m[2]][-ring:]
    ripe = sorted((m for m in messages if 0 < m[2] <= now), key=lambda m: m[2])
    room = max(0, ring - len(kept))
    kept += ripe[len(ripe) - room :] if room < len(ripe) else ripe
    return [m for m in messages if m in kept or m[2] > now]


class GatewayMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from([FullPolicy.FAIL, FullPolicy.DROP, FullPolicy.BLOCK]),
        serialized=st.sampled_from([(), (ANYCAST,), (MULTICAST,), (ANYCAST, MULTICAST)]),
        strict=st.booleans(),
    )
    def start(self, policy, serialized, strict) -> None:
        self.policy = policy
        self.core = Core(
            entry(
                "#",
                max_size_messages=LIMIT,
                address_full_policy=policy,
                max_delivery_attempts=2,
            ),
            entry("q", dead_letter_address="dead", expiry_address="late", strict_dispatch=strict),
            entry("t", dead_letter_address="", expiry_address=""),
            entry("dead", max_size_messages=-1),
            entry("late", max_size_messages=-1),
            serialized=serialized,
        )
        core = self.core
        core.administration.create_queue("q", "q", ANYCAST)
        core.administration.create_queue("s.plain", "t", MULTICAST)
        core.administration.create_queue("s.ring", "t", MULTICAST, ring_size=RING)
        for name in ("dead", "late"):
            core.administration.create_queue(name, name, ANYCAST)
        core.sync()
        self.number = 0
        self.takers: list[tuple[str, Taker]] = []
        self.open = None
        self.sends = []
        self.acks = []
        self.sent_in_work = set()
        self.lags = False
        self.sent_meanwhile = set()

    # ---- the naive side: what is known of messages by their bodies

    def new_body(self) -> bytes:
        self.number += 1
        body = b"m%d" % self.number
        if self.lags:
            self.sent_meanwhile.add(body)
        return body

    def held(self, name: str) -> list[bytes]:
        return [body_of(m) for queue, taker in self.takers if queue == name for m in taker.got]

    def in_work(self, name: str) -> list[bytes]:
        return [body_of(m) for taker, m in self.acks if taker.hold.queue_name == name]

    def all_in(self, name: str) -> list[bytes]:
        waiting = [body_of(m) for m in self.waiting(name)]
        return waiting + self.held(name) + self.in_work(name)

    def waiting(self, name: str):
        queue = self.core.queue(name)
        return [*queue.holdings(), *queue.storing()]

    def address_of(self, name: str) -> str:
        return "q" if name == "q" else "t"

    def full(self, name: str) -> bool:
        names = ["q"] if name == "q" else ["s.plain", "s.ring"]
        return len({body for n in names for body in self.all_in(n)}) >= LIMIT

    # ---- steps

    @rule(
        to=st.sampled_from(["q", "q", "t"]),
        count=st.integers(1, 4),
        priority=st.sampled_from([4, 4, 9]),
        durable=st.booleans(),
        ttl=st.sampled_from([None, None, 30]),
        delay=st.sampled_from([None, None, 0, 5, 40]),
    )
    def send(self, to, count, priority, durable, ttl, delay) -> None:
        for _ in range(count):
            body = self.new_body()
            was_full = self.full(to)
            queues = ["q"] if to == "q" else ["s.plain", "s.ring"]
            before = {n: self.core.queue(n).added for n in queues}
            (taken,) = self.core.send(
                to, body, priority=priority, durable=durable, ttl=ttl, delay=delay
            )
            stored = self.policy is FullPolicy.BLOCK or not was_full
            assert taken == (stored or self.policy is FullPolicy.DROP)
            for name in queues:
                assert self.core.queue(name).added == before[name] + stored, name

    @precondition(lambda self: len(self.takers) < 4)
    @rule(name=st.sampled_from(QUEUES), room=st.integers(0, 4))
    def attach(self, name, room) -> None:
        address = self.address_of(name)
        self.takers.append((name, self.core.consume(f"{address}::{name}", room=room)))

    @precondition(lambda self: self.takers)
    @rule(which=st.integers(0, 3), room=st.integers(1, 4))
    def give_credit(self, which, room) -> None:
        _, taker = self.takers[which % len(self.takers)]
        taker.take(room)
        self.core.turn()

    def holder(self, which):
        holders = [pair for pair in self.takers if pair[1].got]
        return holders[which % len(holders)]

    def anybody_holds(self) -> bool:
        return any(taker.got for _, taker in self.takers)

    @precondition(anybody_holds)
    @rule(which=st.integers(0, 3), amount=st.integers(1, 3))
    def acknowledge(self, which, amount) -> None:
        _, taker = self.holder(which)
        durable = any(m.flags & DURABLE for m in taker.got[:amount])
        ticket = taker.ack(amount)
        assert ticket == (self.core.store.ticket if durable else 0)
        self.core.turn()

    @precondition(anybody_holds)
    @rule(which=st.integers(0, 3), amount=st.integers(1, 3), failed=st.booleans())
    def release(self, which, amount, failed) -> None:
        name, taker = self.holder(which)
        dying = [m for m in taker.got[:amount] if failed and m.delivery_count + 1 >= 2]
        bodies = [body_of(m) for m in dying]
        dead = self.core.queue("dead").added
        taker.release(amount, failed=failed)
        if name == "q":
            assert self.core.queue("dead").added == dead + len(dying)
            assert set(bodies) <= {body_of(m) for m in self.waiting("dead")}
        self.core.turn()

    @precondition(lambda self: self.takers)
    @rule(which=st.integers(0, 3), failed=st.booleans())
    def leave(self, which, failed) -> None:
        pair = self.takers[which % len(self.takers)]
        if not any(taker is pair[1] for taker, _ in self.acks):
            self.takers.remove(pair)
            pair[1].leave(failed=failed)
            self.core.turn()

    @rule(by=st.integers(1, 20))
    def time_passes(self, by) -> None:
        self.core.pass_time(by)
        for name in QUEUES:
            assert self.core.queue(name).next_time > self.core.now, "what is due waits"
        self.core.gateway.expire()
        self.core.turn()

    @rule(name=st.sampled_from(QUEUES), how=st.sampled_from(["pause", "resume", "purge"]))
    def operate(self, name, how) -> None:
        if how == "purge":
            waiting = len(self.waiting(name))
            killed = self.core.queue(name).killed
            assert self.core.queue(name).purge() == waiting
            assert self.core.queue(name).killed == killed + waiting
        else:
            self.core.administration.update_queue(name, paused=how == "pause")
        self.core.turn()

    # ---- transactions

    @rule(
        to=st.lists(st.sampled_from(["q", "t"]), min_size=1, max_size=4),
        delay=st.sampled_from([None, None, 7]),
    )
    def send_in_work(self, to, delay) -> None:
        if self.open is None:
            self.open = self.core.gateway.begin()
        for name in to:
            route, _ = self.core.producer(name)
            body = self.new_body()
            due = self.core.now + delay if delay else 0
            assert self.open.send(route, Run((stomp(body),), flags_of(), due=due)) is None
            self.sends.append((name, body))
            self.sent_in_work.add(body)

    @precondition(anybody_holds)
    @rule(which=st.integers(0, 3))
    def acknowledge_in_work(self, which) -> None:
        if self.open is None:
            self.open = self.core.gateway.begin()
        _, taker = self.holder(which)
        message = taker.got.pop(0)
        self.open.acknowledge(taker.hold, [message])
        self.acks.append((taker, message))

    @precondition(lambda self: self.open is not None)
    @rule()
    def commit(self) -> None:
        added = {n: self.core.queue(n).added for n in QUEUES}
        acknowledged = {n: self.core.queue(n).acknowledged for n in QUEUES}
        try:
            ticket = self.open.commit()
        except RefusedError:
            assert self.policy is FullPolicy.FAIL
            assert added == {n: self.core.queue(n).added for n in QUEUES}, "a part of a commit"
            assert acknowledged == {n: self.core.queue(n).acknowledged for n in QUEUES}
            self.rollback()
            return
        acks = Counter(taker.hold.queue_name for taker, _ in self.acks)
        for name in QUEUES:
            assert self.core.queue(name).acknowledged == acknowledged[name] + acks[name]
            sent = sum(to == self.address_of(name) for to, _ in self.sends)
            if self.policy is not FullPolicy.DROP:
                assert self.core.queue(name).added == added[name] + sent
        if self.policy is not FullPolicy.DROP and self.sends:
            assert ticket == self.core.store.ticket, "a commit in several batches"
        self.forget_work()

    @rule(seqs=st.sets(st.integers(1, 20)), name=st.sampled_from(QUEUES))
    def take_out(self, seqs, name) -> None:
        waiting = {m.seq for m in self.waiting(name)}
        taken = self.core.queue(name).take_out(seqs, Gone.REMOVED)
        assert {m.seq for m in taken} == seqs & waiting
        self.core.turn()

    @precondition(lambda self: self.open is not None)
    @rule()
    def rollback(self) -> None:
        added = {n: self.core.queue(n).added for n in QUEUES}
        self.open.rollback()
        assert added == {n: self.core.queue(n).added for n in QUEUES}
        self.forget_work()

    def forget_work(self) -> None:
        self.open = None
        self.sends, self.acks = [], []
        self.core.turn()

    # ---- the disk

    @rule()
    def sync(self) -> None:
        self.core.sync()

    @rule(clean=st.booleans())
    def restart(self, clean) -> None:
        """Everything durable is there again, in order; only what was synced counts."""
        for _, taker in self.takers if clean else ():
            if not any(t is taker for t, _ in self.acks):
                taker.leave()
        if clean:
            self.core.sync()
        self.core.store.open = []
        expected = self.after_cut(self.core.store.synced)
        rings = {n: self.core.queue(n).ring_size for n in QUEUES}
        self.core.restart(clean=clean)
        self.takers, self.open, self.sends, self.acks = [], None, [], []
        self.lags = False
        gone = [m for held in expected.values() for m in held if too_late(m, self.core.now)]
        for name, messages in expected.items():
            queue = self.core.queue(name)
            if name == "late" and gone:
                bodies = [m[0] for m in messages + gone]
                assert sorted(body_of(m) for m in queue.holdings()) == sorted(bodies)
                continue
            found = sorted(queue.holdings(), key=lambda m: m.seq)
            shown = [(body_of(m), m.delivery_count, due_of(m)) for m in found]
            assert shown == through_ring(messages, rings.get(name, -1), self.core.now)
            # A count that was recorded says itself that the message was seen.
            assert clean or all(m.flags & MAYBE_SEEN for m in found)
            assert all(m.flags & DURABLE for m in found)
            assert queue.added == len(messages)

    def after_cut(self, batches: int):
        definitions, held, _ = self.core.store.kept(batches)
        names = {d.queue_id: d.name for key, d in definitions.items() if key[0] == "queue"}
        assert set(names.values()) == {*QUEUES, "dead", "late"}
        return {
            name: [
                (
                    unpack(body)[1],
                    flags >> 16,
                    due if flags & SCHEDULED else 0,
                    expires if flags & EXPIRES else 0,
                )
                for _, (body, flags, expires, due) in sorted(held.get(number, {}).items())
            ]
            for number, name in names.items()
        }

    # ---- what always holds

    @invariant()
    def figures_are_right(self) -> None:
        core = self.core
        core.check()
        for name in QUEUES:
            queue = core.queue(name)
            assert queue.delivering == len(self.held(name)) + len(self.in_work(name))
            assert len(set(self.all_in(name))) == queue.message_count, "a message twice"
        for address, names in (("q", ["q"]), ("t", ["s.plain", "s.ring"])):
            distinct = {body for n in names for body in self.all_in(n)}
            assert core.gateway.addresses[address].messages == len(distinct), address
        assert not any(core.queue(n).touched for n in QUEUES), "a queue was forgotten by its turn"

    @rule()
    def the_disk_lags_or_keeps_up(self) -> None:
        self.lags = not self.lags
        self.core.gateway.pressure.holds.store_first(self.lags)

    @invariant()
    def queues_wait_for_a_disk_that_lags_and_no_other(self) -> None:
        for name in QUEUES:
            queue = self.core.queue(name)
            assert self.lags or queue.serialized or not queue.stores_first

    @invariant()
    def what_must_be_on_disk_first_is(self) -> None:
        """Nobody holds, or is next to get, what a serialized queue or a commit waits for."""
        core = self.core
        synced = {n: {b for b, *_ in held} for n, held in self.after_cut(core.store.synced).items()}
        for name in (*QUEUES, "dead", "late"):
            queue = core.queue(name)
            seen = [m for q, t in self.takers if q == name for m in t.got]
            seen += [m for t, m in self.acks if t.hold.queue_name == name]
            for message in filter(lambda m: m.flags & DURABLE, seen + list(queue.holdings())):
                body = body_of(message)
                first = body in self.sent_in_work or body in self.sent_meanwhile
                if queue.serialized or (name in QUEUES and first):
                    assert body in synced[name], "seen before it was on disk"

    @invariant()
    def the_store_has_what_is_durable(self) -> None:
        core = self.core
        before = len(core.store.batches)
        core.store.batches.append(core.store.open)
        kept = {n: sorted(b for b, *_ in found) for n, found in self.after_cut(before + 1).items()}
        core.store.batches.pop()
        for name in (*QUEUES, "dead", "late"):
            holding = [m for q, t in self.takers if q == name for m in t.got]
            holding += [m for t, m in self.acks if t.hold.queue_name == name]
            durable = [m for m in holding + self.waiting(name) if m.flags & DURABLE]
            assert kept[name] == sorted(body_of(m) for m in durable), name


GatewayMachine.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=50, deadline=None, derandomize=True
)
TestGatewayAgainstLists = GatewayMachine.TestCase
