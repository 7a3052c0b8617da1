"""A page file as its address knows it, and the port through which backlogs read it.

The messages on a page are known by block (arrays) and, for each queue that has some there, by range
(`Part`), never one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.model.pages import UnreadablePageError
from gateway.model.run import StoredRun
from gateway.paging.part import Part
from gateway.queues.queue import Queue


class Page:
    """One page file as the address knows it.

    Attributes:
        blocks: how many there are, durable or not.
        charge: what it counts against page-size-bytes.
        size: bytes in the file.
        live: messages on it that some queue is not done with, once for each queue.
        suspect: how many of its first blocks may have been seen before.
    """

    __slots__ = (
        "blocks",
        "charge",
        "lengths",
        "live",
        "number",
        "offsets",
        "parts",
        "size",
        "suspect",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.blocks = self.charge = self.size = self.live = self.suspect = 0
        self.offsets = array("Q")
        self.lengths = array("I")
        self.parts: dict[int, Part] = {}

    def check_invariants(self) -> None:
        """Assert that figures are those of its blocks and parts."""
        live = sum(part.live for part in self.parts.values())
        assert self.live == live, f"a page counts {self.live}, and {live} are not done"
        assert len(self.offsets) == len(self.lengths), "a block without its length"
        assert len(self.offsets) <= self.blocks, "more blocks are durable than there are"
        assert 0 <= self.suspect <= self.blocks, "blocks that are not there are suspect"
        assert self.charge >= 0, "a page counts less than nothing"
        ends = [at + length for at, length in zip(self.offsets, self.lengths, strict=True)]
        assert self.size >= max(ends, default=0), "a block behind the end of its file"


class Source(Protocol):
    """Who reads blocks and knows when a page is not needed any more."""

    def read(self, page: Page, block: int) -> StoredRun:
        """Return a durable block, from the disk if need be. Raises UnreadablePageError."""

    def here(self, page: Page, block: int) -> bool:
        """Whether a block is in memory."""

    def fetch(self, wake: Callable[[], None], wanted: Sequence[tuple[Page, int]]) -> bool:
        """Whether the first of these blocks is in memory; the others are fetched if they are not.

        If not it is fetched, and `wake` is called when it, or another one, is there: ask again.
        """

    def touch(self, queue: Queue) -> None:
        """The queue waited for a block, and may go on."""

    def lost(self, queue: Queue, count: int, error: UnreadablePageError) -> None:
        """So many messages of the queue cannot be read."""

    def remove(self, queue: Queue, first: int, last: int) -> int:
        """Record that the queue is done with what lies between two seqs; returns the ticket."""

    def finished(self, page: Page, count: int) -> None:
        """Some queue is done with so many messages on that page."""
