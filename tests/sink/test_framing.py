"""Stages that are no honest Arrow: refused by name, in bounded memory, and the process lives."""

from __future__ import annotations

import io
import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from gateway.model.errors import RefusedError
from gateway.sink import framing
from gateway.sink.checking import judge_stage
from gateway.sink.framing import ArrowStage
from tests.sink.core import stream, written, written_all

MESSAGE_MAX = 1 << 20
_MAP = pa.map_(pa.string(), pa.string())


def judge(data: bytes) -> int:
    """Return the rows of a stage. Raises RefusedError."""
    return judge_stage(ArrowStage(io.BytesIO(data), MESSAGE_MAX), MESSAGE_MAX).rows


def compressed(rows: int, codec: str) -> bytes:
    """Return rows of a kilobyte of zeros each as a compressed stage."""
    batch = pa.record_batch({"body": pa.array([bytes(1024)] * rows, pa.binary())})
    schema = batch.schema.with_metadata({"sluicegate.address": "q"})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def places_outside() -> bytes:
    """Return a stage whose headers are said to be a billion places behind those that there are."""
    headers = pa.array([[(f"name {n}", "x") for n in range(7)]], _MAP)
    data = bytearray(stream(1, headers=headers))
    at = data.rindex(b"\0\0\0\0\x07\0\0\0")
    data[at : at + 8] = b"\0\0\0\x40\x07\0\0\x40"
    return bytes(data)


def rows_of_nothing(rows: int) -> bytes:
    """Return a stage whose batch says that it has so many rows, and has three."""
    data = bytearray(stream(3))
    at = data.index((3).to_bytes(8, "little"), 200)  # of the record batch; the schema has none
    data[at : at + 8] = rows.to_bytes(8, "little", signed=True)
    return bytes(data)


def dictionary() -> bytes:
    """Return a stage with a dictionary behind its schema, which says nothing of one."""
    column = pa.array(["a", "b"]).dictionary_encode()
    batch = pa.record_batch({"body": column})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    messages = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))
    schema = next(iter(pa.ipc.MessageReader.open_stream(stream(1))))
    return b"".join(m.serialize().to_pybytes() for m in (schema, messages[1]))


def no_schema() -> bytes:
    """Return a stage whose first message says that it is of a kind that there is not."""
    for place in range(8, 64):
        data = bytearray(stream(3))
        data[place] = 99
        try:
            first = pa.ipc.MessageReader.open_stream(data).read_next_message()
        except (pa.ArrowException, OSError):
            continue
        if first.type == "unknown":
            return bytes(data)
    raise AssertionError("no byte of the first message is its kind")


def bad_name() -> bytes:
    """Return a stage with a column whose name is no UTF-8."""
    return stream(3).replace(b"body", b"\xffody")


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "places outside": (places_outside, "no Arrow stream that can be read"),
    "an inflating one": (lambda: compressed(200_000, "zstd"), "its buffers are compressed"),
    "another codec": (lambda: compressed(3, "lz4"), "its buffers are compressed"),
    "absurd rows": (lambda: rows_of_nothing(1 << 40), "no Arrow stream that can be read"),
    "fewer than no rows": (lambda: rows_of_nothing(-1), "one of its batches has -1 rows"),
    "a dictionary": (dictionary, "a stage has record batches only"),
    "no schema": (no_schema, "no Arrow stream that can be read"),
    "a bad name": (bad_name, "has a name that is no UTF-8"),
    "nothing": (lambda: b"", "no Arrow stream that can be read"),
    "a claim": (
        lambda: b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(64),
        "one of its messages has 2147483647 bytes",
    ),
    "nested JSON": (
        lambda: stream(1, headers=pa.array(['{"a":' * 100_000])),
        "Row 0: the column 'headers' is nested too deeply",
    ),
    "many headers": (
        lambda: stream(1, headers=pa.array([[(str(n), "") for n in range(2_100)]], _MAP)),
        "has more than 2047 headers",
    ),
    "as many as JSON": (
        lambda: stream(
            1, headers=pa.array(["{" + ",".join(f'"{n}":1' for n in range(2_100)) + "}"])
        ),
        "has more than 2047 headers",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_hostile_stage_is_refused_by_name(case: str) -> None:
    make, rule = BAD[case]
    with pytest.raises(RefusedError, match=rule):
        judge(make())


def test_a_large_message_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MESSAGE_BYTES_MAX", 1_000)
    asked: list[int] = []

    class Source(io.BytesIO):
        def read(self, count: int | None = -1) -> bytes:
            asked.append(count or 0)
            return super().read(count)

    data = written(pa.record_batch({"body": pa.array([bytes(200_000)] * 20, pa.binary())}))
    with pytest.raises(RefusedError, match=r"one of its messages has 4000.* at most"):
        judge_stage(ArrowStage(Source(data), MESSAGE_MAX), MESSAGE_MAX)
    assert max(asked) < 2 * MESSAGE_MAX


def test_batches_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "BATCHES_MAX", 3)
    batch = pa.record_batch({"body": pa.array([b"x"], pa.binary())})
    assert judge(written_all([batch] * 3)) == 3
    with pytest.raises(RefusedError, match="more than 3 batches"):
        judge(written_all([batch] * 4))


def test_batches_without_rows_and_rows_without_bytes_are_taken() -> None:
    some = pa.record_batch({"body": pa.array([b"", b"x"], pa.binary())})
    assert judge(written_all([some.slice(0, 0), some, some.slice(0, 0)])) == 2


def mutant(chance: random.Random) -> bytes:
    """Return a stage with some of its bytes changed, cut or moved."""
    texts = pa.array(["x", None, "y"])
    many = pa.array([[("a", "b")], None, [("c", None)]], _MAP)
    whole = [
        stream(3),
        stream(3, subject=texts, headers=many, durable=pa.array([True, None, False])),
        stream(3, headers=pa.array(['{"a":1}', None, "{}"])),
        compressed(20, "zstd"),
    ]
    data = bytearray(chance.choice(whole))
    for _ in range(chance.choice([1, 1, 2, 4, 8])):
        at, wide = chance.randrange(len(data)), chance.choice([1, 4, 8])
        number = chance.choice([0, -1, 5, 1000, 1 << 20, (1 << 31) - 1, 1 << 40, 1 << 62])
        value = (number & ((1 << 8 * wide) - 1)).to_bytes(wide, "little")
        at &= ~(wide - 1)
        data[at : at + wide] = value
        if chance.random() < 0.1:
            del data[chance.randrange(1, len(data)) :]
    return bytes(data)
