"""What may not be forgotten by itself: messages that took the place of others on disk.

A message that consumers take before it is written is never written, and then its end needs no disk:
after a crash it is not there. But what it came for is undone as well, when it is a dead letter, was
moved, or took the place of another one in a ring or of its key: the crash would bring back what it
stood for, though its consumer was told that this is done. So the queues that such messages are in
are bound until the batch that says both is on disk. Pure.
"""

from __future__ import annotations

from storage.batch import Batch


class Bonds:
    """See the module text."""

    __slots__ = ("_bound", "_gave", "_start")

    def __init__(self) -> None:
        self._bound: dict[int, int] = {}  # queue: the ticket that ends it
        self._start = 0  # of the atomic part, among the runs of its batch
        self._gave = False  # something goes in it

    def begin(self, batch: Batch) -> None:
        """An atomic part of a batch begins, or one within it."""
        if not batch.atomic:
            batch.atomic = True
            self._start = len(batch.adds)
            self._gave = False

    def gave(self, batch: Batch) -> None:
        """A stored message goes, by a record of this batch."""
        if batch.atomic:
            self._gave = True

    def end(self, batch: Batch) -> None:
        """The atomic part ends: what it adds, if something goes for it, is bound."""
        batch.atomic = False
        if self._gave:
            self._gave = False
            for run in batch.adds[self._start :]:
                for queue_id, _ in run.targets:
                    self._bound[queue_id] = batch.number

    def bind(self, queue_id: int, ticket: int) -> None:
        """A message of this queue goes because another one came."""
        self._bound[queue_id] = ticket

    def free(self, queue_id: int, synced: int) -> bool:
        """Whether nothing of a queue is bound, with all up to a ticket on disk."""
        ticket = self._bound.get(queue_id)
        if ticket is None:
            return True
        if ticket > synced:
            return False
        del self._bound[queue_id]
        return True
