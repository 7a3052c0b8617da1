"""A gateway that cannot go on ends with 74 within 20 s, whatever else the machine refuses it."""

from __future__ import annotations

import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.process.last_resort import FATAL_SECONDS, LastResort, cause_of
from gateway.trial.scratch import ScratchGateway
from tests.durability.rounds import drain
from tests.gateway.starved import FAULTS, StarvedGateway
from tests.gateway.stomp_peer import StompPeer

EX_IOERR = 74
SECONDS = 20.0
#: What the end is told with.
WORDS = {
    "memory": "no memory left",
    "mute": "no memory left",
    "threadless": "Input/output error",
    "hanging": "has not taken a batch",
    "turn": "no memory left",
    "answer": "no memory left",
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", FAULTS)
def test_a_starved_gateway_ends_with_74_and_says_why(tmp_path: Path, what: str) -> None:
    gateway = StarvedGateway(tmp_path / "gateway", what)
    gateway.start()
    process = gateway._process
    gateway._process = None
    assert isinstance(process, subprocess.Popen)
    try:
        peer = StompPeer(gateway.stomp_port)
        peer.send("/queue/kill.q", b"kept", "kept")
        assert peer.read()[1]["receipt-id"] == "kept"
        begun = time.monotonic()
        peer.send("/queue/kill.q", b"fail", "fail")
        assert process.wait(SECONDS + 10) == EX_IOERR
        # The store's watch needs two seconds to find that a disk hangs.
        assert time.monotonic() - begun < SECONDS + (2 if what == "hanging" else 0)
    finally:
        process.kill()
        process.wait()
    told = [one for one in gateway.log.read_text().splitlines() if one.startswith("error: ")]
    assert len(told) == 1, gateway.log.read_text()
    assert told[0].startswith("error: store-failed: ")
    assert WORDS[what] in told[0]
    with ScratchGateway(tmp_path / "gateway") as again:
        bodies = [body for body, _ in drain(again)]
    assert bodies[:1] == ["kept"]


class Last:
    """A last resort whose process is an event; its clock is set by hand."""

    def __init__(self) -> None:
        self.status: list[int] = []
        self.gone = threading.Event()
        self.time = 1000.0
        self.resort = LastResort(leave=self._leave, now=lambda: self.time)
        self.resort.told = True

    def _leave(self, status: int) -> None:
        self.status.append(status)
        self.gone.set()


def test_the_last_resort_waits_until_it_is_armed() -> None:
    last = Last()
    assert not last.gone.wait(0.05)
    last.resort.arm(0.0, 74)
    assert last.gone.wait(10)
    assert last.status == [74]


def test_the_sooner_end_counts() -> None:
    last = Last()
    last.resort.arm(150.0, 74)
    last.resort.arm(0.0, 70)
    assert last.gone.wait(10)
    assert last.status == [70]


def test_a_later_end_changes_nothing() -> None:
    last = Last()
    last.resort.arm(5.0, 74)
    last.resort.arm(150.0, 70)
    last.time += 6.0
    with suppress(RuntimeError):  # it has not even begun to wait
        last.resort._gate.release()
    assert last.gone.wait(10)
    assert last.status == [74]


def test_a_failure_of_the_store_leaves_time_for_good_byes() -> None:
    assert 6.0 < FATAL_SECONDS < SECONDS


def test_causes_have_words_also_where_the_exception_has_none() -> None:
    assert "no memory" in cause_of(MemoryError())
    assert "RLIMIT_NPROC" in cause_of(RuntimeError("can't start new thread"))
    assert cause_of(ZeroDivisionError()) == "ZeroDivisionError"
    assert cause_of(OSError("why")) == "why"
    assert cause_of(None) == "it did not stop in time"
