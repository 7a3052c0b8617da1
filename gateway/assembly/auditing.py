"""The audit trail of a process: made from the configuration, started, and told of what fails.

    recorder (reactor) ──> TrailThread ──> files          echo ──> the log, where that is asked for

It is kept where the configuration says so, and where it says nothing as soon as there are users:
without users there is nobody to tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from gateway.audit.keys import read_key
from gateway.audit.recorder import Recorder
from gateway.audit.thread import TrailThread
from gateway.audit.trail import Trail, TrailSettings
from gateway.config.audit import OnFailure
from gateway.config.errors import ConfigError, Problem
from gateway.config.tree import Config
from gateway.core.core import Reactor
from storage.files import RealFiles

_log = structlog.get_logger()


def trail_settings(config: Config) -> TrailSettings:
    """Return how the trail of a configuration is kept. Raises ConfigError for its key."""
    audit = config.audit
    try:
        key = None if audit.key_file is None else read_key(audit.key_file)
    except ValueError as error:
        where = config.origins.get("audit.key-file", "")
        problem = Problem(where=where, path="audit.key-file", text=str(error))
        raise ConfigError([problem]) from None
    return TrailSettings(
        path=audit.path(config.data_directory),
        key=key,
        file_bytes=audit.max_file_size,
        file_ms=audit.max_file_age,
        files_kept=audit.files_kept,
        synced=audit.sync_interval >= 0,
    )


class Auditing:
    """See the module text.

    Attributes:
        auditor: what everything is told; it keeps nothing before `follow`.
    """

    def __init__(
        self,
        reactor: Reactor,
        config: Config,
        wall_ms: Callable[[], int],
        fatal: Callable[[str], None],
    ) -> None:
        """`fatal` is told when the gateway must not go on without it. Raises ConfigError."""
        self.auditor = Recorder(wall_ms, reactor.callLater)
        self._reactor = reactor
        self._wall_ms = wall_ms
        self._fatal = fatal
        self._settings = trail_settings(config)
        self._config = config.audit
        self._thread: TrailThread | None = None

    def follow(self, config: Config, *, users: bool) -> None:
        """Keep the trail from now on, where that is wanted; `users`: there are some."""
        wanted = users if self._config.enabled is None else self._config.enabled
        self.auditor.personal = config.audit.personal_data
        self.auditor.echo = _to_log if config.audit.to_log else None
        if not wanted or self._thread is not None:
            return
        trail = Trail(RealFiles(), self._settings, self._wall_ms)
        seconds = self._config.sync_interval / 1000
        thread = TrailThread(trail, self._wall_ms, self._told, seconds)
        thread.start()
        self._thread, self.auditor.post = thread, thread.post
        _log.info("audit.opened", file=self._settings.path, keyed=self._settings.key is not None)

    def close(self) -> None:
        """Write what waits, and end; takes some seconds at most."""
        self.auditor.end()
        thread, self._thread, self.auditor.post = self._thread, None, None
        if thread is not None:
            thread.close()

    # ---- figures

    @property
    def kept(self) -> bool:
        """Whether a trail is kept."""
        return self._thread is not None

    @property
    def failing(self) -> str:
        """Why nothing can be written now; empty: it can."""
        return "" if self._thread is None else self._thread.failing

    @property
    def lines(self) -> int:
        """How many lines were written since the start."""
        return 0 if self._thread is None else self._thread.lines

    @property
    def lost(self) -> int:
        """How many events could not be kept."""
        return 0 if self._thread is None else self._thread.lost

    # ---- from the thread

    def _told(self, what: str, text: str) -> None:
        self._reactor.callFromThread(self._tell, what, text)

    def _tell(self, what: str, text: str) -> None:
        """Raise or end the alarm; on the reactor."""
        if what == "fault":
            _log.error("audit.tampered", file=self._settings.path, fault=text)
        elif what == "went-on":
            _log.info("audit.goes_on", file=self._settings.path, lost=self.lost)
        else:
            stops = self._config.on_failure is OnFailure.STOP
            _log.error("audit.failed", error=text, stops=stops)
            if stops:
                self._fatal(
                    f"The audit trail cannot be written, and audit.on-failure is stop: {text}."
                )


def _to_log(event: str, facts: Mapping[str, Any]) -> None:
    _log.info("audit.noted", of=event, **{f"its_{name}": value for name, value in facts.items()})
