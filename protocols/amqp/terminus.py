"""What a source or target asks for: address, routing type, lifetime. Cold; pure.

Routing type of a terminus, first hit: capability `topic`/`queue` (and their temporary forms), a
configured prefix of the address, what the address already is (the broker's business).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from gateway.model.address import Destination, RoutingType, parse_destination
from gateway.model.amqp_types import Described, Symbol, Value
from gateway.model.errors import Code, RefusedError
from gateway.model.stream_start import StreamStart
from protocols.amqp.parameters import split_parameters
from protocols.amqp.performatives import DURABLE_NONE, Attach, Source, Target
from protocols.amqp.replayed import START_NAMES, start_of

COPY: Final = "copy"
_TOPIC: Final = frozenset({"topic", "temporary-topic"})
_QUEUE: Final = frozenset({"queue", "temporary-queue"})
#: Descriptors of the filters that are known, by symbol and by code.
_SELECTOR_NAME: Final = Symbol("apache.org:selector-filter:string")
_NO_LOCAL_NAME: Final = Symbol("apache.org:no-local-filter:list")
_SELECTOR: Final = frozenset({_SELECTOR_NAME, 0x0000468C00000004})
_NO_LOCAL: Final = frozenset({_NO_LOCAL_NAME, 0x0000468C00000003})


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The filters of a source that are known, and so are in force.

    Attributes:
        selector: of JMS; "" for none.
        no_local: nothing that this container sends.
        start: where a replay of the address' stream begins; None for a queue's consumer.
        kept: the map for the answer: these filters under the names and in the form of the peer.
    """

    selector: str = ""
    no_local: bool = False
    start: StreamStart | None = None
    kept: Mapping[str, Value] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a link asks for."""

    destination: Destination
    routing: RoutingType | None
    durable_name: str | None = None
    shared: bool = False
    temporary: bool = False
    browse: bool = False
    filters: Filters = Filters()


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
    """Return where an address leads, and what capability or prefix say. Raises RefusedError.

    Parameters behind it are no part of its name.
    """
    routing = routing_of(capabilities)
    address, _ = split_parameters(address)
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
    filters = filters_of(source)
    if filters.start is not None:
        # Nothing of it outlives the link, and nobody shares it: how far it is, the client knows.
        return Wanted(destination=destination, routing=None, filters=filters)
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
        browse=source.distribution_mode == COPY,
        filters=filters,
    )


def filters_of(source: Source) -> Filters:
    """Return which filters are in force; one of an unknown type is left out [AMQP 3.5.8].

    A value without descriptor counts where its name is the descriptor. Raises RefusedError.
    """
    selector = ""
    no_local: Symbol | None = None
    start: StreamStart | None = None
    kept: dict[str, Value] = {}
    for key, value in (source.filter or {}).items():
        descriptor: object = value.descriptor if isinstance(value, Described) else str(key)
        bare = value.value if isinstance(value, Described) else value
        if not isinstance(descriptor, str | int):
            continue
        if descriptor in _SELECTOR:
            if selector:
                raise RefusedError.of(
                    Code.BAD_SELECTOR,
                    f"The filter {str(key)!r} is a second selector; join them with AND.",
                )
            selector = _selector_text(str(key), bare)
        elif descriptor in _NO_LOCAL:
            no_local = Symbol(key)
        elif descriptor in START_NAMES:
            if start is not None:
                raise RefusedError.of(
                    Code.BAD_VALUE,
                    f"The filter {str(key)!r} is a second stream offset; a replay begins once.",
                )
            start = start_of(bare)
        else:
            continue
        kept[Symbol(key)] = value
    if start is not None and no_local is not None:
        del kept[no_local]  # a stream does not keep which connection sent what
        no_local = None
    return Filters(selector=selector, no_local=no_local is not None, start=start, kept=kept or None)


def _selector_text(key: str, value: Value) -> str:
    if not isinstance(value, str):
        raise RefusedError.of(
            Code.BAD_SELECTOR, f"The filter {key!r} must be a string, not {type(value).__name__}."
        )
    return value.strip()


def written_filters(selector: str, no_local: bool) -> dict[str, Value] | None:  # noqa: FBT001
    """Return the filters of a subscription under the names that JMS clients know."""
    filters: dict[str, Value] = {}
    if selector:
        filters[_SELECTOR_NAME] = Described(_SELECTOR_NAME, selector)
    if no_local:
        filters[_NO_LOCAL_NAME] = Described(_NO_LOCAL_NAME, [])
    return filters or None


def answered(source: Source, filters: Filters) -> Source:
    """Return the source for the answer: what is not in force is not echoed [AMQP 3.5.8].

    A replay is told as what it is: copies, and no state that outlives the link.
    """
    if filters.start is None:
        return replace(source, filter=filters.kept)
    return replace(
        source, filter=filters.kept, distribution_mode=COPY, durable=DURABLE_NONE, capabilities=()
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
