"""What the calls of the API share: bodies, patterns, lists, answers that wait for the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
from twisted.internet.defer import Deferred

from gateway.addresses.match import match_problem, matches
from gateway.broker import Gateway
from gateway.management.durable import when_durable
from gateway.management.http import JSON, Response, json_response, shorten
from gateway.model.address import RoutingType, is_internal
from gateway.model.errors import Code, RefusedError

#: Lists longer than this leave in pieces of as many, made as the client reads.
PIECE: Final = 50


class Fields(msgspec.Struct, rename="camel", kw_only=True):
    """Names in JSON are camelCase."""


class Nothing(Fields):
    """Body of calls that take none."""


def answer_later(
    gateway: Gateway, ticket: int, status: int, view: Callable[[], object]
) -> Deferred[Response]:
    """Answer with `view()` as it is once `ticket` is durable."""
    done = when_durable(gateway, ticket)
    return done.addCallback(lambda _: json_response(status, view()))


def answer_gone(gateway: Gateway, ticket: int) -> Deferred[Response]:
    """Answer 204 once `ticket` is durable."""
    done = when_durable(gateway, ticket)
    return done.addCallback(lambda _: Response(status=204))


def check_own(name: str) -> None:
    """Raise RefusedError (in-use) for an address or a queue that is the gateway's own."""
    if is_internal(name):
        message = (
            f"{shorten(name)} is the gateway's own and changes with the settings of its address "
            "(retroactive-message-count)."
        )
        raise RefusedError.of(Code.IN_USE, message)


def read_routing_type(text: str | None) -> RoutingType | None:
    """Return a routing type by its name. Raises RefusedError (bad-value)."""
    if text is None:
        return None
    try:
        return RoutingType(text)
    except ValueError:
        message = f"routingType is {shorten(text)}; it must be 'ANYCAST' or 'MULTICAST'."
        raise RefusedError.of(Code.BAD_VALUE, message) from None


def name_pattern(text: str | None) -> Callable[[str], bool]:
    """Return the test of a `pattern`. Raises RefusedError (bad-value)."""
    if text is None:
        return lambda _: True
    problem = match_problem(text)
    if problem is not None:
        raise RefusedError.of(Code.BAD_VALUE, f"The pattern is impossible: {problem}.")
    return lambda name: matches(text, name)


def list_response(
    shown: Iterable[dict[str, object]],
    count: int,
    *,
    total: int | None,
    cursor: str | None = None,
    piece: int = PIECE,
) -> Response:
    """Return a list; a long one leaves in pieces, so that nothing else waits for all of it.

    `total` is how many there are beside these; None where nobody knows.
    """
    if count <= piece:
        return json_response(200, {"items": list(shown), "total": total, "cursor": cursor})
    body = _pieces(iter(shown), piece, {"total": total, "cursor": cursor})
    return Response(status=200, body=body, content_type=JSON)


def _pieces(
    shown: Iterator[dict[str, object]], piece: int, facts: dict[str, object]
) -> Iterator[bytes]:
    before = b'{"items":['
    waiting: list[bytes] = []
    for view in shown:
        waiting.append(msgspec.json.encode(view))
        if len(waiting) == piece:
            yield before + b",".join(waiting)
            before, waiting = b",", []
    last = (before if waiting else b"") + b",".join(waiting) + b"],"
    yield last + msgspec.json.encode(facts)[1:]
