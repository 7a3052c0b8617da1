"""Gateways whose store fails while something else is missing, too.

`python -m tests.gateway.starved WHAT run ...` is the gateway with arguments `run ...`. Its disk
takes what there is up to the first message with the text `fail` in it, and then WHAT happens:

    memory      the writer has no memory left: the process's limit is set to what it has
    mute        the writer meets a MemoryError, and so does whoever hands it to the reactor
    threadless  the disk refuses, and from then on no thread can be started
    hanging     the disk never answers, and no thread can be started
    turn        what ends a turn of the reactor meets a MemoryError
    answer      what hears that a batch is on disk does
"""

from __future__ import annotations

import errno
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twisted.internet.base import ReactorBase

from gateway.cli.main import main
from gateway.model.turn import Turn
from gateway.store import hanging as slow_store
from gateway.trial.scratch import ScratchGateway
from storage.journal import Journal
from storage.segments import Segments

MARK = b"fail"


class StarvedGateway(ScratchGateway):
    """A gateway process that meets WHAT."""

    def __init__(self, folder: Path, what: str) -> None:
        super().__init__(folder)
        self.what = what

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-m", "tests.gateway.starved", self.what, *arguments]


def no_memory() -> None:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - as few objects as can be
        pages = int(file.read().split()[0])
    size = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    bytearray(1 << 28)


def no_threads() -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threading.Thread.start = refuse  # type: ignore[method-assign]


def mute() -> None:
    def post(reactor: object, *args: object) -> None:
        raise MemoryError

    ReactorBase.callFromThread = post  # type: ignore[method-assign, assignment]
    raise MemoryError


def threadless() -> None:
    no_threads()
    raise OSError(errno.EIO, "Input/output error")


def hanging() -> None:
    no_threads()
    time.sleep(600)


def out_of_memory(*_: object) -> None:
    raise MemoryError


def turn() -> None:
    Turn.run = out_of_memory  # type: ignore[method-assign, assignment]


def answer() -> None:
    Journal.written = out_of_memory  # type: ignore[method-assign, assignment]


def plant(happen: Callable[[], None]) -> None:
    write: Callable[..., int] = Segments.write

    def failing(segments: Segments, payload: bytes, **more: Any) -> int:
        if MARK in payload:
            happen()
        return write(segments, payload, **more)

    Segments.write = failing  # type: ignore[method-assign, assignment]


FAULTS: Final = {
    "memory": no_memory,
    "mute": mute,
    "threadless": threadless,
    "hanging": hanging,
    "turn": turn,
    "answer": answer,
}

if __name__ == "__main__":
    slow_store.FAIL_SECONDS = 2.0  # type: ignore[misc]
    plant(FAULTS[sys.argv.pop(1)])
    main()
