"""Last-value and non-destructive queues in a gateway: clients, limits, pages, power cuts.

Two queues on addresses of their own: `v` keeps last values, `n` keeps what consumers are shown,
with or without last values. Bodies are `a12`: a key and a number that ascends.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.model.message import DURABLE, SCHEDULED
from gateway.model.run import Run
from gateway.model.stomp_form import pack, unpack
from tests.broker.core import ANYCAST, Core, body_of, entry, flags_of
from tests.lanes import examples

KEY = "_AMQ_LVQ_NAME"
NAMES = ("v", "n")


class KindsMachine(RuleBasedStateMachine):
    limit = -1

    @initialize(ring=st.sampled_from([-1, -1, 3]), values=st.booleans(), strict=st.booleans())
    def start(self, ring, values, strict) -> None:
        self.core = Core(
            entry(
                "#",
                max_size_messages=self.limit,
                page_size_bytes=1024,
                dead_letter_address="",
                max_delivery_attempts=3,
                strict_dispatch=strict,
            )
        )
        make = self.core.administration.create_queue
        make("v", "v", ANYCAST, ring_size=ring, attributes={"last_value": True})
        attributes = {"non_destructive": True, "last_value": values}
        make("n", "n", ANYCAST, ring_size=ring, attributes=attributes)
        self.keyed = {"v"} | ({"n"} if values else set())
        self.core.sync()
        self.number = 0
        self.floor = 3  # batches that no power cut takes: the queues are defined in them
        self.takers = []

    def stored(self, key: str) -> bytes:
        self.number += 1
        headers = [(KEY, key)] if key != "-" else []
        return pack("a", b"%s%d" % (key.encode(), self.number), persistent=True, headers=headers)

    # ---- steps

    @rule(
        name=st.sampled_from(NAMES),
        keys=st.lists(st.sampled_from("aabbc-"), min_size=1, max_size=5),
        durable=st.booleans(),
        delay=st.sampled_from([None, None, None, 5]),
        together=st.booleans(),
    )
    def send(self, name, keys, durable, delay, together) -> None:
        route, _ = self.core.producer(name)
        bodies = [self.stored(key) for key in keys]
        for run in [bodies] if together else [[body] for body in bodies]:
            due = self.core.now + delay if delay else 0
            assert route.send(Run(run, flags_of(durable=durable), 0, due)).refusal is None
            self.core.turn()
        route.close()

    @rule(name=st.sampled_from(NAMES), keys=st.lists(st.sampled_from("ab"), max_size=4))
    def commit(self, name, keys) -> None:
        work = self.core.gateway.begin()
        route, _ = self.core.producer(name)
        for key in keys:
            assert work.send(route, Run((self.stored(key),), flags_of())) is None
        for taker in self.takers[:1]:
            if taker.got:
                work.acknowledge(taker.hold, [taker.got.pop(0)])
        work.commit()
        route.close()
        self.core.turn()

    @precondition(lambda self: len(self.takers) < 4)
    @rule(name=st.sampled_from(NAMES), room=st.integers(0, 6))
    def attach(self, name, room) -> None:
        self.takers.append(self.core.consume(name, room=room))

    @precondition(lambda self: self.takers)
    @rule(which=st.integers(0, 3), room=st.integers(1, 6))
    def give_credit(self, which, room) -> None:
        self.takers[which % len(self.takers)].take(room)
        self.core.turn()

    @precondition(lambda self: any(t.got for t in self.takers))
    @rule(
        which=st.integers(0, 3),
        amount=st.integers(1, 4),
        how=st.sampled_from(["ack", "ack", "release", "fail", "reject"]),
    )
    def settle(self, which, amount, how) -> None:
        holders = [t for t in self.takers if t.got]
        taker = holders[which % len(holders)]
        if how == "fail":
            taker.release(amount, failed=True)
        else:
            getattr(taker, how)(amount)
        self.core.turn()

    @precondition(lambda self: self.takers)
    @rule(which=st.integers(0, 3))
    def leave(self, which) -> None:
        self.takers.pop(which % len(self.takers)).leave()
        self.core.turn()

    @rule(by=st.integers(1, 10))
    def time_passes(self, by) -> None:
        self.core.pass_time(by)

    @rule(name=st.sampled_from(NAMES))
    def purge(self, name) -> None:
        self.core.queue(name).purge()
        self.core.turn()

    @rule()
    def sync(self) -> None:
        self.core.sync()
        self.core.sync()  # what was read back from pages has been let go of
        if self.core.gateway.addresses["v"].paging is None:
            self.values_are_last("v")

    @rule(clean=st.booleans(), cut=st.integers(0, 3))
    def restart(self, clean, cut) -> None:
        """Whatever batch the power went after, a key has one value: the last that was kept."""
        core = self.core
        if clean:
            for taker in self.takers:
                taker.leave()
            core.sync()
        core.store.open = []
        batches = core.store.synced if clean else max(self.floor, core.store.synced - cut)
        # A start lets go of page files that nothing names: what it found stays on disk.
        self.floor = batches
        expected = self.last_kept(batches) if self.limit < 0 else None
        core.restart(clean=clean, batches=batches)
        self.takers = []
        core.sync()
        if expected is not None:
            for name in self.keyed:
                waiting = {body_of(m) for m in core.queue(name).holdings()}
                assert expected[name] <= waiting, name

    def last_kept(self, batches: int) -> dict[str, set[bytes]]:
        """Return by queue the last values of keys that have nothing scheduled, without rings."""
        definitions, held, _ = self.core.store.kept(batches)
        names = {d.queue_id: d.name for key, d in definitions.items() if key[0] == "queue"}
        found: dict[str, set[bytes]] = {name: set() for name in NAMES}
        for number, name in names.items():
            if name not in self.keyed or self.core.queue(name).ring_size >= 0:
                continue
            last: dict[bytes, bytes | None] = {}
            for _, (stored, flags, *_) in sorted(held.get(number, {}).items()):
                body = unpack(stored)[1]
                if flags & SCHEDULED or last.get(body[:1], b"") is None:
                    last[body[:1]] = None
                elif body[:1] != b"-":
                    last[body[:1]] = body
            found[name] = {body for body in last.values() if body is not None}
        return found

    # ---- what always holds

    def values_are_last(self, name: str) -> None:
        keys = [body[:1] for body in self.core.waiting(name) if body[:1] != b"-"]
        assert len(keys) == len(set(keys)), "two values of one key wait"

    @invariant()
    def figures_are_right(self) -> None:
        core = self.core
        core.check()
        queue = core.queue("v")
        held = [m for t in self.takers for m in t.got if t.hold.queue_name == "v"]
        assert queue.delivering == len(held)
        assert core.queue("n").acknowledged == 0
        for name in NAMES:
            queue = core.queue(name)
            if queue.ring_size >= 0:
                assert queue.ready_count <= queue.ring_size
            if name in self.keyed and core.gateway.addresses[name].paging is None:
                self.values_are_last(name)

    @invariant()
    def the_store_has_what_is_durable(self) -> None:
        core = self.core
        if self.limit >= 0:
            return
        core.store.batches.append(core.store.open)
        definitions, held, _ = core.store.kept(len(core.store.batches))
        core.store.batches.pop()
        for key, definition in definitions.items():
            if key[0] != "queue":
                continue
            queue = core.queue(definition.name)
            there = [*queue.holdings(), *queue.storing()]
            if definition.name == "v":
                there += [m for t in self.takers for m in t.got if t.hold.queue_name == "v"]
            durable = sorted(m.seq for m in there if m.flags & DURABLE)
            assert sorted(held.get(definition.queue_id, {})) == durable, definition.name


KindsMachine.TestCase.settings = settings(
    max_examples=examples(120), stateful_step_count=40, deadline=None, derandomize=True
)
TestKinds = KindsMachine.TestCase


class PagedKindsMachine(KindsMachine):
    """The same with addresses that page from the fourth message on."""

    limit = 4


PagedKindsMachine.TestCase.settings = settings(
    max_examples=examples(80), stateful_step_count=40, deadline=None, derandomize=True
)
TestPagedKinds = PagedKindsMachine.TestCase


def test_a_purge_ends_deliveries_of_what_was_shown_from_its_page() -> None:
    machine = PagedKindsMachine()
    machine.start(ring=-1, values=False, strict=False)
    machine.commit(keys=["a"] * 3, name="n")
    machine.attach(name="n", room=0)
    machine.give_credit(room=5, which=0)
    machine.commit(keys=["a"] * 2, name="n")
    machine.sync()
    queue = machine.core.queue("n")
    assert queue.delivering
    machine.purge(name="n")
    machine.figures_are_right()
    assert (queue.message_count, queue.delivering) == (0, 0)
