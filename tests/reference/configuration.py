"""Every key of the configuration, from `gateway.config.schema` and the classes that it fills."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum

from gateway.addresses import settings
from gateway.addresses.permissions import PermissionEntry
from gateway.addresses.settings import AddressSettings
from gateway.config import access, schema, tokens, tree
from gateway.config import values as v
from gateway.config.access import ApiRolesConfig, LdapConfig
from gateway.config.audit import AuditConfig
from gateway.config.endpoints import Endpoint, read_endpoint
from gateway.config.reach import reach_of
from gateway.config.streams import ArchiveConfig, StreamConfig
from gateway.config.tls import TlsSource
from gateway.config.tokens import IssuerConfig
from gateway.config.tree import (
    Acceptor,
    AddressConfig,
    Config,
    LoggingConfig,
    ManagementConfig,
    MetricsConfig,
    QueueConfig,
    SinkConfig,
)
from gateway.model import attributes, bounds
from gateway.model.attributes import QueueAttributes
from gateway.model.certificates import CertificateRule
from gateway.model.definitions import DivertDefinition
from gateway.model.quota import Quota
from gateway.model.rows import Row
from tests.reference.tables import attributes_of, sentence, table

_PLAIN = {
    v.text: "text",
    v.name_text: "text, not empty",
    v.names: "array of names",
    v.roles: "array of roles",
    v.origins: "array of origins, `https://shop.example`, or `*`",
    v.cookie: "name of a cookie, or empty",
    v.boolean: "true or false",
    v.size_bytes: "size",
    v.duration_ms: "duration",
    v.seconds: "seconds",
    v.count: "whole number",
    v.number: "number",
    read_endpoint: "endpoint",
    v.address: "address",
    v.optional_address: "address, or empty for none",
    v.selector: "selector",
    tokens._texts: "text, or an array of texts",
    tokens._url: "URL, https or of this machine",
    tokens._claims: "table of claims",
    tokens._roles: "table of roles",
    access.role_names: "array of roles",
    access.group_roles: "table of arrays of roles",
    access.ldap_url: "`ldap://` or `ldaps://`, host and port",
    access.with_user: "text with `{user}`",
    access.with_entry: "text with `{dn}` or `{user}`",
    schema._forwarding: "address, several with commas, or an array",
    schema._ciphers: "array of names, or a text with colons between them",
    schema._roles: "array of roles",
    schema._pattern: "pattern",
}
#: Rules that are not made of numbers.
_BOUNDS = {
    bounds.unlimited: "or -1 for no limit",
    bounds.not_negative: "at least 0",
    settings.ring_size_problem: "at least 1, or -1 for no ring",
    tree.markers_problem: "two characters, or empty",
}
_INTRODUCTION = """\
A size is a number of bytes or a text such as `"10MiB"`; a duration is a number of milliseconds or a
text such as `"5s"`. The last column is the effect of a change with `sluicegate reload`:

