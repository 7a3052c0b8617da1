"""The states of a batch: what may follow what, and that nothing else can."""

from __future__ import annotations

import itertools

import pytest

from storage.batch import Batch
from storage.batch_state import NEXT, Kind, State
from storage.record import AddRun


@pytest.mark.parametrize(("state", "following"), list(itertools.product(State, State)))
def test_a_batch_goes_the_ways_of_the_table_and_no_other(state: State, following: State) -> None:
    batch = Batch(1)
    batch.state = state
    batch.firm = False
    if following in NEXT[state]:
        batch.become(following)
        assert batch.state is following
    else:
        with pytest.raises(AssertionError, match=f"{state.name} to {following.name}"):
            batch.become(following)


def test_a_batch_that_is_to_be_synced_is_not_told_before() -> None:
    batch = Batch(1)
    for state in (State.FIXED, State.WRITING):
        batch.become(state)
    with pytest.raises(AssertionError, match="not synced"):
        batch.become(State.TOLD)
    batch.become(State.SYNCED)


def test_every_state_but_the_first_is_reached_and_two_are_the_end() -> None:
    assert {state for ways in NEXT.values() for state in ways} == set(State)
    assert [state for state in State if not NEXT[state]] == [State.SYNCED, State.GONE]


def test_the_mark_of_a_stop_is_alone_and_a_cover_does_not_take_it_away() -> None:
    batch = Batch(1)
    batch.mark_stop()
    batch.cover()
    assert batch.kind is Kind.STOP
    full = Batch(2)
    full.add(AddRun([(7, 1)], [b"x"], 0, 0, 1), 1)
    with pytest.raises(AssertionError, match="torn tail"):
        full.mark_stop()
