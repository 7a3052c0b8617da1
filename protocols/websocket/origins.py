"""Which pages may connect: the allow-list of origins [RFC 6454, RFC 6455 10.2]. Pure.

    no Origin                              no browser: let in, unless Sec-Fetch-Site tells of one
    an origin of the list, or `*` there    let in
    a page of loopback                     let in where the request is sent to loopback, too
    the origin that the request is sent to let in, over TLS only when the page came over TLS; where
                                           no login is needed only by an address
    any other, `null` too                  refused

Browsers let any page open a WebSocket to any host, and do not ask that host before. What a page can
choose is where its request goes; Origin and Host are the browser's own words.

The third row is about one machine: the page of `localhost` and the gateway of `localhost` are both
where the browser runs. Sent to any other host, a page of loopback is one of the visitor's machine,
which this gateway knows nothing of; so it is where a proxy says that the request comes from afar.

The fourth row is narrow since whoever has a domain can point its name at any address: a page of
theirs is then of the "same origin" as a gateway of loopback (DNS rebinding), and a login is what it
lacks.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from protocols.websocket.limits import WebSocketLimits
from protocols.websocket.requests import Request

_PORTS: Final = {"http": 80, "https": 443}
_PORT_MAX: Final = 65535
#: Any origin, where the allow-list has it.
ANY: Final = "*"
_HOST: Final = r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?"
_HOST_FORM: Final = re.compile(_HOST)
_ORIGIN_FORM: Final = re.compile(rf"(https?)://{_HOST}")
#: What proxies say of the client that they speak for.
_PROXIES_SAY: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
#: What Sec-Fetch-Site says of a request that no foreign page made.
_OWN_SITE: Final = frozenset({"same-origin", "none"})


class Origin(NamedTuple):
    """An origin's three parts; an IPv6 address without its brackets."""

    scheme: str
    host: str
    port: int


def read_origin(text: str) -> Origin | None:
    """Return what an Origin header names; None where it names no page of HTTP."""
    found = _ORIGIN_FORM.fullmatch(text.lower())
    if found is None:
        return None
    scheme, host, digits = found.groups()
    port = int(digits) if digits else _PORTS[scheme]
    return Origin(scheme, host.strip("[]"), port) if port <= _PORT_MAX else None


def read_host(text: str) -> str | None:
    """Return the name in a Host header, IPv6 in brackets; None where it is malformed."""
    found = _HOST_FORM.fullmatch(text.lower())
    return found[1] if found and int(found[2] or 0) <= _PORT_MAX else None


def names_us(host: str, limits: WebSocketLimits, own: str) -> bool:
    """Whether a name of `read_host` is one of ours; `own` is the address that was connected to."""
    if limits.hosts is None or host in limits.hosts or is_loopback(host):
        return True
    return host.strip("[]") == own


def may_connect(request: Request, limits: WebSocketLimits, *, tls: bool) -> bool:
    """Whether the page that asks may; its request has one Host and one Origin at most."""
    origins = request.values("origin")
    if not origins:
        return all(word.lower() in _OWN_SITE for word in request.values("sec-fetch-site"))
    page = read_origin(origins[0])
    if ANY in limits.origins:
        return True
    if page is None:
        return False
    if any(read_origin(one) == page for one in limits.origins):
        return True
    host = request.values("host")[0].lower()
    asked = read_origin(f"{page.scheme}://{host}")
    if is_loopback(page.host):
        afar = any(request.values(name) for name in _PROXIES_SAY)
        return asked is not None and is_loopback(asked.host) and not afar
    if asked != page or (tls and page.scheme != "https"):
        return False
    return not limits.open_to_all or _is_address(page.host)


def is_loopback(host: str) -> bool:
    """Whether a name is always of the machine that resolves it [RFC 6761 6.3]."""
    bare = host.strip("[]")
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    return _is_address(bare) and ipaddress.ip_address(bare).is_loopback


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
