"""How long one connection may work before the others have their turn.

A peer can put thousands of small frames into one read: an attach or an ABORT takes many times as
long as a message of its size. So a session looks at the clock between frames; what it has not acted
on when its time is up waits, unread from, for the next turn. Those that wait go on by turns. While
they fill a turn, one more that was read from has one frame acted on, and waits behind them.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final

#: A read of fewer bytes than this is acted on whatever it takes, and not timed.
SMALL_BYTES: Final = 1024
#: What a connection may take of a turn, in seconds.
SHARE_SECONDS: Final = 0.0025
#: When more wait than this, others are read little of: what was read and not acted on is in memory.
CROWD: Final = 32
#: What all that go on with what waited may take of a turn together.
TURN_SECONDS: Final = 0.0075
#: So many fill a turn.
_FULL: Final = round(TURN_SECONDS / SHARE_SECONDS)


class Patience:
    """What the connections of one reactor share; for its thread only.

    `after` runs a function in a turn of its own.

    Attributes:
        crowded: more wait than CROWD.
    """

    __slots__ = (
        "_after",
        "_began",
        "_clock",
        "_coming",
        "_going_on",
        "_until",
        "_waiting",
        "crowded",
    )

    def __init__(
        self,
        after: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._after = after
        self._clock = clock
        self._began = 0.0
        self._until = math.inf
        self._going_on = False  # those that wait have their turn
        self._waiting: deque[Callable[[], None]] = deque()
        self._coming = False  # a turn of those that wait
        self.crowded = False

    def begin(self) -> None:
        """A connection begins to work."""
        self._began = now = self._clock()
        full = len(self._waiting) >= _FULL and not self._going_on
        self._until = now if full else now + SHARE_SECONDS

    def end(self) -> float:
        """It has worked; returns for how long."""
        self._until = math.inf
        return self._clock() - self._began

    def spent(self) -> bool:
        """Whether the time of the one that works is up."""
        return self._clock() > self._until

    def later(self, go_on: Callable[[], None]) -> None:
        """Have a connection go on in another turn, behind those that wait already."""
        self._waiting.append(go_on)
        self.crowded = len(self._waiting) > CROWD
        self._ask()

    def _go_on(self) -> None:
        """Let those that wait go on, each once at most, while the turn is young."""
        self._coming = False
        self._going_on = True
        until = self._clock() + TURN_SECONDS
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()
            if self._clock() > until:
                break
        self._going_on = False
        self.crowded = len(self._waiting) > CROWD
        if self._waiting:
            self._ask()

    def _ask(self) -> None:
        if not self._coming:
            self._coming = True
            self._after(self._go_on)


def never() -> bool:
    """Stand for `spent` where nobody counts the time."""
    return False
