"""How long the oldest message of a queue has waited, without a time in each message.

About every second the number of each queue's next message is noted with the time. A message whose
number is below a note's came before it. So ages are right to about a second, and coarser the older
they are; what was there when the gateway started counts from then. It knows no clock: seconds are
handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from gateway.queues.queue import Queue

#: Queues beyond this have no ages: the metrics do not list more, either.
QUEUES_MAX: Final = 10_000
#: Notes of one queue; when there are more, every second one of the older half goes.
_NOTES_MAX: Final = 128

#: The number of the next message, and when it was that.
_Note = tuple[int, float]


class Ages:
    """See the module text; `look` is called about every second."""

    def __init__(self, queues: Callable[[], Mapping[str, Queue]], now: Callable[[], float]) -> None:
        self._queues = queues
        self._now = now
        self._notes: dict[int, list[_Note]] = {}

    def look(self) -> None:
        """Note where queues are; those that hold nothing are forgotten."""
        now, before = self._now(), self._notes
        self._notes = notes = {}
        for queue in islice(self._queues().values(), QUEUES_MAX):
            counts = queue.counts
            if counts.added == counts.gone_count:  # it holds nothing; ten thousand may not
                continue
            found = notes[queue.queue_id] = before.get(queue.queue_id) or []
            if not found or found[-1][0] != queue.next_seq:
                found.append((queue.next_seq, now))
                if len(found) > _NOTES_MAX:
                    half = len(found) // 2
                    del found[1:half:2]

    def of(self, queue: Queue) -> float:
        """Return the seconds that the oldest message has waited; 0 when none waits."""
        oldest = queue.oldest()
        notes = self._notes.get(queue.queue_id)
        if oldest is None or not notes:
            return 0.0
        for passed, (number, at) in enumerate(notes):
            if number > oldest:
                # What is before is of no message any more.
                del notes[:passed]
                return max(0.0, self._now() - at)
        return 0.0
