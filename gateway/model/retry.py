"""After how many seconds is it worth trying again what was refused? Never, for most refusals. Pure.

    HELPS    time takes the reason away: others consume, leave or log in, a disk is freed, a gateway
             starts again; of these only what is refused as `transient` or with a `wait`, since one
             code may stand for a limit of all clients and for one of a frame
    NEVER    the request, the client, or what an operator has set has to change

Both together are all codes. What the place that refuses knows better (`Refusal.wait`) wins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from gateway.model.errors import Code, Refusal

#: Code -> seconds. A gateway is asked by all that it has refused: none asks twice a second.
HELPS: Final[Mapping[Code, int]] = {
    # The disk is looked at every 5 s unless it is set; the judge of the disk knows better.
    Code.DISK_FULL: 5,
    # Consumers make room, as fast as they are.
    Code.ADDRESS_FULL: 5,
    Code.MEMORY_FULL: 5,
    Code.PAGE_FULL: 5,
    # The journal catches up within `store-lag-limit`, mostly at once.
    Code.STORE_BUSY: 1,
    # The place that refuses knows when its rate has paid for what has passed.
    Code.QUOTA_REACHED: 1,
    # Others have to leave.
    Code.TOO_MANY: 10,
    Code.MAX_CONSUMERS: 10,
    # A restart reads its journal first.
    Code.SHUTTING_DOWN: 5,
}
NEVER: Final = frozenset(
    {
        Code.NOT_FOUND,
        Code.NOT_AUTHORIZED,
        Code.TOKEN_EXPIRED,
        Code.ALREADY_EXISTS,
        Code.DUPLICATE_ID,
        Code.BAD_NAME,
        Code.BAD_VALUE,
        Code.BAD_SELECTOR,
        Code.BAD_HEADER,
        Code.BAD_FRAME,
        Code.BAD_MESSAGE,
        Code.TOO_LARGE,
        Code.ROUTING_MISMATCH,
        Code.IN_USE,
        Code.NOT_IMPLEMENTED,
        Code.QUEUE_DELETED,
        Code.SLOW_CONSUMER,
        Code.CONVERSION,
        Code.OPERATOR,
        Code.STORE_FAILED,
    }
)
#: However long something takes by our guess, who waits asks again: guesses are wrong.
WAIT_MAX: Final = 300


def retry_after(refusal: Refusal) -> int | None:
    """Return the seconds after which the same may work; None where waiting does not help."""
    usual, wait = HELPS.get(refusal.code), refusal.wait
    if usual is None:
        return None
    if wait is None:
        return usual if refusal.transient else None
    return max(1, min(math.ceil(wait), WAIT_MAX))
