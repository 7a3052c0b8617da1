"""One process a data directory: an advisory lock on a file that names its owner."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from storage.errors import LockedError


class DirectoryLock:
    """Holds the lock until `release`; the system releases it when the process dies."""

    def __init__(self, directory: str, owner: str) -> None:
        """Take the lock.

        Raises LockedError naming the owner, OSError when the directory cannot be written.
        """
        self._path = Path(directory) / "lock"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = (
                os.pread(self._fd, 200, 0).decode("utf-8", "replace").strip() or "another process"
            )
            os.close(self._fd)
            raise LockedError(directory, other) from None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, owner.encode(), 0)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
