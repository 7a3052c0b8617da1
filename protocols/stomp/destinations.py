"""What a destination header names: an address or queue, and the routing type asked for."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.model.address import Destination, RoutingType, parse_destination
from gateway.model.errors import Code, RefusedError
from protocols.stomp.heads import shown
from protocols.stomp.limits import StompLimits


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
) -> tuple[Destination, RoutingType | None]:
    """Return what `destination` names and the routing type asked for by prefix or type header.

    Raises:
        RefusedError: no destination, an impossible name, an unknown type, or a type header that
            contradicts the prefix or another type header.
    """
    text = required(headers, "destination", command)
    name, routing = _without_prefix(text, limits)
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
    return parse_destination(name), routing


def _without_prefix(text: str, limits: StompLimits) -> tuple[str, RoutingType | None]:
    for prefix in limits.anycast_prefixes:
        if text.startswith(prefix):
            return text[len(prefix) :], RoutingType.ANYCAST
    for prefix in limits.multicast_prefixes:
        if text.startswith(prefix):
            return text[len(prefix) :], RoutingType.MULTICAST
    return text, None
