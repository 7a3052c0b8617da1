"""The HTTP calls on queues, below `/api/v1`.

    GET    /queues ?address= ?pattern=           {"items": [...]}, by name
    GET    /queues/{name}
    POST   /queues {"name", "address", ...}      201, also for the same queue again; else 409
    PATCH  /queues/{name} {"ringSize", ...}      200 with the new state
    DELETE /queues/{name} ?removeConsumers=      204; 409 while it has consumers
    POST   /queues/{name}/pause, /resume         200 with the state; a pause survives a restart
    POST   /queues/{name}/enable, /disable       200 with the state; a disabled one takes nothing in

What concerns the messages of a queue is in `messages_api`.

Queues of the gateway's own are listed with `internal=true` only, and cannot be changed: 409.

What changes something answers only once that is durable. Each call checks all it was given before
it changes anything. A pattern is a match as in address-settings: `orders.*`, `orders.#`.
"""

from __future__ import annotations

from typing import Final, cast

from msgspec import UNSET, UnsetType, defstruct
from twisted.internet.defer import Deferred

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
from gateway.management.http import (
    Request,
    Response,
    check_query,
    json_response,
    query_flag,
)
from gateway.management.json_body import Shape, read_fields
from gateway.management.listing import PAGING, page
from gateway.management.router import Router
from gateway.management.views import Sources
from gateway.model.address import RoutingType, check_name, check_not_ours, is_internal
from gateway.model.attributes import ROWS, to_note
from gateway.model.errors import Code, RefusedError
from gateway.model.roles import Need
from gateway.queues.queue import Queue


class _Limits(Fields, kw_only=True):
    """What a queue can be given, beside its attributes.

    `filterString` is another name of `filter`, as Artemis has it. null or "" is no filter.
    """

    ring_size: int | UnsetType = UNSET
    max_consumers: int | UnsetType = UNSET
    filter: str | UnsetType | None = UNSET
    filter_string: str | UnsetType | None = UNSET


class NewQueue(_Limits, kw_only=True):
    """Body of `POST /queues`; where not given, the address is the name and the type its default."""

    name: str
    address: str | None = None
    routing_type: str | None = None
    durable: bool = True


class QueueChange(_Limits, kw_only=True):
    """Body of `PATCH /queues/{name}`; what cannot change may be repeated as it is."""

    name: str | UnsetType = UNSET
    address: str | UnsetType = UNSET
    routing_type: str | UnsetType = UNSET
    durable: bool | UnsetType = UNSET


def _with_attributes(shape: type[Shape]) -> type[Shape]:
    """Return a body that also has a field for each attribute; null says nothing where it may."""
    said = [
        (row.name, row.kind | UnsetType | (None if row.nullable else row.kind), UNSET)
        for row in ROWS.values()
    ]
    made = defstruct(shape.__name__, said, bases=(shape,), kw_only=True)
    return cast("type[Shape]", made)


_NEW_QUEUE: Final = _with_attributes(NewQueue)
_QUEUE_CHANGE: Final = _with_attributes(QueueChange)


