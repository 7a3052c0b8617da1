"""Opening an Arrow log: each of the states that its module names, made by hand."""

from __future__ import annotations

import pytest

from storage.arrow_log import ArrowLog
from storage.arrow_recovery import recover
from storage.errors import DamageError
from tests.storage.power import PowerFiles
from tests.storage.test_arrow_log import make_blocks


def make_log(*, close: bool = True) -> PowerFiles:
    """Return the files of a log of three segments: offsets 0, 8 and 16 begin them."""
    files = PowerFiles()
    log = ArrowLog(files, "d", segment_bytes=900)
    for block in make_blocks([4] * 6):
        log.append([block])
    assert [facts.first for facts in log.segments()] == [0, 8, 16]
    if close:
        log.close()
    return files


def found(files: PowerFiles) -> list[tuple[int, int]]:
    """Return the bounds of the segments that a log is opened with."""
    return [(segment.first, segment.end) for segment in recover(files, "d")]


def path(first: int, suffix: str) -> str:
    return f"d/{first:020d}.{suffix}"


def test_a_closed_log_is_as_it_was() -> None:
    files = make_log()
    before = files.changes
    assert found(files) == [(0, 8), (8, 16), (16, 24)]
    assert files.changes == before


def test_the_last_segment_is_cut_and_sealed() -> None:
    files = make_log(close=False)
    sealed = make_log()
    files.now[files.names[path(16, "arrows")]] += b"half a block"
    assert found(files) == [(0, 8), (8, 16), (16, 24)]
    for suffix in ("arrows", "index"):
        name = path(16, suffix)
        assert files.now[files.names[name]] == sealed.now[sealed.names[name]]


def test_a_start_that_was_cut_is_deleted() -> None:
    files = make_log()
    files.names[path(24, "index")] = 999
    files.now[999] = bytearray(b"SGIX")
    assert found(files) == [(0, 8), (8, 16), (16, 24)]
    assert path(24, "index") not in files.names


def test_a_drop_that_was_cut_is_ended() -> None:
    files = make_log()
    del files.names[path(0, "arrows")]
    assert found(files) == [(8, 16), (16, 24)]
    assert path(0, "index") not in files.names


@pytest.mark.parametrize(
    ("gone", "text"),
    [
        ([path(8, "arrows")], "which it describes, is missing"),
        ([path(16, "arrows")], "which it describes, is missing"),
        ([path(8, "index")], "its index file is missing"),
        ([path(8, "index"), path(8, "arrows")], "offsets 8 to 15 are missing before it"),
    ],
)
def test_what_no_crash_explains_is_damage(gone: list[str], text: str) -> None:
    files = make_log()
    for name in gone:
        del files.names[name]
    with pytest.raises(DamageError, match=text):
        recover(files, "d")


def test_an_older_segment_without_its_seal_is_damage() -> None:
    files = make_log()
    del files.now[files.names[path(8, "index")]][-56:]
    with pytest.raises(DamageError, match="the seal is missing"):
        recover(files, "d")
