"""The real core with the sink and its API on it: files in a folder, time and threads by hand."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from twisted.internet.defer import Deferred, execute
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from gateway.addresses.match import SettingsEntry
from gateway.management.http import Request, error_response
from gateway.management.sink_api import ARROW, SinkApi
from gateway.model.definitions import CommitDefinition, ProgressDefinition
from gateway.sink.settings import SinkSettings
from gateway.sink.sink import Sink
from storage.files import RealFiles
from storage.stage_files import StageFiles
from tests.management.core import Core


class Inline:
    """Runs what blocks at once."""

    def run(self, function: Any, *args: Any) -> Deferred[Any]:
        return execute(function, *args)


class Later:
    """Runs what blocks when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Deferred[Any], Any, tuple[Any, ...]]] = []

    def run(self, function: Any, *args: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.waiting.append((done, function, args))
        return done


class SinkCore(Core):
    """See the module text."""

    def __init__(
        self,
        folder: Path,
        *entries: SettingsEntry,
        store: Any = None,
        blocking: Any = None,
        **bounds: Any,
    ) -> None:
        super().__init__(*entries, store=store)
        self.clock = Clock()
        self.room = True
        self.blocking = blocking or Inline()
        self.files = StageFiles(RealFiles(), str(folder / "staged"))
        self.sink = Sink(
            self.gateway,
            self.files,
            self.blocking,
            self.clock,
            SinkSettings(**bounds),
            may_take=lambda _: self.room,
        )
        self.sink.restore(*self._remembered())
        SinkApi(self.sink).add_routes(self.router)

    def _remembered(self) -> tuple[list[CommitDefinition], list[ProgressDefinition]]:
        """Return what the store's records say of producers: the last word on each."""
        held: dict[Any, Any] = {}
        for what, *record in self.store.told:
            if what in ("define", "undefine"):
                key = type(record[0]), getattr(record[0], "producer", None)
                held.pop(key, None)
                if what == "define":
                    held[key] = record[0]
        commits = [one for one in held.values() if isinstance(one, CommitDefinition)]
        return commits, [one for one in held.values() if isinstance(one, ProgressDefinition)]

    def run(self, seconds: float = 2.0) -> None:
        """Let turns, timers and the disk go on for a while."""
        for _ in range(int(seconds * 10)):
            self.sync()
            self.clock.advance(0.1)
        self.sync()

    def work(self) -> None:
        """Do what blocks, of a `Later`, until nothing waits."""
        while self.blocking.waiting:
            done, function, args = self.blocking.waiting.pop(0)
            execute(function, *args).chainDeferred(done)

    def post(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None) -> Any:
        """Ask; returns a list that gets (status, decoded body, headers) with the answer."""
        answer, found = self.ask_for(method, path, body, raw=raw), []

        def told(response: Any) -> None:
            fault = response
            if isinstance(response, Failure):
                response = error_response(response.value)
            assert response is not None, f"a fault: {fault}"
            shown = json.loads(response.body) if response.body else None
            found.append((response.status, shown, dict(response.headers)))

        if isinstance(answer, Deferred):
            answer.addBoth(told)
            if isinstance(self.blocking, Later):
                self.work()
        else:
            told(answer)
        return found

    def ask_for(self, method: str, path: str, body: Any, *, raw: bytes | None = None) -> Any:
        """Ask; returns the answer, or the Deferred of it."""
        path, _, query = f"/api/v1/sink{path}".partition("?")
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        kind = ARROW if raw is not None else "application/json"
        request = Request(
            method=method,
            path=path,
            query=dict(part.split("=", 1) for part in query.split("&") if part),
            headers={"content-type": kind} if data else {},
            body=data,
        )
        return self.router.dispatch(request)

    def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None) -> Any:
        """Ask, and return (status, decoded body, headers), which come without waiting."""
        (answer,) = self.post(method, path, body, raw=raw)
        return answer

    def stage(self, data: bytes, path: str = "/stages/p/0/0/a") -> Any:
        """Stage bytes and seal them; returns the answer of the seal, or of what went wrong."""
        status, shown, headers = self.call("POST", f"{path}?offset=0", raw=data)
        if status != 200:
            return status, shown, headers
        return self.call("POST", f"{path}:seal", {"size": len(data), "crc32": zlib.crc32(data)})

    def commit(self, *stages: tuple[int, str, int], batch: int = 0, **fields: Any) -> Any:
        """Commit; returns the list that gets the answer."""
        named = [{"partition": p, "attempt": a, "rows": r} for p, a, r in stages]
        body = {"batch": batch, "stages": named, "waitMs": 1_000, **fields}
        return self.post("POST", "/producers/p:commit", body)

    def bodies(self, queue: str = "q") -> list[bytes]:
        """Return the numbers at the end of what waits in a queue."""
        there = self.gateway.queues[queue]
        return [message.body.rpartition(b"#")[2] for message in there.browse(0, 1 << 20)]


def stream(rows: int, *, address: str | None = "q", first: int = 0, **columns: Any) -> bytes:
    """Return an Arrow stream whose bodies end in `#` and their number."""
    texts = [b"b#%d" % number for number in range(first, first + rows)]
    return written(pa.record_batch({"body": pa.array(texts, pa.binary()), **columns}), address)


def written(batch: pa.RecordBatch, address: str | None = "q", **said: str) -> bytes:
    """Return a batch as the bytes of a stage."""
    return written_all([batch], address, **said)


def written_all(batches: Sequence[pa.RecordBatch], address: str | None = "q", **said: str) -> bytes:
    """Return batches as the bytes of a stage."""
    metadata = {f"sluicegate.{name}": text for name, text in said.items()}
    if address is not None:
        metadata["sluicegate.address"] = address
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema.with_metadata(metadata)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def numbers(count: int, first: int = 0) -> Sequence[bytes]:
    return [b"%d" % number for number in range(first, first + count)]
