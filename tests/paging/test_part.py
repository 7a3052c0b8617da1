"""What one queue has on one page, against a set of seqs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.paging.part import Part
from tests.lanes import examples

FIRST = 100
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("finish"), st.integers(0, 60), st.integers(0, 12)),
    ),
    max_size=30,
)


def ranges_of(seqs: set[int], start: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for seq in sorted(seq for seq in seqs if seq >= start):
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


def check(part: Part, live: set[int]) -> None:
    assert part.live == len(live)
    assert part.floor == min(live, default=part.last + 1)
    for start in (0, FIRST, FIRST + 7, part.last, part.last + 1):
        assert list(part.waiting(start)) == ranges_of(live, start)


@settings(max_examples=examples(300))
@given(STEPS)
def test_a_part_is_a_set_of_seqs(steps):
    part = Part(FIRST)
    live: set[int] = set()
    for step, at, count in steps:
        if step == "grow":
            first = part.last + 1 + at
            part.grow(first, count)
            live.update(range(first, first + count))
        else:
            first = FIRST + at
            gone = {seq for seq in live if first <= seq < first + count}
            assert part.finish(first, first + count - 1) == len(gone)
            live -= gone
        check(part, live)
    again = Part(FIRST)
    if part.last >= FIRST:
        again.grow(FIRST, part.last + 1 - FIRST)
        again.restore_marks(part.first, part.floor, part.marks())
        check(again, live)


def test_blocks_are_found_by_seq():
    part = Part(FIRST)
    for block, (first, count) in enumerate([(100, 3), (103, 1), (104, 5)]):
        part.grow(first, count)
        part.index(2 * block, first, count)
    assert [part.block_of(seq) for seq in (100, 102, 103, 104, 108)] == [
        (0, 100),
        (0, 100),
        (2, 103),
        (4, 104),
        (4, 104),
    ]
    assert part.readable == 108
