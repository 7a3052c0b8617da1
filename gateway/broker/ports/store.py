"""What the broker needs of storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.model.definitions import Definition
from gateway.model.pages import PageStore
from gateway.model.run import StoredRun


class Appends(Protocol):
    """The part of the store that a route writes to. Calls return the ticket of the batch."""

    def append(
        self, targets: Sequence[tuple[int, int]], run: StoredRun, size: int, now_ms: int
    ) -> int:
        """Store a run once for several queues or streams; targets are (id, first seq).

        `size` is that of its bodies in bytes.
        """


class Store(PageStore, Appends, Protocol):
    """Durable memory. Calls return the ticket of the record's batch; nothing blocks."""

    @property
    def ticket(self) -> int:
        """The ticket of what is recorded next."""

    @property
    def unsynced(self) -> int:
        """The ticket after which all that was recorded so far is on disk; 0 when it is."""

    def first_unsynced(self, queue_id: int) -> tuple[int, int] | None:
        """Return ticket and seq of the first message of a queue that is not on disk, or None.

        None also where those that are not are on pages.
        """

    @property
    def congested(self) -> bool:
        """Whether too much waits for the disk: senders that can wait should."""

    @property
    def relieved(self) -> bool:
        """Whether it is well below that again."""

    def relax(self, queue_id: int) -> None:
        """What is recorded of a queue may be reported when the kernel has it."""

    def tighten(self, queue_id: int) -> None:
        """What is recorded of a queue is reported once it is synced, as it is by default."""

    def remove(self, queue_id: int, first: int, last: int, count: int) -> int:
        """The `count` stored messages between two seqs are gone; 0: no disk is needed for that."""

    def replace(self, queue_id: int, first: int, last: int, count: int) -> int:
        """As `remove`, because another message came: they go when that one is stored."""

    def count(self, queue_id: int, entries: Sequence[tuple[int, int]]) -> int:
        """Stored messages have new flags: (seq, flags)."""

    def postpone(self, queue_id: int, entries: Sequence[tuple[int, int]]) -> int:
        """Stored messages wait for another time: (seq, due)."""

    def define(self, definition: Definition) -> int: ...

    def undefine(self, definition: Definition) -> int: ...

    def begin_atomic(self) -> None:
        """What follows, until `end_atomic`, is durable together or not at all."""

    def end_atomic(self) -> None: ...

    def flush(self) -> None:
        """The turn ends: start writing when the disk is free."""
