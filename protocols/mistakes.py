"""How many errors a connection may be told before it is cut: it does not listen.

An error costs more than what it answers, and a client that repeats its mistake thousands of times a
minute gains nothing by it.
"""

from __future__ import annotations

from typing import Final

_WINDOW_SECONDS: Final = 60.0


class Mistakes:
    """Those of one connection in the current minute; `most` may be told. Seconds of any clock."""

    __slots__ = ("_count", "_since", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._count = 0
        self._since = 0.0

    def too_many(self, now: float) -> bool:
        """Count one; returns whether it is one too many."""
        if now - self._since >= _WINDOW_SECONDS:
            self._since = now
            self._count = 0
        self._count += 1
        return self._count > self.most

    def text(self, last: str) -> str:
        """Return what the peer is told with the end; `last` is what was wrong last."""
        return (
            f"More than {self.most} errors were told on this connection within a minute; that is "
            f"the limit. Mend the client before it connects again. The last one: {last}"
        )
