"""When a queue begins to deliver: with enough consumers, or some time after the first one.

    closed ──enough consumers, or the delay is over──> open ──no consumer left──> closed

It knows no clock: whoever asks says what time it is.
"""

from __future__ import annotations

from gateway.queues.scheduled import NEVER


class Start:
    """See the module text.

    Attributes:
        opens_at: when the delay is over, in ms; NEVER while it does not run.
    """

    __slots__ = ("_consumers", "_delay_ms", "_open", "opens_at")

    def __init__(self, consumers: int, delay_ms: int) -> None:
        self._consumers = consumers
        self._delay_ms = delay_ms
        self._open = False
        self.opens_at = NEVER

    def is_open(self, consumers: int, now_ms: int) -> bool:
        """Whether a queue with so many consumers delivers now; the delay runs from the first."""
        assert consumers >= 0, "fewer than no consumers"
        if not consumers:
            self._open = False
            self.opens_at = NEVER
        elif not self._open:
            if self.opens_at == NEVER and self._delay_ms >= 0:
                self.opens_at = now_ms + self._delay_ms
            self._open = consumers >= self._consumers or self.opens_at <= now_ms
            if self._open:
                self.opens_at = NEVER
        return self._open

    def left(self) -> None:
        """The last consumer is gone: the next ones are waited for again."""
        self._open = False
        self.opens_at = NEVER

    def check_invariants(self, consumers: int) -> None:
        """Assert that it waits for something that may happen."""
        assert self._consumers > 0, "waits for nobody"
        assert not self._open or self.opens_at == NEVER, "open, and it waits to be"
        assert consumers or not self._open, "open for nobody"
        assert self._delay_ms >= 0 or self.opens_at == NEVER, "a delay that nobody has set"
