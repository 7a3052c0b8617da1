"""For whom a connection acts: a name, roles, and how long that holds.

    login ──proved──> Principal ──token renewed──> other roles, a later end
                          └──its end has come──> the connection is closed

One object for each connection, made by the gate and asked by the broker. A `Judge`, which has the
settings, judges what is asked; a principal without one may do everything. The gateway itself acts
without a principal. The names of permissions are Artemis' [manual, security].
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from gateway.model.errors import Code, Refusal
from gateway.model.objects import NOBODY


class Permission(Enum):
    """What a role may be allowed to do at an address; the value is its key in the configuration."""

    SEND = "send"
    CONSUME = "consume"
    BROWSE = "browse"
    CREATE_ADDRESS = "create-address"
    DELETE_ADDRESS = "delete-address"
    CREATE_DURABLE_QUEUE = "create-durable-queue"
    DELETE_DURABLE_QUEUE = "delete-durable-queue"
    CREATE_NON_DURABLE_QUEUE = "create-non-durable-queue"
    DELETE_NON_DURABLE_QUEUE = "delete-non-durable-queue"
    MANAGE = "manage"
    VIEW = "view"
    EDIT = "edit"


class Judge(Protocol):
    """The settings that say which roles may do what, and where."""

    def check(
        self, principal: Principal, permission: Permission, address: str, queue: str | None
    ) -> None:
        """Raise RefusedError (not-authorized) unless one of its roles may do this there."""


class By(Enum):
    """How a login proved who it is."""

    NOTHING = "nothing"
    PASSWORD = "password"  # noqa: S105 - a word, not a password
    SCRAM = "scram"
    CERTIFICATE = "certificate"
    TOKEN = "token"  # noqa: S105
    DIRECTORY = "directory"


class Principal:
    """See the module text.

    Attributes:
        user: the name for people; None when none was given. Nobody has proved it unless it is the
            `account` as well.
        account: the name that was proved, for whom objects count; NOBODY when none was.
        roles: its roles.
        until_ms: the date in ms at which it ends; None: not by itself.
        by: how it was proved.
        issuer: who vouches for it: the name of an issuer of tokens; empty: the gateway itself.
        ended: its end has come: nothing is taken of it any more, and nothing given.
        changed: called after each change of roles or end.
        remote: the network address that it came from, for records; "" where that is not known.
    """

    __slots__ = (
        "__weakref__",
        "_judge",
        "account",
        "by",
        "changed",
        "ended",
        "issuer",
        "remote",
        "roles",
        "until_ms",
        "user",
    )

    def __init__(
        self,
        user: str | None,
        *,
        roles: frozenset[str] = frozenset(),
        by: By = By.NOTHING,
        until_ms: int | None = None,
        judge: Judge | None = None,
        issuer: str = "",
    ) -> None:
        self.user = user
        self.account = NOBODY if by is By.NOTHING or user is None else user
        self.roles = roles
        self.until_ms = until_ms
        self.by = by
        self.issuer = issuer
        self.ended = False
        self.changed: list[Callable[[], None]] = []
        self.remote = ""
        self._judge = judge

    def __repr__(self) -> str:
        return f"Principal({self.user!r}, by={self.by.value})"

    @property
    def proved(self) -> bool:
        """Whether it is known for whom it acts."""
        return self.by is not By.NOTHING

    def check(self, permission: Permission, address: str, queue: str | None = None) -> None:
        """Raise RefusedError (not-authorized) unless it may do this at an address, or queue."""
        if self._judge is not None:
            self._judge.check(self, permission, address, queue)

    def judged_by(self, judge: Judge) -> None:
        """Have another one judge what it may do."""
        self._judge = judge

    def renew(self, roles: frozenset[str], until_ms: int | None) -> None:
        """Act with other roles, and until another date, from now on."""
        self.roles, self.until_ms = roles, until_ms
        for changed in tuple(self.changed):
            changed()


def end_of(principal: Principal) -> Refusal:
    """Return what a peer is told whose principal has ended."""
    if principal.by is By.TOKEN:
        text = "The token of this connection has ended. Connect with a new one, or renew it before."
        return Refusal(code=Code.TOKEN_EXPIRED, text=text)
    text = f"What this connection has logged in with, a {principal.by.value}, has ended."
    return Refusal(code=Code.NOT_AUTHORIZED, text=text)


def account_of(principal: Principal | None) -> str | None:
    """Return for whom objects count; None: for the gateway itself."""
    return None if principal is None else principal.account


#: Who is let in where no user is known, and gave no name.
ANYBODY: Final = Principal(None)
