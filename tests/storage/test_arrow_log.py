"""The Arrow log: blocks, index, recovery after power cuts, damage, retention."""

from __future__ import annotations

import contextlib
import errno
import random
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage.arrow_log import ArrowLog
from storage.arrow_segment import SCHEMA, GoneError
from storage.errors import DamageError, FormatError, StorageError
from storage.files import RealFiles
from tests.storage.power import PowerFiles, PowerLossError

Appended = tuple[int, int, int, pa.RecordBatch]


def make_block(first: int, count: int, size: int = 40, skip: int = 0) -> Appended:
    """Return a block of `count` rows behind `skip` offsets that hold nothing."""
    offsets = range(first + skip, first + skip + count)
    raws = [b"%d-" % offset + b"x" * size for offset in offsets]
    columns = [
        pa.array(offsets, pa.int64()),
        pa.array([o * 1000 for o in offsets], pa.int64()).cast(SCHEMA.field(1).type),
        pa.array([4] * count, pa.int32()),
        pa.array(raws, pa.binary()),
    ]
    return first, first + skip + count, first, pa.record_batch(columns, schema=SCHEMA)


def read_all(log: ArrowLog, start: int = 0, end: int = 1 << 60) -> list[bytes]:
    found = [log.read(ref) for ref in log.blocks(start, end)]
    return [raw for batch in found for raw in batch.column("raw").to_pylist()]


def raws(blocks: list[Appended]) -> list[bytes]:
    return [raw for block in blocks for raw in block[3].column("raw").to_pylist()]


def make_blocks(counts: list[int], size: int = 40) -> list[Appended]:
    made, first = [], 0
    for count in counts:
        made.append(make_block(first, count, size))
        first += count
    return made


def test_what_is_appended_is_read_and_survives_closing(tmp_path: Path) -> None:
    log = ArrowLog(RealFiles(), str(tmp_path / "log"))
    assert (log.first_offset, log.next_offset, log.segments()) == (0, 0, [])
    blocks = make_blocks([3, 1, 5])
    log.append(blocks[:2])
    log.append(blocks[2:])
    assert log.next_offset == 9
    assert read_all(log) == raws(blocks)
    log.close()
    again = ArrowLog(RealFiles(), str(tmp_path / "log"))
    assert (again.first_offset, again.next_offset) == (0, 9)
    assert read_all(again) == raws(blocks)
    again.append([make_block(9, 2)])
    assert len(again.segments()) == 2, "a segment of an earlier life is not appended to"


def test_a_sealed_segment_is_an_arrow_stream_for_anybody(tmp_path: Path) -> None:
    log = ArrowLog(RealFiles(), str(tmp_path))
    blocks = make_blocks([3, 4])
    log.append(blocks)
    log.close()
    (path,) = tmp_path.glob("*.arrows")
    table = pa.ipc.open_stream(path.read_bytes()).read_all()
    assert table.schema == SCHEMA
    assert table.column("raw").to_pylist() == raws(blocks)
    assert table.column("offset").to_pylist() == list(range(7))


def test_blocks_of_a_range_and_holes(tmp_path: Path) -> None:
    log = ArrowLog(RealFiles(), str(tmp_path))
    log.append([make_block(0, 2), make_block(2, 2, skip=3), make_block(7, 1)])
    found = [(ref.first, ref.end, ref.rows) for ref in log.blocks(1, 8)]
    assert found == [(0, 2, 2), (2, 7, 2), (7, 8, 1)]
    assert [ref.first for ref in log.blocks(2, 7)] == [2]
    assert list(log.blocks(8, 9)) == []


@pytest.mark.parametrize("bad", [(1, 1), (3, 2)])
def test_a_block_that_does_not_follow_is_a_fault_of_ours(tmp_path: Path, bad: Any) -> None:
    log = ArrowLog(RealFiles(), str(tmp_path))
    log.append([make_block(0, 2)])
    with pytest.raises(ValueError, match="does not follow 2"):
        log.append([make_block(*bad)])
    log.append([make_block(2, 1)])
    assert log.next_offset == 3


