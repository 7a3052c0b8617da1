"""What the configuration says of the audit trail: whether, where and for how long it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final

from gateway.config.values import Read, name_text
from gateway.model.bounds import at_least, limit, within
from gateway.model.rows import Reach, Unit

RESTART: Final = Reach.RESTART
_PATH: Final = Read(name_text)


class OnFailure(Enum):
    """What follows when nothing can be written: an alarm, or the end of the gateway."""

    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """`[audit]`: the record of logins, refusals and changes.

    Attributes:
        enabled: it is kept; not written: where there are users.
        file: of the newest lines; not written: `audit/audit.jsonl` below the data directory.
        key_file: a file of at least 32 bytes that only its owner can read; lines are sealed with
            it, so that nobody without it can make one; not written: anybody who has the disk could.
        max_file_size: bytes after which a file is full and another one begins.
        max_file_age: ms after which it is full; -1 never.
        files_kept: files at a time; the oldest goes for one more.
        sync_interval: ms that lines wait for a sync; 0 not at all, -1 until the file is full.
        personal_data: users, addresses of peers and names of clients are kept.
        to_log: each event is in the log as well, as `audit.noted`.
        on_failure: what follows when the file cannot be written: `warn`, or `stop` the gateway.
    """

    enabled: Annotated[bool | None, RESTART] = None
    file: Annotated[str | None, RESTART, _PATH] = None
    key_file: Annotated[str | None, RESTART, _PATH] = None
    max_file_size: Annotated[int, RESTART, Unit.BYTES, within(1 << 16, 1 << 30)] = 16 << 20
    max_file_age: Annotated[int, RESTART, Unit.MS, limit(60_000)] = 86_400_000
    files_kept: Annotated[int, RESTART, within(2, 100_000)] = 90
    sync_interval: Annotated[int, RESTART, Unit.MS, at_least(-1)] = 1_000
    personal_data: Annotated[bool, Reach.AT_ONCE] = True
    to_log: Annotated[bool, Reach.AT_ONCE] = False
    on_failure: Annotated[OnFailure, RESTART] = OnFailure.WARN

    def path(self, data_directory: str) -> str:
        """Return where the newest lines are."""
        return self.file or f"{data_directory}/audit/audit.jsonl"
