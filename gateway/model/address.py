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
#: Where the gateway tells what it noticed; clients listen there, and nobody else speaks.
NOTIFICATIONS: Final = "activemq.notifications"
#: Characters that turn the direction of text around: a name with them shows as another name.
_BIDIRECTIONAL: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
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
    if not separator:
        return Destination(address)
    check_name(queue, "queue")
    return Destination(address, queue)


def check_name(name: str, what: str) -> None:
    """Raise RefusedError unless `name` can name an address or a queue.

    That is bad-name, and not-implemented for the name of management.
    """
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
    if not _BIDIRECTIONAL.isdisjoint(name):
        raise RefusedError.of(
            Code.BAD_NAME,
            f"The {what} name {name!a} holds a mark that turns the direction of text around, so "
            "that it would show as another name; leave it out.",
        )
    if name == MANAGEMENT:
        raise RefusedError.of(
            Code.NOT_IMPLEMENTED,
            f"Management messages to {MANAGEMENT} are not offered. "
            "Use the HTTP API, for example GET /api/v1/queues/NAME.",
        )
    if name.startswith("$"):
        raise RefusedError.of(
            Code.BAD_NAME,
            f"The {what} name {name!r} starts with '$', which is kept for the gateway.",
        )


def check_not_ours(name: str) -> None:
    """Raise RefusedError (not-authorized) for an address that only the gateway sends to."""
    if name == NOTIFICATIONS:
        raise RefusedError.of(
            Code.NOT_AUTHORIZED,
            f"Only the gateway sends to {NOTIFICATIONS}, and makes it when somebody listens there. "
            "Subscribe to it instead.",
        )
