"""What one seed is about: limits, policies, sizes and weights, so that no two seeds are alike.

Most seeds page: their limits are a few messages, their pages hold four or so, and who takes is
slower than who sends. Segments and batches are as small, so that each boundary is met often.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from gateway.addresses.match import SettingsEntry
from gateway.addresses.settings import FullPolicy, PageFullPolicy, RingVictim
from gateway.broker import Limits
from gateway.model.address import RoutingType
from storage.compaction import CompactionRule

DROPS = ("drop",)
#: Weights with which consumers take and settle at once.
HURRIED = {
    "send": 9.0,
    "take": 9.0,
    "ack": 14.0,
    "reject": 7.0,
    "turn": 14.0,
    "pause": 0.0,
    "time": 0.3,
}


@dataclass(slots=True)
class Plan:
    """See the module text; `addresses` are the names that are sent to."""

    entries: list[SettingsEntry]
    limits: Limits
    addresses: list[str]
    segment_bytes: int
    body_bytes: int
    batch_records: int
    block_messages: int
    kept_blocks: int
    rule: CompactionRule
    lives: int
    steps: list[int]
    power: float
    faults: bool
    rot: bool
    cancels: bool
    amqp: float
    durable: float
    expiring: float
    later: float
    redelivery_delay: int
    max_attempts: int
    weights: dict[str, float] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    serialized: list[RoutingType] = field(default_factory=list)
    #: limit and calm of a disk that lags, in seconds: so short that it changes often
    lag: tuple[float, float] | None = None
    #: seconds that a batch lingers, and how often somebody waits for the disk all the same
    linger: float = 0.0
    awaited: float = 0.0


def draw(chance: random.Random, operations: list[str]) -> Plan:
    """Draw a plan."""
    backlog = chance.random() < 0.75
    delay = chance.choice([0, 0, 40])
    attempts = chance.choice([-1, 2, 3, 10])
    plan = Plan(
        entries=[],
        limits=Limits(global_max_messages=chance.choice([-1, -1, -1, 12])),
        addresses=_addresses(chance),
        segment_bytes=chance.choice([2048, 4096, 16384]),
        body_bytes=chance.choice([10, 40, 40, 250]),
        batch_records=chance.choice([1, 2, 5, 4096]),
        block_messages=chance.choice([1, 3, 4, 1024]),
        kept_blocks=chance.choice([1, 2]),
        rule=CompactionRule(min_files=chance.choice([0, 2, 3]), percentage=chance.choice([30, 70])),
        lives=chance.randint(2, 4),
        steps=[10, 40, 80] if chance.random() < 0.7 else [0, 2, 5, 20],
        power=chance.choice([0.4, 0.6, 0.9]),
        faults=chance.random() < 0.25,
        rot=chance.random() < 0.15,
        cancels=chance.random() < 0.9,
        amqp=chance.choice([0.0, 0.3, 1.0]),
        durable=chance.choice([0.5, 0.9, 1.0, 1.0]),
        expiring=chance.choice([0.0, 0.0, 0.2]),
        later=chance.choice([0.0, 0.0, 0.2]),
        redelivery_delay=delay,
        max_attempts=attempts,
    )
    plan.entries = _entries(chance, plan)
    plan.weights = _weights(chance, operations, backlog=backlog)
    plan.serialized = [routing for routing in RoutingType if chance.random() < 0.3]
    if chance.random() < 0.5:
        plan.lag = chance.choice([0.001, 0.03, 0.1]), chance.choice([0.001, 0.001, 0.02])
    if chance.random() < 0.3:
        _hurry(chance, plan)
    return plan


def _hurry(chance: random.Random, plan: Plan) -> None:
    """Have consumers overtake the disk: nothing pages, and what is sent is taken and settled."""
    _overtake(plan)
    if chance.random() < 0.7:
        plan.lag = None
    plan.weights.update({"step": 1.0, "answer": 1.0, "settle": 0.3})


def _overtake(plan: Plan) -> None:
    for entry in plan.entries:
        for name in ("max_size_messages", "max_size_bytes"):
            entry.values.pop(name, None)  # type: ignore[attr-defined]
    plan.limits = Limits()
    plan.cancels, plan.serialized = True, []
    plan.durable = 1.0
    plan.weights.update(HURRIED)


def draw_linger(chance: random.Random, plan: Plan) -> None:
    """Have batches linger in some seeds: consumers take all at once, and the disk keeps up mostly.

    `chance` is apart from that of the plan: seeds without stay what they were.
    """
    if chance.random() < 0.2:
        _overtake(plan)
        plan.weights.update({"send": 14.0, "step": 9.0, "answer": 9.0, "settle": 0.5})
        plan.weights.update({"transact": 1.0, "view": 0.2, "errand": 0.2, "delete_queue": 0.1})
        plan.weights["follow"] = chance.choice([2.0, 8.0])
        plan.steps = [20, 40, 80]
        plan.linger = chance.choice([0.01, 0.1, 0.25])
        plan.awaited = chance.choice([0.0, 0.05, 0.3])


def _addresses(chance: random.Random) -> list[str]:
    names = ["q", "q2", "topic", "ring", "fail", "drop", "block", "plain"]
    weights = [6, 3, 4, 2, 1, 1, 1, 1]
    chosen: list[str] = []
    for _ in range(chance.randint(1, 4)):
        name = chance.choices(names, weights)[0]
        if name not in chosen:
            chosen.append(name)
    return chosen


def _entries(chance: random.Random, plan: Plan) -> list[SettingsEntry]:
    common: dict[str, object] = {
        "page_size_bytes": chance.choice([1024, 1024, 2048]),
        "max_read_page_messages": chance.choice([-1, -1, 3, 10]),
        "max_read_page_bytes": chance.choice([-1, 600, 1 << 20]),
        "max_delivery_attempts": plan.max_attempts,
        "redelivery_delay": plan.redelivery_delay,
        "ring_victim": chance.choice(list(RingVictim)),
    }
    if chance.random() < 0.3:
        common["prefetch_page_messages"] = chance.choice([1, 4])
    if chance.random() < 0.8:
        common["max_size_messages"] = chance.choice([0, 1, 3, 8])
    else:
        common["max_size_bytes"] = chance.choice([0, 300, 2000])
    limited = dict(common)
    if chance.random() < 0.4:
        limited["page_limit_messages"] = chance.choice([5, 20])
    if chance.random() < 0.3:
        limited["page_limit_bytes"] = chance.choice([1024, 4096])
    limited["page_full_policy"] = PageFullPolicy.FAIL
    most = {"max_size_messages": chance.choice([1, 4])}
    return [
        # What has nowhere else to go is never refused.
        SettingsEntry(match="#", values=common),
        SettingsEntry(match="q2", values=limited),
        SettingsEntry(match="topic", values=limited if chance.random() < 0.3 else common),
        SettingsEntry(match="ring", values={"default_ring_size": chance.choice([1, 2, 5])}),
        SettingsEntry(match="fail", values={**most, "address_full_policy": FullPolicy.FAIL}),
        SettingsEntry(
            match="drop",
            values={**most, "address_full_policy": FullPolicy.DROP}
            if chance.random() < 0.5
            else {"page_limit_messages": 4, "page_full_policy": PageFullPolicy.DROP},
        ),
        SettingsEntry(match="block", values={**most, "address_full_policy": FullPolicy.BLOCK}),
        SettingsEntry(match="plain", values={"max_size_messages": -1, "max_size_bytes": -1}),
    ]


def _weights(chance: random.Random, operations: list[str], *, backlog: bool) -> dict[str, float]:
    weights = dict.fromkeys(operations, 1.0)
    weights.update(
        send=7.0, take=5.0, ack=6.0, turn=4.0, step=6.0, answer=6.0, fetch=6.0, settle=1.5
    )
    weights.update(fetch=6.0, transact=3.0, purge=0.2, delete_queue=0.2, unsubscribe=0.3, pause=0.2)
    # Most of these let all come to rest, where little is to be found but what they look for.
    weights.update(view=1.5, errand=0.5, listing=0.3, count=0.1)
    if backlog:
        weights.update(send=12.0, take=3.0)
    for name in operations:
        if chance.random() < 0.25:
            weights[name] *= chance.choice([0.0, 0.2, 4.0])
    return weights
