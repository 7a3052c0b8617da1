"""Long work that is done in slices, between which everybody else has a turn. Pure.

start ──> slice ──later──> slice ──later──> ... ──> done
  ^ while it goes on, a start is passed over
"""

from __future__ import annotations

from collections.abc import Callable, Iterator


class Slices:
    """Goes through `work` one item at a turn; `later` calls something in the next turn.

    `work` yields where it may be interrupted. What it raises is raised to who calls the slice.
    """

    def __init__(
        self,
        work: Callable[[], Iterator[object]],
        later: Callable[[Callable[[], None]], object],
    ) -> None:
        self._work = work
        self._later = later
        self._going: Iterator[object] | None = None

    def start(self) -> None:
        """Begin, unless what was begun before still goes on."""
        if self._going is None:
            self._going = self._work()
            self._slice()

    def _slice(self) -> None:
        assert self._going is not None
        try:
            next(self._going)
        except StopIteration:
            self._going = None
            return
        except BaseException:
            self._going = None
            raise
        self._later(self._slice)
