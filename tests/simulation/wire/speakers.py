"""What the simulated gateway speaks: both protocols, and WebSocket around them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.broker import Gateway
from gateway.listening.speakers import TAB_TTL_MS
from gateway.model.ports import Authenticator
from gateway.model.principal import By, Principal
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.limits import AmqpLimits
from protocols.convert import amqp_to_stomp
from protocols.stomp.limits import StompLimits
from protocols.stomp.session import StompSession
from protocols.transport.patience import Patience
from protocols.transport.sniff import Guess
from protocols.transport.speaking import PeerFacts, Speaker
from protocols.websocket.limits import WebSocketLimits
from protocols.websocket.session import WebSocketSession
from tests.simulation.wire.plan import Web

if TYPE_CHECKING:
    from tests.simulation.wire.world import WireWorld

#: What passes on the clock of turns between two looks at it, in seconds.
_TOOK = (0.0, 0.0, 0.0005, 0.003)


class Login:
    """Whoever knows the password comes in; the answer takes a while."""

    def __init__(self, later: Callable[[Callable[[], None]], None], *, users: bool) -> None:
        self._later = later
        self.open = not users

    def held(self, user: str) -> float:
        return 0.0

    def proves(self, user: str) -> bool:
        return bool(user) and not self.open

    def anybody(self, user: str | None) -> Principal:
        return Principal(user)

    def check(self, user: str, password: str, done: Callable[[Principal | None], None]) -> None:
        good = (user, password) == ("user", "pass")
        self._later(lambda: done(Principal(user, by=By.PASSWORD) if good else None))


def plain(
    world: WireWorld, gateway: Gateway, ttl_floor_ms: int = 0, *, apart: bool = False
) -> tuple[Speaker, ...]:
    """Return AMQP and STOMP; no STOMP client's silence ends it before the floor.

    `apart` is what a carrier of messages wants of STOMP: each frame for itself.
    """
    wire, unfinished = world.wire, world.unfinished
    login: Authenticator = Login(world.later.append, users=wire.users)
    anonymous: Authenticator = Login(world.later.append, users=False)
    amqp = AmqpLimits(
        max_frame_size=wire.frame,
        amqp_credits=wire.credits,
        amqp_low_credits=wire.credits // 3,
        unfinished=unfinished,
    )
    stomp = StompLimits(unfinished=unfinished, output_bytes_max=wire.pressure)
    ttl_ms, least_ms = max(stomp.ttl_ms, ttl_floor_ms), max(stomp.ttl_min_ms, ttl_floor_ms)
    stomp = replace(stomp, ttl_ms=ttl_ms, ttl_min_ms=least_ms, frames_apart=apart)

    def speak_amqp(peer: PeerFacts) -> AmqpConnection:
        return AmqpConnection(gateway, anonymous, amqp, peer)

    def speak_stomp(peer: PeerFacts) -> StompSession:
        return StompSession(gateway, login, stomp, peer.name, amqp_to_stomp)

    return (
        Speaker(guess=Guess.AMQP.value, build=speak_amqp),
        Speaker(guess=Guess.STOMP.value, build=speak_stomp),
    )


def over_websocket(world: WireWorld, gateway: Gateway, web: Web) -> Speaker:
    """Return what carries both over WebSocket."""
    carried = {one.guess: one for one in plain(world, gateway, TAB_TTL_MS, apart=True)}
    limits = WebSocketLimits(message_bytes_max=web.limit)

    def speak_websocket(peer: PeerFacts) -> WebSocketSession:
        return WebSocketSession(carried, limits, peer)

    return Speaker(guess=Guess.HTTP.value, build=speak_websocket, name="WS")


def patience(world: WireWorld, web: Web) -> Patience | None:
    """Return turns that end early, where the plan has such."""
    if not web.turns:
        return None
    chance = random.Random(f"wire turns/{world.seed}")
    passed = itertools.accumulate(iter(lambda: chance.choice(_TOOK), None))
    return Patience(world.later.append, passed.__next__)
