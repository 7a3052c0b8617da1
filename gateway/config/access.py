"""Who may use the API, and the directory whose users may come in: `[api-roles]`, `[ldap]`. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final
from urllib.parse import urlsplit

from gateway.config import values as v
from gateway.model.bounds import within
from gateway.model.roles import ApiRoles, Role
from gateway.model.rows import Reach, Unit

AT_ONCE: Final = Reach.AT_ONCE
RESTART: Final = Reach.RESTART

#: What a login's name and the found entry's name stand for in templates and filters.
USER: Final = "{user}"
DN: Final = "{dn}"
_PORTS: Final = {"ldap": 389, "ldaps": 636}


def role_names(value: object) -> frozenset[str]:
    """Take an array of roles, as they are written."""
    if not isinstance(value, list):
        raise ValueError(f"needs an array of roles, not {v.describe(value)}")  # noqa: TRY004
    return frozenset(v.name_text(item) for item in value)


def group_roles(value: object) -> Mapping[str, frozenset[str]]:
    """Take a table of groups, each with its array of roles; groups are kept in small letters."""
    if not isinstance(value, Mapping):
        raise ValueError(f"needs a table of groups, not {v.describe(value)}")  # noqa: TRY004
    found: dict[str, frozenset[str]] = {}
    for group, roles in value.items():
        name = v.name_text(group).casefold()
        found[name] = found.get(name, frozenset()) | role_names(roles)
    return found


def ldap_url(value: object) -> str:
    """Take `ldap://host[:port]` or `ldaps://host[:port]`."""
    taken = v.name_text(value)
    try:
        parts = urlsplit(taken)
        right = parts.scheme in _PORTS and parts.hostname and parts.port != 0
    except ValueError:
        right = False
    if not right or parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
        text = 'is no directory; write for example "ldaps://ldap.example:636"'
        shown = "the text before the @ is not shown; it" if "@" in taken else v.describe(value)
        raise ValueError(f"{shown} {text}")
    return taken


def with_user(value: object) -> str:
    """Take a text in which the name of the login has its place, once."""
    taken = v.name_text(value)
    if taken.count(USER) != 1:
        raise ValueError(f"needs {USER} once, where the name of the login goes")
    return taken


def with_entry(value: object) -> str:
    """Take a filter in which the user has a place."""
    taken = v.name_text(value)
    if USER not in taken and DN not in taken:
        raise ValueError(f"needs {DN} or {USER}, where the user's entry or name goes")
    return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRolesConfig:
    """`[api-roles]`: which roles of users may do what over the API, once permissions are judged.

    Attributes:
        view: see figures, lists, metrics and the configuration.
        edit: also read, move and delete messages.
        manage: also make, change and delete addresses, queues, diverts and streams; end
            connections.
        admin: also read the configuration again, scrub, and trust the clock.
    """

    view: Annotated[frozenset[str], AT_ONCE, v.Read(role_names)] = frozenset({"view"})
    edit: Annotated[frozenset[str], AT_ONCE, v.Read(role_names)] = frozenset({"edit"})
    manage: Annotated[frozenset[str], AT_ONCE, v.Read(role_names)] = frozenset({"manage"})
    admin: Annotated[frozenset[str], AT_ONCE, v.Read(role_names)] = frozenset({"admin"})

    def roles(self) -> ApiRoles:
        """Return them by step."""
        return ApiRoles({role: getattr(self, role.value) for role in Role})


@dataclass(frozen=True, slots=True, kw_only=True)
class LdapConfig:
    """`[ldap]`: a directory that is asked about users who are not in the users file.

    Attributes:
        url: `ldaps://HOST:PORT`, or `ldap://HOST:PORT` with `start-tls`; without any TLS only on
            this machine. Empty: none is asked.
        start_tls: TLS begins on the plain port before anything else is said.
        ca_file: certificates, in PEM, by which the directory's is judged; empty: the system's.
        bind_dn: by which name users and groups are looked for; empty: without a login.
        password_file: its password, on the first line of a file.
        user_dn_template: the name of an entry, with `{user}` in it; users are not looked for then.
        search_base: below which entry users are looked for.
        search_filter: which entry is a user's, with `{user}` in it.
        user_attribute: of a found entry, the name that the user has here.
        group_base: below which entry groups are looked for; empty: users have no groups.
        group_filter: which groups a user is in, with `{dn}` or `{user}` in it.
        group_attribute: of a group, its name in `roles`.
        roles: a table: name of a group -> array of roles that its members have.
        connect_timeout: ms for the connection and its TLS.
        answer_timeout: ms for each answer.
        threads: logins that are asked about at a time.
        cache_time: ms for which a right login is remembered, also while the directory is away; 0:
            not at all.
        cache_size: right logins that are remembered; the oldest goes.
    """

    url: Annotated[str, RESTART, v.Read(ldap_url)] = ""
    start_tls: Annotated[bool, RESTART] = False
    ca_file: Annotated[str, RESTART, Unit.NAME] = ""
    bind_dn: Annotated[str, RESTART, Unit.NAME] = ""
    password_file: Annotated[str, RESTART, Unit.NAME] = ""
    user_dn_template: Annotated[str, RESTART, v.Read(with_user)] = ""
    search_base: Annotated[str, RESTART, Unit.NAME] = ""
    search_filter: Annotated[str, RESTART, v.Read(with_user)] = "(uid={user})"
    user_attribute: Annotated[str, RESTART, Unit.NAME] = "uid"
    group_base: Annotated[str, RESTART, Unit.NAME] = ""
    group_filter: Annotated[str, RESTART, v.Read(with_entry)] = "(member={dn})"
    group_attribute: Annotated[str, RESTART, Unit.NAME] = "cn"
    roles: Annotated[Mapping[str, frozenset[str]], RESTART, v.Read(group_roles)] = field(
        default_factory=dict
    )
    connect_timeout: Annotated[int, RESTART, Unit.MS, within(100, 60_000)] = 3_000
    answer_timeout: Annotated[int, RESTART, Unit.MS, within(100, 60_000)] = 5_000
    threads: Annotated[int, RESTART, within(1, 16)] = 4
    cache_time: Annotated[int, RESTART, Unit.MS, within(0, 86_400_000)] = 300_000
    cache_size: Annotated[int, RESTART, within(1, 1_000_000)] = 4096

    def address(self) -> tuple[str, int]:
        """Return host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or _PORTS[parts.scheme]

    @property
    def secure_from_start(self) -> bool:
        """Whether TLS comes before anything else."""
        return self.url.startswith("ldaps:")

    def problem(self) -> tuple[str, str] | None:
        """Return the key that contradicts others, and why."""
        if not self.url:
            return None
        local = _is_local(self.address()[0])
        if self.secure_from_start and self.start_tls:
            return "start-tls", "is for ldap://; ldaps:// has TLS from its first byte"
        if not (self.secure_from_start or self.start_tls or local):
            text = "would send passwords as plain text over a network; write ldaps://, or start-tls"
            return "url", f"{text} = true"
        if bool(self.user_dn_template) == bool(self.search_base):
            return "search-base", "or user-dn-template: one of the two says where users are"
        if self.bind_dn and not self.password_file:
            return "password-file", "is missing: bind-dn needs a password, and it stands in a file"
        if self.password_file and not self.bind_dn:
            return "bind-dn", "is missing: password-file has a password, and nobody's"
        if self.roles and not self.group_base:
            return "group-base", "is missing: roles are those of groups, and none are looked for"
        return None


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
