"""What one seed of the network is about: the store's plan, and who talks how over what lines."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.simulation.core.plan import Plan, draw

ADDRESSES = ("q", "q2", "topic", "fail", "block", "plain")
_WEIGHTS = (6, 4, 3, 1, 2, 2)
#: How many of the seeds where it fits have clients over WebSocket.
WEB_SEEDS = 0.35
#: What happens there besides.
WEB_WEIGHTS = {"say_close": 0.3, "idle": 0.08}


@dataclass(slots=True)
class Web:
    """How those talk that come over WebSocket.

    Attributes:
        share: how many of the clients do.
        limit: bytes that a message may have; the clients' have no more.
        messages: sizes in which what a client says becomes messages.
        frames: sizes of their frames.
        unfinished: how many messages have their end only with what is said next.
        text: how many STOMP clients send text.
        controls: how often a Ping or a Pong follows a frame.
        eager: how many send frames behind the request, and do not wait for the answer.
        quiet: how many STOMP clients have timers that hardly run, and live of Pongs.
        closes: how many say Close before they end; `answers`: how many answer one.
        turns: connections have so little time that frames wait for another turn.
        answers_max: bytes of answers that a client may leave unread.
    """

    share: float
    limit: int
    messages: list[int]
    frames: list[int]
    unfinished: float
    text: float
    controls: float
    eager: float
    quiet: float
    closes: float
    answers: float
    turns: bool
    answers_max: int


@dataclass(slots=True)
class Wire:
    """See the module text.

    Attributes:
        amqp: how many of the clients speak AMQP.
        clients: how many there are at most.
        capacity: bytes that a line holds in each direction.
        chunk: bytes that arrive at once, at most.
        large: how many messages are large.
        halves: how many transfers are sent in two parts.
        users: whether clients have to log in.
        pressure: bytes of unsent output that hold deliveries back.
        tls: all of it happens over TLS.
        web: some of it happens over WebSocket.
    """

    amqp: float
    clients: int
    capacity: int
    chunk: int
    large: float
    halves: float
    users: bool
    pressure: int
    frame: int
    credits: int
    tls: bool = False
    web: Web | None = None
    weights: dict[str, float] = field(default_factory=dict)


def draw_store(chance: random.Random) -> Plan:
    """Draw what the core and the disk are like."""
    plan = draw(chance, [])
    plan.rot = False
    plan.lives = chance.randint(1, 3)
    plan.steps = [150, 400, 800] if chance.random() < 0.8 else [0, 5, 20, 60]
    plan.addresses = []
    for _ in range(chance.randint(1, 3)):
        name = chance.choices(ADDRESSES, _WEIGHTS)[0]
        if name not in plan.addresses:
            plan.addresses.append(name)
    return plan


def draw_tls(chance: random.Random, wire: Wire) -> bool:
    """Draw whether TLS is spoken, where its handshake is not most of what a life has time for."""
    return wire.chunk >= 50 and chance.random() < 0.4


def draw_web(chance: random.Random, wire: Wire, *, always: bool) -> Web | None:
    """Draw how WebSocket is spoken, where its handshake is not most of what a life has time for."""
    if not always and (wire.chunk < 50 or chance.random() >= WEB_SEEDS):
        return None
    wire.weights |= WEB_WEIGHTS
    return Web(
        share=chance.choice([0.5, 0.8, 1.0]),
        limit=chance.choice([2048, 10_000, 1 << 20]),
        messages=chance.choice([[1, 10, 100], [100, 1000, 5000], [1 << 20]]),
        frames=chance.choice([[0, 1, 10, 100], [125, 126, 127, 1000], [1 << 20]]),
        unfinished=chance.choice([0.0, 0.1, 0.5]),
        text=chance.choice([0.0, 0.5, 1.0]),
        controls=chance.choice([0.0, 0.05, 0.3]),
        eager=chance.choice([0.0, 0.2]),
        quiet=chance.choice([0.0, 0.5]),
        closes=chance.choice([0.2, 0.8]),
        answers=chance.choice([0.5, 1.0]),
        turns=chance.random() < 0.5,
        answers_max=chance.choice([200, 1 << 20]),
    )


def draw_wire(chance: random.Random, operations: list[str]) -> Wire:
    """Draw what the network and its clients are like."""
    wire = Wire(
        amqp=chance.choice([0.0, 0.5, 0.5, 1.0]),
        clients=chance.choice([2, 4, 4, 8]),
        capacity=chance.choice([64, 700, 4096, 65536]),
        chunk=chance.choice([2, 50, 500, 65536]),
        large=chance.choice([0.0, 0.0, 0.1, 0.5]),
        halves=chance.choice([0.0, 0.2]),
        users=chance.random() < 0.2,
        pressure=chance.choice([500, 4000, 1 << 20]),
        frame=chance.choice([512, 2048, 131072]),
        credits=chance.choice([1, 3, 10, 1000]),
    )
    wire.weights = dict.fromkeys(operations, 1.0)
    wire.weights.update(network=24.0, turn=5.0, send=6.0, settle=6.0, subscribe=2.0, demand=2.0)
    wire.weights.update(connect=2.0, step=6.0, answer=6.0, fetch=3.0, rest=0.5, transact=3.0)
    wire.weights.update(cut=0.3, half_close=0.2, stall=0.5, leave=0.3, unsubscribe=0.3, time=0.5)
    for name in operations:
        if chance.random() < 0.25 and name != "network":
            wire.weights[name] *= chance.choice([0.0, 0.2, 4.0])
    return wire
