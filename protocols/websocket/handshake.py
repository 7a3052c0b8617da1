"""The opening handshake: a request to its 101, or to the status and the words it is refused with.

    in this order    HTTP/1.1                                505
                     a target that is no path                400
                     the path, SockJS among them             404
                     GET, no body                            405, 400
                     the host                                400, 421
                     Upgrade: a browser looks at this port   426, with what the port is
                     Connection, version, key                400, 426, 400
                     the page's origin                       403
                     a token in the URL                      400
                     a subprotocol, where some are offered   400

Pure. The subprotocol says what is inside; without one the first bytes of the payload do. Paths are
those of other brokers, so that their addresses go on; none of them decides anything. Whoever asks
for `text/html` gets a page.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import unquote

from wsproto.utilities import generate_accept_token

from gateway.model.token import tells_token
from protocols.transport.speaking import PeerFacts
from protocols.websocket.deflate import Agreed, agree
from protocols.websocket.limits import WebSocketLimits
from protocols.websocket.origins import may_connect, names_us, read_host
from protocols.websocket.requests import Rejected, Request

#: Subprotocol -> the protocol inside, best first [AMQP-WSB 2.1]. What Azure's clients offer comes
#: after the standard's own name.
SUBPROTOCOLS: Final[Mapping[str, str]] = {
    "amqp": "AMQP",
    "AMQPWSB10": "AMQP",
    "v12.stomp": "STOMP",
    "v11.stomp": "STOMP",
    "v10.stomp": "STOMP",
}
#: What ends the paths of SockJS' transports.
_SOCKJS: Final = frozenset(
    ["info", "websocket", "xhr", "xhr_send", "xhr_streaming", "eventsource", "htmlfile", "jsonp"]
)
_VERSION: Final = ("Sec-WebSocket-Version", "13")
_UPGRADE: Final = ("Upgrade", "websocket")
_KEY_BYTES: Final = 16


class Accepted(NamedTuple):
    """A handshake that is done.

    Attributes:
        inside: None where the first bytes tell it.
        deflate: what was agreed on; None: no compression.
    """

    answer: bytes
    inside: str | None
    deflate: Agreed | None = None


def judge(
    request: Request, spoken: Collection[str], limits: WebSocketLimits, facts: PeerFacts
) -> Accepted | Rejected:
    """Return how a request is answered; `spoken` are the protocols that may be inside."""
    judged = _judge(request, spoken, limits, facts)
    return judged.to(request) if isinstance(judged, Rejected) else judged


def _judge(
    request: Request, spoken: Collection[str], limits: WebSocketLimits, facts: PeerFacts
) -> Accepted | Rejected:
    refused = (
        _wrong_version(request.version)
        or _wrong_path(request.target, limits.paths)
        or _wrong_method(request)
        or _wrong_host(request, limits, facts.own)
        or _no_upgrade(request, spoken, limits.paths)
        or _wrong_upgrade(request)
        or _wrong_origin(request, limits, tls=facts.tls)
        or _token_in_url(request.target)
    )
    if refused is not None:
        return refused
    offered = request.words("sec-websocket-protocol")
    chosen = next((one for one in SUBPROTOCOLS if one in offered and _of(one) in spoken), None)
    if offered and chosen is None:
        known = ", ".join(one for one in SUBPROTOCOLS if _of(one) in spoken)
        return _bad(f"None of the offered subprotocols is spoken here; these are: {known}.")
    token = generate_accept_token(request.values("sec-websocket-key")[0].encode("ascii"))
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {token.decode('ascii')}",
    ]
    if chosen is not None:
        lines.append(f"Sec-WebSocket-Protocol: {chosen}")
    agreed = agree(request.words("sec-websocket-extensions")) if limits.deflate else None
    if agreed is not None:
        lines.append(f"Sec-WebSocket-Extensions: {agreed.answer}")
    answer = "\r\n".join((*lines, "", "")).encode("ascii")
    return Accepted(answer, None if chosen is None else _of(chosen), agreed)


def _of(subprotocol: str) -> str:
    return SUBPROTOCOLS[subprotocol]


def _bad(text: str) -> Rejected:
    return Rejected(HTTPStatus.BAD_REQUEST, text)


def _wrong_path(target: str, paths: Sequence[str]) -> Rejected | None:
    if target[:1] != "/":
        return _bad("The target of the request is to be a path; this is no proxy.")
    path = unquote(target.partition("?")[0])
    if path in paths:
        return None
    text = f"WebSocket is served at these paths: {' '.join(paths)}"
    last = path.rpartition("/")[2]
    if last in _SOCKJS or last.startswith("iframe"):
        text = (
            "SockJS is not spoken here: connect by WebSocket itself, without sockjs-client; every "
            f"browser has it. {text}"
        )
    return Rejected(HTTPStatus.NOT_FOUND, text)


def _wrong_version(version: str) -> Rejected | None:
    if version == "1.1":
        return None
    text = f"HTTP/{version} has no WebSocket here; HTTP/1.1 has."
    return Rejected(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, text)


def _wrong_method(request: Request) -> Rejected | None:
    looks = request.method == "HEAD" and not request.values("upgrade")
    if request.method != "GET" and not looks:
        text = f"WebSocket begins with GET, not with {request.method[:20]}."
        return Rejected(HTTPStatus.METHOD_NOT_ALLOWED, text, (("Allow", "GET"),))
    if request.values("transfer-encoding") or request.words("content-length") not in ([], ["0"]):
        return _bad("A request for WebSocket has no body.")
    return None


def _wrong_host(request: Request, limits: WebSocketLimits, own: str) -> Rejected | None:
    """Refuse what was meant for somebody else, which includes any name that points here."""
    said = request.values("host")[0]
    host = read_host(said)
    if host is None:
        return _bad(f"The Host header {said[:80]!a} is malformed.")
    if names_us(host, limits, own):
        return None
    text = f"The host {host[:200]} is not served here; name it in {limits.hosts_key}."
    return Rejected(HTTPStatus.MISDIRECTED_REQUEST, text)


def _no_upgrade(request: Request, spoken: Collection[str], paths: Sequence[str]) -> Rejected | None:
    if "websocket" in (word.lower() for word in request.words("upgrade")):
        return None
    text = (
        "This is a port of Sluicegate, a message gateway, and no web site.\n"
        f"It speaks {' and '.join(spoken)} over WebSocket, at {' '.join(paths)}, to programs and "
        "to scripts of web pages. The other ports of the gateway, and that of its HTTP API "
        "(management.endpoint), are in its configuration and in its log."
    )
    return Rejected(HTTPStatus.UPGRADE_REQUIRED, text, (_UPGRADE, _VERSION))


def _wrong_upgrade(request: Request) -> Rejected | None:
    if "upgrade" not in (word.lower() for word in request.words("connection")):
        return _bad("The header Connection lacks the word Upgrade; a proxy may have taken it away.")
    versions = request.words("sec-websocket-version")
    if versions != ["13"]:
        text = f"WebSocket is spoken here in version 13, not {', '.join(versions)[:40] or 'none'}."
        return Rejected(HTTPStatus.UPGRADE_REQUIRED, text, (_UPGRADE, _VERSION))
    keys = request.values("sec-websocket-key")
    if len(keys) != 1 or not _is_key(keys[0]):
        return _bad(f"Sec-WebSocket-Key is to be there once, with {_KEY_BYTES} bytes in base64.")
    return None


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def _token_in_url(target: str) -> Rejected | None:
    fields = target.partition("?")[2].split("&")
    if any(tells_token(unquote(name), unquote(value)) for name, _, value in map(_parted, fields)):
        return _bad(
            "A token came in the URL, which proxies and logs keep; send it as Authorization: "
            "Bearer, in the cookie that ws-token-cookie names, or as the passcode of CONNECT."
        )
    return None


def _parted(field: str) -> tuple[str, str, str]:
    return field.partition("=")


def _wrong_origin(request: Request, limits: WebSocketLimits, *, tls: bool) -> Rejected | None:
    origins = request.values("origin")
    if len(origins) > 1:
        return _bad("The header Origin came more than once.")
    if may_connect(request, limits, tls=tls):
        return None
    shown = ascii(origins[0][:200])[1:-1] if origins else "another site, which is not named,"
    text = (
        f"Pages of {shown} may not connect; {limits.origins_key} lists those that may, beside "
        "pages of the same origin, and of localhost where they connect to localhost."
    )
    return Rejected(HTTPStatus.FORBIDDEN, text)
