"""One consumer that replays a stream: where it is, and what it was shown. Takes nothing.

    stage       input                                  next
    SEARCHING   the message of a time was found        READING
    READING     the next block is not in memory        LOADING
    LOADING     it came, or retention was faster       READING
    the three   closed, deleted, cannot be read        ENDED

It has a `Cursor`, which goes up. What it was shown is settled by any outcome, and every outcome
means the same: nothing is removed, nothing comes again. Only what has not left the gateway
(`unseen`) is shown once more, since the consumer's room was guessed.

It holds nothing back: retention may drop what it has not seen, and it goes on with what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol

from gateway.model.amqp_types import Value
from gateway.model.errors import Code, Refusal
from gateway.model.grants import Grant
from gateway.model.message import REPLAYED, Message
from gateway.model.ports import Consumer, Progress
from gateway.model.stream_start import At, StreamStart
from gateway.streams.blocks import SHOWN_FLAGS, Blocks, Found
from gateway.streams.cursor import Cursor
from gateway.streams.tap import Tap

#: Messages that one replay may have out unsettled, whatever its credit. Their bodies are gone once
#: they are written; what is left of one takes 150 bytes or so.
UNSETTLED_MAX: Final = 32_768
#: What each may have once all replays together have `UNSETTLED_ALL`: as much as clients settle at
#: once, since one that waits for more before it settles would wait for ever.
UNSETTLED_LEAST: Final = 128
UNSETTLED_ALL: Final = 65_536
#: From here on those that had to wait for the others are asked again: not at each settlement.
UNSETTLED_FREE: Final = 49_152
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
    unsettled: int  # deliveries of all replays

    def settled(self, count: int) -> None:
        """So many are not unsettled any more."""

    def crowded_out(self, replay: Replay) -> None:
        """It has to wait until all replays together have fewer unsettled; it is touched then."""

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
        cursor: what it is shown next.
        asleep: it waits for the head to rise.
        touched: it is to be dispatched.
        again: it could hand out more in its next turn.
        grant: given back at its end.
        share: messages that it looks at in one turn; whoever has it hand out adapts them.
    """

    __slots__ = (
        "_around",
        "_asked_end",
        "_count",
        "_held_up",
        "_matches",
        "_since_ms",
        "again",
        "asleep",
        "consumer",
        "cursor",
        "grant",
        "share",
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
        *,
        share: int,
    ) -> None:
        self.share = share
        self._around = around
        self.tap = tap
        self.consumer = consumer
        self.grant: Grant | None = None
        self._matches = matches
        self._since_ms = start.value
        self._count = 0
        self._held_up = False  # by what is unsettled
        self._asked_end = False
        self.asleep = self.touched = self.again = False
        self.cursor = Cursor(tap, around.blocks, start)
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
        offset = self.cursor.offset
        lag = max(0, stream.durable_offset - offset)
        return Progress(stream=stream.name, offset=offset, lag=lag)

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
            self.cursor.offset = min(self.cursor.offset, messages[0].seq)
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
        self._around.settled(len(messages))
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
            self.cursor.move(head)
            self._rest()
            return
        self.cursor.move(offset)
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
        gone = isinstance(error, LookupError) and self.cursor.offset < self.tap.stream.first_offset
        if error is not None and not gone:
            self.failed(error)
            return
        self.stage = Stage.READING
        if error is None:
            self.cursor.came(at)
        self._around.touch(self)

    def failed(self, error: Exception) -> None:
        """What comes next cannot be read."""
        if self.stage is not Stage.ENDED:
            name, offset = self.tap.stream.name, self.cursor.offset
            text = f"The stream {name!r} cannot be read at offset {offset}: {error}"
            self.removed(Refusal(code=Code.STORE_FAILED, text=text))

    def removed(self, refusal: Refusal) -> None:
        """The gateway ends it, and tells the consumer."""
        if self.stage is not Stage.ENDED:
            self._end()
            self.consumer.removed(refusal)

    def _end(self) -> None:
        self.stage = Stage.ENDED
        if self.grant is not None:
            self.grant.give_back()
        self._around.settled(self._count)
        self._around.left(self)

    # ---- dispatch

    def dispatch(self, limit: int) -> int:
        """Show what there is room for; returns how many messages it has looked at, to `limit`."""
        self.again = False
        looked = 0
        while self.stage is Stage.READING:
            room = self._room()
            if room <= 0 or not self._comes():
                break
            if looked >= limit:
                self.again = True
                break
            count = min(limit - looked, room if self._matches is None else _LOOKS)
            found = self._read(count)
            if found is None:
                return looked
            looked += max(1, len(found.messages))
            self._show(found, room)
        self.cursor.let_go()
        return looked

    def _room(self) -> int:
        """Return how many it may be shown now."""
        room = self.consumer.room()
        if room <= 0:
            self._tell_end()
            return 0
        allowed = self._allowance()
        if allowed <= 0:
            self._held_up = True
            if self._count < UNSETTLED_MAX:
                self._around.crowded_out(self)
        return min(room, allowed)

    def _comes(self) -> bool:
        """Whether there is more; what retention has dropped is passed over."""
        stream, cursor = self.tap.stream, self.cursor
        if cursor.offset < stream.first_offset:
            before = cursor.offset
            cursor.move(stream.first_offset)
            self._around.jumped(self, before, stream.first_offset)
        if cursor.offset < stream.durable_offset:
            return True
        self._rest()
        return False

    def _read(self, count: int) -> Found | None:
        """Return what comes next; None where a block is read before, or none can be."""
        try:
            found = self.cursor.read(count)
        except LookupError as error:
            self.failed(error)
            return None
        if isinstance(found, Found):
            return found
        self.stage = Stage.LOADING
        first = found.first
        self._around.blocks.read(self.tap, found, lambda error: self.came(error, first))
        return None

    def _allowance(self) -> int:
        """Return how many more may be out unsettled."""
        crowded = self._around.unsettled >= UNSETTLED_ALL
        return (UNSETTLED_LEAST if crowded else UNSETTLED_MAX) - self._count

    def _show(self, found: Found, room: int) -> None:
        messages, self.cursor.offset = found
        if self._matches is not None:
            messages = list(filter(self._matches, messages))
            if len(messages) > room:
                self.cursor.offset = messages[room].seq
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
        self.cursor.move(self.cursor.offset)
        self._around.caught_up(self)
        self._tell_end()

    def _tell_end(self) -> None:
        if self._asked_end:
            self._asked_end = False
            self.consumer.exhausted()
