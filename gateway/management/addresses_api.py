"""The HTTP calls on addresses, below `/api/v1`.

    GET    /addresses ?pattern=                  {"items": [...]}, by name
    GET    /addresses/{name}
    GET    /addresses/{name}/settings            effective values, each with where it was written
    POST   /addresses {"name", "routingTypes"}   201, also for the same address again; else 409
    DELETE /addresses/{name} ?force=             204; 409 while it has queues or producers
    POST   /addresses/{name}/block, /unblock     200 with the state
    POST   /addresses/{name}/clearDuplicateIdCache   200 with the state: no id is known any more

Addresses of the gateway's own are listed with `internal=true` only, and cannot be changed: 409.

What changes something answers only once that is durable; a block lasts until the gateway stops.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from gateway.broker.directory.address import Address
from gateway.management import views
from gateway.management.answers import (
    Fields,
    Nothing,
    answer_gone,
    answer_later,
    check_own,
    name_pattern,
    read_routing_type,
)
from gateway.management.durable import check_store
from gateway.management.http import Request, Response, check_query, json_response, query_flag
from gateway.management.json_body import read_fields
from gateway.management.listing import PAGING, page
from gateway.management.router import Router
from gateway.management.views import Sources
from gateway.model.address import check_name, check_not_ours, is_internal
from gateway.model.definitions import AddressDefinition
from gateway.model.errors import Code, RefusedError
from gateway.model.roles import Need


class NewAddress(Fields, kw_only=True):
    """Body of `POST /addresses`."""

    name: str
    routing_types: list[str] | None = None


class AddressesApi:
    """The functions behind the routes."""

    def __init__(self, sources: Sources) -> None:
        self._gateway = sources.gateway
        self._directory = sources.gateway.directory
        self._administration = sources.gateway.administration

    def add_routes(self, router: Router) -> None:
        """Add the routes."""
        addresses = "/api/v1/addresses"
        router.add("GET", addresses, self.list_addresses, need=Need.VIEW)
        router.add("POST", addresses, self.create_address, need=Need.MANAGE)
        address = addresses + "/{name}"
        router.add("GET", address, self.show_address, need=Need.VIEW)
        router.add("DELETE", address, self.delete_address, need=Need.MANAGE)
        router.add("GET", address + "/settings", self.show_settings, need=Need.VIEW)
        router.add("POST", address + "/block", self.block, need=Need.MANAGE)
        router.add("POST", address + "/unblock", self.unblock, need=Need.MANAGE)
        router.add("POST", address + "/clearDuplicateIdCache", self.clear_ids, need=Need.MANAGE)

    def list_addresses(self, request: Request) -> Response:
        """All addresses, or those whose names match a pattern."""
        fits = name_pattern(check_query(request, ("pattern", "internal", *PAGING)).get("pattern"))
        hidden = query_flag(request, "internal")
        found = [
            address
            for name, address in self._gateway.addresses.items()
            if fits(name) and (hidden or not is_internal(name))
        ]
        return page(
            request, found, lambda a: (a.name,), lambda a: views.address_view(self._gateway, a)
        )

    def show_address(self, request: Request, name: str) -> Response:
        """One address; 404."""
        check_query(request, ())
        return self._show_address(self._directory.find_address(name))

    def _show_address(self, address: Address) -> Response:
        return json_response(200, views.address_view(self._gateway, address))

    def show_settings(self, request: Request, name: str) -> Response:
        """The settings that hold for an address, also for one that does not exist yet."""
        check_query(request, ())
        check_name(name, "address")
        exists = name in self._gateway.addresses
        return json_response(200, views.settings_view(self._gateway.settings, name, exists=exists))

    def create_address(self, request: Request) -> Deferred[Response]:
        """Make an address without queues."""
        check_query(request, ())
        fields = read_fields(request, NewAddress)
        check_store(self._gateway)
        check_name(fields.name, "address")
        check_not_ours(fields.name)
        settings = self._gateway.settings.for_address(fields.name)
        types = frozenset(
            filter(None, map(read_routing_type, fields.routing_types or ()))
        ) or frozenset({settings.default_address_routing_type})
        address = self._gateway.addresses.get(fields.name)
        if address is None:
            address = self._directory.make_address(fields.name, types)
            ticket = self._gateway.store.ticket
        elif fields.routing_types and types != address.routing_types:
            there = ", ".join(sorted(kind.value for kind in address.routing_types)) or "none"
            message = f"Address {fields.name!r} exists already, with routingTypes {there}."
            raise RefusedError.of(Code.ALREADY_EXISTS, message)
        else:
            ticket = self._define_again(address)
        made = address
        return answer_later(
            self._gateway, ticket, 201, lambda: views.address_view(self._gateway, made)
        )

    def _define_again(self, address: Address) -> int:
        """Return a ticket for an address whose first definition may still be on its way."""
        if address.temporary:
            return 0
        return self._gateway.store.define(
            AddressDefinition(
                name=address.name,
                routing_types=address.routing_types,
                auto_created=address.auto_created,
            )
        )

    def delete_address(self, request: Request, name: str) -> Deferred[Response]:
        """Delete an address; with `force` its queues and their messages too."""
        check_query(request, ("force",))
        read_fields(request, Nothing)
        check_store(self._gateway)
        force = query_flag(request, "force")
        check_own(name)
        address = self._directory.find_address(name)
        if address.sender_count:
            message = (
                f"Address {name!r} has {address.sender_count} producers; close them first: "
                "what they send would be lost."
            )
            raise RefusedError.of(Code.IN_USE, message)
        return answer_gone(self._gateway, self._administration.delete_address(name, force=force))

    def block(self, request: Request, name: str) -> Response:
        """Hold the address' senders back until `unblock` or a restart."""
        return self._set_blocked(request, name, blocked=True)

    def unblock(self, request: Request, name: str) -> Response:
        """Let the address' senders go."""
        return self._set_blocked(request, name, blocked=False)

    def clear_ids(self, request: Request, name: str) -> Deferred[Response]:
        """Forget all duplicate ids of an address."""
        check_query(request, ())
        read_fields(request, Nothing)
        address = self._directory.find_address(name)
        check_store(self._gateway)
        ticket = self._gateway.routing.duplicates.clear(name)
        return answer_later(
            self._gateway, ticket, 200, lambda: views.address_view(self._gateway, address)
        )

    def _set_blocked(self, request: Request, name: str, *, blocked: bool) -> Response:
        check_query(request, ())
        read_fields(request, Nothing)
        check_own(name)
        self._gateway.block_address(name, blocked)
        return self._show_address(self._directory.find_address(name))
