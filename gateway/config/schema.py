"""Every key that a configuration may have: how it is read, which known ones must wait. Pure.

One `Table` for each table of the file. A key that is in none of the sets is unknown; one in
`later` is known to Artemis or promised by us and refused by name, because a setting that is
silently ignored is a trap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.addresses import settings
from gateway.addresses.match import markers_problem
from gateway.addresses.settings import ID_CACHE_MAX, Durability
from gateway.config import values as v
from gateway.config.endpoints import read_endpoint
from gateway.config.tls import TlsVersion
from gateway.config.tree import LogFormat, LogLevel, Sasl, StompDiskFull, Wire
from gateway.model import attributes
from gateway.model.address import RoutingType, parse_destination
from gateway.model.bounds import unlimited
from gateway.model.definitions import DivertRouting
from gateway.model.errors import RefusedError
from gateway.selectors import compile_selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The keys of one table.

    Attributes:
        keys: key -> reader of its value.
        required: keys that must be there.
        later: known keys that this version does not support.
        why: of those, key -> what it is for, and why it does nothing here.
        nested: keys that are tables of their own, checked elsewhere.
    """

    keys: Mapping[str, v.Reader]
    required: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()
    why: Mapping[str, str] = field(default_factory=dict)
    nested: frozenset[str] = field(default_factory=frozenset)

    def refusal(self, key: str) -> str:
        """Say why a key of `later` is refused."""
        return self.why.get(key, "known, not supported yet by this version")

    def known(self) -> list[str]:
        """Return every key that is worth suggesting for a misspelt one."""
        return sorted({*self.keys, *self.nested})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _filter(value: object) -> str:
    taken = v.name_text(value)
    try:
        compile_selector(taken)
    except RefusedError as error:
        raise ValueError(error.refusal.text) from None
    return taken


def _markers(value: object) -> str:
    taken = v.text(value)
    problem = markers_problem(taken)
    if problem is not None:
        raise ValueError(problem)
    return taken


def _forwarding(value: object) -> tuple[str, ...]:
    """Take one address, several with commas between them, or an array."""
    items = v.text(value).split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise ValueError(f"needs an address or an array of addresses, not {v.describe(value)}")
    return tuple(_target(item) for item in items)


def _target(value: object) -> str:
    taken = v.name_text(value).strip()
    try:
        parse_destination(taken)
    except RefusedError as error:
        raise ValueError(error.refusal.text) from None
    return taken


def _modifier(value: object) -> float:
    taken = v.number(value)
    if not 1.0 <= taken <= 1000.0:
        raise ValueError(f"{taken} is out of range; it lies between 1.0 and 1000.0")
    return taken


