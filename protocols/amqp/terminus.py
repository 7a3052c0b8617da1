"""What a source or target asks for: address, routing type, lifetime. Cold; pure.

Routing type of a terminus, first hit: capability `topic`/`queue` (and their temporary forms), a
configured prefix of the address, what the address already is (the broker's business).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.model.address import Destination, RoutingType, parse_destination
from gateway.model.errors import Code, RefusedError
from protocols.amqp.performatives import DURABLE_NONE, Attach, Source, Target

_TOPIC: Final = frozenset({"topic", "temporary-topic"})
_QUEUE: Final = frozenset({"queue", "temporary-queue"})
#: Filters that would change what a consumer gets; to ignore them would hand it messages that it did
#: not ask for.
_SELECTORS: Final = frozenset(
    {
        "apache.org:selector-filter:string",
        "jms-selector",
        "selector",
        "apache.org:no-local-filter:list",
        "no-local",
    }
)
_SELECTOR_CODES: Final = frozenset({0x0000468C00000004, 0x0000468C00000003})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a link asks for."""

    destination: Destination
    routing: RoutingType | None
    durable_name: str | None = None
    shared: bool = False
    temporary: bool = False
    browse: bool = False


def routing_of(capabilities: tuple[str, ...]) -> RoutingType | None:
    """Return the routing type that capabilities name."""
    for capability in capabilities:
        if capability in _TOPIC:
            return RoutingType.MULTICAST
        if capability in _QUEUE:
            return RoutingType.ANYCAST
    return None


def destination_of(
    address: str, capabilities: tuple[str, ...], prefixes: tuple[tuple[str, RoutingType], ...]
) -> tuple[Destination, RoutingType | None]:
    """Return where an address leads, and what capability or prefix say. Raises RefusedError."""
    routing = routing_of(capabilities)
    for prefix, kind in prefixes:
        if prefix and address.startswith(prefix):
            return parse_destination(address.removeprefix(prefix)), routing or kind
    return parse_destination(address), routing


def wanted_source(
    attach: Attach, source: Source, container: str, prefixes: tuple[tuple[str, RoutingType], ...]
) -> Wanted:
    """Return what a receiving peer asks for. Raises RefusedError."""
    assert source.address is not None
    destination, routing = destination_of(source.address, source.capabilities, prefixes)
    shared = "shared" in source.capabilities
    durable_name = None
    if source.durable != DURABLE_NONE or shared:
        name = attach.name.partition("|")[0] if shared else attach.name
        everybody = shared and "global" in source.capabilities
        durable_name = name if everybody else f"{container}.{name}"
        if source.durable == DURABLE_NONE:
            durable_name += ":shared-volatile"
        if everybody:
            durable_name += ":global"
    return Wanted(
        destination=destination,
        routing=routing,
        durable_name=durable_name,
        shared=shared,
        temporary=shared and source.durable == DURABLE_NONE,
        browse=source.distribution_mode == "copy",
    )


def check_filters(source: Source) -> None:
    """Refuse, by name, filters that would be ignored. Raises RefusedError."""
    for key, value in (source.filter or {}).items():
        descriptor = getattr(value, "descriptor", None)
        if str(key) in _SELECTORS or descriptor in _SELECTORS or descriptor in _SELECTOR_CODES:
            raise RefusedError.of(
                Code.NOT_IMPLEMENTED,
                f"The filter {str(key)!r} is not in this version: attach without it and filter "
                "in the client.",
            )


def without_filters(source: Source) -> Source:
    """Return the source for the answer: a filter that is not applied is not echoed [AMQP 3.5.8]."""
    return Source(
        address=source.address,
        durable=source.durable,
        expiry_policy=source.expiry_policy,
        timeout=source.timeout,
        dynamic=source.dynamic,
        dynamic_node_properties=source.dynamic_node_properties,
        distribution_mode=source.distribution_mode,
        default_outcome=source.default_outcome,
        outcomes=source.outcomes,
        capabilities=source.capabilities,
    )


def with_address(target: Target, address: str) -> Target:
    """Return a dynamic target with the address that was made for it."""
    return Target(
        address=address,
        durable=target.durable,
        expiry_policy=target.expiry_policy,
        timeout=target.timeout,
        dynamic=True,
        dynamic_node_properties=target.dynamic_node_properties,
        capabilities=target.capabilities,
    )
