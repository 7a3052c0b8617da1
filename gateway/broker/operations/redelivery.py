"""How long a message that came back waits before it is delivered again. Pure: chance is passed in.

delay x multiplier ^ (attempts - 1), more or less by up to the factor's share of it,
at most the largest delay
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from gateway.addresses.settings import AddressSettings

#: What the largest delay is, in delays, when nobody wrote it.
_LARGEST: Final = 10


def redelivery_delay(settings: AddressSettings, attempts: int, chance: Callable[[], float]) -> int:
    """Return the wait in ms after so many failed attempts; `chance()` is in [0, 1)."""
    delay = settings.redelivery_delay
    most = settings.max_redelivery_delay
    if most < 0:
        most = _LARGEST * delay
    try:
        wait = delay * settings.redelivery_delay_multiplier ** max(0, attempts - 1)
    except OverflowError:
        return most
    if wait == inf:
        # Too large for a float: however much chance takes off, it stays above any limit.
        return most
    factor = settings.redelivery_collision_avoidance_factor
    if factor:
        wait += wait * factor * (2 * chance() - 1)
    return int(min(wait, most))
