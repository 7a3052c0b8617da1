"""What a user, a remote or an address may use in a second, and have open, as it is written.

    [quotas.users."*"]          each user, by itself; a named user, or a role, says more or less
    [quotas.remotes."*"]        each remote address, by itself; a network is for each address in it
    [quotas.addresses."a.#"]    each address that fits

Each limit comes from the first table that has it: for a user its own, then those of its roles (of
several the most generous), then `*`; for a remote the smallest network, then `*`; for an address as
its settings are merged. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Final, TypeAlias

from gateway.model.bounds import limit, within
from gateway.model.rows import Reach, Unit, rows_of

EACH: Final = "*"
#: So much of an IPv6 address is one network at most: its owner has all that follows.
_IPV6_PREFIX: Final = 64


class Scope(Enum):
    """Whose a quota is; the value is how API, log and metrics call it."""

    USER = "user"
    REMOTE = "remote"
    ADDRESS = "address"


class Group(Enum):
    """The tables below `[quotas]`."""

    USERS = "users"
    ROLES = "roles"
    REMOTES = "remotes"
    ADDRESSES = "addresses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The keys of one table below `[quotas]`; -1 no limit.

    Attributes:
        connections: AMQP and STOMP connections that are let in, WebSockets among them; addresses
            have none.
        links: AMQP links, and STOMP subscriptions.
        messages_in: messages a second that are sent to the gateway.
        messages_out: messages a second that are delivered.
        bytes_in: bytes of their bodies a second.
        bytes_out: the same of what is delivered.
        burst: ms for which what was not used is kept, so that it may come at once.
    """

    connections: Annotated[int, Reach.AT_ONCE, limit()] = -1
    links: Annotated[int, Reach.AT_ONCE, limit()] = -1
    messages_in: Annotated[int, Reach.AT_ONCE, limit()] = -1
    messages_out: Annotated[int, Reach.AT_ONCE, limit()] = -1
    bytes_in: Annotated[int, Reach.AT_ONCE, Unit.BYTES, limit(1024)] = -1
    bytes_out: Annotated[int, Reach.AT_ONCE, Unit.BYTES, limit(1024)] = -1
    burst: Annotated[int, Reach.AT_ONCE, Unit.MS, within(10, 3_600_000)] = 1_000


ROWS: Final = rows_of(Quota)
_BURST: Final = "burst"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTable:
    """One table: field -> value, and field -> where that was written."""

    name: str
    values: Mapping[str, int]
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit in force: its value, its key in the configuration, and where it was written."""

    value: int
    key: str
    origin: str


#: Field of Quota -> what holds; a field that is not there has no limit.
Limits: TypeAlias = Mapping[str, Limit]
NONE: Final[Limits] = {}
#: Returns those of some matches that fit an address, the one that counts first in front.
Fitting = Callable[[Iterable[str], str], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """All tables, each by its name."""

    users: Mapping[str, QuotaTable] = field(default_factory=dict)
    roles: Mapping[str, QuotaTable] = field(default_factory=dict)
    remotes: Mapping[str, QuotaTable] = field(default_factory=dict)
    addresses: Mapping[str, QuotaTable] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.users or self.roles or self.remotes or self.addresses)

    def of(self, group: Group) -> Mapping[str, QuotaTable]:
        """Return the tables of a group."""
        tables: Mapping[str, QuotaTable] = getattr(self, group.value)
        return tables

    def for_user(self, user: str, roles: Iterable[str]) -> Limits:
        """Return what holds for a user who has these roles."""
        own = [_limits(Group.USERS, self.users[user])] if user in self.users else []
        by_role = _generous(
            [_limits(Group.ROLES, self.roles[r]) for r in sorted(roles) if r in self.roles]
        )
        each = [_limits(Group.USERS, self.users[EACH])] if EACH in self.users else []
        return _first([*own, by_role, *each])

    def for_remote(self, remote: str) -> Limits:
        """Return what holds for a peer's address, or its network of IPv6."""
        fitting = sorted(
            (name for name in self.remotes if name != EACH and _holds(name, remote)),
            key=lambda name: -ipaddress.ip_network(name).prefixlen,
        )
        names = [*fitting, *([EACH] if EACH in self.remotes else [])]
        return _first([_limits(Group.REMOTES, self.remotes[name]) for name in names])

    def for_address(self, address: str, fitting: Fitting) -> Limits:
        """Return what holds for an address."""
        names = fitting(self.addresses, address) if self.addresses else ()
        return _first([_limits(Group.ADDRESSES, self.addresses[name]) for name in names])


