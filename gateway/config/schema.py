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
from gateway.config import access, audit, streams, tokens, tree
from gateway.config import values as v
from gateway.config.tls import ClientCertificates, TlsVersion
from gateway.model import attributes, quota
from gateway.model.address import RoutingType, parse_destination
from gateway.model.certificates import checked_pattern
from gateway.model.definitions import DivertRouting
from gateway.model.errors import RefusedError
from gateway.model.principal import Permission
from gateway.model.rows import rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The keys of one table.

    Attributes:
        keys: key -> reader of its value.
        required: keys that must be there.
        later: known keys that this version does not support.
        why: of those, key -> what it is for, and why it does nothing here.
        nested: keys that are tables of their own, checked elsewhere.
        aliases: of `keys`, those that are another word for one of them.
    """

    keys: Mapping[str, v.Reader]
    required: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()
    why: Mapping[str, str] = field(default_factory=dict)
    nested: frozenset[str] = field(default_factory=frozenset)
    aliases: frozenset[str] = frozenset()

    def refusal(self, key: str) -> str:
        """Say why a key of `later` is refused."""
        return self.why.get(key, "known, not supported yet by this version")

    def known(self) -> list[str]:
        """Return every key that is worth suggesting for a misspelt one."""
        return sorted({*self.keys, *self.nested} - self.aliases)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


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


TOP: Final = Table(
    keys=v.readers(rows_of(tree.Config)),
    nested=_words(
        "acceptors address-settings addresses diverts management metrics logging authentication"
        " sink streams archive tokens wildcard-addresses security-settings api-roles"
        " ldap certificate-users quotas audit"
    ),
    later=_words(
        "large-messages-directory bindings-directory page-sync-timeout"
        " on-corruption amqp-use-core-subscription-naming"
        " journal-datasync journal-min-files journal-pool-files journal-type"
        " journal-buffer-timeout journal-buffer-size"
        " journal-sync-transactional journal-sync-non-transactional"
        " journal-max-io journal-max-atticjournal-files"
        " persistence-enabled"
        " connection-ttl-override max-redelivery-records resource-limit-settings"
    ),
    why={
        "resource-limit-settings": "limits single users by name in Artemis; here a table below"
        " quotas.users does, with the keys connections and links, and user-max-queues holds for"
        " each user"
    },
)

ACCEPTOR: Final = Table(
    keys=v.readers(rows_of(tree.Acceptor)),
    nested=frozenset({"tls"}),
    required=frozenset({"endpoint"}),
    later=_words(
        "amqp-treat-reject-as-unmodified-delivery-failed amqp-min-large-message-size"
        " stomp-enable-message-id stomp-min-large-message-size direct-deliver"
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
    keys=v.readers(settings.ROWS),
    later=frozenset(_NOT_HERE),
    why=_NOT_HERE,
)


def _artemis(key: str) -> str:
    """Return a key as Artemis writes it: `createAddress`."""
    first, *others = key.split("-")
    return first + "".join(word.title() for word in others)


#: Each permission by its key here and by that of Artemis.
PERMISSIONS: Final = {name: one for one in Permission for name in (one.value, _artemis(one.value))}
SECURITY_SETTINGS: Final = Table(
    keys=dict.fromkeys(PERMISSIONS, v.roles),
    aliases=frozenset(PERMISSIONS) - {one.value for one in Permission},
    later=frozenset({"security-setting-plugin"}),
    why={
        "security-setting-plugin": "loads a class of Java's into Artemis; write the settings here"
    },
)

QUEUE: Final = Table(
    keys=v.readers({**rows_of(tree.QueueConfig), **attributes.ROWS}),
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
        "filter": v.selector,
        "routing-type": v.choice(DivertRouting),
    },
    required=frozenset({"address", "forwarding-address"}),
    later=_words("routing-name transformer transformer-class-name"),
)

WILDCARDS: Final = Table(
    keys={"routing-enabled": v.boolean},
    later=_words("enabled delimiter any-words single-word"),
)


def _ciphers(value: object) -> tuple[str, ...]:
    """Take an array of names, or a text with colons between them, as Artemis and OpenSSL write."""
    items = v.name_text(value).split(":") if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise ValueError(f"needs an array of cipher suites, not {v.describe(value)}")
    return tuple(v.name_text(item).strip() for item in items)


def _roles(value: object) -> frozenset[str]:
    """Take an array of roles, as they are written."""
    if not isinstance(value, list):
        raise ValueError(f"needs an array of roles, not {v.describe(value)}")  # noqa: TRY004
    return frozenset(v.name_text(item) for item in value)


def _pattern(value: object) -> str:
    """Take a pattern that is never slow."""
    return checked_pattern(v.name_text(value))


_CLIENTS: Final = _words("need-client-auth want-client-auth")
_JAVA: Final = _words("key-store-path key-store-password trust-store-path trust-store-password")
TLS: Final = Table(
    keys={
        "certificate": v.name_text,
        "key": v.name_text,
        "chain": v.name_text,
        "directory": v.name_text,
        "minimum-version": v.choice(TlsVersion),
        "ciphers": _ciphers,
        "hostname": v.name_text,
        "client-certificates": v.choice(ClientCertificates),
        "client-ca": v.name_text,
        "client-crl": v.name_text,
        "client-depth": v.within(0, 10, v.count),
    },
    later=_words("key-password") | _CLIENTS | _JAVA,
    why={
        "key-password": "is for keys that are encrypted, and this version takes only plain ones",
        "need-client-auth": 'is client-certificates = "required" here',
        "want-client-auth": 'is client-certificates = "asked" here',
        **dict.fromkeys(_JAVA, "is for a store of Java's; write certificate and key, in PEM"),
    },
)

MANAGEMENT: Final = Table(
    keys=v.readers(rows_of(tree.ManagementConfig)),
    nested=frozenset({"tls"}),
    later=_words("console token"),
)
API_ROLES: Final = Table(keys=v.readers(rows_of(access.ApiRolesConfig)))
LDAP: Final = Table(keys=v.readers(rows_of(access.LdapConfig)), required=frozenset({"url"}))
METRICS: Final = Table(keys=v.readers(rows_of(tree.MetricsConfig)), later=_words("per-object"))
SINK: Final = Table(keys=v.readers(rows_of(tree.SinkConfig)))
AUDIT: Final = Table(keys=v.readers(rows_of(audit.AuditConfig)))
ARCHIVE: Final = Table(keys=v.readers(rows_of(streams.ArchiveConfig)))
LOGGING: Final = Table(keys=v.readers(rows_of(tree.LoggingConfig)))
AUTHENTICATION: Final = Table(
    keys={"type": v.name_text, "path": v.name_text}, required=frozenset({"type", "path"})
)
TOKENS: Final = Table(
    keys=v.readers(rows_of(tokens.IssuerConfig)), required=frozenset({"issuer", "audience"})
)
CERTIFICATE_USER: Final = Table(
    keys={
        "user": v.name_text,
        "roles": _roles,
        "subject": v.name_text,
        "subject-matches": _pattern,
        "issuer": v.name_text,
        "dns": v.name_text,
        "dns-matches": _pattern,
        "uri": v.name_text,
        "uri-matches": _pattern,
        "email": v.name_text,
        "email-matches": _pattern,
    },
    required=frozenset({"user"}),
)
QUOTA: Final = Table(keys=v.readers(quota.ROWS))
STREAM: Final = Table(
    keys=v.readers(rows_of(streams.StreamConfig)),
    required=frozenset({"address"}),
    later=_words("address-pattern selector retention-time"),
)
