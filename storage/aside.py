"""What waits for the writer, a turn at a time: so that what is consumed meanwhile is found whole.

    open batch ──end of a turn, the writer is busy──> set aside ──all consumed──> its ticket is told
                                                      set aside ──writer is free──> one batch again

A turn's records have a ticket of their own as long as they are here. When consumers have taken all
that it added, and it has nothing else, nothing of it will ever be written: senders that wait for
this ticket need not wait for the disk, nor for tickets before it. Pure.
"""

from __future__ import annotations

from typing import Final

from storage.batch import Batch
from storage.batch_state import State

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
        assert self.takes(batch), "the batch is too much, or not messages alone"
        assert not self.batches or self.batches[-1].number < batch.number, "the batch is older"
        batch.become(State.ASIDE)
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
            for batch in void:
                batch.become(State.GONE)
            self.batches = [batch for batch in self.batches if batch.state is State.ASIDE]
            self._count()
        return void

    def _count(self) -> None:
        self.bytes = sum(batch.bytes_bound for batch in self.batches)
        self._runs = sum(len(batch.adds) for batch in self.batches)

    def gather(self, batch: Batch) -> None:
        """Make all that is here a part of `batch`, which is the youngest."""
        for elder in reversed(self.batches):
            batch.absorb(elder)
        self.batches = []
        self.bytes = self._runs = 0

    def check_invariants(self) -> None:
        """Assert that turns are in their order, as many as may be here, and counted right."""
        batches = self.batches
        numbers = [batch.number for batch in batches]
        assert numbers == sorted(set(numbers)), f"tickets {numbers} are in no order"
        assert len(batches) <= TURNS_MAX, f"{len(batches)} turns are set aside"
        assert batches or not (self.bytes or self._runs), "bytes of nothing are counted"
        for batch in batches:
            assert batch.state is State.ASIDE, f"{batch.state.name} and set aside"
            assert not batch.is_special(), f"batch {batch.number} is more than messages"
