"""The realm of users whom a directory knows: threads of its own, and a memory with a bound.

    remembered (a keyed hash of name and password) ──> let in, also while the directory is away
    too many are being asked about ──────────────────> refused, as busy
    asked on a thread ──> right: let in, and remembered for a while
                     ├──> wrong: refused
                     └──> it cannot be asked: refused, and the log says why

A user of the users file never gets here: the file has the say, also over a name that the directory
writes differently.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog
from twisted.python.failure import Failure

from gateway.directory.settings import Found, UnreachableError
from gateway.logs.summing import Summed
from gateway.model.principal import By, Principal
from gateway.process.threads import started_pool
from gateway.security.gate import Why
from gateway.security.passwords import PASSWORD_BYTES_MAX
from gateway.security.users import UsersError, check_user_name

#: Logins for each thread that may be under way or wait.
WAITING_EACH: Final = 4
WAITING_MAX: Final = 32

_log = structlog.get_logger()


class Asked(Protocol):
    """A directory; `asking.Directory` is one."""

    def ask(self, user: str, secret: str) -> Found | None:
        """Return the user when it lets it in. Raises UnreachableError. Blocks; any thread."""


class DirectoryRealm:
    """Implements `gateway.security.gate.Realm`; `start` and `stop` its threads."""

    def __init__(
        self,
        reactor: Any,  # noqa: ANN401 - several zope interfaces in one
        directory: Asked,
        known: Callable[[str], bool],
        key: bytes,
        *,
        threads: int = 4,
        cache_seconds: float = 300.0,
        cache_size: int = 4096,
    ) -> None:
        """Keep whom to ask.

        Args:
            reactor: for time, and to come back to.
            directory: is asked on the threads.
            known: whether a name stands in the users file.
            key: chance of this process, for the hashes of right logins.
            threads: logins asked about at a time.
            cache_seconds: for how long a right login is remembered; 0: not at all.
            cache_size: how many.
        """
        self.waiting = 0
        self._reactor = reactor
        self._directory = directory
        self._known = known
        self._key = key
        self._pool = started_pool(threads, "directory")
        self._most = min(WAITING_MAX, threads * WAITING_EACH)
        self._seconds = cache_seconds
        self._size = cache_size
        self._right: OrderedDict[bytes, tuple[float, Found]] = OrderedDict()
        self._told = Summed(reactor, self._tell_more)

    def start(self) -> None:
        """Start the threads."""
        self._pool.start()

    def stop(self) -> None:
        """End the threads; waits for logins that are under way, until their time-outs."""
        self._pool.stop()

    def takes(self, user: str, secret: str) -> bool:
        """See `Realm`: whoever stands in no file of ours."""
        return not self._known(user)

    def remembered(self, user: str, secret: str) -> Principal | None:
        """See `Remembering`."""
        mark = self._mark(user, secret)
        until, found = self._right.get(mark, (0.0, None))
        if found is None:
            return None
        if self._reactor.seconds() >= until:
            del self._right[mark]
            return None
        answer = self._answer(found)
        return answer if isinstance(answer, Principal) else None

    def check(self, user: str, secret: str, done: Callable[[Principal | Why], None]) -> None:
        """See `Realm`."""
        if not _can_be(user, secret):
            self._later(done, Why.WRONG)
            return
        mark = self._mark(user, secret)
        if self.waiting >= self._most:
            self._later(done, Why.BUSY)
            return
        self.waiting += 1

        def asked(_: bool, result: Found | Failure | None) -> None:  # noqa: FBT001 - Twisted's
            self._reactor.callFromThread(self._asked, mark, result, done)

        self._pool.callInThreadWithCallback(asked, self._directory.ask, user, secret)

    def _asked(
        self,
        mark: bytes,
        result: Found | Failure | None,
        done: Callable[[Principal | Why], None],
    ) -> None:
        self.waiting -= 1
        if isinstance(result, Failure):
            # A fault of ours lets nobody in either.
            told = result.getErrorMessage()
            if result.check(UnreachableError) is None:
                told = f"a fault of ours: {told}"
            if self._told.whole():
                _log.error("directory.unreachable", error=told[:300])
            done(Why.UNREACHABLE)
        elif result is None:
            done(Why.WRONG)
        else:
            self._remember(mark, result)
            done(self._answer(result))

    def _answer(self, found: Found) -> Principal | Why:
        if self._known(found.user):
            return Why.WRONG
        return Principal(found.user, roles=found.roles, by=By.DIRECTORY)

    def _later(self, done: Callable[[Principal | Why], None], answer: Principal | Why) -> None:
        self._reactor.callLater(0, done, answer)

    def _mark(self, user: str, secret: str) -> bytes:
        """Return a keyed hash of a login: it tells nothing without the key."""
        text = f"{user}\0{secret}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text, hashlib.sha256)

    def _remember(self, mark: bytes, found: Found) -> None:
        if self._seconds <= 0:
            return
        self._right.pop(mark, None)
        if len(self._right) >= self._size:
            self._right.popitem(last=False)
        self._right[mark] = (self._reactor.seconds() + self._seconds, found)

    def _tell_more(self, count: int, seconds: float) -> None:
        _log.error("directory.unreachable_more", count=count, seconds=seconds)


def _can_be(user: str, secret: str) -> bool:
    """Whether a directory may be asked: never with an empty password, nor one without a bound."""
    try:
        check_user_name(user)
    except UsersError:
        return False
    # A directory takes names for the same that differ in spaces.
    plain = user == " ".join(user.split())
    return plain and 0 < len(secret.encode("utf-8", "surrogatepass")) <= PASSWORD_BYTES_MAX
