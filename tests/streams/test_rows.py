"""Rows of a block from runs of messages."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.streams.rows import STORED, append_taken, blocks, rows_of
from gateway.streams.stream import BLOCK_BYTES, BLOCK_MESSAGES, Accepted, Taken
from storage.arrow_segment import SCHEMA
from tests.lanes import examples


def make_run(
    base: int, bodies: list[bytes], flags: int | list[int] = 4, now_ms: int = 7
) -> Accepted:
    return Accepted(base, bodies, flags, now_ms, sum(map(len, bodies)))


def test_the_log_and_the_streams_agree_on_the_columns() -> None:
    assert STORED == SCHEMA


def test_rows_of_runs() -> None:
    runs = [make_run(3, [b"a", b""], 5, 1), make_run(9, [b"c", b"d"], [6, 0xFFFF0004], 2)]
    rows = rows_of(runs)
    assert rows.column("offset").to_pylist() == [3, 4, 9, 10]
    stamps = rows.column("timestamp").cast("int64").to_pylist()
    assert stamps == [1000, 1000, 2000, 2000]
    assert [f & 0xFFFFFFFF for f in rows.column("flags").to_pylist()] == [5, 5, 6, 0xFFFF0004]
    assert rows.column("raw").to_pylist() == [b"a", b"", b"c", b"d"]
    rows.validate(full=True)


def test_no_runs_are_no_rows() -> None:
    assert rows_of([]).num_rows == 0
    assert rows_of([]).schema == STORED


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.lists(
                st.sampled_from([0, 1, 300, BLOCK_BYTES // 3, BLOCK_BYTES + 5]),
                min_size=1,
                max_size=4,
            ),
            st.sampled_from([1, 1, 1, BLOCK_MESSAGES // 2]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_blocks_cover_everything_once_and_are_bounded(
    parts: list[tuple[int, list[int], int]],
) -> None:
    runs, base = [], 10
    for gap, sizes, times in parts:
        base += gap
        bodies = [b"x" * size for size in sizes] * (times if max(sizes) < 1000 else 1)
        runs.append(make_run(base, bodies))
        base = runs[-1].end
    made = list(blocks(Taken(10, base, runs)))
    place = 10
    for first, end, newest, rows in made:
        assert first == place < end
        place = end
        assert newest == 7
        offsets = rows.column("offset").to_pylist()
        assert all(first <= offset < end for offset in offsets)
        sizes = [len(raw) for raw in rows.column("raw").to_pylist()]
        assert len(sizes) <= BLOCK_MESSAGES
        assert sum(sizes) <= BLOCK_BYTES or len(sizes) == 1
    assert place == base
    offsets = [o for block in made for o in block[3].column("offset").to_pylist()]
    assert offsets == [o for run in runs for o in range(run.base, run.end)]


def test_what_was_taken_is_appended_in_one_go() -> None:
    class Log:
        def __init__(self) -> None:
            self.appended: list[list[tuple[int, int]]] = []

        def append(self, blocks: list) -> None:
            self.appended.append([block[:2] for block in blocks])

    log = Log()
    append_taken(log, Taken(0, 5, [make_run(2, [b"x" * BLOCK_BYTES] * 3)]))
    assert log.appended == [[(0, 3), (3, 4), (4, 5)]]
