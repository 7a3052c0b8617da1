"""What a queue has counted: messages that came, and where they went."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.model.message import Message
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
        assert count >= 0, "fewer than no messages came"
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
        assert self.gone_count <= self.added, "more have left than came"

    def took_back(self, count: int, lost: int = 0) -> None:
        """So many were restored from pages, so many cannot be: they count as killed."""
        assert count >= 0 <= lost, "fewer than none were read back, or lost"
        self.added -= count
        self.killed += lost
        assert self.gone_count <= self.added, "read back, and never added"

    @property
    def gone_count(self) -> int:
        """Messages that have left, for whatever reason."""
        return self.acknowledged + self.expired + self.killed + self.replaced

    def check_invariants(self) -> None:
        """Assert what figures of one queue promise one another."""
        assert self.size_bytes >= 0, "size went below zero"
        gone = self.acknowledged, self.expired, self.killed, self.replaced
        assert min(gone) >= 0, f"fewer than none have left: {gone}"
        assert 0 <= self.gone_count <= self.added, "more have left than came"
        assert self.added < self.next_seq, "more came than there are seqs"

    def check_size(self, held: Iterable[Iterable[Message]], *, exact: bool) -> None:
        """Assert that the size is that of these, and of more if not `exact`."""
        size = sum(len(message.body) for messages in held for message in messages)
        assert size <= self.size_bytes, f"{size} bytes wait, and {self.size_bytes} are counted"
        assert not exact or size == self.size_bytes, f"{self.size_bytes} bytes of nothing"
