"""One segment of an Arrow log: what it leaves on the device after each of its steps."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest

from storage.arrow_index import HEADER_BYTES, BlockRef
from storage.arrow_segment import (
    SCHEMA,
    SCHEMA_MESSAGE,
    GoneError,
    Segment,
    block_checksum,
    check_block,
    read_block,
)
from storage.errors import DamageError
from tests.storage.power import PowerFiles
from tests.storage.test_arrow_log import make_block

NAME = "00000000000000000005"


def make_segment(files: PowerFiles) -> Segment:
    """Return an open segment of offsets from 5 on."""
    segment = Segment(files, "d", NAME)
    segment.create()
    return segment


def block(segment: Segment, count: int) -> tuple[bytes, BlockRef]:
    """Return the bytes and the place of the block that comes next."""
    first, end, newest_ms, batch = make_block(segment.end, count)
    data = batch.serialize().to_pybytes()
    crc = block_checksum(data, first)
    return data, BlockRef(segment.path, first, end, count, segment.size, len(data), newest_ms, crc)


def contents(files: PowerFiles, path: str) -> bytes:
    fd = files.open(path)
    data = files.pread(fd, 1 << 20, 0)
    files.close(fd)
    return data


def test_a_segment_is_named_by_its_first_offset_and_begins_with_the_schema() -> None:
    files = PowerFiles()
    segment = make_segment(files)
    assert (segment.first, segment.end) == (5, 5)
    assert segment.path == f"d/{NAME}.arrows"
    assert contents(files, segment.path) == SCHEMA_MESSAGE
    assert len(contents(files, segment.index_path)) == HEADER_BYTES


@pytest.mark.parametrize("change", range(8))
def test_a_start_that_fails_leaves_no_file(change: int) -> None:
    files = PowerFiles(fail_at=change, error=OSError(errno.ENOSPC, "full"))
    segment = Segment(files, "d", NAME)
    with pytest.raises(OSError, match="full"):
        segment.create()
    assert files.names == {}
    assert files.open_files == {}


def test_what_is_written_and_sealed_is_as_it_should_be() -> None:
    files = PowerFiles()
    segment = make_segment(files)
    for count in (2, 3):
        data, ref = block(segment, count)
        segment.write(data, [ref])
        assert read_block(files, ref).num_rows == count
    growing = segment.as_it_should_be(sealed=False)
    assert growing.size == 0
    assert growing.index == contents(files, segment.index_path)
    segment.seal()
    sealed = segment.as_it_should_be(sealed=True)
    assert sealed.index == contents(files, segment.index_path)
    assert sealed.size == len(contents(files, segment.path))
    assert files.open_files == {}
    facts = segment.facts()
    assert (facts.first, facts.end, facts.rows, facts.newest_ms) == (5, 10, 5, 7)
    assert facts.size_bytes == sealed.size + len(sealed.index)
    segment.check_sealed()


def test_a_write_without_room_leaves_both_files_as_they_were() -> None:
    for change in (0, 2):  # of the blocks, of the index
        files = PowerFiles()
        segment = make_segment(files)
        data, ref = block(segment, 2)
        files.fail_at, files.error = files.changes + change, OSError(errno.ENOSPC, "full")
        with pytest.raises(OSError, match="full"):
            segment.write(data, [ref])
        assert segment.failed is None
        assert segment.blocks == []
        assert contents(files, segment.path) == SCHEMA_MESSAGE
        assert len(contents(files, segment.index_path)) == HEADER_BYTES
        segment.write(data, [ref])
        assert segment.blocks == [ref]


def test_a_failed_sync_is_kept() -> None:
    files = PowerFiles()
    segment = make_segment(files)
    data, ref = block(segment, 2)
    files.fail_at, files.error = files.changes + 1, OSError(errno.EIO, "gone bad")
    with pytest.raises(OSError, match="gone bad"):
        segment.write(data, [ref])
    assert str(segment.failed) == "[Errno 5] gone bad"
    assert segment.blocks == []


def test_a_sealed_segment_that_is_not_what_was_written_is_damage() -> None:
    for at, text in ((0, "the schema"), (-1, "the end mark"), (None, "it has ")):
        files = PowerFiles()
        segment = make_segment(files)
        data, ref = block(segment, 2)
        segment.write(data, [ref])
        segment.seal()
        whole = files.now[files.names[segment.path]]
        if at is None:
            whole.append(0)
        else:
            whole[at] ^= 1
        with pytest.raises(DamageError, match=text):
            segment.check_sealed()


def test_a_deleted_segment_is_gone_and_a_block_of_it_too() -> None:
    files = PowerFiles()
    segment = make_segment(files)
    data, ref = block(segment, 2)
    segment.write(data, [ref])
    segment.seal()
    segment.delete()
    assert files.names == {}
    with pytest.raises(GoneError):
        read_block(files, ref)


def test_a_block_is_checked_with_its_offset() -> None:
    data = pa.record_batch([[], [], [], []], schema=SCHEMA).serialize().to_pybytes()
    ref = BlockRef("s.arrows", 3, 4, 0, 0, len(data), 0, block_checksum(data, 3))
    check_block(ref, data)
    with pytest.raises(DamageError, match="checksum of the block of offsets 4 to 4"):
        check_block(ref._replace(first=4, end=5), data)
    with pytest.raises(DamageError, match="ends early"):
        check_block(ref, data[:-1])
