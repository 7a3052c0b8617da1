"""The gate's surroundings in production: two worker threads, the reactor, the log; and its file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog
from twisted.python.failure import Failure

from gateway.logs.summing import Summed
from gateway.model.audit import SILENT, Auditor
from gateway.model.certificates import Shown, facts
from gateway.process.threads import started_pool
from gateway.security.gate import Why
from gateway.security.passwords import hash_problem
from gateway.security.remote import Remote
from gateway.security.users import User, UsersError, parse_users

#: More threads would let logins take more than two cores from the messages.
THREADS: Final = 2
#: Peers of refused logins that are counted one by one.
PEERS_MAX: Final = 10_000
_READABLE_BY_OTHERS: Final = 0o044

_log = structlog.get_logger()


class ReactorSurroundings:
    """Implements `gateway.security.gate.Surroundings`; `start` and `stop` its threads.

    Attributes:
        auditor: is told of each login that was refused.
    """

    def __init__(self, reactor: Any) -> None:  # noqa: ANN401 - several zope interfaces in one
        self.auditor: Auditor = SILENT
        self._reactor = reactor
        self._pool = started_pool(THREADS, "passwords")
        self._told = Summed(reactor, self._tell_more)
        self._nobodys = Summed(reactor, _tell_nobodys)
        self._more: Counter[str] = Counter()
        self._peers: set[str] = set()
        #: logins that were refused, by reason
        self.refusals: Counter[str] = Counter({why.value: 0 for why in Why})

    def start(self) -> None:
        """Start the threads, all of them: later the system may have none."""
        self._pool.start()

    def stop(self) -> None:
        """End the threads; waits for checks that are under way, some 35 ms."""
        self._pool.stop()

    def now(self) -> float:
        """See the port."""
        return float(self._reactor.seconds())

    def later(self, action: Callable[[], None]) -> None:
        """See the port."""
        self._reactor.callLater(0, action)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """See the port."""
        self._reactor.callLater(seconds, action)

    def verify(self, work: Callable[[], bool], done: Callable[[bool], None]) -> None:
        """See the port; a check that fails with an error lets nobody in."""

        def finished(success: bool, result: bool | Failure) -> None:  # noqa: FBT001 - Twisted's
            right = success and result is True
            self._reactor.callFromThread(done, right)

        self._pool.callInThreadWithCallback(finished, work)

    def refused(self, user: str, peer: str, why: Why) -> None:
        """See the port."""
        self.refusals[why.value] += 1
        door = peer if isinstance(peer, Remote) else Remote(peer)
        self.auditor.note(
            "login.refused",
            user=user,
            remote=str(peer),
            reason=why.value,
            listener=door.listener,
            protocol=door.protocol,
            by=door.how.value,
        )
        if self._told.whole():
            _log.warning("login.refused", user=user, peer=peer, reason=why.value)
            return
        self._more[why.value] += 1
        if len(self._peers) < PEERS_MAX:
            self._peers.add(peer)

    def nobodys(self, shown: Shown | None, peer: str, reason: str) -> None:
        """Tell of a certificate that TLS let pass, and that is no user's."""
        if self._nobodys.whole():
            told = {} if shown is None else facts(shown)
            _log.warning("certificate.without_user", peer=peer, reason=reason, **told)

    def _tell_more(self, count: int, seconds: float) -> None:
        """Say how many were refused that were not told one by one."""
        reasons = {reason.replace("-", "_"): n for reason, n in sorted(self._more.items())}
        peers = len(self._peers)
        self._more.clear()
        self._peers.clear()
        _log.warning("login.refused_more", count=count, seconds=seconds, peers=peers, **reasons)


def _tell_nobodys(count: int, seconds: float) -> None:
    _log.warning("certificate.without_user_more", count=count, seconds=seconds)


def load_users(path: str, *, required: bool) -> dict[str, User]:
    """Read a users file; without one there are no users, unless it is `required`.

    Raises UsersError with everything that is wrong.
    """
    file = Path(path)
    try:
        source = file.read_text("utf-8")
        mode = file.stat().st_mode
    except FileNotFoundError:
        if required:
            raise UsersError("does not exist; `sluicegate user add NAME` makes it") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsersError(f"cannot be read: {error}") from None
    users = _parsed(source)
    if mode & _READABLE_BY_OTHERS:
        _log.warning("users.readable_by_others", path=path, mode=oct(mode & 0o777))
    return users


def read_users(path: str, *, required: bool) -> dict[str, User]:
    """Read a users file as `load_users` does, and log nothing."""
    try:
        return _parsed(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        if required:
            raise UsersError("does not exist; `sluicegate user add NAME` makes it") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsersError(f"cannot be read: {error}") from None


def _parsed(source: str) -> dict[str, User]:
    users = parse_users(source)
    wrong = [f"users.{u.name}: {p}" for u in users.values() if (p := hash_problem(u.password))]
    if wrong:
        raise UsersError("; ".join(wrong))
    return users
