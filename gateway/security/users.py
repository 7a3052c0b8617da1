"""The users file: TOML with one table a user. Pure, text to values and back.

[users.NAME]
password = "$argon2id$..."      # never the password itself
scram-sha-256 = "..."           # where wanted, see gateway/security/verifiers.py
roles = ["admin"]
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.model.verifier import Verifier
from gateway.security.secret import Secret
from gateway.security.verifiers import KEYS, parse_verifier, render_verifier

NAME_BYTES_MAX: Final = 255
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_HASH_START: Final = "$argon2"
_KNOWN: Final = frozenset({"password", "roles", *KEYS})


class UsersError(Exception):
    """The users file, or a user in it, cannot be used; the text says which and why."""


class TakenError(UsersError):
    """There is a user of that name already."""


class NoUserError(UsersError):
    """There is no user of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One user: the stored hash of a password, its verifiers by SCRAM mechanism, and roles."""

    name: str
    password: Secret
    roles: frozenset[str] = frozenset()
    verifiers: Mapping[str, Verifier] = field(default_factory=dict)


Users = Mapping[str, User]


def parse_users(source: str) -> dict[str, User]:
    """Return the users of a file by name; raises UsersError with everything that is wrong."""
    try:
        tree = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise UsersError(f"is not TOML: {error}") from None
    problems = [
        f"{key}: unknown key; users stand in [users.NAME]" for key in tree if key != "users"
    ]
    tables = tree.get("users", {})
    if not isinstance(tables, dict):
        raise UsersError("users: needs tables [users.NAME]")
    users: dict[str, User] = {}
    for name, table in tables.items():
        try:
            users[name] = _user(name, table)
        except UsersError as error:
            problems.append(f"users.{name}: {error}")
    if problems:
        raise UsersError("; ".join(problems))
    return users


def _user(name: str, table: object) -> User:
    check_user_name(name)
    if not isinstance(table, dict):
        raise UsersError("needs a table with the key password")
    unknown = sorted(table.keys() - _KNOWN)
    if unknown:
        raise UsersError(f"unknown key {unknown[0]}; the keys are {', '.join(sorted(_KNOWN))}")
    stored = table.get("password")
    if not isinstance(stored, str) or not stored.startswith(_HASH_START):
        # The value is not shown: it may be somebody's password.
        raise UsersError("password must be an argon2 hash; `sluicegate user add` makes one")
    roles = table.get("roles", [])
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise UsersError("roles must be an array of texts")
    verifiers = {}
    for key in sorted(table.keys() & KEYS.keys()):
        try:
            verifiers[KEYS[key]] = parse_verifier(KEYS[key], table[key])
        except ValueError as error:
            raise UsersError(f"{key} {error}") from None
    return User(name=name, password=Secret(stored), roles=frozenset(roles), verifiers=verifiers)


def check_user_name(name: str) -> None:
    """Raise UsersError unless `name` can name a user in every protocol."""
    if not name.strip():
        raise UsersError("the user name is empty")
    if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise UsersError(f"the user name is longer than {NAME_BYTES_MAX} bytes")
    # Basic authentication ends the name at the first colon [RFC 7617 2].
    if ":" in name or any(ord(c) < 32 or ord(c) == 127 for c in name):
        raise UsersError("the user name holds a colon or a control character")


def render_users(users: Iterable[User]) -> str:
    """Return the text of a users file."""
    return "\n".join(render_user(user) for user in users)


def render_user(user: User) -> str:
    """Return the table of one user."""
    name = user.name if _BARE.match(user.name) else _quoted(user.name)
    lines = [f"[users.{name}]", f"password = {_quoted(user.password.reveal())}"]
    lines += [
        f"{mechanism.lower()} = {_quoted(render_verifier(mechanism, verifier))}"
        for mechanism, verifier in sorted(user.verifiers.items())
    ]
    lines.append(f"roles = [{', '.join(_quoted(role) for role in sorted(user.roles))}]")
    return "\n".join(lines) + "\n"


def add_user(source: str, user: User, *, replace: bool = False) -> str:
    """Return the text of a users file with `user` in it; raises UsersError when the name is taken.

    A new user is appended, so that comments stay; replacing one writes the whole file anew.
    """
    users = parse_users(source)
    check_user_name(user.name)
    before = users.get(user.name)
    if before is None:
        gap = "\n" if source.strip() else ""
        ended = source if not source or source.endswith("\n") else source + "\n"
        return ended + gap + render_user(user)
    if not replace:
        raise TakenError(f"the user {user.name} exists already")
    users[user.name] = User(
        name=user.name,
        password=user.password,
        verifiers=user.verifiers,  # those of the old password are worth nothing
        roles=user.roles or before.roles,
    )
    return render_users(users.values())


def change_user(source: str, changed: User) -> str:
    """Return the text of a users file with another one in a user's place, written anew.

    Raises UsersError when there is no user of that name.
    """
    users = parse_users(source)
    find_user(users, changed.name)
    users[changed.name] = changed
    return render_users(users.values())


def remove_user(source: str, name: str) -> str:
    """Return the text of a users file without a user; raises UsersError when there is none."""
    users = parse_users(source)
    find_user(users, name)
    del users[name]
    return render_users(users.values())


def find_user(users: Users, name: str) -> User:
    """Return a user; raises UsersError, with the nearest name there is."""
    found = users.get(name)
    if found is not None:
        return found
    near = difflib.get_close_matches(name[:NAME_BYTES_MAX], users, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise NoUserError(f"there is no user {name}{hint}")


def _quoted(text: str) -> str:
    # A JSON string of printable characters is a TOML basic string.
    return json.dumps(text, ensure_ascii=False)
