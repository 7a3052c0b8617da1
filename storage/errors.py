"""What can be wrong with the bytes on disk, told apart by what the operator should do."""

from __future__ import annotations


class StorageError(Exception):
    """The data directory cannot be used; the text says why and what to do (exit code 74)."""


class DamageError(StorageError):
    """Stored bytes that were once complete are not what was written: rot, not a torn tail.

    `batches`: how many batches of the journal are missing at least (0: not known).
    """

    def __init__(self, path: str, offset: int, what: str, *, batches: int = 0) -> None:
        super().__init__(
            f"{path} is damaged at offset {offset}: {what}. Nothing was changed. "
            "Restore the file from a copy; the gateway does not start on damaged data."
        )
        self.path = path
        self.offset = offset
        self.batches = batches


class PageDamageError(StorageError):
    """A page file is not what was written: messages of one address are lost, others are not."""

    def __init__(self, path: str, offset: int, what: str) -> None:
        super().__init__(f"{path} is damaged at offset {offset}: {what}.")
        self.path = path
        self.offset = offset


class FormatError(StorageError):
    """A file of a format version that this program does not know."""


class LockedError(StorageError):
    """Another process owns the data directory (exit code 75)."""

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(
            f"The data directory {path} is in use by {owner}. Stop that process first."
        )
        self.owner = owner
