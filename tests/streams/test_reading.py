"""Reading a stream by range: from memory, from the Arrow log, over the seam."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gateway.decoding.view import STORED, Viewer
from gateway.model.message import STOMP
from gateway.streams.answer import METADATA
from gateway.streams.reading import Snapshot, read_slice, take_snapshot
from gateway.streams.registry import StreamRegistry
from gateway.streams.stream import Accepted
from gateway.streams.view import make_view
from tests.streams.harness import fill, make_registry, stomp_message

VIEW = make_view(["offset", "body"], "false", "binary")


def messages(first: int, count: int, size: int = 0) -> list[bytes]:
    return [stomp_message(b"%d" % i + b"." * size) for i in range(first, first + count)]


def make(tmp_path: Path, **options: Any) -> StreamRegistry:
    registry, _, _ = make_registry(str(tmp_path), **options)
    registry.create("orders", "orders")
    return registry


def snapshot(registry: StreamRegistry, start: int, end: int, index: int = 0) -> Snapshot:
    tap = registry.get("orders")
    return take_snapshot(index, tap.stream, tap.log, start, end)


Answer = tuple[list[tuple[int, bytes]], list[dict[str, Any]], dict[str, Any]]


def answer(pieces: list[bytes]) -> Answer:
    """Return rows, facts of each batch, and the trailer."""
    reader = pa.ipc.open_stream(b"".join(pieces))
    rows, facts = [], []
    while True:
        batch, metadata = reader.read_next_batch_with_custom_metadata()
        fact = json.loads(metadata[METADATA])
        if "rows" in fact:
            assert len(batch) == 0
            with pytest.raises(StopIteration):
                reader.read_next_batch_with_custom_metadata()
            return rows, facts, fact
        facts.append(fact)
        rows += [(row["offset"], row["body"]) for row in batch.to_pylist()]


def read(*snapshots: Snapshot, skip: bool = False, **options: Any) -> Answer:
    return answer(read_slice(VIEW, snapshots, skip_losses=skip, **options))


def numbered(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(i, b"%d" % i) for i in range(first, end)]


def test_any_range_of_log_and_tail_is_answered_exactly(tmp_path: Path) -> None:
    registry = make(tmp_path)
    for first in (0, 10, 20):
        fill(registry, "orders", messages(first, 10))
        registry.flush()
    fill(registry, "orders", messages(30, 5))
    fill(registry, "orders", messages(35, 5))
    assert registry.get("orders").stream.sealed_offset == 30
    for start in range(0, 40, 3):
        for end in range(start + 1, 41, 4):
            rows, facts, trailer = read(snapshot(registry, start, end))
            assert rows == numbered(start, end)
            place = start
            for fact in facts:
                assert (fact["range"], fact["first"], fact["holes"]) == (0, place, 0)
                place = fact["end"]
            assert place == end
            assert trailer == {"rows": end - start, "next": None, "losses": [], "error": None}


def test_the_same_range_is_the_same_bytes_before_and_after_sealing(tmp_path: Path) -> None:
    registry = make(tmp_path)
    fill(registry, "orders", messages(0, 10))
    before = read(snapshot(registry, 2, 9))
    registry.flush()
    assert read(snapshot(registry, 2, 9)) == before
    late = snapshot(registry, 2, 9)
    registry.stop()
    assert read(late) == before


def test_an_answer_stops_at_its_size_and_says_where_to_go_on(tmp_path: Path) -> None:
    registry = make(tmp_path)
    for first in range(0, 50, 10):
        fill(registry, "orders", messages(first, 10, 100))
        registry.flush()
    place, rows = 0, []
    for _ in range(10):
        found, _, trailer = read(snapshot(registry, place, 50), bytes_max=2500)
        rows += found
        assert trailer["error"] is None
        if trailer["next"] is None:
            break
        assert trailer["next"] == [0, place + len(found)]
        place += len(found)
    assert [offset for offset, _ in rows] == list(range(50))


def test_ranges_of_one_answer_are_told_apart(tmp_path: Path) -> None:
    registry = make(tmp_path)
    fill(registry, "orders", messages(0, 10))
    rows, facts, trailer = read(snapshot(registry, 0, 2), snapshot(registry, 7, 9, index=3))
    assert [offset for offset, _ in rows] == [0, 1, 7, 8]
    assert [(f["range"], f["first"], f["end"]) for f in facts] == [(0, 0, 2), (3, 7, 9)]
    assert trailer["rows"] == 4


def test_holes_are_counted_not_missed(tmp_path: Path) -> None:
    registry, _, now = make_registry(str(tmp_path))
    registry.create("orders", "orders")
    registry.recover({1: [
        Accepted(0, messages(0, 3), STOMP, now.ms, 10),
        Accepted(5, messages(5, 2), STOMP, now.ms, 10),
    ]})  # fmt: skip
    for _ in range(2):
        rows, facts, trailer = read(snapshot(registry, 0, 7))
        assert [offset for offset, _ in rows] == [0, 1, 2, 5, 6]
        assert sum(fact["holes"] for fact in facts) == 2
        assert (facts[0]["first"], facts[-1]["end"], trailer["rows"]) == (0, 7, 5)
        rows, facts, _ = read(snapshot(registry, 3, 6))
        assert [offset for offset, _ in rows] == [5]
        assert (facts[0]["first"], facts[-1]["end"]) == (3, 6)
        registry.flush()


def dropped(tmp_path: Path) -> Snapshot:
    """Return a snapshot of 0 to 30 whose first two blocks are gone when it is read."""
    registry = make(tmp_path, segment_bytes=100)
    for first in (0, 10, 20):
        fill(registry, "orders", messages(first, 10))
        registry.flush()
    found = snapshot(registry, 0, 30)
    registry.get("orders").log.drop(2)
    return found


def test_what_a_selector_leaves_out_is_a_hole_that_is_covered(tmp_path: Path) -> None:
    registry = make(tmp_path)
    for first in (0, 10):
        numbers = range(first, first + 10)
        fill(registry, "orders", [stomp_message(b"%d" % n, n=str(n % 3)) for n in numbers])
        registry.flush()
    fill(registry, "orders", [stomp_message(b"x", n="7")] * 5)
    rows, facts, trailer = read(snapshot(registry, 1, 25), selector="n = '0'")
    assert [offset for offset, _ in rows] == [3, 6, 9, 12, 15, 18]
    assert [(f["first"], f["end"], f["holes"]) for f in facts] == [
        (1, 10, 6),
        (10, 20, 7),
        (20, 25, 5),
    ]
    assert trailer["rows"] == 6
    before, _, _ = read(snapshot(registry, 0, 25), selector="n = '7'")
    registry.flush()
    assert read(snapshot(registry, 0, 25), selector="n = '7'")[0] == before


def test_a_selector_that_leaves_nearly_all_out_stops_at_what_it_has_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.streams.reading.FILTERED_BYTES", 2500)
    registry = make(tmp_path)
    for first in range(0, 50, 10):
        fill(registry, "orders", messages(first, 10, 100))
        registry.flush()
    rows, _, trailer = read(snapshot(registry, 0, 50), selector="nothing = 'there'")
    assert rows == []
    assert trailer["next"] == [0, 20]
    assert read(snapshot(registry, 20, 50), selector="nothing = 'there'")[2]["next"] == [0, 40]


def test_what_retention_drops_meanwhile_ends_the_answer(tmp_path: Path) -> None:
    rows, _, trailer = read(dropped(tmp_path))
    assert rows == []
    assert trailer["error"] == "orders: offsets 0 to 9 are gone (expired_by_retention)"
    assert trailer["next"] == [0, 0]


def test_or_is_skipped_and_named(tmp_path: Path) -> None:
    early = {"text": "told before"}
    rows, facts, trailer = read(dropped(tmp_path), skip=True, losses=[early])
    assert rows == numbered(20, 30)
    assert [(fact["first"], fact["end"]) for fact in facts] == [(20, 30)]
    assert trailer["error"] is None
    assert trailer["losses"][0] == early
    assert [(x["first"], x["end"], x["reason"]) for x in trailer["losses"][1:]] == [
        (0, 10, "expired_by_retention"),
        (10, 20, "expired_by_retention"),
    ]


def test_damage_ends_the_answer_with_its_file_and_sends_nothing_behind_it(tmp_path: Path) -> None:
    registry = make(tmp_path)
    for first in (0, 10, 20):
        fill(registry, "orders", messages(first, 10))
        registry.flush()
    found = snapshot(registry, 0, 30)
    path = next(tmp_path.glob("1/*.arrows"))
    data = bytearray(path.read_bytes())
    data[found.refs[1].position + 200] ^= 1  # type: ignore[attr-defined]
    path.write_bytes(data)
    rows, _, trailer = read(found, skip=True)
    assert rows == numbered(0, 10)
    assert trailer["next"] == [0, 10]
    assert "DamageError" in trailer["error"]
    assert str(path) in trailer["error"]


def stored(*snapshots: Snapshot, skip: bool = False, **options: Any) -> Answer:
    """Read in the stored form and decode as an executor does."""
    pieces = read_slice(None, snapshots, skip_losses=skip, **options)
    reader = pa.ipc.open_stream(b"".join(pieces))
    assert reader.schema == STORED
    rows, facts = [], []
    while True:
        empty, metadata = reader.read_next_batch_with_custom_metadata()
        assert len(empty) == 0
        fact = json.loads(metadata[METADATA])
        if "rows" in fact:
            with pytest.raises(StopIteration):
                reader.read_next_batch()
            return rows, facts, fact
        facts.append(fact)
        batch = Viewer(VIEW, fact["address"], 1).convert(reader.read_next_batch())
        rows += [(row["offset"], row["body"]) for row in batch.to_pylist()]


def test_the_stored_form_holds_the_same_rows(tmp_path: Path) -> None:
    registry = make(tmp_path)
    for first in (0, 10, 20):
        fill(registry, "orders", messages(first, 10))
        registry.flush()
    fill(registry, "orders", messages(30, 5))
    for start in range(0, 35, 3):
        for end in range(start + 1, 36, 4):
            asked = snapshot(registry, start, end)
            rows, facts, trailer = stored(asked)
            assert (rows, facts and facts[0]["address"]) == (numbered(start, end), "orders")
            assert [{**f, "address": "orders"} for f in read(asked)[1]] == facts
            assert trailer == read(asked)[2]


def test_a_whole_stored_block_goes_out_as_it_lies_in_its_file(tmp_path: Path) -> None:
    registry = make(tmp_path)
    fill(registry, "orders", messages(0, 100))
    registry.flush()
    tap = registry.get("orders")
    (ref,) = tap.log.blocks(0, 100)
    assert tap.log.read_bytes(ref) in read_slice(
        None, [snapshot(registry, 0, 100)], skip_losses=False
    )


def test_the_stored_form_stops_at_its_size(tmp_path: Path) -> None:
    registry = make(tmp_path)
    for first in (0, 10, 20):
        fill(registry, "orders", messages(first, 10))
        registry.flush()
    rows, _, trailer = stored(snapshot(registry, 0, 30), bytes_max=1)
    assert (rows, trailer["next"]) == (numbered(0, 10), [0, 10])
