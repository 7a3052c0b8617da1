"""The HTTP call on producers, below `/api/v1`.

    GET    /producers ?address=      {"items": [...]}: who sends where, and how much was taken

A producer is an AMQP link, or what a STOMP connection or a link without a target sends to one
address. Messages that a duplicate id told to be known count as sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.broker.directory.address import Address
from gateway.broker.routing.route import Route
from gateway.management.http import Request, Response, check_query
from gateway.management.listing import PAGING, page
from gateway.management.router import Router
from gateway.management.views import Sources
from gateway.model.roles import Need


def producer_view(address: Address, route: Route) -> dict[str, object]:
    """Return a producer as the API shows it."""
    refusal = route.blocked()
    return {
        "id": format(id(route), "x"),
        "address": address.name,
        "connection": route.origin,
        "routingType": None if route.routing is None else route.routing.value,
        "messagesSent": route.sent,
        "blocked": refusal is not None,
        "reason": None if refusal is None else refusal.text,
    }


def _place(one: tuple[Address, Route]) -> tuple[str, str, int]:
    """Return what the list is sorted by."""
    address, route = one
    return address.name, route.origin, id(route)


class ProducersApi:
    """The function behind the route."""

    def __init__(self, sources: Sources) -> None:
        self._gateway = sources.gateway

    def add_routes(self, router: Router) -> None:
        """Add the route."""
        router.add("GET", "/api/v1/producers", self.list_producers, need=Need.VIEW)

    def list_producers(self, request: Request) -> Response:
        """All producers, or those of one address, by address."""
        address = check_query(request, ("address", *PAGING)).get("address")
        found = [one for one in self._all() if address in (None, one[0].name)]
        return page(request, found, _place, lambda one: producer_view(*one))

    def _all(self) -> Iterator[tuple[Address, Route]]:
        for address in self._gateway.addresses.values():
            for producer in address.producers.values():
                if isinstance(producer, Route) and not producer.is_leg:
                    yield address, producer
