"""A gateway is lost with its disk; an empty one of its name goes on where the table ends."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from gateway.trial.scratch import GatewayFailedError, ScratchGateway
from tests.spark.archive.jobs import Job, source
from tests.spark.senders import StompSocketSender
from tests.spark.test_source import SCHEMA, Engine

pytestmark = pytest.mark.timeout(180)
Start = Callable[..., ScratchGateway]


def send(gateway: ScratchGateway, address: str, count: int, name: str = "s") -> None:
    sender = StompSocketSender(name, gateway.stomp_port, address, count, 0)
    sender.allow(1.0)
    sender.start()
    sender.join(60)
    assert len(sender.confirmed) == count


def tap(gateway: ScratchGateway, name: str) -> None:
    made = gateway.request("POST", "/api/v1/streams", {"name": name, "address": name})
    assert made[0] == 201


def shown(gateway: ScratchGateway, name: str) -> Any:
    status, facts = gateway.request("GET", f"/api/v1/streams/{name}")
    assert status == 200
    return facts


def settings(table: Path) -> tuple[str, ...]:
    return ("name='east'", f"archive.table='{table}'")


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_an_empty_gateway_goes_on_with_offsets_lives_and_readers(
    gateway_process: Start, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    first = gateway_process(settings=settings(table))
    for name in ("orders", "news.eu"):
        tap(first, name)
    first.request("DELETE", "/api/v1/streams/orders")
    tap(first, "orders")  # its second life
    send(first, "orders", 3000)
    send(first, "news.eu", 500)
    options = {"url": first.url, "addressPattern": "#"}
    Job(table, **options).run()
    checkpoint: dict[str, Any] = {}
    reader = source(first.url, table, address="orders", maxMessagesPerTrigger="1000")
    engine = Engine(reader, checkpoint)
    assert engine.plan()
    engine.run_batch(0)
    bodies = dict(checkpoint["rows"])
    assert len(bodies) == 1000
    first.kill()
    shutil.rmtree(first.data)

    second = first
    second.start()
    facts = shown(second, "orders")
    assert (facts["epoch"], facts["first"], facts["head"]) == (2, 3000, 3000)
    assert shown(second, "news.eu")["head"] == 500
    send(second, "orders", 400, "t")
    assert shown(second, "orders")["head"] == 3400
    # A restart keeps it so, before and after its first segment.
    assert second.stop() == 0
    second.start()
    facts = shown(second, "orders")
    assert (facts["epoch"], facts["first"], facts["head"]) == (2, 3000, 3400)
    Engine(reader, checkpoint).run()
    assert [offset for offset, _ in checkpoint["rows"]] == list(range(3400))
    assert len({body for _, body in checkpoint["rows"]}) == 3400
    # The archive goes on, as the same gateway, without being told.
    Job(table, **options).run()
    done = cli("archive", "verify", str(table), "--json")
    assert done.returncode == 0, done.stderr
    proof = json.loads(done.stdout)
    assert proof["whole"]
    facts = ("stream", "epoch", "first", "end", "rows")
    assert [tuple(one[fact] for fact in facts) for one in proof["streams"]] == [
        ("news.eu", 1, 0, 500, 500),
        ("orders", 2, 0, 3400, 3400),
    ]


def test_a_first_start_with_a_table_that_is_not_there_yet(
    gateway_process: Start, tmp_path: Path
) -> None:
    gateway = gateway_process(settings=settings(tmp_path / "none"))
    tap(gateway, "orders")
    send(gateway, "orders", 10)
    assert shown(gateway, "orders")["head"] == 10


def test_a_table_that_cannot_be_read_refuses_the_start(tmp_path: Path) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    (tmp_path / "table" / "_delta_log" / f"{0:020d}.json").write_text("no json")
    gateway = ScratchGateway(tmp_path / "g", settings=settings(tmp_path / "table"))
    with pytest.raises(GatewayFailedError, match=r"(?s)status 74.*cannot be taken over") as told:
        gateway.start()
    assert "take archive.table out of the configuration" in str(told.value)


def test_adoption_by_hand_and_what_it_refuses(gateway_process: Start, tmp_path: Path) -> None:
    table = tmp_path / "table"
    gateway = gateway_process(settings=("name='east'",))
    tap(gateway, "orders")
    send(gateway, "orders", 100)
    Job(table, url=gateway.url, address="orders").run()
    named = ("--set", "name='east'", "--table", str(table))
    done = cli("archive", "adopt", "--data", str(gateway.data), *named)
    assert done.returncode == 75, "it runs"
    assert gateway.stop() == 0
    done = cli("archive", "adopt", "--data", str(gateway.data), *named)
    assert done.returncode == 1
    assert "has streams already" in done.stderr
    done = cli("archive", "adopt", "--data", str(tmp_path / "new"), *named)
    assert done.returncode == 0
    assert done.stdout == "orders: taps orders, life 1, goes on at offset 100\n"
    other = cli(
        "archive", "adopt", "--data", str(tmp_path / "x"), "--set", "name='west'", *named[2:]
    )
    assert other.returncode == 0
    assert "has no streams of a gateway called 'west'" in other.stdout
    done = cli("archive", "adopt", "--data", str(tmp_path / "y"))
    assert (done.returncode, "No table is named." in done.stderr) == (64, True)
    done = cli("archive", "verify", str(tmp_path / "nothing"))
    assert (done.returncode, "There is no table at" in done.stderr) == (69, True)


def test_what_the_lost_gateway_had_not_archived_is_named_to_its_readers(
    gateway_process: Start, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    gateway = gateway_process(settings=settings(table))
    tap(gateway, "orders")
    send(gateway, "orders", 100)
    Job(table, url=gateway.url, address="orders").run()
    send(gateway, "orders", 50, "t")
    checkpoint: dict[str, Any] = {}
    reader = source(gateway.url, table, address="orders")
    Engine(reader, checkpoint).run()
    assert len(checkpoint["rows"]) == 150
    gateway.kill()
    shutil.rmtree(gateway.data)
    gateway.start()
    from pyspark_sluicegate.options import SluicegateError

    with pytest.raises(SluicegateError, match=r"offsets 100 to 149.*ends before them"):
        Engine(reader, checkpoint).run()
    assert len(SCHEMA.fields) == 2
