"""The times that the peer of an open connection must keep: to be heard, to end a frame, to settle.

    silent for longer than its time to live             ERROR
    a frame under way for longer than its bytes allow   ERROR [T16]
    a subscription that settles nothing of its own      ERROR

Silence that we caused is not held against the peer: once it is read from again, its time begins
anew. The watch is told when bytes come and when the peer was not read from; it knows no session and
no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from gateway.model.errors import Code, Refusal
from gateway.model.peers import Cause, ConsumerState, Ending, ending_of
from protocols.stomp.heartbeat import Agreement, Pulse
from protocols.stomp.limits import StompLimits
from protocols.stuck import Stuck

#: How often a connection is looked at when nothing is due sooner, in seconds.
_LOOK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A reason to end the connection: what the peer is told, and what the log says."""

    refusal: Refusal
    ending: Ending


class Watch:
    """That of one connection, from its first bytes on."""

    __slots__ = ("_excused", "_limits", "_partial_since", "_pulse", "_stuck")

    def __init__(self, limits: StompLimits) -> None:
        self._limits = limits
        self._stuck = Stuck(limits.stuck_seconds)
        self._pulse: Pulse | None = None
        self._partial_since: float | None = None
        self._excused = False  # the peer was not read from since the last look

    def opened(self, beats: Agreement, now: float) -> None:
        """The peer was let in, and has agreed on heart-beats."""
        assert self._pulse is None, "nothing is agreed on twice"
        self._pulse = Pulse(beats, now)

    def came(self, now: float, left: int, most: int) -> None:
        """Bytes came, and `left` are unfinished; `most` would be if they ended no frame. Hot."""
        if self._pulse is not None:
            self._pulse.heard(now)
        if not left:
            self._partial_since = None
        elif self._partial_since is None or left != most:
            self._partial_since = now

    def went_on(self, now: float, left: int) -> None:
        """What had to wait was parsed, and `left` bytes of it are unfinished."""
        self._partial_since = now if left else None

    def excuse(self) -> None:
        """The peer was not read from, or could not be heard."""
        self._excused = True

    def look(
        self, now: float, size: int, consumers: Callable[[], Iterable[ConsumerState]]
    ) -> Overdue | None:
        """Return what is overdue; `size` bytes of a frame are here."""
        pulse = self._pulse
        assert pulse is not None, "before the login there is another limit"
        if self._excused:
            self._excused = False
            pulse.heard(now)
            if self._partial_since is not None:
                self._partial_since = now
            return None
        if pulse.silent(now):
            text = f"Nothing was received for {pulse.ttl_ms} ms, which is this connection's limit."
            refusal = Refusal(code=Code.BAD_FRAME, text=text)
            return Overdue(refusal=refusal, ending=Ending(cause=Cause.TIMED_OUT))
        return self._slow_frame(now, size) or self._stuck_consumer(now, consumers)

    def beat_due(self, now: float) -> bool:
        """Whether a beat is to be sent now [protocols.stomp.heartbeat.Pulse.beat_due]."""
        assert self._pulse is not None, "beats are agreed on with the login"
        return self._pulse.beat_due(now)

    def deadline(self, now: float) -> float:
        """Return when to look again."""
        assert self._pulse is not None, "before the login there is another limit"
        look = min(_LOOK_SECONDS, self._limits.frame_seconds, self._stuck.step or _LOOK_SECONDS)
        return min(self._pulse.deadline(), now + look)

    def _slow_frame(self, now: float, size: int) -> Overdue | None:
        """Judge a frame that is under way [T16]."""
        if self._partial_since is None:
            return None
        limits = self._limits
        allowed = limits.frame_seconds + size / limits.frame_bytes_per_second
        if now - self._partial_since < allowed:
            return None
        text = (
            f"A frame of {size} bytes so far is not complete after {allowed:.0f} s; the limit is "
            f"{limits.frame_seconds:g} s (unfinished-timeout) and 1 s for every "
            f"{limits.frame_bytes_per_second} bytes (unfinished-min-rate)."
        )
        refusal = Refusal(code=Code.BAD_FRAME, text=text)
        return Overdue(refusal=refusal, ending=Ending(cause=Cause.TIMED_OUT, text=text))

    def _stuck_consumer(
        self, now: float, consumers: Callable[[], Iterable[ConsumerState]]
    ) -> Overdue | None:
        """Judge subscriptions that hold deliveries and acknowledge none."""
        if self._stuck.step is None:
            return None
        for one in self._stuck.look(consumers(), now):
            refusal = self._stuck.refusal(one)
            return Overdue(refusal=refusal, ending=ending_of(refusal))
        return None
