"""Copies of damaged files: what is evidence, and may be all that is left, is never thrown away."""

from __future__ import annotations

import errno
import posixpath

from storage.files import FileSystem, durable_replace, read_file


def keep_copy(fs: FileSystem, path: str, directory: str, name: str = "") -> str:
    """Copy a damaged file into `directory`, made when it is not there; returns the copy's path.

    `name`: the copy's, where the file's own would not tell what it is of. A copy of the same bytes
    that is there already is enough; another one of that name is kept. Raises OSError, also when
    the copy would leave the disk full.
    """
    data = read_file(fs, path)
    wanted = posixpath.join(directory, name or posixpath.basename(path))
    fs.mkdir(directory)
    fs.fsync_dir(posixpath.dirname(directory) or ".")
    number, copy = 1, wanted
    while fs.exists(copy):
        if read_file(fs, copy) == data:
            return copy
        number += 1
        copy = f"{wanted}.{number}"
    if fs.free_bytes(directory) < 2 * len(data):
        raise OSError(errno.ENOSPC, "there is no room for a copy", copy)
    durable_replace(fs, copy, data)
    return copy
