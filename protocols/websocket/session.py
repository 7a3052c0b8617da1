"""A WebSocket connection as the shell drives it, sans-IO: a request, and then a tunnel.

    shaking ──101──> a tunnel, which has the rest
       ├──it comes with a token──> proving ──good──> 101
       └──any other status, or no request in time──> refused ──nothing more comes──> closed

What comes of a refused request is read and dropped for a while: a socket that is closed with bytes
unread takes the answer along.

The tunnel is a session too; here stands the choice between the two. What the shell sets before the
tunnel is there is handed on to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus

from gateway.model.errors import STOPPING, Refusal
from gateway.model.peers import Cause, Ending, cause_of, ending_of
from gateway.model.ports import Authenticator
from gateway.model.principal import Principal
from protocols.transport.patience import never
from protocols.transport.speaking import PeerFacts, Session, Speaker, in_pieces
from protocols.websocket.bearer import has_form, token_of
from protocols.websocket.deflate import Deflate
from protocols.websocket.frames import Frames
from protocols.websocket.handshake import Accepted, judge
from protocols.websocket.inside import Inside
from protocols.websocket.limits import (
    CLOSE_SECONDS,
    FIRST_BYTES_SECONDS,
    HELD_BYTES_MAX,
    REFUSED_BYTES_MAX,
    WebSocketLimits,
)
from protocols.websocket.peer import WebSocketPeer
from protocols.websocket.requests import Head, Rejected, reject_for
from protocols.websocket.tunnel import Tunnel


class WebSocketSession:
    """Implements the shell's Session.

    Attributes:
        wake, spent: set by the shell before anything comes.
        seen: the connection as an operator sees it.
    """

    __slots__ = (
        "_authenticator",
        "_choked",
        "_deadline",
        "_dropped",
        "_facts",
        "_head",
        "_limits",
        "_out",
        "_proving",
        "_retick",
        "_speakers",
        "_tunnel",
        "_write_room",
        "seen",
        "spent",
        "wake",
    )

    def __init__(
        self,
        speakers: Mapping[str, Speaker],
        limits: WebSocketLimits,
        facts: PeerFacts,
        authenticator: Authenticator | None = None,
    ) -> None:
        """Begin; `speakers` build what is inside, by the name of its protocol.

        `authenticator` judges the token that a request comes with.
        """
        self._authenticator = authenticator
        self._proving: bytearray | None = None  # what comes while a token is judged
        self.seen = WebSocketPeer(self._dismissed)
        self.wake: Callable[[], None] = _nothing
        self.spent: Callable[[], bool] = never
        self._speakers = speakers
        self._limits = limits
        self._facts = facts
        self._head: Head | None = Head()  # until the request is judged
        self._tunnel: Tunnel | None = None  # once it is, and well
        self._out = b""
        self._deadline: float | None = None
        self._dropped: int | None = None  # bytes, while what comes counts for nothing
        self._write_room = True
        self._choked = self._retick = False

    @property
    def inner(self) -> Session | None:
        """The session inside, once it is known."""
        return None if self._tunnel is None else self._tunnel.inner

    # ---- the request

    def receive_data(self, data: bytes, now: float) -> None:
        """See the shell's Session."""
        if self._tunnel is not None:
            self._tunnel.receive_data(data, now)
            return
        if self._dropped is not None:
            self._drop(data)
            return
        if self._proving is not None:
            self._proving += data
            return
        if self._head is None or (found := self._head.receive(data)) is None:
            return
        if isinstance(found, Rejected):
            self._reject(found)
            return
        judged = judge(found, tuple(self._speakers), self._limits, self._facts)
        if isinstance(judged, Rejected):
            self._reject(judged)
            return
        token = None if self._authenticator is None else token_of(found, self._limits)
        if self._authenticator is None or token is None:
            self._accept(judged, self._head.rest, now)
        elif has_form(token):
            self._prove(self._authenticator, token, judged, now)
        else:
            self._reject(_not_let_in())

    def _prove(
        self, authenticator: Authenticator, token: str, accepted: Accepted, now: float
    ) -> None:
        """Have a token judged before anything is said; what comes meanwhile waits, bounded."""
        assert self._head is not None, "judged just now"
        self._proving = bytearray(self._head.rest)

        def judged(principal: Principal | None) -> None:
            waited, self._proving = self._proving, None
            if self._head is None or waited is None:
                return  # it was refused meanwhile, or is gone
            if principal is None:
                self._reject(_not_let_in(), Cause.LOGIN_REFUSED)
            else:
                self._facts = replace(self._facts, principal=principal)
                self._accept(accepted, bytes(waited), now)
            self.wake()

        authenticator.check("", token, judged)

    def _accept(self, accepted: Accepted, rest: bytes, now: float) -> None:
        """Say 101, and have the tunnel take what came behind the request."""
        self._head = None
        self._out = accepted.answer
        most, agreed = self._limits.message_bytes_max, accepted.deflate
        frames = Frames(most, None if agreed is None else Deflate(agreed, most))
        inside = Inside(self._speakers, self._facts, accepted.inside)
        self._tunnel = tunnel = Tunnel(
            frames, inside, self.seen, now, ping_seconds=self._limits.ping_seconds
        )
        tunnel.wake, tunnel.spent = self.wake, self.spent
        tunnel.write_room, tunnel.choked = self._write_room, self._choked
        tunnel.retick = True
        if rest:
            tunnel.receive_data(rest, now)

    def _reject(self, rejected: Rejected, cause: Cause = Cause.PROTOCOL_ERROR) -> None:
        if rejected.goes_on or (self._head is not None and self._head.rest):
            self._dropped = 0
            self._deadline = None
            self._retick = True  # the time to end it begins
        self._head = None
        self._out = rejected.answer
        self.seen.end(Ending(cause=cause, text=f"{rejected.status.value}: {rejected.told}"))

    def _drop(self, data: bytes) -> None:
        """Take more of a request that is refused, for nothing."""
        assert self._dropped is not None, "a request that is refused"
        self._dropped += len(data)
        if self._dropped > REFUSED_BYTES_MAX:
            self._dropped = None

    # ---- what the shell sets

    @property
    def write_room(self) -> bool:
        """See the shell's Session."""
        return self._write_room

    @write_room.setter
    def write_room(self, room: bool) -> None:
        self._write_room = room
        if self._tunnel is not None:
            self._tunnel.write_room = room

    @property
    def choked(self) -> bool:
        """See the shell's Session."""
        return self._choked

    @choked.setter
    def choked(self, choked: bool) -> None:
        self._choked = choked
        if self._tunnel is not None:
            self._tunnel.choked = choked

    @property
    def retick(self) -> bool:
        """See the shell's Session."""
        return self._retick if self._tunnel is None else self._tunnel.retick

    @retick.setter
    def retick(self, retick: bool) -> None:
        self._retick = retick
        if self._tunnel is not None:
            self._tunnel.retick = retick

    # ---- what the shell asks

    @property
    def closing(self) -> bool:
        """See the shell's Session."""
        if self._tunnel is None:
            return self._head is None and self._dropped is None
        return self._tunnel.closing

    @property
    def behind(self) -> bool:
        """See the shell's Session."""
        return self._tunnel is not None and self._tunnel.behind

    @property
    def paused_reading(self) -> bool:
        """See the shell's Session."""
        if self._proving is not None:
            return len(self._proving) > HELD_BYTES_MAX
        return self._tunnel is not None and self._tunnel.paused_reading

    def go_on(self, now: float) -> None:
        """See the shell's Session."""
        if self._tunnel is not None:
            self._tunnel.go_on(now)

    def data_to_send(self) -> bytes:
        """See the shell's Session."""
        out, self._out = self._out, b""
        if self._tunnel is None:
            return out
        return out + self._tunnel.data_to_send()

    def pieces(self, data: bytes, most: int) -> Sequence[bytes]:
        """See the shell's Session; nothing carries a WebSocket."""
        return in_pieces(data, most)

    def write_resumed(self) -> None:
        """See the shell's Session."""
        self._choked = False
        if self._tunnel is not None:
            self._tunnel.write_resumed()

    def tick(self, now: float) -> float | None:
        """See the shell's Session."""
        if self._tunnel is not None:
            return self._tunnel.tick(now)
        if self._head is None and self._dropped is None:
            return None
        if self._deadline is None:
            self._deadline = now + (FIRST_BYTES_SECONDS if self._head else CLOSE_SECONDS)
        if now < self._deadline:
            return self._deadline
        if self._head is None:
            self._dropped = None
            return None
        text = f"The request was not whole after {FIRST_BYTES_SECONDS:g} s."
        self._reject(Rejected(HTTPStatus.REQUEST_TIMEOUT, text), Cause.TIMED_OUT)
        return None

    # ---- the end

    def connection_lost(self, now: float) -> None:
        """See the shell's Session."""
        if self._tunnel is None:
            self._head = self._dropped = None
            self.seen.end(Ending(cause=Cause.CUT))
        else:
            self._tunnel.connection_lost(now)

    def stop(self, now: float) -> None:
        """See the shell's Session."""
        if self._tunnel is not None:
            self._tunnel.stop(now)
        elif self._head is not None:
            self._reject_for(STOPPING)
        else:
            self._dropped = None

    def _dismissed(self, refusal: Refusal) -> None:
        """An operator ends a connection that has nothing inside yet."""
        if self._tunnel is not None:
            self._tunnel.end(ending_of(refusal))
        elif self._head is not None:
            self._reject_for(refusal)
        self.wake()

    def _reject_for(self, refusal: Refusal) -> None:
        rejected = reject_for(HTTPStatus.SERVICE_UNAVAILABLE, refusal)
        self._reject(rejected, cause_of(refusal.code))


def _not_let_in() -> Rejected:
    text = "The token of this request is not taken; the gateway's log says why."
    challenge = (("WWW-Authenticate", 'Bearer realm="sluicegate", error="invalid_token"'),)
    return Rejected(HTTPStatus.UNAUTHORIZED, text, challenge)


def _nothing() -> None:
    """Stand for `wake` until the shell sets it."""
