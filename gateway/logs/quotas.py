"""Which quotas are reached, and have room again, in the log: each once."""

from __future__ import annotations

import structlog

from gateway.model.quota import Scope
from gateway.quotas.meters import Meters, Reached

_log = structlog.get_logger()


class QuotaTeller:
    """See the module text; `look` is called about once a second."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def look(self) -> None:
        """Log what has changed since the last look."""
        for reached, began in self._meters.look():
            if began:
                _log.warning("quota.reached", reason=reached.text, **_facts(reached))
            else:
                _log.info("quota.room_again", **_facts(reached))


def _facts(reached: Reached) -> dict[str, object]:
    key = {Scope.USER: "user", Scope.REMOTE: "peer", Scope.ADDRESS: "address"}[reached.scope]
    return {
        key: reached.name,
        "key": reached.key,
        "limit": reached.limit,
        "origin": reached.origin,
    }
