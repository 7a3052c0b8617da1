"""The sink of a real gateway: over TLS, restarted, beside a consumer, with what Spark is told."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from proton.utils import BlockingConnection

from gateway.trial.scratch import ScratchGateway
from gateway.trial.self_signed import self_signed
from pyspark_sluicegate.options import SluicegateError
from pyspark_sluicegate.staging import Batch, Staged
from tests.sink.writing import options, rows_of, tapped

NUMBERS = [b"%d" % number for number in range(2_000)]


def write(batch: Batch, texts: list[bytes], attempt: str = "a") -> None:
    batch.commit([batch.stage(rows_of(texts), 0, attempt)])


def test_over_tls_with_a_trusted_certificate(tmp_path: Path) -> None:
    pair = self_signed(tmp_path)
    with ScratchGateway(
        tmp_path / "gateway", tls=(pair.certificate, pair.key), tls_management=True
    ) as gateway:
        assert gateway.url.startswith("https://")
        strangers = options(gateway.url, retryDeadline="1s")
        with pytest.raises(SluicegateError, match="its certificate is not trusted"):
            write(Batch(strangers, "p", 0), NUMBERS)
        trusted = options(gateway.url, tlsCaFile=str(pair.certificate))
        write(Batch(trusted, "p", 0), NUMBERS)
        _, shown = gateway.request("GET", "/api/v1/queues/out")
        assert shown["messageCount"] == len(NUMBERS)


def test_a_stage_outlives_a_kill_and_an_expired_one_is_told(
    gateway_process: Callable[..., ScratchGateway],
) -> None:
    gateway = gateway_process(settings=("sink.stage-expiry=3000",))
    batch = Batch(options(gateway.url), "p", 0)
    staged = batch.stage(rows_of(NUMBERS), 0, "a")
    gateway.kill()
    gateway.start()
    batch.commit([staged])
    late = Batch(options(gateway.url), "p", 1)
    staged = late.stage(rows_of(NUMBERS), 0, "a")
    folder = gateway.data / "streams" / "staged"
    until = time.monotonic() + 30
    while list(folder.iterdir()):
        assert time.monotonic() < until, "it does not expire"
        time.sleep(0.2)
    with pytest.raises(SluicegateError, match=r"kept for 3 s .sink\.stage-expiry"):
        late.commit([staged])
    _, shown = gateway.request("GET", "/api/v1/queues/out")
    assert shown["messageCount"] == len(NUMBERS)


def test_a_compacted_data_directory_knows_what_is_committed_and_what_is_begun(
    gateway_process: Callable[..., ScratchGateway],
) -> None:
    limit = ("address-settings.full.max-size-messages=10",)
    policy = ('address-settings.full.address-full-policy="BLOCK"',)
    gateway = gateway_process(settings=limit + policy)
    write(Batch(options(gateway.url), "p", 4), NUMBERS)
    stuck = Batch(options(gateway.url, address="full", retryDeadline="300ms"), "q", 0)
    with pytest.raises(SluicegateError, match="Row 10 of a partition, for 'full'"):
        write(stuck, NUMBERS[:25])
    gateway.kill()
    command = [sys.executable, "-m", "gateway", "data", "compact", str(gateway.data)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    gateway.start()
    _, known = gateway.request("GET", "/api/v1/sink/producers")
    p, q = known["items"]
    assert (p["name"], p["committed"]) == ("p", 4)
    assert (q["name"], q["batch"], q["messages"], q["total"]) == ("q", 0, 10, 25)
    write(Batch(options(gateway.url), "p", 4), NUMBERS)
    _, shown = gateway.request("GET", "/api/v1/queues/out")
    assert shown["messageCount"] == len(NUMBERS)


def test_a_consumer_has_each_message_once_and_in_order(gateway: ScratchGateway) -> None:
    """While it consumes, batches are committed: what it settles is gone, what comes is new."""
    count = 10
    got: list[bytes] = []

    def consume() -> None:
        connection = BlockingConnection(f"127.0.0.1:{gateway.port}", timeout=30)
        receiver = connection.create_receiver("out", credit=500)
        while len(got) < count * len(NUMBERS):
            message = receiver.receive(timeout=30)  # its body is a view into it
            got.append(bytes(message.body))
            receiver.accept()
        connection.close()

    gateway.request("POST", "/api/v1/streams", {"name": "out", "address": "out"})
    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    texts = [[b"%d" % n for n in range(2_000 * i, 2_000 * (i + 1))] for i in range(count)]
    for number, some in enumerate(texts):
        write(Batch(options(gateway.url), "p", number), some)
    consumer.join(60)
    every = list(itertools.chain(*texts))
    assert got == every
    assert tapped(gateway, "out") == every


def test_many_stages_are_published_in_the_order_of_their_partitions(
    gateway: ScratchGateway,
) -> None:
    gateway.request("POST", "/api/v1/streams", {"name": "out", "address": "out"})
    batch = Batch(options(gateway.url), "p", 0)
    texts = [[b"%d/%d" % (part, row) for row in range(5)] for part in range(60)]
    staged = [batch.stage(rows_of(some), part, "a") for part, some in enumerate(texts)]
    batch.commit(staged[::-1])
    assert tapped(gateway, "out") == list(itertools.chain(*texts))


def test_what_spark_is_told_of_a_refused_batch(gateway: ScratchGateway) -> None:
    batch = Batch(options(gateway.url, retryDeadline="1s"), "p", 0)
    bad = pa.record_batch({"body": pa.array([b"1"]), "priority": pa.array([10])})
    with pytest.raises(SluicegateError, match=r"Partition 0 .*: Row 0: the column"):
        batch.stage([bad], 0, "a")
    with pytest.raises(SluicegateError, match="the stage of partition 0 with 5 rows is not here"):
        batch.commit([Staged(0, "a", 5)])
    batch.commit([])
    batch.commit([])
    _, known = gateway.request("GET", "/api/v1/sink/producers/p")
    assert known["committed"] == 0
