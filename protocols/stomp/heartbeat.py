"""Heart-beats and the time to live: who must be heard how often [STOMP 1.2 Heart-beating].

    client says     we beat every              client is gone after           we reply
    (nothing)       never                      ttl                            (nothing)
    cx,cy           max(cy, 500) ms, 0 never   cx * 2 within ttl-min..max     ours, ttl / 2
    0,cy            max(cy, 500) ms, 0 never   ttl                            ours, ttl / 2

Times in the header are ms; `now` is seconds. Any byte counts as life. Knows no clock.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from gateway.model.errors import Code, RefusedError
from protocols.stomp.heads import shown
from protocols.stomp.limits import StompLimits

#: Two numbers; a negative one is taken as 0. 18 digits of ms are more than the age of the earth.
_HEADER: Final = re.compile(r" *(-?[0-9]{1,18}) *, *(-?[0-9]{1,18}) *", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What was agreed.

    Attributes:
        beat_ms: we beat every so many ms; 0 never.
        ttl_ms: silence after which the peer is gone; -1 never.
        reply: the header for CONNECTED, None for none.
    """

    beat_ms: int
    ttl_ms: int
    reply: str | None


def agree(header: str | None, limits: StompLimits) -> Agreement:
    """Return what follows from the client's heart-beat header; raises RefusedError (bad-header)."""
    if header is None:
        return Agreement(beat_ms=0, ttl_ms=limits.ttl_ms, reply=None)
    match = _HEADER.fullmatch(header)
    if match is None:
        raise RefusedError.of(
            Code.BAD_HEADER,
            f"heart-beat '{shown(header)}' is not two numbers of milliseconds: write cx,cy.",
        )
    promised = max(0, int(match[1]))
    wanted = max(0, int(match[2]))
    beat = max(wanted, limits.beat_min_ms) if wanted else 0
    if not promised:
        ttl = limits.ttl_ms
        expected = int(ttl / limits.ttl_modifier) if ttl > 0 else 0
    else:
        ttl = max(int(promised * limits.ttl_modifier), limits.ttl_min_ms)
        if limits.ttl_max_ms:
            ttl = min(ttl, limits.ttl_max_ms)
        # The promise itself where it holds; where the ttl was moved, what that ttl needs.
        moved = ttl != int(promised * limits.ttl_modifier)
        expected = int(ttl / limits.ttl_modifier) if moved else promised
    return Agreement(beat_ms=beat, ttl_ms=ttl, reply=f"{beat},{expected}")


class Pulse:
    """The beats of one connection."""

    __slots__ = ("_beat_at", "_heard", "_interval", "_ttl", "ttl_ms")

    def __init__(self, agreement: Agreement, now: float) -> None:
        self.ttl_ms = agreement.ttl_ms
        self._interval = agreement.beat_ms / 1000
        self._ttl = agreement.ttl_ms / 1000 if agreement.ttl_ms >= 0 else math.inf
        self._heard = now
        self._beat_at = now + self._interval

    def heard(self, now: float) -> None:
        """The peer has sent something, or was kept from sending by us."""
        self._heard = now

    def silent(self, now: float) -> bool:
        """Return whether the peer has been silent for longer than its time to live."""
        return now - self._heard >= self._ttl

    def beat_due(self, now: float) -> bool:
        """Return whether a beat is to be sent now; the next one is due an interval later.

        Beats go out whatever else is sent: only so is the interval kept without a look at the
        clock on every write.
        """
        if not self._interval or now < self._beat_at:
            return False
        self._beat_at = now + self._interval
        return True

    def deadline(self) -> float:
        """Return when something is due next."""
        gone = self._heard + self._ttl
        return min(gone, self._beat_at) if self._interval else gone
