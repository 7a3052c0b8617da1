"""Frames and runs of SENDs that wait in memory, in order, while an address or the disk is full.

ACK and NACK pass what waits, but not each other: those of a transaction pass with the others, and
with the BEGIN that they need. Else a later ACK could take what an earlier one in a transaction had,
which would then fail. Where that BEGIN has to wait, as its name's last use has, they all do. So the
spool counts the ACKs and NACKs that wait, and the names of what begins and ends there.

What waits is counted with what it costs in memory, and bounded. Pure.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, TypeAlias

from protocols.stomp.frame import Head
from protocols.stomp.sending import Route

#: What a waiting frame costs beside its body, receipt and headers.
_FRAME_BYTES: Final = 512
#: What a header costs in its frame, beside its name and value.
_HEADER_BYTES: Final = 64
_SETTLING: Final = ("ACK", "NACK")
_BEGIN: Final = "BEGIN"
#: What gives a transaction's name a meaning, and takes it.
_BORDERS: Final = (_BEGIN, "COMMIT", "ABORT")


class WaitingSends:
    """SENDs of one route that wait, or are on their way."""

    __slots__ = ("bodies", "receipts", "route")

    def __init__(self, route: Route, bodies: list[bytes], receipts: list[bytes]) -> None:
        self.route = route
        self.bodies = bodies
        self.receipts = receipts

    @property
    def receipt(self) -> bytes | None:
        """Its last receipt, None without any."""
        return self.receipts[-1] if self.receipts else None

    def cost(self) -> int:
        """Return what keeping it costs, in bytes."""
        return _FRAME_BYTES + _cost_of(self.bodies) + _cost_of(self.receipts)

    def cut(self, count: int) -> WaitingSends:
        """Take the first `count` off and return them."""
        first = WaitingSends(self.route, self.bodies[:count], self.receipts[:count])
        self.bodies = self.bodies[count:]
        self.receipts = self.receipts[count:]
        return first


class WaitingFrame:
    """Any other frame that waits."""

    __slots__ = ("body", "head")

    def __init__(self, head: Head, body: bytes) -> None:
        self.head = head
        self.body = body

    @property
    def receipt(self) -> bytes | None:
        """What it asked to be confirmed with, or None."""
        return self.head.receipt

    def cost(self) -> int:
        """Return what keeping it costs: text may take four times its bytes, empty text fifty."""
        head = self.head
        size = _FRAME_BYTES + len(self.body) + len(head.receipt or b"") + len(head.stored)
        for name, value in head.headers.items():
            size += _HEADER_BYTES + sys.getsizeof(name) + sys.getsizeof(value)
        return size


Waiting: TypeAlias = WaitingSends | WaitingFrame


class Spool:
    """That of one connection.

    Attributes:
        size: bytes that wait, as counted when they came.
    """

    __slots__ = ("_acks", "_names", "_size_max", "_waiting", "size")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._waiting: deque[tuple[int, Waiting]] = deque()
        self._acks = 0  # ACK and NACK that wait
        self._names: Counter[str | None] = Counter()  # of what begins and ends here
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def keeps_acks(self) -> bool:
        """Whether an ACK or NACK waits, behind which all later ones have to wait."""
        return bool(self._acks)

    def add(self, waiting: Waiting) -> bool:
        """Keep it behind all others; returns False, and keeps nothing, where it does not fit."""
        cost = waiting.cost()
        if self.size + cost > self._size_max:
            return False
        self.size += cost
        self._waiting.append((cost, waiting))
        self._note(waiting, 1)
        return True

    def add_first(self, waiting: Waiting) -> None:
        """Keep what came before all others; it has been taken from the peer, and always fits."""
        cost = waiting.cost()
        self.size += cost
        self._waiting.appendleft((cost, waiting))
        self._note(waiting, 1)

    def take(self) -> Waiting:
        """Return what came first, and forget it."""
        cost, waiting = self._waiting.popleft()
        self.size -= cost
        self._note(waiting, -1)
        assert self.size >= 0
        assert bool(self.size) is bool(self._waiting), "what waits costs something"
        return waiting

    def lets_pass(self, head: Head) -> bool:
        """Whether a frame may act at once although others wait."""
        if head.command not in _SETTLING and head.command != _BEGIN:
            return False
        name = head.headers.get("transaction")
        return not self._acks and (name is None or not self._names[name])

    def clear(self) -> None:
        """Forget what waits, which was never confirmed."""
        self._waiting.clear()
        self._names.clear()
        self._acks = self.size = 0

    def _note(self, waiting: Waiting, count: int) -> None:
        """Count what comes into the spool, or leaves it."""
        if isinstance(waiting, WaitingSends):
            return
        head = waiting.head
        if head.command in _SETTLING:
            self._acks += count
        elif head.command in _BORDERS:
            name = head.headers.get("transaction")
            self._names[name] += count
            if not self._names[name]:
                del self._names[name]


def _cost_of(parts: Sequence[bytes]) -> int:
    # An object costs as much as many a receipt.
    return sum(map(sys.getsizeof, parts)) + 8 * len(parts)
