"""Who speaks something that an acceptor does not: what it is called, and what it is told. Pure.

HTTP gets an answer of its own where the acceptor has no WebSocket, and a WebSocket handshake the
truth: that there is none here. For that the request's head must be there, which ends with an empty
line.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: A head longer than this is answered without its end.
_HEAD_BYTES_MAX: Final = 8192
_HEAD_END: Final = b"\r\n\r\n"
#: Fatal alert handshake_failure [RFC 5246 7.2]: this port has no TLS.
_TLS_ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x28"
_HTTP_TEXT: Final = (
    "This port speaks AMQP 1.0 and STOMP. HTTP is answered by the management listener: "
    "management.endpoint in the configuration, port 8161 unless it is set.\n"
)
_WEBSOCKET_TEXT: Final = (
    "WebSocket is not spoken at this port: `protocols` of its acceptor in the configuration does "
    'not list "WS". This port speaks AMQP 1.0 and STOMP over TCP.\n'
)


class Stranger(NamedTuple):
    """What a peer speaks, and the bytes that it is sent before the end; b"" for none."""

    name: str
    answer: bytes


def decline(guess: str, first: bytes) -> Stranger | None:
    """Return what to tell a peer whose first bytes nobody here takes; None: more must come.

    `guess` is what `sniff` made of them.
    """
    match guess:
        case "HTTP":
            if _HEAD_END not in first and len(first) < _HEAD_BYTES_MAX:
                return None
            if _wants_websocket(first):
                return Stranger("WebSocket", _http("501 Not Implemented", _WEBSOCKET_TEXT))
            return Stranger("HTTP", _http("400 Bad Request", _HTTP_TEXT))
        case "TLS":
            return Stranger("TLS", _TLS_ALERT)
        case "unknown":
            return Stranger("unknown", b"")
        case _:
            return Stranger(guess, b"")


def _wants_websocket(request: bytes) -> bool:
    """Whether a request asks to go on as WebSocket [RFC 6455 4.1]."""
    for line in request.partition(_HEAD_END)[0].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"upgrade" and b"websocket" in value.lower():
            return True
    return False


def _http(status: str, text: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
