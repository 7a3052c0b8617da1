"""Addresses, queues' names and routing types, as clients write them."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gateway.model.errors import Code, RefusedError

#: A name may be a file of ours in an export and a label of a metric; 255 is the usual file name
#: limit.
NAME_BYTES_MAX: Final = 255
FQQN_SEPARATOR: Final = "::"
#: Artemis takes management requests as messages to this address; we have an HTTP API for them.
MANAGEMENT: Final = "activemq.management"
#: Addresses and queues of the gateway's own; `$` keeps clients from naming them.
INTERNAL_PREFIX: Final = "$.artemis.internal."


class RoutingType(Enum):
    """How an address hands messages to its queues."""

    ANYCAST = "ANYCAST"
    MULTICAST = "MULTICAST"


@dataclass(frozen=True, slots=True)
class Destination:
    """What a client named: an address and, for `address::queue`, one queue of it."""

    address: str
    queue: str | None = None


def is_internal(name: str) -> bool:
    """Return whether an address or a queue is one of the gateway's own."""
    return name.startswith(INTERNAL_PREFIX)


def parse_destination(text: str) -> Destination:
    """Split `address` or `address::queue`.

    Raises RefusedError (bad-name) on an impossible name, (not-implemented) on that of management.
    """
    address, separator, queue = text.partition(FQQN_SEPARATOR)
    check_name(address, "address")
    if address == MANAGEMENT:
        raise RefusedError.of(
            Code.NOT_IMPLEMENTED,
            f"Management messages to {MANAGEMENT} are not offered. "
            "Use the HTTP API, for example GET /api/v1/queues/NAME.",
        )
    if not separator:
        return Destination(address)
    check_name(queue, "queue")
    return Destination(address, queue)


def check_name(name: str, what: str) -> None:
    """Raise RefusedError (bad-name) unless `name` can name an address or a queue."""
    if not name:
        raise RefusedError.of(
            Code.BAD_NAME, f"The {what} name is empty; give it at least one character."
        )
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > NAME_BYTES_MAX:
        raise RefusedError.of(
            Code.BAD_NAME, f"The {what} name has {size} bytes; the limit is {NAME_BYTES_MAX}."
        )
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise RefusedError.of(Code.BAD_NAME, f"The {what} name {name!r} holds a control character.")
    if name.startswith("$"):
        raise RefusedError.of(
            Code.BAD_NAME,
            f"The {what} name {name!r} starts with '$', which is kept for the gateway.",
        )
