"""The seams around the sink, as structural types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred

Result = TypeVar("Result")


class Source(Protocol):
    """A file of a stage that is read from its beginning; `storage.stage_files` has it."""

    def read(self, count: int) -> bytes: ...

    def close(self) -> None: ...


class Files(Protocol):
    """Where stages are; implemented by `storage.stage_files`. Every call blocks the thread."""

    def found(self) -> list[tuple[str, int]]: ...

    def write(self, name: str, offset: int, data: bytes) -> None: ...

    def checksum(self, name: str) -> int: ...

    def seal(self, name: str, whole: str) -> None: ...

    def remove(self, file: str) -> None: ...

    def open(self, file: str) -> Source: ...


class RunBlocking(Protocol):
    """Runs a function that blocks: on a worker thread in production, at once in tests."""

    def run(self, function: Callable[..., Result], *args: object) -> Deferred[Result]: ...


class Clock(Protocol):
    """What waits, and how long it was. Implemented by the reactor."""

    def seconds(self) -> float: ...

    def callLater(self, delay: float, function: Callable[..., object], /) -> object: ...
