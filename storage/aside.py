"""What waits for the writer, a turn at a time: so that what is consumed meanwhile is found whole.

    open batch ──end of a turn, the writer is busy──> set aside ──all consumed──> its ticket is told
                                                      set aside ──writer is free──> one batch again

A turn's records have a ticket of their own as long as they are here. When consumers have taken all
that it added, and it has nothing else, nothing of it will ever be written: who waits for this
ticket need not wait for the disk, nor for tickets before it. Pure.
"""

from __future__ import annotations

from typing import Final

from storage.batch import Batch

#: Beyond so many turns, runs or bytes the open batch goes on as it is.
TURNS_MAX: Final = 64
RUNS_MAX: Final = 1024
BYTES_MAX: Final = 1 << 20


class Aside:
    """See the module text. `bytes` (read only): what the records here may take."""

    __slots__ = ("_runs", "batches", "bytes")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.bytes = 0
        self._runs = 0

    def takes(self, batch: Batch) -> bool:
        """Whether a batch may be set aside: it holds messages, nothing large, nothing special."""
        return (
            bool(batch.adds)
            and not batch.is_special()
            and len(self.batches) < TURNS_MAX
            and self._runs + len(batch.adds) <= RUNS_MAX
            and self.bytes + batch.bytes_bound <= BYTES_MAX
        )

    def add(self, batch: Batch) -> None:
        """Set a batch aside; it is younger than all others here."""
        self.batches.append(batch)
        self.bytes += batch.bytes_bound
        self._runs += len(batch.adds)

    def remove(
        self, batch: Batch, queue_id: int, first: int, last: int, count: int, *, consumed: bool
    ) -> bool:
        """As `Batch.remove` of the open batch, for what is in that or here."""
        start = batch.first_seqs.get(queue_id, last + 1)
        if last >= start:
            batch.cancel(queue_id, max(first, start), last, consumed=consumed)
            count -= last - max(first, start) + 1
            last = start - 1
        if first > last:
            return True
        left = self.cancel(queue_id, first, last, consumed=consumed)
        if first > left:
            return True
        batch.remove_stored(queue_id, first, left, count - (last - left))
        return False

    def cancel(self, queue_id: int, first: int, last: int, *, consumed: bool) -> int:
        """Cancel the upper part of a range, as far as it is here; returns the last seq left."""
        for batch in reversed(self.batches):
            start = batch.first_seqs.get(queue_id)
            if start is None or start > last:
                continue
            batch.cancel(queue_id, max(first, start), last, consumed=consumed)
            last = start - 1
            if last < first:
                break
        return last

    def take_void(self) -> list[Batch]:
        """Take out the batches of which consumers have left nothing to write."""
        void = [batch for batch in self.batches if batch.is_void()]
        if void:
            kept = [batch for batch in self.batches if batch not in void]
            self.clear()
            for batch in kept:
                self.add(batch)
        return void

    def removals(self) -> list[Batch]:
        """Return those that say that stored messages are gone."""
        return [batch for batch in self.batches if batch.removed_live]

    def clear(self) -> None:
        """Forget all."""
        self.batches = []
        self.bytes = self._runs = 0