def network_of(remote: str) -> str:
    """Return as what a peer's address is counted: a network of IPv6 is one; IPv4 in IPv6 is IPv4.

    What is no address, as of a socket of this machine, is itself.
    """
    try:
        found = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return remote
    if found.version == 4:
        return str(found)
    mapped = found.ipv4_mapped
    if mapped is not None:
        return str(mapped)
    if found.is_loopback:
        return str(found)
    return str(ipaddress.ip_network((int(found), _IPV6_PREFIX), strict=False))


def network_problem(name: str) -> str | None:
    """Say why this names no remotes, or None."""
    if name == EACH:
        return None
    try:
        ipaddress.ip_network(name)
    except ValueError as error:
        return f'is no address and no network ({error}); write "10.1.2.3", "10.0.0.0/8" or "*"'
    return None


def name_problem(group: Group, name: str, match_problem: Callable[[str], str | None]) -> str | None:
    """Say why a table of a group cannot have this name, or None."""
    match group:
        case Group.REMOTES:
            return network_problem(name)
        case Group.ADDRESSES:
            return match_problem(name)
        case Group.ROLES if name == EACH:
            return 'is no role; what holds for each user is quotas.users."*"'
        case Group.USERS | Group.ROLES:
            return None


def key_of(group: Group, name: str, row: str) -> str:
    """Return a key as one writes it: `quotas.users."*".messages-in`."""
    plain = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
    return f"quotas.{group.value}.{name if plain else f'{chr(34)}{name}{chr(34)}'}.{ROWS[row].key}"


def _holds(name: str, remote: str) -> bool:
    """Whether a network has a remote, as `network_of` calls it."""
    try:
        network, found = ipaddress.ip_network(name), ipaddress.ip_network(remote)
    except ValueError:
        return False
    if network.version != found.version:
        return False
    # One address of a /64 stands for all of it: they cannot be told apart.
    one, other = int(network.network_address), int(found.network_address)
    bits = network.max_prefixlen - min(network.prefixlen, found.prefixlen)
    return one >> bits == other >> bits


def _limits(group: Group, table: QuotaTable) -> Limits:
    return {
        row: Limit(
            value=value,
            key=key_of(group, table.name, row),
            origin=table.origins.get(row, "by default"),
        )
        for row, value in table.values.items()
    }


def _generous(found: Sequence[Limits]) -> Limits:
    """Return the highest of each limit; none at all is higher than any."""
    merged: dict[str, Limit] = {}
    for limits in found:
        for row, one in limits.items():
            known = merged.get(row)
            if known is None or (known.value >= 0 and (one.value < 0 or one.value > known.value)):
                merged[row] = one
    return merged


def _first(found: Sequence[Limits]) -> Limits:
    """Return each limit as the first has it that says something; without those that are none."""
    merged: dict[str, Limit] = {}
    for limits in found:
        for row, one in limits.items():
            merged.setdefault(row, one)
    there = {row: one for row, one in merged.items() if one.value >= 0}
    return there if there.keys() - {_BURST} else NONE


def burst_seconds(limits: Limits) -> float:
    """Return for how long what is not used is kept."""
    written = limits.get(_BURST)
    return (Quota().burst if written is None else written.value) / 1000
