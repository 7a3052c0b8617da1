"""A WebSocket behind its handshake, sans-IO: frames around the session of what is inside.

    state     input    next
    OPEN      CLOSE    CLOSING   we said Close: what is inside has ended, or a frame is wrong
    OPEN      END      CLOSED    the peer said Close, and we answered
    CLOSING   END      CLOSED    the peer said Close, or did not in its time

    bytes -> Frames -> payload -> session inside -> its bytes -> Frames -> bytes

The session inside is told of every read, also of one that had a Pong alone or half a frame: that is
life too, since a browser answers a Ping for a tab whose timers hardly run. It is also told of the
little that comes while it wants to hear nothing, at a full address: it keeps and counts that, and
the Pings between are answered. In CLOSING nothing that
comes counts but Close: a socket that is closed with bytes unread would take our last ones along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from wsproto.frame_protocol import CloseReason

from gateway.model.errors import STOPPING
from gateway.model.peers import Cause, Ending, ending_of
from protocols.transport.patience import never
from protocols.transport.speaking import Session, in_pieces
from protocols.websocket.closing import Closing, closing_for, say
from protocols.websocket.frames import Frames
from protocols.websocket.inside import PIECE_BYTES_MAX, Inside
from protocols.websocket.limits import (
    CLOSE_SECONDS,
    CONTROLS_A_SECOND,
    CONTROLS_MAX,
    FIRST_BYTES_SECONDS,
    HELD_BYTES_MAX,
)
from protocols.websocket.peer import WebSocketPeer


class State(Enum):
    """Where a connection stands; see the module text."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class Input(Enum):
    """What can happen to it."""

    CLOSE = "close"
    END = "end"


_NEXT: Final = {
    (State.OPEN, Input.CLOSE): State.CLOSING,
    (State.OPEN, Input.END): State.CLOSED,
    (State.CLOSING, Input.END): State.CLOSED,
}


