"""What the gateway does now and then by itself, and how often; the composition root has the clock.

The disk is looked at every disk-scan-period, expired messages every message-expiry-scan-period,
unused queues every address-queue-scan-period, slow consumers every second where somebody has set a
threshold, and what is empty once at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from gateway.broker import Gateway
from gateway.broker.pressure.slow import SlowConsumer
from gateway.config.tree import Config
from gateway.disk.judging import DiskLimit
from gateway.disk.watching import DiskWatch, RunBlocking, watch_disk
from gateway.logs.fullness import FullTeller
from gateway.time.slices import Slices
from storage.ballast import Ballast

_log = structlog.get_logger()

#: The least slow-consumer-check-period.
_SLOW_PERIOD_MS: Final = 1000
#: Between two looks at what is full.
_FULL_SECONDS: Final = 1.0

#: What to do, the key of the configuration that says how often ("": none does), and the seconds
#: between two times: 0 or less is never.
Chore = tuple[Callable[[], object], str, float]


def chores(
    broker: Gateway,
    disk: DiskWatch,
    in_force: Callable[[], Config],
    later: Callable[[Callable[[], None]], object],
) -> list[Chore]:
    """Return what is to be done regularly; `in_force` is asked again when something is told.

    `later` calls something in the next turn: what is long goes on then.
    """
    config = in_force()
    disk.origin_of = lambda key: in_force().origins.get(key, "default")
    broker.pressure.slow.tell = lambda found: _tell_of(broker, found)
    work: Mapping[str, Callable[[], object]] = {
        "disk-scan-period": disk.scan,
        "message-expiry-scan-period": broker.expire,
        "address-queue-scan-period": Slices(
            lambda: map(_tell, broker.reaper.sweep_in_slices()), later
        ).start,
    }
    every = periods(config)
    return [
        *((do, key, every[key]) for key, do in work.items()),
        (broker.pressure.slow.look, "", _SLOW_PERIOD_MS / 1000),
        (FullTeller(broker, in_force).look, "", _FULL_SECONDS),
    ]


def periods(config: Config) -> dict[str, float]:
    """Return key -> seconds between two times of what is done regularly."""
    return {
        "disk-scan-period": config.disk_scan_period / 1000,
        "message-expiry-scan-period": config.message_expiry_scan_period / 1000,
        "address-queue-scan-period": config.address_queue_scan_period / 1000,
        "sync-interval": config.sync_interval / 1000,
    }


def watch_of(
    config: Config,
    broker: Gateway,
    ballast: Ballast,
    threads: RunBlocking,
    seconds: Callable[[], float],
) -> DiskWatch:
    """Return the watch over the directories of a configuration, not started."""
    return watch_disk(
        disk_limit(config),
        broker.pressure.disk,
        directories=[config.data_directory, config.journal_directory, config.paging_directory],
        seconds=seconds,
        ballast=ballast,
        threads=threads,
    )


def disk_limit(config: Config) -> DiskLimit:
    """Return when the disk is full, as it is written."""
    keys = ("max-disk-usage", "min-disk-free")
    return DiskLimit(
        max_usage=config.max_disk_usage,
        min_free=config.min_disk_free,
        origins={key: config.origins[key] for key in keys if key in config.origins},
        scan_seconds=config.disk_scan_period / 1000,
    )


def tidy(broker: Gateway, config: Config) -> None:
    """Take away what was made on demand and is empty, but nothing that the configuration names."""
    keep_declared(broker, config)
    _tell(broker.reaper.start())


def keep_declared(broker: Gateway, config: Config) -> None:
    """Never take away by itself what the configuration names."""
    broker.reaper.kept = frozenset(queue.name for a in config.addresses for queue in a.queues)


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
