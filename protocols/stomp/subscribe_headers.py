"""The headers of SUBSCRIBE and UNSUBSCRIBE, beside id and destination: ours and those of others.

A header that has several names is read under each of them, so that clients of Artemis and ActiveMQ
find what they know. Each function judges one of them and raises RefusedError. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gateway.model.address import RoutingType
from gateway.model.errors import Code, RefusedError
from gateway.model.stream_start import StreamStart, parse_start
from protocols.stomp.heads import shown
from protocols.stomp.window import NO_WINDOW, Window

_DURABLE_HEADERS: Final = (
    "durable-subscription-name",
    "durable-subscriber-name",
    "activemq.subscriptionName",
)
_WINDOW_HEADERS: Final = ("consumer-window-size", "activemq.prefetchSize")
_NO_LOCAL_HEADERS: Final = ("no-local", "activemq.noLocal")
_BROWSER_HEADER: Final = "browser"
#: RabbitMQ's: SUBSCRIBE says where a replay begins, MESSAGE which offset it has.
STREAM_HEADER: Final = "x-stream-offset"
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}", re.ASCII)


def selector_of(headers: Mapping[str, str]) -> str:
    """Return the selector, "" without one; raises RefusedError when it is empty."""
    selector = headers.get("selector")
    if selector is not None and not selector.strip():
        raise RefusedError.of(
            Code.BAD_VALUE, "The selector is empty; leave the header out to get every message."
        )
    return selector or ""


def _is_set(headers: Mapping[str, str], name: str) -> bool:
    """Return whether a header says true; raises RefusedError when it says neither."""
    text = headers.get(name, "false").lower()
    if text not in ("true", "false"):
        raise RefusedError.of(
            Code.BAD_VALUE, f"{name} '{shown(headers[name])}' is neither true nor false."
        )
    return text == "true"


def browses(headers: Mapping[str, str], durable: str | None, routing: RoutingType | None) -> bool:
    """Return whether it is a browser; raises RefusedError where there is no queue to look into."""
    browser = _is_set(headers, _BROWSER_HEADER)
    if browser and (durable is not None or routing is RoutingType.MULTICAST):
        raise RefusedError.of(
            Code.ROUTING_MISMATCH,
            "browser:true looks into a queue; name it, as address::queue for a subscription's.",
        )
    return browser


def start_of(headers: Mapping[str, str], durable: str | None) -> StreamStart | None:
    """Return where a replay begins that is asked for, else None; raises RefusedError."""
    text = headers.get(STREAM_HEADER)
    if text is None:
        return None
    others = [
        name
        for name, there in (
            ("a durable subscription", durable is not None),
            (f"{_BROWSER_HEADER}:true", _is_set(headers, _BROWSER_HEADER)),
            ("no-local:true", wants_no_local(headers)),
        )
        if there
    ]
    if others:
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"{STREAM_HEADER} replays a stream, which has no {others[0].removeprefix('a ')}; "
            "leave one of the two out.",
        )
    return parse_start(text)


def wants_no_local(headers: Mapping[str, str]) -> bool:
    """Return whether it wants nothing that its connection sends; raises RefusedError."""
    return any(_is_set(headers, name) for name in _NO_LOCAL_HEADERS)


def check_durable(durable: str | None, routing: RoutingType | None, *, temporary: bool) -> None:
    """Raise RefusedError when a durable subscription is asked for, and a queue or what is gone."""
    if durable is not None and temporary:
        raise RefusedError.of(
            Code.ROUTING_MISMATCH,
            "A durable subscription outlives its connection, and a temporary destination does not.",
        )
    if durable is not None and routing is RoutingType.ANYCAST:
        raise RefusedError.of(
            Code.ROUTING_MISMATCH,
            "A durable subscription is MULTICAST; the destination or its type says ANYCAST.",
        )


def durable_name(headers: Mapping[str, str], client_id: str | None, command: str) -> str | None:
    """Return the queue of the durable subscription that is named; raises RefusedError."""
    for header in _DURABLE_HEADERS:
        name = headers.get(header)
        if name is None:
            continue
        if not name:
            raise RefusedError.of(Code.BAD_VALUE, f"{header} is empty; give it a name.")
        if not client_id:
            raise RefusedError.of(
                Code.BAD_HEADER,
                f"{command} with {header} needs a client-id header on CONNECT: both together name "
                "the subscription.",
            )
        return f"{client_id}.{name}"
    return None


def window_of(headers: Mapping[str, str], default: int) -> Window:
    """Return how much may be unacknowledged; `default` is in bytes. Raises RefusedError."""
    prefetch = _whole(headers, "prefetch-count")
    if prefetch is not None and prefetch < 1:
        raise RefusedError.of(
            Code.BAD_VALUE, f"prefetch-count {prefetch} is below 1; nothing would ever be sent."
        )
    for name in _WINDOW_HEADERS:
        window = _whole(headers, name)
        if window is not None:
            return Window(max(window, NO_WINDOW), prefetch or 0)
    # Who counts in messages does not expect a limit in bytes beside it.
    return Window(NO_WINDOW if prefetch else default, prefetch or 0)


def _whole(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    if _NUMBER.fullmatch(text) is None:
        raise RefusedError.of(Code.BAD_VALUE, f"{name} '{shown(text)}' is not a whole number.")
    return int(text)
