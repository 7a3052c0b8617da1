"""The gateway killed at each step of a batch: every row is published once, in order per partition.

Programs write batches as Spark does. The gateway is killed while stages come, between the last
stage and the commit, in the middle of publishing, and before the answer; then it is started again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.trial.scratch import ScratchGateway
from tests.sink.writing import Program, check_once, tapped

pytestmark = pytest.mark.timeout(240)

#: (rows of a partition, the step that a kill waits for, seconds after it at most)
MOMENTS = {
    "while stages come": (4_000, "stage", 0.1),
    "at the intent": (2_000, "commit", 0.02),
    "in the middle of publishing": (20_000, "commit", 0.5),
    "at the end of publishing": (1_000, "commit", 0.1),
    "over many journal files": (10_000, "commit", 0.4),
    "onto pages": (10_000, "commit", 0.4),
}
SETTINGS = {
    # What a journal file begins with has to say how far the batch is, and no more.
    "over many journal files": ("journal-file-size=1048576",),
    "onto pages": ("address-settings.out.max-size-messages=300",),
}
KILLS = 6
BATCHES = 7


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_gateway_publishes_each_row_once(
    moment: str, tmp_path: Path, gateway_process: Callable[..., ScratchGateway]
) -> None:
    rows, step, delay = MOMENTS[moment]
    chance = random.Random(moment)
    gateway = gateway_process(folder=tmp_path / "gateway", settings=SETTINGS.get(moment, ()))
    gateway.request("POST", "/api/v1/streams", {"name": "out", "address": "out"})
    programs = [Program(gateway.url, name, BATCHES, rows) for name in ("one", "two")]
    for program in programs:
        program.start()
    for _ in range(KILLS):
        programs[0].wait_for(step)
        time.sleep(chance.uniform(0, delay))
        gateway.kill()
        gateway.start()
    for program in programs:
        program.join(150)
        assert not program.is_alive(), f"{program.producer} hangs at {program.at}"
        assert program.error is None, program.error
        assert not program.failed, "a restart is something to wait for"
    check_once(tapped(gateway, "out"), {p.producer: BATCHES for p in programs}, rows)
    _, shown = gateway.request("GET", "/api/v1/queues/out")
    assert shown["messageCount"] == 2 * BATCHES * 3 * rows
    _, known = gateway.request("GET", "/api/v1/sink/producers")
    assert [one["committed"] for one in known["items"]] == [BATCHES - 1] * 2
    resumed = gateway.log.read_text().count("sink.batch_resumed")
    assert resumed or moment != "in the middle of publishing", "no kill met a batch"
    assert gateway.stop() == 0
