"""Senders that were asked to give their credit back [AMQP 2.6.7], and until when they may wait.

    asked ──it has none left, or is given new one──> forgotten
      └──neither in time──> detached with amqp:link:detach-forced

A full address that refuses (FAIL, full pages, a passed reject threshold) asks, before it tells the
refusal: what the sender would still send is refused as well. The time runs from the next tick,
which the connection asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from gateway.model.errors import Code, Refusal
from protocols.amqp.conditions import DETACH_FORCED
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import Error
from protocols.amqp.ports import Link, SendersLink

_FULL: Final = frozenset({Code.ADDRESS_FULL, Code.PAGE_FULL, Code.MEMORY_FULL})


class QuiescingSession(Protocol):
    """A session, as those see it that ask its senders."""

    @property
    def links(self) -> Mapping[int, Link]:
        """Those that are attached, by handle."""

    def ask_to_drain(self, link: Link) -> None:
        """Say so, behind what was accepted before."""

    def detach(self, link: Link, error: Error) -> None:
        """End a link with an error."""


class Quiescing:
    """All of one connection."""

    __slots__ = ("_asked", "_deadlines", "_limits")

    def __init__(self, limits: AmqpLimits) -> None:
        self._limits = limits
        self._asked: dict[SendersLink, QuiescingSession] = {}
        self._deadlines: dict[SendersLink, tuple[float, QuiescingSession]] = {}

    def ask(self, session: QuiescingSession, link: SendersLink, refusal: Refusal) -> bool:
        """Ask a link's sender to drain, unless it was asked; returns whether a tick is needed."""
        if (
            refusal.code not in _FULL
            or link.draining
            or link.credit <= 0
            or not self._limits.drain_on_refusal
        ):
            return False
        link.draining = True
        session.ask_to_drain(link)
        if self._limits.quiesce_ms < 0:
            return False
        self._asked[link] = session
        return True

    def tick(self, now: float) -> list[float]:
        """Detach links whose time is over; returns the deadlines that are left."""
        asked, self._asked = self._asked, {}
        for link, session in asked.items():
            self._deadlines[link] = (now + self._limits.quiesce_ms / 1000, session)
        for link, (deadline, session) in list(self._deadlines.items()):
            if not link.draining or link.credit <= 0 or session.links.get(link.handle) is not link:
                del self._deadlines[link]
            elif now >= deadline:
                del self._deadlines[link]
                session.detach(link, self._too_late(link))
        return [deadline for deadline, _ in self._deadlines.values()]

    def _too_late(self, link: SendersLink) -> Error:
        text = (
            f"Timed out waiting for remote sender to drain: link {link.name!r} was asked to give "
            f"its credit back and still has {link.credit} after {self._limits.quiesce_ms} ms, the "
            "amqp-link-quiesce-timeout of this acceptor."
        )
        return Error(condition=DETACH_FORCED, description=text)
