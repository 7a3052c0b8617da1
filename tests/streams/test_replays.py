"""Replays over a real registry: where they begin, what they show, what they cost and survive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.trial.unittest import SynchronousTestCase

from gateway.model.errors import Refusal, RefusedError
from gateway.model.message import DURABLE, EXPIRES, REPLAYED, SCHEDULED, STOMP, Message
from gateway.model.ports import ConsumerFacts
from gateway.model.run import MixedRun, Run
from gateway.model.stream_start import At, StreamStart
from gateway.model.turn import Turn
from gateway.streams import blocks, replay, replays
from gateway.streams.replay import Stage
from gateway.streams.replays import Jump, Replays
from gateway.streams.retention import Limits
from gateway.streams.settings import StreamSettings
from tests.storage.power import PowerFiles
from tests.streams.harness import Inline, Later, fill, make_registry, stomp_message

FIRST = StreamStart(at=At.FIRST)
LAST = StreamStart(at=At.LAST)
NEXT = StreamStart(at=At.NEXT)


def at(offset: int) -> StreamStart:
    return StreamStart(at=At.OFFSET, value=offset)


class Taker:
    """A consumer: `credit` messages at a time, settled at once unless `holds`."""

    def __init__(self, credit: int = 10**9, *, holds: bool = False) -> None:
        self.credit = credit
        self.holds = holds
        self.got: list[Message] = []
        self.held: list[Message] = []
        self.ends = 0
        self.bursts: list[int] = []
        self.gone: Refusal | None = None
        self.most = 10**9  # more than these of a burst do not fit, and go back
        self.subscription: Any = None

    def room(self) -> int:
        return self.credit

    def deliver(self, messages: list[Message], any_flags: int) -> None:
        assert all(message.flags & ~any_flags == 0 for message in messages)
        assert len(messages) <= self.credit
        if len(messages) > self.most:
            self.subscription.release(messages[self.most :], unseen=True)
            messages = messages[: self.most]
        self.bursts.append(len(messages))
        self.got += messages
        self.credit -= len(messages)
        if self.holds:
            self.held += messages
        else:
            self.subscription.acknowledge(messages)

    def exhausted(self) -> None:
        self.ends += 1

    def removed(self, refusal: Refusal) -> None:
        self.gone = refusal
        held, self.held = self.held, []
        self.subscription.release(held)
        self.subscription.close()

    def facts(self) -> ConsumerFacts:
        return ConsumerFacts(protocol="AMQP", connection="c", remote="r", user=None, name="taker")

    def expelled(self, refusal: Refusal) -> None:
        raise AssertionError(refusal)

    @property
    def offsets(self) -> list[int]:
        return [message.seq for message in self.got]

    def settle(self, count: int = 10**9) -> None:
        now, self.held = self.held[:count], self.held[count:]
        self.subscription.acknowledge(now)

    def grant(self, credit: int) -> None:
        self.credit += credit
        self.subscription.ready()


class ReplaysTest(SynchronousTestCase):
    """One stream `orders`; `fill` makes durable messages, `seal` puts them into the log."""

    def setUp(self) -> None:
        self.open()

    def open(self, *, bytes_max: int = 0, blocking: Any = None, segment_bytes: int = 1) -> None:
        settings = StreamSettings(retention=Limits(bytes_max=bytes_max))
        self.registry, _, self.now = make_registry(
            "root",
            fs=PowerFiles(),
            blocking=blocking,
            settings=settings,
            segment_bytes=segment_bytes,
        )
        self.registry.create("orders", "orders")
        self.tap = self.registry.get("orders")
        self.stream = self.tap.stream
        self.deferred: list[Callable[[], None]] = []
        self.turn = Turn(self.deferred.append)
        self.jumps: list[Jump] = []
        self.seconds = 0.0
        self.replays = Replays(
            self.registry, self.turn, seconds=lambda: self.seconds, on_jump=self.jumps.append
        )

    def end_turn(self) -> bool:
        """Run what was put off; False when nothing was."""
        deferred, self.deferred[:] = list(self.deferred), []
        for action in deferred:
            action()
        return bool(deferred)

    def settle_down(self) -> int:
        turns = 0
        while self.end_turn():
            turns += 1
            assert turns < 10_000, "it never comes to rest"
        return turns

    def fill(self, *bodies: bytes) -> None:
        for body in bodies:
            fill(self.registry, "orders", [stomp_message(body)])

    def seal(self) -> None:
        self.registry.flush()

    def take(self, start: StreamStart, taker: Taker | None = None, matches: Any = None) -> Taker:
        taker = taker or Taker()
        taker.subscription = self.replays.open("orders", taker, start, matches)
        return taker

    def five(self, sealed: int) -> None:
        for index in range(5):
            self.now.ms += 100
            self.fill(b"%d" % index)
            if index < sealed:
                self.seal()

    # -- where it begins

    def test_each_place_wherever_the_messages_are(self) -> None:
        for sealed in range(6):
            self.open()
            before = self.now.ms
            self.five(sealed)
            for start, offsets in (
                (FIRST, [0, 1, 2, 3, 4]),
                (LAST, [4]),
                (NEXT, []),
                (at(0), [0, 1, 2, 3, 4]),
                (at(3), [3, 4]),
                (at(5), []),
                (StreamStart(at=At.TIME, value=0), [0, 1, 2, 3, 4]),
                (StreamStart(at=At.TIME, value=before + 300), [2, 3, 4]),
                (StreamStart(at=At.TIME, value=before + 301), [3, 4]),
                (StreamStart(at=At.TIME, value=before + 501), []),
            ):
                taker = self.take(start)
                self.settle_down()
                assert taker.offsets == offsets, (sealed, start)
                taker.subscription.close()

    def test_what_comes_later_comes_to_all(self) -> None:
        self.five(3)
        takers = [self.take(start) for start in (FIRST, LAST, NEXT, at(5))]
        self.settle_down()
        self.fill(b"5", b"6")
        self.settle_down()
        assert [taker.offsets for taker in takers] == [
            [0, 1, 2, 3, 4, 5, 6], [4, 5, 6], [5, 6], [5, 6],
        ]  # fmt: skip
        assert [m.body for m in takers[2].got] == [stomp_message(b"5"), stomp_message(b"6")]

    def test_a_time_that_is_to_come(self) -> None:
        self.five(2)
        taker = self.take(StreamStart(at=At.TIME, value=self.now.ms + 50))
        self.settle_down()
        self.fill(b"early")
        self.settle_down()
        self.now.ms += 50
        self.fill(b"late")
        self.settle_down()
        assert taker.offsets == [6]

    def test_next_leaves_out_what_is_accepted_and_not_yet_durable(self) -> None:
        base = self.stream.record(Run([stomp_message(b"x")], STOMP), self.now.ms)
        self.stream.recorded(base, 1, 9)
        takers = [self.take(NEXT), self.take(FIRST), self.take(LAST)]
        self.settle_down()
        assert [taker.offsets for taker in takers] == [[], [], []]
        self.registry.durable_up_to(9)
        self.settle_down()
        assert [taker.offsets for taker in takers] == [[], [0], [0]]

    def test_an_offset_that_was_dropped_begins_with_the_first_that_is_kept(self) -> None:
        self.open(bytes_max=1)
        self.five(5)
        assert self.stream.first_offset == 4
        for start in (FIRST, at(0), at(2), StreamStart(at=At.TIME, value=0)):
            taker = self.take(start)
            self.settle_down()
            assert taker.offsets == [4]
        assert self.jumps == []

    def test_an_offset_that_nobody_has_is_refused(self) -> None:
        self.five(2)
        with pytest.raises(RefusedError, match=r"no offset 6 yet; the next message gets 5.*life 1"):
            self.take(at(6))
        assert self.tap.replays == 0

    def test_without_a_stream(self) -> None:
        with pytest.raises(RefusedError, match=r"No stream taps the address 'x'.*POST /api/v1"):
            self.replays.open("x", Taker(), FIRST, None)

    # -- what it shows

    def test_flags_of_a_queue_are_no_flags_of_a_replay(self) -> None:
        bodies = [stomp_message(b"a"), stomp_message(b"b")]
        run = MixedRun(bodies, [STOMP | EXPIRES | 7, STOMP | DURABLE | SCHEDULED], [5, 0], [0, 9])
        for sealed in (False, True):
            self.open()
            base = self.stream.record(run, self.now.ms)
            self.stream.recorded(base, 2, 1)
            self.registry.durable_up_to(1)
            if sealed:
                self.seal()
            taker = self.take(FIRST)
            self.settle_down()
            assert [m.flags for m in taker.got] == [
                STOMP | 7 | REPLAYED, STOMP | DURABLE | REPLAYED,
            ]  # fmt: skip
            assert [m.body for m in taker.got] == bodies

    def test_a_selector_passes_over_the_others(self) -> None:
        for sealed in (0, 3, 5):
            self.open()
            self.five(sealed)
            taker = self.take(FIRST, Taker(credit=1), lambda m: m.body[-1] in b"024")
            self.settle_down()
            assert taker.offsets == [0]
            taker.grant(5)
            self.settle_down()
            assert taker.offsets == [0, 2, 4]
            assert taker.subscription.cursor.offset == 5

    def test_holes_are_passed_over(self) -> None:
        self.fill(b"0")
        self.stream.next_offset = 5  # as after a crash that lost what was in memory only
        self.fill(b"5", b"6")
        for sealed in (False, True):
            if sealed:
                self.seal()
            for start, offsets in ((FIRST, [0, 5, 6]), (at(2), [5, 6]), (at(6), [6]), (LAST, [6])):
                taker = self.take(start)
                self.settle_down()
                assert taker.offsets == offsets, (sealed, start)

    def test_large_messages_come_a_block_at_a_time(self) -> None:
        later = Later()
        self.open(blocking=later)  # nothing is sealed
        later.step()
        body = b"x" * (400 << 10)
        self.fill(*[body] * 7)
        assert self.stream.sealed_offset == 0
        taker = self.take(FIRST)
        self.settle_down()
        assert taker.offsets == list(range(7))
        assert taker.bursts == [3, 3, 1]

    # -- credit, and what is unsettled

    def test_credit_is_kept_to(self) -> None:
        self.five(2)
        taker = self.take(FIRST, Taker(credit=0))
        self.settle_down()
        for grant, offsets in ((1, [0]), (2, [0, 1, 2]), (9, [0, 1, 2, 3, 4])):
            taker.grant(grant)
            self.settle_down()
            assert taker.offsets == offsets
        assert taker.credit == 7

    def test_every_outcome_is_taken_and_nothing_comes_again(self) -> None:
        self.five(3)
        taker = self.take(FIRST, Taker(holds=True))
        self.settle_down()
        one = taker.subscription
        assert one.in_flight == 5
        held, taker.held = taker.held, []
        assert one.acknowledge(held[:1]) == one.reject(held[1:2]) == 0
        assert one.release(held[2:3]) == one.release(held[3:4], failed=True) == 0
        one.annotate(held[4:], {}, 99)
        assert one.release(held[4:], undeliverable_here=True, delayed=True) == 0
        self.settle_down()
        assert (one.in_flight, taker.offsets) == (0, [0, 1, 2, 3, 4])
        assert self.replays.unsettled == 0

    def test_what_did_not_fit_is_shown_again(self) -> None:
        for sealed in (0, 3, 5):
            self.open()
            self.five(sealed)
            taker = Taker(credit=3)
            taker.most = 2
            self.take(FIRST, taker)
            self.settle_down()
            taker.grant(4)
            self.settle_down()
            assert taker.offsets == [0, 1, 2, 3, 4]

    def test_unsettled_deliveries_are_bounded(self) -> None:
        self.patch(replay, "UNSETTLED_MAX", 3)
        self.five(2)
        taker = self.take(FIRST, Taker(holds=True))
        self.settle_down()
        assert taker.offsets == [0, 1, 2]
        taker.settle(2)
        self.settle_down()
        assert taker.offsets == [0, 1, 2, 3, 4]

    def test_unsettled_deliveries_are_fewer_in_a_crowd(self) -> None:
        self.patch(replay, "UNSETTLED_MAX", 6)
        self.patch(replay, "UNSETTLED_LEAST", 2)
        self.patch(replay, "UNSETTLED_ALL", 10)
        fill(self.registry, "orders", [stomp_message(b"x")] * 9)
        takers = [self.take(FIRST, Taker(holds=True)) for _ in range(4)]
        self.settle_down()
        assert [len(taker.got) for taker in takers] == [6, 6, 2, 2]
        assert self.replays.unsettled == 16
        takers[2].settle(1)  # still crowded: one for one
        takers[0].settle(5)
        self.settle_down()
        assert [len(taker.got) for taker in takers] == [7, 6, 3, 2]
        while any(taker.held for taker in takers):
            for taker in takers:
                taker.settle()
            self.settle_down()
        assert [len(taker.got) for taker in takers] == [9, 9, 9, 9]
        assert self.replays.unsettled == 0

    def test_one_that_was_crowded_out_goes_on_when_others_leave(self) -> None:
        self.patch(replay, "UNSETTLED_ALL", 8)
        self.patch(replays, "UNSETTLED_FREE", 5)
        self.patch(replay, "UNSETTLED_LEAST", 2)
        fill(self.registry, "orders", [stomp_message(b"x")] * 9)
        first, second, third = [self.take(FIRST, Taker(holds=True)) for _ in range(3)]
        self.settle_down()
        assert [len(taker.got) for taker in (first, second, third)] == [9, 2, 2]
        third.subscription.close()
        first.settle()
        self.settle_down()
        assert len(second.got) == 9, "it settles nothing before it has more"

    def test_what_is_left_unsettled_is_given_up_at_the_end(self) -> None:
        self.five(2)
        taker = self.take(FIRST, Taker(holds=True))
        self.settle_down()
        assert self.replays.unsettled > 0
        taker.subscription.close()
        assert self.replays.unsettled == 0
        taker.settle()
        taker.subscription.close()
        assert (self.replays.unsettled, self.tap.replays, self.tap.watchers) == (0, 0, [])

    # -- drain

    def test_a_drain_ends_at_the_head(self) -> None:
        self.five(0)
        taker = self.take(FIRST, Taker(credit=9))
        taker.subscription.dispatch_now()
        assert taker.offsets == [0, 1, 2, 3, 4]
        assert not taker.subscription.keeps_searching()
        self.settle_down()
        assert taker.ends == 0

    def test_a_drain_waits_for_the_block(self) -> None:
        later = Later()
        self.open(blocking=later)
        later.step()
        self.five(0)
        self.seal()
        later.step()
        taker = self.take(FIRST, Taker(credit=9))
        taker.subscription.dispatch_now()
        assert (taker.offsets, taker.subscription.keeps_searching()) == ([], True)
        self.settle_down()
        assert taker.ends == 0
        later.step()
        self.settle_down()
        assert (taker.offsets, taker.ends) == ([0, 1, 2, 3, 4], 1)
        assert not taker.subscription.keeps_searching()

    def test_a_drain_waits_for_a_time(self) -> None:
        later = Later()
        self.open(blocking=later)
        later.step()
        self.five(0)
        self.seal()
        later.step()
        taker = self.take(StreamStart(at=At.TIME, value=self.now.ms + 1), Taker(credit=9))
        taker.subscription.dispatch_now()
        assert taker.subscription.keeps_searching()
        later.step()
        self.settle_down()
        assert (taker.offsets, taker.ends) == ([], 1)

    # -- turns

    def test_a_turn_is_bounded_and_shared(self) -> None:
        self.patch(replays, "RUN_MESSAGES", 10)
        self.patch(replays, "TURN_MESSAGES", 50)
        for sealed in (False, True):
            self.open()
            fill(self.registry, "orders", [stomp_message(b"x")] * 100)
            if sealed:
                self.seal()
            takers = [self.take(FIRST) for _ in range(6)]
            seen = []
            while self.end_turn():
                counts = [len(taker.got) for taker in takers]
                seen.append(sum(counts))
                assert max(counts) - min(counts) <= 20
            assert [len(taker.got) for taker in takers] == [100] * 6
            assert max(b - a for a, b in zip([0, *seen], seen, strict=False)) <= 60

    def test_shares_are_small_where_messages_are_dear(self) -> None:
        fill(self.registry, "orders", [stomp_message(b"x")] * 3000)
        takers = [self.take(FIRST) for _ in range(8)]
        for taker in takers:
            self.dear(taker, 0.0002)
        shares: list[int] = []
        while True:
            begun, before = self.seconds, sum(len(taker.got) for taker in takers)
            if not self.end_turn():
                break
            shares.append(sum(len(taker.got) for taker in takers) - before)
            assert self.seconds - begun <= 0.008
        assert [len(taker.got) for taker in takers] == [3000] * 8
        assert max(shares) <= 40

    def dear(self, taker: Taker, seconds: float) -> None:
        """Have each message that a consumer is given take its time."""
        deliver = taker.deliver

        def slow(messages: list[Message], flags: int) -> None:
            self.seconds += seconds * len(messages)
            deliver(messages, flags)

        self.patch(taker, "deliver", slow)

    def test_a_selector_that_matches_nothing_does_not_hold_a_turn_up(self) -> None:
        fill(self.registry, "orders", [stomp_message(b"x")] * 3000)
        looked: list[int] = []

        def matches(message: Message) -> bool:
            looked.append(message.seq)
            return False

        taker = self.take(FIRST, None, matches)
        while self.end_turn():
            assert len(looked) <= replays.RUN_MESSAGES + 256
            looked.clear()
        assert (taker.offsets, taker.subscription.cursor.offset) == ([], 3000)

    def test_a_thousand_at_the_head_share_the_bodies(self) -> None:
        takers = [self.take(NEXT) for _ in range(1000)]
        self.settle_down()
        body = stomp_message(b"x")
        fill(self.registry, "orders", [body])
        turns = self.settle_down()
        assert all([m.body for m in taker.got] == [body] for taker in takers)
        assert all(taker.got[0].body is body for taker in takers)
        assert 2 <= turns <= 5
        assert len(self.tap.watchers) == 1
        for taker in takers:
            taker.subscription.close()
        assert (self.tap.watchers, self.tap.replays) == ([], 0)

    # -- blocks

    def test_those_at_one_place_read_a_block_once(self) -> None:
        self.five(5)
        reads: list[int] = []
        read = self.tap.log.read

        def watched(ref: Any) -> Any:
            reads.append(ref.first)
            return read(ref)

        self.tap.log.read = watched  # type: ignore[method-assign]
        takers = [self.take(FIRST) for _ in range(20)]
        self.settle_down()
        assert all(taker.offsets == [0, 1, 2, 3, 4] for taker in takers)
        assert reads == [0, 1, 2, 3, 4]

    def test_blocks_are_bounded_and_given_back(self) -> None:
        for _ in range(10):
            fill(self.registry, "orders", [stomp_message(b"x" * 1000)] * 10)
            self.seal()
        self.replays.blocks = blocks.Blocks(Inline(), bytes_max=25_000)
        slow = [self.take(at(10 * i), Taker(credit=1)) for i in range(10)]
        self.settle_down()
        assert 0 < self.replays.blocks._size <= 25_000
        for taker in slow:
            assert len(taker.got) == 1
            taker.grant(1)
            self.settle_down()
            assert len(taker.got) == 2, "its block is read again"
        assert self.replays.blocks._size <= 25_000
        for taker in slow:
            taker.subscription.close()
        assert self.replays.blocks._size == 0

    def test_few_blocks_are_read_at_a_time(self) -> None:
        later = Later()
        self.open(blocking=later)
        later.step()
        for _ in range(10):
            self.fill(b"x")
            self.seal()
            later.step()
        takers = [self.take(at(i), Taker(credit=1)) for i in range(10)]
        self.settle_down()
        assert len(later.waiting) == blocks.READS_MAX
        while later.waiting:
            later.step()
            self.settle_down()
            assert len(later.waiting) <= blocks.READS_MAX
        assert [taker.offsets for taker in takers] == [[i] for i in range(10)]

    # -- what happens meanwhile

    def test_retention_under_a_slow_replay_is_a_jump_that_is_told(self) -> None:
        self.open(bytes_max=3000, segment_bytes=500)
        taker = self.take(FIRST, Taker(credit=0))
        for index in range(20):
            self.fill(b"%03d" % index + b"x" * 200)
            self.seal()
        first = self.stream.first_offset
        assert first > 0
        taker.grant(2)
        self.settle_down()
        assert taker.offsets == [first, first + 1]
        (jump,) = self.jumps
        assert (jump.stream, jump.consumer.name, jump.first, jump.end) == (
            "orders", "taker", 0, first,
        )  # fmt: skip
        assert self.stream.skipped_messages == first
        assert self.tap.floor() is None, "a replay holds nothing back"

    def test_dropped_while_its_block_is_on_its_way(self) -> None:
        later = Later()
        self.open(blocking=later)
        later.step()
        for index in range(4):
            self.fill(b"%d" % index)
            self.seal()
            later.step()
        taker = self.take(FIRST)
        self.settle_down()
        self.stream.first_offset = 2
        self.tap.log.drop(2)
        while later.waiting:
            later.step()
            self.settle_down()
        assert taker.offsets == [2, 3]
        assert [(j.first, j.end) for j in self.jumps] == [(0, 2)]

    def test_sealed_under_it(self) -> None:
        later = Later()
        self.open(blocking=later)
        later.step()
        self.five(0)
        taker = self.take(FIRST, Taker(credit=2))
        self.settle_down()
        self.seal()
        later.step()
        assert self.stream.sealed_offset == 5
        taker.grant(9)
        self.settle_down()
        later.step()
        self.settle_down()
        assert taker.offsets == [0, 1, 2, 3, 4]

    def test_a_stream_that_is_deleted_ends_its_replays(self) -> None:
        self.five(3)
        asleep, busy = self.take(FIRST), self.take(FIRST, Taker(credit=1))
        self.settle_down()
        self.registry.delete("orders")
        for taker in (asleep, busy):
            assert taker.gone is not None
            assert "'orders' of 'orders' was deleted" in taker.gone.text
        assert self.tap.replays == 0
        self.settle_down()

    def test_a_block_that_cannot_be_read_ends_the_replay_and_no_other(self) -> None:
        self.five(5)
        read = self.tap.log.read

        def broken(ref: Any) -> Any:
            if ref.first == 2:
                raise OSError(5, "Input/output error")
            return read(ref)

        self.tap.log.read = broken  # type: ignore[method-assign]
        taker, other = self.take(FIRST), self.take(at(3))
        self.settle_down()
        assert taker.offsets == [0, 1]
        assert taker.gone is not None
        assert "'orders' cannot be read at offset 2" in taker.gone.text
        assert (other.offsets, other.gone) == ([3, 4], None)

    def test_a_time_that_cannot_be_looked_for_ends_the_replay(self) -> None:
        later = Later()
        self.open(blocking=later)
        later.step()
        self.five(0)
        self.seal()
        later.step()

        def broken(_: Any) -> Any:
            raise OSError(5, "Input/output error")

        self.tap.log.read = broken  # type: ignore[method-assign]
        taker = self.take(StreamStart(at=At.TIME, value=1))
        later.step()
        assert taker.gone is not None

    def test_few_times_are_looked_for_at_once_and_none_for_those_that_left(self) -> None:
        later = Later()
        self.open(blocking=later)
        later.step()
        self.five(0)
        self.seal()
        later.step()
        takers = [self.take(StreamStart(at=At.TIME, value=1)) for _ in range(10)]
        for taker in takers[2:9]:
            taker.subscription.close()
        assert len(later.waiting) == replays.FINDS_MAX == 2
        steps = 0
        while later.waiting:
            later.step()
            steps += 1
            self.settle_down()
        assert [len(taker.got) for taker in takers] == [5, 5] + [0] * 7 + [5]
        assert steps == 3 + 1  # a block was read as well

    def test_closed_while_it_waits(self) -> None:
        later = Later()
        self.open(blocking=later)
        later.step()
        self.five(0)
        self.seal()
        later.step()
        for start in (FIRST, StreamStart(at=At.TIME, value=1)):
            taker = self.take(start)
            self.settle_down()
            taker.subscription.close()
            assert taker.subscription.stage is Stage.ENDED
            later.step()
            self.settle_down()
            assert (taker.offsets, taker.gone) == ([], None)

    def test_progress(self) -> None:
        self.five(2)
        taker = self.take(FIRST, Taker(credit=2))
        self.settle_down()
        assert taker.subscription.progress == ("orders", 2, 3)
        assert taker.subscription.browses
        ahead = self.take(NEXT)
        assert ahead.subscription.progress == ("orders", 5, 0)