def test_rolls_and_drops_oldest_first_but_never_the_newest(tmp_path: Path) -> None:
    log = ArrowLog(RealFiles(), str(tmp_path), segment_bytes=2000)
    blocks = make_blocks([10] * 12, 100)
    log.append(blocks)
    segments = log.segments()
    assert len(segments) == 12 // 2
    assert [(s.first, s.end, s.rows) for s in segments][1:3] == [(20, 40, 20), (40, 60, 20)]
    gone = log.blocks(0, 10)[0]
    size = sum(f.stat().st_size for f in tmp_path.iterdir())
    freed = log.drop(2)
    assert log.first_offset == 40
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) == size - freed
    with pytest.raises(GoneError):
        log.read(gone)
    assert read_all(log) == raws(blocks[4:])
    log.drop(100)
    assert (log.first_offset, log.next_offset) == (100, 120)
    log.close()
    again = ArrowLog(RealFiles(), str(tmp_path))
    assert (again.first_offset, again.next_offset) == (100, 120)


def test_delete_leaves_nothing(tmp_path: Path) -> None:
    log = ArrowLog(RealFiles(), str(tmp_path), segment_bytes=500)
    log.append(make_blocks([10] * 3, 100))
    log.delete()
    assert list(tmp_path.iterdir()) == []


def story(files: PowerFiles, done: list[int]) -> None:
    """Append, roll, drop, close, open and append; `done` gets what was promised: [first, next]."""
    log = ArrowLog(files, "d", segment_bytes=1500)
    for start in (0, 20, 40, 60):
        log.append([make_block(start, 10, 60), make_block(start + 10, 10, 60)])
        done[1] = start + 20
    log.drop(1)
    done[0] = log.first_offset
    log.close()
    log = ArrowLog(files, "d", segment_bytes=1500)
    log.append([make_block(80, 5)])
    done[1] = 85


def count_changes() -> int:
    files = PowerFiles()
    story(files, [0, 0])
    return files.changes


@pytest.mark.parametrize("seed", range(3))
def test_power_lost_at_every_change_loses_nothing_promised(seed: int) -> None:
    total = count_changes()
    assert total > 50
    for change in range(total):
        files = PowerFiles(fail_at=change)
        done = [0, 0]
        with pytest.raises(PowerLossError):
            story(files, done)
        log = ArrowLog(files.lose_power(random.Random(f"{seed}-{change}")), "d")
        assert log.next_offset >= done[1], change
        assert log.first_offset in (done[0], 0, 20, 40), change
        found = read_all(log)
        whole = raws([make_block(0, 80, 60), make_block(80, 5)])
        assert found == whole[log.first_offset : log.next_offset], change
        log.append([make_block(log.next_offset, 3)])
        assert len(read_all(log)) == len(found) + 3


@pytest.mark.parametrize("change", range(count_changes()))
def test_an_error_at_any_change_leaves_a_log_that_is_right(change: int) -> None:
    """A full disk is got over, a failed sync ends the log's use; what was promised stays."""
    files = PowerFiles(fail_at=change, error=OSError(errno.ENOSPC, "full"))
    done = [0, 0]
    with contextlib.suppress(OSError):
        story(files, done)
    log = ArrowLog(files, "d", segment_bytes=1500)
    assert log.next_offset >= done[1]
    whole = raws([make_block(0, 80, 60), make_block(80, 5)])
    assert read_all(log) == whole[log.first_offset : log.next_offset]


def test_a_full_disk_leaves_the_log_usable() -> None:
    files = PowerFiles()
    log = ArrowLog(files, "d")
    log.append([make_block(0, 4)])
    files.fail_at, files.error = files.changes, OSError(errno.ENOSPC, "full")
    with pytest.raises(OSError, match="full"):
        log.append([make_block(4, 4)])
    assert log.next_offset == 4
    log.append([make_block(4, 4)])
    assert len(read_all(log)) == 8


