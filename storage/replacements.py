"""Messages that took the place of others: their end may not be told before that of the others.

    7: [m] on disk ──rejected──> 9: [its dead letter] not written ──acknowledged──> on no disk

A message that consumers take before it is written is never written, and its end needs no disk:
after a crash it is not there. That is not so when the message took the place of another one that
the disk has: as a dead letter, by a move, in a ring or for its key. The crash would bring the other
one back, although its consumer was told that this is done. So the queues that such messages are in
are bound until the batch with both, the end of the one and the other, is on disk. Pure.
"""

from __future__ import annotations

from typing import Final

from storage.batch import Batch
from storage.batch_state import State

#: Members of an Enum are looked up slowly; these are for each atomic part.
_ATOMIC: Final = State.ATOMIC
_OPEN: Final = State.OPEN


class Replacements:
    """See the module text."""

    __slots__ = ("_bound", "_gave", "_start")

    def __init__(self) -> None:
        self._bound: dict[int, int] = {}  # queue: the ticket that ends it
        self._start = 0  # of the atomic part, among the runs of its batch
        self._gave = False  # a stored message goes in the atomic part

    def begin(self, batch: Batch) -> None:
        """An atomic part of a batch begins, or one within it."""
        if batch.state is not _ATOMIC:
            assert batch.state is _OPEN, "the batch is closed"
            batch.state = _ATOMIC
            self._start = len(batch.adds)
            self._gave = False

    def gave(self, batch: Batch) -> None:
        """A stored message goes, by a record of this batch."""
        if batch.state is _ATOMIC:
            self._gave = True

    def end(self, batch: Batch) -> None:
        """The atomic part ends: what it adds, if something goes for it, is bound."""
        assert batch.state is _ATOMIC, "no atomic part has begun"
        assert self._start <= len(batch.adds), "the atomic part was cut"
        batch.state = _OPEN
        if self._gave:
            self._gave = False
            for run in batch.adds[self._start :]:
                for queue_id, _ in run.targets:
                    self._bound[queue_id] = batch.number

    def bind(self, queue_id: int, ticket: int) -> None:
        """A message of this queue goes because another one came."""
        assert ticket >= self._bound.get(queue_id, 0), "an older batch binds again"
        self._bound[queue_id] = ticket

    def free(self, queue_id: int, synced: int) -> bool:
        """Whether nothing of a queue is bound, with all up to the ticket `synced` on disk."""
        ticket = self._bound.get(queue_id)
        if ticket is None:
            return True
        if ticket > synced:
            return False
        assert ticket <= synced, "free, and the disk still has what would come back"
        del self._bound[queue_id]
        return True

    def check_invariants(self, batch: Batch) -> None:
        """Assert that queues are bound to batches up to the open one, `batch`."""
        newest = max(self._bound.values(), default=0)
        assert newest <= batch.number, f"bound to batch {newest}, which is not begun"
        assert min(self._bound.values(), default=1) > 0, "bound to no batch"
        if batch.state is _ATOMIC:
            assert self._start <= len(batch.adds), "the atomic part begins behind its end"
        else:
            assert not self._gave, "something went in an atomic part that has ended"
