"""Queues hand out what they hold: those that were touched, at the end of the turn, in shares.

A turn is bounded; what is left goes on in the next one, so that nobody waits for a long queue. Hot.
"""

from __future__ import annotations

from typing import Protocol

from gateway.broker.clock import TurnClock
from gateway.broker.pressure.figures import Figures
from gateway.broker.timetable import Timetable
from gateway.model.turn import Turn
from gateway.queues.queue import Queue
from gateway.queues.scheduled import NEVER

#: Messages a queue hands out before the others have their turn: about 2 ms of work.
DISPATCH_RUN = 2048
#: Messages all queues together hand out in one reactor turn: bounds a turn to some tens of
#: milliseconds.
DISPATCH_TURN = 16384


class Pages(Protocol):
    """Reads pages back."""

    def feed(self, queue: Queue, now_ms: int, limit: int) -> int:
        """Read back what consumers, or a ring, take; returns how many messages went out."""


class Dispatch:
    """See the module text. `pages` is set once it is made."""

    __slots__ = ("_clock", "_figures", "_turn", "pages", "timetable", "touched")

    pages: Pages

    def __init__(self, turn: Turn, clock: TurnClock, figures: Figures) -> None:
        self._turn = turn
        self._clock = clock
        self._figures = figures
        self.touched: list[Queue] = []
        self.timetable = Timetable()

    def touch(self, queue: Queue) -> None:
        """See to it that the queue is dispatched at the end of this turn."""
        if not queue.touched:
            queue.touched = True
            self.touched.append(queue)
            self._turn.need_end()

    def need_end(self) -> None:
        """See to it that this turn ends, though no queue was touched: the store has something."""
        self._turn.need_end()

    def end_turn(self) -> None:
        """Let touched queues hand out; bounded, the rest goes on in the next turn."""
        budget = DISPATCH_TURN
        now_ms = self._clock.at_ms
        again: list[Queue] = []
        # More than once: what expires while one queue hands out may go to another.
        while self.touched:
            touched, self.touched = self.touched, []
            for queue in touched:
                queue.touched = False
                if budget <= 0:
                    again.append(queue)
                    continue
                went = queue.dispatch(now_ms, DISPATCH_RUN)
                if queue.backlog is not None:
                    went += self.pages.feed(queue, now_ms, DISPATCH_RUN - went)
                budget -= max(went, 1)  # what expires here may expire there, and back again
                self._figures.delivered += went
                if went >= DISPATCH_RUN or queue.searching:
                    again.append(queue)
        if again:
            self._turn.after(lambda: self._touch_again(again))

    def _touch_again(self, queues: list[Queue]) -> None:
        for queue in queues:
            self.touch(queue)

    def dispatch_queue(self, queue: Queue) -> None:
        """Hand out at once what consumers have room for."""
        self._clock.read()
        now_ms = self._clock.at_ms
        went = queue.dispatch(now_ms, DISPATCH_TURN)
        if queue.backlog is not None:
            went += self.pages.feed(queue, now_ms, DISPATCH_TURN)
        self._figures.delivered += went
        if queue.searching:
            self.touch(queue)

    def overflow(self, queue: Queue, added: int) -> None:
        """A ring has too much after an add: what consumers take at once is not evicted."""
        if queue.consumer_count and not (queue.paused or queue.dispatching):
            self._figures.delivered += queue.dispatch(self._clock.at_ms, DISPATCH_RUN)
        queue.trim_ring(added)

    def wake(self, queue: Queue, at_ms: int) -> None:
        """Have the queue dispatched when broker time is `at_ms`, or soon after."""
        self.timetable.wake(queue, at_ms)

    def on_time(self) -> None:
        """Dispatch the queues whose time has come; the timetable's alarm calls it."""
        self._clock.read()
        now_ms = self._clock.at_ms
        for queue in self.timetable.take(now_ms):
            if now_ms < queue.next_time < NEVER:
                self.wake(queue, queue.next_time)  # its plan was for what is gone
            self.touch(queue)
