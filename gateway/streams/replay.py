"""One consumer that replays a stream: where it is, and what it was shown. Takes nothing.

    stage       input                                  next
    SEARCHING   the message of a time was found        READING
    READING     the next block is not in memory        LOADING
    LOADING     it came, or retention was faster       READING
    the three   closed, deleted, cannot be read        ENDED

It begins at an offset and goes up. What it was shown is settled by any outcome, and every outcome
means the same: nothing is removed, nothing comes again. Only what has not left the gateway
(`unseen`) is shown once more, since the consumer's room was guessed.

    first <= offset <= durable_offset       what it may be shown
    below sealed_offset                     blocks of the log, by `Blocks`
    from there on                           the tail

It holds nothing back: retention may drop what it has not seen, and it goes on with what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol

from gateway.model.amqp_types import Value
from gateway.model.errors import Code, Refusal
from gateway.model.message import REPLAYED, Message
from gateway.model.ports import Consumer, Progress
from gateway.model.stream_start import At, StreamStart
from gateway.streams.blocks import SHOWN_FLAGS, Block, Blocks, Found, tail_messages
from gateway.streams.stream import BLOCK_BYTES
from gateway.streams.tap import Tap

#: Messages that one replay may have out unsettled, whatever its credit. Their bodies are gone once
#: they are written; what is left of one takes 150 bytes or so.
UNSETTLED_MAX: Final = 32_768
#: What each may have once all replays together have `UNSETTLED_ALL`: as much as clients settle at
#: once, since one that waits for more before it settles would wait for ever.
UNSETTLED_LEAST: Final = 256
UNSETTLED_ALL: Final = 262_144
#: Messages that a selector looks at between two questions for room.
_LOOKS: Final = 256
_ANY_FLAGS: Final = SHOWN_FLAGS | REPLAYED

Matches = Callable[[Message], bool]


class Stage(Enum):
    """See the module text."""

    SEARCHING = "searching"
    READING = "reading"
    LOADING = "loading"
    ENDED = "ended"


class Around(Protocol):
    """What a replay needs of those around it."""

    blocks: Blocks
    unsettled: int

    def touch(self, replay: Replay) -> None:
        """Have it dispatched at the end of this turn."""

    def dispatch_now(self, replay: Replay) -> None:
        """Have it hand out at once what there is room for."""

    def find(self, replay: Replay, since_ms: int) -> None:
        """Look for a time from the replay's offset on; `found` or `failed` is told later."""

    def jumped(self, replay: Replay, first: int, end: int) -> None:
        """Retention had dropped [first, end) before the replay came to it."""

    def caught_up(self, replay: Replay) -> None:
        """It has all that there is, and reads no blocks."""

    def left(self, replay: Replay) -> None:
        """It has ended."""


