"""What the configuration says of a disk that lags, and what the log says when dispatch changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from gateway.broker.pressure.lag import Lag
from gateway.config.tree import Config
from gateway.model.address import RoutingType
from gateway.store.compacting import serialized_types

_log = structlog.get_logger()


class Journal(Protocol):
    """What the log tells of the journal: messages that wait for it."""

    @property
    def tasks(self) -> int: ...


def watch_lag(
    lag: Lag,
    journal: Journal,
    config: Config,
    *,
    now: Callable[[], float],
    later: Callable[[float, Callable[[], None]], object],
) -> None:
    """Have dispatch wait for a disk that lags, unless it always does, or the limit is -1.

    Called again it changes the limit.
    """
    if serialized_types(config) == frozenset(RoutingType):
        return
    if config.store_lag_limit < 0 and lag.limit < 0:
        return
    lag.on_change = lambda changed: _tell(changed, journal, now())
    limit = config.store_lag_limit / 1000 if config.store_lag_limit >= 0 else -1.0
    lag.watch(limit, now=now, later=later)


def _tell(lag: Lag, journal: Journal, now: float) -> None:
    facts = {
        "oldest_ms": round(lag.longest * 1000),
        "waiting_messages": journal.tasks,
        "store_lag_limit_ms": round(lag.limit * 1000),
        "changes": lag.times,
    }
    if lag.waits:
        _log.warning(
            "store.lags",
            **facts,
            advice="New messages are handed out once they are on disk. Look for what else uses the "
            "disk, or give the journal one of its own (journal-directory).",
        )
    else:
        _log.info("store.keeps_up", **facts, seconds=round(now - lag.since, 1))
