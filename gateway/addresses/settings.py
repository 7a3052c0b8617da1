"""What holds for one address: limits, policies, dead letters, what may be made on demand.

Values only. Where they come from and how several matches merge is `gateway.addresses.match`; how
they are read from text is `gateway.config`. The names are Artemis' keys in snake_case. This module
also knows which values are impossible, so that a file and the HTTP API refuse the same ones in the
same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import partial
from typing import Any, Final, cast

from gateway.model.address import RoutingType
from gateway.model.attributes import attribute_problem

#: "No limit", wherever Artemis says so.
NO_LIMIT: Final = -1
#: A delivery count has this many bits in a message's flags [gateway.model.message].
MAX_ATTEMPTS: Final = 0xFFFF
#: A page is read whole at start and kept whole until all are done with it.
PAGE_SIZE_MIN: Final = 1024
PAGE_SIZE_MAX: Final = 256 << 20
#: About 200 bytes each in memory.
ID_CACHE_MAX: Final = 1_000_000
RETROACTIVE_MAX: Final = 100_000
#: A browse over HTTP shows at most this many messages at once.
BROWSE_MAX: Final = 1000
#: Seconds between two looks for slow consumers: a day.
CHECK_PERIOD_MAX: Final = 86_400
#: A redelivery delay that grows faster than this is a slip of the pen.
MULTIPLIER_MAX: Final = 1000.0


class FullPolicy(Enum):
    """What happens to a send to an address that is at its limit."""

    PAGE = "PAGE"  # it goes to page files, and is read back as consumers take
    BLOCK = "BLOCK"
    FAIL = "FAIL"
    DROP = "DROP"


class DiskFullPolicy(Enum):
    """What a send meets while the disk is full; STOMP senders are refused whatever it says."""

    BLOCK = "BLOCK"
    FAIL = "FAIL"
    DROP = "DROP"


class PageFullPolicy(Enum):
    """What happens to a send to an address whose pages are at their limit."""

    FAIL = "FAIL"
    DROP = "DROP"


class SlowPolicy(Enum):
    """What happens to a consumer that does not keep up."""

    NOTIFY = "NOTIFY"  # it is told of
    KILL = "KILL"  # its connection is closed as well


class RateUnit(Enum):
    """What a threshold of messages counts by."""

    SECOND = "MESSAGES_PER_SECOND"
    MINUTE = "MESSAGES_PER_MINUTE"
    HOUR = "MESSAGES_PER_HOUR"
    DAY = "MESSAGES_PER_DAY"

    @property
    def seconds(self) -> int:
        return {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400}[self.name]


class Durability(Enum):
    """What is done with a durable message before its sender is confirmed."""

    FSYNC = "fsync"  # it is on the device
    WRITE = "write"  # the kernel has it; it is on the device sync-interval later
    MEMORY = "memory"  # nothing: it is treated as one that is not durable


class RingVictim(Enum):
    """Which message a full ring evicts for a new one."""

    OLDEST = "oldest"  # by arrival, whatever its priority
    ARTEMIS = "artemis"  # the one that would be delivered next: highest priority first


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSettings:
    """The effective settings of one address.

    Attributes:
        dead_letter_address: where messages go that failed too often or were rejected; None: they
            are lost.
        expiry_address: where expired messages go; None: they are lost.
        auto_create_dead_letter_resources: whether each address gets a queue of its own there.
        dead_letter_queue_prefix: in front of the address' name in that queue's name.
        dead_letter_queue_suffix: behind it.
        auto_create_expiry_resources: the same for expired messages.
        expiry_queue_prefix: the same for expired messages.
        expiry_queue_suffix: the same for expired messages.
        max_delivery_attempts: failed deliveries after which a message is dead; -1 never.
        redelivery_delay: ms that a message waits which a consumer gave back; 0 not at all.
        redelivery_delay_multiplier: by how much longer it waits after each further attempt.
        redelivery_collision_avoidance_factor: share of the wait, 0 to 1, left to chance.
        max_redelivery_delay: most ms that it waits; -1 ten times `redelivery_delay`.
        max_size_bytes: bytes that the address may hold; -1 no limit.
        max_size_messages: messages that the address may hold; -1 no limit.
        max_size_bytes_reject_threshold: bytes above which an address with BLOCK refuses what AMQP
            senders still send; -1 it takes all.
        address_full_policy: what a send meets at either limit.
        disk_full_policy: what a send meets while the disk is full.
        page_size_bytes: bytes after which a page file ends.
        page_limit_bytes: bytes of page files that the address may have; -1 no limit.
        page_limit_messages: unacknowledged messages that a queue may have on pages; -1 no limit.
        page_full_policy: what a send meets at either of these.
        max_read_page_messages: messages that a queue may have in memory for more to be read from
            pages; -1 no limit.
        max_read_page_bytes: bytes of the same; None: twice `page_size_bytes`, -1 no limit.
        prefetch_page_messages: of those, what may wait without a consumer; None: as many.
        prefetch_page_bytes: bytes of the same; None: as many.
        auto_create_queues: whether a send or an attach may make a queue.
        auto_create_addresses: whether a send or an attach may make an address.
        default_address_routing_type: of an address made on demand, when the client does not say.
        default_queue_routing_type: of a queue made on demand, when neither client nor address say.
        default_ring_size: ring of queues made without one; -1 none.
        ring_victim: which message a full ring evicts.
        default_max_consumers: of queues made without their own; -1 no limit.
        default_exclusive_queue: one consumer gets everything, until it leaves.
        default_purge_on_no_consumers: without consumers a queue takes and keeps nothing.
        default_consumers_before_dispatch: nothing is delivered before so many are there.
        default_delay_before_dispatch: ms after the first of them when fewer will do; -1 never.
        default_last_value_queue: of what waits with one key only the last stays.
        default_last_value_key: the property that is the key; alone it says the same.
        default_non_destructive: consumers are shown messages and remove nothing.
        default_group_buckets: message groups share so many; 0 none, -1 each its own.
        default_group_rebalance: groups are shared out anew with each consumer that comes.
        default_group_rebalance_pause_dispatch: not before what is in delivery is settled.
        default_group_first_key: the property that the first message of a group gets.
        auto_delete_queues: queues made on demand go when they are not used any more.
        auto_delete_created_queues: so do those that an operator made.
        auto_delete_queues_delay: ms after the last consumer left.
        auto_delete_queues_message_count: messages that such a queue may still hold; -1 any.
        auto_delete_queues_skip_usage_check: one that never was used goes too.
        auto_delete_addresses: addresses made on demand go when they have no queue any more.
        auto_delete_addresses_delay: ms after that.
        auto_delete_addresses_skip_usage_check: one that never had a queue goes too.
        expiry_delay: ms to live for messages sent without an expiry; -1 for ever.
        min_expiry_delay: least ms to live, whatever the sender asked; -1 none.
        max_expiry_delay: most ms to live, also for messages sent without an expiry; -1 none.
        no_expiry: expiries of senders and the three delays above do not count.
        slow_consumer_threshold: messages that a consumer must acknowledge in a unit of time, or it
            is slow; -1: nobody is.
        slow_consumer_threshold_measurement_unit: that unit.
        slow_consumer_policy: what happens to a slow one.
        slow_consumer_check_period: seconds between two looks.
        send_to_dla_on_no_route: what no queue wants goes to the dead-letter address; not where
            diverts or wildcard addresses branch off.
        enable_metrics: whether the address and its queues are among the metrics.
        management_browse_page_size: messages that a browse over HTTP shows unless it says how many.
        management_message_attribute_size_limit: characters of each property that a browse over HTTP
            shows; -1 all.
        enable_ingress_timestamp: messages tell when they came in.
        reject_as_modified: a receiver's `rejected` counts as a failed delivery instead of a dead
            letter.
        id_cache_size: duplicate ids that are remembered; 0 none, None as many as the gateway says.
        retroactive_message_count: messages that a new queue begins with; 0 none.
        durability: what is done with a durable message before it is confirmed.
        strict_dispatch: no durable message is delivered before it is on disk.
    """

    dead_letter_address: str | None = "DLQ"
    expiry_address: str | None = "ExpiryQueue"
    auto_create_dead_letter_resources: bool = False
    dead_letter_queue_prefix: str = "DLQ."
    dead_letter_queue_suffix: str = ""
    auto_create_expiry_resources: bool = False
    expiry_queue_prefix: str = "EXP."
    expiry_queue_suffix: str = ""
    max_delivery_attempts: int = 10
    redelivery_delay: int = 0
    redelivery_delay_multiplier: float = 1.0
    redelivery_collision_avoidance_factor: float = 0.0
    max_redelivery_delay: int = NO_LIMIT
    max_size_bytes: int = NO_LIMIT
    max_size_messages: int = NO_LIMIT
    max_size_bytes_reject_threshold: int = NO_LIMIT
    address_full_policy: FullPolicy = FullPolicy.PAGE
    disk_full_policy: DiskFullPolicy = DiskFullPolicy.BLOCK
    page_size_bytes: int = 10 << 20
    page_limit_bytes: int = 5 << 30
    page_limit_messages: int = NO_LIMIT
    page_full_policy: PageFullPolicy = PageFullPolicy.FAIL
    max_read_page_messages: int = NO_LIMIT
    max_read_page_bytes: int | None = None
    prefetch_page_messages: int | None = None
    prefetch_page_bytes: int | None = None
    auto_create_queues: bool = True
    auto_create_addresses: bool = True
    default_address_routing_type: RoutingType = RoutingType.ANYCAST
    default_queue_routing_type: RoutingType = RoutingType.ANYCAST
    default_ring_size: int = NO_LIMIT
    ring_victim: RingVictim = RingVictim.OLDEST
    default_max_consumers: int = NO_LIMIT
    default_exclusive_queue: bool = False
    default_purge_on_no_consumers: bool = False
    default_consumers_before_dispatch: int = 0
    default_delay_before_dispatch: int = NO_LIMIT
    default_last_value_queue: bool = False
    default_last_value_key: str = ""
    default_non_destructive: bool = False
    default_group_buckets: int = NO_LIMIT
    default_group_rebalance: bool = False
    default_group_rebalance_pause_dispatch: bool = False
    default_group_first_key: str = ""
    auto_delete_queues: bool = False
    auto_delete_created_queues: bool = False
    auto_delete_queues_delay: int = 0
    auto_delete_queues_message_count: int = 0
    auto_delete_queues_skip_usage_check: bool = False
    auto_delete_addresses: bool = False
    auto_delete_addresses_delay: int = 0
    auto_delete_addresses_skip_usage_check: bool = False
    expiry_delay: int = NO_LIMIT
    min_expiry_delay: int = NO_LIMIT
    max_expiry_delay: int = NO_LIMIT
    no_expiry: bool = False
    slow_consumer_threshold: int = NO_LIMIT
    slow_consumer_threshold_measurement_unit: RateUnit = RateUnit.SECOND
    slow_consumer_policy: SlowPolicy = SlowPolicy.NOTIFY
    slow_consumer_check_period: int = 5
    send_to_dla_on_no_route: bool = False
    enable_metrics: bool = True
    management_browse_page_size: int = 200
    management_message_attribute_size_limit: int = 256
    enable_ingress_timestamp: bool = False
    reject_as_modified: bool = False
    id_cache_size: int | None = None
    retroactive_message_count: int = 0
    durability: Durability = Durability.FSYNC
    strict_dispatch: bool = False

    @property
    def rejects_above(self) -> int:
        """What `max_size_bytes_reject_threshold` comes to: only BLOCK has one; -1 none."""
        blocks = self.address_full_policy is FullPolicy.BLOCK
        return self.max_size_bytes_reject_threshold if blocks else NO_LIMIT

    @property
    def slow_consumer_rate(self) -> float:
        """Messages a second below which a consumer is slow, where a threshold is set."""
        unit = self.slow_consumer_threshold_measurement_unit
        return self.slow_consumer_threshold / unit.seconds

    @property
    def max_read_bytes(self) -> int:
        """What `max_read_page_bytes` comes to."""
        wanted = self.max_read_page_bytes
        return 2 * self.page_size_bytes if wanted is None else wanted

    @property
    def prefetch_messages(self) -> int:
        """What `prefetch_page_messages` comes to."""
        wanted = self.prefetch_page_messages
        return self.max_read_page_messages if wanted is None else wanted

    @property
    def prefetch_bytes(self) -> int:
        """What `prefetch_page_bytes` comes to."""
        wanted = self.prefetch_page_bytes
        return self.max_read_bytes if wanted is None else wanted


DEFAULTS: Final = AddressSettings()
#: Of the gateway's own addresses, whatever the configuration says.
INTERNAL: Final = AddressSettings(dead_letter_address=None, expiry_address=None, id_cache_size=0)
FIELDS: Final = tuple(field.name for field in fields(AddressSettings))


def key_of(field: str) -> str:
    """Return the configuration key of a field: `max_size_bytes` is `max-size-bytes`."""
    return field.replace("_", "-")


def ring_size_problem(value: int) -> str | None:
    """Say why `value` cannot be a ring size, or None."""
    if value == 0:
        return "a ring of 0 would evict every message at once; give at least 1, or -1 for no ring"
    return _below_no_limit(value)


def max_consumers_problem(value: int) -> str | None:
    """Say why `value` cannot limit the consumers of a queue, or None."""
    return _below_no_limit(value)


def _below_no_limit(value: int) -> str | None:
    if value < NO_LIMIT:
        return f"{value} is below -1; -1 already means no limit"
    return None


def _page_messages_problem(value: int) -> str | None:
    if value == 0:
        return "0 messages on pages would page nothing; give at least 1, or -1 for no limit"
    return _below_no_limit(value)


def _page_size_problem(value: int) -> str | None:
    if not PAGE_SIZE_MIN <= value <= PAGE_SIZE_MAX:
        return f"{value} bytes is no page; it lies between {PAGE_SIZE_MIN} and {PAGE_SIZE_MAX}"
    return None


def _reject_threshold_problem(value: int) -> str | None:
    if value == 0:
        return "at 0 bytes all but the first would be refused; give more, or -1 to refuse nothing"
    return _below_no_limit(value)


def _attempts_problem(value: int) -> str | None:
    if value == 0:
        return "0 attempts would deliver nothing; give at least 1, or -1 for no limit"
    if value > MAX_ATTEMPTS:
        return f"{value} is above {MAX_ATTEMPTS}, the most that is counted; give -1 for no limit"
    return _below_no_limit(value)


def _threshold_problem(value: int) -> str | None:
    if value == 0:
        return "at a threshold of 0 nobody is slow; give at least 1, or -1 to look for nobody"
    return _below_no_limit(value)


def _period_problem(value: int) -> str | None:
    if not 1 <= value <= CHECK_PERIOD_MAX:
        return f"{value} seconds is out of range; it lies between 1 and {CHECK_PERIOD_MAX}"
    return None


def _browse_problem(value: int) -> str | None:
    if not 1 <= value <= BROWSE_MAX:
        return f"{value} messages is out of range; it lies between 1 and {BROWSE_MAX}"
    return None


def _below_zero(value: float) -> str | None:
    return f"{value} is below 0" if value < 0 else None


def _cache_problem(value: int) -> str | None:
    return _between(value, ID_CACHE_MAX, "so many ids would fill the memory")


def _retro_problem(value: int) -> str | None:
    return _between(value, RETROACTIVE_MAX, "each new queue would begin with so many messages")


def _between(value: int, most: int, why: str) -> str | None:
    if value > most:
        return f"{value} is above {most}; {why}"
    return _below_zero(value)


def _multiplier_problem(value: float) -> str | None:
    if not 0 <= value <= MULTIPLIER_MAX:
        return f"{value} is out of range; it lies between 0 and {MULTIPLIER_MAX:g}"
    return None


def _share_problem(value: float) -> str | None:
    if not 0 <= value <= 1:
        return f"{value} is out of range; it is a share, between 0 and 1"
    return None


_RULES: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "redelivery_delay": _below_zero,
    "redelivery_delay_multiplier": _multiplier_problem,
    "redelivery_collision_avoidance_factor": _share_problem,
    "max_redelivery_delay": _below_no_limit,
    "max_delivery_attempts": _attempts_problem,
    "id_cache_size": _cache_problem,
    "retroactive_message_count": _retro_problem,
    "max_size_bytes": _below_no_limit,
    "max_size_messages": _below_no_limit,
    "max_size_bytes_reject_threshold": _reject_threshold_problem,
    "page_limit_bytes": _below_no_limit,
    "page_limit_messages": _page_messages_problem,
    "max_read_page_bytes": _below_no_limit,
    "max_read_page_messages": _below_no_limit,
    "prefetch_page_bytes": _below_no_limit,
    "prefetch_page_messages": _below_no_limit,
    "page_size_bytes": _page_size_problem,
    "default_ring_size": ring_size_problem,
    "default_max_consumers": max_consumers_problem,
    "default_consumers_before_dispatch": partial(attribute_problem, "consumers_before_dispatch"),
    "default_delay_before_dispatch": partial(attribute_problem, "delay_before_dispatch"),
    "default_group_buckets": partial(attribute_problem, "group_buckets"),
    "auto_delete_queues_message_count": _below_no_limit,
    "management_browse_page_size": _browse_problem,
    "management_message_attribute_size_limit": _below_no_limit,
    "slow_consumer_threshold": _threshold_problem,
    "slow_consumer_check_period": _period_problem,
    "expiry_delay": _below_no_limit,
    "min_expiry_delay": _below_no_limit,
    "max_expiry_delay": _below_no_limit,
}


def value_problem(field: str, value: object) -> str | None:
    """Say why `value` is impossible for `field`, or None; types are checked by whoever read it."""
    rule = _RULES.get(field)
    if rule is None or not isinstance(value, int | float):
        return None
    return rule(value)


_SIZES: Final = ("max_size_bytes", "max_size_messages")
#: Fields that `contradiction` looks at.
CONTRADICTORY: Final = frozenset(
    {"min_expiry_delay", "max_expiry_delay", "address_full_policy", *_SIZES}
)


def contradiction(values: Mapping[str, object]) -> tuple[str, str] | None:
    """Return (field, why) when values that hold together contradict one another, or None.

    `values` are effective values by field name; those missing are at their defaults.
    """
    policy = values.get("address_full_policy", DEFAULTS.address_full_policy)
    for field in _SIZES:
        if values.get(field) == 0 and policy is not FullPolicy.PAGE:
            return (
                field,
                "a limit of 0 makes the address full for ever, but with address-full-policy PAGE",
            )
    least = cast("int", values.get("min_expiry_delay", DEFAULTS.min_expiry_delay))
    most = cast("int", values.get("max_expiry_delay", DEFAULTS.max_expiry_delay))
    if least > most >= 0:
        return (
            "min_expiry_delay",
            f"{least} ms is above max-expiry-delay, {most} ms; no message could satisfy both",
        )
    return None
