"""Reads that are under way: how many there are, how large, and which one makes room."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from twisted.internet.task import Clock

from gateway.management import stream_reads
from gateway.management.stream_reads import ANSWER_LEAST, ANSWERS_BYTES, READS_MAX, Reads
from gateway.model.errors import RefusedError
from gateway.streams import reading
from tests.management.streams import BASE, StreamsCase

MOST = 8 << 20


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_answers_are_smaller_while_there_are_many(clock: Clock) -> None:
    reads = Reads(clock)
    sizes = [reads.begin(MOST).bytes_max for _ in range(READS_MAX)]
    assert sizes[0] == MOST
    assert sorted(sizes, reverse=True) == sizes
    assert sizes[-1] == ANSWER_LEAST
    assert sum(sizes) < ANSWERS_BYTES + READS_MAX * ANSWER_LEAST


def test_one_too_many_is_refused_until_another_is_over(clock: Clock) -> None:
    reads = Reads(clock)
    under_way = [reads.begin(MOST) for _ in range(READS_MAX)]
    clock.advance(1_000)
    with pytest.raises(RefusedError, match="48 reads of streams are under way"):
        reads.begin()
    under_way[5].end()
    under_way[5].end()
    assert reads.begin(MOST).bytes_max == ANSWER_LEAST
    for one in under_way:
        one.end()
    assert reads.begin(MOST).bytes_max == MOST, "what they had is given back"


def test_whoever_takes_nothing_makes_room_for_others(clock: Clock) -> None:
    reads = Reads(clock)
    cut: list[int] = []
    responses = []
    for number in range(READS_MAX):
        response = reads.begin(MOST).answer([b"x" * stream_reads.ANSWER_LEAST] * 3)
        assert response.cuttable is not None
        response.cuttable(lambda number=number: cut.append(number))  # type: ignore[misc]
        responses.append(response)
    clock.advance(4)
    for response in (*responses[:7], *responses[8:]):
        assert not isinstance(response.body, bytes)
        next(response.body)
    clock.advance(2)
    reads.begin()
    assert cut == [7]
    with pytest.raises(RefusedError):
        reads.begin()
    clock.advance(4)
    reads.begin()
    assert len(cut) == 2


def test_an_answer_is_over_when_it_is_taken_or_closed(clock: Clock) -> None:
    reads = Reads(clock)
    bodies: list[Any] = [reads.begin().answer([b"a", b"b"]).body for _ in range(READS_MAX)]
    assert b"".join(bodies[0]) == b"ab"
    bodies[1].close()
    assert list(bodies[1]) == []
    reads.begin()
    reads.begin()
    with pytest.raises(RefusedError):
        reads.begin()


class LongReadTest(StreamsCase):
    def test_ranges_without_number_end_at_the_blocks_of_one_answer(self) -> None:
        self.patch(reading, "BLOCKS_MAX", 3)
        self.attach()
        for _ in range(5):
            self.fill(2)
            self.registry.get("orders").stream.ask_seal()
        head = 10
        asked = {"stream": "orders", "epoch": 1, "start": 0, "end": head}
        ranges = [dict(asked) for _ in range(4)]
        rows = 0
        for _ in range(100):
            body = {"ranges": ranges, "form": "stored", "columns": []}
            response = self.successResultOf(self.start("POST", f"{BASE}/read", body))
            assert not isinstance(response.body, bytes)
            stream = pa.ipc.open_stream(b"".join(response.body))
            facts: dict[str, Any] = {}
            while "rows" not in facts:
                batch, said = stream.read_next_batch_with_custom_metadata()
                rows += len(batch)
                facts = json.loads(said[b"sluicegate"]) if said else facts
            if facts["next"] is None:
                break
            index, place = facts["next"]
            ranges = [{**ranges[index], "start": place}, *ranges[index + 1 :]]
        assert rows == 4 * head

    def test_a_read_whose_client_has_gone_is_over(self) -> None:
        self.attach()
        self.fill(4)
        asked = {"stream": "orders", "epoch": 1, "start": 0, "end": 4}
        for _ in range(3 * READS_MAX):
            response = self.successResultOf(self.start("POST", f"{BASE}/read", {"ranges": [asked]}))
            assert response.status == 200
            response.body.close()  # type: ignore[union-attr]
        for _ in range(3 * READS_MAX):
            assert self.good("POST", f"{BASE}/orders:find", {"timestampMs": 0})["offset"] == 0
        held = [self.start("POST", f"{BASE}/read", {"ranges": [asked]}) for _ in range(READS_MAX)]
        status, shown = self.ask("POST", f"{BASE}/read", {"ranges": [asked]})
        assert (status, shown["code"]) == (503, "store-busy")
        assert len(held) == READS_MAX
