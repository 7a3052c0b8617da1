"""What is different in another configuration, and what comes of it while the gateway runs. Pure.

`changes` names each key with its old and its new value and what it reaches (`config.reach`);
`in_force` is what holds afterwards: the new one, with the old values of what needs a restart, so
that the next comparison names those again. Values are such as JSON has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Final

from gateway.config.endpoints import Endpoint
from gateway.config.errors import Path, show_path
from gateway.config.reach import ADDED, REACH, REMOVED, reach_of
from gateway.config.tree import Acceptor, AddressConfig, Config, QueueConfig
from gateway.model.certificates import CertificateRule
from gateway.model.definitions import DivertDefinition
from gateway.model.quota import Group
from gateway.model.rows import Reach

#: Tables of the file with fixed keys -> field of Config.
_SECTIONS: Final = {
    "api-roles": "api_roles",
    **{name: name for name in ("management", "metrics", "logging", "archive", "audit", "ldap")},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference.

    Attributes:
        key: as one would write it: `address-settings."a.#".max-size-bytes`.
        old: None where nothing was written, or the table was not there.
        new: None where nothing is written any more.
        reach: what comes of it.
        origin: where the new value was written; "" for a default, and for what has gone.
    """

    key: str
    old: object
    new: object
    reach: Reach
    origin: str = ""


def changes(old: Config, new: Config) -> list[Change]:
    """Return every difference between what is in force and what was read."""
    found = [
        *_top(old, new),
        *_named(("acceptors",), _acceptors(old), _acceptors(new)),
        *_named(("address-settings",), _settings(old), _settings(new)),
        *_named(("security-settings",), _permissions(old), _permissions(new)),
        *_addresses(old, new),
        *_named(("diverts",), _diverts(old), _diverts(new)),
        *_named(("streams",), _streams(old), _streams(new)),
        *_named(("tokens",), _tokens(old), _tokens(new)),
        *_quotas(old, new),
    ]
    return [replace(c, origin=_origin(new, c)) for c in found]


def in_force(old: Config, new: Config) -> Config:
    """Return what holds once `new` was taken over while running."""
    kept: dict[str, Any] = {}
    for key, reach in REACH[""].items():
        if not reach.applies:
            kept[_field(key)] = getattr(old, _field(key))
    for table, name in _SECTIONS.items():
        kept[name] = _held(table, getattr(old, name), getattr(new, name))
    there = {acceptor.name: acceptor for acceptor in new.acceptors}
    kept["acceptors"] = tuple(_held_acceptor(one, there.get(one.name)) for one in old.acceptors)
    named = {divert.name for divert in new.diverts}
    gone = tuple(divert for divert in old.diverts if divert.name not in named)
    return replace(
        new,
        **kept,
        diverts=new.diverts + gone,
        users_file=old.users_file,
        users_file_required=old.users_file_required,
    )


def gone_diverts(old: Config, new: Config) -> frozenset[str]:
    """Return the diverts that the file does not name any more, and that work until a restart."""
    return frozenset(d.name for d in old.diverts) - {d.name for d in new.diverts}


# ---- parts


def _top(old: Config, new: Config) -> Iterable[Change]:
    for key in REACH[""]:
        name = _field(key)
        yield from _one((key,), getattr(old, name), getattr(new, name), reach_of("", key))
    for table, name in _SECTIONS.items():
        yield from _table(table, (table,), getattr(old, name), getattr(new, name))
    yield from _one(
        ("wildcard-addresses", "routing-enabled"),
        old.wildcard_routing,
        new.wildcard_routing,
        reach_of("wildcard-addresses", "routing-enabled"),
    )
    yield from _one(
        ("certificate-users",),
        [_rule(one) for one in old.certificate_users],
        [_rule(one) for one in new.certificate_users],
        reach_of("certificate-users", "user"),
    )
    # Its default lies in the data directory.
    if (old.users_file_required or new.users_file_required) and old.users_file != new.users_file:
        reach = reach_of("authentication", "path")
        yield from _one(("authentication",), old.users_file, new.users_file, reach)


def _table(table: str, path: Path, old: object, new: object) -> Iterable[Change]:
    """Compare two objects of one class, field by field."""
    for key in REACH[table]:
        name = _field(key)
        if hasattr(old, name):
            here = (*path, key)
            yield from _one(here, getattr(old, name), getattr(new, name), reach_of(table, key))


def _one(path: Path, old: object, new: object, reach: Reach) -> Iterable[Change]:
    if old != new:
        yield Change(key=show_path(path), old=_plain(old), new=_plain(new), reach=reach)


#: Name -> key -> value.
_Tables = Mapping[str, Mapping[str, object]]


def _named(path: Path, old: _Tables, new: _Tables) -> Iterable[Change]:
    """Compare tables that have names."""
    table = str(path[0])
    for name in [*old, *(n for n in new if n not in old)]:
        here = (*path, name)
        was, is_now = old.get(name), new.get(name)
        if was is None:
            yield Change(key=show_path(here), old=None, new=_plain(is_now), reach=ADDED[table])
        elif is_now is None:
            yield Change(key=show_path(here), old=_plain(was), new=None, reach=REMOVED[table])
        elif was != is_now:
            for key in [*was, *(k for k in is_now if k not in was)]:
                reach = reach_of(table, key)
                yield from _one((*here, key), was.get(key), is_now.get(key), reach)


def _acceptors(config: Config) -> _Tables:
    return {a.name: _written(a, "name") for a in config.acceptors}


