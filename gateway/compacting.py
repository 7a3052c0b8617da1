"""What the configuration says of the journal's files, in the journal's words."""

from __future__ import annotations

import structlog

from gateway.config.tree import Config
from storage.compaction import CompactionRule
from storage.journal import Journal

_log = structlog.get_logger()


def compaction_rule(config: Config) -> CompactionRule:
    """Return when what lives in old journal files is copied forward."""
    return CompactionRule(
        min_files=config.journal_compact_min_files, percentage=config.journal_compact_percentage
    )


def set_up_journal(journal: Journal, config: Config) -> None:
    """Let the journal cancel or not, and tell when its compaction stops."""
    journal.cancels = config.concurrent_store_and_dispatch_queues
    journal.compaction.on_failed = _stopped


def _stopped(error: Exception) -> None:
    _log.error("store.compaction_stopped", error=str(error))
