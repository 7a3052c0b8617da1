"""The parts of the order board that run beside the gateway: started, waited for, watched, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from board import say

#: Spark needs some fifteen seconds on two cores; this is for a machine that is busy.
READY_SECONDS = 180.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.1
TELL_SECONDS = 5.0
TAIL_LINES = 15


class PartFailedError(Exception):
    """A part ended by itself, or never became ready; the text says which, and its last words."""


class Part:
    """One process of the order board: says `ready` when it is, ends when its input does."""

    def __init__(self, name: str, log: Path, *arguments: str, env: dict[str, str]) -> None:
        """Start `python arguments`; what it says is shown, its standard error goes to the log."""
        self.name = name
        self.ready = threading.Event()
        self._log = log
        self._still = False
        with log.open("wb") as errors:
            # A session of its own: Ctrl-C comes to the launcher alone, which ends all in order.
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=env,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True, name=name)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            if line.strip() == "ready":
                self.ready.set()
            else:
                say(f"  {self.name}: {line.rstrip()}")

    def check(self) -> None:
        """Raise PartFailedError when it has ended."""
        status = self._process.poll()
        if status is not None:
            raise PartFailedError(f"The {self.name} ended with status {status}.{tail(self._log)}")

    def pause(self) -> None:
        """Have it stand still, or go on."""
        self._still = not self._still
        os.killpg(self._process.pid, signal.SIGSTOP if self._still else signal.SIGCONT)
        say(f"{self.name}: {'stands still' if self._still else 'goes on'}")

    def stop(self) -> None:
        """Ask it to end, by the end of its input; then by force."""
        if self._still:
            self.pause()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            say(f"  {self.name}: did not end within {STOP_SECONDS:.0f} s, is killed")
        # Also what it has started: Spark's Java.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(1)


def tail(log: Path) -> str:
    """Return the end of a log for people."""
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    return "".join(f"\n    {line}" for line in lines[-TAIL_LINES:])


def wait_until_ready(parts: Sequence[Part], told: Callable[[float], None]) -> None:
    """Wait until all are; `told` is called with the seconds so far."""
    began = time.monotonic()
    while not all(part.ready.is_set() for part in parts):
        for part in parts:
            part.check()
        if time.monotonic() - began > READY_SECONDS:
            late = next(part for part in parts if not part.ready.is_set())
            raise PartFailedError(f"The {late.name} was not ready after {READY_SECONDS:.0f} s.")
        told(time.monotonic() - began)
        time.sleep(POLL_SECONDS)


def progress(text: str) -> Callable[[float], None]:
    """Return what shows that it takes a while: in place on a terminal, else a line at times."""
    last = [0.0]

    def tell(seconds: float) -> None:
        if sys.stdout.isatty():
            print(f"\r{text} {seconds:3.0f} s ", end="", flush=True)
        elif seconds - last[0] >= TELL_SECONDS:
            last[0] = seconds
            say(f"{text} {seconds:.0f} s")

    return tell
