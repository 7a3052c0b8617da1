"""Which queues of an address get a message, where filters and selectors have a say.

Of the anycast queues that let it in one gets it: in turn among those with a consumer that it is
for, else in turn among all. Of the multicast queues each one that lets it in gets a copy. A filter
that several queues share is asked once. Pure: looks, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gateway.model.message import Message
from gateway.model.run import Run
from gateway.queues.indexed import Condition
from gateway.queues.queue import Queue


def is_picky(queues: Sequence[Queue]) -> bool:
    """Return whether some of these do not take every message as it comes."""
    return any(q.filter is not None or q.no_local or q.told_apart for q in queues)


class Picker:
    """Chooses for the messages of one sender; `origin` is where they come from."""

    __slots__ = ("_anycast", "_multicast", "_origin", "_places", "_verdicts")

    def __init__(
        self,
        anycast: Sequence[Queue],
        multicast: Sequence[Queue],
        origin: str,
        *,
        places: Mapping[Queue, int],
    ) -> None:
        """`places`: of the address' anycast queues, in their order."""
        self._anycast = anycast
        self._places = places
        self._multicast = multicast
        self._origin = origin
        self._verdicts: dict[int, bool] = {}

    def runs(self, run: Run, cursor: int) -> Iterator[tuple[Run, list[Queue], list[Queue]]]:
        """Yield neighbours that go to the same queues, the anycast one, and the copies' queues."""
        start = 0
        before: tuple[list[Queue], list[Queue]] | None = None
        for index, message in enumerate(run.messages()):
            chosen = self.choose(message, cursor)
            if chosen[0]:
                cursor = self._places.get(chosen[0][0], 0) + 1
            if before is not None and chosen != before:
                yield run.part(start, index), *before
                start = index
            before = chosen
        if before is not None:
            yield run.part(start, run.count), *before

    def choose(self, message: Message, cursor: int) -> tuple[list[Queue], list[Queue]]:
        """Return the anycast queue, if any, and the multicast queues that get a message.

        `cursor` is the place behind the queue that was chosen last.
        """
        message.origin = self._origin
        self._verdicts.clear()
        able = [q for q in self._anycast if self._lets_in(q, message)]
        if len(able) > 1:
            able = [q for q in able if self._is_wanted(q, message)] or able
            places = self._places
            able = [next((q for q in able if places[q] >= cursor), able[0])]
        return able, [q for q in self._multicast if self._lets_in(q, message)]

    def _lets_in(self, queue: Queue, message: Message) -> bool:
        if queue.no_local and queue.no_local == self._origin:
            return False
        return self._meets(queue.filter, message)

    def _is_wanted(self, queue: Queue, message: Message) -> bool:
        if not queue.selective:
            return bool(queue.consumer_count)
        return any(
            held.group is None or self._meets(held.group.condition, message)
            for held in queue.consumers
        )

    def _meets(self, condition: Condition | None, message: Message) -> bool:
        if condition is None:
            return True
        verdict = self._verdicts.get(id(condition))
        if verdict is None:
            verdict = self._verdicts[id(condition)] = condition.matches(message)
        return verdict
