"""Stages on disk: pieces at their places, sealed under a name that says it, found by a start."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from storage.files import RealFiles
from storage.stage_files import StageFiles


class Watched(RealFiles):
    """Real files that keep a list of what makes things durable."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def fsync(self, fd: int) -> None:
        self.said.append("fsync")
        super().fsync(fd)

    def fsync_dir(self, path: str) -> None:
        self.said.append("fsync_dir")
        super().fsync_dir(path)

    def rename(self, source: str, target: str) -> None:
        self.said.append("rename")
        super().rename(source, target)


def test_pieces_become_a_whole_stage(tmp_path: Path) -> None:
    files = StageFiles(Watched(), str(tmp_path / "staged"))
    assert files.found() == []
    files.write("a", 0, b"hello ")
    files.write("a", 6, b"world")
    files.write("a", 0, b"hello ")
    assert files.checksum("a") == zlib.crc32(b"hello world")
    assert files.found() == [("a.part", 11)]
    files.seal("a", "a-3")
    assert files.found() == [("a-3.arrow", 11)]
    source = files.open("a-3.arrow")
    assert [source.read(4), source.tell(), source.read(99), source.read(9)] == [
        b"hell",
        4,
        b"o world",
        b"",
    ]
    source.close()
    source.close()
    assert source.closed
    files.remove("a-3.arrow")
    files.remove("a-3.arrow")
    assert files.found() == []


def test_a_stage_is_on_the_device_before_its_name_is(tmp_path: Path) -> None:
    fs = Watched()
    files = StageFiles(fs, str(tmp_path / "staged"))
    files.found()
    files.write("a", 0, b"x")
    fs.said.clear()
    files.seal("a", "a-1")
    assert fs.said == ["fsync", "rename", "fsync_dir"]


def test_a_piece_of_a_stage_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    files = StageFiles(RealFiles(), str(tmp_path / "staged"))
    files.found()
    with pytest.raises(FileNotFoundError):
        files.write("a", 5, b"x")
    with pytest.raises(FileNotFoundError):
        files.open("a-1.arrow")
