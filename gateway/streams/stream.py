"""One tap on an address: offsets for what it accepted, and which of them may be advertised.

Pure: knows no file, clock, thread or protocol. Each message has an offset; the offsets of one
stream lie in this order at all times:

    first_offset <= sealed_offset <= durable_offset <= next_offset
    |--- in the log ----|---- the tail, in memory (and in the journal) ----|
                                     ^ readers see what is below durable_offset

A run is recorded in the turn in which the address accepts it and becomes durable with the journal
ticket it was given. A run without a ticket (0: the address keeps it in memory only) becomes durable
when it is sealed into the log; until then nothing behind it is advertised either, so that no
offset that a reader has seen can be given to another message after a crash.

Sealing: when the sealable tail is large or old enough the port is asked to `seal`. It calls
`take`, has the rows written off the reactor, then calls `sealed` (or `seal_failed`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from gateway.model.errors import Refusal
from gateway.model.run import MixedRun, Run

#: A block of the log: what a reader decodes in one step; larger ones gain nothing (measured).
BLOCK_MESSAGES: Final = 4096
BLOCK_BYTES: Final = 1 << 20
#: One sealing takes at most this many blocks: bounds the memory of the writing thread.
TAKE_BLOCKS: Final = 16


class Accepted(NamedTuple):
    """Messages that were accepted together. The lists are shared with the broker: never changed."""

    base: int
    bodies: Sequence[bytes]
    flags: int | Sequence[int]
    now_ms: int
    size: int

    @property
    def end(self) -> int:
        return self.base + len(self.bodies)

    def cut(self, start: int, end: int) -> Accepted:
        """Return the part of the run within [start, end); both lie inside."""
        a, b = start - self.base, end - self.base
        if a == 0 and b == len(self.bodies):
            return self
        flags = self.flags if isinstance(self.flags, int) else self.flags[a:b]
        bodies = self.bodies[a:b]
        return Accepted(start, bodies, flags, self.now_ms, sum(map(len, bodies)))


_base = attrgetter("base")


class Taken(NamedTuple):
    """What is to be sealed: covers [first, end); `runs` may leave offsets out."""

    first: int
    end: int
    runs: list[Accepted]


class StreamPort(Protocol):
    """Who writes the log and wakes readers."""

    def seal(self, stream: Stream) -> None:
        """Enough has gathered: call `take` now or later in this turn."""

    def advanced(self, stream: Stream) -> None:
        """`durable_offset` has grown."""


class Stream:
    """A tap.

    Attributes:
        stream_id: what the journal calls it; never given to another stream.
        name: what people and readers call it.
        address: what is tapped.
        epoch: counts the lives of this name: a new one after each delete.
        first_offset: the lowest offset that can still be read.
        sealed_offset: all below is in the log.
        durable_offset: the head that may be advertised (exclusive).
        next_offset: what the next message gets.
        tail_bytes: of message bodies that are not sealed.
        lost_messages: dropped by retention above the lowest floor, since the start.
        skipped_messages: dropped before a replay had come to them; of each replay, since the start.
    """

    __slots__ = (
        "_oldest_ms", "_pending", "_port", "_runs", "_sealable", "_sealing", "_volatile", "address",
        "durable_offset", "epoch", "failed", "first_offset", "lost_messages", "name",
        "next_offset", "sealed_offset", "skipped_messages", "stream_id", "tail_bytes",
    )  # fmt: skip

    def __init__(
        self, stream_id: int, name: str, address: str, epoch: int, port: StreamPort
    ) -> None:
        self.stream_id = stream_id
        self.name = name
        self.address = address
        self.epoch = epoch
        self.first_offset = 0
        self.sealed_offset = 0
        self.durable_offset = 0
        self.next_offset = 0
        self.tail_bytes = 0
        self.lost_messages = 0
        self.skipped_messages = 0
        self.failed: Refusal | None = None
        self._port = port
        #: The tail, in order of offsets.
        self._runs: list[Accepted] = []
        #: [start, end, ticket] of what is not yet sealable; neighbours of one ticket are one entry.
        self._pending: deque[list[int]] = deque()
        #: (start, end) of sealable runs that only sealing makes durable.
        self._volatile: deque[tuple[int, int]] = deque()
        self._sealable = 0
        self._sealing = 0

    # -- recording: hot ------------------------------------------------------------------------

    def record(self, run: Run | MixedRun, now_ms: int) -> int:
        """Append one run, accepted at `now_ms` of broker time; returns the offset of its first."""
        base = self.next_offset
        self.next_offset = base + run.count
        self.tail_bytes += run.size
        self._runs.append(Accepted(base, run.bodies, run.flags, now_ms, run.size))
        return base

    def recorded(self, base: int, count: int, ticket: int) -> None:
        """Say which journal ticket the run just recorded waits for (0: the journal has it not)."""
        pending = self._pending
        if pending and pending[-1][2] == ticket:
            pending[-1][1] = base + count
        elif ticket or pending:
            pending.append([base, base + count, ticket])
        else:
            self._volatile.append((base, base + count))
            self._sealable = base + count
            self._ask_seal()

    def durable_up_to(self, ticket: int) -> None:
        """All up to `ticket` is synced: advertise it, and seal when enough has gathered."""
        pending = self._pending
        if not pending:
            return
        while pending and pending[0][2] <= ticket:
            start, end, waited_for = pending.popleft()
            if waited_for == 0:
                self._volatile.append((start, end))
            self._sealable = end
        self._advance()
        self._ask_seal()

    def store_failed(self, refusal: Refusal) -> None:
        """The journal has stopped for good: nothing more becomes durable."""
        self.failed = refusal
        self._pending.clear()

    def _advance(self) -> None:
        head = self._volatile[0][0] if self._volatile else self._sealable
        if head > self.durable_offset:
            self.durable_offset = head
            self._port.advanced(self)

    # -- sealing -------------------------------------------------------------------------------

    def _ask_seal(self) -> None:
        waiting = self._sealable - self.sealed_offset
        if waiting >= BLOCK_MESSAGES or (waiting and self.tail_bytes >= BLOCK_BYTES):
            self.ask_seal()

    def ask_seal(self) -> None:
        """Have the sealable tail sealed now, whatever its size."""
        if not self._sealing and self._sealable > self.sealed_offset:
            self._port.seal(self)

    @property
    def volatile(self) -> bool:
        """True while something waits to be sealed before it may be advertised."""
        return bool(self._volatile)

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest message of the tail was accepted; None when the tail is empty."""
        return self._runs[0].now_ms if self._runs else None

    def take(self) -> Taken | None:
        """Return the oldest part of the sealable tail; None when there is none or one is under way.

        It stays readable here until `sealed` is called.
        """
        if self._sealing or self._sealable <= self.sealed_offset:
            return None
        runs: list[Accepted] = []
        count = size = 0
        for run in self._runs:
            if run.base >= self._sealable or count >= TAKE_BLOCKS * BLOCK_MESSAGES:
                break
            if size >= TAKE_BLOCKS * BLOCK_BYTES:
                break
            runs.append(run)
            count += len(run.bodies)
            size += run.size
        self._sealing = runs[-1].end
        return Taken(self.sealed_offset, self._sealing, runs)

    def sealed(self) -> None:
        """What was taken is in the log, synced."""
        end, self._sealing = self._sealing, 0
        self.sealed_offset = end
        count = bisect_left(self._runs, end, key=_base)
        self.tail_bytes -= sum(run.size for run in self._runs[:count])
        del self._runs[:count]
        while self._volatile and self._volatile[0][1] <= end:
            self._volatile.popleft()
        if self._volatile and self._volatile[0][0] < end:
            self._volatile[0] = (end, self._volatile[0][1])
        self._advance()
        self._ask_seal()

    def seal_failed(self) -> None:
        """What was taken was not written: it is still here, and the port is asked again later."""
        self._sealing = 0

    # -- reading -------------------------------------------------------------------------------

    def tail(self, start: int, end: int) -> list[Accepted]:
        """Return the advertised runs of the tail within [start, end), cut to it."""
        end = min(end, self.durable_offset)
        runs = self._runs
        # A replay at the head asks for one message at a time: it must not cost the whole tail.
        first = max(0, bisect_right(runs, start, key=_base) - 1)
        behind = bisect_left(runs, end, first, key=_base)
        return [
            run.cut(max(start, run.base), min(end, run.end))
            for run in runs[first:behind]
            if run.end > start
        ]

    # -- start ---------------------------------------------------------------------------------

    def recover(
        self, first_offset: int, log_next: int, tail: Sequence[Accepted]
    ) -> list[tuple[int, int]]:
        """Take up a stored stream; returns the holes [first, end) between what was recovered.

        A hole is what an address kept in memory only: it was never advertised.

        Args:
            first_offset: the lowest offset of the log.
            log_next: the log holds all below; the same messages in `tail` are dropped.
            tail: what the journal holds, ascending.
        """
        self.first_offset = first_offset
        self.sealed_offset = self.durable_offset = self.next_offset = log_next
        holes: list[tuple[int, int]] = []
        for run in tail:
            if run.end <= log_next:
                continue
            kept = run.cut(max(run.base, log_next), run.end)
            if kept.base < self.next_offset:
                raise ValueError(f"offset {kept.base} of stream {self.name!r} was recovered twice")
            if kept.base > self.next_offset:
                holes.append((self.next_offset, kept.base))
            self._runs.append(kept)
            self.tail_bytes += kept.size
            self.next_offset = kept.end
        self._sealable = self.durable_offset = self.next_offset
        self._ask_seal()
        return holes

    def __repr__(self) -> str:
        return f"Stream({self.name!r}, {self.first_offset}..{self.durable_offset})"
