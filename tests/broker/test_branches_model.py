"""Diverts, wildcards, duplicate ids and disabled queues against lists, with cuts of the power.

Three addresses that both kinds of queues may have, and two wildcard addresses over two of them. The
model walks the way of each message by the rules, and knows what the last sync made durable.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.addresses.settings import FullPolicy
from gateway.model.definitions import DivertDefinition, DivertRouting
from gateway.model.errors import RefusedError
from gateway.model.message import IDENTIFIED
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from tests.broker.core import ANYCAST, MULTICAST, Core, entry, flags_of
from tests.lanes import examples

ADDRESSES = ("o.a", "o.b", "x")
WILD = {"o.#": ("o.a", "o.b"), "o.*": ("o.a", "o.b")}
QUEUES = {
    "qa": ("o.a", ANYCAST),
    "sa": ("o.a", MULTICAST),
    "qb": ("o.b", ANYCAST),
    "sb": ("o.b", MULTICAST),
    "qx": ("x", ANYCAST),
    "all": ("o.#", MULTICAST),
    "star": ("o.*", MULTICAST),
    "any": ("o.*", ANYCAST),
}
LIMIT = 6
IDS = 3
HIGH = "JMSPriority > 5"
DIVERTS = {
    one.name: one
    for one in (
        DivertDefinition(name="1", address="o.a", forwarding=("x",)),
        DivertDefinition(name="2", address="o.a", forwarding=("o.b",), exclusive=True, filter=HIGH),
        DivertDefinition(name="3", address="o.#", forwarding=("x", "o.a"), filter=HIGH),
        DivertDefinition(name="4", address="x", forwarding=("o.b",), routing=DivertRouting.PASS),
        DivertDefinition(
            name="5",
            address="o.b",
            forwarding=("x",),
            exclusive=True,
            routing=DivertRouting.ANYCAST,
        ),
    )
}


@dataclass
class Known:
    """What there is, as the model has it."""

    held: dict[str, list[bytes]] = field(default_factory=lambda: {name: [] for name in QUEUES})
    ids: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in ADDRESSES})
    diverts: list[str] = field(default_factory=list)
    disabled: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Sent:
    body: bytes
    priority: int
    routing: object
    name: str | None  # the duplicate id


class BranchesMachine(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from([FullPolicy.FAIL, FullPolicy.DROP, FullPolicy.BLOCK]))
    def start(self, policy) -> None:
        self.policy = policy
        self.core = core = Core(
            entry("#", auto_create_queues=False, id_cache_size=IDS),
            entry("x", max_size_messages=LIMIT, address_full_policy=policy),
        )
        for name in (*ADDRESSES, *WILD):
            core.directory.make_address(name, frozenset({ANYCAST, MULTICAST}))
        for name, (address, kind) in QUEUES.items():
            core.administration.create_queue(name, address, kind)
        core.sync()
        self.known = Known()
        self.durable = deepcopy(self.known)
        self.number = 0
        self.work = None
        self.in_work: list[tuple[str, Sent]] = []
        self.route: dict[tuple[str, object], object] = {}

    # ---- the model

    def way(self, known: Known, address: str, sent: Sent, passed=frozenset()):
        """Yield (address, routing, queues) of each address that gets the message, in order."""
        here = [
            DIVERTS[name]
            for name in known.diverts
            if name not in passed
            and address in (DIVERTS[name].address, *WILD.get(DIVERTS[name].address, ()))
            and (not DIVERTS[name].filter or sent.priority > 5)
        ]
        taken = [divert for divert in here if divert.exclusive]
        if not taken:
            yield address, self.queues_of(known, address, sent)
            for wild, addresses in WILD.items():
                if address in addresses:
                    yield wild, self.queues_of(known, wild, sent)
            taken = here
        for divert in taken:
            kind = {
                DivertRouting.STRIP: None,
                DivertRouting.PASS: sent.routing,
                DivertRouting.ANYCAST: ANYCAST,
            }[divert.routing]
            for target in divert.forwarding:
                copy = replace(sent, routing=kind)
                yield from self.way(known, target, copy, passed | {divert.name})

    @staticmethod
    def queues_of(known: Known, address: str, sent: Sent) -> list[str]:
        return [
            name
            for name, (where, kind) in QUEUES.items()
            if where == address and sent.routing in (None, kind) and name not in known.disabled
        ]

    def take(self, known: Known, address: str, sent: Sent) -> bool:
        """Do what a send does; returns whether it is refused, which does nothing."""
        steps = list(self.way(known, address, sent))
        there = len(known.held["qx"])
        gets: list[str] = []
        for where, queues in steps:
            if where == "x" and there >= LIMIT and self.policy is not FullPolicy.BLOCK:
                if self.policy is FullPolicy.FAIL:
                    return False
                continue
            there += where == "x" and bool(queues)
            gets += queues
        for name in gets:
            known.held[name].append(sent.body)
        return True

    def send_in_model(self, address: str, sent: Sent, before: set[str]) -> bool:
        """As `take` with ids; `before`: known when the run began, or come with it."""
        ids = self.known.ids[address]
        if sent.name is not None and sent.name in before:
            return True
        dropped = self.policy is FullPolicy.DROP and self.drops(address, sent)
        if not self.take(self.known, address, sent):
            return False
        if sent.name is not None and not dropped:
            ids.append(sent.name)
            del ids[:-IDS]
            before.add(sent.name)
        return True

    def drops(self, address: str, sent: Sent) -> bool:
        """Whether the sender's own address drops it."""
        return address == "x" and len(self.known.held["qx"]) >= LIMIT

    # ---- steps

    def new(self, priority, routing, name) -> Sent:
        self.number += 1
        return Sent(b"m%d" % self.number, priority, routing, name)

    def producer(self, address: str, routing):
        key = address, routing
        if key not in self.route:
            self.route[key] = self.core.producer(address, routing)[0]
        return self.route[key]

    @staticmethod
    def form(sent: Sent) -> bytes:
        more = [] if sent.name is None else [("_AMQ_DUPL_ID", sent.name)]
        return pack("a", sent.body, persistent=True, headers=more)

    @staticmethod
    def flags(sent: Sent) -> int:
        return flags_of(sent.priority) | (0 if sent.name is None else IDENTIFIED)

    @rule(
        address=st.sampled_from(ADDRESSES),
        priority=st.sampled_from([4, 9]),
        routing=st.sampled_from([None, None, ANYCAST, MULTICAST]),
        names=st.lists(st.sampled_from(["i", "j", "k", "l", "n"]), max_size=4)
        | st.integers(1, 3).map(lambda n: [None] * n),
    )
    def send(self, address, priority, routing, names) -> None:
        run = [self.new(priority, routing, name) for name in names]
        if not run:
            return
        route = self.producer(address, routing)
        outcome = route.send(Run([self.form(s) for s in run], self.flags(run[0])))
        taken = len(run) if outcome.refusal is None else outcome.taken
        expected = 0
        # A run is judged by what was known before it, but where some of it may be dropped.
        singly = self.policy is FullPolicy.DROP and address == "x"
        before = set(self.known.ids[address])
        for sent in run:
            if singly:
                before = set(self.known.ids[address])
            if not self.send_in_model(address, sent, before):
                break
            expected += 1
        assert taken == expected
        self.core.turn()

    @rule(
        address=st.sampled_from(ADDRESSES),
        priority=st.sampled_from([4, 9]),
        name=st.sampled_from([None, "i", "j", "k"]),
    )
    def send_in_work(self, address, priority, name) -> None:
        if self.work is None:
            self.work = self.core.gateway.begin()
        sent = self.new(priority, None, name)
        route = self.producer(address, None)
        assert self.work.send(route, Run((self.form(sent),), self.flags(sent))) is None
        self.in_work.append((address, sent))

    @precondition(lambda self: self.work is not None)
    @rule()
    def commit(self) -> None:
        work, sends = self.work, self.in_work
        self.work, self.in_work = None, []
        before = deepcopy(self.known)
        named = [(address, sent.name) for address, sent in sends if sent.name is not None]
        fine = len(set(named)) == len(named) and not any(
            name in before.ids[address] for address, name in named
        )
        if fine:
            fine = all(self.send_in_work_model(address, sent) for address, sent in sends)
        if fine:
            stores = self.known.held != before.held or self.known.ids != before.ids
            assert work.commit() == (self.core.store.ticket if stores else 0)
        else:
            self.known = before
            with pytest.raises(RefusedError):
                work.commit()
            work.rollback()
        self.core.turn()

    def send_in_work_model(self, address: str, sent: Sent) -> bool:
        if not self.take(self.known, address, sent):
            return False
        if sent.name is not None:
            self.known.ids[address].append(sent.name)
            del self.known.ids[address][:-IDS]
        return True

    @rule(name=st.sampled_from(sorted(QUEUES)))
    def consume(self, name) -> None:
        address, _ = QUEUES[name]
        self.sync()  # what a transaction sent is handed out when it is on disk
        taker = self.core.consume(f"{address}::{name}", room=1000)
        assert sorted(taker.bodies()) == sorted(self.known.held[name])
        taker.ack()
        taker.leave()
        self.known.held[name] = []
        self.core.turn()

    @rule(name=st.sampled_from(sorted(DIVERTS)))
    def toggle_divert(self, name) -> None:
        if name in self.known.diverts:
            self.core.gateway.branches.delete(name)
            self.known.diverts.remove(name)
        else:
            self.core.gateway.branches.create(DIVERTS[name])
            self.known.diverts.append(name)

    @rule(name=st.sampled_from(sorted(QUEUES)))
    def toggle_queue(self, name) -> None:
        on = name in self.known.disabled
        self.core.administration.update_queue(name, attributes={"enabled": on})
        (self.known.disabled.discard if on else self.known.disabled.add)(name)

    @rule()
    def sync(self) -> None:
        self.core.sync()
        self.durable = deepcopy(self.known)

    @rule(clean=st.booleans())
    def restart(self, clean) -> None:
        if clean:
            self.sync()
        self.core.store.open = []
        self.core.restart(clean=clean)
        self.work, self.in_work, self.route = None, [], {}
        self.known = deepcopy(self.durable)

    # ---- what always holds

    @invariant()
    def all_is_where_it_belongs(self) -> None:
        core = self.core
        core.check()
        for name in QUEUES:
            queue = core.queue(name)
            held = [m.body for m in (*queue.holdings(), *queue.storing())]
            shown = Counter(body.partition(b"\n\n")[2] for body in held)
            assert shown == Counter(self.known.held[name]), name
        for address in ADDRESSES:
            assert core.gateway.routing.duplicates.count(address) == len(self.known.ids[address])
        for producer in self.route.values():
            assert (producer.blocked() is None) or self.policy is not FullPolicy.DROP


BranchesMachine.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None, derandomize=True
)
TestBranchesAgainstLists = BranchesMachine.TestCase
