"""The HTTP calls on quotas, below `/api/v1`.

    GET    /quotas ?scope= &name= &limit= &cursor=    what users, remotes and addresses have used

An item is a user, a remote or an address that has a limit and something open, or that has not got
back all that it may have at once. `waiting` are senders and consumers that are held back now.
"""

from __future__ import annotations

from gateway.management.http import (
    STATUS,
    ProblemError,
    Request,
    Response,
    check_query,
    shorten,
)
from gateway.management.listing import PAGING, page
from gateway.management.router import Router
from gateway.model.errors import Code, RefusedError
from gateway.model.quota import ROWS, Scope
from gateway.model.retry import retry_after
from gateway.model.roles import Need
from gateway.quotas.meter import Flow, Meter
from gateway.quotas.meters import Meters


class QuotasApi:
    """The function behind the route."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def add_routes(self, router: Router) -> None:
        """Add the route."""
        router.add("GET", "/api/v1/quotas", self.list_quotas, need=Need.VIEW)

    def list_quotas(self, request: Request) -> Response:
        """All that are limited, or those of one scope or name."""
        query = check_query(request, ("scope", "name", *PAGING))
        scope = query.get("scope")
        if scope is not None and scope not in {one.value for one in Scope}:
            known = ", ".join(one.value for one in Scope)
            message = f"The query field 'scope' is {shorten(scope)}; it must be one of {known}."
            raise RefusedError.of(Code.BAD_VALUE, message)
        found = [
            meter
            for meter in self._meters.meters.values()
            if scope in (None, meter.scope.value) and query.get("name") in (None, meter.name)
        ]
        now = self._meters.seconds()
        return page(
            request,
            found,
            lambda meter: (meter.scope.value, meter.name),
            lambda meter: meter_view(meter, now),
        )


def check_quota(meters: Meters | None, request: Request, *, inward: bool) -> None:
    """Raise ProblemError (429, with Retry-After) where a program may not send, or read, now."""
    if meters is None:
        return
    refusal = meters.refusal(request.principal, request.peer, inward=inward)
    if refusal is not None:
        after = {"Retry-After": str(retry_after(refusal))}
        raise ProblemError(STATUS[refusal.code], refusal.code.value, refusal.text, after)


def count_quota(
    meters: Meters | None, request: Request, count: int, size: int, *, inward: bool
) -> None:
    """Count what a program has sent, or read."""
    if meters is not None:
        meters.passed(request.principal, request.peer, count, size, inward=inward)


def meter_view(meter: Meter, now: float) -> dict[str, object]:
    """Return a meter as the API shows it."""
    return {
        "scope": meter.scope.value,
        "name": meter.name,
        "connections": meter.connections,
        "links": meter.links,
        "in": _flow(meter.inward, now),
        "out": _flow(meter.outward, now),
        "limits": [
            {"limit": ROWS[row].json, "value": one.value, "key": one.key, "origin": one.origin}
            for row, one in meter.limits.items()
        ],
    }


def _flow(flow: Flow, now: float) -> dict[str, object]:
    left = [None if one is None else one.level(now) for one in (flow.messages, flow.bytes)]
    return {
        "messages": flow.passed,
        "bytes": flow.passed_bytes,
        "messagesLeft": None if left[0] is None else round(left[0], 3),
        "bytesLeft": None if left[1] is None else round(left[1]),
        "waiting": len(flow.waiting),
        "secondsToWait": round(flow.wait(now), 3) if flow.waiting else 0.0,
    }


def throttle_view(flow: Flow | None, now: float) -> dict[str, object] | None:
    """Return what holds a connection back, as the API shows it; None: nothing does."""
    if flow is None or not flow.limited:
        return None
    limit = flow.meter.limits[flow.row_in_force(now)]
    return {
        "scope": flow.meter.scope.value,
        "name": flow.meter.name,
        "direction": "in" if flow.inward else "out",
        "key": limit.key,
        "limit": limit.value,
    }
