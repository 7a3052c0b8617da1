"""Asking a person for a password; a command that a script runs has nobody to ask."""

from __future__ import annotations

import os
import sys

import click

from gateway.cli.errors import EX_USAGE, CliError

_WAYS = "SLUICEGATE_PASSWORD in the environment, or --password-stdin"


def ask_password(what: str, *, attempt: str = _WAYS, twice: bool = False, err: bool = False) -> str:
    """Return what is typed unseen at the terminal; raises CliError where there is none.

    `what` is asked for, `attempt` the other ways to give it, `err` asks on standard error.
    """
    if not _has_terminal():
        text = f"{what} is needed, and there is no terminal to ask for it at"
        raise CliError("no-password", text, attempt=attempt, status=EX_USAGE)
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=twice, err=err))


def _has_terminal() -> bool:
    if sys.stdin.isatty():
        return True
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def read_password(user: str | None, *, from_stdin: bool) -> str | None:
    """Return the password of `user`, never from the arguments; None without a user."""
    if user is None:
        return None
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    given = os.environ.get("SLUICEGATE_PASSWORD")
    return given if given is not None else ask_password(f"the password of {user}", err=True)
