"""The HTTP calls on connections and what is open on them, below `/api/v1`.

    GET    /connections ?user= &address= &remote= &protocol= &acceptor= &sort= &limit= &cursor=
    GET    /connections/{id}            with its sessions and consumers
    DELETE /connections/{id} ?reason=   {"closed": 1}; 404
    DELETE /connections ?user= | address= | remote= ... &reason=    {"closed": n}: those that fit
    GET    /sessions, /consumers ?connection= &user= &address= &remote= &protocol= &limit= &cursor=
    DELETE /consumers/{id} ?reason=     {"closed": 1}; 404

`remote` is an address, or an address with its port. `address` fits a connection that sends to it
or takes from it. `sort` is a field, with `-` in front the other way round. Bytes are those on the
wire, with TLS its own.

The reason is told to the client: AMQP closes with amqp:connection:forced, or detaches with
amqp:link:detach-forced; STOMP gets an ERROR, which ends a connection of 1.2 also when it is about a
consumer. What a closed one held goes back to its queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from gateway.listening.connections import Connections
from gateway.logs.connections import remote_of
from gateway.management.answers import Nothing
from gateway.management.http import Request, Response, check_query, json_response, shorten
from gateway.management.json_body import read_fields
from gateway.management.listing import PAGING, Key, page
from gateway.management.quotas_api import throttle_view
from gateway.management.router import Router
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.peers import ConsumerState, Peer, PeerState, SessionState
from gateway.model.roles import Need
from gateway.quotas.meters import Meters
from protocols.transport.shell import Wire

FILTERS: Final = ("user", "address", "remote", "protocol", "acceptor")
#: Of a reason: it has to fit a frame of the smallest size that a peer may take.
REASON_CHARS_MAX: Final = 200
#: Connections that are closed in one turn of the reactor.
_CLOSED_AT_ONCE: Final = 100
_PROTOCOLS: Final = ("AMQP", "STOMP")


class Connected:
    """One open connection; `peer` is None until its first bytes told a protocol."""

    __slots__ = ("acceptor", "name", "number", "peer", "remote", "wire")

    def __init__(self, acceptor: str, number: int, name: str, wire: Wire) -> None:
        self.acceptor = acceptor
        self.number = number
        self.name = name
        self.wire = wire
        self.peer: Peer | None = None if wire.session is None else wire.session.seen
        facts = wire.peer()
        self.remote = remote_of(facts.address, facts.port)

    @property
    def state(self) -> PeerState | None:
        """Who it is."""
        return None if self.peer is None else self.peer.state()


#: What connections can be sorted by, beside `id`: cheap to know for all of them.
_SORTS: Final[dict[str, Callable[[Connected], Any]]] = {
    "since": lambda one: one.wire.since,
    "idle": lambda one: -one.wire.last_in,
    "bytesIn": lambda one: one.wire.bytes_in,
    "bytesOut": lambda one: one.wire.bytes_out,
    "remote": lambda one: one.remote,
    "user": lambda one: (one.state and one.state.user) or "",
    "messagesIn": lambda one: one.state.messages_in if one.state else 0,
    "messagesOut": lambda one: one.state.messages_out if one.state else 0,
}


class ConnectionsApi:
    """The functions behind the routes."""

    def __init__(
        self,
        groups: Sequence[Connections],
        clock: IReactorTime,
        now_ms: Callable[[], int],
        meters: Meters | None = None,
    ) -> None:
        self._meters = meters
        self._groups = groups
        self._clock = clock
        self._now_ms = now_ms

    def add_routes(self, router: Router) -> None:
        """Add the routes."""
        connections, consumers = "/api/v1/connections", "/api/v1/consumers"
        router.add("GET", connections, self.list_connections, need=Need.VIEW)
        router.add("DELETE", connections, self.close_some, need=Need.MANAGE)
        router.add("GET", connections + "/{id}", self.show_connection, need=Need.VIEW)
        router.add("DELETE", connections + "/{id}", self.close_one, need=Need.MANAGE)
        router.add("GET", "/api/v1/sessions", self.list_sessions, need=Need.VIEW)
        router.add("GET", consumers, self.list_consumers, need=Need.VIEW)
        router.add("DELETE", consumers + "/{id}", self.end_consumer, need=Need.MANAGE)

    # ---- looking

    def list_connections(self, request: Request) -> Response:
        """Those that fit the filters, oldest first or as `sort` says."""
        query = check_query(request, (*FILTERS, "sort", *PAGING))
        order = query.get("sort", "id")
        field = order.removeprefix("-")
        if field != "id" and field not in _SORTS:
            known = ", ".join(["id", *_SORTS])
            message = f"The query field 'sort' is {shorten(order)}; it must be one of {known}."
            raise RefusedError.of(Code.BAD_VALUE, message)

        def key(one: Connected) -> Key:
            place = (one.acceptor, one.number)
            return place if field == "id" else (_SORTS[field](one), *place)

        found = list(self._fitting(request))
        descending = order.startswith("-")
        return page(request, found, key, self._view, order=order, descending=descending)

    def show_connection(self, request: Request, id: str) -> Response:  # noqa: A002 - the path's
        """One connection with its sessions and consumers; 404."""
        check_query(request, ())
        one = self._find(id)
        shown = self._view(one)
        if one.peer is not None:
            shown["sessions"] = [session_view(one, s) for s in one.peer.sessions()]
            shown["consumers"] = [consumer_view(one, c) for c in one.peer.consumers()]
            shown["addresses"] = sorted(set(one.peer.addresses()))
        return json_response(200, shown)

    def list_sessions(self, request: Request) -> Response:
        """The sessions of those connections that fit."""
        check_query(request, (*FILTERS, "connection", *PAGING))
        found = [
            (one, session)
            for one in self._fitting(request)
            if one.peer is not None
            for session in one.peer.sessions()
        ]
        return page(
            request,
            found,
            lambda pair: (pair[0].acceptor, pair[0].number, pair[1].number),
            lambda pair: session_view(*pair),
        )

    def list_consumers(self, request: Request) -> Response:
        """The consumers of those connections that fit; `address` and `queue` are the consumer's."""
        query = check_query(request, (*FILTERS, "connection", "queue", *PAGING))
        found = [
            (one, consumer)
            for one in self._fitting(request)
            if one.peer is not None
            for consumer in one.peer.consumers()
            if query.get("queue") in (None, queue_of(consumer))
            and query.get("address") in (None, consumer.address)
        ]
        return page(
            request,
            found,
            lambda pair: (pair[0].acceptor, pair[0].number, pair[1].number),
            lambda pair: consumer_view(*pair),
        )

    # ---- closing

    def close_one(self, request: Request, id: str) -> Response:  # noqa: A002 - the path's
        """Close a connection, telling its client the reason; 404."""
        check_query(request, ("reason",))
        read_fields(request, Nothing)
        refusal = _refusal(request, "This connection")
        _dismiss(self._find(id), refusal)
        return json_response(200, {"closed": 1})

    def close_some(self, request: Request) -> Deferred[Response]:
        """Close all that fit, a few in each turn; at least one filter must be there."""
        query = check_query(request, (*FILTERS, "reason"))
        read_fields(request, Nothing)
        if not any(name in query for name in FILTERS):
            message = f"Say which: by {', '.join(FILTERS)}. All at once are not closed by mistake."
            raise RefusedError.of(Code.BAD_VALUE, message)
        refusal = _refusal(request, "This connection")
        return Deferred.fromCoroutine(self._close(list(self._fitting(request)), refusal))

    async def _close(self, found: list[Connected], refusal: Refusal) -> Response:
        closed = 0
        for at, one in enumerate(found):
            if at and not at % _CLOSED_AT_ONCE:
                await deferLater(self._clock, 0)
            closed += _dismiss(one, refusal)
        return json_response(200, {"closed": closed})

    def end_consumer(self, request: Request, id: str) -> Response:  # noqa: A002 - the path's
        """End a consumer, telling its client the reason; 404."""
        check_query(request, ("reason",))
        read_fields(request, Nothing)
        refusal = _refusal(request, "This consumer")
        connection, _, number = id.rpartition(":")
        ended = False
        if connection and number.isascii() and number.isdigit() and len(number) < 19:
            peer = self._find(connection).peer
            ended = peer is not None and peer.end_consumer(int(number), refusal)
        if not ended:
            text = f"There is no consumer {shorten(id)}; GET /api/v1/consumers lists them."
            raise RefusedError.of(Code.NOT_FOUND, text)
        return json_response(200, {"closed": 1})

    # ---- inside

    def _all(self) -> Iterator[Connected]:
        for group in self._groups:
            for name, wire in list(group.wires.items()):
                if wire.transport is not None:
                    number = int(name.rpartition("-")[2])
                    yield Connected(group.name, number, name, wire)

    def _find(self, name: str) -> Connected:
        for group in self._groups:
            wire = group.wires.get(name)
            if wire is not None and wire.transport is not None:
                return Connected(group.name, int(name.rpartition("-")[2]), name, wire)
        text = f"There is no connection {shorten(name)}; GET /api/v1/connections lists them."
        raise RefusedError.of(Code.NOT_FOUND, text)

    def _fitting(self, request: Request) -> Iterator[Connected]:
        """Go through the connections that fit all filters of a query."""
        query = request.query
        protocol = query.get("protocol")
        if protocol is not None and protocol.upper() not in _PROTOCOLS:
            message = (
                f"The query field 'protocol' is {shorten(protocol)}; it must be AMQP or STOMP."
            )
            raise RefusedError.of(Code.BAD_VALUE, message)
        for one in self._all():
            state = one.state
            if (
                query.get("connection") in (None, one.name)
                and query.get("acceptor") in (None, one.acceptor)
                and query.get("remote") in (None, one.remote, one.wire.peer().address)
                and (protocol is None or (state is not None and state.protocol == protocol.upper()))
                and ("user" not in query or (state is not None and state.user == query["user"]))
                and ("address" not in query or _uses(one, query["address"]))
            ):
                yield one

    def _throttled(self, name: str) -> dict[str, object] | None:
        """Return which quota holds a connection back now, or a moment ago."""
        if self._meters is None:
            return None
        return throttle_view(self._meters.why(name), self._meters.seconds())

    def _view(self, one: Connected) -> dict[str, object]:
        now, wire, state = self._clock.seconds(), one.wire, one.state
        tls = None if wire.tls is None else dict(zip(("version", "cipher"), wire.tls, strict=True))
        shown: dict[str, object] = {
            "id": one.name,
            "acceptor": one.acceptor,
            "remote": one.remote,
            "tls": tls,
            "protocol": None,
            "sinceMs": self._now_ms() - round((now - wire.since) * 1000),
            "openSeconds": round(now - wire.since, 3),
            "idleSeconds": round(now - wire.last_in, 3),
            "bytesIn": wire.bytes_in,
            "bytesOut": wire.bytes_out,
            "unreadBytes": wire.unread,
            "throttled": self._throttled(one.name),
        }
        if state is None or one.peer is None:
            return shown
        sessions, consumers = one.peer.sessions(), one.peer.consumers()
        credits_ = [c.credit for c in consumers if c.credit is not None]
        return shown | {
            "protocol": state.protocol,
            "version": state.version,
            "user": state.user,
            "clientId": state.client_id,
            "product": state.product,
            "productVersion": state.product_version,
            "sessionCount": len(sessions),
            "producerCount": sum(s.producers for s in sessions),
            "consumerCount": len(consumers),
            # Without credit of its own a consumer takes what the output takes.
            "credit": sum(credits_) if credits_ or not consumers else None,
            "inFlight": sum(s.in_flight for s in sessions),
            "messagesIn": state.messages_in,
            "messagesOut": state.messages_out,
        }


