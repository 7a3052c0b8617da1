"""The reactor turn: what happened during it is acted on once, at its end, in a fixed order.

    1 actions    what sessions put off (`at_end`)
    2 dispatch   queues that were touched hand out what they can
    3 store      the journal takes its batch, so that the disk works while we write to sockets
    4 flush      each connection that has something to say writes once

It knows no reactor: `defer` is a callable that runs a function soon, after the reads of this turn.
"""

from __future__ import annotations

from collections.abc import Callable


def _nothing() -> None:
    """Stand for a phase that nobody has claimed yet."""


class Turn:
    """Collects work for the end of the current turn; `begun`: something waits for that end.

    `end` runs that end: `run`, or what calls it and knows what to do when it fails, since one that
    breaks off is never run again.
    """

    __slots__ = ("_actions", "_defer", "_flushes", "begin", "begun", "dispatch", "end", "store")

    def __init__(self, defer: Callable[[Callable[[], None]], object]) -> None:
        self._defer = defer
        self._actions: list[Callable[[], None]] = []
        self._flushes: list[Callable[[], None]] = []
        self.begun = False
        self.end: Callable[[], None] = self.run
        self.begin: Callable[[], None] = _nothing  # when a turn is known to have begun
        self.dispatch: Callable[[], None] = _nothing
        self.store: Callable[[], None] = _nothing

    def need_end(self) -> None:
        """Make sure that the end of this turn is run."""
        if not self.begun:
            self.begun = True
            self.begin()
            self._defer(self.end)

    def at_end(self, action: Callable[[], None]) -> None:
        """Run `action` before this turn's dispatch."""
        self._actions.append(action)
        self.need_end()

    def after(self, action: Callable[[], None]) -> None:
        """Run `action`, work that goes on, in a turn of its own after the reads that wait now."""
        self._defer(action)

    def flush_at_end(self, flush: Callable[[], None]) -> None:
        """Run `flush` last; the caller sees to it that it asks once a turn."""
        self._flushes.append(flush)
        self.need_end()

    def run(self) -> None:
        """End the turn.

        What the phases ask for meanwhile belongs to this turn while its phase is to come.
        """
        actions, self._actions = self._actions, []
        for action in actions:
            action()
        self.dispatch()
        self.store()
        # Cleared only here: the phases above may call need_end() for work that is done below.
        self.begun = False
        flushes, self._flushes = self._flushes, []
        for flush in flushes:
            flush()
        if self._actions:
            # Put off by a phase that came after theirs: they have a turn of their own.
            self.need_end()
