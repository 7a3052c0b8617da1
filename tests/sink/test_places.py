"""Many batches that wait: few files are open, others pass them, and each goes on where it was."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

from gateway.addresses.settings import FullPolicy
from gateway.sink.places import PLACES, Places
from gateway.sink.reading import StageReader
from tests.management.core import limited
from tests.sink.core import SinkCore, numbers, stream

MANY = 3 * PLACES


def begun(core: SinkCore, producer: str, data: bytes, rows: int) -> list[Any]:
    """Stage and commit a batch of a producer; returns the list that gets the answer."""
    assert core.stage(data, f"/stages/{producer}/0/0/a")[0] == 200
    stages = [{"partition": 0, "attempt": "a", "rows": rows}]
    body = {"batch": 0, "stages": stages, "waitMs": 500}
    return core.post("POST", f"/producers/{producer}:commit", body)  # type: ignore[no-any-return]


def committed(core: SinkCore, producer: str) -> bool:
    return core.call("GET", f"/producers/{producer}")[1]["committed"] == 0


def test_batches_that_wait_hold_few_files_and_others_pass(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, limited("full", FullPolicy.BLOCK, max_size_messages=5_000))
    core.send("full", *[b"there"] * 5_000)
    opened = core.files.open
    sources: list[Any] = []

    def counted(file: str) -> Any:
        sources.append(opened(file))
        return sources[-1]

    core.files.open = counted  # type: ignore[method-assign]
    answers = [begun(core, f"w{n}", stream(2_500, address="full"), 2_500) for n in range(MANY)]
    most = 0
    for _ in range(30):
        core.run(0.1)
        most = max(most, sum(not source.closed for source in sources))
    assert 0 < most <= PLACES
    assert {answer[0][0] for answer in answers} == {503}
    begun(core, "honest", stream(3), 3)
    core.run(1.0)
    assert committed(core, "honest"), "one that need not wait does not"
    for _ in range(MANY):
        core.gateway.queues["full"].purge()
        core.run(0.5)
    assert all(committed(core, f"w{n}") for n in range(MANY))
    assert sum(not source.closed for source in sources) == 0


def test_a_stage_goes_on_at_its_row_after_it_gave_way(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, limited("full", FullPolicy.BLOCK, max_size_messages=2))
    for n in range(MANY):
        begun(core, f"w{n}", stream(3, address="full", first=10 * n), 3)
    found: list[bytes] = []
    for _ in range(3 * MANY):
        core.run(0.5)
        found += core.bodies("full")
        core.gateway.queues["full"].purge()
    wanted = [number for n in range(MANY) for number in numbers(3, 10 * n)]
    assert sorted(found, key=int) == sorted(wanted, key=int), "each row once"


def test_a_producer_that_is_forgotten_while_it_waits_takes_no_place(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, limited("full", FullPolicy.BLOCK, max_size_messages=1))
    core.send("full", b"there")
    for n in range(MANY):
        begun(core, f"w{n}", stream(3, address="full"), 3)
    core.run(1.0)
    for n in range(MANY):
        core.post("DELETE", f"/producers/w{n}")
    core.run(2.0)
    assert core.sink.publishing == 0
    begun(core, "w0", stream(3), 3)
    core.run(0.5)
    assert committed(core, "w0")


def test_a_reader_that_is_closed_in_the_middle_lets_go_at_once(tmp_path: Path) -> None:
    core = SinkCore(tmp_path)
    core.stage(stream(2_500))
    ((file, _),) = core.files.found()
    gc.disable()
    try:
        reader = StageReader(core.files, file, 0, 1 << 20)
        assert reader.next() is not None
        gone = weakref.ref(reader)
        reader.close()
        del reader
        assert gone() is None, "its rows would wait for the collector"
    finally:
        gc.enable()


def test_those_that_gave_way_ask_a_hundred_times_a_second_together() -> None:
    places = Places()
    assert places.pause(0.05) == 0.05
    places.waiting = 2_000
    assert places.pause(0.05) == 20