class Tunnel:
    """Implements the shell's Session.

    Attributes:
        state: see the module text.
        inner: the session inside, once there is one.
        seen: the connection as an operator sees it.
    """

    __slots__ = (
        "_choked",
        "_controls",
        "_counted",
        "_deadline",
        "_frames",
        "_heard",
        "_held",
        "_inside",
        "_out",
        "_ping_seconds",
        "_retick",
        "_write_room",
        "inner",
        "seen",
        "spent",
        "state",
        "wake",
    )

    def __init__(
        self,
        frames: Frames,
        inside: Inside,
        seen: WebSocketPeer,
        now: float,
        *,
        ping_seconds: float,
    ) -> None:
        self.state = State.OPEN
        self.inner: Session | None = None
        self.seen = seen
        self.wake: Callable[[], None] = _nothing
        self.spent: Callable[[], bool] = never
        self._frames = frames
        self._inside = inside
        self._out: list[bytes] = []
        # Of the first bytes, then of the answer to our Close; None where a tick is to set it.
        self._deadline: float | None = now + FIRST_BYTES_SECONDS
        self._heard = now  # when something came last, or was asked for
        self._ping_seconds = ping_seconds
        self._controls = 0.0  # of what came lately
        self._counted = now  # when they were
        self._held = 0  # bytes that what is inside was given while it wanted no more
        self._write_room = True
        self._choked = self._retick = False
        frames.binary_only = inside.binary_only

    # ---- what the shell sets, for the session inside as well

    @property
    def write_room(self) -> bool:
        """See the shell's Session."""
        return self._write_room

    @write_room.setter
    def write_room(self, room: bool) -> None:
        self._write_room = room
        if self.inner is not None:
            self.inner.write_room = room

    @property
    def choked(self) -> bool:
        """See the shell's Session."""
        return self._choked

    @choked.setter
    def choked(self, choked: bool) -> None:
        self._choked = choked
        if self.inner is not None:
            self.inner.choked = choked

    @property
    def retick(self) -> bool:
        """See the shell's Session."""
        return self._retick or (self.inner is not None and self.inner.retick)

    @retick.setter
    def retick(self, retick: bool) -> None:
        self._retick = retick
        if self.inner is not None:
            self.inner.retick = retick

    # ---- what the shell asks

    @property
    def closing(self) -> bool:
        """See the shell's Session."""
        return self.state is State.CLOSED

    @property
    def behind(self) -> bool:
        """See the shell's Session."""
        if self.state is not State.OPEN:
            return self.state is State.CLOSING and self._frames.behind
        return self._frames.behind or (self.inner is not None and self.inner.behind)

    @property
    def paused_reading(self) -> bool:
        """See the shell's Session.

        While what is inside wants no more, Pings and a Close are still listened for, as long as
        what else comes is little, but for a login, which is short. After our Close the peer's is,
        whatever held up what was inside.
        """
        inner = self.inner
        if self.state is not State.OPEN or inner is None or not inner.paused_reading:
            return False
        return not self.seen.known or self._held >= HELD_BYTES_MAX

    # ---- bytes in

    def receive_data(self, data: bytes, now: float) -> None:
        """See the shell's Session."""
        if self.state is State.OPEN:
            self._hear(data, now)
        elif self.state is State.CLOSING:
            self._hear_close(data)

    def _hear(self, data: bytes, now: float) -> None:
        """Pass on the payload of what came, then act on what ended it."""
        frames = self._frames
        self._heard = now
        payload = frames.read(data, self.spent)
        if frames.controls:
            self._count_controls(now)
        if self.inner is None and payload:
            payload = self._look_inside(payload)
        if self.inner is not None:
            self._held = self._held + len(payload) if self.inner.paused_reading else 0
            self.inner.receive_data(payload, now)
        if self.state is not State.OPEN:
            return
        if self.inner is not None and self.inner.closing and frames.closed is None:
            return  # it came first, and has its own Close
        if frames.failed is not None:
            self._take_out()
            self._say_close(frames.failed, Cause.PROTOCOL_ERROR)
            self.connection_lost(now)
        elif frames.closed is not None:
            self._answer_close(frames.closed, now)

    def _count_controls(self, now: float) -> None:
        """See to it that a peer has its answers, and not all the time of others."""
        forgotten = CONTROLS_A_SECOND * (now - self._counted)
        self._counted = now
        self._controls = max(0.0, self._controls - forgotten) + self._frames.controls
        self._frames.controls = 0
        if self._controls > CONTROLS_MAX and self._frames.failed is None:
            text = f"More than {CONTROLS_A_SECOND:g} Ping and Pong frames came in a second."
            self._frames.failed = Closing(CloseReason.POLICY_VIOLATION.value, text)

    def _hear_close(self, data: bytes) -> None:
        """We have said Close: the peer's is all that counts."""
        self._frames.read(data, self.spent)
        if self._frames.closed is not None:
            self._step(Input.END)

    def _look_inside(self, payload: bytes) -> bytes:
        """Build the session inside, once it is known; returns what it is given to begin with."""
        found = self._inside.find(payload, text=self._frames.any_text)
        if isinstance(found, Closing):
            self._say_close(found, Cause.PROTOCOL_ERROR)
        if found is None or isinstance(found, Closing):
            return b""
        found.wake, found.spent = self.wake, self.spent
        found.write_room, found.choked = self._write_room, self._choked
        self._frames.binary_only = self._inside.binary_only
        self.inner, self._retick = found, True  # its times begin
        self.seen.show(found.seen)
        first, self._inside.first = self._inside.first, b""
        return first

    def go_on(self, now: float) -> None:
        """See the shell's Session."""
        inner = self.inner
        if inner is not None and inner.behind:
            inner.go_on(now)
        held = inner is not None and inner.behind
        if self.state is State.CLOSING and self._frames.behind:
            self._hear_close(b"")
        elif self.state is State.OPEN and self._frames.behind and not held:
            self._hear(b"", now)

    # ---- bytes out

    def data_to_send(self) -> bytes:
        """See the shell's Session."""
        if self.state is State.OPEN:
            self._take_out()
            inner = self.inner
            if inner is not None and inner.closing:
                ending = inner.seen.ending or Ending(cause=Cause.CLIENT)
                self._say_close(closing_for(ending), ending.cause)
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        return data

    def _take_out(self) -> None:
        """Put what the session inside has to say behind what WebSocket has."""
        if self._frames.ping is not None:
            self._out.append(self._frames.pong())
        if self.inner is not None:
            data = self.inner.data_to_send()
            if data:
                pieces = self.inner.pieces(data, PIECE_BYTES_MAX)
                self._out += self._frames.messages(data, pieces)

    def pieces(self, data: bytes, most: int) -> Sequence[bytes]:
        """See the shell's Session; nothing carries a WebSocket."""
        return in_pieces(data, most)

    def write_resumed(self) -> None:
        """See the shell's Session."""
        self._choked = False
        if self.inner is not None:
            self.inner.write_resumed()

    # ---- time

    def tick(self, now: float) -> float | None:
        """See the shell's Session."""
        if self.state is State.CLOSED:
            return None
        if self.state is State.OPEN and self.inner is not None:
            following, asked = self.inner.tick(now), self._ask(now)
            return min((at for at in (following, asked) if at is not None), default=None)
        if self._deadline is None:
            self._deadline = now + CLOSE_SECONDS
        if now < self._deadline:
            return self._deadline
        if self.state is State.OPEN:
            text = f"Nothing that tells a protocol came for {FIRST_BYTES_SECONDS:g} s."
            self.end(Ending(cause=Cause.TIMED_OUT, text=text))
        else:
            self._step(Input.END)
        return None

    def _ask(self, now: float) -> float | None:
        """Ask a peer that was silent for long for a sign of life; returns when to do so next."""
        if not self._ping_seconds:
            return None
        if now >= self._heard + self._ping_seconds:
            if self._write_room:
                self._out.append(self._frames.ask())
            self._heard = now
        return self._heard + self._ping_seconds

    # ---- the end

    def _answer_close(self, said: Closing, now: float) -> None:
        """The peer said Close: so do we, with its code [RFC 6455 5.5.1]."""
        self._take_out()
        self._out.append(self._frames.close(Closing(said.code, "")))
        self.seen.end(Ending(cause=Cause.CLIENT, text=said.shown))
        self._step(Input.END)
        self.connection_lost(now)

    def _say_close(self, closing: Closing, cause: Cause) -> None:
        self._out.append(self._frames.close(closing))
        self._frames.only_close()
        self.seen.end(Ending(cause=cause, text=closing.reason))
        self._deadline = None
        self._retick = True  # the time for the peer's answer begins
        self._step(Input.CLOSE)

    def end(self, ending: Ending) -> None:
        """End a connection with nothing inside, which would say why: the Close has to."""
        if self.state is State.OPEN:
            self._say_close(say(ending, ending.text), ending.cause)

    def connection_lost(self, now: float) -> None:
        """See the shell's Session; also when WebSocket has ended: what was delivered goes back."""
        if self.inner is None:
            self.seen.end(Ending(cause=Cause.CUT))
        else:
            self.inner.connection_lost(now)

    def stop(self, now: float) -> None:
        """See the shell's Session."""
        if self.inner is None:
            self.end(ending_of(STOPPING))
        else:
            self.inner.stop(now)

    def _step(self, what: Input) -> None:
        following = _NEXT.get((self.state, what))
        assert following is not None, f"{what.value} in state {self.state.value}"
        self.state = following


def _nothing() -> None:
    """Stand for `wake` until the shell sets it."""
