"""What the journal asks of whoever writes for it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from storage.batch import Batch


class Writer(Protocol):
    """Writes batches in order; answers by `written` or `failed` on the journal's thread."""

    def write(self, batch: Batch) -> None:
        """Encode, write and sync `batch` into its segment (made when it is not there)."""

    def delete(self, segments: Sequence[int]) -> None:
        """Delete the files of these segments; later than all writes asked for before."""

    def drop_pages(self, store: int, pages: Sequence[int]) -> None:
        """Delete these page files; later than all writes asked for before."""

    def read(self, segment: int, offset: int) -> None:
        """Read what a synced segment adds from `offset` (0: its begin) on, a piece of it.

        Answers by `piece_read` or `piece_failed`; no answer when the store has failed.
        """

    def stop(self, done: Callable[[], None]) -> None:
        """Finish what was asked for, then call `done`."""