class Replay:
    """Implements the Subscription port.

    Attributes:
        offset: what it is shown next.
        asleep: it waits for the head to rise.
        touched: it is to be dispatched.
        again: it could hand out more in its next turn.
        behind: it reads blocks.
    """

    __slots__ = (
        "_around",
        "_asked_end",
        "_at",
        "_block",
        "_count",
        "_held_up",
        "_matches",
        "_since_ms",
        "again",
        "asleep",
        "behind",
        "consumer",
        "offset",
        "stage",
        "tap",
        "touched",
    )

    def __init__(
        self,
        around: Around,
        tap: Tap,
        start: StreamStart,
        consumer: Consumer,
        matches: Matches | None,
    ) -> None:
        self._around = around
        self.tap = tap
        self.consumer = consumer
        self._matches = matches
        self._since_ms = start.value
        self._count = 0
        self._held_up = False  # by what is unsettled
        self._asked_end = False
        self._at = -1  # the first offset of the block that it is in
        self._block: Block | None = None  # one that came for it, until it has looked
        self.asleep = self.touched = self.again = self.behind = False
        self.offset = begin(tap, start)
        self.stage = Stage.SEARCHING if start.at is At.TIME else Stage.READING

    # ---- the Subscription port

    @property
    def queue_name(self) -> str:
        return self.tap.stream.name

    @property
    def address(self) -> str:
        return self.tap.stream.address

    @property
    def browses(self) -> bool:
        return True

    @property
    def in_flight(self) -> int:
        return self._count

    @property
    def progress(self) -> Progress | None:
        """See the Subscription port."""
        stream = self.tap.stream
        lag = max(0, stream.durable_offset - self.offset)
        return Progress(stream=stream.name, offset=self.offset, lag=lag)

    def ready(self) -> None:
        """See the Subscription port."""
        if self.stage is Stage.READING and not self.asleep:
            self._around.touch(self)

    def dispatch_now(self) -> None:
        """See the Subscription port."""
        if self.stage is Stage.READING and not self.asleep:
            self._around.dispatch_now(self)

    def keeps_searching(self) -> bool:
        """See the Subscription port."""
        waits = self.stage is not Stage.ENDED and not self.asleep
        self._asked_end = self._asked_end or waits
        return waits

    def acknowledge(self, messages: list[Message]) -> int:
        """See the Subscription port: nothing is removed."""
        self._let_go(messages)
        return 0

    def release(
        self,
        messages: list[Message],
        *,
        failed: bool = False,
        undeliverable_here: bool = False,
        delayed: bool = False,
        unseen: bool = False,
    ) -> int:
        """See the Subscription port: only what was not written yet is shown once more."""
        self._let_go(messages)
        if unseen and messages and self.stage is not Stage.ENDED:
            self.tap.replayed -= len(messages)
            self.offset = min(self.offset, messages[0].seq)
            self.asleep = False
        return 0

    def annotate(
        self, messages: list[Message], annotations: Mapping[str, Value], size_max: int
    ) -> None:
        """Nothing was taken, and nothing changes."""

    def reject(self, messages: list[Message]) -> int:
        """Nothing was taken, and nothing is a dead letter."""
        self._let_go(messages)
        return 0

    def close(self) -> None:
        """See the Subscription port."""
        if self.stage is not Stage.ENDED:
            self._end()

    def _let_go(self, messages: list[Message]) -> None:
        self._count -= len(messages)
        assert self._count >= 0, "a consumer settled more than it had"
        if self.stage is Stage.ENDED:
            return  # what it held was given up with it
        self._around.unsettled -= len(messages)
        if self._held_up:
            self._held_up = False
            self.ready()

    # ---- what happens to it

    def begin(self) -> None:
        """Look for its place, where that is a time; then, or else at once, it is dispatched."""
        if self.stage is Stage.SEARCHING:
            self._around.find(self, self._since_ms)
        else:
            self._around.touch(self)

    def found(self, offset: int | None, head: int) -> None:
        """The time that it begins at was looked for below `head`, and is there or not yet."""
        if self.stage is not Stage.SEARCHING:
            return
        if offset is None:
            self.offset = head
            self._rest()
            return
        self.offset = offset
        self.stage = Stage.READING
        self._around.touch(self)

    def wake(self) -> None:
        """The head has risen."""
        if self.asleep:
            self.asleep = False
            self.begin()

    def came(self, error: Exception | None, at: int) -> None:
        """The block at `at` is in memory, or cannot be read."""
        if self.stage is not Stage.LOADING:
            return
        gone = isinstance(error, LookupError) and self.offset < self.tap.stream.first_offset
        if error is not None and not gone:
            self.failed(error)
            return
        self.stage = Stage.READING
        self._at = at if error is None else -1
        self._block = self._around.blocks.find(self.tap, at) if error is None else None
        self._around.touch(self)

    def failed(self, error: Exception) -> None:
        """What comes next cannot be read."""
        if self.stage is not Stage.ENDED:
            name, offset = self.tap.stream.name, self.offset
            text = f"The stream {name!r} cannot be read at offset {offset}: {error}"
            self.removed(Refusal(code=Code.STORE_FAILED, text=text))

    def removed(self, refusal: Refusal) -> None:
        """The gateway ends it, and tells the consumer."""
        if self.stage is not Stage.ENDED:
            self._end()
            self.consumer.removed(refusal)

    def _end(self) -> None:
        self.stage = Stage.ENDED
        self._block = None
        self._around.unsettled -= self._count
        self._around.left(self)

    # ---- dispatch

    def dispatch(self, limit: int) -> int:
        """Show what there is room for; returns how many messages it has looked at, to `limit`."""
        self.again = False
        block, self._block = self._block, None
        stream = self.tap.stream
        looked = 0
        while self.stage is Stage.READING:
            room = self.consumer.room()
            if room <= 0:
                self._tell_end()
                break
            room = min(room, self._allowance())
            if room <= 0:
                self._held_up = True
                break
            if self.offset < stream.first_offset:
                self._jump(stream.first_offset)
            if self.offset >= stream.durable_offset:
                self._rest()
                break
            if looked >= limit:
                self.again = True
                break
            count = min(limit - looked, room if self._matches is None else _LOOKS)
            if self.offset >= stream.sealed_offset:
                found = self._of_tail(count)
            else:
                block = self._of_log(block)
                if block is None:
                    break
                found = block.messages(self.offset, count)
            looked += max(1, len(found[0]))
            self._show(found, room)
        return looked

    def _allowance(self) -> int:
        """Return how many more may be out unsettled."""
        crowded = self._around.unsettled >= UNSETTLED_ALL
        return (UNSETTLED_LEAST if crowded else UNSETTLED_MAX) - self._count

    def _of_tail(self, count: int) -> Found:
        """Return what comes next in memory: of large messages no more than a block has."""
        stream = self.tap.stream
        end = min(self.offset + count, stream.durable_offset)
        runs = stream.tail(self.offset, end)
        size = 0
        for index, run in enumerate(runs, 1):
            size += run.size
            if size >= BLOCK_BYTES and index < len(runs):
                return tail_messages(runs[:index]), run.end
        return tail_messages(runs), end

    def _of_log(self, block: Block | None) -> Block | None:
        """Return the block that has the offset; None while it is on its way."""
        offset = self.offset
        blocks = self._around.blocks
        self.behind = True
        if block is None or not block.first <= offset < block.end:
            block = blocks.find(self.tap, self._at) if self._at >= 0 else None
            if block is not None and offset == block.end:
                self._at = offset  # blocks follow one another without a gap
                block = blocks.find(self.tap, offset)
        if block is not None and block.first <= offset < block.end:
            return block
        refs = self.tap.log.blocks(offset, offset + 1)
        if not refs:
            self.failed(LookupError("no block has it"))
            return None
        self._at = at = refs[0].first
        block = blocks.find(self.tap, at)
        if block is None:
            self.stage = Stage.LOADING
            blocks.read(self.tap, refs[0], lambda error: self.came(error, at))
        return block

    def _show(self, found: Found, room: int) -> None:
        messages, self.offset = found
        if self._matches is not None:
            messages = list(filter(self._matches, messages))
            if len(messages) > room:
                self.offset = messages[room].seq
                messages = messages[:room]
        if not messages:
            return
        self._count += len(messages)
        self.tap.replayed += len(messages)
        self._around.unsettled += len(messages)
        self.consumer.deliver(messages, _ANY_FLAGS)

    def _rest(self) -> None:
        """Wait for the head: there is nothing more for now."""
        self.asleep = True
        self._at = -1
        self._around.caught_up(self)
        self._tell_end()

    def _tell_end(self) -> None:
        if self._asked_end:
            self._asked_end = False
            self.consumer.exhausted()

    def _jump(self, first: int) -> None:
        before, self.offset = self.offset, first
        self._at = -1
        self._around.jumped(self, before, first)


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
