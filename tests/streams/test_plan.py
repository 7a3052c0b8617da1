"""Planning a batch: ends, caps, losses."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.streams.plan import (
    Loss,
    Piece,
    Reason,
    count_bytes,
    effective_start,
    find_end,
    find_loss,
)
from gateway.streams.subscription import Place

PLACE = Place(epoch=3, first=10, head=100)
PIECES = [Piece(0, 20, 200), Piece(20, 60, 400), Piece(60, 100, 4000)]


@pytest.mark.parametrize(
    ("epoch", "start", "loss", "low"),
    [
        (3, 10, None, 10),
        (3, 100, None, 100),
        (3, 9, Loss(epoch=3, first=9, end=10, reason=Reason.EXPIRED), 10),
        (3, 103, Loss(epoch=3, first=100, end=103, reason=Reason.TRUNCATED), 100),
        (2, 50, Loss(epoch=2, first=50, end=50, reason=Reason.RECREATED), 10),
    ],
)
def test_losses(epoch: int, start: int, loss: Loss | None, low: int) -> None:
    assert find_loss(PLACE, epoch, start) == loss
    assert effective_start(PLACE, epoch, start) == low


@pytest.mark.parametrize(
    ("start", "rows", "size", "end"),
    [
        (10, None, None, 100),
        (10, 5, None, 15),
        (10, 0, None, 11),
        (10, 500, None, 100),
        (10, None, 1, 20),
        (10, None, 100, 20),
        (10, None, 500, 60),
        (10, None, 499, 20),
        (10, 30, 500, 40),
        (60, None, 1, 100),
        (59, None, 1000, 60),
        (100, None, 1, 100),
    ],
)
def test_ends(start: int, rows: int | None, size: int | None, end: int) -> None:
    assert find_end(PIECES, start, 100, rows_max=rows, bytes_max=size) == end


def test_bytes_of_a_range_are_shares_of_its_pieces() -> None:
    assert count_bytes(PIECES, 10, 40) == 100 + 200
    assert count_bytes(PIECES, 100, 100) == 0


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 99)), max_size=8),
    st.integers(0, 80),
    st.none() | st.integers(1, 80),
    st.none() | st.integers(1, 400),
)
@example([(1, 0), (1, 0), (2, 1), (1, 2)], 3, None, 1)
def test_a_batch_makes_progress_and_keeps_its_limits(
    parts: list[tuple[int, int]], start: int, rows: int | None, size: int | None
) -> None:
    pieces, first = [], 0
    for count, size_of_piece in parts:
        pieces.append(Piece(first, first + count, size_of_piece))
        first += count
    start = min(start, first)
    end = find_end(pieces, start, first, rows_max=rows, bytes_max=size)
    assert start <= end <= first
    assert (end > start) == (first > start)
    assert rows is None or end - start <= rows
    touched = [p for p in pieces if p.end > start and p.first < end and p.size]
    if size is not None and len(touched) > 1:
        assert count_bytes(pieces, start, end) <= size
