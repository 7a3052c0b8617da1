"""What an attach leads to: a route for what the peer sends, a subscription for what it reads. Cold.

Each function opens the broker's side first and answers only then, so that a refusal is an attach
with a null terminus and a detach with the reason [AMQP 2.6.3]. Raises RefusedError.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gateway.model.address import RoutingType
from gateway.model.errors import Code, RefusedError
from protocols.amqp.incoming import IncomingLink
from protocols.amqp.outgoing import OutgoingLink
from protocols.amqp.performatives import (
    RCV_FIRST,
    ROLE_RECEIVER,
    ROLE_SENDER,
    SND_SETTLED,
    Attach,
    Coordinator,
    Target,
)
from protocols.amqp.terminus import (
    destination_of,
    routing_of,
    wanted_source,
    with_address,
    without_filters,
)

if TYPE_CHECKING:
    from protocols.amqp.session import AmqpSession

_NO_ADD: Final = {"may-add-type": "no"}


def attach_incoming(session: AmqpSession, attach: Attach) -> IncomingLink:
    """Open a link on which the peer sends, and answer its attach."""
    target = attach.target
    if isinstance(target, Coordinator):
        raise RefusedError.of(
            Code.NOT_IMPLEMENTED,
            "Transactions over AMQP are not in this version; STOMP has BEGIN and COMMIT.",
        )
    if target is None:
        raise RefusedError.of(
            Code.BAD_VALUE,
            "A sending link needs a target; an empty address stands for the anonymous relay.",
        )
    link = IncomingLink(session, attach.name, attach.handle)
    if target.dynamic:
        if target.address:
            raise RefusedError.of(
                Code.BAD_VALUE,
                f"A dynamic target must not have an address; this one has {target.address!r}.",
            )
        kind = routing_of(target.capabilities) or RoutingType.ANYCAST
        link.temporary = session.broker.create_temporary(kind)
        target = with_address(target, link.temporary)
    if target.address:
        destination, routing = destination_of(
            target.address, target.capabilities, session.limits.prefixes
        )
        link.producer = session.broker.open_producer(destination, routing, link)
        link.blocked = link.producer.blocked() is not None
    session.write_frame(
        Attach(
            name=attach.name,
            handle=attach.handle,
            role=ROLE_RECEIVER,
            snd_settle_mode=attach.snd_settle_mode,
            rcv_settle_mode=RCV_FIRST,
            source=attach.source,
            target=target,
            max_message_size=link.message_max,
        )
    )
    return link


def attach_outgoing(session: AmqpSession, attach: Attach) -> OutgoingLink:
    """Open a link on which the peer reads, and answer its attach."""
    source = attach.source
    if source is None:
        raise RefusedError.of(Code.NOT_FOUND, f"Unknown subscription link: {attach.name}.")
    settled = attach.snd_settle_mode == SND_SETTLED
    link = OutgoingLink(session, attach.name, attach.handle, settled=settled)
    # An unknown outcome counts as released.
    link.default_outcome = source.default_outcome  # type: ignore[assignment]
    if source.dynamic:
        kind = routing_of(source.capabilities) or RoutingType.ANYCAST
        link.temporary = session.broker.create_temporary(kind)
        source = replace(source, address=link.temporary)
    if not source.address:
        raise RefusedError.of(Code.BAD_VALUE, f"The source of link {attach.name!r} has no address.")
    wanted = wanted_source(attach, source, session.container, session.limits.prefixes)
    link.subscription = session.broker.subscribe(
        wanted.destination,
        wanted.routing,
        link,
        durable_name=wanted.durable_name,
        shared=wanted.shared,
        browse=wanted.browse,
        priority=_priority(attach),
        options=_NO_ADD,
    )
    link.durable_name = (
        wanted.durable_name if link.subscription.queue_name == wanted.durable_name else None
    )
    session.write_frame(
        Attach(
            name=attach.name,
            handle=attach.handle,
            role=ROLE_SENDER,
            snd_settle_mode=attach.snd_settle_mode,
            rcv_settle_mode=RCV_FIRST,
            source=without_filters(source),
            target=attach.target or Target(),
            initial_delivery_count=0,
            max_message_size=session.limits.max_message_size,
        )
    )
    return link


def _priority(attach: Attach) -> int:
    """Return the consumer's priority, a link property of any integer type."""
    value = (attach.properties or {}).get("priority", 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise RefusedError.of(
            Code.BAD_VALUE, f"The link property 'priority' must be an integer, not {value!r}."
        )
    return int(value)
