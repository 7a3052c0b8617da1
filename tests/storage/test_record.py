"""The journal's bytes: what is encoded is decoded, and nothing else passes."""

from __future__ import annotations

import contextlib
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import FormatError
from storage.record import (
    ABSENT,
    BATCH_HEADER_BYTES,
    CLEAN_RECORD,
    SEGMENT_HEADER_BYTES,
    SUSPECT_RECORD,
    AddRun,
    BadRecordError,
    Clean,
    Counted,
    Note,
    Postponed,
    Remove,
    SegmentHead,
    Suspect,
    decode_batch_head,
    decode_records,
    decode_segment_header,
    encode_add,
    encode_batch,
    encode_count,
    encode_note,
    encode_postponed,
    encode_remove,
    encode_segment_header,
    salt_of,
)
from tests.lanes import examples

UUID = bytes(range(16))
U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
DUE = st.one_of(st.just(0), U64)
BODY = st.binary(max_size=40)


@st.composite
def runs(draw: st.DrawFn) -> AddRun:
    """Runs as the broker makes them: one value for all, or one for each body."""
    targets = draw(st.lists(st.tuples(U64, U64), max_size=4))
    bodies: list[bytes | None] = list(draw(st.lists(BODY, min_size=1, max_size=6)))
    count = len(bodies)
    if draw(st.booleans()):
        expires = draw(st.one_of(U64, st.lists(U64, min_size=count, max_size=count)))
        return AddRun(targets, bodies, draw(U32), expires, draw(U64), draw(DUE))
    absent = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return AddRun(
        targets,
        [None if gone else body for gone, body in zip(absent, bodies, strict=True)],
        draw(st.lists(U32, min_size=count, max_size=count)),
        draw(st.lists(U64, min_size=count, max_size=count)),
        draw(U64),
        draw(DUE),
    )


def encoded(run: AddRun) -> bytes:
    parts: list[bytes] = []
    encode_add(run, parts)
    return b"".join(parts)


def plain(run: AddRun) -> tuple[object, ...]:
    flags = run.flags if isinstance(run.flags, int) else list(run.flags)
    expires = run.expires if isinstance(run.expires, int) else list(run.expires)
    targets = [tuple(t) for t in run.targets]
    return targets, list(run.bodies), flags, expires, run.accepted_ms, run.due


@given(st.lists(runs(), max_size=4))
def test_runs_come_back(given_runs: list[AddRun]) -> None:
    payload = b"".join(map(encoded, given_runs))
    assert [plain(run) for run in decode_records(payload)] == [plain(run) for run in given_runs]


