"""What holds for one address: limits, policies, dead letters, what may be made on demand.

`AddressSettings` is the one table: a new setting is one field of it and its behaviour. Its key in
`[address-settings]`, how that is read and refused, what a reload does and `explain` follow. Where
values come from and how several matches merge is `gateway.addresses.match`. The names are Artemis'
keys in snake_case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Final, cast

from gateway.model import attributes
from gateway.model.address import RoutingType
from gateway.model.bounds import (
    NO_LIMIT,
    at_least,
    at_most,
    not_negative,
    not_zero,
    unlimited,
    within,
)
from gateway.model.rows import Reach, Row, Unit, rows_of

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
MULTIPLIER_MAX: Final = 1000


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


def _page_size_problem(value: int) -> str | None:
    if not PAGE_SIZE_MIN <= value <= PAGE_SIZE_MAX:
        return f"{value} bytes is no page; it lies between {PAGE_SIZE_MIN} and {PAGE_SIZE_MAX}"
    return None


def _attempts_problem(value: int) -> str | None:
    if value > MAX_ATTEMPTS:
        return f"{value} is above {MAX_ATTEMPTS}, the most that is counted; give -1 for no limit"
    return _ATTEMPTS(value)


def _share_problem(value: float) -> str | None:
    if not 0 <= value <= 1:
        return f"{value} is out of range; it is a share, between 0 and 1"
    return None


ring_size_problem: Final = not_zero(
    "a ring of 0 would evict every message at once; give at least 1, or -1 for no ring"
)
_ATTEMPTS: Final = not_zero("0 attempts would deliver nothing; give at least 1, or -1 for no limit")
_PAGE_MESSAGES: Final = not_zero(
    "0 messages on pages would page nothing; give at least 1, or -1 for no limit"
)
_REJECT_THRESHOLD: Final = not_zero(
    "at 0 bytes all but the first would be refused; give more, or -1 to refuse nothing"
)
_SLOW_THRESHOLD: Final = not_zero(
    "at a threshold of 0 nobody is slow; give at least 1, or -1 to look for nobody"
)
_ID_CACHE: Final = at_most(ID_CACHE_MAX, "so many ids would fill the memory")
_RETROACTIVE: Final = at_most(RETROACTIVE_MAX, "each new queue would begin with so many messages")

_Limit = Annotated[int, unlimited]
_Size = Annotated[int, Unit.BYTES, unlimited]
_SizeOrNone = Annotated[int | None, Unit.BYTES, unlimited]
_Ms = Annotated[int, Unit.MS, unlimited]
_Delay = Annotated[int, Unit.MS, at_least(0)]


@dataclass(frozen=True, slots=True)
class DefaultOf:
    """It is what new queues have that do not say the attribute `name`; the rest is that one's."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSettings:
    """The effective settings of one address."""

    dead_letter_address: Annotated[
        str | None, Unit.ADDRESS, "of messages that failed too often or were rejected; None: lost"
    ] = "DLQ"
    expiry_address: Annotated[
        str | None, Unit.ADDRESS, "of expired messages; None: they are lost"
    ] = "ExpiryQueue"
    auto_create_dead_letter_resources: Annotated[bool, "each address has its own queue there"] = (
        False
    )
    dead_letter_queue_prefix: Annotated[str, "before the address in its name"] = "DLQ."
    dead_letter_queue_suffix: Annotated[str, "behind it"] = ""
    auto_create_expiry_resources: Annotated[bool, "the same for expired messages"] = False
    expiry_queue_prefix: Annotated[str, "the same for expired messages"] = "EXP."
    expiry_queue_suffix: Annotated[str, "the same for expired messages"] = ""
    max_delivery_attempts: Annotated[
        int, _attempts_problem, "deliveries that fail before a message is dead; -1 never"
    ] = 10
    redelivery_delay: Annotated[
        int, Unit.MS, not_negative, "ms that a message waits which was given back; 0 none"
    ] = 0
    redelivery_delay_multiplier: Annotated[
        float, within(0, MULTIPLIER_MAX), "by how much longer each further time"
    ] = 1.0
    redelivery_collision_avoidance_factor: Annotated[
        float, _share_problem, "share of the wait, 0 to 1, left to chance"
    ] = 0.0
    max_redelivery_delay: Annotated[_Ms, "most ms; -1 ten times `redelivery_delay`"] = -1
    max_size_bytes: Annotated[_Size, "that the address may hold; -1 no limit"] = -1
    max_size_messages: Annotated[_Limit, "that the address may hold; -1 no limit"] = -1
    max_size_bytes_reject_threshold: Annotated[
        int, Unit.BYTES, _REJECT_THRESHOLD, "where BLOCK refuses what AMQP sends on; -1 never"
    ] = -1
    address_full_policy: Annotated[FullPolicy, "what a send meets at either limit"] = (
        FullPolicy.PAGE
    )
    disk_full_policy: Annotated[DiskFullPolicy, "what a send meets while the disk is full"] = (
        DiskFullPolicy.BLOCK
    )
    page_size_bytes: Annotated[
        int, Unit.BYTES, _page_size_problem, "bytes after which a page file ends"
    ] = 10 << 20
    page_limit_bytes: Annotated[_Size, "bytes of all its page files; -1 no limit"] = 5 << 30
    page_limit_messages: Annotated[
        int, _PAGE_MESSAGES, "unacknowledged, of one queue, on pages; -1 no limit"
    ] = -1
    page_full_policy: Annotated[PageFullPolicy, "what a send meets at either of these"] = (
        PageFullPolicy.FAIL
    )
    max_read_page_messages: Annotated[_Limit, "a queue with more reads no pages; -1 no limit"] = -1
    max_read_page_bytes: Annotated[_SizeOrNone, "the same; None: twice `page_size_bytes`"] = None
    prefetch_page_messages: Annotated[
        int | None, unlimited, "of those, what may wait without a consumer"
    ] = None
    prefetch_page_bytes: Annotated[_SizeOrNone, "bytes of the same; None: as many"] = None
    auto_create_queues: Annotated[bool, "a send or an attach may make a queue"] = True
    auto_create_addresses: Annotated[bool, "a send or an attach may make an address"] = True
    default_address_routing_type: Annotated[RoutingType, "made on demand, if no client says"] = (
        RoutingType.ANYCAST
    )
    default_queue_routing_type: Annotated[
        RoutingType, Reach.NEW_QUEUES, "made on demand, when neither client nor address say"
    ] = RoutingType.ANYCAST
    default_ring_size: Annotated[
        int, ring_size_problem, Reach.NEW_QUEUES, "ring of queues made without one; -1 none"
    ] = -1
    ring_victim: Annotated[RingVictim, "which message a full ring evicts"] = RingVictim.OLDEST
    default_max_consumers: Annotated[
        _Limit, Reach.NEW_QUEUES, "of queues made without their own; -1 no limit"
    ] = -1
    default_exclusive_queue: Annotated[bool, DefaultOf("exclusive")] = False
    default_purge_on_no_consumers: Annotated[bool, DefaultOf("purge_on_no_consumers")] = False
    default_consumers_before_dispatch: Annotated[int, DefaultOf("consumers_before_dispatch")] = 0
    default_delay_before_dispatch: Annotated[int, DefaultOf("delay_before_dispatch")] = -1
    default_last_value_queue: Annotated[bool, DefaultOf("last_value")] = False
    default_last_value_key: Annotated[str, DefaultOf("last_value_key")] = ""
    default_non_destructive: Annotated[bool, DefaultOf("non_destructive")] = False
    default_group_buckets: Annotated[int, DefaultOf("group_buckets")] = -1
    default_group_rebalance: Annotated[bool, DefaultOf("group_rebalance")] = False
    default_group_rebalance_pause_dispatch: Annotated[
        bool, DefaultOf("group_rebalance_pause_dispatch")
    ] = False
    default_group_first_key: Annotated[str, DefaultOf("group_first_key")] = ""
    auto_delete_queues: Annotated[bool, "those made on demand go when they are not used"] = False
    auto_delete_created_queues: Annotated[bool, "so do those that an operator made"] = False
    auto_delete_queues_delay: Annotated[_Delay, "ms after the last consumer left"] = 0
    auto_delete_queues_message_count: Annotated[_Limit, "that it may still hold; -1 any"] = 0
    auto_delete_queues_skip_usage_check: Annotated[bool, "one that never was used goes too"] = False
    auto_delete_addresses: Annotated[bool, "those made on demand go with their last queue"] = False
    auto_delete_addresses_delay: Annotated[_Delay, "ms after that"] = 0
    auto_delete_addresses_skip_usage_check: Annotated[bool, "one that had no queue too"] = False
    expiry_delay: Annotated[_Ms, "ms to live without an expiry; -1 for ever"] = -1
    min_expiry_delay: Annotated[_Ms, "least ms to live, whatever was asked; -1 none"] = -1
    max_expiry_delay: Annotated[_Ms, "most ms to live, also without an expiry; -1 none"] = -1
    no_expiry: Annotated[bool, "neither senders' expiries nor these three count"] = False
    slow_consumer_threshold: Annotated[
        int, _SLOW_THRESHOLD, "to acknowledge in a unit of time, else it is slow; -1 none is"
    ] = -1
    slow_consumer_threshold_measurement_unit: Annotated[RateUnit, "that unit"] = RateUnit.SECOND
    slow_consumer_policy: Annotated[SlowPolicy, "what happens to a slow one"] = SlowPolicy.NOTIFY
    slow_consumer_check_period: Annotated[
        int, Unit.SECONDS, within(1, CHECK_PERIOD_MAX, "seconds"), "seconds between two looks"
    ] = 5
    send_to_dla_on_no_route: Annotated[
        bool, "what no queue wants is a dead letter, but where diverts or wildcards branch off"
    ] = False
    enable_metrics: Annotated[bool, "it and its queues are among the metrics"] = True
    management_browse_page_size: Annotated[
        int, within(1, BROWSE_MAX, "messages"), "messages of a browse over HTTP that says none"
    ] = 200
    management_message_attribute_size_limit: Annotated[
        _Limit, "characters that a browse shows of a property; -1 all"
    ] = 256
    # A sender takes the way that stamps its messages, or the other one, when it attaches.
    enable_ingress_timestamp: Annotated[
        bool, Reach.NEW_CONNECTIONS, "messages tell when they came in"
    ] = False
    reject_as_modified: Annotated[bool, "a rejected message has failed once, and is not dead"] = (
        False
    )
    id_cache_size: Annotated[
        int | None, _ID_CACHE, "duplicate ids remembered; None: as the gateway says"
    ] = None
    retroactive_message_count: Annotated[int, _RETROACTIVE, "that a new queue begins with"] = 0
    durability: Annotated[Durability, "of a durable message, once confirmed"] = Durability.FSYNC
    strict_dispatch: Annotated[bool, "what is durable is delivered once it is on disk"] = False

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


def _row(row: Row) -> Row:
    """Return a row with what it takes from the attribute that it is the default of."""
    default = row.fact(DefaultOf)
    if default is None:
        return row
    queue = attributes.ROWS[default.name]
    facts = (*row.facts, Reach.NEW_QUEUES)
    return replace(row, words=queue.words, unit=queue.unit, bound=queue.bound, facts=facts)


DEFAULTS: Final = AddressSettings()
#: Of the gateway's own addresses, whatever the configuration says.
INTERNAL: Final = AddressSettings(dead_letter_address=None, expiry_address=None, id_cache_size=0)
ROWS: Final[Mapping[str, Row]] = {n: _row(row) for n, row in rows_of(AddressSettings).items()}
#: Attributes of queues, each with the setting that holds where it is not said.
QUEUE_DEFAULTS: Final[Mapping[str, str]] = {
    default.name: row.name for row in ROWS.values() if (default := row.fact(DefaultOf))
}


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
