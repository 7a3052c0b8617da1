"""Takes away queues and addresses that were made on demand and are not used any more.

    in use ──first sweep without use──> marked ──second──> gone
       ^───────consumer, message, binding───┘

A queue is out of use when it has no consumer, no more messages than it may keep, and was used
before (unless its address' settings skip that check), and the delay since its last consumer is
over. Whether it goes, after which delay and with how many messages its own attributes say, and the
settings where they say nothing: then what the configuration names is never taken, nor are
subscriptions, which their clients end themselves. An address is out of use when it has no queue, no
tap and no producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.addresses.settings import DEFAULTS, AddressSettings
from gateway.broker.directory.address import Address
from gateway.broker.directory.directory import Directory
from gateway.model.address import RoutingType
from gateway.queues.queue import Queue

#: How many queues or addresses are looked at between two turns of others.
SLICE: Final = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a queue goes by itself.

    Attributes:
        applies: it goes at all.
        delay: ms after its last consumer left.
        message_count: messages that it may still hold then; -1 any.
    """

    applies: bool
    delay: int
    message_count: int


class _Use:
    """What is remembered of a queue or an address between sweeps."""

    __slots__ = ("idle_since", "marked", "used")

    def __init__(self, now_ms: int) -> None:
        self.idle_since = now_ms
        self.used = False
        self.marked = False


class Reaper:
    """See the module text. `kept` are the names of the queues of the configuration."""

    __slots__ = ("_addresses", "_directory", "_diverted", "_now_ms", "_queues", "kept")

    def __init__(
        self, directory: Directory, now_ms: Callable[[], int], diverted: Callable[[str], bool]
    ) -> None:
        """`diverted`: whether what is sent to an address goes by some divert."""
        self._directory = directory
        self._diverted = diverted
        self._now_ms = now_ms
        self._queues: dict[int, _Use] = {}
        self._addresses: dict[str, _Use] = {}
        self.kept: frozenset[str] = frozenset()

    def left(self, queue: Queue) -> None:
        """A consumer has left the queue."""
        use = self._queues.setdefault(queue.queue_id, _Use(self._now_ms()))
        use.used = True
        use.marked = False
        use.idle_since = self._now_ms()

    def start(self) -> list[str]:
        """Take away what was made on demand and held nothing when the gateway stopped."""
        gone = []
        for queue in list(self._directory.queues.values()):
            idle = not queue.message_count and not queue.consumer_count
            if idle and queue.auto_created and self._may_go(queue):
                self._directory.drop_queue(queue)
                gone.append(f"queue {queue.name}")
        return gone

    def sweep(self) -> list[str]:
        """Mark what is out of use, and take away what was marked before; returns what went."""
        return [name for gone in self.sweep_in_slices() for name in gone]

    def sweep_in_slices(self) -> Iterator[list[str]]:
        """Sweep, and yield what went after each `SLICE` queues or addresses.

        What is made, used or goes between two slices is found as it is then.
        """
        queues = list(self._directory.queues.values())
        for start in range(0, len(queues), SLICE):
            yield self._sweep_queues(queues[start : start + SLICE], self._now_ms())
        addresses = list(self._directory.addresses.values())
        for start in range(0, len(addresses), SLICE):
            yield self._sweep_addresses(addresses[start : start + SLICE], self._now_ms())
        there = {queue.queue_id for queue in self._directory.queues.values()}
        for number in [number for number in self._queues if number not in there]:
            del self._queues[number]
        yield []
        alive = self._directory.addresses
        for name in [name for name in self._addresses if name not in alive]:
            del self._addresses[name]

    def _sweep_queues(self, queues: Sequence[Queue], now_ms: int) -> list[str]:
        gone = []
        for queue in queues:
            if queue.deleted:
                continue
            use = self._queues.setdefault(queue.queue_id, _Use(now_ms))
            if not self._queue_is_idle(queue, use, now_ms):
                use.marked = False
            elif use.marked:
                self._directory.drop_queue(queue)
                gone.append(f"queue {queue.name}")
            else:
                use.marked = True
        return gone

    def rule(self, queue: Queue) -> Rule:
        """Return when a queue goes: what is said of it, else what the settings say."""
        settings, said = self._settings(queue.address), queue.attributes
        delay, most = said.auto_delete_delay, said.auto_delete_message_count
        return Rule(
            applies=self._may_go(queue),
            delay=settings.auto_delete_queues_delay if delay is None else delay,
            message_count=settings.auto_delete_queues_message_count if most is None else most,
        )

    def _may_go(self, queue: Queue) -> bool:
        said = queue.attributes.auto_delete
        if queue.temporary or said is not None:
            return bool(said) and not queue.temporary
        settings = self._settings(queue.address)
        wanted = (
            settings.auto_delete_queues
            if queue.auto_created
            else settings.auto_delete_created_queues
        )
        return wanted and queue.routing is RoutingType.ANYCAST and queue.name not in self.kept

    def _queue_is_idle(self, queue: Queue, use: _Use, now_ms: int) -> bool:
        if not self._may_go(queue) or queue.consumer_count:
            return False
        rule = self.rule(queue)
        if 0 <= rule.message_count < queue.message_count:
            return False
        removed = queue.acknowledged + queue.expired + queue.killed + queue.replaced
        skips = self._settings(queue.address).auto_delete_queues_skip_usage_check
        return bool(use.used or removed or skips) and now_ms - use.idle_since >= rule.delay

    def _sweep_addresses(self, addresses: Sequence[Address], now_ms: int) -> list[str]:
        gone = []
        for address in addresses:
            name = address.name
            if self._directory.addresses.get(name) is not address:
                continue
            use = self._addresses.setdefault(name, _Use(now_ms))
            if address.queues:
                use.used = True
            if not self._address_is_idle(address, use):
                use.marked = False
                use.idle_since = now_ms
            elif use.marked:
                self._directory.forget_address(name)
                gone.append(f"address {name}")
            elif now_ms - use.idle_since >= address.settings.auto_delete_addresses_delay:
                use.marked = True
        return gone

    def _address_is_idle(self, address: Address, use: _Use) -> bool:
        settings = address.settings
        used = use.used or address.routed or settings.auto_delete_addresses_skip_usage_check
        return bool(
            settings.auto_delete_addresses
            and address.auto_created
            and not address.temporary
            and not address.queues
            and not address.taps
            and not self._diverted(address.name)
            and not address.producers
            and used
        )

    def _settings(self, address: str) -> AddressSettings:
        found = self._directory.addresses.get(address)
        return DEFAULTS if found is None else found.settings
