"""The batch that is being filled: what is consumed before it is closed is never written."""

from __future__ import annotations

import random

import pytest

from storage.batch import Batch
from storage.batch_state import Kind
from storage.record import BATCH_HEADER_BYTES, AddRun, Clean, Note, Remove, Suspect, decode_records


def batch_of(*runs: AddRun) -> Batch:
    batch = Batch(1)
    for run in runs:
        batch.add(run, sum(len(b) for b in run.bodies if b is not None))
    return batch


def run_of(first: int, *bodies: bytes, queue: int = 7) -> AddRun:
    return AddRun([(queue, first)], list(bodies), 0x14, 0, 1)


def written(batch: Batch) -> tuple[dict[int, dict[int, bytes]], list[tuple[int, int, int]]]:
    """Return what the payload adds (queue -> seq -> body) and removes (queue, first, last)."""
    adds: dict[int, dict[int, bytes]] = {}
    removes = []
    for record in decode_records(batch.encode()):
        if isinstance(record, AddRun):
            for queue, first in record.targets:
                held = adds.setdefault(queue, {})
                held.update((s, b) for s, b in enumerate(record.bodies, first) if b is not None)
        elif isinstance(record, Remove):
            pairs = zip(record.ranges[::2], record.ranges[1::2], strict=True)
            removes += [(record.queue_id, low, high) for low, high in pairs]
    return adds, removes


def test_a_removal_that_overtakes_its_add_cancels_both() -> None:
    batch = batch_of(run_of(1, b"a"))
    batch.remove(7, 1, 1, 1)
    assert batch.settle_cancelled() == 1
    assert batch.encode() == b""
    assert batch.removed_live == []


def test_what_was_written_before_is_removed_by_a_record() -> None:
    batch = batch_of(run_of(10, b"a"))
    batch.remove(7, 8, 9, 2)
    assert batch.settle_cancelled() == 0
    assert written(batch) == ({7: {10: b"a"}}, [(7, 8, 9)])
    assert batch.removed_live == [(7, 8, 9, 2)]


def test_a_range_over_both_is_cut() -> None:
    batch = batch_of(run_of(10, b"a", b"b", b"c"))
    batch.remove(7, 8, 11, 4)
    assert batch.settle_cancelled() == 2
    assert written(batch) == ({7: {12: b"c"}}, [(7, 8, 9)])
    assert batch.removed_live == [(7, 8, 9, 2)]


def test_another_queues_removal_cancels_nothing() -> None:
    batch = batch_of(run_of(10, b"a"))
    batch.remove(8, 10, 10, 1)
    assert batch.settle_cancelled() == 0
    assert written(batch) == ({7: {10: b"a"}}, [(8, 10, 10)])


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        ([(1, 1)], {2: b"b", 3: b"c", 4: b"d"}),
        ([(4, 4)], {1: b"a", 2: b"b", 3: b"c"}),
        ([(2, 3)], {1: b"a", 4: b"d"}),
        ([(3, 3), (1, 1)], {2: b"b", 4: b"d"}),
        ([(2, 2), (3, 3)], {1: b"a", 4: b"d"}),
        ([(1, 2), (4, 4), (3, 3)], {}),
    ],
)
def test_a_run_is_cut_around_what_is_gone(gone, left) -> None:
    batch = batch_of(run_of(1, b"a", b"b", b"c", b"d"))
    for first, last in gone:
        batch.remove(7, first, last, last - first + 1)
    assert batch.settle_cancelled() == 4 - len(left)
    adds, removes = written(batch)
    assert adds.get(7, {}) == left
    assert removes == []


