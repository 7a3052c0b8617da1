"""What a queue has counted, and its part on page files.

taken places ──(pages)──> read back, which `restore` counts once more, or lost, or purged
"""

from __future__ import annotations

from gateway.queues.ports import Backlog


class Counted:
    """Figures of one queue.

    Attributes:
        next_seq: of the next message; seqs ascend in arrival order.
        added, acknowledged, expired, killed, replaced: messages, since the start.
        backlog: what it has on pages, while its address is in page mode.
    """

    __slots__ = ("acknowledged", "added", "backlog", "expired", "killed", "next_seq", "replaced")

    def __init__(self) -> None:
        self.next_seq = 1
        self.added = self.acknowledged = self.expired = self.killed = self.replaced = 0
        self.backlog: Backlog | None = None

    @property
    def paged_count(self) -> int:
        """Messages on page files that were not read back yet."""
        return self.backlog.count if self.backlog is not None else 0

    def take_places(self, count: int) -> int:
        """Count messages that go to pages; returns the seq of the first."""
        first = self.next_seq
        self.next_seq = first + count
        self.added += count
        return first

    def took_back(self, count: int, lost: int = 0) -> None:
        """So many were restored from pages, so many cannot be: they count as killed."""
        self.added -= count
        self.killed += lost

    def purge_pages(self) -> int:
        """Let go of what was not read back; returns how many that were."""
        count = self.backlog.purge() if self.backlog is not None else 0
        self.killed += count
        return count
