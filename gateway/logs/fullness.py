"""What becomes full, blocked or paging, and has room again, in the log: each once, with its limit.

What flaps is not told each time. From an edge on, the next WINDOW_MS bring one more event of the
same address and kind at most, its end; the others are counted, and one event behind them says how
it stands and how many there were (`suppressed`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from gateway.broker import Gateway
from gateway.broker.pressure.fullness import BLOCKED, GATEWAY, OBJECTS, PAGING, Full, Which
from gateway.config.tree import Config

_log = structlog.get_logger()

#: Milliseconds in which an address that flaps is told of twice at most.
WINDOW_MS: Final = 30_000

_GATEWAYS: Final = ("global-max-size", "global-max-messages", "store-task-limit")
_BY_OPERATOR: Final = "operator"
_BY_DEFAULT: Final = "default"


@dataclass(slots=True)
class _Told:
    """What the log says of one address and kind, since when, and how much it left out."""

    last: Full
    since_ms: int
    stands: bool = True
    suppressed: int = 0


class FullTeller:
    """See the module text. `config` returns what is in force now: a reload brings another one."""

    def __init__(self, broker: Gateway, config: Callable[[], Config]) -> None:
        self._broker = broker
        self._config = config
        self._told: dict[Which, _Told] = {}

    def look(self) -> None:
        """Log what has changed since the last look."""
        now_ms = self._broker.now_ms()
        fullness = self._broker.pressure.fullness
        for full, began in fullness.look():
            self._edge(full, now_ms, began=began)
        for which, count in fullness.missed.items():
            if which in self._told:
                self._told[which].suppressed += count
        for which, told in list(self._told.items()):
            if now_ms - told.since_ms >= WINDOW_MS:
                self._catch_up(which, told, now_ms)

    def _edge(self, full: Full, now_ms: int, *, began: bool) -> None:
        told = self._told.get(full.which)
        if told is None:
            told = self._told[full.which] = _Told(full, now_ms)
            self._tell(full, began=began)
            return
        told.last = full
        if told.suppressed or began:
            told.suppressed += began
        else:
            told.stands = False
            self._tell(full, began=False)

    def _catch_up(self, which: Which, told: _Told, now_ms: int) -> None:
        """Say how it stands after what was not told; forget what is over."""
        found = self._broker.pressure.fullness.full.get(which)
        if told.suppressed or told.stands is not (found is not None):
            self._tell(found or told.last, began=found is not None, suppressed=told.suppressed)
            told.since_ms, told.stands, told.suppressed = now_ms, found is not None, 0
        elif found is None:
            del self._told[which]

    def _tell(self, full: Full, *, began: bool, suppressed: int = 0) -> None:
        told = facts(full, self._origin(full))
        if suppressed:
            told["suppressed"] = suppressed
        if full.kind == OBJECTS:
            if began:
                _log.warning("objects.limit_reached", reason=full.text, **told)
            else:
                _log.info("objects.room_again", **told)
        elif full.address == GATEWAY:
            if began:
                _log.warning("gateway.full", reason=full.text, **told)
            else:
                _log.info("gateway.room_again", **told)
        elif full.kind == BLOCKED:
            if began:
                _log.info("address.blocked", **told)
            else:
                _log.info("address.unblocked", **told)
        elif full.kind == PAGING:
            if began:
                _log.info("address.paging_started", **told)
            else:
                _log.info("address.paging_ended", **told)
        elif began:
            _log.warning("address.full", reason=full.text, **told)
        else:
            _log.info("address.room_again", **told)

    def _origin(self, full: Full) -> str:
        """Return where the setting was written that is in force now."""
        if full.kind == BLOCKED:
            return _BY_OPERATOR
        if full.kind == OBJECTS or full.key in _GATEWAYS:
            return self._config().origins.get(full.key, _BY_DEFAULT)
        explained = self._broker.settings.explain(full.address)
        origins: Mapping[str, str | None] = {one.key: one.origin for one in explained}
        return origins.get(full.key) or _BY_DEFAULT


def facts(full: Full, origin: str) -> dict[str, object]:
    """Return what is told of it, without what does not apply."""
    told = {
        "address": full.address,
        "user": full.user,
        "key": full.key,
        "limit": full.limit,
        "value": full.value,
        "origin": origin,
        "policy": full.policy,
    }
    return {key: value for key, value in told.items() if value not in ("", None)}