TOP: Final = Table(
    keys={
        "name": v.name_text,
        "data-directory": v.name_text,
        "journal-directory": v.name_text,
        "paging-directory": v.name_text,
        "global-max-size": v.limit(v.size_bytes, 1 << 20),
        "global-max-messages": v.limit(v.count),
        "user-max-addresses": v.limit(v.count),
        "user-max-queues": v.limit(v.count),
        "user-max-consumers": v.limit(v.count),
        "user-max-links": v.limit(v.count),
        "global-max-addresses": v.limit(v.count),
        "global-max-queues": v.limit(v.count),
        "global-max-consumers": v.limit(v.count),
        "global-max-links": v.limit(v.count),
        "journal-file-size": v.within(1 << 20, 1 << 31, v.size_bytes),
        "journal-compact-min-files": v.at_least(0, v.count),
        # Above three quarters what is copied would soon be copied again.
        "journal-compact-percentage": v.within(1, 75, v.count),
        "store-task-limit": v.at_least(1, v.count),
        "concurrent-store-and-dispatch-queues": v.boolean,
        "concurrent-store-and-dispatch-topics": v.boolean,
        "store-linger": v.within(0, 1_000, v.duration_ms),
        "store-lag-limit": v.limit(v.duration_ms),
        "durability": v.choice(Durability),
        "sync-interval": v.within(1, 1_000, v.duration_ms),
        "max-disk-usage": v.within(-1, 100, v.count),
        "min-disk-free": v.limit(v.size_bytes),
        "disk-scan-period": v.at_least(1, v.duration_ms),
        "ballast-size": v.at_least(0, v.size_bytes),
        "scrub-period": v.at_least(-1, v.duration_ms),
        "scrub-rate": v.at_least(1 << 16, v.size_bytes),
        "address-queue-scan-period": v.at_least(-1, v.duration_ms),
        "message-expiry-scan-period": v.at_least(-1, v.duration_ms),
        "transaction-timeout": v.at_least(1, v.duration_ms),
        "stomp-default-persistent": v.boolean,
        "allow-insecure": v.boolean,
        "literal-match-markers": _markers,
        "id-cache-size": v.within(0, ID_CACHE_MAX, v.count),
        "persist-id-cache": v.boolean,
    },
    nested=_words(
        "acceptors address-settings addresses diverts management metrics logging authentication"
        " streams wildcard-addresses"
    ),
    later=_words(
        "large-messages-directory bindings-directory page-sync-timeout"
        " on-corruption amqp-use-core-subscription-naming"
        " journal-datasync journal-min-files journal-pool-files journal-type"
        " journal-buffer-timeout journal-buffer-size"
        " journal-sync-transactional journal-sync-non-transactional"
        " journal-max-io journal-max-atticjournal-files"
        " security-settings persistence-enabled"
        " connection-ttl-override max-redelivery-records resource-limit-settings"
    ),
    why={
        "resource-limit-settings": "limits single users by name in Artemis; here user-max-queues"
        " and the other user-max keys hold for each user"
    },
)

ACCEPTOR: Final = Table(
    keys={
        "endpoint": read_endpoint,
        "protocols": v.choices(Wire, {"WS": "is known, but not supported yet by this version"}),
        "allow-anonymous": v.boolean,
        "sasl-mechanisms": v.choices(
            Sasl,
            {
                "ANONYMOUS": "is offered by allow-anonymous, and where there are no users",
                "EXTERNAL": "needs client certificates, which this version does not ask for",
            },
        ),
        "amqp-credits": v.within(1, 1_000_000, v.count),
        "amqp-low-credits": v.within(0, 1_000_000, v.count),
        "amqp-use-modified-for-transient-delivery-errors": v.boolean,
        "amqp-duplicate-detection": v.boolean,
        "amqp-drain-on-transient-delivery-errors": v.boolean,
        "amqp-link-quiesce-timeout": v.limit(v.duration_ms),
        "amqp-idle-timeout": v.at_least(0, v.duration_ms),
        # 512 is the least that every peer must take [AMQP 2.7.1].
        "max-frame-size": v.within(512, 1 << 24, v.size_bytes),
        "max-message-size": v.within(1024, 1 << 30, v.size_bytes),
        "heart-beat-to-connection-ttl-modifier": _modifier,
        "connection-ttl": v.limit(v.duration_ms),
        "connection-ttl-min": v.at_least(1, v.duration_ms),
        "connection-ttl-max": v.limit(v.duration_ms),
        "stomp-disk-full": v.choice(StompDiskFull),
        "stomp-consumer-window-size": v.at_least(-1, v.size_bytes),
        "max-unread-size": v.within(65_536, 1 << 26, v.size_bytes),
        "unread-timeout": v.within(1_000, 3_600_000, v.duration_ms),
        "unfinished-timeout": v.within(1_000, 3_600_000, v.duration_ms),
        "unfinished-min-rate": v.within(1, 1 << 30, v.size_bytes),
        "consumer-stuck-timeout": v.limit(v.duration_ms, 1_000),
        "anycast-prefix": v.text,
        "multicast-prefix": v.text,
        "disable-stomp-server-header": v.boolean,
        "connections-allowed": v.at_least(1, v.count),
        "unauthenticated-connections-allowed": v.at_least(1, v.count),
    },
    nested=frozenset({"tls"}),
    required=frozenset({"endpoint"}),
    later=_words(
        "amqp-treat-reject-as-unmodified-delivery-failed amqp-min-large-message-size"
        " stomp-max-frame-payload-length stomp-enable-message-id"
        " stomp-min-large-message-size allowed-origins ws-ping-interval direct-deliver"
    ),
)

