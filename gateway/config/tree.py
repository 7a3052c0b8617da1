"""The settings of a gateway, read and checked: one frozen class per table of the file. Pure.

A field that is annotated is the one row of its key (`gateway.model.rows`): how it is read, what is
refused, and what a reload with another value reaches, which is nothing before a restart where the
row does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Final

from gateway.addresses.match import SettingsTable, markers_problem
from gateway.addresses.permissions import PermissionTable
from gateway.addresses.settings import ID_CACHE_MAX, Durability, ring_size_problem
from gateway.config import values as v
from gateway.config.access import ApiRolesConfig, LdapConfig
from gateway.config.audit import AuditConfig
from gateway.config.endpoints import Endpoint, read_endpoint
from gateway.config.streams import ArchiveConfig, Retain, StreamConfig
from gateway.config.tokens import IssuerConfig
from gateway.model.address import RoutingType
from gateway.model.bounds import at_least, limit, unlimited, within
from gateway.model.certificates import CertificateRule
from gateway.model.definitions import DivertDefinition
from gateway.model.objects import GATEWAY_DEFAULTS, USER_DEFAULTS, Kind
from gateway.model.quota import Quotas
from gateway.model.rows import Reach, Unit

AT_ONCE: Final = Reach.AT_ONCE
NEW_CONNECTIONS: Final = Reach.NEW_CONNECTIONS
REFUSED: Final = Reach.REFUSED
RESTART: Final = Reach.RESTART

MIB: Final = 1 << 20
#: The size of a journal file, and of what is kept back for a full disk, where none is written.
JOURNAL_FILE_BYTES: Final = 32 * MIB
BALLAST_BYTES: Final = 64 * MIB
#: What STOMP clients of other brokers write.
ANYCAST_PREFIX: Final = "/queue/"
MULTICAST_PREFIX: Final = "/topic/"
#: The table of the HTTP listener, and what log and API call it.
MANAGEMENT: Final = "management"


class Wire(Enum):
    """A protocol that an acceptor may speak; WS carries the others, or both where it is alone."""

    AMQP = "AMQP"
    STOMP = "STOMP"
    WS = "WS"


class Sasl(Enum):
    """A SASL mechanism that needs a user."""

    EXTERNAL = "EXTERNAL"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    PLAIN = "PLAIN"
    OAUTHBEARER = "OAUTHBEARER"
    XOAUTH2 = "XOAUTH2"


class StompDiskFull(Enum):
    """What a STOMP sender meets while the disk is full: an ERROR and the end, or no reading."""

    ERROR = "error"
    PAUSE = "pause"


class WsCompression(Enum):
    """What WebSocket messages may be compressed with."""

    OFF = "off"
    DEFLATE = "deflate"


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


_WIRES: Final = v.Read(v.choices(Wire))
_ORIGINS: Final = v.Read(v.origins)
_COOKIE: Final = v.Read(v.cookie)
_MECHANISMS: Final = v.Read(
    v.choices(
        Sasl,
        {"ANONYMOUS": "is offered by allow-anonymous, and where there are no users"},
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptor:
    """One listener of messaging protocols; the keys of `[acceptors.NAME]`.

    Times are in ms, sizes in bytes.

    Attributes:
        name: the NAME of its table.
        endpoint: where it listens, as Twisted writes it.
        protocols: those that it speaks; the first bytes of a connection choose. WS is WebSocket,
            with the others inside, or both of them where it is alone.
        allowed_origins: web pages that may connect over WebSocket beside those of the same origin,
            and those of localhost that connect to localhost: `https://shop.example`; `*` is any.
        stomp_max_frame_payload_length: bytes of a WebSocket message, STOMP or AMQP;
            `max-frame-size` where that is more.
        ws_ping_interval: ms of silence after which a WebSocket peer is asked for a sign of life; 0
            or less: never.
        ws_compression: permessage-deflate is agreed to with WebSocket clients that offer it, or
            not; a message that comes compressed costs up to 48 KiB until it is whole, beside what
            it inflates to, and nothing is kept of it.
        ws_token_cookie: a cookie of this name may hold the token of a page that connects over
            WebSocket; empty: none.
        allow_anonymous: clients without a login are let in although there are users.
        sasl_mechanisms: those that are offered; empty: PLAIN, SCRAM where every user has a
            verifier, those of tokens where an issuer is known, and EXTERNAL. EXTERNAL is offered to
            clients only whose certificate is a user's.
        amqp_credits: credit that an AMQP sender is given.
        amqp_low_credits: credit at which it is topped up; where only `amqp-credits` is written, 300
            or three tenths of it, whichever is less.
        amqp_use_modified_for_transient_delivery_errors: a full address answers `modified` to
            senders that list it as an outcome.
        amqp_duplicate_detection: `_AMQ_DUPL_ID` of AMQP messages counts.
        amqp_drain_on_transient_delivery_errors: an AMQP sender that a full address refuses is asked
            to give its credit back.
        amqp_link_quiesce_timeout: ms that it has for that before it is detached; -1 for ever.
        amqp_idle_timeout: ms of silence after which an AMQP peer is cut; 0 never.
        max_frame_size: bytes of an AMQP frame.
        max_message_size: bytes of a message.
        heart_beat_to_connection_ttl_modifier: a STOMP client may be silent for its heart-beat times
            so much.
        connection_ttl: ms that a peer which promised no heart-beat may be silent; -1 for ever.
        connection_ttl_min: least ms of silence, whatever the heart-beat asks for.
        connection_ttl_max: most ms of it; -1 no upper bound.
        stomp_consumer_window_size: unacknowledged bytes of a STOMP subscription that acknowledges;
            -1 no limit.
        stomp_ws_consumer_window_size: the same over WebSocket, for what asks for no window of its
            own; -1 no limit.
        stomp_disk_full: what a STOMP sender meets while the disk is full: an ERROR and the end, or
            no reading.
        max_unread_size: bytes of answers that a client may leave unread before nothing more is read
            of it.
        unread_timeout: ms for which a client that something waits for may read nothing.
        unfinished_timeout: ms for a frame or delivery that is begun and not ended.
        unfinished_min_rate: bytes of it that are worth a second more.
        consumer_stuck_timeout: ms for which a consumer may hold deliveries and settle none; not
            written: never for AMQP, 30 minutes for STOMP; -1 is never for both.
        anycast_prefix: in front of an address it asks for anycast and is cut off; not written:
            `/queue/` for STOMP and none for AMQP; empty: none for both.
        multicast_prefix: the same for multicast, `/topic/` for STOMP.
        disable_stomp_server_header: CONNECTED has no `server` header.
        connections_allowed: connections at a time.
        unauthenticated_connections_allowed: of those, connections of clients that have not logged
            in; for one more the oldest is cut.
        on_management: it is no table of the file: what came over WebSocket to the management
            listener.
    """

    name: str
    endpoint: Annotated[Endpoint, v.Read(read_endpoint)]
    protocols: Annotated[frozenset[Wire], NEW_CONNECTIONS, _WIRES] = frozenset(Wire)
    allowed_origins: Annotated[frozenset[str], NEW_CONNECTIONS, _ORIGINS] = frozenset()
    stomp_max_frame_payload_length: Annotated[
        int, NEW_CONNECTIONS, Unit.BYTES, within(1024, 1 << 30)
    ] = MIB
    ws_ping_interval: Annotated[int, NEW_CONNECTIONS, Unit.MS, at_least(-1)] = 20_000
    ws_compression: Annotated[WsCompression, NEW_CONNECTIONS] = WsCompression.OFF
    ws_token_cookie: Annotated[str, NEW_CONNECTIONS, _COOKIE] = ""
    allow_anonymous: Annotated[bool, NEW_CONNECTIONS] = False
    sasl_mechanisms: Annotated[frozenset[Sasl], NEW_CONNECTIONS, _MECHANISMS] = frozenset()
    amqp_credits: Annotated[int, NEW_CONNECTIONS, within(1, 1_000_000)] = 1000
    amqp_low_credits: Annotated[int, NEW_CONNECTIONS, within(0, 1_000_000)] = 300
    amqp_use_modified_for_transient_delivery_errors: Annotated[bool, NEW_CONNECTIONS] = False
    amqp_duplicate_detection: Annotated[bool, NEW_CONNECTIONS] = True
    amqp_drain_on_transient_delivery_errors: Annotated[bool, NEW_CONNECTIONS] = True
    amqp_link_quiesce_timeout: Annotated[int, NEW_CONNECTIONS, Unit.MS, limit()] = 600_000
    amqp_idle_timeout: Annotated[int, NEW_CONNECTIONS, Unit.MS, at_least(0)] = 60_000
    # 512 is the least that every peer must take [AMQP 2.7.1].
    max_frame_size: Annotated[int, NEW_CONNECTIONS, Unit.BYTES, within(512, 1 << 24)] = 131_072
    max_message_size: Annotated[int, NEW_CONNECTIONS, Unit.BYTES, within(1024, 1 << 30)] = 16 * MIB
    heart_beat_to_connection_ttl_modifier: Annotated[
        float, NEW_CONNECTIONS, within(1.0, 1000.0)
    ] = 2.0
    connection_ttl: Annotated[int, NEW_CONNECTIONS, Unit.MS, limit()] = 60_000
    connection_ttl_min: Annotated[int, NEW_CONNECTIONS, Unit.MS, at_least(1)] = 1_000
    connection_ttl_max: Annotated[int, NEW_CONNECTIONS, Unit.MS, limit()] = -1
    stomp_consumer_window_size: Annotated[int, NEW_CONNECTIONS, Unit.BYTES, at_least(-1)] = (
        10 * 1024
    )
    stomp_ws_consumer_window_size: Annotated[int, NEW_CONNECTIONS, Unit.BYTES, at_least(-1)] = (
        64 * 1024
    )
    stomp_disk_full: Annotated[StompDiskFull, NEW_CONNECTIONS] = StompDiskFull.ERROR
    max_unread_size: Annotated[int, NEW_CONNECTIONS, Unit.BYTES, within(65_536, 1 << 26)] = MIB
    unread_timeout: Annotated[int, NEW_CONNECTIONS, Unit.MS, within(1_000, 3_600_000)] = 60_000
    unfinished_timeout: Annotated[int, NEW_CONNECTIONS, Unit.MS, within(1_000, 3_600_000)] = 30_000
    unfinished_min_rate: Annotated[int, NEW_CONNECTIONS, Unit.BYTES, within(1, 1 << 30)] = 8 * 1024
    consumer_stuck_timeout: Annotated[int | None, NEW_CONNECTIONS, Unit.MS, limit(1_000)] = None
    anycast_prefix: Annotated[str | None, NEW_CONNECTIONS] = None
    multicast_prefix: Annotated[str | None, NEW_CONNECTIONS] = None
    disable_stomp_server_header: Annotated[bool, NEW_CONNECTIONS] = False
    connections_allowed: Annotated[int, NEW_CONNECTIONS, at_least(1)] = 10_000
    unauthenticated_connections_allowed: Annotated[int, NEW_CONNECTIONS, at_least(1)] = 100
    on_management: bool = False

    def prefixes(self, anycast: str = "", multicast: str = "") -> tuple[str, str]:
        """Return both prefixes; the arguments are what those not written are."""
        return (
            anycast if self.anycast_prefix is None else self.anycast_prefix,
            multicast if self.multicast_prefix is None else self.multicast_prefix,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """One queue of `[addresses.NAME]`; None means what the address settings say.

    Attributes:
        name: no other queue's.
        routing_type: how messages of the address come to it.
        durable: it is there after a restart, with its durable messages.
        ring_size: messages that may wait in it before the oldest goes; -1 no ring.
        max_consumers: consumers that it may have; -1 no limit.
        filter: a selector; the queue takes only messages that it matches.
        said: attributes that are written, in the order of their rows.
    """

    name: Annotated[str, REFUSED, v.Read(v.address)]
    routing_type: Annotated[RoutingType | None, REFUSED] = None
    durable: Annotated[bool, REFUSED] = True
    ring_size: Annotated[int | None, AT_ONCE, ring_size_problem] = None
    max_consumers: Annotated[int | None, AT_ONCE, unlimited] = None
    filter: Annotated[str | None, AT_ONCE, v.Read(v.selector)] = None
    said: tuple[tuple[str, object], ...] = ()

    @property
    def attributes(self) -> dict[str, object]:
        """Return the attributes that are written, by their names in the core."""
        return dict(self.said)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressConfig:
    """One `[addresses.NAME]`: an address that exists from the start on.

    Attributes:
        name: the NAME of its table.
        routing_types: of the address, one or both.
        queues: an array of tables, see `QueueConfig`.
    """

    name: str
    routing_types: frozenset[RoutingType] = frozenset({RoutingType.ANYCAST})
    queues: tuple[QueueConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementConfig:
    """`[management]`: the HTTP listener.

    Attributes:
        endpoint: where it listens.
        enabled: without it there is neither API nor metrics.
        allowed_hosts: names for the Host header beside loopback's and the listener's own address.
        connections_allowed: connections at a time; for one more the one that does nothing for
            longest is cut. WebSockets have limits of their own.
        websocket: `/stomp` and `/amqp` take STOMP and AMQP over WebSocket, by the defaults of an
            acceptor.
        allowed_origins: web pages that may connect so, beside those of the same origin, and those
            of localhost that connect to localhost; `*` is any.
        ws_token_cookie: a cookie of this name may hold the token of a page that connects so, or
            that renews a connection; empty: none.
    """

    endpoint: Annotated[Endpoint, v.Read(read_endpoint)] = field(
        default_factory=lambda: read_endpoint("tcp:8161:interface=127.0.0.1")
    )
    enabled: Annotated[bool, RESTART] = True
    allowed_hosts: Annotated[frozenset[str], AT_ONCE, v.Read(v.names)] = frozenset()
    connections_allowed: Annotated[int, AT_ONCE, at_least(4)] = 256
    websocket: Annotated[bool, NEW_CONNECTIONS] = True
    allowed_origins: Annotated[frozenset[str], NEW_CONNECTIONS, _ORIGINS] = frozenset()
    ws_token_cookie: Annotated[str, NEW_CONNECTIONS, _COOKIE] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """`[metrics]`.

    Attributes:
        enabled: `/metrics` is served.
    """

    enabled: Annotated[bool, RESTART] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingConfig:
    """`[logging]`.

    Attributes:
        format: how events are written; `auto`: `human` on a terminal and `json` elsewhere.
        level: the least severe events that are written.
    """

    format: Annotated[LogFormat, AT_ONCE] = LogFormat.AUTO
    level: Annotated[LogLevel, AT_ONCE] = LogLevel.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """`[sink]`: batches that programs stage here and publish whole, as Spark does.

    Attributes:
        stage_max_size: bytes of one stage: what one task of a batch writes.
        staged_max_size: bytes of all stages together, on disk.
        stages_max: stages at a time.
        stage_expiry: ms after which a stage that nobody asked for is deleted; one that is being
            published stays.
        producers_max: producers whose highest committed batch is remembered.
        producer_expiry: ms after which a producer that commits nothing is forgotten; a batch that
            it repeats later is published again.
        max_message_size: bytes of a message that is published.
    """

    stage_max_size: Annotated[int, AT_ONCE, Unit.BYTES, within(1 << 20, 1 << 40)] = 1 << 30
    staged_max_size: Annotated[int, AT_ONCE, Unit.BYTES, within(1 << 20, 1 << 50)] = 4 << 30
    stages_max: Annotated[int, AT_ONCE, within(1, 1_000_000)] = 10_000
    stage_expiry: Annotated[int, AT_ONCE, Unit.MS, at_least(1_000)] = 300_000
    producers_max: Annotated[int, AT_ONCE, within(1, 1_000_000)] = 10_000
    producer_expiry: Annotated[int, AT_ONCE, Unit.MS, at_least(60_000)] = 30 * 86_400_000
    max_message_size: Annotated[int, AT_ONCE, Unit.BYTES, within(1024, 1 << 30)] = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole configuration.

    Attributes:
        name: of the gateway, as clients and the log are told.
        data_directory: absolute path; not written: what systemd gives a service, else `sluicegate`
            in the user's folder of data.
        journal_directory: absolute path; `journal` below the data directory unless it was written.
        paging_directory: absolute path; `paging` below the data directory unless it was written.
        global_max_size: bytes that all addresses together may hold; -1 no limit; not written: a
            quarter of the memory where that is less than 512 MiB.
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
        max_disk_usage: percent of a file system that may be used, -1 no limit; None:
            `min-disk-free` alone counts.
        min_disk_free: bytes that stay free, -1 no limit, wins over `max-disk-usage`; None: 1 GiB or
            a twentieth of the disk, whichever is less, unless `max-disk-usage` is written.
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
        stomp_default_persistent: a SEND without `persistent` is durable.
        allow_insecure: a listener that others can reach may be without users or without TLS.
        wildcard_routing: queues of wildcard addresses get what is sent to names that fit.
        literal_match_markers: two characters around a match that is one name; empty: none.
        users_file: absolute path of the users file; it need not exist.
        users_file_required: it was written in `[[authentication]]`, so a missing file is a mistake.
        quotas: what users, remotes and addresses may use in a second, and have open.
        stream_retain: what of a stream stays on the disk: `all` within its bounds, or, with
            `archived`, what no archive has yet and the newest `stream-local-bytes`.
        stream_local_bytes: bytes of a stream that stay here although they are archived.
        stream_retention_bytes: bytes of a stream above which the oldest go, whoever wants them.
        origins: key path as shown -> where it was written.
        file: the configuration file, None without one.
    """

    data_directory: Annotated[str, Unit.NAME]
    journal_directory: Annotated[str, Unit.NAME]
    paging_directory: Annotated[str, Unit.NAME]
    users_file: str
    users_file_required: bool = False
    name: Annotated[str, NEW_CONNECTIONS, Unit.NAME] = "sluicegate"
    global_max_size: Annotated[int, AT_ONCE, Unit.BYTES, limit(1 << 20)] = 512 * MIB
    global_max_messages: Annotated[int, AT_ONCE, limit()] = -1
    user_max_addresses: Annotated[int, AT_ONCE, limit()] = USER_DEFAULTS[Kind.ADDRESSES]
    user_max_queues: Annotated[int, AT_ONCE, limit()] = USER_DEFAULTS[Kind.QUEUES]
    user_max_consumers: Annotated[int, AT_ONCE, limit()] = USER_DEFAULTS[Kind.CONSUMERS]
    user_max_links: Annotated[int, AT_ONCE, limit()] = USER_DEFAULTS[Kind.LINKS]
    global_max_addresses: Annotated[int, AT_ONCE, limit()] = GATEWAY_DEFAULTS[Kind.ADDRESSES]
    global_max_queues: Annotated[int, AT_ONCE, limit()] = GATEWAY_DEFAULTS[Kind.QUEUES]
    global_max_consumers: Annotated[int, AT_ONCE, limit()] = GATEWAY_DEFAULTS[Kind.CONSUMERS]
    global_max_links: Annotated[int, AT_ONCE, limit()] = GATEWAY_DEFAULTS[Kind.LINKS]
    journal_file_size: Annotated[int, Unit.BYTES, within(1 << 20, 1 << 31)] = JOURNAL_FILE_BYTES
    journal_compact_min_files: Annotated[int, AT_ONCE, at_least(0)] = 3
    # Above three quarters what is copied would soon be copied again.
    journal_compact_percentage: Annotated[int, AT_ONCE, within(1, 75)] = 50
    store_task_limit: Annotated[int, AT_ONCE, at_least(1)] = 10_000
    concurrent_store_and_dispatch_queues: Annotated[bool, RESTART] = True
    concurrent_store_and_dispatch_topics: Annotated[bool, RESTART] = False
    store_linger: Annotated[int, AT_ONCE, Unit.MS, within(0, 1_000)] = 5
    store_lag_limit: Annotated[int, AT_ONCE, Unit.MS, limit()] = 5_000
    durability: Annotated[Durability, AT_ONCE] = Durability.FSYNC
    sync_interval: Annotated[int, AT_ONCE, Unit.MS, within(1, 1_000)] = 50
    max_disk_usage: Annotated[int | None, AT_ONCE, within(-1, 100)] = None
    min_disk_free: Annotated[int | None, AT_ONCE, Unit.BYTES, limit()] = None
    disk_scan_period: Annotated[int, AT_ONCE, Unit.MS, at_least(1)] = 5_000
    ballast_size: Annotated[int, Unit.BYTES, at_least(0)] = BALLAST_BYTES
    scrub_period: Annotated[int, AT_ONCE, Unit.MS, at_least(-1)] = 24 * 3_600_000
    scrub_rate: Annotated[int, AT_ONCE, Unit.BYTES, at_least(1 << 16)] = 4 * MIB
    address_queue_scan_period: Annotated[int, AT_ONCE, Unit.MS, at_least(-1)] = 30_000
    message_expiry_scan_period: Annotated[int, AT_ONCE, Unit.MS, at_least(-1)] = 30_000
    transaction_timeout: Annotated[int, NEW_CONNECTIONS, Unit.MS, at_least(1)] = 300_000
    id_cache_size: Annotated[int, AT_ONCE, within(0, ID_CACHE_MAX)] = 20_000
    persist_id_cache: Annotated[bool, RESTART] = True
    stomp_default_persistent: Annotated[bool, NEW_CONNECTIONS] = True
    allow_insecure: Annotated[bool, AT_ONCE] = False
    acceptors: tuple[Acceptor, ...] = ()
    certificate_users: tuple[CertificateRule, ...] = ()
    address_settings: SettingsTable = field(default_factory=SettingsTable)
    security_settings: PermissionTable = field(default_factory=PermissionTable)
    addresses: tuple[AddressConfig, ...] = ()
    management: ManagementConfig = field(default_factory=ManagementConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    api_roles: ApiRolesConfig = field(default_factory=ApiRolesConfig)
    ldap: LdapConfig = field(default_factory=LdapConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    diverts: tuple[DivertDefinition, ...] = ()
    wildcard_routing: bool = True
    literal_match_markers: Annotated[str, AT_ONCE, markers_problem] = ""
    quotas: Quotas = field(default_factory=Quotas)
    streams: tuple[StreamConfig, ...] = ()
    sink: SinkConfig = field(default_factory=SinkConfig)
    stream_retain: Annotated[Retain, AT_ONCE] = Retain.ALL
    stream_local_bytes: Annotated[int, AT_ONCE, Unit.BYTES, at_least(1)] = 256 * MIB
    stream_retention_bytes: Annotated[int, AT_ONCE, Unit.BYTES, at_least(1)] = 5 << 30
    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    tokens: tuple[IssuerConfig, ...] = ()
    audit: AuditConfig = field(default_factory=AuditConfig)
    origins: Mapping[str, str] = field(default_factory=dict)
    file: str | None = None


def management_acceptor(config: Config) -> Acceptor:
    """Return what WebSockets at the management listener are held to: the defaults of an acceptor.

    Its name is that of the listener, or another one where an acceptor has that.
    """
    taken = {one.name for one in config.acceptors}
    return Acceptor(
        name=f"{MANAGEMENT}-websocket" if MANAGEMENT in taken else MANAGEMENT,
        endpoint=config.management.endpoint,
        protocols=frozenset({Wire.WS}),
        allowed_origins=config.management.allowed_origins,
        ws_token_cookie=config.management.ws_token_cookie,
        on_management=True,
    )
