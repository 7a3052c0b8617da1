"""Where principals are judged: by whoever is the judge when they ask. Pure."""

from __future__ import annotations

from typing import Protocol

from gateway.model.principal import Judge, Permission, Principal


class Court(Protocol):
    """Whoever has a judge, or none."""

    judge: Judge | None


class Bench:
    """Implements `Judge`: a reload may have put another one here since a principal was made."""

    __slots__ = ("_court",)

    def __init__(self, court: Court) -> None:
        self._court = court

    def check(
        self, principal: Principal, permission: Permission, address: str, queue: str | None
    ) -> None:
        """See `Judge`."""
        judge = self._court.judge
        if judge is not None:
            judge.check(principal, permission, address, queue)
