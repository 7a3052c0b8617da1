"""100,000 messages from AMQP and STOMP through the real gateway into parquet: each exactly once.

While three clients send, the query is stopped twice in the middle and started again from its
checkpoint, and the gateway is killed once by SIGKILL and started again on its data directory.
Spark's own file sink writes the rows, so what counts as written is what Spark says is committed.

What "once" means: every offset of the stream is in the sink once, and the sink holds nothing else.
A body is one sending of one message, so none may be there twice, each confirmed one must be there,
and one without a confirmation (the kill came first) may be there or not: whoever sent it did not
learn which, and sent the message again under another body.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.trial.scratch import ScratchGateway
from tests.spark.senders import AmqpSender, Sender, StompPySender, StompSocketSender
from tests.spark.session import STARVED, spark_session

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.timeout(300)]
pytest.importorskip("pyspark")

ADDRESS = "orders"
SUBSCRIPTION = "exactly-once"
MESSAGES = 100_000
#: The pace, messages a second: what the senders are allowed comes while Spark works at it.
RATE = 4000
BATCH_MAX = 9_000
PARTITIONS = 3


@pytest.fixture(scope="module")
def spark(spark_environment: dict[str, str]) -> Iterator[Any]:
    # A slow machine makes many small batches, and the checks look at the ends of all of them.
    with spark_session("exactly-once", spark_sql_streaming_minBatchesToRetain="100000") as session:
        yield session


@contextmanager
def sending(gateway: ScratchGateway) -> Iterator[list[Sender]]:
    """Three clients that share the work; none is left behind."""
    shares: list[tuple[type[Sender], str, int, int]] = [
        (AmqpSender, "amqp", gateway.port, MESSAGES * 45 // 100),
        (StompPySender, "stomppy", gateway.stomp_port, MESSAGES * 15 // 100),
        (StompSocketSender, "stomp", gateway.stomp_port, MESSAGES * 40 // 100),
    ]
    senders = [
        kind(name, port, ADDRESS, count, RATE * count / MESSAGES)
        for kind, name, port, count in shares
    ]
    for sender in senders:
        sender.start()
    try:
        yield senders
    finally:
        for sender in senders:
            sender.cancel()
        for sender in senders:
            sender.join(20)


class Job:
    """The query, started again and again from one checkpoint into one parquet table."""

    def __init__(self, spark: Any, gateway: ScratchGateway, folder: Path) -> None:
        self.gateway = gateway
        self.table = folder / "table"
        self.checkpoint = folder / "checkpoint"
        self._spark = spark
        self._query: Any = None

    def start(self) -> None:
        options = {
            "url": self.gateway.url,
            "address": ADDRESS,
            "subscription": SUBSCRIPTION,
            "startingOffsets": "earliest",
            "maxMessagesPerTrigger": str(BATCH_MAX),
            "minPartitions": str(PARTITIONS),
        }
        frame = self._spark.readStream.format("sluicegate").options(**options).load()
        writer = frame.select("offset", frame.body.cast("string")).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        self._query = writer.option("path", str(self.table)).start()

    def stop(self) -> None:
        self._go_on()
        self._query.stop()

    def _go_on(self) -> None:
        """Start it again if its worker was starved; what else ends it is a defect."""
        error = self._query.exception()
        if error is not None:
            assert STARVED in str(error)
            self.start()

    def place(self) -> int:
        """How far the batches go whose end Spark has written down as done; -1 before the first."""
        self._go_on()
        done = _numbered(self.checkpoint / "commits")
        return self.ends()[max(done)] if done else -1

    def ends(self) -> dict[int, int]:
        """Where each planned batch ends, as the checkpoint has it."""
        files = _numbered(self.checkpoint / "offsets")
        texts = {number: path.read_text().splitlines() for number, path in files.items()}
        return {n: json.loads(lines[2])["q"][ADDRESS][1] for n, lines in texts.items() if lines[2:]}

    def written(self) -> Any:
        """The table, by the files that the sink's own log names."""
        return self._spark.read.parquet(str(self.table))


def _numbered(folder: Path) -> dict[int, Path]:
    if not folder.is_dir():
        return {}
    return {int(path.name): path for path in folder.iterdir() if path.name.isdigit()}


