"""A real gateway that keeps what is not archived: told when it must give up, and reloaded."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from gateway.trial.scratch import ScratchGateway
from tests.spark.archive.jobs import Job
from tests.spark.senders import StompSocketSender

pytestmark = pytest.mark.timeout(180)
Start = Callable[..., ScratchGateway]


def fill(gateway: ScratchGateway, count: int, name: str) -> None:
    sender = StompSocketSender(name, gateway.stomp_port, "orders", count, 0)
    sender.allow(1.0)
    sender.start()
    sender.join(60)
    assert len(sender.confirmed) == count


def ask(gateway: ScratchGateway, path: str) -> Any:
    status, facts = gateway.request("GET", path)
    assert status == 200
    return facts


def wait_until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def events(gateway: ScratchGateway) -> list[dict[str, Any]]:
    lines = gateway.log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def told(gateway: ScratchGateway, event: str) -> list[dict[str, Any]]:
    return [one for one in events(gateway) if one.get("event") == event]


def test_an_archive_that_lags_is_told_everywhere_and_so_is_its_end(
    gateway_process: Start, tmp_path: Path
) -> None:
    config = tmp_path / "sluicegate.toml"
    text = "[streams.orders]\naddress = 'orders'\nretain = 'archived'\nlocal-bytes = 1000\n"
    config.write_text("[logging]\nformat = 'json'\n" + text + "retention-bytes = 1000000\n")
    gateway = gateway_process(config=config)
    fill(gateway, 9000, "a")
    wait_until(lambda: ask(gateway, "/readyz").get("archiveLags"))
    (text_told,) = ask(gateway, "/readyz")["archiveLags"]
    assert "retention-bytes is 1000000" in text_told
    assert "'orders'" in text_told
    (event,) = told(gateway, "stream.archive_lagging")
    assert (event["stream"], event["retention_bytes"]) == ("orders", 1_000_000)
    assert ask(gateway, "/api/v1/streams/orders")["archiveLags"] == text_told
    Job(tmp_path / "table", url=gateway.url, address="orders").run()
    wait_until(lambda: "archiveLags" not in ask(gateway, "/readyz"))
    wait_until(lambda: told(gateway, "stream.archive_caught_up"))
    assert len(told(gateway, "stream.archive_lagging")) == 1
    assert ask(gateway, "/api/v1/streams/orders")["archived"] == 9000


def test_what_stays_here_follows_a_reload(gateway_process: Start, tmp_path: Path) -> None:
    """A segment of the real log is 64 MiB, so only what is decided is looked at: its settings."""
    config = tmp_path / "sluicegate.toml"
    config.write_text("stream-retain = 'all'\n")
    gateway = gateway_process(config=config)
    config.write_text("stream-retain = 'archived'\nstream-local-bytes = '1m'\n")
    status, answer = gateway.request("POST", "/api/v1/config:reload", {})
    assert status == 200, answer
    changed = {one["key"]: one["effect"] for one in answer["items"]}  # type: ignore[index]
    assert changed == {"stream-retain": "at-once", "stream-local-bytes": "at-once"}
    config.write_text("stream-retain = 'archived'\nstream-local-bytes = '9g'\n")
    status, answer = gateway.request("POST", "/api/v1/config:reload", {})
    assert status in (400, 409, 422)
    assert "stay here although archived" in json.dumps(answer)