- at once: for existing objects and for new ones;
- new connections, new queues: open connections and existing queues keep the old value;
- restart: the reload names the change, and the old value stays in force until a restart;
- refused: existing objects never change it, and a reload refuses the file.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table of the file: its heading, its keys, and the classes that its values fill."""

    title: str
    keys: schema.Table
    reach: str
    classes: tuple[type, ...]
    fields: Mapping[str, str] | None = None
    unwritten: str = "none"


SECTIONS = (
    Section(
        title="Top of the file",
        keys=schema.TOP,
        reach="",
        classes=(Config,),
        unwritten="see the meaning",
    ),
    Section(
        title="`[acceptors.NAME]`",
        keys=schema.ACCEPTOR,
        reach="acceptors",
        classes=(Acceptor,),
        unwritten="see the meaning",
    ),
    Section(
        title="`[acceptors.NAME.tls]` and `[management.tls]`",
        keys=schema.TLS,
        reach="tls",
        classes=(TlsSource,),
        fields={"minimum-version": "minimum"},
    ),
    Section(
        title='`[address-settings."MATCH"]`',
        keys=schema.ADDRESS_SETTINGS,
        reach="address-settings",
        classes=(AddressSettings,),
        unwritten="see the meaning",
    ),
    Section(
        title='`[security-settings."MATCH"]`',
        keys=schema.SECURITY_SETTINGS,
        reach="security-settings",
        classes=(PermissionEntry,),
        unwritten="nobody",
    ),
    Section(
        title="`[addresses.NAME]`",
        keys=schema.ADDRESS,
        reach="addresses",
        classes=(AddressConfig,),
        fields={"routing-type": "routing_types"},
    ),
    Section(
        title="`queues` of `[addresses.NAME]`",
        keys=schema.QUEUE,
        reach="queues",
        classes=(QueueConfig, QueueAttributes),
        unwritten="as the address settings say",
    ),
    Section(
        title="`[diverts.NAME]`",
        keys=schema.DIVERT,
        reach="diverts",
        classes=(DivertDefinition,),
        fields={"forwarding-address": "forwarding", "routing-type": "routing"},
    ),
    Section(
        title="`[wildcard-addresses]`",
        keys=schema.WILDCARDS,
        reach="wildcard-addresses",
        classes=(Config,),
        fields={"routing-enabled": "wildcard_routing"},
    ),
    Section(
        title="`[[certificate-users]]`",
        keys=schema.CERTIFICATE_USER,
        reach="certificate-users",
        classes=(CertificateRule,),
        unwritten="none",
    ),
    Section(
        title="`[quotas.users.NAME]`, `[quotas.roles.NAME]`, `[quotas.remotes.NAME]` and "
        '`[quotas.addresses."MATCH"]`',
        keys=schema.QUOTA,
        reach="quotas",
        classes=(Quota,),
    ),
    Section(title="`[sink]`", keys=schema.SINK, reach="sink", classes=(SinkConfig,)),
    Section(title="`[streams.NAME]`", keys=schema.STREAM, reach="streams", classes=(StreamConfig,)),
    Section(
        title="`[management]`",
        keys=schema.MANAGEMENT,
        reach="management",
        classes=(ManagementConfig,),
    ),
    Section(
        title="`[api-roles]`",
        keys=schema.API_ROLES,
        reach="api-roles",
        classes=(ApiRolesConfig,),
    ),
    Section(title="`[ldap]`", keys=schema.LDAP, reach="ldap", classes=(LdapConfig,)),
    Section(title="`[metrics]`", keys=schema.METRICS, reach="metrics", classes=(MetricsConfig,)),
    Section(title="`[archive]`", keys=schema.ARCHIVE, reach="archive", classes=(ArchiveConfig,)),
    Section(title="`[audit]`", keys=schema.AUDIT, reach="audit", classes=(AuditConfig,)),
    Section(title="`[logging]`", keys=schema.LOGGING, reach="logging", classes=(LoggingConfig,)),
    Section(
        title="`[tokens.NAME]`",
        keys=schema.TOKENS,
        reach="tokens",
        classes=(IssuerConfig,),
        unwritten="see the meaning",
    ),
    Section(
        title="`[[authentication]]`",
        keys=schema.AUTHENTICATION,
        reach="authentication",
        classes=(Config,),
        fields={"path": "users_file", "type": "users_file_required"},
    ),
)
#: Classes whose rows have words of their own.
_SAID: Mapping[type, Mapping[str, Row]] = {
    AddressSettings: settings.ROWS,
    QueueAttributes: attributes.ROWS,
}
#: Of keys whose class speaks of something else.
_MEANINGS = {
    ("security-settings", "send"): "may send to the address",
    ("security-settings", "consume"): "may take messages from a queue of it",
    ("security-settings", "browse"): "may look at what waits in a queue of it, or replay its"
    " stream",
    ("security-settings", "create-address"): "may have the address made by sending or reading, or"
    " served by another routing type",
    ("security-settings", "delete-address"): "may delete the address",
    ("security-settings", "create-durable-queue"): "may have a durable queue of it made, by"
    " sending, reading or subscribing",
    ("security-settings", "delete-durable-queue"): "may end a durable subscription for good, or"
    " have another take its place",
    ("security-settings", "create-non-durable-queue"): "may subscribe without a durable name, and"
    " make temporary queues and addresses",
    ("security-settings", "delete-non-durable-queue"): "may delete a queue of it that is not"
    " durable",
    ("security-settings", "manage"): "is told in full why something is refused there",
    ("security-settings", "view"): "may see it over the management API",
    ("security-settings", "edit"): "may change it over the management API",
    ("authentication", "type"): "`file`: users are in a file of their own",
    ("authentication", "path"): "path of the users file; it has to exist",
}


def takes(read: v.Reader) -> str:
    """Say what a reader takes. Raises KeyError for one that nobody has described."""
    if read in _PLAIN:
        return _PLAIN[read]
    kind = read.__qualname__.partition(".")[0]
    made_of = inspect.getclosurevars(read).nonlocals
    match kind:
        case "bounded":
            rule = _rule(made_of["bound"])
            return f"{takes(made_of['read'])}, {rule}" if rule else takes(made_of["read"])
        case "choice":
            return f"one of {_members(made_of['kind'])}"
        case "choices":
            return f"array of {_members(made_of['kind'])}"
    raise KeyError(f"{read.__qualname__} is not described")


def _rule(bound: bounds.Bound) -> str:
    """Say what a rule lets pass; one of its own kind is said by the meaning of its key."""
    if bound in _BOUNDS:
        return _BOUNDS[bound]
    made_of = inspect.getclosurevars(bound).nonlocals
    match bound.__qualname__.partition(".")[0]:
        case "at_least":
            return f"at least {made_of['low']}"
        case "within":
            return f"{made_of['low']} to {made_of['high']}"
        case "limit":
            return f"at least {made_of['low']}, or -1 for no limit"
        case "not_zero":
            return "at least 1, or -1 for no limit"
        case "at_most":
            return f"0 to {made_of['most']}"
    return ""


def _members(kind: type[Enum]) -> str:
    return ", ".join(f"`{member.value}`" for member in kind)


def _base(read: v.Reader) -> v.Reader:
    """Return the reader inside a bounded one."""
    inner = inspect.getclosurevars(read).nonlocals.get("read") if read not in _PLAIN else None
    return read if inner is None else _base(inner)


def shown(value: object, read: v.Reader, unwritten: str) -> str:
    """Return a default as somebody would write it."""
    match value:
        case None | "":
            return unwritten if value is None else "empty"
        case bool():
            return f"`{str(value).lower()}`"
        case Enum():
            return f"`{value.value}`"
        case Endpoint():
            return f"`{value.text}`"
        case frozenset() | tuple():
            return ", ".join(sorted(f"`{getattr(i, 'value', i)}`" for i in value)) or "none"
        case int() if value > 0 and _base(read) is v.size_bytes:
            return f"`{_in_units(value, [('GiB', 1 << 30), ('MiB', 1 << 20), ('KiB', 1 << 10)])}`"
        case int() if value > 0 and _base(read) is v.duration_ms:
            return f"`{_in_units(value, [('h', 3_600_000), ('m', 60_000), ('s', 1000)])}`"
        case _:
            return f"`{value}`"


def _in_units(value: int, units: list[tuple[str, int]]) -> str:
    for unit, size in units:
        if value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def defaults(one: Section) -> Mapping[str, object]:
    """Return field -> default; a field that has none is missing."""
    found: dict[str, object] = {}
    for field in fields(one.classes[0]):
        if field.default is not MISSING:
            found[field.name] = field.default
        elif field.default_factory is not MISSING:
            found[field.name] = field.default_factory()
    return found


def _rows(one: Section) -> Iterator[list[str]]:
    told: dict[str, str] = {}
    for documented in reversed(one.classes):
        told |= {row.name: row.words for row in _SAID.get(documented, {}).values() if row.words}
        told |= attributes_of(documented)
    standing = defaults(one)
    for key, read in one.keys.keys.items():
        if key in one.keys.aliases:
            continue
        name = (one.fields or {}).get(key, key.replace("-", "_"))
        meaning = _MEANINGS.get((one.reach, key)) or told[name]
        unset = "empty: " if read is v.optional_address else "not written: "
        meaning = meaning.replace("None: ", unset)
        if key in one.keys.required:
            default = "must be there"
        elif name in standing:
            default = shown(standing[name], read, one.unwritten)
        else:
            default = one.unwritten
        # New contents of the files are served without a reload.
        reach = "restart" if one.reach == "tls" else reach_of(one.reach, key).value
        yield [f"`{key}`", takes(read), default, sentence(meaning), reach.replace("-", " ")]


def render() -> str:
    """Return the page below its title. Raises KeyError where a key has no meaning."""
    parts = [_INTRODUCTION]
    for one in SECTIONS:
        rows = list(_rows(one))
        parts.append(
            f"## {one.title}\n\n"
            + table(["key", "takes", "default", "meaning", "reload"], rows)
            + _refused(one.keys)
        )
    return "\n".join(parts)


def _refused(keys: schema.Table) -> str:
    if not keys.later:
        return ""
    listed = [f"- `{key}`: {keys.refusal(key)}" for key in sorted(keys.later)]
    return "\nThese keys are refused by name:\n\n" + "\n".join(listed) + "\n"
