"""The archive as a program of its own, started and killed by tests; and what is sent to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.trial.scratch import ScratchGateway, importing_environment
from tests.spark.senders import StompSocketSender

LAUNCHER = (sys.executable, "-m", "pyspark_sluicegate.pipelines.archive")


def fill(gateway: ScratchGateway, address: str, count: int, name: str) -> None:
    sender = StompSocketSender(name, gateway.stomp_port, address, count, 0)
    sender.allow(1.0)
    sender.start()
    sender.join(60)
    assert len(sender.confirmed) == count


class Program:
    """The archive's process, with its own session, so that its JVM ends with it.

    Attributes:
        table: a folder, unless a store is named.
        status: that of its end, where a test has waited for it.
    """

    def __init__(
        self,
        gateway: ScratchGateway,
        folder: Path,
        *arguments: str,
        table: str = "",
        launcher: Sequence[str] = LAUNCHER,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Choose its folders; `launcher` is the command that the archive's options follow."""
        self.table = table or str(folder / "table")
        self.status: int | None = None
        self.checkpoint = folder / "checkpoint"
        self.metrics = folder / "archive.prom"
        self.log_file = folder / "archive.log"
        self._command = [
            *launcher, "--url", gateway.url,
            "--address", "#", "--table", self.table, "--checkpoint", str(self.checkpoint),
            "--progress", "json", "--metrics-file", str(self.metrics), *arguments,
        ]  # fmt: skip
        self._environment = importing_environment() if environment is None else dict(environment)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment,
                start_new_session=True,
            )  # fmt: skip

    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def finish(self) -> int:
        assert self.process is not None
        return self.process.wait(200)

    def log(self) -> str:
        return self.log_file.read_text()


def wait_until(
    condition: Callable[[], Any], program: Program, seconds: float = 150.0, *, alive: bool = True
) -> None:
    """Wait for something while the program runs; `alive`: its end is an error."""
    end = time.monotonic() + seconds
    while not condition():
        assert not alive or not program.ended(), program.log()[-3000:]
        assert time.monotonic() < end, program.log()[-3000:]
        time.sleep(0.01)
