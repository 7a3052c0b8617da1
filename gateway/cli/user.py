"""`sluicegate user`: who may come in, and with which roles; writes the users file.

A running gateway looks at the file once a second. The password never stands in the arguments.
Exit status: 1 when there is no such user, 64 when the change cannot be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import click

from gateway.cli.asking import ask_password
from gateway.cli.errors import EX_USAGE, CliError
from gateway.cli.settings import config_options, read_config
from gateway.cli.users_file import Edit, opened
from gateway.config.lockout import other_realms, permissions_judged
from gateway.config.tree import Config
from gateway.model.verifier import Verifier
from gateway.security.passwords import PASSWORD_BYTES_MAX, hash_password
from gateway.security.users import (
    TakenError,
    User,
    Users,
    UsersError,
    add_user,
    change_user,
    check_user_name,
    find_user,
    parse_users,
    remove_user,
)
from gateway.security.verifiers import make_verifier

_SCRAM: Final = "SCRAM-SHA-256"
_HEADS: Final = ("user", "roles", "logs in by")

Command = Callable[..., Any]


def _password_options(command: Command) -> Command:
    stdin = click.option(
        "--password-stdin", is_flag=True, help="Read the password from standard input."
    )
    scram = click.option(
        "--scram",
        is_flag=True,
        help="Also let the user in by SCRAM-SHA-256, which sends no password.",
    )
    return stdin(scram(command))


_as_json: Final = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@click.group()
def user() -> None:
    """Add, show, change and remove the users of the users file."""


@user.command(short_help="Add a user, or give one another password.")
@click.argument("name")
@click.option(
    "--role", "roles", multiple=True, metavar="ROLE", help="A role of the user. May be repeated."
)
@_password_options
@click.option("--replace", is_flag=True, help="Give an existing user another password.")
@_as_json
@config_options
def add(
    name: str,
    *,
    roles: tuple[str, ...],
    password_stdin: bool,
    scram: bool,
    replace: bool,
    as_json: bool,
    file: str | None,
    data: str | None,
    sets: tuple[str, ...],
) -> None:
    """Add the user NAME; a running gateway knows it within a second."""
    config = read_config(file, sets, data)
    with opened(config) as users:
        check_user_name(name)
        _check_roles(roles)
        if not replace and name in users.known:
            raise TakenError(f"the user {name} exists already")
        password = _password(from_stdin=password_stdin)
        made = User(
            name=name,
            password=hash_password(password),
            roles=frozenset(roles),
            verifiers=_verifiers(password, (_SCRAM,)) if scram else {},
        )
        users.change(lambda text: add_user(text, made, replace=replace))
    _tell(config, name, users.known, as_json=as_json)


@user.command(name="list", short_help="Show the users and their roles.")
@_as_json
@config_options
def list_users(*, as_json: bool, file: str | None, data: str | None, sets: tuple[str, ...]) -> None:
    """Show the users of the file, with their roles and the ways in which they may log in."""
    config = read_config(file, sets, data)
    with opened(config) as users:
        known = users.known
    rows = [_facts(known[name]) for name in sorted(known)]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
        return
    _show([(r["user"], ", ".join(r["roles"]) or "-", ", ".join(r["mechanisms"])) for r in rows])
    plural = "" if len(rows) == 1 else "s"
    click.echo(f"{len(rows)} user{plural} in {config.users_file}", err=True)


@user.command(short_help="Give a user another password.")
@click.argument("name")
@_password_options
@_as_json
@config_options
def passwd(
    name: str,
    *,
    password_stdin: bool,
    scram: bool,
    as_json: bool,
    file: str | None,
    data: str | None,
    sets: tuple[str, ...],
) -> None:
    """Give the user NAME another password; connections that came in with the old one are closed.

    Whoever may log in by SCRAM goes on to.
    """
    config = read_config(file, sets, data)
    with opened(config) as users:
        known = find_user(users.known, name)
        password = _password(from_stdin=password_stdin)
        mechanisms = {*known.verifiers, *((_SCRAM,) if scram else ())}
        hashed = hash_password(password)
        verifiers = _verifiers(password, sorted(mechanisms))
        users.change(_changing(name, lambda u: replace(u, password=hashed, verifiers=verifiers)))
    _tell(config, name, users.known, as_json=as_json)


@user.command(short_help="Show or change the roles of a user.")
@click.argument("name")
@click.argument("only", nargs=-1, metavar="[ROLE]...")
@click.option("--add", "more", multiple=True, metavar="ROLE", help="One role more.")
@click.option("--remove", "less", multiple=True, metavar="ROLE", help="One role less.")
@click.option("--none", "nothing", is_flag=True, help="No role any more.")
@_as_json
@config_options
def roles(
    name: str,
    *,
    only: tuple[str, ...],
    more: tuple[str, ...],
    less: tuple[str, ...],
    nothing: bool,
    as_json: bool,
    file: str | None,
    data: str | None,
    sets: tuple[str, ...],
) -> None:
    """Have the user NAME have these roles and no others, or add and remove some.

    Without roles and options those that it has are shown. Open connections are judged by its roles
    within a second.
    """
    if sum(map(bool, (only, more or less, nothing))) > 1:
        text = "give the roles that are to be, or --add and --remove, or --none"
        raise CliError("bad-usage", text, status=EX_USAGE)
    config = read_config(file, sets, data)
    with opened(config) as users:
        known = find_user(users.known, name)
        _check_roles((*only, *more))
        if only or more or less or nothing:
            absent = sorted(set(less) - known.roles)
            if absent:
                raise UsersError(f"the user {name} does not have the role {absent[0]}")

            def judged(one: User) -> User:
                base = frozenset() if only or nothing else one.roles
                return replace(one, roles=(base | {*only, *more}) - set(less))

            users.change(_changing(name, judged))
    _tell(config, name, users.known, as_json=as_json)


@user.command(short_help="Remove a user.")
@click.argument("name")
@_as_json
@config_options
def remove(
    name: str, *, as_json: bool, file: str | None, data: str | None, sets: tuple[str, ...]
) -> None:
    """Remove the user NAME; its connections are closed within a second."""
    config = read_config(file, sets, data)
    with opened(config) as users:
        find_user(users.known, name)
        if len(users.known) == 1 and not other_realms(config):
            text = (
                f"{name} is the last user, and without users anybody is let in. If that is wanted:"
                " stop the gateway, and delete the file"
            )
            raise CliError("last-user", text, status=EX_USAGE)
        users.change(lambda text: remove_user(text, name))
    if as_json:
        click.echo(json.dumps({"user": name, "removed": True}))
    else:
        click.echo(f"user {name} is removed from {config.users_file}")


# ---- in and out


def _changing(name: str, change: Callable[[User], User]) -> Edit:
    """Return what changes one user, as the file has it then."""
    return lambda text: change_user(text, change(find_user(parse_users(text), name)))


def _tell(config: Config, name: str, users: Users, *, as_json: bool) -> None:
    facts = _facts(users[name])
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    held = ", ".join(facts["roles"]) or "none"
    ways = ", ".join(facts["mechanisms"])
    click.echo(f"user {name} is in {config.users_file}; roles: {held}; logs in by {ways}")
    if facts["roles"] and not permissions_judged(config):
        text = "without [security-settings] whoever logs in may do all, whatever the roles"
        click.echo(f"note: {text}", err=True)


def _facts(one: User) -> dict[str, Any]:
    return {
        "user": one.name,
        "roles": sorted(one.roles),
        "mechanisms": ["PLAIN", *sorted(one.verifiers)],
    }


def _show(rows: list[tuple[str, ...]]) -> None:
    """Print a table of aligned columns."""
    widths = [max(map(len, column)) for column in zip(_HEADS, *rows, strict=True)]
    for row in (_HEADS, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _check_roles(names: tuple[str, ...]) -> None:
    for name in names:
        if not name.strip() or name != name.strip() or not name.isprintable():
            text = f"{name!a} is no role: it needs printable characters, and no space around them"
            raise CliError("bad-role", text, status=EX_USAGE)


def _verifiers(password: str, mechanisms: tuple[str, ...] | list[str]) -> Mapping[str, Verifier]:
    try:
        return {one: make_verifier(one, password) for one in mechanisms}
    except ValueError as error:
        text = f"the password cannot be used with {', '.join(mechanisms)}: {error}"
        raise CliError("bad-password", text, status=EX_USAGE) from None


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = ask_password("a password", attempt="--password-stdin", twice=True)
    if not password:
        raise CliError("bad-password", "the password is empty", status=EX_USAGE)
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        text = f"the password is longer than {PASSWORD_BYTES_MAX} bytes"
        raise CliError("bad-password", text, status=EX_USAGE)
    return str(password)
