"""A session that stands for what is inside: it keeps what it is told, and says what it is asked to.

It repeats each line that it gets; `bye` ends it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from gateway.model.errors import Refusal
from gateway.model.peers import Cause, Ending, PeerState
from gateway.model.principal import ANYBODY
from protocols.transport.speaking import PeerFacts, Speaker
from protocols.websocket.limits import WebSocketLimits
from protocols.websocket.session import WebSocketSession

FACTS = PeerFacts(address="192.0.2.1", loopback=False, tls=False, name="c1")


class InnerPeer:
    """What an operator sees of it."""

    def __init__(self) -> None:
        self.on_login: Callable[[], None] = lambda: None
        self.ending: Ending | None = None
        self.dismissed: list[Refusal] = []
        self.principal = ANYBODY

    def state(self) -> PeerState:
        return PeerState(
            protocol="STOMP",
            version="1.2",
            user="u",
            client_id="",
            product="",
            product_version="",
            messages_in=1,
            messages_out=2,
        )

    def sessions(self) -> list[object]:
        return ["session"]

    def consumers(self) -> list[object]:
        return ["consumer"]

    def addresses(self) -> list[str]:
        return ["a"]

    def dismiss(self, refusal: Refusal) -> None:
        self.dismissed.append(refusal)

    def end_consumer(self, number: int, refusal: Refusal) -> bool:
        return number == 1


class Inner:
    """See the module text."""

    def __init__(self) -> None:
        self.seen = InnerPeer()
        self.came = b""
        self.times: list[float] = []
        self.out = b""
        self.wake: Callable[[], None] = lambda: None
        self.spent: Callable[[], bool] = lambda: False
        self.write_room = True
        self.choked = self.retick = self.closing = False
        self.behind = self.paused_reading = False
        self.ends: list[int] = []  # of pieces, where its output goes in some
        self.lost = self.stopped = self.resumed = self.most = 0
        self.deadline: float | None = None

    def receive_data(self, data: bytes, now: float) -> None:
        self.came += data
        self.times.append(now)
        self.out += data
        if b"bye" in self.came:
            self.end(Cause.CLIENT)

    def end(self, cause: Cause, **more: Any) -> None:
        self.closing = True
        self.seen.ending = Ending(cause=cause, text="for people", **more)

    def go_on(self, now: float) -> None:
        self.behind = False

    def data_to_send(self) -> bytes:
        out, self.out = self.out, b""
        return out

    def pieces(self, data: bytes, most: int) -> list[bytes]:
        self.most = most
        ends, self.ends = [*self.ends, len(data)], []
        return [data[at:end] for at, end in itertools.pairwise([0, *ends])]

    def tick(self, now: float) -> float | None:
        return self.deadline

    def connection_lost(self, now: float) -> None:
        self.lost += 1

    def write_resumed(self) -> None:
        self.choked = False
        self.resumed += 1

    def stop(self, now: float) -> None:
        self.stopped += 1
        self.end(Cause.STOPPING)


class Echo(Inner):
    """It repeats what comes, whatever that is, and may not be told anything behind its end."""

    def __init__(self) -> None:
        super().__init__()
        self._came = bytearray()

    @property
    def all(self) -> bytes:
        """Return all that came."""
        return bytes(self._came)

    def receive_data(self, data: bytes, now: float) -> None:
        assert not self.lost, "told something behind its end"
        self._came += data
        self.out += data


class Built:
    """A WebSocket session, and what it has built inside: (protocol, session)."""

    def __init__(
        self,
        *,
        spoken: tuple[str, ...] = ("AMQP", "STOMP"),
        limits: WebSocketLimits | None = None,
        facts: PeerFacts = FACTS,
        kind: type[Inner] = Inner,
    ) -> None:
        self.made: list[tuple[str, Inner]] = []

        def speaker(name: str) -> Speaker:
            def build(peer: PeerFacts) -> Inner:
                self.made.append((name, kind()))
                return self.made[-1][1]

            return Speaker(guess=name, build=build)  # type: ignore[arg-type]

        speakers = {name: speaker(name) for name in spoken}
        self.session = WebSocketSession(speakers, limits or WebSocketLimits(), facts)

    @property
    def inner(self) -> Inner:
        ((_, inner),) = self.made
        return inner
