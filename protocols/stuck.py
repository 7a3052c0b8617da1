"""Consumers that hold what they were given and settle nothing. Pure.

Asked now and then; nothing is counted for it by the message. Time in which nobody asked, as that of
a process that stood still, counts no longer than `STEP_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.model.errors import Code, Refusal
from gateway.model.peers import ConsumerState

#: How much time one look may count.
STEP_SECONDS: Final = 60.0


class Stuck:
    """Looks after the consumers of one connection; `seconds` 0 is never."""

    __slots__ = ("_known", "_last", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = 0.0
        # By number: how many it had settled, and for how long that has been so.
        self._known: dict[int, tuple[int, float]] = {}

    @property
    def step(self) -> float | None:
        """When to look again, in seconds from the last time; None: never."""
        return min(self._seconds / 4, STEP_SECONDS / 2) if self._seconds else None

    def look(self, consumers: Iterable[ConsumerState], now: float) -> list[ConsumerState]:
        """Return those that hold something and have settled nothing for too long."""
        passed = min(now - self._last, STEP_SECONDS)
        self._last = now
        known, self._known = self._known, {}
        found = []
        for one in consumers:
            if not one.in_flight:
                continue
            settled = one.delivered - one.in_flight
            before = known.get(one.number)
            idle = before[1] + passed if before is not None and before[0] == settled else 0.0
            self._known[one.number] = (settled, idle)
            if idle >= self._seconds:
                found.append(one)
        return found

    def refusal(self, one: ConsumerState) -> Refusal:
        """Say why a consumer is ended."""
        back = "go back to the queue" if one.progress is None else "stay in the stream"
        text = (
            f"Consumer {one.name!r} of {one.queue} holds {one.in_flight} deliveries and has "
            f"settled none for {self._seconds:g} s, the consumer-stuck-timeout of this acceptor; "
            f"they {back}. Whoever holds all that its window (STOMP: "
            "consumer-window-size) or credit allows gets no more until it acknowledges."
        )
        return Refusal(code=Code.SLOW_CONSUMER, text=text)
