"""Seen ranges against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.queues.seen import Seen


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=80))
def test_it_is_a_set(steps):
    seen, plain = Seen(), set()
    for add, seq in steps:
        (seen.add if add else seen.discard)(seq)
        (plain.add if add else plain.discard)(seq)
        assert [s in seen for s in range(-1, 42)] == [s in plain for s in range(-1, 42)]
        gaps = sum(s + 1 not in plain for s in plain)
        assert len(seen) == gaps, "ranges that touch one another"


def test_a_long_browse_is_one_range():
    seen = Seen()
    for seq in range(1, 10_000):
        seen.add(seq)
    assert len(seen) == 1
    assert 9_999 in seen
    assert 10_000 not in seen
