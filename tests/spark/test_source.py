"""The readers as Spark calls them, in its order, without a JVM: a scripted engine and a server."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pyspark_sluicegate.options import SluicegateError
from pyspark_sluicegate.source import DefaultSource
from tests.spark.support import Server

SCHEMA = StructType([StructField("offset", LongType()), StructField("body", BinaryType())])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("streams"))
    yield made
    made.kill()


@pytest.fixture
def address(request: pytest.FixtureRequest, server: Server) -> str:
    server.cut_answers(0)
    name = request.node.name
    server.make(name)
    return name


def make_source(server: Server, address: str, **options: str) -> DefaultSource:
    given = {
        "url": server.url, "address": address, "subscription": f"sub {address}",
        "startingOffsets": "earliest", "retryDeadline": "20s", "pollInterval": "20ms",
    }  # fmt: skip
    return DefaultSource(given | options)


class Engine:
    """Calls a reader as a query does; `checkpoint` is what Spark stores."""

    def __init__(self, source: DefaultSource, checkpoint: dict[str, Any], now: bool = True) -> None:
        self.reader = source.streamReader(SCHEMA)
        self.tasks = pickle.loads(pickle.dumps(source.streamReader(SCHEMA)))
        self.checkpoint = checkpoint
        checkpoint.setdefault("offsets", [])
        checkpoint.setdefault("commits", 0)
        self.rows: list[tuple[int, bytes]] = checkpoint.setdefault("rows", [])
        self.partition_counts: list[int] = []
        self.started = False
        if now:
            self.reader.prepareForTriggerAvailableNow()

    def _json(self, offset: Any) -> Any:
        return json.loads(json.dumps(offset))

    def _end(self, batch: int) -> Any:
        return json.loads(self.checkpoint["offsets"][batch])

    def _start(self, batch: int) -> Any:
        if batch > 0:
            return self._end(batch - 1)
        return self._json(self.reader.initialOffset())

    def plan(self) -> bool:
        """Write the next batch ahead; returns whether there is one."""
        offsets = self.checkpoint["offsets"]
        start = self._start(len(offsets))
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        self.reader.reportLatestOffset()
        if json.dumps(end) == json.dumps(start):
            return False
        offsets.append(json.dumps(end))
        if len(offsets) > 1:
            self.reader.commit(self._end(len(offsets) - 2))
        return True

    def run_batch(self, batch: int) -> None:
        partitions = self.reader.partitions(self._start(batch), self._end(batch))
        self.partition_counts.append(len(partitions))
        rows = []
        for partition in pickle.loads(pickle.dumps(list(partitions))):
            for found in self.tasks.read(partition):
                rows += [(r["offset"], r["body"]) for r in found.to_pylist()]
        self.rows += sorted(rows)
        self.checkpoint["commits"] = batch + 1

    def run(self) -> None:
        """Replay what was written ahead, then batches until nothing is new."""
        offsets = self.checkpoint["offsets"]
        if len(offsets) > self.checkpoint["commits"]:
            self.run_batch(len(offsets) - 1)
        while self.plan():
            self.run_batch(len(offsets) - 1)


def numbered(end: int, start: int = 0) -> list[tuple[int, bytes]]:
    return [(i, b"%d" % i) for i in range(start, end)]


def calls(server: Server, address: str) -> list[str]:
    """Return what was committed and released, as `action next-offset`."""
    found = [entry.partition(" ") for entry in server.call("GET", "/test/commits")]
    ends = [(action, json.loads(body)["end"]) for action, _, body in found]
    return [f"{action} {end[address][1]}" for action, end in ends if address in end]


def test_a_query_in_capped_batches_commits_late_and_releases_when_idle(
    server: Server, address: str
) -> None:
    server.fill(address, 100)
    checkpoint: dict[str, Any] = {}
    Engine(make_source(server, address, maxMessagesPerTrigger="40"), checkpoint).run()
    assert checkpoint["rows"] == numbered(100)
    assert len(checkpoint["offsets"]) == 3
    assert calls(server, address) == ["commit 40", "commit 80", "release 100"]
    # A run without anything new sends one release, however often the engine asks.
    idle = Engine(make_source(server, address), checkpoint, now=False)
    for _ in range(4):
        assert not idle.plan()
    assert calls(server, address)[3:] == ["release 100"]


def test_initial_offset_is_the_floor_twice_and_after_a_crash_in_batch_0(
    server: Server, address: str
) -> None:
    server.fill(address, 5)
    source = make_source(server, address, startingOffsets="latest")
    first = Engine(source, {}, now=False)
    start = first.reader.initialOffset()
    server.fill(address, 5)
    assert first.reader.initialOffset() == start
    again = Engine(make_source(server, address, startingOffsets="latest"), {}, now=False)
    assert again.reader.initialOffset() == start
    again.run()
    assert again.rows == numbered(10, 5)


def test_a_batch_written_ahead_is_replayed_whole_under_other_caps(
    server: Server, address: str
) -> None:
    server.fill(address, 50)
    checkpoint: dict[str, Any] = {}
    crashed = Engine(make_source(server, address, maxMessagesPerTrigger="20"), checkpoint)
    assert crashed.plan()
    crashed.run_batch(0)
    assert crashed.plan()
    server.fill(address, 10)
    again = Engine(make_source(server, address, maxMessagesPerTrigger="7"), checkpoint)
    again.run()
    assert json.loads(checkpoint["offsets"][1])["q"][address] == [1, 40]
    assert again.rows == numbered(60)


def test_available_now_ends_although_messages_keep_coming(server: Server, address: str) -> None:
    server.fill(address, 10)
    engine = Engine(make_source(server, address, maxMessagesPerTrigger="4"), {})
    server.fill(address, 10)
    engine.run()
    assert engine.rows == numbered(10)


def test_available_now_on_an_address_that_nobody_taps_yet_makes_the_tap(server: Server) -> None:
    name = "untapped"
    engine = Engine(make_source(server, name), {})
    engine.run()
    assert engine.rows == []
    assert server.stream(name)["head"] == 0


def test_the_caps_of_the_engine_win(server: Server, address: str) -> None:
    server.fill(address, 30)
    reader = make_source(server, address, maxMessagesPerTrigger="5").streamReader(SCHEMA)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(3))["q"][address] == [1, 3]
    assert reader.latestOffset(start, ReadAllAvailable())["q"][address] == [1, 30]
    assert reader.reportLatestOffset()["q"][address] == [1, 30]
    small = make_source(server, address, maxBytesPerTrigger="1").streamReader(SCHEMA)
    end = small.latestOffset(start, small.getDefaultReadLimit())
    assert 0 < end["q"][address][1] <= 30


def test_partitions_are_cut_and_tolerate_an_empty_range(server: Server, address: str) -> None:
    server.fill(address, 90)
    engine = Engine(make_source(server, address, minPartitions="3"), {})
    engine.run()
    assert engine.partition_counts == [3]
    assert engine.rows == numbered(90)
    end = json.loads(engine.checkpoint["offsets"][0])
    assert list(engine.reader.partitions(end, end)) == []


@pytest.mark.parametrize("kind", ["stomp", "amqp"])
def test_answers_cut_anywhere_are_taken_up_again(server: Server, address: str, kind: str) -> None:
    for _ in range(8):
        server.fill(address, 600, kind)
    # Larger than one block, or nothing would ever come whole.
    for every in (96 << 10, 128 << 10, 192 << 10):
        server.cut_answers(every)
        engine = Engine(make_source(server, address, subscription=f"{address} {every}"), {})
        engine.run()
        server.cut_answers(0)
        assert engine.rows == numbered(4800)


def test_an_answer_that_is_always_cut_gives_up_at_the_deadline(
    server: Server, address: str
) -> None:
    server.fill(address, 5)
    engine = Engine(make_source(server, address, retryDeadline="1s"), {})
    server.cut_answers(300)
    with pytest.raises(SluicegateError, match=r"cut|reset.*gave up after 1 s"):
        engine.run()


def test_a_gateway_that_restarts_costs_waiting_only(server: Server, address: str) -> None:
    server.fill(address, 20)
    engine = Engine(make_source(server, address, maxMessagesPerTrigger="8"), {})
    assert engine.plan()
    server.kill()
    server.start()
    engine.run_batch(0)
    server.kill()
    server.start()
    engine.run()
    assert engine.rows == numbered(20)
    assert server.floor(address, f"sub {address}") == 20


def test_a_gateway_that_stays_away_is_told_after_the_deadline(server: Server, address: str) -> None:
    reader = make_source(server, address, retryDeadline="300ms").streamReader(SCHEMA)
    start = reader.initialOffset()
    server.kill()
    try:
        with pytest.raises(SluicegateError, match=r"gave up after 0\.3 s \(retryDeadline\)"):
            reader.latestOffset(start, ReadAllAvailable())
    finally:
        server.start()


def test_a_commit_that_cannot_be_sent_is_put_off(
    server: Server, address: str, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    monkeypatch.setattr("pyspark_sluicegate.source._COMMIT_SECONDS", 0.2)
    server.fill(address, 5)
    reader = make_source(server, address).streamReader(SCHEMA)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    server.kill()
    try:
        with caplog.at_level(logging.WARNING):
            reader.commit(end)
        assert "put off" in caplog.text
    finally:
        server.start()
    reader.latestOffset(end, ReadAllAvailable())
    assert server.floor(address, f"sub {address}") == 5


def test_a_second_driver_fences_the_first_at_its_commit(server: Server, address: str) -> None:
    server.fill(address, 5)
    first = make_source(server, address).streamReader(SCHEMA)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    make_source(server, address).streamReader(SCHEMA).initialOffset()
    with pytest.raises(SluicegateError, match="Two queries use one name"):
        first.commit(end)


@pytest.mark.parametrize("mode", ["engine", "off"])
def test_other_commit_modes_release_nothing(server: Server, address: str, mode: str) -> None:
    server.fill(address, 9)
    options = {"maxMessagesPerTrigger": "5", "commitMode": mode}
    engine = Engine(make_source(server, address, **options), {})
    engine.run()
    assert engine.rows == numbered(9)
    assert calls(server, address) == (["commit 5"] if mode == "engine" else [])


def test_a_checkpoint_of_another_subscription_is_refused(server: Server, address: str) -> None:
    checkpoint: dict[str, Any] = {}
    server.fill(address, 3)
    Engine(make_source(server, address), checkpoint).run()
    with pytest.raises(SluicegateError, match="belongs to the subscription"):
        Engine(make_source(server, address, subscription="else"), checkpoint).run()


def test_a_deleted_subscription_goes_on_at_the_checkpoint(server: Server, address: str) -> None:
    server.fill(address, 10)
    checkpoint: dict[str, Any] = {}
    engine = Engine(make_source(server, address), checkpoint)
    engine.run()
    server.call("DELETE", f"/api/v1/streams/subscriptions/sub%20{address}")
    server.fill(address, 5)
    engine.reader._frozen = None
    engine.run()
    assert engine.rows == numbered(15)
    server.call("DELETE", f"/api/v1/streams/subscriptions/sub%20{address}")
    server.fill(address, 5)
    Engine(make_source(server, address, startingOffsets="latest"), checkpoint).run()
    assert checkpoint["rows"] == numbered(20)


def test_a_stream_that_was_made_again_is_a_loss_that_is_told(
    server: Server, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.fill(address, 10)
    checkpoint: dict[str, Any] = {}
    Engine(make_source(server, address), checkpoint).run()
    server.call("DELETE", f"/api/v1/streams/{address}")
    server.make(address)
    server.fill(address, 4)
    with pytest.raises(SluicegateError, match=r"deleted and made again.*failOnDataLoss=false"):
        Engine(make_source(server, address), checkpoint).run()
    with caplog.at_level(logging.WARNING):
        Engine(make_source(server, address, failOnDataLoss="false"), checkpoint).run()
    assert "messages were lost" in caplog.text
    assert checkpoint["rows"] == numbered(10) + numbered(4)
    assert json.loads(checkpoint["offsets"][-1])["q"][address] == [2, 4]


def test_nothing_happens_before_the_first_call(server: Server) -> None:
    source = make_source(server, "never-seen")
    source.schema()
    pickle.dumps(source.streamReader(SCHEMA))
    names = [one["name"] for one in server.call("GET", "/api/v1/streams")["items"]]
    assert "never-seen" not in names


def test_two_gateways_in_one_query(server: Server, tmp_path: Any) -> None:
    other = Server(tmp_path)
    try:
        for one, count in ((server, 30), (other, 20)):
            one.make("pair")
            one.fill("pair", count)
        source = make_source(server, "pair", url=f"{server.url},{other.url}")
        engine = Engine(source, {})
        engine.run()
        assert engine.rows == sorted(numbered(30) + numbered(20))
        places = json.loads(engine.checkpoint["offsets"][-1])["q"]
        assert places == {
            f"pair@127.0.0.1:{server.port}": [1, 30], f"pair@127.0.0.1:{other.port}": [1, 20],
        }  # fmt: skip
        assert other.floor("pair", "sub pair") == 20
    finally:
        other.kill()


def read_batch(source: DefaultSource, schema: StructType = SCHEMA) -> list[dict[str, Any]]:
    reader = source.reader(schema)
    return [
        row
        for partition in pickle.loads(pickle.dumps(reader.partitions()))
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def test_batch_reads_between_offsets_and_hold_what_they_read(server: Server, address: str) -> None:
    server.fill(address, 30)
    rows = read_batch(make_source(server, address, startingOffsets="5", endingOffsets="12"))
    assert [(row["offset"], row["body"]) for row in rows] == numbered(12, 5)
    assert server.stream(address)["pins"] == 1
    assert len(read_batch(make_source(server, address))) == 30
    assert read_batch(make_source(server, address, startingOffsets="latest")) == []
    assert server.stream(address)["subscriptions"] == []


def test_batch_refusals(server: Server, address: str) -> None:
    with pytest.raises(SluicegateError, match="No stream taps the address 'nope'"):
        read_batch(make_source(server, "nope"))
    with pytest.raises(SluicegateError, match="'startingOffsets' is 'soon'"):
        read_batch(make_source(server, address, startingOffsets="soon"))
    server.fill(address, 3)
    reader = make_source(server, address, retryDeadline="5s").reader(SCHEMA)
    (partition,) = reader.partitions()
    server.call("DELETE", f"/api/v1/streams/{address}")
    with pytest.raises(SluicegateError, match="There is no stream"):
        list(reader.read(partition))


def test_a_schema_of_the_users_is_a_projection(server: Server, address: str) -> None:
    server.fill(address, 2)
    texts = StructType([
        StructField("headers", StringType()), StructField("body", StringType()),
    ])  # fmt: skip
    rows = read_batch(make_source(server, address), texts)
    assert rows == [{"headers": f'{{"n":"{i}"}}', "body": str(i)} for i in range(2)]
    pairs = StructType([StructField("headers", MapType(StringType(), StringType()))])
    assert read_batch(make_source(server, address), pairs)[1] == {"headers": [("n", "1")]}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (StructField("queue", StringType()), "The schema has 'queue' string"),
        (StructField("offset", IntegerType()), "possible: as bigint, nullable"),
        (StructField("offset", LongType(), nullable=False), "nullable"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(server: Server, field: StructField, text: str) -> None:
    with pytest.raises(SluicegateError, match=text):
        make_source(server, "any").streamReader(StructType([field]))


def test_a_stream_needs_a_subscription(server: Server) -> None:
    with pytest.raises(SluicegateError, match="'subscription' is required"):
        make_source(server, "any", subscription="").streamReader(SCHEMA)
