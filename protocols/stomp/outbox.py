"""What waits to be written: frames that may go now, and confirmations that wait for the journal.

Beside them the subscriptions that found no room for their messages: they are asked again when there
is room.

Where messages carry the output (WebSocket), it is told where each frame of it ends.

Confirmations leave in the order of the frames that asked for them, and none before its ticket is on
disk: one that needs no disk still stands behind an earlier one that does. This is the only place
that a RECEIPT passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, Protocol

from protocols.stomp.frame import END

#: What a confirmation that waits costs beside its bytes.
_WAITING_BYTES: Final = 128


class Starved(Protocol):
    """What waits for room in the output."""

    def again(self) -> None:
        """There may be room again."""


class Outbox:
    """The sending half of a connection.

    Attributes:
        write_room: set by the shell; False while much output waits.
        starved: those who found the output full, until they are fed.
        size: bytes that `take` would return.
        waiting_bytes: what is held back for the journal, and what keeping it costs.
        needed: highest ticket of anything done here; what DISCONNECT's RECEIPT waits for.
    """

    __slots__ = (
        "_asked",
        "_consumed",
        "_durable",
        "_frames",
        "_sizes",
        "_taken",
        "_waiting",
        "needed",
        "size",
        "starved",
        "waiting_bytes",
        "write_room",
    )

    def __init__(self, *, apart: bool = False) -> None:
        """`apart`: `apart` will be asked."""
        self._frames: list[bytes] = []
        self._sizes: list[int] | None = [] if apart else None  # of the frames that wait
        self._taken: list[int] = []  # of those that were taken last
        self._waiting: deque[tuple[int, bytes, Callable[[], None] | None, bool]] = deque()
        self._consumed: set[int] = set()  # tickets that are not on disk, and need not be
        self._durable = 0
        self._asked = False  # the journal will say how far it is
        self.write_room = True
        self.starved: list[Starved] = []
        self.needed = 0
        self.size = 0
        self.waiting_bytes = 0

    def asks(self) -> bool:
        """Whether the journal is to be asked now, for what is held back; it is asked only once."""
        if self._asked or not self._waiting:
            return False
        self._asked = True
        return True

    def feed(self) -> None:
        """Have those who found the output full ask their queues again."""
        starved, self.starved = self.starved, []
        for one in starved:
            one.again()

    def write(self, frames: bytes, sizes: Sequence[int] = ()) -> None:
        """Send `frames` with the next `take`.

        `sizes` are those of the frames, where it is not one alone, nor RECEIPTs.
        """
        self._frames.append(frames)
        self.size += len(frames)
        if self._sizes is not None and frames:
            self._sizes += sizes or _sizes_of(frames)

    def note(self, ticket: int) -> None:
        """Remember that something with this ticket was done, though nobody asked to hear of it."""
        self.needed = max(self.needed, ticket)

    def confirm(
        self,
        ticket: int,
        frames: bytes,
        then: Callable[[], None] | None = None,
        *,
        sent: bool = False,
    ) -> None:
        """Send `frames` once `ticket` is on disk and all earlier confirmations have gone.

        `then` is called when they are handed over to `take`. `sent`: they stand for messages sent
        with this ticket and for nothing else, and need no disk when these are consumed.
        """
        self.needed = max(self.needed, ticket)
        if self._waiting or ticket > self._durable:
            self._waiting.append((ticket, frames, then, sent))
            self.waiting_bytes += len(frames) + _WAITING_BYTES
            return
        self.write(frames)
        if then is not None:
            then()

    def durable_up_to(self, ticket: int) -> None:
        """Let go what waited for tickets up to this one: the journal's answer."""
        self._asked = False
        self._durable = max(self._durable, ticket)
        self._let_go()
        if self._consumed:
            self._consumed = {one for one in self._consumed if one > self._durable}

    def consumed(self, tickets: Sequence[int]) -> bool:
        """Let go what stood for these tickets, in order; returns whether something went."""
        if not any(each[0] in tickets for each in self._waiting):
            return False
        self._consumed.update(tickets)
        before = len(self._waiting)
        self._let_go()
        return len(self._waiting) < before

    def _let_go(self) -> None:
        waiting = self._waiting
        while waiting:
            ticket, frames, then, sent = waiting[0]
            if ticket > self._durable and not (sent and ticket in self._consumed):
                return
            waiting.popleft()
            self.waiting_bytes -= len(frames) + _WAITING_BYTES
            self.write(frames)
            if then is not None:
                then()

    def failed(self) -> None:
        """Confirm nothing more: the journal's other answer."""
        self._asked = False
        self.forget_waiting()

    def forget_waiting(self) -> None:
        """Confirm nothing more: the journal has failed or the peer is gone."""
        self._waiting.clear()
        self.waiting_bytes = 0

    def take(self) -> bytes:
        """Return all that may be written now."""
        frames = self._frames
        if not frames:
            return b""
        self._frames = []
        self.size = 0
        if self._sizes is not None:
            self._taken, self._sizes = self._sizes, []
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def apart(self, data: bytes) -> Sequence[bytes]:
        """Return what `take` has just returned frame by frame. HOT."""
        sizes = self._taken
        if len(sizes) < 2:
            return (data,)
        return [data[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


def _sizes_of(frames: bytes) -> Sequence[int]:
    """Return the sizes of RECEIPTs, whose headers have no NUL, or of one other frame."""
    if not frames.startswith(b"RECEIPT\n"):
        return (len(frames),)
    return [len(one) + len(END) for one in frames.split(END)[:-1]]