def stream(gateway: ScratchGateway) -> tuple[int, int]:
    """Return the head of the stream and the floor of the query's subscription."""
    status, facts = gateway.request("GET", f"/api/v1/streams/{ADDRESS}")
    assert status == 200
    assert isinstance(facts, dict)
    (subscription,) = facts["subscriptions"]
    assert subscription["name"] == SUBSCRIPTION
    return facts["head"], subscription["floor"]


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_every_message_is_in_the_table_once(
    spark: Any, gateway: ScratchGateway, tmp_path: Path
) -> None:
    tap = {"name": ADDRESS, "address": ADDRESS}
    assert gateway.request("POST", "/api/v1/streams", tap)[0] == 201
    job = Job(spark, gateway, tmp_path)
    job.start()
    with sending(gateway) as senders:

        def confirmed() -> int:
            assert [s.failure for s in senders if s.failure] == []
            return sum(len(sender.confirmed) for sender in senders)

        def allow(share: float) -> None:
            for sender in senders:
                sender.allow(share)

        # Stopped with batches to do, while sending goes on.
        allow(0.3)
        wait_until(lambda: job.place() > 0)
        stop_while_sending(job, confirmed, lambda: allow(0.45))
        # Killed while it takes from all three as fast as they can, and Spark reads.
        before = job.place()
        allow(0.6)
        wait_until(lambda: job.place() > before)
        for sender in senders:
            sender.hurry()
        allow(0.75)
        seen = kill_while_looking(gateway)
        at_kill = confirmed()
        gateway.start()
        assert stream(gateway)[0] >= seen, "an offset was shown that the kill took away"
        before = job.place()
        allow(0.9)
        wait_until(lambda: confirmed() > at_kill)
        wait_until(lambda: job.place() > before)
        stop_while_sending(job, confirmed, lambda: allow(1.0))

        wait_until(lambda: confirmed() == MESSAGES)
        for sender in senders:
            sender.join(20)
        assert all(sender.connections > 1 for sender in senders)
        assert any(sender.resent for sender in senders), "the kill found nothing unconfirmed"
    head, _ = stream(gateway)
    wait_until(lambda: job.place() == head)
    # Spark never commits its last batch; the source releases it when it looks again.
    wait_until(lambda: stream(gateway)[1] == head)
    job.stop()

    check_batches(job, head)
    table = job.written()
    assert len(table.inputFiles()) > 2 * len(job.ends()), "a batch is cut into several tasks"
    check_rows(table.toArrow(), head, senders)


def stop_while_sending(
    job: Job, confirmed: Callable[[], int], allow_more: Callable[[], None]
) -> None:
    """Stop the query, have the senders go on without it, start it from its checkpoint."""
    job.stop()
    allow_more()
    place, floor = job.place(), stream(job.gateway)[1]
    assert 0 <= floor <= place, "what Spark has not written must stay readable"
    known = confirmed()
    wait_until(lambda: confirmed() > known + 1000)
    job.start()


def kill_while_looking(gateway: ScratchGateway) -> int:
    """Kill the gateway a moment from now; returns the highest head that it showed until then."""
    heads = [0]
    timer = threading.Timer(0.1, gateway.kill)
    timer.start()
    try:
        while True:
            heads.append(stream(gateway)[0])
    except (OSError, http.client.HTTPException):
        timer.join()
    assert len(heads) > 2
    return max(heads)


def check_batches(job: Job, head: int) -> None:
    """The batches, as written ahead, cover the stream without a gap and within the cap."""
    ends = job.ends()
    assert sorted(ends) == list(range(len(ends)))
    places = [0, *(ends[number] for number in range(len(ends)))]
    sizes = [high - low for low, high in pairwise(places)]
    assert places[-1] == head
    assert min(sizes) > 0, "an empty batch was planned"
    assert max(sizes) == BATCH_MAX, "the cap was not reached, so it was not tried"


def check_rows(rows: Any, head: int, senders: list[Sender]) -> None:
    offsets = rows.column("offset").to_pylist()
    assert len(offsets) == head
    assert sorted(offsets) == list(range(head)), "an offset is missing, or there twice"

    bodies = dict(zip(offsets, rows.column("body").to_pylist(), strict=True))
    found = Counter(bodies.values())
    twice = [body for body, count in found.items() if count > 1]
    assert twice == []
    sent = {body for sender in senders for tries in sender.attempts.values() for body in tries}
    assert found.keys() <= sent, "invented"
    for sender in senders:
        lost = [body for body in sender.confirmed.values() if body not in found]
        assert lost == [], f"{sender.name}: confirmed and lost"
        once = sender.attempts.keys() - sender.resent
        assert all(found[sender.attempts[number][0]] == 1 for number in once)
        assert len(sender.confirmed) == sender.count
        check_order(sender, bodies)
    unconfirmed = sum(len(tries) - 1 for s in senders for tries in s.attempts.values())
    assert MESSAGES <= head <= MESSAGES + unconfirmed


def check_order(sender: Sender, bodies: dict[int, str]) -> None:
    """What one client sent over one connection stands in the stream in the order of its sending."""
    mine = [bodies[at] for at in sorted(bodies) if bodies[at].startswith(f"{sender.name}-")]
    for attempt in range(sender.connections):
        numbers = [int(b.split("-")[1].split("#")[0]) for b in mine if b.endswith(f"#{attempt}")]
        assert numbers == sorted(numbers)
