"""Floods of what issue 13 built: replays, reads of streams, stages and commits of the sink.

The gateway has a history when they begin (`make_history`): blocks in files, more of them than all
replays may have in memory.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import random
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from gateway.model.amqp_types import Described, Symbol, Timestamp, ULong, Value
from gateway.trial.scratch import HOST
from protocols.amqp.performatives import Attach, Detach, Source
from protocols.amqp.performatives import Target as AmqpTarget
from tests.attack.saying import (
    AGAIN_SECONDS,
    CONNECT,
    HELLO,
    LINKING,
    LINKS,
    MANY,
    OPENED,
    UNMASKED,
    Flood,
    Where,
    again,
    connect,
    credit,
    frame,
)

STREAM: Final = "flooded"
#: 48 MiB, in blocks of a mebibyte.
HISTORY_MESSAGES: Final = 48_000
HISTORY_BYTES: Final = 1_000
_HISTORY_SECONDS: Final = 60.0
#: Connections that the API lets one process have and a few more.
_CALLERS: Final = 300
_JSON: Final = "application/json"
_ARROW: Final = "application/vnd.apache.arrow.stream"


def call(
    where: Where, method: str, path: str, body: object = None, data: bytes = b"", kind: str = _JSON
) -> tuple[int, bytes]:
    """Ask the API, on a connection of its own."""
    made = http.client.HTTPConnection(HOST, where.management, timeout=30)
    try:
        sent = data or (b"" if body is None else json.dumps(body).encode())
        headers = {"Content-Type": kind} if sent else {}
        made.request(method, f"/api/v1{path}", sent, headers)
        answer = made.getresponse()
        return answer.status, answer.read()
    finally:
        made.close()


def make_history(where: Where) -> None:
    """Make a stream with a history, of which no queue has anything; returns when it is in files."""
    call(where, "POST", "/streams", {"name": STREAM, "address": STREAM})
    send = b"SEND\ndestination:/topic/flooded\nn:%d\n\n" + b"x" * HISTORY_BYTES + b"\0"
    with connect(where) as sock:
        sock.sendall(CONNECT)
        for first in range(0, HISTORY_MESSAGES, 1_000):
            sock.sendall(b"".join(send % n for n in range(first, first + 1_000)))
        until = time.monotonic() + _HISTORY_SECONDS
        while time.monotonic() < until:
            shown = json.loads(call(where, "GET", f"/streams/{STREAM}")[1])
            if shown["head"] >= HISTORY_MESSAGES * 9 // 10:
                return
            time.sleep(0.1)
    raise AssertionError(f"the history is not there: {shown}")


# ---- replays


def amqp_replays(where: Where) -> None:
    """Replays of a stream from a time, which come and go."""
    attach = _replay("l", 0, Timestamp(1))
    coming = frame(attach) + frame(credit(0, 100)) + frame(Detach(handle=0, closed=True))
    again(where, OPENED, coming * MANY)


def amqp_replays_held(where: Where) -> None:
    """Replays of a stream with all the credit there is, which settle nothing."""
    _held_links(where, lambda _: "first", 1 << 30)


def amqp_replays_unread(where: Where) -> None:
    """Replays of a stream with all the credit there is, which nobody reads."""
    _held_links(where, lambda _: "first", 1 << 30, reads=False)


def amqp_replays_scattered(where: Where) -> None:
    """Replays from everywhere in a stream, which take a few messages and begin elsewhere."""
    chance = random.Random(1)
    while True:
        with contextlib.suppress(OSError), connect(where) as sock:
            sock.sendall(OPENED)
            while True:
                for handle in range(LINKS):
                    place = ULong(chance.randrange(HISTORY_MESSAGES))
                    attach = _replay(f"l{handle}", handle, place)
                    sock.sendall(frame(attach) + frame(credit(handle, 3)))
                time.sleep(AGAIN_SECONDS)
                sock.sendall(b"".join(frame(Detach(handle=h, closed=True)) for h in range(LINKS)))


def amqp_replays_absurd(where: Where) -> None:
    """Replays from places that there are not: beyond the head, before all time, of no kind."""
    places: list[Value] = [ULong((1 << 64) - 1), -1, Timestamp(-(1 << 62)), "yesterday", None, True]
    said = b""
    for place in places:
        said += frame(_replay("l", 0, place)) + frame(Detach(handle=0, closed=True))
    again(where, OPENED, said * (MANY // len(places)))


def stomp_replays_unread(where: Where) -> None:
    """Replays over STOMP without a window, which nobody reads."""
    _unread(where, CONNECT, lambda data: data)


def ws_replays_unread(where: Where) -> None:
    """Replays over WebSocket without a window, which nobody reads."""
    _unread(where, HELLO, _text_frame)


def _unread(where: Where, hello: bytes, wrap: Callable[[bytes], bytes]) -> None:
    held: list[socket.socket] = []
    subscribe = (
        b"SUBSCRIBE\nid:%d\ndestination:/topic/flooded\nx-stream-offset:first\n"
        b"consumer-window-size:-1\n\n\0"
    )
    while True:
        with contextlib.suppress(OSError):
            sock = connect(where, reads=False)
            held.append(sock)
            sock.sendall(hello)
            for number in range(LINKS):
                sock.sendall(wrap(subscribe % number))
        while len(held) > LINKING:
            held.pop(0).close()
        time.sleep(AGAIN_SECONDS)


def _text_frame(data: bytes) -> bytes:
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + size.to_bytes(2, "big")
    return b"\x81" + length + UNMASKED + data


def _held_links(
    where: Where, place: Callable[[int], Value], count: int, *, reads: bool = True
) -> None:
    held: list[socket.socket] = []
    while True:
        with contextlib.suppress(OSError):
            sock = connect(where, reads=reads)
            held.append(sock)
            sock.sendall(OPENED)
            for handle in range(LINKS):
                sock.sendall(frame(_replay(f"l{handle}", handle, place(handle))))
                sock.sendall(frame(credit(handle, count)))
        while len(held) > LINKING:
            held.pop(0).close()
        time.sleep(AGAIN_SECONDS)


def _replay(name: str, handle: int, place: Value) -> Attach:
    key = Symbol("sluicegate:stream-offset")
    source = Source(address=STREAM, filter={key: Described(key, place)})
    return Attach(name=name, handle=handle, role=True, source=source, target=AmqpTarget())


# ---- reads of streams


def _post(where: Where, path: str, body: bytes, kind: str = _JSON) -> bytes:
    """Return a request of the API as bytes."""
    head = (
        f"POST /api/v1{path} HTTP/1.1\r\nHost: 127.0.0.1:{where.management}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _range(first: int = 0, end: int = HISTORY_MESSAGES) -> dict[str, object]:
    return {"stream": STREAM, "epoch": 1, "start": first, "end": end}


def _ask(where: Where, request: bytes, *, reads: bool, held_max: int = _CALLERS) -> None:
    """Send a request on one connection after the other, and keep them."""
    held: list[socket.socket] = []
    while True:
        with contextlib.suppress(OSError):
            sock = connect(where, reads=reads, port=where.management)
            held.append(sock)
            sock.sendall(request)
        while len(held) > held_max:
            held.pop(0).close()
        time.sleep(AGAIN_SECONDS / 10)


def streams_unread(where: Where) -> None:
    """Reads of a whole stream, whose answers nobody takes."""
    body = json.dumps({"ranges": [_range()], "form": "stored"}).encode()
    _ask(where, _post(where, "/streams/read", body), reads=False)


def streams_ranges(where: Where) -> None:
    """Reads of a thousand ranges, each the whole stream."""
    body = json.dumps({"ranges": [_range()] * 1_000, "form": "stored"}).encode()
    _ask(where, _post(where, "/streams/read", body), reads=True, held_max=8)


def streams_selectors(where: Where) -> None:
    """Reads with a selector that is dear and matches nothing, as columns with headers as JSON."""
    selector = " OR ".join(f"n LIKE '%{n}%_%{n}%_%z'" for n in range(60))
    asked = {"ranges": [_range()], "selector": selector, "columns": ["headers"], "headers": "json"}
    body = json.dumps(asked).encode()
    _ask(where, _post(where, "/streams/read", body), reads=True, held_max=8)


def streams_finds(where: Where) -> None:
    """Times that are looked for, from everywhere."""
    body = json.dumps({"timestampMs": 1}).encode()
    _ask(where, _post(where, f"/streams/{STREAM}:find", body) * 50, reads=True, held_max=8)


# ---- the sink


def sink_stages(where: Where) -> None:
    """Stages of a few bytes, which nobody seals."""
    for number in itertools.count():
        path = f"/sink/stages/flood/0/{number % 1_000_000}/a?offset=0"
        with contextlib.suppress(OSError, http.client.HTTPException):
            call(where, "POST", path, data=b"x" * 100, kind=_ARROW)


def sink_forged(where: Where) -> None:
    """Stages that are no honest Arrow: compressed zeros, sizes beyond anything, bytes at random."""
    chance = random.Random(2)
    for number, data in enumerate(_forged(chance)):
        stage = f"/sink/stages/flood/0/{number}/a"
        with contextlib.suppress(OSError, http.client.HTTPException):
            call(where, "POST", f"{stage}?offset=0", data=data[: 1 << 20], kind=_ARROW)
            facts = {"size": len(data), "crc32": zlib.crc32(data)}
            call(where, "POST", f"{stage}:seal", facts)


def _forged(chance: random.Random) -> Iterator[bytes]:
    zeros = pa.record_batch({"body": pa.array([bytes(1 << 20)] * 64, pa.binary())})
    bomb = _written(zeros, pa.ipc.IpcWriteOptions(compression="zstd"))
    texts = ['{"a":' * 100_000, json.dumps({f"h{n}": "x" * 400 for n in range(2_000)})]
    heads = [
        _written(pa.record_batch({"body": pa.array([b""]), "headers": pa.array([text])}))
        for text in texts
    ]
    many = _written(pa.record_batch({"body": pa.array([b""] * 200_000, pa.binary())}))
    while True:
        yield bomb
        yield from heads
        yield many
        for _ in range(20):
            data = bytearray(heads[1][:5_000])
            for _ in range(4):
                data[chance.randrange(len(data))] = chance.randrange(256)
            yield bytes(data)


def _written(
    batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None = None, address: str = "q"
) -> bytes:
    sink = pa.BufferOutputStream()
    schema = batch.schema.with_metadata({"sluicegate.address": address})
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def sink_waiting(where: Where) -> None:
    """Batches of a thousand producers that all wait for an address that takes nothing."""
    call(where, "POST", "/addresses", {"name": "held", "routingTypes": ["ANYCAST"]})
    call(where, "POST", "/addresses/held/block", {})
    batch = pa.record_batch({"body": pa.array([bytes(1_000)] * 800, pa.binary())})
    data = _written(batch, address="held")
    stages = [{"partition": 0, "attempt": "a", "rows": 800}]
    for number in itertools.count():
        stage = f"/sink/stages/p{number % 1_000}/0/0/a"
        with contextlib.suppress(OSError, http.client.HTTPException):
            call(where, "POST", f"{stage}?offset=0", data=data, kind=_ARROW)
            call(where, "POST", f"{stage}:seal", {"size": len(data), "crc32": zlib.crc32(data)})
            said = {"batch": 0, "stages": stages, "waitMs": 0}
            call(where, "POST", f"/sink/producers/p{number % 1_000}:commit", said)


STREAM_FLOODS: Final[dict[str, Flood]] = {
    flood.__name__: flood
    for flood in (
        amqp_replays,
        amqp_replays_held,
        amqp_replays_unread,
        amqp_replays_scattered,
        amqp_replays_absurd,
        stomp_replays_unread,
        ws_replays_unread,
        streams_unread,
        streams_ranges,
        streams_selectors,
        streams_finds,
        sink_stages,
        sink_forged,
        sink_waiting,
    )
}
