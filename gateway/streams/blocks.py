"""Stored blocks in memory, for replays: each is read once for all that are at the same place.

A replay holds an offset and no block. What was read lies here, the least recently used goes first,
so that a thousand replays at a thousand places need no more memory than a few; a slow one whose
block is gone has it read again. Reading is done on a worker thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
from twisted.python.failure import Failure

from gateway.model.message import (
    DURABLE,
    PRIORITY_MASK,
    REPLAYED,
    STOMP,
    TEXT,
    Message,
    ReplayedMessage,
)
from gateway.streams.ports import BlockRef, RunBlocking
from gateway.streams.stream import Accepted
from gateway.streams.tap import Tap

#: Of all blocks: with what is unsettled less than one hostile peer may add [docs/limits.md].
CACHE_BYTES: Final = 32 << 20
#: Blocks that are read at a time; more would only wait for the threads, in memory.
READS_MAX: Final = 4
#: What a replay shows of a message's flags: not its time, expiry and past in a queue.
SHOWN_FLAGS: Final = PRIORITY_MASK | DURABLE | STOMP | TEXT

#: Told with None when a block has come, with an error when it cannot be read.
Told: TypeAlias = Callable[[Exception | None], None]
#: stream id, first offset.
_Key: TypeAlias = tuple[int, int]


class Found(NamedTuple):
    """Messages, and the offset behind what was looked at: some offsets may hold no message."""

    messages: list[Message]
    after: int


class Block:
    """A stored block that was read; [first, end) are the offsets that it covers."""

    __slots__ = ("_flags", "_offsets", "_raw", "_start", "end", "first", "size")

    def __init__(self, ref: BlockRef, rows: pa.RecordBatch) -> None:
        self.first, self.end, self.size = ref.first, ref.end, ref.size
        offsets = rows.column("offset")
        count = len(rows)
        self._start: int = offsets[0].as_py() if count else ref.end
        dense = not count or offsets[count - 1].as_py() - self._start == count - 1
        self._offsets: Sequence[int] | None = None if dense else offsets.to_pylist()
        self._flags = rows.column("flags")
        self._raw = rows.column("raw")

    def messages(self, offset: int, count: int) -> Found:
        """Return up to `count` messages from `offset` on, which lies in the block."""
        known = self._offsets
        at = max(0, offset - self._start) if known is None else bisect_left(known, offset)
        raws = self._raw.slice(at, count).to_pylist()
        flags = self._flags.slice(at, count).to_pylist()
        if not raws:
            return Found([], self.end)
        after = at + len(raws)
        if known is None:
            first = self._start + at
            places: Sequence[int] = range(first, first + len(raws))
        else:
            places = known[at:after]
        messages: list[Message] = [
            ReplayedMessage(raw, place, word & SHOWN_FLAGS | REPLAYED)
            for raw, place, word in zip(raws, places, flags, strict=True)
        ]
        return Found(messages, self.end if after == len(self._raw) else places[-1] + 1)


def tail_messages(runs: Sequence[Accepted]) -> list[Message]:
    """Return messages of a tail as a replay shows them; their bodies are the tail's own."""
    messages: list[Message] = []
    for run in runs:
        if isinstance(run.flags, int):
            word = run.flags & SHOWN_FLAGS | REPLAYED
            messages += [
                ReplayedMessage(body, at, word) for at, body in enumerate(run.bodies, run.base)
            ]
        else:
            messages += [
                ReplayedMessage(body, at, word & SHOWN_FLAGS | REPLAYED)
                for at, (body, word) in enumerate(zip(run.bodies, run.flags, strict=True), run.base)
            ]
    return messages


class Blocks:
    """See the module text."""

    def __init__(self, blocking: RunBlocking, *, bytes_max: int = CACHE_BYTES) -> None:
        self._blocking = blocking
        self._bytes_max = bytes_max
        self._blocks: OrderedDict[_Key, Block] = OrderedDict()
        self._size = 0
        self._told: dict[_Key, list[Told]] = {}
        self._waiting: deque[tuple[_Key, Tap, BlockRef]] = deque()
        self._reading = 0

    def find(self, tap: Tap, first: int) -> Block | None:
        """Return the block that begins at `first`; None while it is not in memory."""
        key = (tap.stream.stream_id, first)
        found = self._blocks.get(key)
        if found is not None:
            self._blocks.move_to_end(key)
        return found

    def read(self, tap: Tap, ref: BlockRef, told: Told | None = None) -> None:
        """Have a block read; `told` is called when it is there, never inside this call."""
        key = (tap.stream.stream_id, ref.first)
        asked = self._told.get(key)
        if asked is None:
            if told is None and key in self._blocks:
                return
            asked = self._told[key] = []
            self._waiting.append((key, tap, ref))
        if told is not None:
            asked.append(told)
        self._read_next()

    def forget(self) -> None:
        """Give the memory back: nobody reads blocks now."""
        self._blocks.clear()
        self._size = 0

    def _read_next(self) -> None:
        while self._waiting and self._reading < READS_MAX:
            self._reading += 1
            key, tap, ref = self._waiting.popleft()
            self._blocking.run(_read, tap, ref).addBoth(self._came, key)

    def _came(self, result: Block | Failure, key: _Key) -> None:
        self._reading -= 1
        error: Exception | None = None
        if isinstance(result, Failure):
            if not isinstance(result.value, Exception):
                result.raiseException()
            error = result.value
        else:
            self._keep(key, result)
        for told in self._told.pop(key):
            told(error)
        self._read_next()

    def _keep(self, key: _Key, block: Block) -> None:
        gone = self._blocks.pop(key, None)
        self._size += block.size - (0 if gone is None else gone.size)
        self._blocks[key] = block
        while self._size > self._bytes_max and len(self._blocks) > 1:
            self._size -= self._blocks.popitem(last=False)[1].size


def _read(tap: Tap, ref: BlockRef) -> Block:
    """Read a block. Blocks the thread; raises what `Log.read` does."""
    return Block(ref, tap.log.read(ref))
