"""Where data is kept: what stands in the way there, and which key gives another place."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from gateway.config.tree import Config


def describe_os_error(error: OSError, config: Config) -> str:
    """Return one line for a data directory that cannot be used."""
    where = error.filename or config.data_directory
    reason = error.strerror or str(error)
    given = f"The data directory is {config.data_directory}; give --data another."
    for key, directory in _directories(config)[1:]:
        apart = not directory.startswith(f"{config.data_directory}/")
        if apart and f"{where}/".startswith(f"{directory}/"):
            given = f"Give {key} another directory."
    return f"{where}: {reason}. {given}"


def _directories(config: Config) -> list[tuple[str, str]]:
    return [
        ("data-directory", config.data_directory),
        ("journal-directory", config.journal_directory),
        ("paging-directory", config.paging_directory),
    ]


def check_directories(config: Config) -> None:
    """Raise NotADirectoryError where a file stands in the place of a directory."""
    for _, directory in _directories(config):
        place = Path(directory)
        while not place.exists() and place.parent != place:
            place = place.parent
        if not place.is_dir():
            reason = os.strerror(errno.ENOTDIR)
            raise NotADirectoryError(errno.ENOTDIR, reason, str(place))
