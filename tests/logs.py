"""The log of a gateway process, which a thread of it writes: a line comes after what it tells of.

So whoever asks for a line waits for it, and whoever says that there is none, or how many there are,
asks `whole_log`: it has the gateway log something, and waits for that.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any

from gateway.trial.scratch import ScratchGateway

SECONDS = 20.0

_numbers = itertools.count(1)


def log_text(gateway: ScratchGateway) -> str:
    """Return all whole lines that are there now."""
    text = gateway.log.read_text("utf-8", errors="replace")
    return text[: text.rfind("\n") + 1]


def records(gateway: ScratchGateway, event: str, **facts: object) -> list[dict[str, Any]]:
    """Return what is there now of an event, with these facts."""
    lines = [line for line in log_text(gateway).splitlines() if line.startswith("{")]
    found = [json.loads(line) for line in lines]
    wanted = {"event": event, **facts}.items()
    return [record for record in found if wanted <= record.items()]


def wait_log(gateway: ScratchGateway, *parts: str) -> str:
    """Return the log once all of these are in it."""
    _wait(lambda: all(part in log_text(gateway) for part in parts), gateway, parts)
    return log_text(gateway)


def wait_records(
    gateway: ScratchGateway, event: str, count: int = 1, **facts: object
) -> list[dict[str, Any]]:
    """Return the records of an event with these facts, once there are so many."""
    _wait(lambda: len(records(gateway, event, **facts)) >= count, gateway, (event, facts))
    return records(gateway, event, **facts)


def whole_log(gateway: ScratchGateway) -> str:
    """Return the log with all that was told before this call; the API needs no login."""
    name = f"whole-log-{os.getpid()}-{next(_numbers)}"
    assert gateway.request("DELETE", f"/api/v1/queues/{name}")[0] == 404
    return wait_log(gateway, name)


def _wait(true: Callable[[], bool], gateway: ScratchGateway, what: object) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, f"{what} is not in the log:\n{log_text(gateway)[-4000:]}"
        time.sleep(0.02)