def test_after_a_failed_sync_nothing_is_taken() -> None:
    files = PowerFiles()
    log = ArrowLog(files, "d")
    log.append([make_block(0, 4)])
    files.fail_at, files.error = files.changes + 1, OSError(errno.EIO, "gone bad")
    with pytest.raises(OSError, match="gone bad"):
        log.append([make_block(4, 4)])
    with pytest.raises(StorageError, match="after a failed sync"):
        log.append([make_block(4, 4)])
    assert len(read_all(log)) == 4


def write_two_segments(directory: Path, *, close: bool) -> list[Appended]:
    log = ArrowLog(RealFiles(), str(directory), segment_bytes=900)
    blocks = make_blocks([4, 4, 4, 4])
    for block in blocks:
        log.append([block])
    assert len(log.segments()) == 2
    if close:
        log.close()
    return blocks


@pytest.mark.parametrize("suffix", ["arrows", "index"])
def test_every_flipped_byte_is_found_and_its_file_named(tmp_path: Path, suffix: str) -> None:
    blocks = write_two_segments(tmp_path, close=True)
    for path in sorted(tmp_path.glob(f"*.{suffix}")):
        good = path.read_bytes()
        last_seal = len(good) - 56 if suffix == "index" and path.stem.lstrip("0") else len(good)
        for at in range(0, len(good), 7):
            path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
            if at >= last_seal:
                # The seal of the last segment is written again: it says nothing that is not known.
                assert read_all(ArrowLog(RealFiles(), str(tmp_path))) == raws(blocks)
                assert path.read_bytes() == good
                continue
            with pytest.raises((DamageError, FormatError), match=path.stem):
                read_all(ArrowLog(RealFiles(), str(tmp_path)))
            path.write_bytes(good)


def test_a_torn_tail_is_cut_at_any_length(tmp_path: Path) -> None:
    blocks = write_two_segments(tmp_path, close=False)
    index, segment = max(tmp_path.glob("*.index")), max(tmp_path.glob("*.arrows"))
    good_index, good_segment = index.read_bytes(), segment.read_bytes()
    entry = 56
    for cut in range(1, entry + 1, 5):
        index.write_bytes(good_index[:-cut])
        segment.write_bytes(good_segment + b"half a block")
        log = ArrowLog(RealFiles(), str(tmp_path))
        assert read_all(log) == raws(blocks[:-1]), cut
        table = pa.ipc.open_stream(segment.read_bytes()).read_all()
        assert table.num_rows == 4, "cut and sealed"
        index.write_bytes(good_index)
        segment.write_bytes(good_segment)


def test_missing_files_are_damage(tmp_path: Path) -> None:
    for name, text in {
        "arrows": "is missing",
        "index": "index file is missing",
    }.items():
        directory = tmp_path / name
        log = ArrowLog(RealFiles(), str(directory), segment_bytes=900)
        log.append(make_blocks([4] * 6))
        log.close()
        middle = sorted(directory.glob(f"*.{name}"))[1]
        middle.unlink()
        with pytest.raises(DamageError, match=text):
            ArrowLog(RealFiles(), str(directory))


def test_a_missing_pair_in_the_middle_is_damage(tmp_path: Path) -> None:
    log = ArrowLog(RealFiles(), str(tmp_path), segment_bytes=900)
    log.append(make_blocks([4] * 6))
    log.close()
    for path in sorted(tmp_path.iterdir())[2:4]:
        path.unlink()
    with pytest.raises(DamageError, match="offsets 8 to 15 are missing"):
        ArrowLog(RealFiles(), str(tmp_path))


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    write_two_segments(tmp_path, close=True)
    path = min(tmp_path.glob("*.index"))
    data = bytearray(path.read_bytes())
    data[4] = 2
    data[28:32] = zlib.crc32(bytes(data[:28])).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"format 2\.1"):
        ArrowLog(RealFiles(), str(tmp_path))
