"""The HTTP calls on diverts, below `/api/v1`.

    GET    /diverts                              {"items": [...]}, by name
    GET    /diverts/{name}
    POST   /diverts {"name", "address", ...}     201, also for the same divert again; else 409
    DELETE /diverts/{name}                       204; 409 for one of the configuration

`forwardingAddress` is one address, several with commas between them, or a list. What changes
something answers only once that is durable.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from gateway.broker.directory.divert import Divert
from gateway.management.answers import Fields, Nothing, answer_gone, answer_later
from gateway.management.durable import check_store
from gateway.management.http import Request, Response, check_query, json_response, shorten
from gateway.management.json_body import read_fields
from gateway.management.listing import PAGING, page
from gateway.management.router import Router
from gateway.management.views import Sources
from gateway.model.address import check_name, parse_destination
from gateway.model.definitions import DivertDefinition, DivertRouting
from gateway.model.errors import Code, RefusedError
from gateway.model.roles import Need


class NewDivert(Fields, kw_only=True):
    """Body of `POST /diverts`; `filterString` is another name of `filter`, as Artemis has it."""

    name: str
    address: str
    forwarding_address: str | list[str]
    exclusive: bool = False
    filter: str | None = None
    filter_string: str | None = None
    routing_type: str = DivertRouting.STRIP.value
    transformer: object = None
    transformer_class_name: object = None


def divert_view(divert: Divert) -> dict[str, object]:
    """Return a divert as the API shows it."""
    definition = divert.definition
    return {
        "name": definition.name,
        "address": definition.address,
        "forwardingAddress": ",".join(definition.forwarding),
        "exclusive": definition.exclusive,
        "filter": definition.filter or None,
        "routingType": definition.routing.value,
        "configured": divert.configured,
        "divertedMessageCount": divert.diverted,
        "lostMessageCount": divert.lost,
    }


class DivertsApi:
    """The functions behind the routes."""

    def __init__(self, sources: Sources) -> None:
        self._gateway = sources.gateway
        self._branches = sources.gateway.branches

    def add_routes(self, router: Router) -> None:
        """Add the routes."""
        diverts = "/api/v1/diverts"
        router.add("GET", diverts, self.list_diverts, need=Need.VIEW)
        router.add("POST", diverts, self.create_divert, need=Need.MANAGE)
        router.add("GET", diverts + "/{name}", self.show_divert, need=Need.VIEW)
        router.add("DELETE", diverts + "/{name}", self.delete_divert, need=Need.MANAGE)

    def list_diverts(self, request: Request) -> Response:
        """All diverts."""
        check_query(request, PAGING)
        found = list(self._branches.diverts.items())
        return page(request, found, lambda one: (one[0],), lambda one: divert_view(one[1]))

    def show_divert(self, request: Request, name: str) -> Response:
        """One divert; 404."""
        check_query(request, ())
        return json_response(200, divert_view(self._branches.find(name)))

    def create_divert(self, request: Request) -> Deferred[Response]:
        """Make a divert."""
        check_query(request, ())
        fields = read_fields(request, NewDivert)
        check_store(self._gateway)
        definition = _definition(fields)
        ticket = self._branches.create(definition)
        made = self._branches.find(definition.name)
        return answer_later(self._gateway, ticket, 201, lambda: divert_view(made))

    def delete_divert(self, request: Request, name: str) -> Deferred[Response]:
        """Delete a divert."""
        check_query(request, ())
        read_fields(request, Nothing)
        check_store(self._gateway)
        return answer_gone(self._gateway, self._branches.delete(name))


def _definition(fields: NewDivert) -> DivertDefinition:
    """Return the divert that is asked for. Raises RefusedError."""
    for key, value in (
        ("transformer", fields.transformer),
        ("transformerClassName", fields.transformer_class_name),
    ):
        if value is not None:
            message = f"{key} is not possible in this version: copies are as they were sent."
            raise RefusedError.of(Code.NOT_IMPLEMENTED, message)
    check_name(fields.name, "divert")
    check_name(fields.address, "address")
    given = fields.forwarding_address
    targets = tuple(t.strip() for t in (given.split(",") if isinstance(given, str) else given))
    for target in targets:
        parse_destination(target)
    if not targets:
        raise RefusedError.of(Code.BAD_VALUE, "forwardingAddress is empty; name an address.")
    if fields.filter and fields.filter_string and fields.filter != fields.filter_string:
        message = "filter and filterString are one attribute with two names; give one of them."
        raise RefusedError.of(Code.BAD_VALUE, message)
    return DivertDefinition(
        name=fields.name,
        address=fields.address,
        forwarding=targets,
        exclusive=fields.exclusive,
        filter=fields.filter or fields.filter_string or "",
        routing=_routing(fields.routing_type),
    )


def _routing(text: str) -> DivertRouting:
    try:
        return DivertRouting(text)
    except ValueError:
        names = ", ".join(kind.value for kind in DivertRouting)
        message = f"routingType is {shorten(text)}; it must be one of {names}."
        raise RefusedError.of(Code.BAD_VALUE, message) from None
