"""All calls of the HTTP API in one table, and the small ones themselves.

    GET /livez           200 as long as the process turns
    GET /readyz          200 when messages can be sent and received, else 503 with the reason; a
                         full disk is named with it, and does not stop those that consume; so are
                         files that are damaged, and addresses that are full, blocked
                         or paging
    GET /metrics         Prometheus text (`metrics`)
    GET /api/v1/store    journal, disk, memory
    GET /api/v1/clock    broker time, and whether the wall clock is followed
    POST /api/v1/clock/trust    follow it now, although it has made a large step
    GET /stomp, /amqp    426: a WebSocket begins with the first request of its connection

The configuration, the scrub, queues, addresses and streams have modules of their own (`config_api`,
`scrub_api`, `queues_api`, `addresses_api`, `streams_api`).
"""

from __future__ import annotations

from heapq import nsmallest
from typing import Final

from gateway.broker.pressure.fullness import PAGING, Fullness
from gateway.management import metrics, views
from gateway.management.addresses_api import AddressesApi
from gateway.management.diverts_api import DivertsApi
from gateway.management.http import (
    ProblemError,
    Request,
    Response,
    check_query,
    json_response,
)
from gateway.management.messages_api import MessagesApi
from gateway.management.producers_api import ProducersApi
from gateway.management.queues_api import QueuesApi
from gateway.management.router import Router
from gateway.management.scrub_api import ScrubApi
from gateway.management.views import Sources
from gateway.model.roles import Need

#: Full addresses that the probe names, and paging ones.
FULL_SHOWN_MAX: Final = 20


def add_routes(router: Router, sources: Sources, *, with_metrics: bool = True) -> None:
    """Add every call but those of the streams, which need a clock."""
    StatusApi(sources).add_routes(router)
    QueuesApi(sources).add_routes(router)
    MessagesApi(sources).add_routes(router)
    AddressesApi(sources).add_routes(router)
    DivertsApi(sources).add_routes(router)
    ProducersApi(sources).add_routes(router)
    if sources.scrubber is not None:
        ScrubApi(sources.scrubber, sources.journal).add_routes(router)
    if with_metrics:
        metrics.add_routes(router, sources)


def _full(fullness: Fullness) -> dict[str, object]:
    """Return what takes nothing now, the first of them by name, and how many there are.

    Strangers may read it: limits of single users are not among it, since they have names.
    """
    told_to_all = {which: one for which, one in fullness.full.items() if not one.user}
    full = {which: one for which, one in told_to_all.items() if one.kind != PAGING}
    paging = [one.address for one in told_to_all.values() if one.kind == PAGING]
    told: dict[str, object] = {}
    if paging:
        told = {"paging": nsmallest(FULL_SHOWN_MAX, paging), "pagingCount": len(paging)}
    if not full:
        return told
    shown = [
        {
            "address": one.address or None,
            "state": one.kind,
            "limit": one.key or None,
            "limitValue": one.limit,
            "value": one.value,
            "policy": one.policy or None,
            "message": one.text,
        }
        for _, one in nsmallest(FULL_SHOWN_MAX, full.items(), key=lambda item: item[0])
    ]
    return {"full": shown, "fullCount": len(full), **told}


class StatusApi:
    """The probes and the store."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def add_routes(self, router: Router) -> None:
        """Add the routes."""
        router.add("GET", "/livez", self.alive, need=Need.OPEN)
        router.add("GET", "/readyz", self.ready, need=Need.OPEN)
        router.add("GET", "/api/v1/store", self.show_store, need=Need.VIEW)
        router.add("GET", "/api/v1/clock", self.show_clock, need=Need.VIEW)
        router.add("POST", "/api/v1/clock/trust", self.trust_clock, need=Need.ADMIN)
        router.add("GET", "/stomp", self.websocket, need=Need.OPEN)
        router.add("GET", "/amqp", self.websocket, need=Need.OPEN)

    def alive(self, _: Request) -> Response:
        """200 as long as the reactor turns."""
        return json_response(200, {"status": "alive"})

    def ready(self, _: Request) -> Response:
        """200 when messages can be sent and received; 503 with the reason."""
        failure = self._sources.gateway.failure
        reason = failure.text if failure is not None else self._sources.not_ready()
        if reason is None:
            full = self._sources.gateway.pressure.disk.refusal
            # Still ready: whoever consumes makes room.
            lag = views.lag_reason(self._sources)
            told: dict[str, object] = {}
            if lag is not None:
                told = {"code": "store-lags", "message": lag}
            if full is not None:
                told = {"code": full.code.value, "message": full.text}
            scrubber = self._sources.scrubber
            if scrubber is not None and scrubber.alarm is not None:
                told["damage"] = scrubber.alarm
            audit = self._sources.audit
            if audit is not None and audit.failing:
                told["auditFails"] = audit.failing
            lagging = self._sources.streams.lagging() if self._sources.streams is not None else []
            if lagging:
                told["archiveLags"] = lagging
            told.update(_full(self._sources.gateway.pressure.fullness))
            return json_response(200, {"status": "ready", **told})
        return json_response(503, {"code": "not-ready", "message": reason})

    def websocket(self, _: Request) -> Response:
        """426: a WebSocket begins with the first request of its connection."""
        message = (
            "STOMP and AMQP over WebSocket are served here, where management.websocket says so, to"
            " the first request of a connection: connect again."
        )
        raise ProblemError(426, "upgrade-required", message, {"Upgrade": "websocket"})

    def show_store(self, request: Request) -> Response:
        """Journal, disk and memory."""
        check_query(request, ())
        return json_response(200, views.store_view(self._sources))

    def show_clock(self, request: Request) -> Response:
        """Broker time, and whether the wall clock is followed."""
        check_query(request, ())
        return json_response(200, views.clock_view(self._sources))

    def trust_clock(self, request: Request) -> Response:
        """Take over a step of the wall clock now; nothing to do when it is followed."""
        check_query(request, ())
        if self._sources.clock is not None:
            self._sources.clock.trust()
        return json_response(200, views.clock_view(self._sources))
