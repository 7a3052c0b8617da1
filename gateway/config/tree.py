"""The settings of a gateway, read and checked: one frozen class per table of the file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from gateway.addresses.match import SettingsTable
from gateway.addresses.settings import Durability
from gateway.config.endpoints import Endpoint, read_endpoint
from gateway.model.address import RoutingType
from gateway.model.definitions import DivertDefinition
from gateway.model.objects import GATEWAY_DEFAULTS, USER_DEFAULTS, Kind, ObjectLimits

MIB: Final = 1 << 20
#: The size of a journal file, and of what is kept back for a full disk, where none is written.
JOURNAL_FILE_BYTES: Final = 32 * MIB
BALLAST_BYTES: Final = 64 * MIB
#: What STOMP clients of other brokers write.
ANYCAST_PREFIX: Final = "/queue/"
MULTICAST_PREFIX: Final = "/topic/"


class Wire(Enum):
    """A protocol that an acceptor may speak."""

    AMQP = "AMQP"
    STOMP = "STOMP"


class Sasl(Enum):
    """A SASL mechanism that needs a user."""

    SCRAM_SHA_512 = "SCRAM-SHA-512"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    PLAIN = "PLAIN"


class StompDiskFull(Enum):
    """What a STOMP sender meets while the disk is full: an ERROR and the end, or no reading."""

    ERROR = "error"
    PAUSE = "pause"


class LogFormat(Enum):
    """How log events are written: AUTO is HUMAN on a terminal and JSON elsewhere."""

    AUTO = "auto"
    HUMAN = "human"
    JSON = "json"


class LogLevel(Enum):
    """The least severe events that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def low_credits(most: int) -> int:
    """Return at which credit a sender is topped up where only `amqp-credits` is written."""
    return min(300, most * 3 // 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptor:
    """One listener of messaging protocols; the keys of `[acceptors.NAME]`.

    Times are in ms, sizes in bytes. `connection_ttl` is how long a peer that promised no heart-beat
    may be silent, -1 for ever; `connection_ttl_max` -1 is no upper bound. A prefix that is None was
    not written: STOMP then takes `/queue/` and `/topic/`, AMQP none; an empty one is none for both.
    `sasl_mechanisms` empty: PLAIN, and SCRAM where every user has a verifier. Of the connections
    that are allowed so many may belong to clients that have not said who they are. Of
    `consumer_stuck_timeout` None is: never for AMQP, 30 minutes for STOMP; -1 is never for both.
    """

    name: str
    endpoint: Endpoint
    protocols: frozenset[Wire] = frozenset(Wire)
    allow_anonymous: bool = False
    sasl_mechanisms: frozenset[Sasl] = frozenset()
    amqp_credits: int = 1000
    amqp_low_credits: int = 300
    amqp_use_modified_for_transient_delivery_errors: bool = False
    amqp_duplicate_detection: bool = True
    amqp_drain_on_transient_delivery_errors: bool = True
    amqp_link_quiesce_timeout: int = 600_000
    amqp_idle_timeout: int = 60_000
    max_frame_size: int = 131_072
    max_message_size: int = 16 * MIB
    heart_beat_to_connection_ttl_modifier: float = 2.0
    connection_ttl: int = 60_000
    connection_ttl_min: int = 1_000
    connection_ttl_max: int = -1
    stomp_consumer_window_size: int = 10 * 1024
    stomp_disk_full: StompDiskFull = StompDiskFull.ERROR
    max_unread_size: int = MIB
    unread_timeout: int = 60_000
    unfinished_timeout: int = 30_000
    unfinished_min_rate: int = 8 * 1024
    consumer_stuck_timeout: int | None = None
    anycast_prefix: str | None = None
    multicast_prefix: str | None = None
    disable_stomp_server_header: bool = False
    connections_allowed: int = 10_000
    unauthenticated_connections_allowed: int = 100

    def prefixes(self, anycast: str = "", multicast: str = "") -> tuple[str, str]:
        """Return both prefixes; the arguments are what those not written are."""
        return (
            anycast if self.anycast_prefix is None else self.anycast_prefix,
            multicast if self.multicast_prefix is None else self.multicast_prefix,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """One queue of `[addresses.NAME]`; None means what the address settings say.

    `attributes` are those that are written, by their names in the core.
    """

    name: str
    routing_type: RoutingType | None = None
    durable: bool = True
    ring_size: int | None = None
    max_consumers: int | None = None
    filter: str | None = None
    attributes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressConfig:
    """One `[addresses.NAME]`: an address that exists from the start on."""

    name: str
    routing_types: frozenset[RoutingType] = frozenset({RoutingType.ANYCAST})
    queues: tuple[QueueConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementConfig:
    """`[management]`: the HTTP listener.

    `allowed_hosts`: names for the Host header beside loopback's and the listener's own address.
    """

    endpoint: Endpoint = field(
        default_factory=lambda: read_endpoint("tcp:8161:interface=127.0.0.1")
    )
    enabled: bool = True
    allowed_hosts: frozenset[str] = frozenset()
    connections_allowed: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """`[metrics]`: whether `/metrics` is served."""

    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingConfig:
    """`[logging]`."""

    format: LogFormat = LogFormat.AUTO
    level: LogLevel = LogLevel.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """One `[streams."NAME"]`: a tap on an address that exists from the start on."""

    name: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole configuration.

    Attributes:
        data_directory: absolute path.
        journal_directory: absolute path; `journal` below the data directory unless it was written.
        paging_directory: absolute path; `paging` below the data directory unless it was written.
        global_max_size: bytes that all addresses together may hold; -1 no limit.
        global_max_messages: messages that all addresses together may hold; -1 no limit.
        user_max_addresses: addresses that one user may have made on demand; -1 no limit.
        user_max_queues: queues that one user may have made so, subscriptions among them.
        user_max_consumers: consumers that one user may have open.
        user_max_links: AMQP links that one user may have open.
        global_max_addresses: addresses made on demand that there may be of all users; -1 no limit.
        global_max_queues: queues made on demand, of all users.
        global_max_consumers: consumers of all users.
        global_max_links: AMQP links of all users.
        journal_file_size: bytes of one journal file.
        journal_compact_min_files: from how many journal files on what lives in old ones is copied
            forward; 0 never.
        journal_compact_percentage: less than so much of their bytes must live for that.
        concurrent_store_and_dispatch_queues: anycast queues hand out what is not on disk yet, and
            what is consumed before it is written is not written.
        concurrent_store_and_dispatch_topics: so do durable subscriptions.
        store_linger: ms that a batch which nobody waits for stays open; 0 not at all.
        store_lag_limit: ms that anything may wait for the disk before dispatch waits for it too; -1
            never.
        durability: what addresses have that say nothing else.
        sync_interval: ms after which what was only written is synced.
        store_task_limit: messages that may wait for the journal before senders wait.
        max_disk_usage: percent of a file system that may be used, -1 no limit; None not written.
        min_disk_free: bytes that stay free, -1 no limit; None not written.
        disk_scan_period: ms between two looks at the disk.
        ballast_size: bytes kept back for what goes on while the disk is full; 0 none.
        scrub_period: ms between two times of reading all that is stored, to find what has rotted;
            0 or less: only when an operator says so.
        scrub_rate: bytes of it that are read in a second.
        address_queue_scan_period: ms between two looks for unused queues; 0 or less: never.
        message_expiry_scan_period: ms between two looks for expired messages; 0 or less: only on
            delivery.
        transaction_timeout: ms after which a transaction that nothing was added to is rolled back.
        id_cache_size: duplicate ids that an address remembers whose settings do not say; 0 none.
        persist_id_cache: they are remembered over restarts.
        wildcard_routing: queues of wildcard addresses get what is sent to names that fit.
        literal_match_markers: two characters around a match that is one name; empty: none.
        users_file: absolute path of the users file; it need not exist.
        users_file_required: it was written in `[[authentication]]`, so a missing file is a mistake.
        origins: key path as shown -> where it was written.
        file: the configuration file, None without one.
    """

    data_directory: str
    journal_directory: str
    paging_directory: str
    users_file: str
    users_file_required: bool = False
    name: str = "sluicegate"
    global_max_size: int = 512 * MIB
    global_max_messages: int = -1
    user_max_addresses: int = USER_DEFAULTS[Kind.ADDRESSES]
    user_max_queues: int = USER_DEFAULTS[Kind.QUEUES]
    user_max_consumers: int = USER_DEFAULTS[Kind.CONSUMERS]
    user_max_links: int = USER_DEFAULTS[Kind.LINKS]
    global_max_addresses: int = GATEWAY_DEFAULTS[Kind.ADDRESSES]
    global_max_queues: int = GATEWAY_DEFAULTS[Kind.QUEUES]
    global_max_consumers: int = GATEWAY_DEFAULTS[Kind.CONSUMERS]
    global_max_links: int = GATEWAY_DEFAULTS[Kind.LINKS]
    journal_file_size: int = JOURNAL_FILE_BYTES
    journal_compact_min_files: int = 3
    journal_compact_percentage: int = 50
    store_task_limit: int = 10_000
    concurrent_store_and_dispatch_queues: bool = True
    concurrent_store_and_dispatch_topics: bool = False
    store_linger: int = 5
    store_lag_limit: int = 5_000
    durability: Durability = Durability.FSYNC
    sync_interval: int = 50
    max_disk_usage: int | None = None
    min_disk_free: int | None = None
    disk_scan_period: int = 5_000
    ballast_size: int = BALLAST_BYTES
    scrub_period: int = 24 * 3_600_000
    scrub_rate: int = 4 * MIB
    address_queue_scan_period: int = 30_000
    message_expiry_scan_period: int = 30_000
    transaction_timeout: int = 300_000
    id_cache_size: int = 20_000
    persist_id_cache: bool = True
    stomp_default_persistent: bool = True
    allow_insecure: bool = False
    acceptors: tuple[Acceptor, ...] = ()
    address_settings: SettingsTable = field(default_factory=SettingsTable)
    addresses: tuple[AddressConfig, ...] = ()
    management: ManagementConfig = field(default_factory=ManagementConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    diverts: tuple[DivertDefinition, ...] = ()
    wildcard_routing: bool = True
    literal_match_markers: str = ""
    streams: tuple[StreamConfig, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    file: str | None = None


def object_limits(config: Config) -> ObjectLimits:
    """Return how many objects users may have made and open, as it is written."""
    return ObjectLimits(
        user={kind: getattr(config, f"user_max_{kind.value}") for kind in Kind},
        gateway={kind: getattr(config, f"global_max_{kind.value}") for kind in Kind},
        origins=config.origins,
    )


def tls_listeners(config: Config) -> list[tuple[str, Endpoint]]:
    """Return the path in the configuration and the endpoint of each listener that has TLS."""
    listeners = [(f"acceptors.{one.name}", one.endpoint) for one in config.acceptors]
    if config.management.enabled:
        listeners.append(("management", config.management.endpoint))
    return [(path, endpoint) for path, endpoint in listeners if endpoint.source is not None]
