"""How many connections there may be: what the process has descriptors for, shared out.

    all that may be open (RLIMIT_NOFILE)
      open already      listeners, the reactor's own, the lock, the journal
      the store         its next files, and the page files that it keeps open
      arriving          what is accepted while those that make room for it are still closing
      management        an eighth of the rest, four at least
      clients           what is left, whatever their listener

Who has said who it is keeps its place. Of those that have not, each listener has a small number,
and the oldest goes when another one comes; so does the oldest of all listeners when descriptors
run out. Nothing here knows a protocol.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from storage.pages import OPEN_MAX

#: New journal files, Arrow files, what is read of them, and a reserve.
STORE_RESERVE: Final = 32
#: Page files are kept open by the writer and by both readers.
PAGES_RESERVE: Final = 3 * OPEN_MAX
#: Connections of management that there is always room for.
MANAGEMENT_MIN: Final = 4
MANAGEMENT_PART: Final = 8
#: Connections that a listener takes before it lets others have their turn.
ACCEPTS_AT_ONCE: Final = 8
#: What is open without any connection, where the system does not say.
_OPEN_GUESS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What there is room for: connections of clients, and of management."""

    clients: int
    management: int
    most: int


class Crowd(Protocol):
    """The connections of one listener."""

    @property
    def count(self) -> int:
        """How many are open, those that are about to close as well."""

    def oldest_stranger(self) -> tuple[float, str] | None:
        """Return since when, and by what name, who has not said who it is; the oldest of them."""

    def dismiss(self, name: str, why: str) -> None:
        """Cut the connection of that name."""


class Descriptors:
    """Shares out what the process may open; without `measure` there is no end of it.

    Attributes:
        share: how much that is; None before it is known.
        crowds: the listeners that share it.
    """

    __slots__ = ("crowds", "share")

    def __init__(self) -> None:
        self.share: Share | None = None
        self.crowds: Sequence[Crowd] = ()

    def measure(self, *, listeners: int) -> Share:
        """Work out the shares, before so many listeners are opened.

        Raises OSError when nothing is left for clients.
        """
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.share = share_out(most, in_use=_in_use() + listeners, listeners=listeners)
        return self.share

    @property
    def spare(self) -> bool:
        """Whether there is one for another client, and nobody has to go for it."""
        share = self.share
        return share is None or sum(crowd.count for crowd in self.crowds) < share.clients

    def has_room(self) -> bool:
        """Whether one more client may stay; the oldest stranger of all goes for it."""
        share = self.share
        if share is None or self.spare:
            return True
        found = [(oldest, crowd) for crowd in self.crowds if (oldest := crowd.oldest_stranger())]
        if not found:
            return False
        (_, name), crowd = min(found, key=lambda one: one[0])
        crowd.dismiss(name, f"the {share.clients} descriptors for clients are in use")
        return True


def share_out(most: int, *, in_use: int, listeners: int) -> Share:
    """Return what of `most` descriptors is for whom; raises OSError when none is for clients."""
    left = most - in_use - STORE_RESERVE - PAGES_RESERVE - ACCEPTS_AT_ONCE * listeners
    management = max(MANAGEMENT_MIN, left // MANAGEMENT_PART)
    if left - management < 1:
        needed = most - left + MANAGEMENT_MIN + 1
        raise OSError(
            f"this process may have {most} open files (RLIMIT_NOFILE) and needs {needed} before it "
            "can take a client; raise the limit: ulimit -n, or LimitNOFILE of its unit"
        )
    return Share(clients=left - management, management=management, most=most)


def _in_use() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return _OPEN_GUESS
