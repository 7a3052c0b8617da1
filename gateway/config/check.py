"""A merged tree of raw values -> `Config`, or everything that is wrong with it. Pure.

Nothing stops at the first mistake: each table is walked to its end, and a value that could not be
read leaves its default behind so that the walk can go on.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.addresses.match import SettingsEntry, SettingsTable, literal, match_problem
from gateway.addresses.permissions import (
    PermissionEntry,
    PermissionTable,
    permission_match_problem,
)
from gateway.addresses.settings import ROWS
from gateway.config import schema
from gateway.config.access import ApiRolesConfig, LdapConfig
from gateway.config.audit import AuditConfig
from gateway.config.endpoints import Endpoint
from gateway.config.errors import ConfigError, Path, show_path
from gateway.config.issuers import read_issuers
from gateway.config.quotas import read_quotas
from gateway.config.sources import Layers
from gateway.config.streams import ArchiveConfig, Retain, StreamConfig
from gateway.config.tls import ClientCertificates, TlsSource, TlsVersion, table_problem
from gateway.config.tree import (
    ANYCAST_PREFIX,
    BALLAST_BYTES,
    JOURNAL_FILE_BYTES,
    MIB,
    MULTICAST_PREFIX,
    Acceptor,
    AddressConfig,
    Config,
    LoggingConfig,
    ManagementConfig,
    MetricsConfig,
    QueueConfig,
    Sasl,
    SinkConfig,
)
from gateway.config.values import describe
from gateway.config.walk import Walk
from gateway.model import attributes
from gateway.model.address import RoutingType, check_name
from gateway.model.certificates import CertificateRule, rule_problem
from gateway.model.definitions import DivertDefinition, DivertRouting
from gateway.model.errors import RefusedError
from gateway.model.principal import Permission


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What the machine decides: its memory, where we are, and where data goes by default."""

    memory_bytes: int
    working_directory: str
    data_directory: str


def build(layers: Layers, host: HostFacts, file: str | None = None) -> Config:
    """Return the configuration; raises ConfigError with every problem."""
    walk = Walk(layers)
    tree = layers.tree
    base = posixpath.dirname(file) if file else host.working_directory
    top = walk.table(tree, (), schema.TOP)
    sections: dict[str, Any] = {
        "acceptors": _acceptors(walk, tree.get("acceptors", {}), base),
        "address_settings": _address_settings(
            walk, tree.get("address-settings", {}), top.get("literal_match_markers", ""), top
        ),
        "security_settings": _security_settings(
            walk, tree.get("security-settings", {}), top.get("literal_match_markers", "")
        ),
        "addresses": _addresses(walk, tree.get("addresses", {})),
        "diverts": _diverts(walk, tree.get("diverts", {})),
        "wildcard_routing": walk.table(
            tree.get("wildcard-addresses", {}), ("wildcard-addresses",), schema.WILDCARDS
        ).get("routing_enabled", True),
        "streams": _streams(walk, tree.get("streams", {}), top),
        "certificate_users": _certificate_users(walk, tree.get("certificate-users", [])),
        "quotas": read_quotas(walk, tree.get("quotas", {})),
        "archive": _archive(walk, tree.get("archive", {})),
        "tokens": read_issuers(
            walk, walk.tables(tree.get("tokens", {}), ("tokens",)), lambda one: _absolute(one, base)
        ),
        "audit": _audit(walk, tree.get("audit", {}), base),
        "management": _management(walk, tree.get("management", {}), base),
        "api_roles": ApiRolesConfig(
            **walk.table(tree.get("api-roles", {}), ("api-roles",), schema.API_ROLES)
        ),
        "ldap": _ldap(walk, tree.get("ldap"), base),
        "metrics": MetricsConfig(
            **walk.table(tree.get("metrics", {}), ("metrics",), schema.METRICS)
        ),
        "sink": SinkConfig(**walk.table(tree.get("sink", {}), ("sink",), schema.SINK)),
        "logging": LoggingConfig(
            **walk.table(tree.get("logging", {}), ("logging",), schema.LOGGING)
        ),
    }
    users = _users_file(walk, tree.get("authentication", []))
    _check_ballast(walk, top)
    if walk.problems:
        raise ConfigError(walk.problems)
    top.setdefault("global_max_size", default_memory(host.memory_bytes))
    data = _absolute(top.pop("data_directory", host.data_directory), base)
    journal = _absolute(top.pop("journal_directory", posixpath.join(data, "journal")), base)
    paging = _absolute(top.pop("paging_directory", posixpath.join(data, "paging")), base)
    return Config(
        data_directory=data,
        journal_directory=journal,
        paging_directory=paging,
        users_file=_absolute(users or posixpath.join(data, "users.toml"), base),
        users_file_required=users is not None,
        origins={show_path(path): where for path, where in layers.origins.items()},
        file=file,
        **top,
        **sections,
    )


