"""The stream against a naive model: a list of messages, each with the state it is in."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.model.errors import Code, Refusal
from gateway.model.run import MixedRun, Run
from gateway.streams.stream import BLOCK_BYTES, BLOCK_MESSAGES, TAKE_BLOCKS, Accepted, Stream, Taken
from tests.lanes import examples


class Port:
    def __init__(self) -> None:
        self.seals: list[Stream] = []
        self.advances: list[int] = []

    def seal(self, stream: Stream) -> None:
        self.seals.append(stream)

    def advanced(self, stream: Stream) -> None:
        self.advances.append(stream.durable_offset)


def make() -> tuple[Stream, Port]:
    port = Port()
    return Stream(7, "orders", "orders", 1, port), port


def record(stream: Stream, bodies: Sequence[bytes], ticket: int, now_ms: int = 5) -> int:
    base = stream.record(Run(list(bodies), 4), now_ms)
    stream.recorded(base, len(bodies), ticket)
    return base


def bodies_of(runs: Sequence[Accepted]) -> list[bytes]:
    return [body for run in runs for body in run.bodies]


def test_offsets_follow_one_another_and_only_durable_ones_are_advertised() -> None:
    stream, port = make()
    assert record(stream, [b"a", b"b"], 3) == 0
    assert record(stream, [b"c"], 4) == 2
    assert (stream.next_offset, stream.durable_offset) == (3, 0)
    stream.durable_up_to(3)
    assert stream.durable_offset == 2
    assert bodies_of(stream.tail(0, 10)) == [b"a", b"b"]
    stream.durable_up_to(9)
    assert port.advances == [2, 3]


def test_what_the_journal_has_not_is_advertised_once_sealed_and_holds_back_what_follows() -> None:
    stream, port = make()
    record(stream, [b"a"], 1)
    record(stream, [b"volatile"], 0)
    record(stream, [b"b"], 2)
    stream.durable_up_to(2)
    assert (stream.durable_offset, stream.volatile) == (1, True)
    stream.ask_seal()
    assert port.seals == [stream]
    taken = stream.take()
    assert taken is not None
    assert (taken.first, taken.end, bodies_of(taken.runs)) == (0, 3, [b"a", b"volatile", b"b"])
    stream.sealed()
    assert (stream.durable_offset, stream.sealed_offset, stream.volatile) == (3, 3, False)
    assert stream.tail_bytes == 0


def test_a_volatile_run_alone_can_be_sealed_at_once() -> None:
    stream, _ = make()
    record(stream, [b"v"], 0)
    assert stream.take() == Taken(0, 1, [Accepted(0, [b"v"], 4, 5, 1)])
    stream.sealed()
    assert stream.durable_offset == 1


def test_what_waits_for_the_journal_is_not_sealed() -> None:
    stream, _ = make()
    record(stream, [b"a"], 1)
    record(stream, [b"v"], 0)
    assert stream.take() is None
    stream.durable_up_to(1)
    taken = stream.take()
    assert taken is not None
    assert taken.end == 2


@pytest.mark.parametrize(
    ("count", "size", "asked"),
    [
        (BLOCK_MESSAGES - 1, 1, False),
        (BLOCK_MESSAGES, 1, True),
        (2, BLOCK_BYTES // 2 - 1, False),
        (2, BLOCK_BYTES // 2, True),
    ],
)
def test_asks_to_be_sealed_at_a_block_of_messages_or_bytes(
    count: int, size: int, asked: bool
) -> None:
    stream, port = make()
    record(stream, [b"x" * size] * count, 1)
    assert port.seals == []
    stream.durable_up_to(1)
    assert bool(port.seals) is asked


def test_takes_a_bounded_part_and_asks_again() -> None:
    stream, port = make()
    run = [b"x"] * BLOCK_MESSAGES
    for _ in range(TAKE_BLOCKS + 2):
        record(stream, run, 1)
    stream.durable_up_to(1)
    taken = stream.take()
    assert taken is not None
    assert taken.end == TAKE_BLOCKS * BLOCK_MESSAGES
    assert stream.take() is None, "one sealing at a time"
    port.seals.clear()
    stream.sealed()
    assert port.seals == [stream]


def test_a_failed_sealing_keeps_everything() -> None:
    stream, _ = make()
    record(stream, [b"a", b"b"], 1)
    stream.durable_up_to(1)
    first = stream.take()
    stream.seal_failed()
    assert stream.sealed_offset == 0
    assert stream.take() == first


def test_flags_of_a_mixed_run_are_cut_with_it() -> None:
    stream, _ = make()
    base = stream.record(MixedRun([b"a", b"b", b"c"], [1, 2, 3], [0, 0, 0]), 5)
    stream.recorded(base, 3, 1)
    stream.durable_up_to(1)
    assert stream.tail(1, 2) == [Accepted(1, [b"b"], [2], 5, 1)]


def test_a_failed_store_advertises_nothing_more() -> None:
    stream, _ = make()
    record(stream, [b"a"], 1)
    refusal = Refusal(code=Code.STORE_FAILED, text="gone")
    stream.store_failed(refusal)
    stream.durable_up_to(9)
    assert (stream.durable_offset, stream.failed) == (0, refusal)


def test_recovery_drops_what_the_log_has_and_tells_holes() -> None:
    stream, port = make()
    tail = [Accepted(2, [b"c", b"d", b"e"], 4, 5, 3), Accepted(8, [b"i"], 4, 5, 1)]
    assert stream.recover(1, 4, tail) == [(5, 8)]
    assert (stream.first_offset, stream.sealed_offset) == (1, 4)
    assert (stream.durable_offset, stream.next_offset, stream.tail_bytes) == (9, 9, 2)
    assert bodies_of(stream.tail(0, 99)) == [b"e", b"i"]
    stream.ask_seal()
    taken = stream.take()
    assert taken is not None
    assert (taken.first, taken.end) == (4, 9)
    assert port.seals == [stream]


def test_recovery_refuses_an_offset_twice() -> None:
    stream, _ = make()
    with pytest.raises(ValueError, match="offset 2 of stream 'orders' was recovered twice"):
        stream.recover(0, 0, [Accepted(0, [b"a"] * 3, 4, 5, 3), Accepted(2, [b"c"], 4, 5, 1)])


class Model(RuleBasedStateMachine):
    """Whatever the order of calls, readers see a prefix of what was recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.stream, self.port = make()
        self.all: list[bytes] = []
        self.tickets: list[int] = []
        self.ticket = 1
        self.synced = 0
        self.in_log: list[bytes] = []
        self.taken: Taken | None = None
        self.seen = 0

    @rule(count=st.integers(1, 5), durable=st.booleans(), next_batch=st.booleans())
    def record(self, count: int, durable: bool, next_batch: bool) -> None:
        self.ticket += next_batch
        bodies = [b"%d" % (len(self.all) + i) for i in range(count)]
        assert record(self.stream, bodies, self.ticket if durable else 0) == len(self.all)
        self.all += bodies
        self.tickets += [self.ticket if durable else 0] * count

    @rule()
    def sync(self) -> None:
        self.synced, self.ticket = self.ticket, self.ticket + 1
        self.stream.durable_up_to(self.synced)

    @rule()
    def take(self) -> None:
        busy = self.taken is not None
        taken = self.stream.take()
        if busy:
            assert taken is None
        elif taken is not None:
            self.taken = taken
            assert taken.first == len(self.in_log)
            assert bodies_of(taken.runs) == self.all[taken.first : taken.end]
            assert all(t <= self.synced for t in self.tickets[taken.first : taken.end])

    @precondition(lambda self: self.taken is not None)
    @rule(works=st.booleans())
    def write(self, works: bool) -> None:
        assert self.taken is not None
        if works:
            self.in_log += bodies_of(self.taken.runs)
            self.stream.sealed()
        else:
            self.stream.seal_failed()
        self.taken = None

    @invariant()
    def readers_see_a_durable_prefix(self) -> None:
        stream = self.stream
        head = stream.durable_offset
        assert self.seen <= head <= len(self.all)
        self.seen = head
        low = len(self.in_log)
        assert stream.sealed_offset == low
        assert bodies_of(stream.tail(low, 1 << 40)) == self.all[low : max(head, low)]
        waiting = [i for i in range(low, head) if not 0 < self.tickets[i] <= self.synced]
        assert waiting == []
        assert stream.tail_bytes == sum(map(len, self.all[low:]))

    @invariant()
    def everything_that_can_be_is_advertised(self) -> None:
        for i in range(self.stream.durable_offset, len(self.all)):
            if i < len(self.in_log) or 0 < self.tickets[i] <= self.synced:
                raise AssertionError(f"{i} could be read")
            break


Model.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestModel = Model.TestCase