class QueuesApi:
    """The functions behind the routes."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._gateway = sources.gateway
        self._directory = sources.gateway.directory
        self._administration = sources.gateway.administration

    def add_routes(self, router: Router) -> None:
        """Add the routes."""
        queues = "/api/v1/queues"
        router.add("GET", queues, self.list_queues, need=Need.VIEW)
        router.add("POST", queues, self.create_queue, need=Need.MANAGE)
        queue = queues + "/{name}"
        router.add("GET", queue, self.show_queue, need=Need.VIEW)
        router.add("PATCH", queue, self.change_queue, need=Need.MANAGE)
        router.add("DELETE", queue, self.delete_queue, need=Need.MANAGE)
        router.add("POST", queue + "/pause", self.pause, need=Need.MANAGE)
        router.add("POST", queue + "/resume", self.resume, need=Need.MANAGE)
        router.add("POST", queue + "/enable", self.enable, need=Need.MANAGE)
        router.add("POST", queue + "/disable", self.disable, need=Need.MANAGE)

    def _view(self, queue: Queue) -> dict[str, object]:
        lag = views.lag_reason(self._sources)
        return views.queue_view(queue, self._gateway.reaper.rule(queue), lag)

    def list_queues(self, request: Request) -> Response:
        """All queues, those of one address, those whose names match a pattern."""
        query = check_query(request, ("address", "pattern", "internal", *PAGING))
        hidden = query_flag(request, "internal")
        fits = name_pattern(query.get("pattern"))
        address = query.get("address")
        found = [
            queue
            for name, queue in self._gateway.queues.items()
            if fits(name) and address in (None, queue.address) and (hidden or not is_internal(name))
        ]
        return page(request, found, lambda queue: (queue.name,), self._view)

    def show_queue(self, request: Request, name: str) -> Response:
        """One queue; 404."""
        check_query(request, ())
        return json_response(200, self._view(self._directory.find_queue(name)))

    def create_queue(self, request: Request) -> Deferred[Response]:
        """Make a queue and its address."""
        check_query(request, ())
        fields = read_fields(request, _NEW_QUEUE)
        check_store(self._gateway)
        address = fields.name if fields.address is None else fields.address
        check_name(fields.name, "queue")
        check_name(address, "address")
        check_not_ours(address)
        settings = self._gateway.settings.for_address(address)
        routing = read_routing_type(fields.routing_type) or settings.default_queue_routing_type
        ring_size, max_consumers = _given(fields.ring_size), _given(fields.max_consumers)
        known = self._gateway.queues.get(fields.name)
        if known is not None:
            self._check_same(known, fields, address, routing)
            # Once more, to learn its ticket: the first definition may still be on its way.
            queue, ticket = self._administration.update_queue(fields.name)
            return answer_later(self._gateway, ticket, 201, lambda: self._view(queue))
        makes_address = address not in self._gateway.addresses
        queue, ticket = self._administration.create_queue(
            fields.name,
            address,
            routing,
            durable=fields.durable,
            ring_size=ring_size,
            max_consumers=max_consumers,
            selector=_selector(fields) or "",
            attributes=_attributes(fields),
        )
        if makes_address:
            ticket = self._gateway.store.ticket
        return answer_later(self._gateway, ticket, 201, lambda: self._view(queue))

    def _check_same(
        self, queue: Queue, fields: NewQueue, address: str, routing: RoutingType
    ) -> None:
        """Raise RefusedError (already-exists) unless the queue is what is asked for."""
        wanted: dict[str, tuple[object, object]] = {
            "address": (address, queue.address),
            "routingType": (routing.value, queue.routing.value),
            "durable": (fields.durable, queue.durable),
            "ringSize": (fields.ring_size, queue.ring_size),
            "maxConsumers": (fields.max_consumers, queue.max_consumers),
            "filter": (_selector(fields), queue.filter_text),
        }
        rule = self._gateway.reaper.rule(queue)
        there = {
            **to_note(queue.attributes),
            "auto_delete": rule.applies,
            "auto_delete_delay": rule.delay,
            "auto_delete_message_count": rule.message_count,
        }
        for name, value in _attributes(fields).items():
            wanted[name] = (value, there.get(name, getattr(queue.attributes, name)))
        for key, (asked, has) in wanted.items():
            if asked is not UNSET and asked is not None and asked != has:
                message = f"Queue {queue.name!r} exists already, with {key} {has!r}."
                raise RefusedError.of(Code.ALREADY_EXISTS, message)

    def change_queue(self, request: Request, name: str) -> Deferred[Response]:
        """Change what can change while messages flow."""
        check_query(request, ())
        queue = self._directory.find_queue(name)
        check_own(name)
        fields = read_fields(request, _QUEUE_CHANGE)
        check_store(self._gateway)
        unchangeable = {
            "name": (fields.name, queue.name),
            "address": (fields.address, queue.address),
            "routingType": (fields.routing_type, queue.routing.value),
            "durable": (fields.durable, queue.durable),
        }
        for key, (asked, there) in unchangeable.items():
            if asked is not UNSET and asked != there:
                message = f"{key} of queue {name!r} is {there!r} and cannot be changed."
                raise RefusedError.of(Code.BAD_VALUE, message)
        _, ticket = self._administration.update_queue(
            name,
            ring_size=_given(fields.ring_size),
            max_consumers=_given(fields.max_consumers),
            selector=_selector(fields),
            attributes=_attributes(fields),
        )
        return answer_later(self._gateway, ticket, 200, lambda: self._view(queue))

    def delete_queue(self, request: Request, name: str) -> Deferred[Response]:
        """Delete a queue and what it holds."""
        check_query(request, ("removeConsumers",))
        read_fields(request, Nothing)
        check_store(self._gateway)
        check_own(name)
        remove_consumers = query_flag(request, "removeConsumers")
        ticket = self._administration.delete_queue(name, remove_consumers=remove_consumers)
        return answer_gone(self._gateway, ticket)

    def pause(self, request: Request, name: str) -> Deferred[Response]:
        """Deliver nothing until `resume`."""
        return self._set_paused(request, name, paused=True)

    def resume(self, request: Request, name: str) -> Deferred[Response]:
        """Deliver again."""
        return self._set_paused(request, name, paused=False)

    def _set_paused(self, request: Request, name: str, *, paused: bool) -> Deferred[Response]:
        check_query(request, ())
        read_fields(request, Nothing)
        check_store(self._gateway)
        check_own(name)
        queue, ticket = self._administration.update_queue(name, paused=paused)
        return answer_later(self._gateway, ticket, 200, lambda: self._view(queue))

    def enable(self, request: Request, name: str) -> Deferred[Response]:
        """Take messages in again."""
        return self._set_enabled(request, name, enabled=True)

    def disable(self, request: Request, name: str) -> Deferred[Response]:
        """Take no messages in until `enable`; what is there is still delivered."""
        return self._set_enabled(request, name, enabled=False)

    def _set_enabled(self, request: Request, name: str, *, enabled: bool) -> Deferred[Response]:
        check_query(request, ())
        read_fields(request, Nothing)
        check_store(self._gateway)
        check_own(name)
        queue, ticket = self._administration.update_queue(name, attributes={"enabled": enabled})
        return answer_later(self._gateway, ticket, 200, lambda: self._view(queue))


def _attributes(fields: _Limits) -> dict[str, object]:
    """Return the attributes that are given, by their names in the core; null says nothing."""
    values = {name: getattr(fields, name) for name in ROWS}
    return {name: value for name, value in values.items() if value not in (UNSET, None)}


def _given(value: int | UnsetType) -> int | None:
    return None if isinstance(value, UnsetType) else value


def _selector(fields: _Limits) -> str | None:
    """Return the filter that is asked for, "" for none; None when nothing is said about it."""
    given = {f or "" for f in (fields.filter, fields.filter_string) if not isinstance(f, UnsetType)}
    if len(given) > 1:
        message = "filter and filterString are one attribute with two names; give one of them."
        raise RefusedError.of(Code.BAD_VALUE, message)
    return given.pop() if given else None