def _settings(config: Config) -> _Tables:
    found: dict[str, dict[str, object]] = {}
    above = config.origins.get("durability")
    for entry in config.address_settings.entries:
        origin = entry.origins.get("durability")
        if entry.match == "#" and above is not None and origin == above:
            continue  # what stands above all tables is a change of its own
        for name, value in entry.values.items():
            found.setdefault(entry.match, {})[_key(name)] = value
        found.setdefault(entry.match, {})
    return found


def _permissions(config: Config) -> _Tables:
    return {
        entry.match: {permission.value: roles for permission, roles in entry.roles.items()}
        for entry in config.security_settings.entries
    }


def _diverts(config: Config) -> _Tables:
    return {d.name: _divert(d) for d in config.diverts}


def _divert(divert: DivertDefinition) -> dict[str, object]:
    shown = _written(divert, "name")
    shown["forwarding-address"] = shown.pop("forwarding")
    shown["routing-type"] = shown.pop("routing")
    return shown


def _rule(rule: CertificateRule) -> dict[str, object]:
    written = {key: _plain(value) for key, value in _written(rule).items()}
    return {key: value for key, value in written.items() if value not in ("", None)}


def _quotas(old: Config, new: Config) -> Iterable[Change]:
    for group in Group:
        yield from _named(("quotas", group.value), *(_quota(c, group) for c in (old, new)))


def _quota(config: Config, group: Group) -> _Tables:
    return {
        name: {_key(row): value for row, value in table.values.items()}
        for name, table in config.quotas.of(group).items()
    }


def _streams(config: Config) -> _Tables:
    written = {stream.name: _written(stream, "name") for stream in config.streams}
    return {n: {k: v for k, v in one.items() if v is not None} for n, one in written.items()}


def _tokens(config: Config) -> _Tables:
    written = {issuer.name: _written(issuer, "name") for issuer in config.tokens}
    return {n: {k: v for k, v in one.items() if v is not None} for n, one in written.items()}


def _addresses(old: Config, new: Config) -> Iterable[Change]:
    """Compare declared addresses; queues have names in an array."""
    before, after = ({a.name: a for a in c.addresses} for c in (old, new))
    for name in [*before, *(n for n in after if n not in before)]:
        was, is_now = before.get(name), after.get(name)
        path: Path = ("addresses", name)
        if was is None or is_now is None:
            reach = (ADDED if was is None else REMOVED)["addresses"]
            shown = [None if one is None else _address(one) for one in (was, is_now)]
            yield Change(key=show_path(path), old=shown[0], new=shown[1], reach=reach)
        elif was != is_now:
            reach = reach_of("addresses", "routing-types")
            types = (*path, "routing-types")
            yield from _one(types, was.routing_types, is_now.routing_types, reach)
            # Elements of an array have no line of their own where they stand in one.
            origin = new.origins.get(show_path(path), "")
            yield from (replace(c, origin=origin) for c in _queues(path, was, is_now))


def _queues(path: Path, was: AddressConfig, is_now: AddressConfig) -> Iterable[Change]:
    old, new = ({q.name: q for q in a.queues} for a in (was, is_now))
    for name in [*old, *(n for n in new if n not in old)]:
        here = (*path, "queues", name)
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            reach = (ADDED if before is None else REMOVED)["queues"]
            shown = [None if one is None else _queue(one) for one in (before, after)]
            yield Change(key=show_path(here), old=shown[0], new=shown[1], reach=reach)
        elif before != after:
            there, wanted = _queue(before), _queue(after)
            for key in REACH["queues"]:
                now = wanted.get(key)
                # What is not written stays as it is, as it does at a start.
                reach = Reach.STAYS if now is None else reach_of("queues", key)
                yield from _one((*here, key), there.get(key), now, reach)


def _address(address: AddressConfig) -> dict[str, object]:
    queues = [_queue(queue) for queue in address.queues]
    return {"routing-types": _plain(address.routing_types), "queues": queues}


def _queue(queue: QueueConfig) -> dict[str, object]:
    written = {**_written(queue, "said"), **{_key(n): v for n, v in queue.attributes.items()}}
    return {key: _plain(value) for key, value in written.items() if value is not None}


def _held(table: str, old: Any, new: Any) -> Any:  # noqa: ANN401 - any table
    """Return a table as it is in force: with the old values of what needs a restart."""
    names = [_field(key) for key in REACH[table] if not reach_of(table, key).applies]
    return replace(new, **{name: getattr(old, name) for name in names})


def _held_acceptor(old: Acceptor, new: Acceptor | None) -> Acceptor:
    held: Acceptor = old if new is None else _held("acceptors", old, new)
    return held


def _origin(config: Config, change: Change) -> str:
    if change.new is None:
        return ""
    return config.origins.get(change.key, change.origin)


# ---- values


def _written(one: object, *without: str) -> dict[str, object]:
    """Return key -> value of a table."""
    names = [field.name for field in fields(one)]  # type: ignore[arg-type]
    return {_key(name): getattr(one, name) for name in names if name not in without}


def _key(field: str) -> str:
    return field.replace("_", "-")


def _field(key: str) -> str:
    return key.replace("-", "_")


def _plain(value: object) -> object:
    """Return a value as JSON has it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Endpoint):
        return value.told
    if isinstance(value, Mapping):
        return {str(key): _plain(below) for key, below in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(str(_plain(one)) for one in value)
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value
