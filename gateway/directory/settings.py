"""How a directory is asked, and what it says of a user. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class UnreachableError(Exception):
    """The directory could not be asked; the text says why, and has no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySettings:
    """How a directory is asked, see `[ldap]`: times in ms, `roles` by group in small letters."""

    host: str
    port: int
    tls: bool = False
    start_tls: bool = False
    ca_file: str = ""
    bind_dn: str = ""
    password_file: str = ""
    user_dn_template: str = ""
    search_base: str = ""
    search_filter: str = "(uid={user})"
    user_attribute: str = "uid"
    group_base: str = ""
    group_filter: str = "(member={dn})"
    group_attribute: str = "cn"
    roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    connect_ms: int = 3_000
    answer_ms: int = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A user whom the directory has let in: its name there, and the roles of its groups."""

    user: str
    roles: frozenset[str]
