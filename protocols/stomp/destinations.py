"""What a destination header names: its style, and the routing type that is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.model.address import RoutingType
from gateway.model.errors import Code, RefusedError
from protocols.stomp.heads import shown
from protocols.stomp.limits import StompLimits
from protocols.stomp.styles import Named, read_destination


def required(headers: Mapping[str, str], name: str, command: str) -> str:
    """Return a header that `command` cannot do without; raises RefusedError (bad-header)."""
    value = headers.get(name)
    if value is None:
        raise RefusedError.of(
            Code.BAD_HEADER, f"{command} has no {name} header; {command} needs one."
        )
    return value


def resolve(
    headers: Mapping[str, str], command: str, type_headers: tuple[str, ...], limits: StompLimits
) -> tuple[Named, RoutingType | None]:
    """Return what `destination` names, not looked for yet, and the routing type asked for.

    A prefix asks for it, or a header.

    Raises:
        RefusedError: no destination, a style that is refused, an unknown type, or a type header
            that contradicts the prefix or another type header.
    """
    text = required(headers, "destination", command)
    named = read_destination(text, limits)
    routing = named.routing
    for header in type_headers:
        value = headers.get(header)
        if value is None:
            continue
        try:
            asked = RoutingType(value)
        except ValueError:
            raise RefusedError.of(
                Code.BAD_VALUE, f"{header} '{shown(value)}' is neither ANYCAST nor MULTICAST."
            ) from None
        if routing is not None and asked is not routing:
            raise RefusedError.of(
                Code.ROUTING_MISMATCH,
                f"{header} says {asked.value}, but destination '{shown(text)}' says "
                f"{routing.value}. Leave one of them out.",
            )
        routing = asked
    return named, routing
