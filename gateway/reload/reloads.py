"""When the configuration is read again, one after the other, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from gateway.config.diff import Change
from gateway.config.errors import ConfigError, Problem
from gateway.config.tree import Config, LoggingConfig, LogLevel
from gateway.core.core import Core, Reactor
from gateway.model.audit import SILENT, Auditor
from gateway.model.errors import Code, RefusedError
from gateway.model.rows import Reach
from gateway.reload.applying import Running, apply, use_users
from gateway.reload.reading import check_against, read_again
from gateway.reload.users_file import UsersFile
from gateway.security.users import Users

#: Of one reload, in the log: whoever changes more reads the answer of the API.
LOGGED_MAX: Final = 200
#: Reloads that may wait for the one that is under way.
WAITING_MAX: Final = 8

_TELLING: Final = (LogLevel.DEBUG, LogLevel.INFO)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """How the configuration is had once more.

    Attributes:
        read: from the same file, environment and options; blocks, raises ConfigError.
        relog: makes the log what another `[logging]` says.
    """

    read: Callable[[], Config]
    relog: Callable[[LoggingConfig], None]


class Ready(Running, Protocol):
    """The gateway, and whether it is there yet."""

    @property
    def core(self) -> Core | None: ...

    def not_ready(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one reload that was right.

    Attributes:
        loaded_ms: when it was in force.
        changes: all differences from what was in force before.
        closed: connections that were closed, since their user is none any more.
        seconds: how long it took.
    """

    loaded_ms: int
    changes: tuple[Change, ...] = ()
    closed: int = 0
    seconds: float = 0.0


def _less_deleted(config: Config, core: Core) -> Config:
    """Return what is in force without the diverts that somebody has deleted meanwhile."""
    there = core.broker.branches.diverts
    left = tuple(d for d in config.diverts if (at := there.get(d.name)) and at.configured)
    return config if left == config.diverts else replace(config, diverts=left)


@dataclass(slots=True, kw_only=True)
class Refused:
    """The last one that was wrong, as long as no later one was right."""

    at_ms: int
    problems: Sequence[Problem] = field(default_factory=tuple)