def test_parts_keep_their_flags_and_expiry() -> None:
    run = AddRun([(7, 1)], [b"a", b"b", None, b"d", b"e"], [1, 2, 3, 4, 5], [4, 5, 6, 7, 8], 9, 77)
    batch = batch_of(run)
    batch.remove(7, 1, 1, 1)
    batch.remove(7, 4, 4, 1)
    assert batch.settle_cancelled() == 2
    (left,) = decode_records(batch.encode())
    assert isinstance(left, AddRun)
    assert list(left.targets) == [(7, 1)]
    assert (list(left.flags), list(left.expires)) == ([1, 2, 3, 4, 5], [4, 5, 6, 7, 8])
    assert (left.accepted_ms, left.due) == (9, 77)
    assert left.bodies == [None, b"b", None, None, b"e"]


def test_of_a_mixed_run_nothing_is_left_when_all_that_is_stored_is_gone() -> None:
    batch = batch_of(AddRun([(7, 1)], [None, b"a", None, b"b"], [1, 2, 1, 2], [0] * 4, 9))
    bound = Batch(2).bytes_bound
    batch.remove(7, 2, 2, 1)
    batch.remove(7, 4, 4, 1)
    assert batch.settle_cancelled() == 2
    assert batch.is_empty()
    assert batch.bytes_bound == bound


def test_what_is_cancelled_takes_no_room() -> None:
    """The bound is that of a batch which never had it, so that segments fill up."""
    for queues in ([7], [7, 8], [7, 8, 9]):
        batch = batch_of(
            AddRun([(queue, 1) for queue in queues], [b"x" * 500, b"y" * 70], 0, 0, 1),
            run_of(3, b"z" * 30),
            run_of(4, b"w" * 900),
        )
        batch.remove(7, 1, 1, 1)
        for queue in queues:
            batch.remove(queue, 1, 2, 2)
        batch.remove(7, 4, 4, 1)
        batch.settle_cancelled()
        assert batch.bytes_bound == batch_of(run_of(3, b"z" * 30)).bytes_bound
    whole = batch_of(run_of(1, b"a" * 9), run_of(2, b"b" * 9))
    before = whole.bytes_bound
    whole.remove(8, 1, 1, 1)
    whole.cancelled[8] = [1, 1]
    room = whole.bytes_bound
    assert whole.settle_cancelled() == 0
    assert whole.bytes_bound == room > before


def test_only_what_is_stored_counts_as_cancelled() -> None:
    batch = batch_of(AddRun([(7, 1)], [b"a", None, b"c"], [1, 2, 3], [4, 5, 6], 9), run_of(4, b"d"))
    for seq in (1, 3, 4):
        batch.remove(7, seq, seq, 1)
    assert batch.settle_cancelled() == 3


def test_a_fan_out_loses_the_queue_that_took_all() -> None:
    batch = batch_of(AddRun([(7, 1), (8, 5)], [b"a", b"b"], 0, 0, 1))
    batch.remove(7, 1, 2, 2)
    assert batch.settle_cancelled() == 0
    assert written(batch) == ({8: {5: b"a", 6: b"b"}}, [])


def test_a_fan_out_taken_in_part_is_written_with_its_removal() -> None:
    batch = batch_of(AddRun([(7, 1), (8, 5)], [b"a", b"b"], 0, 0, 1))
    batch.remove(7, 2, 2, 1)
    assert batch.settle_cancelled() == 0
    assert written(batch) == ({7: {1: b"a", 2: b"b"}, 8: {5: b"a", 6: b"b"}}, [(7, 2, 2)])
    assert batch.removed_live == [(7, 2, 2, 1)]


def test_a_fan_out_taken_by_all_is_not_written() -> None:
    batch = batch_of(AddRun([(7, 1), (8, 5)], [b"a"], 0, 0, 1))
    batch.remove(8, 5, 5, 1)
    batch.remove(7, 1, 1, 1)
    assert batch.settle_cancelled() == 1
    assert batch.encode() == b""


def test_marks_stand_first_and_last() -> None:
    batch = batch_of(run_of(1, b"a"))
    batch.suspect, batch.kind = True, Kind.STOP
    batch.add_note(b"later")
    batch.add_snapshot([b"snapshot"])
    kinds = [type(record) for record in decode_records(batch.encode())]
    assert kinds == [Suspect, Note, Note, AddRun, Clean]
    notes = [r.data for r in decode_records(batch.encode()) if isinstance(r, Note)]
    assert notes == [b"snapshot", b"later"]


