"""A stage goes over in pieces that may come again; a commit is asked for until it is done."""

from __future__ import annotations

import json
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self

import pyarrow as pa
import pytest

from pyspark_sluicegate.options import SluicegateError
from pyspark_sluicegate.sink_options import parse_sink_options
from pyspark_sluicegate.staging import Batch, Staged


class Peer:
    """A gateway that keeps what it is sent, and answers as a test says before it answers well."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.first: list[tuple[int, dict[str, Any]]] = []
        peer = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                peer.asked.append((self.command, self.path, body))
                status, fields = peer.first.pop(0) if peer.first else (200, {"rows": 1, "done": 1})
                content = json.dumps(fields).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_DELETE = do_POST

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.server.daemon_threads, self.server.block_on_close = True, False
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()

    def batch(self, **given: str) -> Batch:
        said = {"url": self.url, "address": "q", "retryDeadline": "2s", **given}
        return Batch(parse_sink_options(said), "a producer/1", 7)


def rows(count: int, size: int = 1000) -> pa.RecordBatch:
    return pa.record_batch({"body": pa.array([b"x" * size] * count, pa.binary())})


def test_a_stage_is_an_arrow_stream_in_pieces_of_a_mebibyte() -> None:
    with Peer() as peer:
        staged = peer.batch(routing="anycast").stage([rows(2500), rows(0), rows(7)], 3, "abc")
    assert staged == Staged(3, "abc", 1), "the rows are those that the gateway has counted"
    *pieces, seal = peer.asked
    path = "/api/v1/sink/stages/a%20producer%2F1/7/3/abc"
    place = 0
    for number, (_, where, piece) in enumerate(pieces):
        assert where == f"{path}?offset={place}"
        assert len(piece) == 1 << 20 or number == len(pieces) - 1
        place += len(piece)
    whole = b"".join(piece for _, _, piece in pieces)
    assert seal[1] == path + ":seal"
    assert json.loads(seal[2]) == {"size": len(whole), "crc32": zlib.crc32(whole)}
    table = pa.ipc.open_stream(whole).read_all()
    assert table.num_rows == 2507
    assert table.schema.metadata == {
        b"sluicegate.address": b"q",
        b"sluicegate.routing": b"ANYCAST",
    }


def test_a_large_batch_is_cut_and_one_without_rows_is_no_stage() -> None:
    with Peer() as peer:
        peer.batch().stage([rows(20, 1 << 20)], 0, "a")
        whole = b"".join(piece for _, _, piece in peer.asked[:-1])
        sizes = [batch.nbytes for batch in pa.ipc.open_stream(whole)]
        assert max(sizes) < 5 << 20
        peer.asked.clear()
        assert peer.batch().stage([rows(0)], 1, "b") == Staged(1, "b", 0)
        assert peer.asked == []


def test_large_rows_side_by_side_are_cut_from_one_another() -> None:
    bodies = [b""] * 5_000 + [bytes(3 << 20)] * 6 + [b""] * 5_000
    with Peer() as peer:
        peer.batch().stage([pa.record_batch({"body": pa.array(bodies, pa.binary())})], 0, "a")
        whole = b"".join(piece for _, _, piece in peer.asked[:-1])
    batches = list(pa.ipc.open_stream(whole))
    assert max(batch.nbytes for batch in batches) < 5 << 20
    assert pa.Table.from_batches(batches).column("body").to_pylist() == bodies


def test_a_piece_comes_again_while_the_gateway_is_busy() -> None:
    with Peer() as peer:
        peer.first = [(503, {"message": "full"})] * 2
        peer.batch().stage([rows(5)], 0, "a")
    assert peer.asked[0] == peer.asked[1] == peer.asked[2]


def test_a_row_that_is_refused_is_told_with_its_partition() -> None:
    with Peer() as peer:
        peer.first = [(200, {}), (422, {"message": "Row 3: the column 'x' is bad."})]
        with pytest.raises(SluicegateError, match=r"Partition 4 of the batch .*: Row 3: the col"):
            peer.batch().stage([rows(5)], 4, "a")


def test_a_commit_is_asked_for_until_it_is_done() -> None:
    stages = [Staged(2, "c", 5), Staged(0, "a", 3), Staged(1, "b", 0)]
    with Peer() as peer:
        peer.first = [
            (202, {"done": False, "messages": 3, "total": 8}),
            (503, {"message": "held", "messages": 3, "total": 8}),
            (202, {"done": False, "messages": 6, "total": 8}),
        ]
        peer.batch().commit(stages, passing=True)
    assert len(peer.asked) == 4
    assert {path for _, path, _ in peer.asked} == {"/api/v1/sink/producers/a%20producer%2F1:commit"}
    body = json.loads(peer.asked[0][2])
    assert (body["batch"], body["passing"]) == (7, True)
    assert [(s["partition"], s["attempt"], s["rows"]) for s in body["stages"]] == [
        (0, "a", 3),
        (2, "c", 5),
    ]


def test_a_commit_without_progress_is_given_up_with_the_reason() -> None:
    with Peer() as peer:
        peer.first = [(503, {"message": "Row 9: q is full.", "messages": 9, "total": 20})] * 50
        with pytest.raises(SluicegateError, match=r"7: Row 9: q is full\.; gave up after 0\.5"):
            peer.batch(retryDeadline="500ms").commit([Staged(0, "a", 20)])


def test_a_stage_is_deleted_by_its_name() -> None:
    with Peer() as peer:
        peer.first = [(204, {})]
        peer.batch().abort(Staged(1, "b", 4))
    assert peer.asked[0][:2] == ("DELETE", "/api/v1/sink/stages/a%20producer%2F1/7/1/b")
