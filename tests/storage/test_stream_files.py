"""The folder of all streams: state files that are replaced whole, and the logs beside them."""

from __future__ import annotations

from pathlib import Path

from storage.files import RealFiles
from storage.stream_files import StreamFiles
from tests.storage.test_arrow_log import make_block


def test_state_files(tmp_path: Path) -> None:
    files = StreamFiles(RealFiles(), str(tmp_path / "streams"))
    assert files.load("3/x.json") is None
    files.save("3/x.json", b"one")
    files.save("3/x.json", b"two")
    assert files.load("3/x.json") == b"two"
    files.remove("3/x.json")
    files.remove("3/x.json")
    assert files.load("3/x.json") is None
    files.open_log(3).append([make_block(0, 1)])
    assert files.open_log(3).next_offset == 1
