"""What lives in which segment: exact counts, whatever is added and removed in whatever shape."""

from __future__ import annotations

import random

import pytest

from storage.batch import Batch
from storage.record import AddRun
from storage.segment_index import SegmentIndex


def index_of(*added: tuple[int, int, int, int]) -> SegmentIndex:
    """Return an index with (queue, first, last, segment) added."""
    index = SegmentIndex()
    for queue, first, last, segment in added:
        index.added(queue, first, last, segment, last - first + 1)
    return index


def test_a_batch_counts_each_target_and_no_body_that_is_not_stored() -> None:
    index = SegmentIndex()
    batch = Batch(1)
    batch.segment = 4
    batch.add(AddRun([(1, 1), (2, 1)], [b"a", b"b"], 0, 0, 0), 2)
    batch.add(AddRun([(1, 3)], [b"a", None, b"c"], [0, 0, 0], [0, 0, 0], 0), 2)
    index.add_batch(batch)
    assert index.live == {4: 6}


def test_a_removal_is_counted_where_it_lies() -> None:
    index = index_of((1, 1, 10, 1), (1, 11, 20, 2), (2, 1, 5, 2))
    index.removed(1, 3, 4, 2)
    assert index.live == {1: 8, 2: 15}
    index.removed(1, 15, 15, 1)
    assert index.live == {1: 8, 2: 14}
    index.removed(2, 1, 5, 5)
    assert index.live == {1: 8, 2: 9}


def test_a_range_over_several_segments_is_counted_in_each() -> None:
    index = index_of((1, 1, 10, 1), (1, 11, 12, 2), (1, 13, 20, 3))
    index.removed(1, 9, 15, 7)
    assert index.live == {1: 8, 2: 0, 3: 5}
    assert index.reclaimable(9) == []
    index.removed(1, 1, 8, 8)
    assert index.reclaimable(9) == [1, 2]


def test_a_range_with_holes_inside_a_segment_is_counted_by_its_caller() -> None:
    index = SegmentIndex()
    index.added(1, 1, 10, 1, 4)
    index.removed(1, 2, 9, 2)
    assert index.live == {1: 2}
    index.removed(1, 10, 10, 1)
    assert index.live == {1: 1}
    index.added(2, 1, 10, 1, 5)
    index.removed(2, 1, 10, 3)
    assert index.live == {1: 3}, "to the last of them too"


def test_a_removal_never_frees_what_others_have() -> None:
    index = index_of((1, 1, 2, 1), (2, 1, 3, 1))
    index.removed(1, 0, 99, 100)
    assert index.live == {1: 3}
    index.removed(9, 1, 1, 1)
    assert index.live == {1: 3}


def test_a_deleted_queue_counts_nowhere() -> None:
    index = index_of((1, 1, 10, 1), (1, 11, 20, 2), (2, 1, 5, 2))
    index.removed(1, 1, 3, 3)
    index.forget_queue(1)
    index.forget_queue(77)
    index.removed(1, 4, 4, 1)
    assert index.live == {1: 0, 2: 5}


def test_segments_go_oldest_first_and_never_the_current_one() -> None:
    index = index_of((1, 1, 1, 1), (1, 2, 2, 2), (1, 3, 3, 3))
    index.open_segment(4)
    index.removed(1, 2, 3, 2)
    assert index.reclaimable(4) == [], "the oldest lives"
    index.removed(1, 1, 1, 1)
    assert index.reclaimable(3) == [1, 2]
    for segment in index.reclaimable(3):
        index.drop_segment(segment)
    assert index.live == {3: 0, 4: 0}
    index.added(1, 4, 5, 4, 2)
    index.removed(1, 4, 4, 1)
    assert index.live == {3: 0, 4: 1}


def test_settling_a_batch_takes_removals_and_deleted_queues() -> None:
    index = index_of((1, 1, 4, 1), (2, 1, 4, 1))
    batch = Batch(2)
    batch.remove(1, 2, 3, 2)
    batch.forgotten.append(2)
    index.settle_batch(batch)
    assert index.live == {1: 2}


@pytest.mark.parametrize("seed", range(100))
def test_the_counts_are_those_of_a_plain_recount(seed: int) -> None:
    chance = random.Random(seed)
    index = SegmentIndex()
    places: dict[tuple[int, int], int] = {}  # (queue, seq) -> segment
    following = dict.fromkeys(range(4), 1)
    segment = 1
    index.open_segment(1)
    for _ in range(200):
        kind = chance.random()
        queue = chance.randrange(4)
        if kind < 0.1:
            segment += 1
            index.open_segment(segment)
        elif kind < 0.5:
            count = chance.randint(1, 5)
            first = following[queue]
            following[queue] += count
            index.added(queue, first, first + count - 1, segment, count)
            places.update({(queue, seq): segment for seq in range(first, first + count)})
        elif kind < 0.9:
            seqs = sorted(seq for q, seq in places if q == queue)
            if seqs:
                low = high = chance.choice(seqs)
                while (queue, high + 1) in places and chance.random() < 0.8:
                    high += 1
                index.removed(queue, low, high, high - low + 1)
                for seq in range(low, high + 1):
                    del places[queue, seq]
        elif kind < 0.93:
            index.forget_queue(queue)
            places = {place: s for place, s in places.items() if place[0] != queue}
        else:
            for free in index.reclaimable(segment):
                assert free not in places.values()
                index.drop_segment(free)
        live = list(places.values())
        assert index.live == {s: live.count(s) for s in index.live}
        assert set(live) <= index.live.keys()
        if kind > 0.8:
            part = range(chance.randint(1, 9), following[queue] + 2)
            alive = index.alive(queue, segment, part.start, part.stop - 1)
            found = [seq for low, high in alive for seq in range(low, high + 1)]
            here = sorted(s for (q, s), at in places.items() if (q, at) == (queue, segment))
            assert found == [seq for seq in here if seq in part]


@pytest.mark.parametrize("order", ["in order", "in turns", "at random", "backwards"])
def test_what_lives_of_an_alternating_queue_is_known_at_any_time(order: str) -> None:
    """Every second message is not stored; the others go one by one."""
    index = SegmentIndex()
    index.open_segment(1)
    batch = Batch(1)
    batch.segment = 1
    size = 700
    bodies = [b"x" if seq % 2 else None for seq in range(1, size + 1)]
    batch.add(AddRun([(1, 1)], bodies, [0] * size, [0] * size, 0), size)
    index.add_batch(batch)
    seqs = list(range(1, size, 2))
    if order == "in turns":
        seqs = [s for at in range(0, len(seqs), 50) for s in sorted(seqs[at : at + 50], key=str)]
    elif order != "in order":
        random.Random(order).shuffle(seqs) if order == "at random" else seqs.reverse()
    left = set(seqs)
    for count, seq in enumerate(seqs):
        index.removed(1, seq, seq, 1)
        left.remove(seq)
        if count % 97 == 0:
            alive = index.alive(1, 1, 1, size)
            assert {s for low, high in alive for s in range(low, high + 1)} == left
    assert index.live == {1: 0}
