"""What a producer has committed: each batch once, whatever is repeated, forgotten or restarted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.definitions import CommitDefinition, ProgressDefinition
from gateway.model.errors import Code, RefusedError
from gateway.sink.ledger import Ledger, Next
from gateway.sink.settings import SinkSettings
from gateway.store.notes import decode_definition, encode_definition, key_of

SETTINGS = SinkSettings(producers_max=3, producer_expiry=1_000, stage_expiry=100)
STAGES = ((0, "a", 5), (1, "b", 0), (2, "c", 3))


def begun(batch: int = 4) -> Ledger:
    ledger = Ledger(SETTINGS)
    assert ledger.ask("p", batch) is Next.BEGIN
    ledger.begin("p", batch, STAGES, 10)
    return ledger


def test_a_batch_is_published_stage_by_stage_and_then_done() -> None:
    ledger = begun()
    commit = ledger.producers["p"].commit
    assert commit is not None
    assert (commit.total, commit.published) == (8, 0)
    assert [stage[0] for stage in commit.stages] == [0, 2], "an empty stage is nothing to publish"
    assert ledger.advance("p", 4) == ProgressDefinition(producer="p", batch=4, stage=0, row=4)
    assert ledger.advance("p", 1) == ProgressDefinition(producer="p", batch=4, stage=1, row=0)
    assert ledger.advance("p", 3) == ProgressDefinition(producer="p", batch=4, stage=2, row=0)
    done = ledger.finish("p", 20)
    assert done == CommitDefinition(producer="p", committed=4, seen_ms=20)
    assert ledger.ask("p", 4) is Next.DONE
    assert ledger.ask("p", 3) is Next.DONE
    assert ledger.ask("p", 5) is Next.BEGIN


def test_a_batch_that_comes_again_goes_on_and_another_one_waits() -> None:
    ledger = begun()
    assert ledger.ask("p", 4) is Next.GO_ON
    assert ledger.ask("q", 9) is Next.BEGIN
    with pytest.raises(RefusedError, match=r"Batch 4 of producer 'p' is being published \(0 of 8"):
        ledger.ask("p", 5)


def test_one_that_comes_no_more_is_forgotten_and_one_that_is_publishing_stays() -> None:
    ledger = begun()
    ledger.begin("passing", 0, (), 10, passing=True)
    ledger.finish("passing", 10)
    ledger.begin("old", 0, (), 10)
    ledger.finish("old", 10)
    assert [one.producer for one in ledger.expire(110)] == ["passing"]
    assert [one.producer for one in ledger.expire(1_009)] == []
    assert [one.producer for one in ledger.expire(10_000)] == ["old"]
    assert list(ledger.producers) == ["p"]


def test_there_are_no_more_producers_than_the_limit_says() -> None:
    ledger = begun()
    for name in ("q", "r"):
        ledger.begin(name, 0, (), 10)
        ledger.finish(name, 10)
    assert ledger.make_room("q", 20) == [], "it is known"
    with pytest.raises(RefusedError, match=r"sink\.producers-max is 3, set by default") as refused:
        ledger.make_room("s", 20)
    assert refused.value.refusal.code is Code.TOO_MANY
    assert [one.producer for one in ledger.make_room("s", 2_000)] == ["q", "r"]


def restored(notes: list[bytes]) -> Ledger:
    """Return a ledger that remembers what a journal with these notes does."""
    held: dict[object, Any] = {}
    for note in notes:
        definition, gone = decode_definition(note)
        held.pop(key_of(definition), None)
        if not gone:
            held[key_of(definition)] = definition
    ledger = Ledger(SETTINGS)
    found = list(held.values())
    ledger.restore(
        [one for one in found if isinstance(one, CommitDefinition)],
        [one for one in found if isinstance(one, ProgressDefinition)],
    )
    return ledger


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["p", "q"]),
        st.sampled_from(["commit", "row", "rows", "end", "crash", "forget", "snapshot"]),
        st.integers(0, 5),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_row_is_published_once_through_repeats_and_crashes(
    steps: list[tuple[str, str, int]],
) -> None:
    """A crash keeps the notes that a unit brought, and with them the rows: none twice, no gap."""
    notes: list[bytes] = []
    published: dict[tuple[str, int], list[int]] = {}
    ledger = Ledger(SETTINGS)

    def note(*definitions: Any) -> None:
        notes.extend(encode_definition(one) for one in definitions)

    def publish(producer: str, most: int) -> None:
        known = ledger.producers.get(producer)
        commit = None if known is None else known.commit
        if commit is None or commit.stage == len(commit.stages):
            return
        rows = min(most, commit.stages[commit.stage][2] - commit.row)
        begin = commit.published
        published[producer, commit.batch] += range(begin, begin + rows)
        note(ledger.advance(producer, rows))

    for producer, step, number in steps:
        known = ledger.producers.get(producer)
        if step == "commit":
            try:
                todo = ledger.ask(producer, number)
            except RefusedError:
                continue
            if todo is Next.BEGIN:
                published[producer, number] = []
                stages = [(i, f"a{len(notes)}", (number + i) % 4) for i in range(3)]
                note(*ledger.begin(producer, number, stages, 0))
        elif step == "row":
            publish(producer, 1)
        elif step == "rows":
            publish(producer, 9)
        elif step == "end" and known is not None and known.commit is not None:
            batch, total = known.commit.batch, known.commit.total
            while (left := ledger.producers[producer].commit) and left.stage < len(left.stages):
                publish(producer, 9)
            note(ledger.finish(producer, 0))
            assert published[producer, batch] == list(range(total))
            assert ledger.ask(producer, batch) is Next.DONE
        elif step == "crash":
            before = ledger.producers
            ledger = restored(notes)
            assert ledger.producers == before
        elif step == "snapshot":
            note(*ledger.definitions())
        elif step == "forget":
            gone = ledger.forget(producer)
            if gone is not None:
                notes.append(encode_definition(gone, gone=True))
    for rows in published.values():
        assert rows == list(range(len(rows))), "a row is missing or double"
