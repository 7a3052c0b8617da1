"""The index of a segment of an Arrow log: entries there and back, the torn tail, damage."""

from __future__ import annotations

import pytest

from storage.arrow_index import (
    END_MARK,
    ENTRY_BYTES,
    HEADER_BYTES,
    BlockRef,
    Index,
    block_entry,
    index_header,
    read_index,
    seal_entry,
    whole_index,
)
from storage.errors import DamageError, FormatError

#: Where the blocks of a segment begin.
START = 400
BLOCKS = [
    BlockRef("s.arrows", 7, 9, 2, START, 100, 12, 77),
    BlockRef("s.arrows", 9, 30, 3, START + 100, 60, 13, 78),
]
OPEN = whole_index(7, BLOCKS)
SEALED = OPEN + seal_entry("s.arrows", 30, START + 160)


def read(data: bytes, *, first: int = 7, last: bool = True) -> Index:
    return read_index("s.index", data, "s.arrows", first=first, start=START, last=last)


def test_the_bytes_are_those_of_the_table() -> None:
    assert HEADER_BYTES == 32
    assert ENTRY_BYTES == 56
    header = index_header(7)
    assert header[:16] == b"SGIX\x01\x00\x01\x00" + (7).to_bytes(8, "little")
    entry = block_entry(BLOCKS[0])
    assert entry[:8] == b"\x01\x00\x00\x00\x02\x00\x00\x00"
    assert [int.from_bytes(entry[at : at + 8], "little") for at in range(8, 48, 8)] == [
        7,
        9,
        START,
        100,
        12,
    ]
    assert header + entry == whole_index(7, BLOCKS[:1])


def test_an_open_index_and_a_sealed_one_say_what_was_written() -> None:
    index = read(OPEN)
    assert index == Index(blocks=BLOCKS, size=START + 160, index_size=len(OPEN), sealed=False)
    index = read(SEALED, last=False)
    assert index.blocks == BLOCKS
    assert (index.size, index.index_size) == (START + 160 + len(END_MARK), len(SEALED))
    assert index.sealed


def test_the_last_index_may_be_torn_at_any_byte() -> None:
    for cut in range(len(OPEN)):
        index = read(OPEN[:cut])
        blocks = max(0, cut - HEADER_BYTES) // ENTRY_BYTES
        assert index.blocks == BLOCKS[:blocks], cut
        assert not index.sealed
        assert index.index_size == HEADER_BYTES + blocks * ENTRY_BYTES


def test_a_bad_last_entry_is_torn_in_the_last_index_and_damage_in_others() -> None:
    torn = OPEN[:-1] + b"?"
    assert read(torn).blocks == BLOCKS[:1]
    with pytest.raises(DamageError, match="an entry of a sealed segment"):
        read(torn, last=False)


def test_a_bad_entry_before_a_good_one_is_damage() -> None:
    bad = bytearray(OPEN)
    bad[HEADER_BYTES] ^= 1
    with pytest.raises(DamageError, match="a later one is") as caught:
        read(bytes(bad))
    assert caught.value.offset == HEADER_BYTES


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (whole_index(7, [BLOCKS[1]]), "does not follow the one before"),
        (whole_index(7, [BLOCKS[0]._replace(position=START + 1)]), "does not follow"),
        (SEALED + b"?", "there are bytes behind the seal"),
        (b"?" * HEADER_BYTES + block_entry(BLOCKS[0]), "the header is not what was written"),
    ],
)
def test_what_does_not_hang_together_is_damage(data: bytes, text: str) -> None:
    with pytest.raises(DamageError, match=text):
        read(data)


def test_the_header_of_another_file_is_damage() -> None:
    with pytest.raises(DamageError, match="belongs to another file"):
        read(OPEN, first=8)


def test_a_format_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.arrow_index._VERSION", 2)
    newer = index_header(7)
    monkeypatch.undo()
    with pytest.raises(FormatError, match=r"format 2\.1"):
        read(newer)
