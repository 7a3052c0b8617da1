"""What of a stream is read: selector, places, times and conditions, over a real server process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, LessThan
from pyspark.sql.types import StructType

from pyspark_sluicegate.options import SluicegateError
from pyspark_sluicegate.progress import lag
from pyspark_sluicegate.source import DefaultSource, NarrowingReader
from tests.spark.support import Server
from tests.spark.test_source import SCHEMA, Engine, make_source, numbered, read_batch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("streams"))
    yield made
    made.kill()


@pytest.fixture
def address(request: pytest.FixtureRequest, server: Server) -> str:
    name = request.node.name
    server.make(name)
    return name


def without(source: DefaultSource, *names: str) -> DefaultSource:
    """Return the source without these options."""
    return DefaultSource({k: v for k, v in source.options.items() if k not in names})


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["offset"] for row in rows)


def now_text() -> str:
    """Return the time as an option, apart from every message before and after."""
    time.sleep(0.02)
    text = datetime.now(UTC).isoformat()
    time.sleep(0.02)
    return text


# -- selector


@pytest.mark.parametrize("kind", ["stomp", "amqp"])
def test_a_selector_leaves_rows_out_and_the_offsets_go_on(
    server: Server, address: str, kind: str
) -> None:
    server.fill(address, 100, kind)
    number = "convert_string_expressions:n >= 90 OR n = 7"
    checkpoint: dict[str, Any] = {}
    source = make_source(server, address, selector=number, maxMessagesPerTrigger="30")
    Engine(source, checkpoint).run()
    assert checkpoint["rows"] == [(7, b"7"), *numbered(100, 90)]
    ends = [json.loads(offset) for offset in checkpoint["offsets"]]
    assert [end["q"][address][1] for end in ends] == [30, 60, 90, 100]
    assert {end["f"] for end in ends} == {number}
    assert server.floor(address, f"sub {address}") == 100
    server.fill(address, 5, kind)
    Engine(source, checkpoint).run()
    assert checkpoint["rows"][-5:] == numbered(105, 100)
    batch = without(make_source(server, address, selector=number), "maxMessagesPerTrigger")
    assert offsets(read_batch(batch)) == [7, *range(90, 105)]


def test_long_ranges_without_a_match_are_read_over(server: Server, address: str) -> None:
    for _ in range(4):
        server.fill(address, 6000)
    source = make_source(server, address, selector="n = '23999'")
    engine = Engine(source, {})
    engine.run()
    assert engine.rows == [(23999, b"23999")]


def test_another_selector_is_refused_by_the_checkpoint_and_by_the_subscription(
    server: Server, address: str
) -> None:
    server.fill(address, 5)
    checkpoint: dict[str, Any] = {}
    Engine(make_source(server, address, selector="n = '1'"), checkpoint).run()
    with pytest.raises(SluicegateError, match=r"written with the selector \"n = '1'\".*names none"):
        Engine(make_source(server, address), checkpoint).run()
    with pytest.raises(SluicegateError, match=r"The subscription .* has the selector \"n = '1'\""):
        Engine(make_source(server, address, selector="n = '2'"), {}).run()
    server.call("DELETE", f"/api/v1/streams/subscriptions/sub%20{address}")
    with pytest.raises(SluicegateError, match="The checkpoint was written with the selector"):
        Engine(make_source(server, address, selector="n = '2'"), checkpoint).run()


def test_a_wrong_selector_is_told_before_anything_is_made(server: Server, address: str) -> None:
    with pytest.raises(SluicegateError, match=r'The selector "n =" is wrong at column 4'):
        Engine(make_source(server, "never made", selector="n ="), {}, now=False).plan()
    with pytest.raises(SluicegateError, match="is wrong at column"):
        read_batch(make_source(server, address, selector="n ="))
    names = [one["name"] for one in server.call("GET", "/api/v1/streams")["items"]]
    assert "never made" not in names
    assert server.stream(address)["subscriptions"] == []


# -- where it begins and ends


def test_earliest_is_the_oldest_message_that_is_there_when_the_subscription_is_made(
    server: Server, address: str
) -> None:
    server.fill(address, 3)
    reader = make_source(server, address, startingOffsets="earliest").streamReader(SCHEMA)
    assert reader.initialOffset()["q"][address] == [1, 0]


def test_latest_is_what_comes_after_the_subscription_is_made(server: Server, address: str) -> None:
    server.fill(address, 3)
    source = without(make_source(server, address), "startingOffsets")
    engine = Engine(source, {}, now=False)
    assert engine.reader.initialOffset()["q"][address] == [1, 3], "latest is the default"
    server.fill(address, 2)
    engine.run()
    assert engine.rows == numbered(5, 3), "also when the first batch is planned later"


def test_subscription_is_where_the_one_of_this_name_stands(server: Server, address: str) -> None:
    server.fill(address, 3)
    source = make_source(server, address, startingOffsets="subscription")
    with pytest.raises(SluicegateError, match=r"There is no subscription .* to go on from"):
        source.streamReader(SCHEMA).initialOffset()
    Engine(make_source(server, address), {}).run()
    server.fill(address, 2)
    lost_checkpoint: dict[str, Any] = {}
    Engine(source, lost_checkpoint).run()
    assert lost_checkpoint["rows"] == numbered(5, 3)
    with pytest.raises(SluicegateError, match="'subscription', which a batch read has none of"):
        source.reader(SCHEMA)


def test_a_subscription_that_is_there_decides_whatever_is_asked_for(
    server: Server, address: str
) -> None:
    server.fill(address, 3)
    Engine(make_source(server, address), {}).run()
    again = make_source(server, address, startingOffsets="earliest").streamReader(SCHEMA)
    assert again.initialOffset()["q"][address] == [1, 3]


def test_an_offset_alone_or_by_address(server: Server, address: str) -> None:
    server.fill(address, 9)
    for name, place in (("a", "4"), ("b", json.dumps({address: 4}))):
        source = make_source(server, address, subscription=name, startingOffsets=place)
        assert source.streamReader(SCHEMA).initialOffset()["q"][address] == [1, 4]
        ends = json.dumps({f"{address}@127.0.0.1:{server.port}": 7})
        batch = make_source(server, address, startingOffsets=place, endingOffsets=ends)
        assert offsets(read_batch(batch)) == [4, 5, 6]


def test_a_time_to_begin_at_is_looked_up_by_the_gateway_once(server: Server, address: str) -> None:
    server.fill(address, 4)
    middle = now_text()
    server.fill(address, 3)
    source = without(make_source(server, address, startingTimestamp=middle), "startingOffsets")
    reader = source.streamReader(SCHEMA)
    assert reader.initialOffset()["q"][address] == [1, 4]
    engine = Engine(source, {})
    engine.run()
    assert engine.rows == numbered(7, 4)
    assert source.streamReader(SCHEMA).initialOffset()["q"][address] == [1, 7], "where it stands"


def test_times_bound_a_batch_read(server: Server, address: str) -> None:
    times = []
    for _ in range(3):
        server.fill(address, 3)
        times.append(now_text())
    plain = without(make_source(server, address), "startingOffsets")

    def read(**options: str) -> list[int]:
        return offsets(read_batch(DefaultSource({**plain.options, **options})))

    assert read(startingTimestamp=times[0], endingTimestamp=times[1]) == [3, 4, 5]
    assert read(startingTimestamp=times[0]) == [3, 4, 5, 6, 7, 8]
    assert read(endingTimestamp=times[0]) == [0, 1, 2]
    assert read(startingTimestamp=times[2]) == []
    assert read(startingTimestamp="0") == list(range(9))


# -- addresses by pattern


def patterned(server: Server, pattern: str, **options: str) -> DefaultSource:
    given = {"addressPattern": pattern, "subscription": f"sub {pattern}"} | options
    return without(DefaultSource({**make_source(server, "", **given).options}), "address")


def test_a_selector_holds_for_streams_that_come_later(server: Server) -> None:
    server.make("chosen.a")
    server.fill("chosen.a", 9)
    source = patterned(server, "chosen.#", selector="n IN ('2', '3')")
    checkpoint: dict[str, Any] = {}
    Engine(source, checkpoint).run()
    server.make("chosen.b")
    server.fill("chosen.b", 4)
    Engine(source, checkpoint).run()
    assert checkpoint["rows"] == [(2, b"2"), (3, b"3")] * 2
    other = patterned(server, "chosen.#", selector="n = '1'", subscription="sub chosen.#")
    with pytest.raises(SluicegateError, match="has the selector"):
        other.streamReader(SCHEMA).initialOffset()


def test_a_time_is_looked_up_in_each_stream(server: Server) -> None:
    for name, count in (("timed.a", 4), ("timed.b", 2)):
        server.make(name)
        server.fill(name, count)
    middle = now_text()
    server.fill("timed.a", 3)
    source = without(patterned(server, "timed.*", startingTimestamp=middle), "startingOffsets")
    places = source.streamReader(SCHEMA).initialOffset()["q"]
    assert places == {"timed.a": [1, 4], "timed.b": [1, 2]}
    batch = without(source, "subscription")
    assert offsets(read_batch(batch)) == [4, 5, 6]
    assert (
        pushed(
            DefaultSource({**batch.options, "pushdown": "true"}), EqualTo(("address",), "timed.b")
        )
        == []
    )


def test_subscription_with_a_pattern_takes_new_streams_from_their_beginning(
    server: Server,
) -> None:
    server.make("going.a")
    server.fill("going.a", 3)
    source = patterned(server, "going.#", startingOffsets="subscription")
    with pytest.raises(SluicegateError, match=r"There is no subscription .* to go on from"):
        source.streamReader(SCHEMA).initialOffset()
    Engine(patterned(server, "going.#"), {}).run()
    server.fill("going.a", 2)
    server.make("going.b")
    server.fill("going.b", 1)
    checkpoint: dict[str, Any] = {}
    Engine(source, checkpoint).run()
    assert checkpoint["rows"] == [*numbered(1), *numbered(5, 3)]


# -- conditions


def pushed(source: DefaultSource, *filters: Filter, schema: StructType = SCHEMA) -> list[int]:
    """Return the offsets that are read for conditions; Spark would look at each row again."""
    reader = source.reader(schema)
    assert isinstance(reader, NarrowingReader)
    assert reader.pushFilters(list(filters)) == list(filters)
    rows = [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    return offsets(rows)


def test_conditions_are_ranges_of_what_is_read(server: Server, address: str) -> None:
    server.fill(address, 5)
    middle = datetime.fromisoformat(now_text())
    server.fill(address, 5)
    source = make_source(server, address, pushdown="true")
    assert pushed(source) == list(range(10))
    assert pushed(source, GreaterThanOrEqual(("offset",), 3), LessThan(("offset",), 6)) == [3, 4, 5]
    assert pushed(source, GreaterThanOrEqual(("timestamp",), middle)) == [5, 6, 7, 8, 9]
    assert pushed(source, EqualTo(("address",), "else")) == []
    assert pushed(source, EqualTo(("address",), address), EqualTo(("offset",), 9)) == [9]
    far = datetime(9999, 12, 31, tzinfo=UTC)
    assert pushed(source, LessThan(("timestamp",), far)) == list(range(10))
    narrowed = make_source(server, address, pushdown="true", startingOffsets="4", endingOffsets="8")
    assert pushed(narrowed, LessThan(("offset",), 6)) == [4, 5]
    assert not isinstance(make_source(server, address).reader(SCHEMA), NarrowingReader)


# -- progress


def test_lag_with_several_gateways_and_beyond_what_available_now_takes(
    server: Server, tmp_path: Any
) -> None:
    other = Server(tmp_path)
    try:
        for one, count in ((server, 30), (other, 20)):
            one.make("lagging")
            one.fill("lagging", count)
        url = f"{server.url},{other.url}"
        source = make_source(server, "lagging", url=url, maxMessagesPerTrigger="20")
        engine = Engine(source, {})
        server.fill("lagging", 5)
        streams = [f"lagging@127.0.0.1:{one.port}" for one in (server, other)]
        behind = []
        while engine.plan():
            end = engine.checkpoint["offsets"][-1]
            latest = json.dumps(engine.reader.reportLatestOffset())
            seen = lag({"sources": [{"endOffset": end, "latestOffset": latest}]})
            behind.append([seen[name] for name in streams])
            engine.run_batch(len(engine.checkpoint["offsets"]) - 1)
        # What came after the heads were frozen waits for the next run, and is told.
        assert behind == [[25, 10], [15, 0], [5, 0]]
    finally:
        other.kill()


def test_a_stream_of_a_pattern_that_is_deleted_under_a_batch_is_a_loss(server: Server) -> None:
    for name in ("losing.a", "losing.b"):
        server.make(name)
        server.fill(name, 5)
    checkpoint: dict[str, Any] = {}
    engine = Engine(patterned(server, "losing.*", startingOffsets="earliest"), checkpoint)
    assert engine.plan(), "the batch is written ahead"
    server.call("DELETE", "/api/v1/streams/losing.b")
    with pytest.raises(SluicegateError, match=r"losing\.b \(life 1\): offsets 0 to 4 cannot be"):
        Engine(patterned(server, "losing.*"), checkpoint).run()
    assert checkpoint["rows"] == []
    Engine(patterned(server, "losing.*", failOnDataLoss="false"), checkpoint).run()
    assert [offset for offset, _ in checkpoint["rows"]] == list(range(5))
