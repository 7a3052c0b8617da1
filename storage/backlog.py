"""The batches that are fixed, in the order in which the writer gets them: one at a time. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from storage.batch import Batch
from storage.batch_state import State


class Backlog:
    """See the module text.

    Figures (read only): `busy` is the batch that the writer has, or None; `bytes` are those of the
    others, with what they put on pages.
    """

    __slots__ = ("_pending", "busy", "bytes")

    def __init__(self) -> None:
        self._pending: deque[Batch] = deque()
        self.busy: Batch | None = None
        self.bytes = 0

    @property
    def pending(self) -> Sequence[Batch]:
        """The batches that wait for the writer, the oldest first."""
        return self._pending

    @property
    def batches(self) -> list[Batch]:
        """The batch that the writer has and those that wait for it, the oldest first."""
        return [*self._pending] if self.busy is None else [self.busy, *self._pending]

    @property
    def last(self) -> int:
        """The number of the youngest of `batches`, 0 without any."""
        if self._pending:
            return self._pending[-1].number
        return 0 if self.busy is None else self.busy.number

    def put(self, batch: Batch) -> None:
        """Have a batch wait behind the others."""
        assert batch.state is State.FIXED, "a waiting batch may still change"
        assert batch.number > self.last, "batches are written in their order"
        self._pending.append(batch)
        self.bytes += batch.bytes_bound + batch.page_bytes

    def hand_over(self, synced: int) -> Batch:
        """Return the oldest batch, which the writer has from now on.

        `synced` is the number on disk of the last batch that is synced.
        """
        assert self.busy is None, "the writer has one batch at a time"
        batch = self._pending.popleft()
        self.bytes -= batch.bytes_bound + batch.page_bytes
        batch.synced = synced
        batch.become(State.WRITING)
        self.busy = batch
        return batch

    def take_back(self) -> None:
        """The writer has answered for its batch, or will not any more."""
        self.busy = None

    def check_invariants(self) -> None:
        """Assert that waiting batches are fixed, the writer's is being written, bytes add up."""
        assert self.busy is None or self.busy.state is State.WRITING, "it is not being written"
        for batch in self._pending:
            assert batch.state is State.FIXED, f"{batch.state.name} and pending"
        size = sum(batch.bytes_bound + batch.page_bytes for batch in self._pending)
        assert self.bytes == size, f"{self.bytes} bytes counted, {size} pending"
