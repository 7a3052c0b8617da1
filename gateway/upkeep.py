"""What the gateway does now and then by itself, and how often; the composition root has the clock.

The disk is looked at every disk-scan-period, expired messages every message-expiry-scan-period,
unused queues every address-queue-scan-period, slow consumers every second where somebody has set a
threshold, and what is empty once at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from gateway.broker import Gateway
from gateway.broker.slow import SlowConsumer
from gateway.config.tree import Config
from gateway.disk import DiskLimit
from gateway.disk_watch import DiskWatch, RunBlocking, watch_disk
from storage.ballast import Ballast

_log = structlog.get_logger()

#: The least slow-consumer-check-period.
_SLOW_PERIOD_MS: Final = 1000

#: What to do, and seconds between two times.
Chore = tuple[Callable[[], object], float]


def chores(broker: Gateway, disk: DiskWatch, config: Config) -> list[Chore]:
    """Return what is to be done regularly; a period of 0 or less is never."""
    broker.slow.tell = lambda found: _tell_of(broker, found)
    wanted: Sequence[tuple[Callable[[], object], int]] = (
        (disk.scan, config.disk_scan_period),
        (broker.expire, config.message_expiry_scan_period),
        (lambda: _tell(broker.reaper.sweep()), config.address_queue_scan_period),
        (broker.slow.look, _SLOW_PERIOD_MS),
    )
    return [(work, ms / 1000) for work, ms in wanted if ms > 0]


def watch_of(
    config: Config,
    broker: Gateway,
    ballast: Ballast,
    threads: RunBlocking,
    seconds: Callable[[], float],
) -> DiskWatch:
    """Return the watch over the directories of a configuration, not started."""
    return watch_disk(
        DiskLimit(max_usage=config.max_disk_usage, min_free=config.min_disk_free),
        broker.disk,
        directories=[config.data_directory, config.journal_directory, config.paging_directory],
        seconds=seconds,
        ballast=ballast,
        threads=threads,
    )


def tidy(broker: Gateway, config: Config) -> None:
    """Take away what was made on demand and is empty, but nothing that the configuration names."""
    broker.reaper.kept = frozenset(queue.name for a in config.addresses for queue in a.queues)
    _tell(broker.reaper.start())


def _tell_of(broker: Gateway, found: SlowConsumer) -> None:
    who = found.who
    _log.warning(
        "consumer.found_slow",
        queue=found.queue,
        address=found.address,
        consumers=found.consumers,
        protocol=who.protocol,
        connection=who.connection,
        remote=who.remote,
        user=who.user,
        consumer=who.name,
        rate=round(found.rate, 3),
        threshold=round(found.threshold, 6),
        policy=found.policy.value,
    )


def _tell(gone: Sequence[str]) -> None:
    for name in gone:
        _log.info("address.reaped", what=name)
