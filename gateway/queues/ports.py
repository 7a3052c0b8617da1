"""What a queue tells others, and who pays for what it holds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from gateway.model.message import Message

#: The queue's class, which stands on this module.
Q_contra = TypeVar("Q_contra", contravariant=True)


class Gone(Enum):
    """Why a message left the queue for good."""

    ACKNOWLEDGED = "acknowledged"
    EXPIRED = "expired"
    KILLED = "killed"
    REPLACED = "replaced"
    REMOVED = "removed"  # by an operator, or with its queue; counts as killed, goes nowhere


class Peeked(NamedTuple):
    """What is next on pages, and where to go on behind it.

    Attributes:
        unsynced: there are some that are not on disk yet.
        coming: there is no message, since what is next is on its way from the disk.
    """

    messages: list[Message]
    following: int
    unsynced: bool
    coming: bool


class Account(Protocol):
    """Who pays for what the queue holds: its address, as the queue sees it."""

    size_bytes: int
    messages: int


class Backlog(Protocol):
    """What the queue has on page files and not in memory, as the queue sees it."""

    @property
    def count(self) -> int: ...

    @property
    def size(self) -> int:
        """Bytes of their bodies."""

    @property
    def next(self) -> int:
        """Nothing before this seq is there to be read back."""

    @property
    def ahead(self) -> Collection[int]:
        """Seqs of what was read although older ones were not."""

    def unread(self, seq: int) -> bool:
        """Whether a message is not in memory, and not gone."""

    def has(self, seq: int) -> bool:
        """Whether something from that seq on is on disk and was not read."""

    def browse(self, offset: int, limit: int) -> list[Message]: ...

    def skip(self, offset: int) -> int:
        """Return the seq before which so many were not read, without looking at them."""

    def peek(self, start: int, count: int, wake: Callable[[], None] | None = None) -> Peeked:
        """Return up to `count` messages from seq `start` on, untouched: what is on disk.

        What cannot be read is passed over. What is on its way from the disk is told of by `wake`,
        by default by touching the queue: ask again then.
        """

    def take(self, messages: list[Message]) -> None:
        """Read messages that were looked at into the queue, ahead of those before them."""

    def give_back(self, messages: list[Message]) -> None:
        """Have messages that were read ahead wait where they were."""

    def purge(self) -> int:
        """Let all of it go; returns how many that were."""


class Effects(Protocol[Q_contra]):
    """What follows from a queue's change, done by the broker.

    What says so returns the ticket after which the change is on disk; 0: no disk is needed for it.
    """

    def gone(self, queue: Q_contra, messages: list[Message], why: Gone, size: int) -> int:
        """Forget the records of these and give their memory back: `size` bytes of bodies.

        EXPIRED and KILLED messages go on to the expiry or dead-letter address first. Returns the
        ticket.
        """

    def counted(self, queue: Q_contra, messages: list[Message]) -> int:
        """The delivery counts of these durable messages changed; returns the ticket."""

    def given_up(self, queue: Q_contra, messages: list[Message]) -> None:
        """Copies of these go to the dead-letter address, while they stay."""

    def postponed(self, queue: Q_contra, messages: list[Message]) -> int:
        """These durable messages wait for another time; returns the ticket.

        Their delivery counts may have changed.
        """

    def synced_below(self, queue: Q_contra) -> int:
        """Return the seq below which all of the queue that is to be on disk is there.

        When that is not all, the queue is dispatched again as soon as more is.
        """

    def wake(self, queue: Q_contra, at_ms: int) -> None:
        """Have the queue dispatched when broker time is `at_ms`, or soon after."""
