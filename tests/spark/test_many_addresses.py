"""A thousand addresses that have little to say cost a micro-batch one task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from gateway.trial.scratch import ScratchGateway
from pyspark_sluicegate.offsets import Partition
from pyspark_sluicegate.source import DefaultSource
from tests.gateway.stomp_peer import StompPeer
from tests.spark.session import run_to_its_end, spark_session
from tests.spark.test_source import SCHEMA

pytestmark = pytest.mark.timeout(240)

ADDRESSES = 1000
EACH = 3


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    """A gateway with a thousand tapped addresses, which have three messages each."""
    with ScratchGateway(tmp_path_factory.mktemp("quiet")) as gateway:
        for number in range(ADDRESSES):
            name = f"quiet.{number}"
            made, _ = gateway.request("POST", "/api/v1/streams", {"name": name, "address": name})
            assert made == 201
        send(gateway, [number for number in range(ADDRESSES) for _ in range(EACH)])
        yield gateway


def send(gateway: ScratchGateway, addresses: list[int]) -> None:
    peer = StompPeer(gateway.stomp_port)
    for place, number in enumerate(addresses):
        last = place == len(addresses) - 1
        peer.send(f"quiet.{number}", b"%d" % number, "last" if last else "")
    assert peer.read()[1]["receipt-id"] == "last"
    peer.close()


def options(gateway: ScratchGateway, subscription: str) -> dict[str, str]:
    return {
        "url": gateway.url, "addressPattern": "quiet.#", "subscription": subscription,
        "startingOffsets": "earliest", "retryDeadline": "20s",
    }  # fmt: skip


def test_they_are_planned_into_one_task(quiet: ScratchGateway) -> None:
    reader = DefaultSource(options(quiet, "planned")).streamReader(SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (task,) = reader.partitions(start, end)
    assert isinstance(task, Partition)
    assert len(task.spans) == ADDRESSES
    rows = [row["body"] for batch in reader.read(task) for row in batch.to_pylist()]
    wanted = [b"%d" % number for number in range(ADDRESSES) for _ in range(EACH)]
    assert sorted(rows) == sorted(wanted)
    # All but one are silent: no range of theirs is asked for.
    send(quiet, [500])
    after = reader.latestOffset(end, reader.getDefaultReadLimit())
    (task,) = reader.partitions(end, after)
    assert isinstance(task, Partition)
    assert [one.stream for one in task.spans] == ["quiet.500"]


@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_one_task_a_batch(
    quiet: ScratchGateway, spark_environment: dict[str, str], tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []

    def take(frame: Any, batch: int) -> None:
        seen.append((frame.rdd.getNumPartitions(), frame.count()))

    with spark_session("quiet") as spark:

        def start() -> Any:
            source = spark.readStream.format("sluicegate").options(**options(quiet, "in-spark"))
            query = source.load().writeStream.foreachBatch(take)
            query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
            return query.trigger(availableNow=True).start()

        run_to_its_end(start, 120)
    _, shown = quiet.request("GET", "/api/v1/streams")
    assert isinstance(shown, dict)
    assert seen == [(1, sum(one["head"] for one in shown["items"]))]
    assert seen[0][1] >= ADDRESSES * EACH
