"""Reads of streams that are under way: how many, and how large their answers may be.

    begun ──read on a thread──> answered ──taken by its client, piece by piece──> over
      └──its client has gone────────┴──not taken for a while, and others wait──────^

An answer is in memory until its client has taken it, so that answers are smaller while there are
many of them. One more than there may be is refused for now, unless the client of another takes
nothing: that one is cut. It asks again, as after any answer that was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from gateway.management.http import Response
from gateway.management.stream_answers import arrow_response
from gateway.model.errors import Code, RefusedError

#: Reads, and times that are looked for, that are under way at once.
READS_MAX: Final = 48
#: What their answers share; each may have `ANSWER_LEAST`, which is a block, whatever the others do.
ANSWERS_BYTES: Final = 32 << 20
ANSWER_LEAST: Final = 1 << 20
#: A client that takes nothing for so long may be cut when others wait.
STALL_SECONDS: Final = 5.0


class Clock(Protocol):
    """How long something was. Implemented by the reactor."""

    def seconds(self) -> float: ...


class Reads:
    """See the module text."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way: dict[Read, None] = {}
        self._bytes = 0

    def begin(self, most: int = 0) -> Read:
        """Begin a read with an answer of up to `most` bytes; `Read.bytes_max` says of how many.

        Raises RefusedError (store-busy).
        """
        if len(self._under_way) >= READS_MAX and not self._cut_one():
            raise RefusedError.of(
                Code.STORE_BUSY,
                f"{READS_MAX} reads of streams are under way, and no more are possible at a time. "
                "Try again.",
                transient=True,
            )
        share = min(most, max(ANSWER_LEAST, (ANSWERS_BYTES - self._bytes) // 2))
        read = Read(self, share, self._clock.seconds())
        self._under_way[read] = None
        self._bytes += share
        return read

    def _cut_one(self) -> bool:
        """Cut the answer that nothing was taken of for longest, if that is long enough."""
        before = self._clock.seconds() - STALL_SECONDS
        stalled = [read for read in self._under_way if read.cut is not None]
        slowest = min(stalled, key=lambda read: read.moved, default=None)
        if slowest is None or slowest.moved > before:
            return False
        cut = slowest.cut
        slowest.end()
        assert cut is not None, "chosen and not to be cut"
        cut()
        return True

    def over(self, read: Read) -> None:
        """Count a read that has ended."""
        if read in self._under_way:
            del self._under_way[read]
            self._bytes -= read.bytes_max

    def moved(self, read: Read) -> None:
        """Its client has taken something."""
        read.moved = self._clock.seconds()


class Read:
    """One read under way.

    Attributes:
        bytes_max: where its answer is to end.
        moved: when its client took something last.
        cut: ends the connection that takes its answer; None while there is none.
    """

    def __init__(self, reads: Reads, bytes_max: int, now: float) -> None:
        self._reads = reads
        self.bytes_max = bytes_max
        self.moved = now
        self.cut: Callable[[], None] | None = None

    def answer(self, pieces: list[bytes]) -> Response:
        """Return the answer; the read is over when it is sent, or when whoever sends it closes."""
        made = arrow_response(pieces)
        assert not isinstance(made.body, bytes), "an answer in one piece"
        self._reads.moved(self)
        return Response(
            status=made.status,
            body=_Taken(self, made.body),
            content_type=made.content_type,
            length=made.length,
            cuttable=self._may_be_cut,
        )

    def _may_be_cut(self, cut: Callable[[], None]) -> None:
        self.cut = cut

    def took(self) -> None:
        """Its client has taken something."""
        self._reads.moved(self)

    def end(self) -> None:
        """It is over; more than once is as good."""
        self.cut = None
        self._reads.over(self)


class _Taken(Iterator[bytes]):
    """The pieces of an answer, and whether they are taken."""

    def __init__(self, read: Read, pieces: Iterator[bytes]) -> None:
        self._read = read
        self._pieces = pieces

    def __next__(self) -> bytes:
        piece = next(self._pieces, None)
        if piece is None:
            self.close()
            raise StopIteration
        self._read.took()
        return piece

    def close(self) -> None:
        """Let go of what was not taken."""
        self._pieces = iter(())
        self._read.end()