@given(
    U64,
    st.lists(U64, max_size=8),
    st.binary(max_size=30),
    st.lists(st.tuples(U64, U32)),
    st.lists(st.tuples(U64, U64)),
)
def test_other_records_come_back(queue, places, note, counted, postponed) -> None:
    ranges = places[: len(places) // 2 * 2]
    payload = (
        SUSPECT_RECORD
        + encode_remove(queue, ranges)
        + encode_note(note)
        + encode_count(queue, counted)
        + encode_postponed(queue, postponed)
        + CLEAN_RECORD
    )
    suspect, remove, noted, count, due, clean = decode_records(payload)
    assert isinstance(suspect, Suspect)
    assert isinstance(remove, Remove)
    assert (remove.queue_id, list(remove.ranges)) == (queue, ranges)
    assert noted == Note(note)
    assert count == Counted(queue, counted)
    assert due == Postponed(queue, postponed)
    assert isinstance(clean, Clean)


@given(runs(), st.data())
def test_a_record_cut_anywhere_is_bad(run: AddRun, data: st.DataObject) -> None:
    whole = encoded(run)
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    with pytest.raises(BadRecordError):
        list(decode_records(cut))


@pytest.mark.parametrize(
    "record",
    [
        encode_remove(1, [1, 2, 5, 6]),
        encode_note(b"note"),
        encode_count(1, [(1, 2)]),
        encode_postponed(1, [(1, 2)]),
    ],
)
def test_other_records_cut_anywhere_are_bad(record: bytes) -> None:
    for length in range(1, len(record)):
        with pytest.raises(BadRecordError, match="cut short"):
            list(decode_records(record[:length]))


@settings(max_examples=examples(300))
@given(st.binary(max_size=80))
def test_garbage_is_bad_or_read_and_never_anything_else(garbage: bytes) -> None:
    with contextlib.suppress(BadRecordError):
        list(decode_records(garbage))


@pytest.mark.parametrize("kind", [0, 9, 255])
def test_an_unknown_kind_is_named(kind: int) -> None:
    with pytest.raises(BadRecordError, match=f"unknown record kind {kind} at 1"):
        list(decode_records(CLEAN_RECORD + bytes([kind])))


def test_a_count_of_four_billion_allocates_nothing() -> None:
    record = bytearray(encoded(AddRun([(1, 1)], [b"x"], 0, 0, 0)))
    struct.pack_into("<I", record, 6, 2**32 - 1)
    with pytest.raises(BadRecordError):
        list(decode_records(bytes(record)))
    with pytest.raises(BadRecordError):
        list(decode_records(struct.pack("<BQI", 2, 1, 2**32 - 1)))


@pytest.mark.parametrize("how", [16, 128, 255])
def test_an_add_with_bits_of_a_newer_program_is_named(how: int) -> None:
    record = bytearray(encoded(AddRun([(1, 1)], [b"x"], 0, 0, 0)))
    record[1] = how
    with pytest.raises(BadRecordError, match=f"unknown bits: {how:#x}"):
        list(decode_records(bytes(record)))


def test_the_layout_of_what_is_due_later() -> None:
    run = AddRun([(7, 9)], [b"ab"], 0x214, 5, 3, 99)
    assert encoded(run) == (
        bytes([1, 10])
        + struct.pack("<IIQ", 1, 1, 3)
        + struct.pack("<QQ", 7, 9)
        + struct.pack("<I", 0x214)
        + struct.pack("<QQ", 5, 99)
        + struct.pack("<I", 2)
        + b"ab"
    )
    assert encode_postponed(7, [(9, 100)]) == struct.pack("<BQIQQ", 7, 7, 1, 9, 100)


def test_the_layout_of_an_add_is_the_one_in_the_text() -> None:
    run = AddRun([(7, 9)], [b"ab", b"c"], 0x14, 5, 3)
    assert encoded(run) == (
        bytes([1, 2])
        + struct.pack("<IIQ", 1, 2, 3)
        + struct.pack("<QQ", 7, 9)
        + struct.pack("<I", 0x14)
        + struct.pack("<Q", 5)
        + struct.pack("<II", 2, 1)
        + b"abc"
    )
    mixed = AddRun([(7, 9)], [b"ab", None], [1, 2], [3, 4], 5)
    assert encoded(mixed) == (
        bytes([1, 5])
        + struct.pack("<IIQ", 1, 2, 5)
        + struct.pack("<QQ", 7, 9)
        + struct.pack("<II", 1, 2)
        + struct.pack("<QQ", 3, 4)
        + struct.pack("<II", 2, ABSENT)
        + b"ab"
    )


# ---- segment headers


def test_a_segment_header_comes_back() -> None:
    header = encode_segment_header(12, UUID, 34)
    assert len(header) == SEGMENT_HEADER_BYTES
    assert decode_segment_header(header + bytes(100)) == SegmentHead(12, UUID, 34)


def test_any_flipped_bit_of_a_segment_header_is_seen() -> None:
    header = encode_segment_header(12, UUID, 34)
    for bit in range(8 * len(header)):
        rotten = bytearray(header)
        rotten[bit // 8] ^= 1 << bit % 8
        assert decode_segment_header(bytes(rotten)) is None


@pytest.mark.parametrize("data", [b"", bytes(64), b"SLGJ", encode_segment_header(1, UUID, 1)[:63]])
def test_what_is_no_segment_header(data: bytes) -> None:
    assert decode_segment_header(data) is None


@pytest.mark.parametrize(("version", "checksum"), [(2, 1), (1, 2), (0, 1)])
def test_another_format_is_refused_by_name(version: int, checksum: int) -> None:
    head = struct.pack("<4sHHQ16sQ20x", b"SLGJ", version, checksum, 1, UUID, 1)
    with pytest.raises(FormatError, match=f"version {version} with checksum {checksum}"):
        decode_segment_header(head + struct.pack("<I", zlib.crc32(head)))


# ---- batches


def test_a_batch_header_comes_back_where_it_belongs_only() -> None:
    salt = salt_of(UUID, 64)
    head = encode_batch(b"payload", 9, 8, salt)
    assert len(head) == BATCH_HEADER_BYTES
    data = bytes(64) + head + b"payload"
    found = decode_batch_head(data, 64, salt)
    assert found is not None
    assert (found.length, found.number, found.synced) == (7, 9, 8)
    assert found.payload_crc == zlib.crc32(b"payload", salt)
    assert decode_batch_head(data, 64, salt_of(UUID, 65)) is None, "another place"
    assert decode_batch_head(data, 64, salt_of(bytes(16), 64)) is None, "another life"
    assert decode_batch_head(data, 63, salt) is None
    assert decode_batch_head(data[: 64 + BATCH_HEADER_BYTES], 64, salt) == found, "up to the end"
    assert decode_batch_head(data[: 64 + BATCH_HEADER_BYTES - 1], 64, salt) is None


def test_any_flipped_bit_of_a_batch_header_is_seen() -> None:
    salt = salt_of(UUID, 0)
    head = encode_batch(b"", 1, 0, salt)
    for bit in range(8 * len(head)):
        rotten = bytearray(head)
        rotten[bit // 8] ^= 1 << bit % 8
        assert decode_batch_head(bytes(rotten), 0, salt) is None


def test_zeros_begin_nothing() -> None:
    assert decode_batch_head(bytes(100), 0, salt_of(UUID, 0)) is None
    with pytest.raises(BadRecordError):
        list(decode_records(bytes(1)))
