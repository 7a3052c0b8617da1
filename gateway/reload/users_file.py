"""The users file, looked at once a second: what is written there holds a second later.

    the same as before ──> nothing
    another one ──read──> right ──> in force: who is gone has to go, who has other roles has them
                     └──> wrong ──> told once; the old users stay

It is read whole, and judged by the same rules as at a start. What blocks is done on a thread.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from twisted.internet.defer import Deferred, DeferredLock
from twisted.python.failure import Failure

from gateway.config.diff import Change
from gateway.config.errors import ConfigError, Problem
from gateway.config.tree import Config
from gateway.core.core import Core
from gateway.model.audit import SILENT, Auditor
from gateway.model.errors import RefusedError
from gateway.reload.reading import read_users
from gateway.reload.users import user_changes
from gateway.security.users import Users

#: How often it is looked at.
LOOK_SECONDS: Final = 1.0
#: A file that looks other than before is read so many times more: what is written twice in one tick
#: of the file system's clock looks the same.
READS_MORE: Final = 2
#: Of one change of the file, in the log.
LOGGED_MAX: Final = 200

#: Whatever of a file changes when it is written: inode, size, and two times in ns.
Stamp = tuple[int, ...]
#: Brings users into force; returns how many connections were closed.
Use = Callable[[Core, Users, Config], Awaitable[int]]

_log = structlog.get_logger()


def stamp_of(path: str) -> Stamp:
    """Return how a file looks; empty: there is none. Blocks."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a text
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class UsersFile:
    """See the module text.

    Attributes:
        auditor: is told of each change.
        problems: what is wrong with the file as it is now; empty: it is in force.
    """

    def __init__(
        self,
        running: Callable[[], tuple[Core, Config, Users] | None],
        use: Use,
        lock: DeferredLock,
        stamp: Callable[[str], Stamp] = stamp_of,
    ) -> None:
        """Keep how to ask and change the gateway.

        Args:
            running: core, configuration and users; None: it is not ready.
            use: brings other users into force.
            lock: what a whole reload holds.
            stamp: how a file looks; runs on a thread.
        """
        self.auditor: Auditor = SILENT
        self.problems: tuple[Problem, ...] = ()
        self._running = running
        self._use = use
        self._lock = lock
        self._stamp_of = stamp
        self._stamp: Stamp | None = None
        self._more = 0
        self._looking = False

    def look(self) -> None:
        """Look whether it is another file, and read it if so."""
        if self._looking or self._running() is None:
            return
        self._looking = True
        Deferred.fromCoroutine(self._look()).addErrback(self._failed).addBoth(self._looked)

    def _looked(self, _: object) -> None:
        self._looking = False

    def _failed(self, failure: Failure) -> None:
        if failure.check(RefusedError) is None:  # the gateway stops meanwhile
            _log.error("users.refused", path="", error=failure.getErrorMessage())

    async def _look(self) -> None:
        found = self._running()
        if found is None:
            return
        core, config = found[0], found[1]
        stamp = await core.threads.run(self._stamp_of, config.users_file)
        if stamp == self._stamp and not self._more:
            return
        await self._lock.acquire()
        try:
            await self._read(core)
        finally:
            self._lock.release()
        self._more = self._more - 1 if stamp == self._stamp else READS_MORE
        self._stamp = stamp

    async def _read(self, core: Core) -> None:
        now = self._running()
        if now is None:
            return
        _, config, users = now
        try:
            found = await core.threads.run(_read, config, users)
        except ConfigError as error:
            self._refuse(config, error.problems)
            return
        self.problems = ()
        changes = user_changes(users, found)
        if not changes:
            return
        closed = await self._use(core, found, config)
        self.tell(changes, "users file")
        _log.info(
            "users.reloaded",
            path=config.users_file,
            changes=len(changes),
            connections_closed=closed,
        )

    def _refuse(self, config: Config, problems: tuple[Problem, ...]) -> None:
        """Tell what is wrong, once."""
        if problems == self.problems:
            return
        self.problems = problems
        for problem in problems[:LOGGED_MAX]:
            _log.error("users.refused", path=config.users_file, error=problem.text)

    def tell(self, changes: list[Change], why: str) -> None:
        """Tell log and auditor of users who came, went, or are others now."""
        for count, change in enumerate(changes):
            if count < LOGGED_MAX:
                _log.info(
                    "config.changed",
                    key=change.key,
                    old=change.old,
                    new=change.new,
                    effect=change.reach.value,
                    origin=change.origin,
                )
            self.note(change, why)

    def note(self, change: Change, why: str) -> None:
        """Tell the auditor of one."""
        self.auditor.note("user.changed", key=change.key, old=change.old, new=change.new, why=why)


def _read(config: Config, users: Users) -> Users:
    """Read the users file and judge it. Raises ConfigError. Blocks."""
    found, problems = read_users(config, users, config)
    if problems:
        raise ConfigError(problems)
    return found
