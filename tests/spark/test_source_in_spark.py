"""The source's options as Spark runs them: selector, types, conditions, progress, refusals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_sluicegate.progress import lag, total
from tests.spark.scripted import scripted
from tests.spark.session import run_to_its_end, spark_session
from tests.spark.support import Server, readme_programs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180), pytest.mark.xdist_group("spark")]
pyspark = pytest.importorskip("pyspark")

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def spark(spark_environment: dict[str, str]) -> Iterator[Any]:
    with spark_session("source-options") as session:
        yield session


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("streams"))
    yield made
    made.kill()


def stream(spark: Any, url: str, address: str, **options: str) -> Any:
    reader = spark.readStream.format("sluicegate").option("url", url)
    reader = reader.option("address", address).option("subscription", f"sub-{address}")
    return reader.options(**{"startingOffsets": "earliest", "retryDeadline": "1s", **options})


def run(frame: Any, checkpoint: Path, sink: Callable[[Any, int], None]) -> Any:
    writer = frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
    return run_to_its_end(writer.option("checkpointLocation", str(checkpoint)).start, 90)


def test_a_selector_and_typed_properties(spark: Any, server: Server, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    server.make("typed")
    server.fill("typed", 300, "amqp")
    server.fill("typed", 100)
    found: list[Any] = []
    options = {"selector": "n BETWEEN 100 AND 149", "includeHeaders": "variant"}
    frame = stream(spark, server.url, "typed", **options).load()
    assert dict(frame.dtypes)["properties"] == "variant"
    numbers = frame.select(
        "offset",
        f.variant_get("properties", "$.n", "int").alias("n"),
        f.schema_of_variant("properties").alias("kind"),
    )
    run(numbers, tmp_path, lambda batch, _: found.extend(batch.collect()))
    assert sorted((row.offset, row.n) for row in found) == [(n, n) for n in range(100, 150)]
    assert {row.kind for row in found} == {"OBJECT<n: BIGINT>"}
    assert server.floor("typed", "sub-typed") == 400
    read = spark.read.format("sluicegate").option("url", server.url).option("address", "typed")
    texts = read.option("selector", "n = '399'").option("columns", "offset,properties,traceparent")
    (row,) = texts.load().collect()
    assert (row.offset, row.properties.toPython(), row.traceparent) == (399, {"n": "399"}, None)


def test_conditions_reach_the_source_when_both_sides_agree(spark: Any, server: Server) -> None:
    server.make("pushed")
    server.fill("pushed", 1000)
    read = spark.read.format("sluicegate").option("url", server.url).option("address", "pushed")
    frame = read.option("pushdown", "true").load()
    few = "offset >= 990 and address = 'pushed' and timestamp > timestamp'2020-01-01'"
    with pytest.raises(Exception, match=PUSHDOWN.replace(".", r"\.")):
        frame.where(few).count()
    spark.conf.set(PUSHDOWN, "true")
    try:
        narrowed = read.option("pushdown", "true").load().where(few)
        assert [row.offset for row in narrowed.orderBy("offset").collect()] == [*range(990, 1000)]
        assert read.load().where("offset in (3, 5) and body is not null").count() == 2
        assert read.load().where("address = 'else' or offset = 7").count() == 1
        assert read.load().where("address = 'else'").count() == 0
    finally:
        spark.conf.set(PUSHDOWN, "false")


def test_progress_tells_the_lag(spark: Any, server: Server, tmp_path: Path) -> None:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    server.make("behind")
    server.fill("behind", 250)
    heard: list[dict[str, int]] = []

    class Listening(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...

        def onQueryProgress(self, event: Any) -> None:
            heard.append(lag(event.progress))

        def onQueryTerminated(self, event: Any) -> None: ...

    listener = Listening()
    spark.streams.addListener(listener)
    try:
        frame = stream(spark, server.url, "behind", maxMessagesPerTrigger="100").load()
        query = run(frame, tmp_path, lambda batch, _: batch.count())
        end = time.monotonic() + 30
        while len(heard) < 3 and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
    assert [one["behind"] for one in heard[:3]] == [150, 50, 0]
    assert [total(one) for one in query.recentProgress[:3]] == [150, 50, 0]
    source = query.lastProgress["sources"][0]
    for name in ("startOffset", "endOffset", "latestOffset"):
        place = json.loads(source[name]) if isinstance(source[name], str) else source[name]
        assert type(place["q"]["behind"][1]) is int
    assert source["metrics"] == {}, "Python sources cannot report any"


@pytest.mark.timeout(300)
def test_the_programs_of_the_readme_run_and_count_nothing_twice(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    server.make("orders")
    # The second one writes, for which this server has no sink: `test_readme` has a gateway.
    first, _, choosing, typed, listening = readme_programs()
    program = first.replace("http://127.0.0.1:8161", server.url)
    program = program.replace("/data/checkpoints", str(tmp_path))
    program = program.replace('.format("console")', ".foreachBatch(take)")
    program = program.replace(".start()", ".trigger(availableNow=True).start()")
    taken: list[int] = []
    names: dict[str, Any] = {
        "take": lambda batch, _: taken.extend(row.offset for row in batch.collect())
    }
    for count, seen in ((0, []), (5, [0, 1, 2, 3, 4]), (2, [0, 1, 2, 3, 4, 5, 6])):
        if count:
            server.fill("orders", count, "amqp")
        exec(program, names)
        assert sorted(taken) == seen
    names["reader"] = spark.read.format("sluicegate").option("url", server.url)
    names["reader"] = names["reader"].option("address", "orders")
    exec(choosing, names)
    assert names["urgent"].load().count() == 0
    names["reader"] = names["reader"].option("selector", "n > 4")
    exec(typed.replace("weight", "n"), names)
    assert names["ns"].agg(f.sum("n")).collect() == [(11.0,)]
    exec(listening, names)
    assert names["total"](names["query"].lastProgress) == 0


def refusal(spark: Any, url: str, checkpoint: Path, **options: str) -> str:
    """Return what Spark shows of a query that cannot be."""
    frame = stream(spark, url, "refused", **options)
    with pytest.raises(Exception) as caught:
        run(frame.load(), checkpoint, lambda batch, _: batch.count())
    return str(caught.value)


def test_refusals_of_options_and_checkpoints_reach_the_user(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    server.make("refused")
    server.fill("refused", 5)
    run(
        stream(spark, server.url, "refused").load(), tmp_path / "ok", lambda frame, _: frame.count()
    )
    cases = [
        ({"maxOffsetsPerTrigger": "5"}, "did you mean 'maxMessagesPerTrigger'"),
        ({"endingOffsets": "5"}, "'endingOffsets' is not for a stream: a stream has no end"),
        ({"startingTimestamp": "0"}, "'startingOffsets' and 'startingTimestamp' contradict"),
        ({"subscription": "another"}, "checkpoint belongs to the subscription 'sub-refused'"),
        ({"selector": "n = 1"}, "The checkpoint was written with the selector none"),
    ]
    for options, text in cases:
        assert text in refusal(spark, server.url, tmp_path / "ok", **options)
    (offsets,) = (tmp_path / "ok" / "offsets").glob("[0-9]")
    kept = offsets.read_text()
    for found, text in (('"v": 9', "knows form 1"), ('"w": 1', "not written by this source")):
        offsets.write_text(kept.replace('"v": 1', found))
        # Spark's own check would find the change first.
        offsets.with_name(f".{offsets.name}.crc").unlink(missing_ok=True)
        assert text in refusal(spark, server.url, tmp_path / "ok")


def test_refusals_of_gateways_reach_the_user(spark: Any, tmp_path: Path) -> None:
    with scripted((401, b'{"message": "The login is wrong."}')) as script:
        said = refusal(spark, script.url, tmp_path / "a", username="etl", password="hunter2")
        assert "The login is wrong. Give `token`, or `username` and `password`." in said
        assert "hunter2" not in said
        gone = script.url
    assert "gave up after 1 s (retryDeadline)" in refusal(spark, gone, tmp_path / "b")
    with scripted((200, b'{"fence": 1, "fl')) as script:
        assert "gave up after 1 s (retryDeadline)" in refusal(spark, script.url, tmp_path / "c")
    with scripted((200, b'{"hello": "world"}')) as script:
        assert "What answers there is no Sluicegate gateway" in refusal(
            spark, script.url, tmp_path / "d"
        )
