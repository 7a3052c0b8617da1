"""A system call of the gateway is the last one, or fails: nothing confirmed is lost.

The k-th pwrite64, fdatasync, rename or unlink of a thread ends the process (SIGKILL), or returns
EIO or ENOSPC. Then the gateway starts again without faults and is drained.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gateway.trial.scratch import GatewayFailedError, ScratchGateway
from tests.durability.rounds import StompSender, drain

STRACE = shutil.which("strace")
#: Files of a MiB: renames and unlinks come soon.
SETTINGS = ("journal-file-size=1MiB", "ballast-size=0")
#: Spares that are too small are unlinked.
LARGER = ("journal-file-size=2MiB", "ballast-size=0")
LOAD_SECONDS = 0.8
FAULTS = {
    ("pwrite64", "signal=KILL"): (1, 5, 12, 40),
    ("fdatasync", "signal=KILL"): (1, 4, 9, 30),
    ("rename", "signal=KILL"): (1, 2),
    ("unlink", "signal=KILL"): (1,),
    ("pwrite64", "error=EIO"): (6, 21),
    ("fdatasync", "error=EIO"): (3, 14),
    ("rename", "error=EIO"): (2,),
    ("unlink", "error=EIO"): (1,),
    ("pwrite64", "error=ENOSPC"): (7, 22),
    ("fdatasync", "error=ENOSPC"): (5,),
    ("rename", "error=ENOSPC"): (1,),
    ("unlink", "error=ENOSPC"): (1,),
}
CASES = sorted((call, fault, k) for (call, fault), ks in FAULTS.items() for k in ks)


class TracedGateway(ScratchGateway):
    """A gateway whose system calls meet a fault."""

    def __init__(self, folder: Path, call: str, fault: str, k: int) -> None:
        super().__init__(folder, settings=LARGER if call == "unlink" else SETTINGS)
        self.calls = folder / "calls.log"
        self._inject = f"inject={call}:{fault}:when={k}"
        self._call = call

    def command(self) -> list[str]:
        trace = ["-f", "-qq", "-o", str(self.calls), "-e", f"trace={self._call}"]
        return [STRACE or "strace", *trace, "-e", self._inject, *super().command()]

    def end(self) -> None:
        """End the gateway, then strace ends by itself."""
        with contextlib.suppress(OSError, ValueError):
            owner = re.search(r"process (\d+)", (self.data / "lock").read_text())
            if owner is not None and self.running():
                os.kill(int(owner[1]), signal.SIGKILL)
        process, self._process = self._process, None
        if process is not None:
            process.wait(20)

    def kill(self) -> None:
        self.end()


def works() -> str | None:
    """Return why strace cannot be used, None when it can."""
    if STRACE is None:
        return "strace is not installed"
    done = subprocess.run(
        [STRACE, "-f", "-qq", "-o", "/dev/null", "-e", "inject=unlink:error=EIO:when=9", "true"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return None if done.returncode == 0 else f"strace cannot trace here: {done.stderr.strip()}"


@pytest.fixture(scope="module")
def _strace() -> None:
    reason = works()
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("_strace")
@pytest.mark.parametrize(("call", "fault", "k"), CASES)
def test_nothing_confirmed_is_lost(tmp_path: Path, call: str, fault: str, k: int) -> None:
    folder = tmp_path / "gateway"
    if call == "unlink":
        with ScratchGateway(folder, settings=SETTINGS):
            pass  # leaves spares
    traced = TracedGateway(folder, call, fault, k)
    struck = False
    confirmed: set[str] = set()
    sent: set[str] = set()
    try:
        traced.start()
        sender = StompSender(traced.stomp_port, "m", padding=2000)
        sender.start()
        deadline = time.monotonic() + LOAD_SECONDS
        while sender.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        deadline = time.monotonic() + 3
        while not sender.is_alive() and traced.running() and time.monotonic() < deadline:
            time.sleep(0.02)  # strace ends a little after the gateway
        struck = not traced.running()
        traced.end()
        sender.join(20)
        confirmed, sent = set(sender.confirmed), sender.sent
    except GatewayFailedError:
        struck = True  # the fault met the start itself
    finally:
        traced.end()
    assert struck or "INJECTED" in traced.calls.read_text(), "no call met the fault"
    with ScratchGateway(folder, settings=SETTINGS) as again:
        status, _ = again.request("GET", "/api/v1/queues/kill.q")
        taken = [body.rstrip(".") for body, _ in drain(again)] if status == 200 else []
    assert confirmed <= set(taken), f"lost: {sorted(confirmed - set(taken))[:5]}"
    assert set(taken) <= sent
    assert len(taken) == len(set(taken))
