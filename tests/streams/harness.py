"""What tests of streams share: a worker that runs at once, an owner that keeps a list, messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, execute

from gateway.model import stomp_form
from gateway.model.amqp_types import Described, Symbol, ULong, encode
from gateway.model.message import STOMP
from gateway.model.run import Run
from gateway.streams.registry import StreamRegistry
from gateway.streams.settings import StreamSettings
from storage.arrow_log import SEGMENT_BYTES
from storage.files import FileSystem, RealFiles
from storage.stream_files import StreamFiles


class Inline:
    """Runs what blocks at once."""

    def run(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        return execute(function, *args)


class Later:
    """Runs what blocks when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def run(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.waiting.append((done, function, args))
        return done

    def step(self) -> None:
        done, function, args = self.waiting.pop(0)
        execute(function, *args).chainDeferred(done)


class Owner:
    """The broker and the journal; keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def release(self, stream_id: int, first: int, last: int) -> None:
        self.said.append(("release", stream_id, first, last))

    def taps_changed(self, address: str) -> None:
        self.said.append(("taps", address))

    def ensure_address(self, address: str) -> None:
        self.said.append(("address", address))

    def stream_failed(self, stream_id: int, error: Exception) -> None:
        self.said.append(("failed", stream_id, str(error)))

    def stream_lost(self, stream_id: int, first: int, last: int, reason: str) -> None:
        self.said.append(("lost", stream_id, first, last, reason))

    def archive_lags(self, stream: str, text: str | None, waiting: int, bytes_max: int) -> None:
        self.said.append(("lags", stream, text is not None, waiting, bytes_max))


class Now:
    """Broker time in ms."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


def make_registry(
    root: str,
    *,
    fs: FileSystem | None = None,
    blocking: Any = None,
    settings: StreamSettings | None = None,
    segment_bytes: int = SEGMENT_BYTES,
) -> tuple[StreamRegistry, Owner, Now]:
    """Return a loaded registry over `root`, its owner and its clock."""
    owner, now = Owner(), Now()
    store = StreamFiles(fs or RealFiles(), root, segment_bytes=segment_bytes)
    registry = StreamRegistry(store, blocking or Inline(), owner, settings or StreamSettings(), now)
    registry.load()
    registry.recover({})
    return registry, owner, now


def fill(registry: StreamRegistry, name: str, bodies: list[bytes], flags: int = STOMP) -> int:
    """Record a run as the broker does, durable at once; returns its first offset."""
    stream = registry.get(name).stream
    base = stream.record(Run(bodies, flags), registry.now_ms())
    stream.recorded(base, len(bodies), 1)
    registry.durable_up_to(1)
    return base


def stomp_message(body: bytes, **headers: str) -> bytes:
    """Return a stored STOMP message with headers (underscores stand for dashes)."""
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return stomp_form.pack("orders", body, headers=named)


def section(code: int, value: Any) -> bytes:
    """Return one encoded AMQP section."""
    return encode(Described(ULong(code), value))


def amqp_message(
    body: Any = b"", *, properties: list[Any] | None = None, app: dict[str, Any] | None = None
) -> bytes:
    """Return a stored AMQP message; bytes become a data section, other values a value section."""
    parts = [section(0x70, [True])]
    if properties is not None:
        parts.append(section(0x73, properties))
    if app is not None:
        parts.append(section(0x74, app))
    parts.append(section(0x75 if isinstance(body, bytes) else 0x77, body))
    return b"".join(parts)


__all__ = [
    "Inline", "Later", "Now", "Owner", "Symbol", "amqp_message", "fill", "make_registry", "section",
    "stomp_message",
]  # fmt: skip
