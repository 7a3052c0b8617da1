"""What stands behind `?` in an AMQP address: parameters for its link. Cold; pure.

The form is that of a URL's query, percent-encoding included. One is known, `consumer-priority`;
others are passed over, as clients write them for other brokers.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from gateway.model.address import FQQN_SEPARATOR
from gateway.model.errors import Code, RefusedError

CONSUMER_PRIORITY: Final = "consumer-priority"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_INT_MAX: Final = (1 << 31) - 1


def split_parameters(address: str) -> tuple[str, int | None]:
    """Return an address without its parameters, and the consumer's priority among them.

    Raises RefusedError.
    """
    name, mark, query = address.partition("?")
    if not mark:
        return name, None
    if FQQN_SEPARATOR in query:
        raise RefusedError.of(
            Code.BAD_NAME,
            f"The parameters in {address!r} stand before a queue's name; they go behind it, as in "
            "address::queue?consumer-priority=10.",
        )
    priority = None
    for part in query.split("&"):
        key, _, value = part.partition("=")
        if unquote(key) == CONSUMER_PRIORITY:
            priority = _number(unquote(value))
    return name, priority


def _number(text: str) -> int:
    if _NUMBER.fullmatch(text) is None or not -_INT_MAX <= int(text) <= _INT_MAX:
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"The address parameter {CONSUMER_PRIORITY!r} must be an integer of 32 bits, "
            f"not {text!r}.",
        )
    return int(text)
