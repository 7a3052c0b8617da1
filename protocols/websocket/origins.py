"""Which pages may connect: the allow-list of origins [RFC 6454, RFC 6455 10.2]. Pure.

    no Origin                              no browser: let in
    an origin of the list, or `*` there    let in
    a page of this machine (loopback)      let in
    the origin that the request is sent to let in, over TLS only when the page came over TLS; where
                                           no login is needed only by an address or `localhost`
    any other, `null` too                  refused

Browsers let any page open a WebSocket to any host, and do not ask that host before. The last row
but one is narrow since whoever has a domain can point its name at any address: a page of theirs is
then of the "same origin" as a gateway of loopback (DNS rebinding), and a login is what it lacks.
"""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from protocols.websocket.limits import WebSocketLimits

_PORTS: Final = {"http": 80, "https": 443}
#: Any origin, where the allow-list has it.
ANY: Final = "*"


class Origin(NamedTuple):
    """An origin's three parts."""

    scheme: str
    host: str
    port: int


def read_origin(text: str) -> Origin | None:
    """Return what an Origin header names; None where it names no page of HTTP."""
    try:
        parts = urlsplit(text.lower())
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    host = parts.hostname
    bare = f"{parts.scheme}://{parts.netloc}" == text.lower() and "@" not in parts.netloc
    return Origin(parts.scheme, host, port) if host and bare else None


def may_connect(origin: str | None, host: str, limits: WebSocketLimits, *, tls: bool) -> bool:
    """Whether a page of `origin` may connect to `host`, the Host header of its request."""
    if origin is None or ANY in limits.origins or origin.lower() in limits.origins:
        return True
    page = read_origin(origin)
    if page is None:
        return False
    if _is_loopback(page.host):
        return True
    asked = read_origin(f"{page.scheme}://{host}")
    if asked != page or (tls and page.scheme != "https"):
        return False
    return not limits.open_to_all or _is_address(page.host)


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
