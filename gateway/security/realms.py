"""What the gate asks: the process around it, and realms, whose users no file of ours has."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from gateway.model.errors import Refusal
from gateway.model.principal import Principal

Done = Callable[[Principal | None], None]


class Why(Enum):
    """Why somebody was refused."""

    WRONG = "wrong-password"
    THROTTLED = "throttled"
    BUSY = "busy"
    EXPIRED = "expired"  # what it proves itself with has ended
    UNTRUSTED = "untrusted"  # it is signed by nobody who is known, or meant for somebody else
    UNREACHABLE = "unreachable"  # nobody could be asked: an issuer, a directory


class Surroundings(Protocol):
    """What the gate needs of the process around it."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def later(self, action: Callable[[], None]) -> None:
        """Run `action` on a later turn of the reactor."""

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` so many seconds later."""

    def verify(self, work: Callable[[], bool], done: Callable[[bool], None]) -> None:
        """Run `work` on a worker thread and `done` with its result on the reactor."""

    def refused(self, user: str, peer: str, why: Why) -> None:
        """Tell the log."""


class Realm(Protocol):
    """Where users are known that stand in no file of ours."""

    def takes(self, user: str, secret: str) -> bool:
        """Whether it is the one to judge this login, by its form alone; costs nothing."""

    def check(self, user: str, secret: str, done: Callable[[Principal | Why], None]) -> None:
        """Judge a login; `done` is called later, on the reactor."""


class Remembering(Realm, Protocol):
    """A realm that remembers right logins."""

    def remembered(self, user: str, secret: str) -> Principal | None:
        """Return for whom a login acts that was right a while ago; costs nothing."""


class Tokens(Realm, Protocol):
    """The realm of tokens, which nobody guesses: who fails by one is not held back for it."""

    def renew(
        self, principal: Principal, secret: str, done: Callable[[Refusal | None], None]
    ) -> None:
        """Have a principal go on by a new token of the same user; `done` is called later."""
