"""Rounds that end as a power cut does: the real gateway on a file system that forgets.

The gateway's files are on `lossy`: at the cut all that was not synced is found, or is not, by
sector and by name; then the process dies, and the next one starts on what was left.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.trial.scratch import ScratchGateway
from tests.durability.rounds import Tally, run_rounds

#: What the system may need to see that nobody uses the files any more.
UNMOUNT_SECONDS = 10.0


#: Small files, so that many are made, synced and deleted.
SETTINGS = ("journal-file-size=1MiB", "ballast-size=1MiB")


def why_not() -> str | None:
    """Return why no such file system can be had here, None when one can."""
    if os.geteuid():
        return "only root may mount"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"/dev/fuse cannot be opened: {error.strerror}"
    command = [sys.executable, "-c", "import tests.durability.lossy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else None


def run_power_rounds(folder: Path, rounds: int, seed: str, settings: tuple[str, ...] = ()) -> Tally:
    """Cut the power of so many gateways under load."""
    with Power(folder / "data", seed) as power:
        chance = random.Random(seed)
        return run_rounds(folder, rounds, chance, (*SETTINGS, *settings), end=power.cut)


class PowerError(Exception):
    """The file system did not do as told."""


class Power:
    """A mounted file system whose power can be cut; unmounted at the end of the context."""

    def __init__(self, mount: Path, seed: str) -> None:
        mount.mkdir(parents=True)
        self._mount = mount
        command = [sys.executable, "-m", "tests.durability.lossy", str(mount), seed]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.cuts = 0

    def __enter__(self) -> Self:
        self._tell("mount", "mounted")
        return self

    def cut(self, gateway: ScratchGateway) -> None:
        """Cut the power under a gateway, and have it back for the next one."""
        self._tell("cut", "cut")
        gateway.kill()
        self._unmount()
        self._tell("mount", "mounted")
        self.cuts += 1

    def _tell(self, order: str, answer: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        self._expect(answer)

    def _expect(self, answer: str) -> None:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if said != answer:
            raise PowerError(f"{answer!r} was expected, {said!r} came")

    def _unmount(self) -> None:
        deadline = time.monotonic() + UNMOUNT_SECONDS
        while True:
            command = ["umount", str(self._mount)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if not done.returncode:
                self._expect("unmounted")
                return
            if time.monotonic() > deadline:
                raise PowerError(done.stderr.strip())
            time.sleep(0.05)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._unmount()
        finally:
            self._process.kill()
            self._process.wait()
