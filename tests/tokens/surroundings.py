"""What the realm stands on in tests: a date that is set, and turns that are made."""

from __future__ import annotations

from collections.abc import Callable

from gateway.security.gate import Why


class Around:
    """Implements the realm's Surroundings."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.told: list[tuple[str, Why, str]] = []
        self._later: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def later(self, action: Callable[[], None]) -> None:
        self._later.append(action)

    def refused(self, issuer: str, why: Why, text: str) -> None:
        self.told.append((issuer, why, text))

    def turn(self) -> None:
        """Do what was left for a later turn."""
        while self._later:
            self._later.pop(0)()
