"""Where a replay is in its stream, and what comes next there.

first <= offset <= durable_offset       what it may be shown
below sealed_offset                     blocks of the log, which all replays share
from there on                           the tail, in the stream's own memory
"""

from __future__ import annotations

from gateway.model.stream_start import At, StreamStart
from gateway.streams.blocks import Block, Blocks, Found, tail_messages
from gateway.streams.ports import BlockRef
from gateway.streams.stream import BLOCK_BYTES
from gateway.streams.tap import Tap


class Cursor:
    """See the module text.

    Attributes:
        offset: what comes next.
        behind: it reads blocks.
    """

    __slots__ = ("_at", "_block", "_blocks", "_tap", "behind", "offset")

    def __init__(self, tap: Tap, blocks: Blocks, start: StreamStart) -> None:
        self._tap = tap
        self._blocks = blocks
        self._at = -1  # the first offset of the block that it is in
        self._block: Block | None = None
        self.behind = False
        self.offset = begin(tap, start)

    def read(self, count: int) -> Found | BlockRef:
        """Return up to `count` messages from the offset on, or the block to be read before.

        The caller sees to it that the offset is kept, and below the durable one. Raises LookupError
        when no block has it.
        """
        if self.offset >= self._tap.stream.sealed_offset:
            return self._of_tail(count)
        self.behind = True
        block = self._find()
        if block is not None:
            return block.messages(self.offset, count)
        refs = self._tap.log.blocks(self.offset, self.offset + 1)
        if not refs:
            raise LookupError("no block has it")
        self._at = refs[0].first
        self._block = block = self._blocks.find(self._tap, self._at)
        return refs[0] if block is None else block.messages(self.offset, count)

    def came(self, first: int) -> None:
        """The block that begins at `first` is in memory; it stays until `let_go`."""
        self._at = first
        self._block = self._blocks.find(self._tap, first)

    def let_go(self) -> None:
        """Hold no block any longer: it may be gone when it is wanted again."""
        self._block = None

    def move(self, offset: int) -> None:
        """Go on elsewhere, or rest."""
        self.offset = offset
        self._at = -1

    def _find(self) -> Block | None:
        """Return the block that has the offset, where it is in memory."""
        offset = self.offset
        block = self._block
        if block is None and self._at >= 0:
            block = self._blocks.find(self._tap, self._at)
        if block is not None and offset == block.end:
            self._at = offset  # blocks follow one another without a gap
            block = self._blocks.find(self._tap, offset)
        if block is None or not block.first <= offset < block.end:
            return None
        self._block = block
        return block

    def _of_tail(self, count: int) -> Found:
        """Return what comes next in memory: of large messages no more than a block has."""
        stream = self._tap.stream
        end = min(self.offset + count, stream.durable_offset)
        runs = stream.tail(self.offset, end)
        size = 0
        for index, run in enumerate(runs, 1):
            size += run.size
            if size >= BLOCK_BYTES and index < len(runs):
                return Found(tail_messages(runs[:index]), run.end)
        return Found(tail_messages(runs), end)


def begin(tap: Tap, start: StreamStart) -> int:
    """Return the offset at which a replay begins, or from which on its time is looked for."""
    stream = tap.stream
    match start.at:
        case At.NEXT:
            return stream.next_offset
        case At.LAST:
            return max(stream.first_offset, stream.durable_offset - 1)
        case At.OFFSET:
            return max(stream.first_offset, start.value)
        case At.FIRST | At.TIME:
            return stream.first_offset
