"""What an attach leads to: a route for what the peer sends, a subscription for what it reads. Cold.

Each function opens the broker's side first and answers only then, so that a refusal is an attach
with a null terminus and a detach with the reason [AMQP 2.6.3]. Raises RefusedError.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway.model.address import RoutingType
from gateway.model.errors import Code, RefusedError
from gateway.model.token import CBS_NODE
from protocols.amqp.cbs import attach_replies, attach_requests
from protocols.amqp.coordinator import attach_coordinator
from protocols.amqp.incoming import IncomingLink
from protocols.amqp.outgoing import OutgoingLink
from protocols.amqp.parameters import split_parameters
from protocols.amqp.performatives import (
    DURABLE_UNSETTLED_STATE,
    RCV_FIRST,
    ROLE_RECEIVER,
    ROLE_SENDER,
    SND_SETTLED,
    Attach,
    Coordinator,
    Source,
    Target,
)
from protocols.amqp.ports import SessionPort
from protocols.amqp.refusing import answers_of
from protocols.amqp.terminus import (
    answered,
    destination_of,
    routing_of,
    wanted_source,
    with_address,
    written_filters,
)

#: JMS clients send with a delay where the connection, or the link, offers this.
DELAYED_DELIVERY: Final = "DELAYED_DELIVERY"
_NO_ADD: Final = {"may-add-type": "no"}


def attach_incoming(session: SessionPort, attach: Attach) -> IncomingLink:
    """Open a link on which the peer sends, and answer its attach."""
    target = attach.target
    if isinstance(target, Coordinator):
        return attach_coordinator(session, attach)
    if target is None:
        raise RefusedError.of(
            Code.BAD_VALUE,
            "A sending link needs a target; an empty address stands for the anonymous relay.",
        )
    if target.address == CBS_NODE and not target.dynamic:
        return attach_requests(session, attach)
    if target.dynamic and target.address:
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"A dynamic target must not have an address; this one has {target.address!r}.",
        )
    count = attach.initial_delivery_count or 0
    link = IncomingLink(session, attach.name, attach.handle, delivery_count=count)
    link.answers = answers_of(attach.source, prefers_modified=session.limits.use_modified)
    if target.dynamic:
        session.nodes.check(target)
        kind = routing_of(target.capabilities) or RoutingType.ANYCAST
        link.temporary = session.broker.create_temporary(kind, session.nodes, session.principal)
        target = with_address(target, link.temporary)
    if target.address:
        try:
            destination, routing = destination_of(
                target.address, target.capabilities, session.limits.prefixes
            )
            link.producer = session.broker.open_producer(
                destination, routing, link, origin=session.origin, principal=session.principal
            )
        except RefusedError:
            _forget(session, link.temporary)
            raise
        link.blocked = link.producer.blocked() is not None
        session.nodes.attached(link.temporary, target)
    else:
        link.relay = session.broker.open_relay(link, session.principal)
        link.blocked = link.relay.blocked() is not None
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
            offered_capabilities=tuple(
                c for c in attach.desired_capabilities if c == DELAYED_DELIVERY
            ),
            properties=_told(link),
        )
    )
    return link


def attach_outgoing(session: SessionPort, attach: Attach) -> OutgoingLink:
    """Open a link on which the peer reads, and answer its attach."""
    if attach.source is None or attach.source.address == CBS_NODE:
        return _attach_unread(session, attach)
    source = _checked(attach.source, attach)
    priority = _priority(attach, source)
    link = OutgoingLink(
        session,
        attach.name,
        attach.handle,
        settled=attach.snd_settle_mode == SND_SETTLED,
        message_max=attach.max_message_size,
    )
    # An unknown outcome counts as released.
    link.default_outcome = source.default_outcome  # type: ignore[assignment]
    if source.dynamic:
        session.nodes.check(source)
        kind = routing_of(source.capabilities) or RoutingType.ANYCAST
        link.temporary = session.broker.create_temporary(kind, session.nodes, session.principal)
        source = replace(source, address=link.temporary)
    try:
        wanted = wanted_source(attach, source, session.container, session.limits.prefixes)
        link.subscription = session.broker.subscribe(
            wanted.destination,
            wanted.routing,
            link,
            durable_name=wanted.durable_name,
            shared=wanted.shared,
            temporary=wanted.temporary,
            browse=wanted.browse,
            priority=priority,
            selector=wanted.filters.selector,
            no_local=session.origin if wanted.filters.no_local else "",
            owner=session.nodes,
            principal=session.principal,
            options=_NO_ADD,
            start=wanted.filters.start,
        )
    except RefusedError:
        _forget(session, link.temporary)
        raise
    session.nodes.attached(link.temporary, source)
    link.durable_name = (
        wanted.durable_name if link.subscription.queue_name == wanted.durable_name else None
    )
    link.sole = link.durable_name is not None and not wanted.shared
    session.write_frame(
        Attach(
            name=attach.name,
            handle=attach.handle,
            role=ROLE_SENDER,
            snd_settle_mode=attach.snd_settle_mode,
            rcv_settle_mode=RCV_FIRST,
            source=answered(source, wanted.filters),
            target=attach.target or Target(),
            initial_delivery_count=0,
            max_message_size=session.limits.max_message_size,
        )
    )
    return link


def _told(link: IncomingLink) -> dict[str, str] | None:
    """Return what a sender is told of its address."""
    return None if link.producer is None else {"x-durability": link.producer.durability}


def _checked(source: Source, attach: Attach) -> Source:
    """Return the source of a link; raises RefusedError when nothing can come from it."""
    if attach.incomplete_unsettled:
        # Such a link gets nothing new, and no delivery outlives its link here to be resumed.
        raise RefusedError.of(
            Code.NOT_IMPLEMENTED,
            f"Link {attach.name!r} has an incomplete unsettled map [AMQP 2.7.3], and deliveries "
            "are not resumed here; attach it with a complete map, or none.",
        )
    if source.dynamic and source.address:
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"A dynamic source must not have an address; this one has {source.address!r}.",
        )
    if not source.dynamic and not source.address:
        raise RefusedError.of(Code.BAD_VALUE, f"The source of link {attach.name!r} has no address.")
    return source


def _attach_unread(session: SessionPort, attach: Attach) -> OutgoingLink:
    """Open a link that reads from no queue."""
    return _look_up(session, attach) if attach.source is None else attach_replies(session, attach)


def _look_up(session: SessionPort, attach: Attach) -> OutgoingLink:
    """Answer an attach without a source: what the durable subscription of this link's name is.

    JMS clients unsubscribe so: they close the link, and the subscription goes with it. Nothing is
    delivered on such a link.
    """
    name = f"{session.container}.{attach.name}"
    found = session.broker.find_subscription(name)
    if found is None:
        raise RefusedError.of(Code.NOT_FOUND, f"Unknown subscription link: {attach.name}.")
    link = OutgoingLink(session, attach.name, attach.handle, settled=False)
    link.durable_name = name
    session.write_frame(
        Attach(
            name=attach.name,
            handle=attach.handle,
            role=ROLE_SENDER,
            snd_settle_mode=attach.snd_settle_mode,
            rcv_settle_mode=RCV_FIRST,
            source=Source(
                address=name,
                durable=DURABLE_UNSETTLED_STATE,
                expiry_policy="never",
                distribution_mode="copy",
                capabilities=("topic",),
                filter=written_filters(*found),
            ),
            target=attach.target or Target(),
            initial_delivery_count=0,
        )
    )
    return link


def _forget(session: SessionPort, temporary: str | None) -> None:
    """Take back the node that was made for a link that is refused."""
    if temporary is not None:
        session.broker.delete_temporary(temporary)


def _priority(attach: Attach, source: Source) -> int | None:
    """Return the consumer's priority; None without one.

    A link property of any integer type wins over the parameter of the address.
    """
    _, asked = split_parameters(source.address or "")
    value = (attach.properties or {}).get("priority")
    if value is None:
        return asked
    if isinstance(value, bool) or not isinstance(value, int):
        raise RefusedError.of(
            Code.BAD_VALUE, f"The link property 'priority' must be an integer, not {value!r}."
        )
    return int(value)
