"""The key that lines of the trail are sealed with: a file that only its owner can read."""

from __future__ import annotations

import os
import stat
from typing import Final

KEY_BYTES_MIN: Final = 32
KEY_BYTES_MAX: Final = 4096
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_key(path: str) -> bytes:
    """Read a key that lines are sealed with. Raises ValueError with what is wrong with the file."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - its mode is asked of the descriptor
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(KEY_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if mode & _OTHERS:
        text = f"{path} can be read by others (mode {mode & 0o777:o}); `chmod 600 {path}`"
        raise ValueError(text)
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        text = f"{path} has {len(key)} bytes or more; a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX}"
        raise ValueError(f"{text}: `openssl rand -out {path} 32` makes one")
    return key
