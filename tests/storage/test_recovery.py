"""Reading a journal back: the torn tail is cut, damage is refused, and the two are told apart."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import DamageError, FormatError, StorageError
from storage.record import (
    BATCH_HEADER_BYTES,
    CLEAN_RECORD,
    SEGMENT_HEADER_BYTES,
    SUSPECT_RECORD,
    AddRun,
    encode_add,
    encode_batch,
    encode_count,
    encode_note,
    encode_remove,
    encode_segment_header,
    salt_of,
)
from storage.recovery import Recovered, recover
from tests.costs import costs
from tests.lanes import examples

SIZE = 4096


def add(queue: int, first: int, *bodies: bytes) -> bytes:
    parts: list[bytes] = []
    encode_add(AddRun([(queue, first)], list(bodies), 0x14, 0, 1), parts)
    return b"".join(parts)


class Image:
    """A segment file in the making; `places` are the offsets of its batches."""

    def __init__(self, number: int, first: int, life: int = 0, old: bytes = bytes(SIZE)) -> None:
        self.number = number
        self.uuid = bytes([number, life]) * 8
        self.data = bytearray(old)
        self.data[:SEGMENT_HEADER_BYTES] = encode_segment_header(number, self.uuid, first)
        self.end = SEGMENT_HEADER_BYTES
        self.following = first
        self.places: list[int] = []

    def batch(self, payload: bytes = b"", number: int | None = None, synced: int | None = None):
        number = self.following if number is None else number
        synced = number - 1 if synced is None else synced
        head = encode_batch(payload, number, synced, salt_of(self.uuid, self.end))
        self.places.append(self.end)
        whole = head + payload
        self.data[self.end : self.end + len(whole)] = whole
        self.end += len(whole)
        self.following = number + 1
        return self


def read(*images: Image) -> Recovered:
    return recover((i.number, f"file-{i.number}", bytes(i.data)) for i in images)


def bodies(found: Recovered, queue: int) -> dict[int, bytes]:
    return {seq: stored.body for seq, stored in found.queues.get(queue, {}).items()}


# ---- what is whole


def test_an_empty_journal() -> None:
    found = recover(iter(()))
    assert (found.ticket, found.segment, found.clean, found.queues) == (0, 0, True, {})


def test_records_are_applied_in_order_over_segments() -> None:
    one = Image(1, 1).batch(add(7, 1, b"a", b"b", b"c")).batch(encode_remove(7, [2, 2]))
    two = Image(2, 3).batch(add(7, 4, b"d") + add(8, 1, b"x")).batch(encode_note(b"n"))
    two.batch(encode_count(7, [(4, 0x10014), (2, 99)]))
    found = read(one, two)
    assert bodies(found, 7) == {1: b"a", 3: b"c", 4: b"d"}
    assert bodies(found, 8) == {1: b"x"}
    assert found.queues[7][4].flags == 0x10014
    assert [found.queues[7][seq].segment for seq in (1, 3, 4)] == [1, 1, 2]
    assert (found.notes, found.highest) == ([b"n"], {7: 4, 8: 1})
    assert (found.ticket, found.segment, found.torn_bytes, found.segments) == (5, 2, 0, [1, 2])
    assert found.end == ("file-2", two.end)


def test_reading_may_begin_anywhere_what_was_before_is_gone() -> None:
    assert read(Image(5, 40).batch().batch()).ticket == 41


@pytest.mark.parametrize(
    ("ranges", "left"),
    [([1, 2], {3}), ([0, 2**63], set()), ([2, 2, 3, 9], {1}), ([7, 2**64 - 1], {1, 2, 3})],
)
def test_ranges_remove_what_is_there(ranges: list[int], left: set[int]) -> None:
    image = Image(1, 1).batch(add(7, 1, b"a", b"b", b"c")).batch(encode_remove(7, ranges))
    with costs():  # a range costs what it holds, not what it spans
        assert bodies(read(image), 7).keys() == left


def test_clean_and_suspect() -> None:
    image = Image(1, 1).batch(add(7, 1, b"a"))
    assert not read(image).clean
    image.batch(CLEAN_RECORD)
    assert read(image).clean
    later = Image(2, 3).batch(SUSPECT_RECORD + add(7, 2, b"b"))
    found = read(image, later)
    assert not found.clean
    assert [found.queues[7][seq].suspect for seq in (1, 2)] == [True, False]
    assert read(image, later.batch(CLEAN_RECORD)).clean


def test_a_batch_of_another_program_is_refused_with_its_place() -> None:
    image = Image(1, 1).batch().batch(b"\x09")
    with pytest.raises(DamageError, match="unknown record kind 9") as caught:
        read(image)
    assert (caught.value.path, caught.value.offset) == ("file-1", image.places[1])


# ---- the torn tail


@pytest.mark.parametrize("kept", range(0, 80, 7))
def test_a_torn_tail_is_cut(kept: int) -> None:
    image = Image(1, 1).batch(add(7, 1, b"a")).batch(add(7, 2, b"b" * 60))
    torn_at = image.places[1]
    image.data[torn_at + kept :] = bytes(SIZE - torn_at - kept)
    found = read(image)
    assert bodies(found, 7) == {1: b"a"}
    assert (found.ticket, found.end) == (1, ("file-1", torn_at))
    whole_header = kept >= BATCH_HEADER_BYTES
    assert (found.torn_bytes > 0) == whole_header
    assert not found.clean


def test_a_torn_tail_is_as_long_as_the_file_at_most() -> None:
    image = Image(1, 1).batch().batch(add(7, 1, b"a" * 3000))
    start = image.places[1]
    image.data[start + BATCH_HEADER_BYTES] ^= 1
    assert read(image).torn_bytes == image.end - start
    del image.data[start + 100 :]
    assert read(image).torn_bytes == 100


def test_the_next_life_takes_the_number_of_the_batch_that_was_cut() -> None:
    one = Image(1, 1).batch(add(7, 1, b"a")).batch(add(7, 2, b"torn" * 9))
    one.data[one.end - 3] ^= 1
    two = Image(2, 2).batch(add(7, 2, b"new"))
    found = read(one, two)
    assert bodies(found, 7) == {1: b"a", 2: b"new"}
    assert (found.ticket, found.torn_bytes) == (2, one.end - one.places[1])


def test_lives_that_wrote_nothing_leave_no_trace() -> None:
    one = Image(1, 1).batch()
    nothing = [Image(n, 2) for n in (2, 3, 4)]
    last = Image(5, 2).batch()
    assert read(one, *nothing).ticket == 1
    assert read(one, *nothing, last).ticket == 2


def test_a_torn_batch_of_each_life_is_cut_each_time() -> None:
    images = []
    for number in range(1, 5):
        image = Image(number, 1).batch(add(7, 1, b"torn"))
        image.data[image.end - 1] ^= 1
        images.append(image)
    assert read(*images).ticket == 0
    assert bodies(read(*images, Image(5, 1).batch(add(7, 1, b"whole"))), 7) == {1: b"whole"}


def test_old_batches_behind_the_end_are_not_read() -> None:
    old = Image(1, 1)
    for number in range(1, 10):
        old.batch(add(7, number, b"old"))
    new = Image(3, 20, life=1, old=bytes(old.data)).batch(add(7, 30, b"new"))
    found = read(new)
    assert bodies(found, 7) == {30: b"new"}
    assert found.ticket == 20


@pytest.mark.parametrize("header", ["zeros", "of an earlier life"])
def test_a_file_that_was_being_made_ready_holds_nothing(header: str) -> None:
    one = Image(2, 1).batch(add(7, 1, b"a"))
    raw = Image(1, 1).batch(add(7, 9, b"old")) if header == "of an earlier life" else None
    data = bytes(raw.data) if raw is not None else bytes(SIZE)
    files = [(2, "file-2", bytes(one.data)), (3, "file-3", data)]
    found = recover(iter(files))
    assert bodies(found, 7) == {1: b"a"}
    assert (found.segment, found.segments) == (3, [2, 3])
    assert recover(iter([*files, (4, "file-4", b"")])).segment == 4, "made, and not yet filled"


# ---- damage


def rotten(image: Image, offset: int) -> Image:
    image.data[offset] ^= 0x10
    return image


@pytest.mark.parametrize("where", ["head", "payload"])
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_damage_in_the_middle_is_refused_with_path_and_counts(where: str, lost: int) -> None:
    image = Image(1, 1)
    for number in range(1, 7):
        image.batch(add(7, number, b"body"))
    for batch in range(2, 2 + lost):
        rotten(image, image.places[batch] + (5 if where == "head" else BATCH_HEADER_BYTES + 3))
    with pytest.raises(DamageError) as caught:
        read(image)
    error = caught.value
    assert (error.path, error.offset) == ("file-1", image.places[2])
    text = str(error)
    assert "file-1 is damaged at offset" in text
    if where == "payload":
        # Headers are whole, so the next one says what was synced; more is not looked for.
        lost = 1
    assert error.batches == lost
    assert f"(at least {lost})" in text
    assert ("batch 3 " in text) == (lost == 1)
    assert "2 messages lived then" in text
    assert "Nothing was changed" in text


def test_rot_of_the_last_batch_is_seen_when_an_empty_one_covers_it() -> None:
    image = Image(1, 1).batch().batch(add(7, 1, b"a")).batch()
    rotten(image, image.places[1] + BATCH_HEADER_BYTES)
    with pytest.raises(DamageError):
        read(image)


def test_rot_of_the_last_batch_is_seen_when_another_segment_follows() -> None:
    one = Image(1, 1).batch().batch(add(7, 1, b"a"))
    rotten(one, one.places[1] + BATCH_HEADER_BYTES)
    with pytest.raises(DamageError) as caught:
        read(one, Image(2, 3).batch())
    assert (caught.value.path, caught.value.offset) == ("file-1", one.places[1])
    assert caught.value.batches == 1


def test_the_last_synced_rule_does_not_take_a_torn_tail_for_rot() -> None:
    """A batch behind the broken one that was written before the broken one's sync proves nothing.

    Such are not written today; the rule is what the format promises.
    """
    image = Image(1, 1).batch().batch(add(7, 1, b"a")).batch(number=3, synced=1)
    rotten(image, image.places[1] + BATCH_HEADER_BYTES)
    found = read(image)
    assert (found.ticket, found.queues) == (1, {})


def test_bytes_of_a_message_that_look_like_a_batch_are_not_taken_for_one() -> None:
    inner = encode_batch(b"", 9, 8, salt_of(b"\x01\x00" * 8, 0))
    image = Image(1, 1).batch().batch(add(7, 1, inner * 3))
    rotten(image, image.end - 1)
    assert read(image).ticket == 1


@pytest.mark.parametrize("offset", [0, 5, 8, 20, 40, 63])
def test_a_damaged_header_of_the_last_segment_is_refused(offset: int) -> None:
    with pytest.raises(DamageError, match="header of the segment is not whole") as caught:
        read(Image(1, 1).batch(), rotten(Image(2, 2).batch(), offset))
    assert (caught.value.path, caught.value.offset) == ("file-2", 0)


def test_a_header_of_zeros_before_batches_is_refused() -> None:
    image = Image(1, 1).batch()
    image.data[:SEGMENT_HEADER_BYTES] = bytes(SEGMENT_HEADER_BYTES)
    with pytest.raises(DamageError):
        read(image)


def test_a_missing_segment_is_refused() -> None:
    images = [Image(n, n).batch() for n in range(1, 5)]
    del images[1]
    with pytest.raises(DamageError) as caught:
        read(*images)
    assert caught.value.batches == 1
    assert caught.value.path == "file-1"


def test_a_segment_under_another_name_is_refused() -> None:
    image = Image(3, 1).batch()
    with pytest.raises(DamageError, match="segment 3 by its header"):
        recover(iter([(2, "file-2", bytes(image.data))]))


def test_a_segment_that_begins_too_early_is_refused() -> None:
    with pytest.raises(DamageError, match="begins with batch 2, where batch 3 belongs"):
        read(Image(1, 1).batch().batch(), Image(2, 2).batch())


def test_a_batch_out_of_order_is_refused() -> None:
    image = Image(1, 1).batch().batch(number=3)
    with pytest.raises(DamageError, match="batch 3 stands where batch 2 belongs"):
        read(image)


def test_a_newer_format_is_refused_and_nothing_else_read() -> None:
    head = struct.pack("<4sHHQ16sQ20x", b"SLGJ", 2, 1, 1, bytes(16), 1)
    data = head + struct.pack("<I", zlib.crc32(head)) + bytes(64)
    with pytest.raises(FormatError, match="version 2"):
        recover(iter([(1, "file-1", data)]))


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.integers(0, 1199), st.integers(1, 255)), min_size=1, max_size=8))
def test_whatever_is_damaged_is_refused_or_a_prefix_is_found(flips) -> None:
    image = Image(1, 1)
    for number in range(1, 13):
        image.batch(add(7, number, b"%d" % number * 20))
    for offset, mask in flips:
        image.data[offset % image.end] ^= mask
    try:
        found = read(image)
    except StorageError:
        return
    assert bodies(found, 7) == {n: b"%d" % n * 20 for n in range(1, found.ticket + 1)}


@settings(max_examples=examples(150))
@given(st.binary(max_size=400), st.booleans())
def test_garbage_is_refused_or_empty(garbage: bytes, begun: bool) -> None:
    data = (encode_segment_header(1, bytes(16), 1) if begun else b"") + garbage
    try:
        found = recover(iter([(1, "file-1", data)]))
    except StorageError:
        return
    assert found.queues == {}
