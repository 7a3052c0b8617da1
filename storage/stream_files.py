"""The folder of all streams: small state files, replaced whole, and one Arrow log for each stream.

<root>/<name of a state file>    may lie in a folder below
<root>/<stream id>/              the segments of the stream's log
"""

from __future__ import annotations

import posixpath

from storage.arrow_log import SEGMENT_BYTES, ArrowLog
from storage.files import FileSystem, durable_replace, read_file


class StreamFiles:
    """See the module text."""

    def __init__(self, fs: FileSystem, root: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._fs = fs
        self._root = root
        self._segment_bytes = segment_bytes
        fs.mkdir(root)

    def load(self, name: str) -> bytes | None:
        """Return the state file `name` (a path below the folder); None when there is none."""
        path = posixpath.join(self._root, name)
        return read_file(self._fs, path) if self._fs.exists(path) else None

    def save(self, name: str, data: bytes) -> None:
        """Replace the state file `name`; on the device when this returns. Blocks the thread."""
        path = posixpath.join(self._root, name)
        self._fs.mkdir(posixpath.dirname(path))
        durable_replace(self._fs, path, data)

    def open_log(self, stream_id: int) -> ArrowLog:
        """Open the log of a stream, recovered. Raises DamageError, FormatError."""
        directory = posixpath.join(self._root, str(stream_id))
        return ArrowLog(self._fs, directory, segment_bytes=self._segment_bytes)

    def remove(self, name: str) -> None:
        """Delete the state file `name` if it is there."""
        path = posixpath.join(self._root, name)
        if self._fs.exists(path):
            self._fs.unlink(path)