def session_view(one: Connected, session: SessionState) -> dict[str, object]:
    """Return a session as the API shows it."""
    state = one.state
    return {
        "id": f"{one.name}:{session.number}",
        "connection": one.name,
        "number": session.number,
        "protocol": None if state is None else state.protocol,
        "user": None if state is None else state.user,
        "remote": one.remote,
        "producerCount": session.producers,
        "consumerCount": session.consumers,
        "inFlight": session.in_flight,
        "messagesIn": session.messages_in,
        "messagesOut": session.messages_out,
    }


def queue_of(consumer: ConsumerState) -> str | None:
    """Return the queue that a consumer reads; None for a replay of a stream."""
    return consumer.queue if consumer.progress is None else None


def consumer_view(one: Connected, consumer: ConsumerState) -> dict[str, object]:
    """Return a consumer as the API shows it: on a queue, or at an offset of a stream."""
    state, progress = one.state, consumer.progress
    return {
        "id": f"{one.name}:{consumer.number}",
        "connection": one.name,
        "session": consumer.session,
        "protocol": None if state is None else state.protocol,
        "user": None if state is None else state.user,
        "remote": one.remote,
        "name": consumer.name,
        "queue": queue_of(consumer),
        "address": consumer.address,
        "browser": consumer.browser,
        "stream": None if progress is None else progress.stream,
        "offset": None if progress is None else progress.offset,
        "lag": None if progress is None else progress.lag,
        "credit": consumer.credit,
        "inFlight": consumer.in_flight,
        "messagesOut": consumer.delivered,
    }


def _uses(one: Connected, address: str) -> bool:
    return one.peer is not None and address in set(one.peer.addresses())


def _dismiss(one: Connected, refusal: Refusal) -> int:
    """Close one; returns how many that were."""
    if one.peer is None:
        one.wire.stop()
    elif one.peer.ending is not None:
        return 0  # it is leaving already
    else:
        one.peer.dismiss(refusal)
    return 1


def _refusal(request: Request, what: str) -> Refusal:
    """Return what the client is told; raises RefusedError for a reason that is too long."""
    reason = request.query.get("reason", "")
    if len(reason) > REASON_CHARS_MAX:
        message = f"The reason has {len(reason)} characters; the limit is {REASON_CHARS_MAX}."
        raise RefusedError.of(Code.BAD_VALUE, message)
    text = f"{what} was closed by an operator" + (f": {reason}" if reason else ".")
    return Refusal(code=Code.OPERATOR, text=text, transient=True)
