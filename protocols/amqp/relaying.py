"""The routes of an anonymous sender's link: each message says where it goes.

A message that leads nowhere is refused with its delivery-tag, where its sender sees that; where it
does not, for it settled the message already or takes no `rejected`, the link ends with the error
[anonymous terminus 2.2.2].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from gateway.model.address import RoutingType
from gateway.model.amqp_types import DecodeError, Symbol, Value
from gateway.model.errors import Code, RefusedError
from gateway.model.ports import Producer, ProducerOwner
from gateway.model.sections import scan
from gateway.model.serial import MASK
from protocols.amqp.performatives import Error, Transfer, decode_performative
from protocols.amqp.ports import SessionPort
from protocols.amqp.terminus import destination_of

#: Routes that an anonymous sender's link keeps.
_ROUTES_MAX: Final = 64
#: Annotations that name a routing type, by their values; where both do, the first one counts.
_KINDS: Final = (
    (
        Symbol("x-opt-routing-type"),
        {0: RoutingType.MULTICAST, 1: RoutingType.ANYCAST},
    ),
    (
        Symbol("x-opt-jms-dest"),
        {
            0: RoutingType.ANYCAST,
            1: RoutingType.MULTICAST,
            2: RoutingType.ANYCAST,
            3: RoutingType.MULTICAST,
        },
    ),
)
#: Tells the delivery-tag of a delivery by its id.
TagOf: TypeAlias = Callable[[int], bytes | None]


class Routes:
    """Those of one link, opened when the first message needs them."""

    __slots__ = ("_owner", "_routes", "_session", "tag_of")

    def __init__(self, session: SessionPort, owner: ProducerOwner) -> None:
        self._session = session
        self._owner = owner
        self._routes: dict[tuple[str, RoutingType | None], Producer] = {}
        #: of the deliveries that are being taken
        self.tag_of: TagOf | None = None

    def addresses(self) -> list[str]:
        """Return where messages went, as far as routes are open."""
        return [route.address for route in self._routes.values()]

    def open(self, body: bytes) -> Producer:
        """Return a message's own route; raises RefusedError while its address holds senders back.

        The link's credit cannot hold them back: others on the same link may go on.
        """
        route = self._route_of(body)
        refusal = route.blocked()
        if refusal is not None:
            raise RefusedError(refusal)
        return route

    def _route_of(self, body: bytes) -> Producer:
        """Return the route of a message sent to no fixed target: its `to` decides."""
        try:
            sections = scan(body)
            to = sections.to
            routing = _routing_of(sections.message_annotations)
        except DecodeError as error:
            raise RefusedError.of(
                Code.BAD_MESSAGE, f"The message's sections cannot be read: {error} [AMQP 3.2]."
            ) from error
        if not isinstance(to, str) or not to:
            raise RefusedError.of(
                Code.BAD_VALUE, "Missing 'to' field for message sent to an anonymous producer."
            )
        route = self._routes.get((to, routing))
        if route is None:
            destination, prefixed = destination_of(to, (), self._session.limits.prefixes)
            session = self._session
            route = session.broker.open_producer(
                destination,
                prefixed or routing,
                self._owner,
                origin=session.origin,
                principal=session.principal,
            )
            if len(self._routes) >= _ROUTES_MAX:
                self._routes.pop(next(iter(self._routes))).close()
            self._routes[to, routing] = route
        return route

    def tagged(self, error: Error, delivery: int) -> Error:
        """Return an error that says which message it is about."""
        tag = self.tag_of(delivery) if self.tag_of is not None else None
        if tag is None:
            return error
        return replace(error, info={**(error.info or {}), Symbol("delivery-tag"): tag})

    def close(self) -> None:
        """Close all of them."""
        for route in self._routes.values():
            route.close()
        self._routes.clear()


def _routing_of(annotations: Mapping[Value, Value]) -> RoutingType | None:
    """Return the routing type that a message asks for; the annotation of its own goes first."""
    for name, kinds in _KINDS:
        kind = annotations.get(name)
        if isinstance(kind, int) and not isinstance(kind, bool) and kind in kinds:
            return kinds[kind]
    return None


class Tags:
    """Reads the tags of a run of whole deliveries from its frames, in ascending order."""

    __slots__ = ("_at", "_data", "_next")

    def __init__(self, data: bytes, start: int, first: int) -> None:
        """Take the bytes, and where the frame of delivery `first` begins in them."""
        self._data = data
        self._at = start
        self._next = first

    def __call__(self, delivery: int) -> bytes | None:
        data, at = self._data, self._at
        for _ in range((delivery - self._next) & MASK):
            at += int.from_bytes(data[at : at + 4], "big")
        self._at, self._next = at, delivery
        end = at + int.from_bytes(data[at : at + 4], "big")
        transfer, _ = decode_performative(data, at + 4 * data[at + 4], end)
        assert isinstance(transfer, Transfer), "a frame of the run"
        return transfer.delivery_tag
