"""What a queue has counted: messages that came, and where they went."""

from __future__ import annotations

from gateway.queues.ports import Gone


class Counters:
    """Figures of one queue.

    Attributes:
        next_seq: of the next message; seqs ascend in arrival order.
        added, acknowledged, expired, killed, replaced: messages, since the start.
        size_bytes: of the bodies of what is in memory.
    """

    __slots__ = (
        "acknowledged", "added", "expired", "killed", "next_seq", "replaced", "size_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.next_seq = 1
        self.size_bytes = 0
        self.added = self.acknowledged = self.expired = self.killed = self.replaced = 0

    def take(self, count: int) -> int:
        """Count messages that come in; returns the seq of the first."""
        first = self.next_seq
        self.next_seq = first + count
        self.added += count
        return first

    def gone(self, count: int, why: Gone) -> None:
        """Count messages that have left for good."""
        match why:
            case Gone.ACKNOWLEDGED:
                self.acknowledged += count
            case Gone.EXPIRED:
                self.expired += count
            case Gone.REPLACED:
                self.replaced += count
            case Gone.KILLED | Gone.REMOVED:
                self.killed += count

    def took_back(self, count: int, lost: int = 0) -> None:
        """So many were restored from pages, so many cannot be: they count as killed."""
        self.added -= count
        self.killed += lost

    @property
    def gone_count(self) -> int:
        """Messages that have left, for whatever reason."""
        return self.acknowledged + self.expired + self.killed + self.replaced
