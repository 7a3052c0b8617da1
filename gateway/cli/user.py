"""`sluicegate user add`: writes the users file. The password never stands in the arguments."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click

from gateway.cli.asking import ask_password
from gateway.cli.errors import EX_CANTCREAT, EX_USAGE, CliError
from gateway.cli.settings import config_options, read_config
from gateway.model.verifier import Verifier
from gateway.security.passwords import PASSWORD_BYTES_MAX, hash_password
from gateway.security.users import User, UsersError, add_user, check_user_name
from gateway.security.verifiers import make_verifier
from storage.files import RealFiles, durable_replace

_SCRAM: Final = "SCRAM-SHA-256"


@click.group()
def user() -> None:
    """Add users to the users file."""


@user.command(short_help="Add a user, or give one another password.")
@click.argument("name")
@click.option(
    "--role", "roles", multiple=True, metavar="ROLE", help="Not yet: whoever logs in may do all."
)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option(
    "--scram", is_flag=True, help="Also let the user in by SCRAM-SHA-256, which sends no password."
)
@click.option("--replace", is_flag=True, help="Give an existing user another password.")
@config_options
def add(
    name: str,
    *,
    roles: tuple[str, ...],
    password_stdin: bool,
    scram: bool,
    replace: bool,
    file: str | None,
    data: str | None,
    sets: tuple[str, ...],
) -> None:
    """Add the user NAME; a running gateway knows it after `sluicegate reload`."""
    if roles:
        _refuse_roles(roles)
    path = read_config(file, sets, data).users_file
    try:
        check_user_name(name)
        text = _current(path)
        password = _password(from_stdin=password_stdin)
        added = User(
            name=name,
            password=hash_password(password),
            verifiers=_verifiers(password) if scram else {},
        )
        _write(path, add_user(text, added, replace=replace))
    except UsersError as error:
        attempt = "add --replace" if "exists already" in str(error) else None
        raise CliError("bad-user", f"{path}: {error}", attempt=attempt, status=EX_USAGE) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise CliError(
            "bad-users-file", f"{path} cannot be written: {reason}", status=EX_CANTCREAT
        ) from None
    click.echo(f"user {name} is in {path}; `sluicegate reload` tells a running gateway")


def _refuse_roles(roles: tuple[str, ...]) -> None:
    """A role that nothing asks for would pass for a restriction; those in a file stay as they are.

    Raises CliError (64).
    """
    raise CliError(
        "not-implemented",
        f"--role {roles[0]}: roles are not supported by this version; whoever logs in may do all",
        attempt="leave --role out",
        status=EX_USAGE,
    )


def _verifiers(password: str) -> dict[str, Verifier]:
    try:
        return {_SCRAM: make_verifier(_SCRAM, password)}
    except ValueError as error:
        text = f"the password cannot be used with {_SCRAM}: {error}"
        raise CliError("bad-password", text, status=EX_USAGE) from None


def _current(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except FileNotFoundError:
        return ""


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


def _write(path: str, text: str) -> None:
    """Replace the file, whole; readable by its owner only."""
    files = RealFiles()
    path = os.path.realpath(path)
    folder = os.path.dirname(path)  # noqa: PTH120 - the file port takes texts
    files.mkdir(folder)
    durable_replace(files, path, text.encode())
