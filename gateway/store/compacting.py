"""What the configuration says of the journal, in the journal's words and in the broker's."""

from __future__ import annotations

import structlog

from gateway.config.tree import Config
from gateway.model.address import RoutingType
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
    journal.cancels = serialized_types(config) != frozenset(RoutingType)
    journal.task_limit = config.store_task_limit
    journal.compaction.on_failed = _stopped


def serialized_types(config: Config) -> frozenset[RoutingType]:
    """Return the types of queues that hand out nothing durable before it is on disk."""
    concurrent = {
        RoutingType.ANYCAST: config.concurrent_store_and_dispatch_queues,
        RoutingType.MULTICAST: config.concurrent_store_and_dispatch_topics,
    }
    return frozenset(routing for routing, on in concurrent.items() if not on)


def _stopped(error: Exception) -> None:
    _log.error("store.compaction_stopped", error=str(error))
