"""The rollup in Spark against a real gateway: late messages, restarts, each result once."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from proton import Message
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST, ScratchGateway
from pyspark_sluicegate.pipelines import rollup
from tests.interop.support import queue, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

#: A full minute; messages say how many seconds behind it they were created.
BASE = 1_767_225_600


class Orders:
    """What is sent, and what is to come of it: (minute, region) -> [count, cents, missing]."""

    def __init__(self, gateway: ScratchGateway) -> None:
        self.gateway = gateway
        self.expected: dict[tuple[int, str | None], list[int]] = {}

    def send(self, *orders: tuple[int, str | None, Any], late: bool = False) -> None:
        """Send (second, region, amount in cents, or what is no number)."""
        connection = BlockingConnection(f"amqp://{HOST}:{self.gateway.port}")
        sender = connection.create_sender("orders")
        for second, region, cents in orders:
            amount = cents / 100 if isinstance(cents, int) else cents
            body = json.dumps({"order": {"region": region}, "amount": amount})
            sender.send(Message(body=body, creation_time=BASE + second, durable=True))
            if not late:
                found = self.expected.setdefault((second // 60, region), [0, 0, 0])
                is_number = isinstance(cents, int)
                found[0] += 1
                found[1] += cents if is_number else 0
                found[2] += not is_number
        connection.close()

    def wanted(self, minutes: range) -> Counter[tuple[Any, ...]]:
        """Return each result of these minutes once."""
        return Counter(
            (minute, region, *found)
            for (minute, region), found in self.expected.items()
            if minute in minutes
        )


def results(gateway: ScratchGateway) -> Counter[tuple[Any, ...]]:
    """Return the results in the queue, as `Orders.wanted` has them; they stay there."""
    count = queue(gateway, "totals")["messageCount"]
    connection = BlockingConnection(f"amqp://{HOST}:{gateway.port}")
    receiver = connection.create_receiver("totals", credit=1000)
    found: Counter[tuple[Any, ...]] = Counter()
    for _ in range(count):
        message = receiver.receive(10)
        assert message.content_type == "application/json"
        one = json.loads(message.body)
        start = datetime.fromisoformat(one["start"]).astimezone(UTC)
        end = datetime.fromisoformat(one["end"])
        assert (end - start).total_seconds() == 60
        cents = round((one["amount"] or 0) * 100)
        minute = (int(start.timestamp()) - BASE) // 60
        found[minute, one["region"], one["count"], cents, one["missing"]] += 1
    connection.close()  # settles nothing: all come back
    wait_until(lambda: queue(gateway, "totals")["deliveringCount"] == 0)
    return found


def forget_last_commit(checkpoint: Path) -> None:
    """Have Spark know nothing of its last batch's end, as after a crash behind the sink's."""
    commits = [one for one in (checkpoint / "commits").iterdir() if one.name.isdigit()]
    last = max(commits, key=lambda one: int(one.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def told(text: str) -> dict[str, Any]:
    """Return the last line of progress."""
    lines = re.findall(r"^\{.*\}$", text, re.MULTILINE)
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def test_results_are_sent_once_over_late_messages_and_restarts(
    spark: Any,
    tmp_path: Path,
    gateway_process: Callable[..., ScratchGateway],
    capfd: pytest.CaptureFixture[str],
) -> None:
    gateway = gateway_process()
    gateway.request("POST", "/api/v1/streams", {"name": "orders", "address": "orders"})
    orders, checkpoint = Orders(gateway), tmp_path / "checkpoint"
    metrics = tmp_path / "metrics.prom"
    command = [
        "--url", gateway.url, "--address", "orders", "--time", "created",
        "--key", "body.order.region", "--sum", "body.amount", "--watermark", "10 seconds",
        "--to", "totals", "--routing", "anycast", "--checkpoint", str(checkpoint),
        "--available-now", "--json", "--metrics-file", str(metrics),
    ]  # fmt: skip

    def run() -> dict[str, Any]:
        capfd.readouterr()
        assert rollup.main(command) == 0
        return told(capfd.readouterr().err)

    orders.send(*((i, ("eu", "us")[i % 2], 100 + i) for i in range(0, 120, 7)))
    orders.send((30, None, 5), (31, "eu", "much"), (190, "eu", 1))
    first = run()
    assert results(gateway) == orders.wanted(range(2))
    assert first["rows"] == sum(found[0] for found in orders.expected.values())
    assert (first["late"], first["open_groups"], first["lag"]) == (0, 1, {"orders": 0})

    # Behind the watermark: in no result, and told. The fourth minute is still open.
    orders.send((5, "eu", 900), (6, "us", 900), late=True)
    orders.send((200, "eu", 2), (201, "us", 3), (400, "eu", 4))
    second = run()
    assert second["late"] >= 1
    assert results(gateway) == orders.wanted(range(6))
    assert f"sluicegate_rollup_late_total {second['late']}\n" in metrics.read_text()

    # The sink has the last batch and Spark does not know: it comes again, and is not sent again.
    for _ in range(2):
        forget_last_commit(checkpoint)
        orders.send((401, "us", 7))
        run()
        assert results(gateway) == orders.wanted(range(6))
    gateway.kill()
    gateway.start()
    orders.send((600, "us", 1))
    run()
    assert results(gateway) == orders.wanted(range(10))


def test_an_expression_that_spark_refuses_is_named_in_a_line(
    spark: Any, gateway: ScratchGateway, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gateway.request("POST", "/api/v1/streams", {"name": "orders", "address": "orders"})
    given = ["--url", gateway.url, "--address", "orders", "--to", "totals", "--available-now"]
    wrong = [*given, "--checkpoint", str(tmp_path / "c"), "--key", "n=nonsense(body.a)"]
    assert rollup.main(wrong) == 1
    (line,) = [one for one in capfd.readouterr().err.splitlines() if one.startswith("rollup:")]
    assert "--key ['n=nonsense(body.a)']" in line
    assert "`nonsense`" in line