class Reloads:
    """See the module text.

    Attributes:
        last: what is in force: of the start, or of the last reload that was right.
        refused: the last one that was wrong, None once a later one was right.
        count: those that were right.
        users: looks at the users file alone.
        auditor: is told of each, and of the keys that changed.
    """

    def __init__(
        self, reactor: Reactor, running: Ready, again: Again, now_ms: Callable[[], int]
    ) -> None:
        self.last = Outcome(loaded_ms=now_ms())
        self.refused: Refused | None = None
        self.count = 0
        self._reactor = reactor
        self._running = running
        self._again = again
        self._now_ms = now_ms
        self._lock = DeferredLock()
        self._asked = False
        self._early = False
        self.users = UsersFile(self._of_users, self._use_users, self._lock)
        self.auditor: Auditor = SILENT

    @property
    def file(self) -> str | None:
        """The configuration file, None without one."""
        return self._running.config.file

    def hear(self) -> None:
        """A signal asks for it; one that waits already will see what this one would."""
        if self._running.not_ready() is not None:
            self._early = True  # for `ready` to see
            return
        if self._asked:
            return
        self._asked = True
        self.reload("SIGHUP").addErrback(self._failed)

    def ready(self) -> None:
        """The gateway is ready: answer a signal that came before."""
        if self._early:
            self._early = False
            self.hear()

    def reload(self, why: str) -> Deferred[Outcome]:
        """Read everything again and bring it into force.

        Fails with ConfigError (nothing has changed then), RefusedError (in-use: not ready, or too
        many wait).
        """
        return Deferred.fromCoroutine(self._in_turn(why))

    async def _in_turn(self, why: str) -> Outcome:
        if len(self._lock.waiting) >= WAITING_MAX:
            raise RefusedError.of(
                Code.TOO_MANY, f"{WAITING_MAX} reloads wait already; ask again when they are done."
            )
        await self._lock.acquire()
        try:
            if why == "SIGHUP":
                self._asked = False  # one that comes from here on may find another file
            return await self._reload(why)
        finally:
            self._lock.release()

    async def _reload(self, why: str) -> Outcome:
        running = self._running
        self._check_ready()
        core = running.core
        assert core is not None, "ready, and no core"
        began = self._reactor.seconds()
        running.config = _less_deleted(running.config, core)
        try:
            wanted = await core.threads.run(
                read_again,
                self._again.read,
                running.config,
                running.gate.users,
                running.tokens,
            )
            await check_against(core, wanted, self._pause)
        except ConfigError as error:
            self._tell_refused(error.problems, why)
            raise
        closed = await apply(running, core, wanted, reactor=self._reactor, pause=self._pause)
        before = running.config.logging.level in _TELLING
        running.config = wanted.held
        self.refused = None
        self.users.problems = ()
        for change in wanted.changes[wanted.of_users :]:
            self.users.note(change, why)
        self.count += 1
        self.last = Outcome(
            loaded_ms=self._now_ms(),
            changes=wanted.changes,
            closed=closed,
            seconds=self._reactor.seconds() - began,
        )
        self._record(self.last, why)
        # Told once, by whichever of the two levels tells it.
        if before:
            self._tell(self.last, why)
        self._again.relog(wanted.held.logging)
        if not before:
            self._tell(self.last, why)
        return self.last

    def _of_users(self) -> tuple[Core, Config, Users] | None:
        running = self._running
        if running.not_ready() is not None or running.core is None:
            return None
        return running.core, running.config, running.gate.users

    async def _use_users(self, core: Core, users: Users, config: Config) -> int:
        closed = await use_users(self._running, core, users, config, self._pause)
        self._running.serve(config)  # with the first user an audit trail may begin
        return closed

    def _pause(self) -> Deferred[None]:
        return deferLater(self._reactor, 0, self._check_ready)

    def _check_ready(self) -> None:
        """Go on only while the gateway is there; raises RefusedError (in-use)."""
        reason = self._running.not_ready()
        if reason is not None:
            raise RefusedError.of(Code.IN_USE, reason)

    def _record(self, outcome: Outcome, why: str) -> None:
        """Tell the auditor; a value is what the log is told as well."""
        for change in outcome.changes[:LOGGED_MAX]:
            self.auditor.note(
                "config.changed",
                key=change.key,
                old=change.old,
                new=change.new,
                effect=change.reach.value,
                origin=change.origin,
            )
        self.auditor.note(
            "config.reloaded",
            why=why,
            file=self.file or "",
            changes=len(outcome.changes),
            not_told=max(0, len(outcome.changes) - LOGGED_MAX),
            connections_closed=outcome.closed,
        )

    def _tell(self, outcome: Outcome, why: str) -> None:
        for change in outcome.changes[:LOGGED_MAX]:
            _log.info(
                "config.changed",
                key=change.key,
                old=change.old,
                new=change.new,
                effect=change.reach.value,
                origin=change.origin,
            )
        restart = [c.key for c in outcome.changes if c.reach is Reach.RESTART]
        _log.info(
            "config.reloaded",
            why=why,
            file=self.file or "",
            changes=len(outcome.changes),
            not_logged=max(0, len(outcome.changes) - LOGGED_MAX),
            applied=sum(c.reach.applies for c in outcome.changes),
            needs_restart=" ".join(restart),
            connections_closed=outcome.closed,
            seconds=round(outcome.seconds, 3),
        )

    def _tell_refused(self, problems: Sequence[Problem], why: str) -> None:
        self.refused = Refused(at_ms=self._now_ms(), problems=problems)
        texts = [f"{problem.path}: {problem.text}" for problem in problems]
        self.auditor.note("config.refused", why=why, file=self.file or "", problems=texts)
        for problem in problems[:LOGGED_MAX]:
            _log.error(
                "config.refused", why=why, where=problem.where, key=problem.path, error=problem.text
            )

    def _failed(self, failure: Failure) -> None:
        """A signal has nobody to answer: what is wrong with the file is in the log already."""
        if failure.check(ConfigError) is None:
            _log.error(
                "config.refused", why="SIGHUP", where="", key="", error=failure.getErrorMessage()
            )
