"""Consumers that are faster than the disk: messages that they take are not written.

A sender waits until its message is on disk, so that a crash cannot take it back. Once a consumer
has taken and acknowledged the message, a crash has nothing to take back any more: neither of the
two has to wait, and the message need not be written. When that may be said, and to which of them,
is decided here.

1. A message and its removal cancel each other as long as the message's batch is not fixed. While
   the writer is busy the open batch stays open, so that a slow disk makes this likely.
2. All senders of a batch wait for the same ticket. A sender is told early only when all of the
   batch is taken, so a batch should be small: when consumers were seen to overtake the disk
   (`Overtaken`), what each turn brought is set aside as a batch of its own (`storage.aside`). When
   the writer is free, all that is left is one batch again, for one sync.
3. A batch is void when consumers have taken each place of each of its messages (`Batch.owed`), it
   says nothing else, and no part of what has its ticket is in the batch before (`Batch.whole`).
   Its senders are told at once, before those of older batches, and it is never written.
4. The consumer is told at once as well: the removal of what was never written has ticket 0. It has
   the ticket of the open batch where the message made room for another one or took the place of
   another one, whose end is not on disk yet (`storage.replacements`): else a crash would bring the
   other one back. A batch whose ticket was given so is `asked` for, and told even if it is empty.
5. Nothing is cancelled in the middle of an atomic part: that is durable as a whole or not at all.

When the disk lags for seconds, the gateway hands out what is on disk and nothing else. Then nothing
is overtaken: after two batches no turn is set aside any more, and all is written that comes in.
Messages that were handed out before are still cancelled here when their consumers are done.

The journal numbers batches by ticket. Those that are never written leave gaps in the tickets, which
the disk must not have: `storage.rotation` numbers what is written. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from storage.aside import Aside
from storage.batch import Batch
from storage.batch_state import State
from storage.replacements import Replacements


class Overtaken(Enum):
    """When consumers were last seen to take what the disk had not got."""

    #: Since the writer got its batch.
    NOW = 2
    #: While the writer had the batch before that.
    BEFORE = 1
    #: Not for two batches: turns are not worth to be kept apart.
    NOT = 0


_WITH_NEXT_BATCH: Final[Mapping[Overtaken, Overtaken]] = {
    Overtaken.NOW: Overtaken.BEFORE,
    Overtaken.BEFORE: Overtaken.NOT,
}
#: Members of an Enum are looked up slowly; these are for each removal, or turn.
_NOW: Final = Overtaken.NOW
_NOT: Final = Overtaken.NOT
_OPEN: Final = State.OPEN


class Overtaking:
    """See the module text. `overtaken` (read only): see there."""

    __slots__ = ("_aside", "_replacements", "overtaken")

    def __init__(self) -> None:
        self._aside = Aside()
        self._replacements = Replacements()
        self.overtaken = Overtaken.NOT

    @property
    def turns(self) -> Sequence[Batch]:
        """The batches that are set aside, the oldest first."""
        return self._aside.batches

    @property
    def bytes(self) -> int:
        """The bytes that what is set aside may take."""
        return self._aside.bytes

    # ---- messages go

    def remove(
        self,
        batch: Batch,
        queue_id: int,
        first: int,
        last: int,
        count: int,
        *,
        consumed: bool,
        synced: int,
    ) -> bool:
        """Cancel or record the removal of `count` messages; returns whether its end is told now.

        `batch` is the open one, and not in an atomic part; `synced` is the last ticket that is on
        disk. `consumed`: not since another message came.
        """
        if self._aside.batches:
            whole = self._aside.remove(batch, queue_id, first, last, count, consumed=consumed)
            self.overtaken = _NOW
        else:
            whole = batch.remove(queue_id, first, last, count, consumed=consumed)
            if batch.cancelled:
                self.overtaken = _NOW
        if not consumed:
            self._replacements.bind(queue_id, batch.number)
        if not whole:
            return False
        if consumed and self._replacements.free(queue_id, synced):
            return True
        batch.asked = True
        return False

    def recorded(self, batch: Batch) -> None:
        """Note that a stored message goes by a record of the open batch, which may be atomic."""
        self._replacements.gave(batch)

    def begin_atomic(self, batch: Batch) -> None:
        """An atomic part of the open batch begins, or one within it."""
        self._replacements.begin(batch)

    def end_atomic(self, batch: Batch) -> None:
        """The atomic part of the open batch ends."""
        self._replacements.end(batch)

    # ---- turns and batches

    def end_turn(self, batch: Batch) -> list[Batch]:
        """End a turn while the writer is busy; returns the batches that are void by now.

        The open batch may be one of them, or be set aside; then it is not open any more.
        """
        assert batch.state is _OPEN, "a turn ends in the middle of an atomic part"
        void = self._aside.take_void()
        if (batch.adds or batch.asked) and batch.is_void():
            batch.become(State.GONE)
            void.append(batch)
        elif self.overtaken is not _NOT and self._aside.takes(batch):
            self._aside.add(batch)
        return void

    def gather(self, batch: Batch) -> None:
        """Make all that was set aside a part of the open batch."""
        if self._aside.batches:
            self._aside.gather(batch)

    def next_batch(self) -> None:
        """Note that the writer gets all that consumers have left."""
        assert not self._aside.batches, "turns that are set aside would be written late"
        if self.overtaken is not _NOT:
            self.overtaken = _WITH_NEXT_BATCH[self.overtaken]

    def check_invariants(self, batch: Batch) -> None:
        """Assert that turns are older than the open batch, and no queue is bound to a later one."""
        self._aside.check_invariants()
        self._replacements.check_invariants(batch)
        if self._aside.batches:
            assert self._aside.batches[-1].number < batch.number, "a turn is younger than the next"
            assert batch.whole, "a turn was set aside in the middle of something"
