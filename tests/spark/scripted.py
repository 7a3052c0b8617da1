"""A gateway whose answers a test writes down."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa

from pyspark_sluicegate.stored.decoding.view import STORED
from pyspark_sluicegate.stored.model.message import STOMP

Reply = tuple[int, bytes]

ROWS = STORED


class Script:
    """Answers in order, the last one for ever; keeps what was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.url = ""
        #: Answers what comes after the last of `replies`.
        self.later: Callable[[dict[str, Any]], Reply] | None = None

    def next(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Reply:
        self.asked.append((path, body, headers))
        if self.later is not None and not self.replies:
            return self.later(body)
        last = len(self.replies) == 1 and self.later is None
        return self.replies[0] if last else self.replies.pop(0)


@contextmanager
def scripted(*replies: Reply, tls: ssl.SSLContext | None = None) -> Iterator[Script]:
    script = Script(*replies)

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, content = script.next(self.path, body, dict(self.headers))
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        # A connection that is kept would hold its thread.
        server.daemon_threads, server.block_on_close = True, False
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        script.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()


def rows(offsets: list[int], schema: pa.Schema = ROWS) -> pa.RecordBatch:
    raws = [b"content-length:%d\n\n%d" % (len(str(o)), o) for o in offsets]
    found = [
        {"offset": o, "timestamp": 0, "flags": STOMP, "raw": raw}
        for o, raw in zip(offsets, raws, strict=True)
    ]
    return pa.RecordBatch.from_pylist(found, schema=schema)


Part = tuple[pa.RecordBatch, dict[str, Any]]


def part(offsets: list[int], first: int, end: int, **facts: int) -> Part:
    known = {"range": 0, "first": first, "end": end, "holes": 0, "address": "orders"}
    return rows(offsets), known | facts


def trailer(count: int, **facts: Any) -> Part:
    return rows([]), {"rows": count, "next": None, "losses": [], "error": None} | facts


def arrow(*parts: Part) -> Reply:
    """Return an answer of the stored form: facts without rows, then the rows, the trailer last."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, parts[0][0].schema) as writer:
        for batch, facts in parts:
            empty = batch.slice(0, 0)
            writer.write_batch(empty, custom_metadata={"sluicegate": json.dumps(facts)})
            if "rows" not in facts:
                writer.write_batch(batch)
    return 200, sink.getvalue().to_pybytes()
