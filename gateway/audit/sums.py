"""Which events are told whole, and how many more there were: floods cost a line a minute. Pure.

An event of `WHOLE` is told whole so often in a minute, and counted beyond, with the users and
remotes that it was most often about. Each minute begins anew: an attack that lasts does not hide
all of the refusals of somebody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PERIOD_MS: Final = 60_000
#: Users and remotes that are counted one by one, and those that are named.
COUNTED_MAX: Final = 1000
NAMED_MAX: Final = 10


@dataclass(slots=True)
class _Sum:
    """One event in one minute."""

    began_ms: int
    whole: int = 0
    more: int = 0
    users: Counter[str] = field(default_factory=Counter)
    remotes: Counter[str] = field(default_factory=Counter)


class Sums:
    """See the module text."""

    def __init__(self, whole: Mapping[str, int]) -> None:
        self._whole = whole
        self._sums: dict[str, _Sum] = {}

    def takes(self, event: str, facts: Mapping[str, object], now_ms: int) -> bool:
        """Count an event; returns whether it is told whole."""
        most = self._whole.get(event)
        if most is None:
            return True
        one = self._sums.setdefault(event, _Sum(now_ms))
        if one.whole < most:
            one.whole += 1
            return True
        one.more += 1
        remote = facts.get("remote") or facts.get("peer")
        for counter, found in ((one.users, facts.get("user")), (one.remotes, remote)):
            value = str(found or "")
            if value and (value in counter or len(counter) < COUNTED_MAX):
                counter[value] += 1
        return False

    @property
    def running(self) -> bool:
        """Whether a minute has begun that will be over."""
        return bool(self._sums)

    def over(self, now_ms: int | None) -> list[dict[str, Any]]:
        """Return the sums of the minutes that are over, None: of all, and begin anew."""
        found = []
        for event, one in list(self._sums.items()):
            if now_ms is not None and 0 <= now_ms - one.began_ms < PERIOD_MS:
                continue
            del self._sums[event]
            if one.more:
                found.append(
                    {
                        "of": event,
                        "count": one.more,
                        "seconds": PERIOD_MS // 1000,
                        "users": dict(one.users.most_common(NAMED_MAX)),
                        "remotes": dict(one.remotes.most_common(NAMED_MAX)),
                    }
                )
        return found
