"""All replays of streams: who has one, when each hands out, and what they have in common.

They hand out at the end of a turn, before queues do, each a share, all together for a bounded time;
what is left goes on in a turn of its own. A message that is converted for the other protocol costs
twenty times one that is not, so that each share is as large as it was quick before. A thousand that
wait at the head of a stream cost the stream one call, and each what its message costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from twisted.python.failure import Failure

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.ports import Consumer, ConsumerFacts
from gateway.model.stream_start import At, StreamStart
from gateway.model.turn import Turn
from gateway.streams.blocks import Blocks
from gateway.streams.finding import find_offset
from gateway.streams.registry import StreamRegistry
from gateway.streams.replay import UNSETTLED_FREE, Matches, Replay, Stage
from gateway.streams.stream import Stream
from gateway.streams.tap import Tap

#: Messages that one replay looks at before the others have their turn: at first, at most, and at
#: least, however long they take.
RUN_FIRST: Final = 16
RUN_MESSAGES: Final = 512
RUN_LEAST: Final = 8
#: How long they are meant to take.
RUN_SECONDS: Final = 0.001
#: What all replays look at in one turn of the reactor, and how long.
TURN_MESSAGES: Final = 2048
TURN_SECONDS: Final = 0.004
#: Times that are looked for at once: the worker threads have tails to seal as well.
FINDS_MAX: Final = 2
#: What a turn is charged for each replay beside its messages: asking it costs as much as these.
_ASKING: Final = 4


class Jump(NamedTuple):
    """Retention dropped [first, end) of a stream before a replay of it had come to them."""

    stream: str
    address: str
    consumer: ConsumerFacts
    first: int
    end: int


class Replays:
    """See the module text. Implements what replays need of those around them."""

    def __init__(
        self,
        registry: StreamRegistry,
        turn: Turn,
        *,
        seconds: Callable[[], float],
        on_jump: Callable[[Jump], None],
    ) -> None:
        """`seconds` is a clock, for how long work takes."""
        self.blocks = Blocks(registry)
        self.unsettled = 0
        self._registry = registry
        self._turn = turn
        self._seconds = seconds
        self._on_jump = on_jump
        self._touched: list[Replay] = []
        self._behind: set[Replay] = set()
        self._searches: deque[tuple[Replay, int]] = deque()
        self._searching = 0
        self._crowded_out: dict[Replay, None] = {}
        self._replays: dict[int, dict[Replay, None]] = {}
        self._watchers: dict[int, Callable[[], None]] = {}

    def open(
        self, address: str, consumer: Consumer, start: StreamStart, matches: Matches | None
    ) -> Replay:
        """Begin one; it hands out nothing inside this call. Raises RefusedError."""
        tap = self._registry.find_address(address)
        if tap is None:
            raise RefusedError.of(
                Code.NOT_FOUND,
                f"No stream taps the address {address!r}, and a consumer makes none. Make one with "
                f'POST /api/v1/streams, or with [streams."{address}"] in the configuration; it '
                "keeps what the address accepts from then on.",
            )
        _check(tap.stream, start)
        replay = Replay(self, tap, start, consumer, matches, share=RUN_FIRST)
        number = tap.stream.stream_id
        if number not in self._replays:
            self._replays[number] = {}
            self._watchers[number] = partial(self._rose, tap)
            tap.watchers.append(self._watchers[number])
        self._replays[number][replay] = None
        tap.replays += 1
        replay.begin()
        return replay

    # ---- what replays need

    def touch(self, replay: Replay) -> None:
        """See Around."""
        if not replay.touched:
            replay.touched = True
            if not self._touched:
                self._turn.at_end(self._dispatch)
            self._touched.append(replay)

    def dispatch_now(self, replay: Replay) -> None:
        """See Around."""
        self._hand_out(replay)
        if replay.again:
            self.touch(replay)

    def settled(self, count: int) -> None:
        """See Around."""
        self.unsettled -= count
        assert self.unsettled >= 0, "more was settled than went out"
        if self._crowded_out and self.unsettled <= UNSETTLED_FREE:
            waiting, self._crowded_out = self._crowded_out, {}
            for replay in waiting:
                replay.ready()

    def crowded_out(self, replay: Replay) -> None:
        """See Around."""
        self._crowded_out[replay] = None

    def find(self, replay: Replay, since_ms: int) -> None:
        """See Around."""
        self._searches.append((replay, since_ms))
        self._find_next()

    def _find_next(self) -> None:
        """Look for times, few at once: those that attach and leave again cost nothing then."""
        while self._searches and self._searching < FINDS_MAX:
            replay, since_ms = self._searches.popleft()
            if replay.stage is Stage.SEARCHING:
                self._searching += 1
                self._find(replay, since_ms)

    def _find(self, replay: Replay, since_ms: int) -> None:
        tap = replay.tap

        def looked(result: int | Failure) -> None:
            self._searching -= 1
            self._turn.after(self._find_next)
            if isinstance(result, Failure):
                if not isinstance(result.value, Exception):
                    result.raiseException()
                replay.failed(result.value)
                return
            head = tap.stream.durable_offset
            replay.found(None if result >= head else result, head)

        find_offset(tap, since_ms, self._registry, replay.cursor.offset).addBoth(looked)

    def jumped(self, replay: Replay, first: int, end: int) -> None:
        """See Around."""
        stream = replay.tap.stream
        stream.skipped_messages += end - first
        who = replay.consumer.facts()
        self._on_jump(Jump(stream.name, stream.address, who, first, end))

    def caught_up(self, replay: Replay) -> None:
        """See Around."""
        replay.cursor.behind = False
        self._behind.discard(replay)
        if not self._behind:
            self.blocks.forget()

    def left(self, replay: Replay) -> None:
        """See Around."""
        tap = replay.tap
        number = tap.stream.stream_id
        tap.replays -= 1
        there = self._replays[number]
        del there[replay]
        if not there:
            del self._replays[number]
            tap.watchers.remove(self._watchers.pop(number))
        self._crowded_out.pop(replay, None)
        self.caught_up(replay)

    # ---- inside

    def _rose(self, tap: Tap) -> None:
        """The head of a stream has risen, or the stream is deleted."""
        there = list(self._replays[tap.stream.stream_id])
        if tap.deleted:
            text = f"The stream {tap.stream.name!r} of {tap.stream.address!r} was deleted."
            for replay in there:
                replay.removed(Refusal(code=Code.QUEUE_DELETED, text=text))
            return
        for replay in there:
            replay.wake()

    def _dispatch(self) -> None:
        """Let those that were touched hand out; bounded, the rest goes on in the next turn."""
        touched, self._touched = self._touched, []
        budget = TURN_MESSAGES
        ends = self._seconds() + TURN_SECONDS
        unserved: list[Replay] = []
        again: list[Replay] = []
        for replay in touched:
            replay.touched = False
            if budget <= 0 or (budget < TURN_MESSAGES and self._seconds() >= ends):
                unserved.append(replay)
                continue
            budget -= self._hand_out(replay) + _ASKING
            if replay.again:
                again.append(replay)
        if unserved or again:
            self._turn.after(partial(self._go_on, unserved + again))

    def _hand_out(self, replay: Replay) -> int:
        begun = self._seconds()
        limit = min(replay.share, RUN_MESSAGES)
        looked = replay.dispatch(limit)
        took = self._seconds() - begun
        if took > RUN_SECONDS:
            replay.share = max(RUN_LEAST, int(limit * RUN_SECONDS / took))
        elif looked >= limit:
            replay.share = min(2 * limit, RUN_MESSAGES)
        if replay.cursor.behind:
            self._behind.add(replay)
        return looked

    def _go_on(self, replays: list[Replay]) -> None:
        for replay in replays:
            self.touch(replay)


def _check(stream: Stream, start: StreamStart) -> None:
    """Raise RefusedError for an offset that no message can have by now."""
    if start.at is At.OFFSET and start.value > stream.next_offset:
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"The stream {stream.name!r} has given no offset {start.value} yet; the next message "
            f"gets {stream.next_offset}. Was the stream deleted and made again (this is its life "
            f"{stream.epoch})? Begin with next, or with first.",
        )