def _check_ballast(walk: Walk, top: dict[str, Any]) -> None:
    """Refuse a reserve that a journal without room could not live on; one not written is enough."""
    file = top.get("journal_file_size", JOURNAL_FILE_BYTES)
    ballast = top.setdefault("ballast_size", max(BALLAST_BYTES, file))
    if 0 < ballast < file:
        walk.wrong(
            ("ballast-size",),
            f"is {ballast} bytes, and a full disk is drained with one journal file of it: at least "
            f"journal-file-size, which is {file}, or 0 for none",
        )


def default_memory(memory_bytes: int) -> int:
    """Return the default `global-max-size`: the less of 512 MiB and a quarter of the memory."""
    return max(16 << 20, min(512 << 20, memory_bytes // 4))


def _absolute(path: str, base: str) -> str:
    return posixpath.normpath(posixpath.join(base, path))


def _management(walk: Walk, raw: object, base: str) -> ManagementConfig:
    read = walk.table(raw, ("management",), schema.MANAGEMENT)
    config = ManagementConfig(**read)
    return replace(config, endpoint=_secured(walk, ("management",), raw, config.endpoint, base))


def _ldap(walk: Walk, raw: object, base: str) -> LdapConfig:
    if raw is None:
        return LdapConfig()
    before = len(walk.problems)
    read = walk.table(raw, ("ldap",), schema.LDAP)
    for key in ("ca_file", "password_file"):
        if key in read:
            read[key] = _absolute(read[key], base)
    config = LdapConfig(**read)
    problem = config.problem() if len(walk.problems) == before else None
    if problem is not None:
        walk.wrong(("ldap", problem[0]), problem[1])
    return config


#: Keys of a `tls` table that are paths.
_TLS_FILES = ("certificate", "key", "chain", "directory", "client_ca", "client_crl")


def _secured(walk: Walk, path: Path, table: object, endpoint: Endpoint, base: str) -> Endpoint:
    """Return a listener's endpoint with what its table `tls` says."""
    if not isinstance(table, Mapping) or "tls" not in table:
        return endpoint
    here = (*path, "tls")
    before = len(walk.problems)
    read = walk.table(table["tls"], here, schema.TLS)
    if len(walk.problems) > before:
        return endpoint
    problem = table_problem(read, secure=endpoint.tls)
    if problem is not None:
        key, text = problem
        walk.wrong((*here, key) if key else here, text)
        return endpoint
    if endpoint.tls and endpoint.source is None:
        walk.wrong(here, f"has no say in {endpoint.text}, whose TLS is not the gateway's own")
        return endpoint
    minimum = read.pop("minimum_version", TlsVersion.TLS_1_2)
    read |= {key: _absolute(read[key], base) for key in _TLS_FILES if key in read}
    if endpoint.source is not None:
        source = replace(endpoint.source, minimum=minimum, **read)
        if minimum is TlsVersion.TLS_1_3 and source.maximum is TlsVersion.TLS_1_2:
            walk.wrong((*here, "minimum-version"), "is above what the endpoint's sslmethod speaks")
    else:
        source = TlsSource(minimum=minimum, table=True, **read)
    return replace(endpoint, tls=True, source=source)


def low_credits(most: int) -> int:
    """Return at which credit a sender is topped up where only `amqp-credits` is written."""
    return min(300, most * 3 // 10)


def _acceptors(walk: Walk, raw: object, base: str) -> tuple[Acceptor, ...]:
    found = []
    endpoints: dict[str, str] = {}
    for name, table in walk.tables(raw, ("acceptors",)):
        path = ("acceptors", name)
        before = len(walk.problems)
        read = walk.table(table, path, schema.ACCEPTOR)
        if len(walk.problems) > before:
            continue
        read["endpoint"] = _secured(walk, path, table, read["endpoint"], base)
        if "amqp_low_credits" not in read and "amqp_credits" in read:
            read["amqp_low_credits"] = low_credits(read["amqp_credits"])
        acceptor = Acceptor(name=name, **read)
        _check_acceptor(walk, path, acceptor)
        other = endpoints.setdefault(acceptor.endpoint.text, name)
        if other != name and not acceptor.endpoint.shown.endswith(":0"):
            walk.wrong((*path, "endpoint"), f"is the endpoint of acceptors.{other} as well")
        found.append(acceptor)
    return tuple(found)


def _check_acceptor(walk: Walk, path: Path, acceptor: Acceptor) -> None:
    """Values that contradict one another."""
    source = acceptor.endpoint.source
    asks = source is not None and source.client_certificates is not ClientCertificates.NO
    if Sasl.EXTERNAL in acceptor.sasl_mechanisms and not asks:
        walk.wrong(
            (*path, "sasl-mechanisms"),
            '"EXTERNAL" needs client certificates: client-certificates and client-ca in the table'
            " tls of this acceptor",
        )
    if acceptor.amqp_low_credits > acceptor.amqp_credits:
        walk.wrong(
            (*path, "amqp-low-credits"),
            f"{acceptor.amqp_low_credits} is above amqp-credits, {acceptor.amqp_credits}: credit"
            f" never is that high; {low_credits(acceptor.amqp_credits)} is what fits",
        )
    least, most = acceptor.connection_ttl_min, acceptor.connection_ttl_max
    if 0 <= most < least:
        walk.wrong(
            (*path, "connection-ttl-max"), f"{most} ms is below connection-ttl-min, {least} ms"
        )
    prefixes = acceptor.prefixes(ANYCAST_PREFIX, MULTICAST_PREFIX)
    if prefixes[0] and prefixes[0] == prefixes[1]:
        walk.wrong((*path, "multicast-prefix"), "is the same as anycast-prefix; they must differ")


def _address_settings(
    walk: Walk, raw: object, markers: str, top: Mapping[str, Any]
) -> SettingsTable:
    entries = []
    if "durability" in top:
        origin = walk.layers.origin(("durability",))
        values: dict[str, Any] = {"durability": top["durability"]}
        entries.append(SettingsEntry(match="#", values=values, origins={"durability": origin}))
    for match, table in walk.tables(raw, ("address-settings",)):
        path: Path = ("address-settings", match)
        problem = match_problem(match) if literal(match, markers) is None else None
        if problem is not None:
            walk.wrong(path, problem)
        values = walk.table(table, path, schema.ADDRESS_SETTINGS)
        origins = {name: walk.layers.origin((*path, ROWS[name].key)) for name in values}
        entries.append(SettingsEntry(match=match, values=values, origins=origins))
    settings = SettingsTable(entries, markers=markers)
    for entry, name, why in settings.contradictions():
        walk.wrong(("address-settings", entry.match, ROWS[name].key), why)
    return settings


def _security_settings(walk: Walk, raw: object, markers: str) -> PermissionTable:
    entries = []
    for match, table in walk.tables(raw, ("security-settings",)):
        path: Path = ("security-settings", match)
        problem = permission_match_problem(match) if literal(match, markers) is None else None
        if problem is not None:
            walk.wrong(path, problem)
        read = walk.table(table, path, schema.SECURITY_SETTINGS)
        roles: dict[Permission, frozenset[str]] = {}
        origins: dict[Permission, str] = {}
        for key in table if isinstance(table, Mapping) else ():
            permission = schema.PERMISSIONS.get(key)
            if permission in roles:
                walk.wrong((*path, key), f"is {permission.value} in Artemis' words; keep one")
            elif permission is not None and (written := key.replace("-", "_")) in read:
                roles[permission] = read[written]
                origins[permission] = walk.layers.origin((*path, key))
        origin = walk.layers.origin(path)
        entries.append(PermissionEntry(match=match, roles=roles, origins=origins, origin=origin))
    return PermissionTable(entries, markers=markers)


def _addresses(walk: Walk, raw: object) -> tuple[AddressConfig, ...]:
    found = []
    owners: dict[str, str] = {}
    for name, table in walk.tables(raw, ("addresses",)):
        path: Path = ("addresses", name)
        _check_named(walk, path, name, "address")
        read = walk.table(table, path, schema.ADDRESS)
        types = _routing_types(walk, path, read)
        below = table.get("queues", []) if isinstance(table, Mapping) else []
        queues = []
        for index, item in enumerate(walk.array(below, (*path, "queues"))):
            here: Path = (*path, "queues", index)
            queue = _queue(walk, here, item, types)
            if queue is None:
                continue
            if queue.name in owners:
                walk.wrong(
                    (*here, "name"), f"queue {queue.name} is in addresses.{owners[queue.name]} too"
                )
            owners[queue.name] = name
            queues.append(queue)
        found.append(AddressConfig(name=name, routing_types=types, queues=tuple(queues)))
    return tuple(found)


def _routing_types(walk: Walk, path: Path, read: dict[str, Any]) -> frozenset[RoutingType]:
    if "routing_type" in read and "routing_types" in read:
        walk.wrong(path, "has both routing-type and routing-types; keep one")
    if "routing_types" in read:
        return frozenset(read["routing_types"])
    return frozenset({read.get("routing_type", RoutingType.ANYCAST)})


def _queue(
    walk: Walk, path: Path, raw: object, types: frozenset[RoutingType]
) -> QueueConfig | None:
    before = len(walk.problems)
    read = walk.table(raw, path, schema.QUEUE)
    if len(walk.problems) > before:
        return None
    wanted = read.get("routing_type")
    if wanted is None and len(types) > 1:
        walk.wrong(path, "needs the key routing-type, since its address has both")
    elif wanted is not None and wanted not in types:
        walk.wrong((*path, "routing-type"), f"{wanted.value} is not a routing type of its address")
    if wanted is None and len(types) == 1:
        read["routing_type"] = next(iter(types))
    said = tuple((name, read.pop(name)) for name in attributes.ROWS if name in read)
    return QueueConfig(**read, said=said)


def _archive(walk: Walk, raw: object) -> ArchiveConfig:
    read = walk.table(raw, ("archive",), schema.ARCHIVE)
    table = read.get("table", "")
    if table and not table.startswith(("s3://", "gs://", "az://", "/")):
        text = f'needs s3://, gs://, az:// or an absolute folder, not "{table}"'
        walk.wrong(("archive", "table"), text)
    if not table and (read.get("endpoint") or read.get("region")):
        walk.wrong(("archive",), "names a store, and no table; write table = as well")
    return ArchiveConfig(**read)


def _audit(walk: Walk, raw: object, base: str) -> AuditConfig:
    read = walk.table(raw, ("audit",), schema.AUDIT)
    names = [name for name in ("file", "key_file") if name in read]
    paths: dict[str, Any] = {name: _absolute(read[name], base) for name in names}
    if paths and len(set(paths.values())) < len(paths):
        walk.wrong(("audit", "key-file"), "is the audit file itself; the key is a file of its own")
    return AuditConfig(**{**read, **paths})


def _check_bytes(walk: Walk, path: Path, read: Mapping[str, Any], top: Mapping[str, Any]) -> None:
    """Refuse local bytes that retention would never let come to pass."""
    local = read.get("local_bytes")
    local = top.get("stream_local_bytes", 256 * MIB) if local is None else local
    most = read.get("retention_bytes")
    most = top.get("stream_retention_bytes", 5 << 30) if most is None else most
    retain = read.get("retain") or top.get("stream_retain", Retain.ALL)
    if retain is Retain.ARCHIVED and local >= most:
        text = f"{local} bytes stay here although archived, but {most} is the most that may stay"
        name = "stream-local-bytes" if not path else "local-bytes"
        walk.wrong((*path, name), f"{text}; raise retention-bytes, or lower this")


def _streams(walk: Walk, raw: object, top: Mapping[str, Any]) -> tuple[StreamConfig, ...]:
    found = []
    _check_bytes(walk, (), {}, top)
    for name, table in walk.tables(raw, ("streams",)):
        before = len(walk.problems)
        _check_named(walk, ("streams", name), name, "stream")
        read = walk.table(table, ("streams", name), schema.STREAM)
        _check_bytes(walk, ("streams", name), read, top)
        if len(walk.problems) == before:
            found.append(StreamConfig(name=name, **read))
    return tuple(found)


def _diverts(walk: Walk, raw: object) -> tuple[DivertDefinition, ...]:
    found = []
    for name, table in walk.tables(raw, ("diverts",)):
        path: Path = ("diverts", name)
        before = len(walk.problems)
        _check_named(walk, path, name, "divert")
        read = walk.table(table, path, schema.DIVERT)
        if len(walk.problems) > before:
            continue
        forwarding = read.pop("forwarding_address")
        if read["address"] in forwarding:
            text = f"leads from {read['address']} straight back to it"
            walk.wrong((*path, "forwarding-address"), text)
        routing = read.pop("routing_type", DivertRouting.STRIP)
        found.append(DivertDefinition(name=name, forwarding=forwarding, routing=routing, **read))
    return tuple(found)


def _check_named(walk: Walk, path: Path, name: str, what: str) -> None:
    try:
        check_name(name, what)
    except RefusedError as error:
        walk.wrong(path, error.refusal.text)


def _certificate_users(walk: Walk, raw: object) -> tuple[CertificateRule, ...]:
    """Return the rules of certificates, in their order."""
    found = []
    for index, item in enumerate(walk.array(raw, ("certificate-users",))):
        path: Path = ("certificate-users", index)
        before = len(walk.problems)
        read = walk.table(item, path, schema.CERTIFICATE_USER)
        if len(walk.problems) > before:
            continue
        rule = CertificateRule(**read)
        problem = rule_problem(rule)
        if problem is not None:
            key, text = problem
            walk.wrong((*path, key) if key else path, text)
        found.append(rule)
    return tuple(found)


def _users_file(walk: Walk, raw: object) -> str | None:
    """Return the path of the users file as written, None when there is none."""
    found: str | None = None
    for index, item in enumerate(walk.array(raw, ("authentication",))):
        path: Path = ("authentication", index)
        read = walk.table(item, path, schema.AUTHENTICATION)
        if read.get("type", "file") != "file":
            walk.wrong(
                (*path, "type"), f"{describe(read['type'])} is not known; this version has file"
            )
        if found is not None:
            walk.wrong(path, "is a second users file; this version takes one")
        found = read.get("path")
    return found