@pytest.mark.parametrize("what", ["adds", "removes", "notes", "counts", "clean", "covers"])
def test_what_makes_a_batch_worth_writing(what: str) -> None:
    batch = Batch(1)
    assert batch.is_empty()
    match what:
        case "adds":
            batch.add(run_of(1, b"a"), 1)
        case "removes":
            batch.remove(7, 1, 1, 1)
        case "notes":
            batch.add_note(b"n")
        case "counts":
            batch.count(7, [(1, 2)])
        case "clean":
            batch.mark_stop()
        case "covers":
            batch.cover()
    assert not batch.is_empty()


@pytest.mark.parametrize("seed", range(200))
def test_the_bound_is_never_too_small_and_cancelling_is_exact(seed: int) -> None:
    """Whatever goes in and is taken out again, the bytes fit the room that was counted for them."""
    chance = random.Random(seed)
    batch = Batch(1)
    batch.suspect, batch.kind = True, Kind.STOP
    expected: dict[int, dict[int, bytes]] = {1: {}, 2: {}, 3: {}}
    removed: set[tuple[int, int]] = set()
    following = {1: 100, 2: 200, 3: 300}
    firsts = dict(following)
    for _ in range(chance.randint(1, 40)):
        kind = chance.random()
        if kind < 0.4:
            queues = chance.sample([1, 2, 3], chance.choice([1, 1, 2, 3]))
            bodies: list[bytes | None] = [
                chance.randbytes(chance.randint(0, 9)) for _ in range(chance.randint(1, 4))
            ]
            flags: int | list[int] = 4
            expires: int | list[int] = chance.choice([0, 7])
            if len(queues) == 1 and chance.random() < 0.4:
                bodies = [b if chance.random() < 0.7 else None for b in bodies]
                flags, expires = [4] * len(bodies), [7] * len(bodies)
            targets = [(queue, following[queue]) for queue in queues]
            run = AddRun(targets, bodies, flags, expires, 1, chance.choice([0, 99]))
            batch.add(run, sum(len(b) for b in bodies if b))
            for queue, first in targets:
                following[queue] += len(bodies)
                expected[queue].update(
                    (seq, b) for seq, b in enumerate(bodies, first) if b is not None
                )
        elif kind < 0.8:
            queue = chance.choice([1, 2, 3])
            if expected[queue]:
                low = high = chance.choice(sorted(expected[queue]))
                while high + 1 in expected[queue] and chance.random() < 0.6:
                    high += 1
                for seq in range(low, high + 1):
                    del expected[queue][seq]
                if chance.random() < 0.3 and low == firsts[queue]:
                    low -= 2  # two that an earlier batch wrote
                    firsts[queue] = -1
                    removed.update({(queue, low), (queue, low + 1)})
                batch.remove(queue, low, high, high - low + 1)
        elif kind < 0.9:
            batch.add_note(chance.randbytes(5))
        else:
            batch.count(chance.choice([1, 2, 3]), [(1, 2)] * chance.randint(1, 3))
            batch.postpone(chance.choice([1, 2, 3]), [(1, 2)] * chance.randint(0, 3))
    batch.settle_cancelled()
    batch.add_snapshot([b"snapshot"])
    assert BATCH_HEADER_BYTES + len(batch.encode()) <= batch.bytes_bound
    adds, removes = written(batch)
    gone = {(queue, seq) for queue, low, high in removes for seq in range(low, high + 1)}
    left = {
        queue: {seq: b for seq, b in held.items() if (queue, seq) not in gone}
        for queue, held in adds.items()
    }
    assert {q: h for q, h in left.items() if h} == {q: h for q, h in expected.items() if h}
    assert removed <= gone
    counted = sum(count for _, _, _, count in batch.removed_live)
    assert counted == len(gone), "each removal is counted once"
