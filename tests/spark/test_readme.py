"""The program of the package's README that writes, as printed but for the ports and folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from gateway.trial.scratch import ScratchGateway
from tests.gateway.stomp_peer import StompPeer
from tests.sink.writing import tapped
from tests.spark.session import spark_session
from tests.spark.support import readme_programs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

COUNT = 200


@pytest.fixture(scope="module")
def spark(spark_environment: dict[str, str]) -> Iterator[Any]:
    with spark_session("readme") as session:
        yield session


def send(gateway: ScratchGateway, numbers: range) -> None:
    peer = StompPeer(gateway.stomp_port)
    for number in numbers:
        head = f"SEND\ndestination:orders\nregion:eu\nreceipt:{number}\n\n"
        peer.write(head, b"streamed %d" % number)
        assert peer.read()[1]["receipt-id"] == str(number)
    peer.close()


def test_the_program_that_writes_sends_a_stream_and_a_table(
    spark: Any, gateway: ScratchGateway, tmp_path: Path
) -> None:
    for name in ("orders", "totals"):
        gateway.request("POST", "/api/v1/streams", {"name": name, "address": name})
    send(gateway, range(COUNT))
    source = spark.readStream.format("sluicegate").option("url", gateway.url)
    source = source.option("address", "orders").option("subscription", "back")
    source = source.option("startingOffsets", "earliest").option("includeHeaders", "map")
    (program,) = (one for one in readme_programs() if '.writeStream.format("sluicegate")' in one)
    program = program.replace("http://127.0.0.1:8161", gateway.url)
    program = program.replace("/data/checkpoints", str(tmp_path))
    table = spark.range(COUNT).selectExpr("concat('table ', id) AS body", "id % 10 AS priority")
    names: dict[str, Any] = {
        "stream": source.load(),
        "table": table.selectExpr("body", "CAST(priority AS INT) AS priority"),
    }
    exec(program, names)
    names["query"].processAllAvailable()
    names["query"].stop()
    # Started again, the stream goes on at its checkpoint, and the table is written once more.
    send(gateway, range(COUNT, COUNT + 10))
    exec(program, names)
    names["query"].processAllAvailable()
    names["query"].stop()
    streamed = {b"streamed %d" % number: 1 for number in range(COUNT + 10)}
    written = {b"table %d" % number: 2 for number in range(COUNT)}
    assert Counter(tapped(gateway, "totals")) == Counter(streamed | written)
    read = spark.read.format("sluicegate").option("url", gateway.url).option("address", "totals")
    kept = read.option("includeHeaders", "map").load().where("headers['region'] = 'eu'")
    assert kept.count() == COUNT + 10