_NAMED_ONLY: Final = (
    "removes what has gone from the file when that is read again; here a reload names it and"
    " deletes nothing: delete over the API what is to go"
)
#: Keys of Artemis that have nothing to do here.
_NOT_HERE: Final = {
    "config-delete-queues": _NAMED_ONLY,
    "config-delete-addresses": _NAMED_ONLY,
    "config-delete-diverts": _NAMED_ONLY,
    "default-consumer-window-size": "is for Artemis' Core clients, which this gateway does not"
    " serve; AMQP clients say by credit how much they take, and for STOMP there is"
    " stomp-consumer-window-size of an acceptor",
    "initial-queue-buffer-size": "sizes a buffer that Artemis' queues have; here a queue has none,"
    " and takes the memory of what it holds",
    "message-counter-history-day-limit": "is for the counters by day of Artemis' console, which are"
    " not kept here; let a monitoring system keep what /metrics tells",
    "queue-prefetch": "is for OpenWire clients, which this gateway does not serve",
    "redistribution-delay": "is for clusters, and a gateway here is alone",
}

ADDRESS_SETTINGS: Final = Table(
    keys=v.readers(settings.ROWS.values()),
    later=frozenset(_NOT_HERE),
    why=_NOT_HERE,
)

QUEUE: Final = Table(
    keys={
        "name": v.address,
        "routing-type": v.choice(RoutingType),
        "durable": v.boolean,
        "ring-size": v.bounded(v.count, settings.ring_size_problem),
        "max-consumers": v.bounded(v.count, unlimited),
        "filter": _filter,
        **v.readers(attributes.ROWS.values()),
    },
    required=frozenset({"name"}),
    later=_words("user"),
)

ADDRESS: Final = Table(
    keys={
        "routing-type": v.choice(RoutingType),
        "routing-types": v.choices(RoutingType),
    },
    nested=frozenset({"queues"}),
)

DIVERT: Final = Table(
    keys={
        "address": v.address,
        "forwarding-address": _forwarding,
        "exclusive": v.boolean,
        "filter": _filter,
        "routing-type": v.choice(DivertRouting),
    },
    required=frozenset({"address", "forwarding-address"}),
    later=_words("routing-name transformer transformer-class-name"),
)

WILDCARDS: Final = Table(
    keys={"routing-enabled": v.boolean},
    later=_words("enabled delimiter any-words single-word"),
)

_CLIENTS: Final = _words("need-client-auth want-client-auth client-certificates client-ca")
_JAVA: Final = _words("key-store-path key-store-password trust-store-path trust-store-password")
TLS: Final = Table(
    keys={
        "certificate": v.name_text,
        "key": v.name_text,
        "chain": v.name_text,
        "directory": v.name_text,
        "minimum-version": v.choice(TlsVersion),
    },
    later=_words("key-password ciphers") | _CLIENTS | _JAVA,
    why={
        "key-password": "is for keys that are encrypted, and this version takes only plain ones",
        **dict.fromkeys(_CLIENTS, "is for certificates of clients, not supported yet"),
        **dict.fromkeys(_JAVA, "is for a store of Java's; write certificate and key, in PEM"),
    },
)

MANAGEMENT: Final = Table(
    keys={
        "endpoint": read_endpoint,
        "enabled": v.boolean,
        "allowed-hosts": v.names,
        "connections-allowed": v.at_least(4, v.count),
    },
    nested=frozenset({"tls"}),
    later=_words("allowed-origins console token"),
)
METRICS: Final = Table(keys={"enabled": v.boolean}, later=_words("per-object"))
LOGGING: Final = Table(keys={"format": v.choice(LogFormat), "level": v.choice(LogLevel)})
AUTHENTICATION: Final = Table(
    keys={"type": v.name_text, "path": v.name_text}, required=frozenset({"type", "path"})
)
STREAM: Final = Table(
    keys={
        "address": v.address,
    },
    required=frozenset({"address"}),
    later=_words("address-pattern selector retention-bytes retention-time"),
)
