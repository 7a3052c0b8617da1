"""Bad input: what a peer sends, and the status or the code that ends its connection.

`REQUESTS` are whole connections. `FRAMES` stand behind a good handshake and a CONNECT. Each has a
few words of the answer. Hosts are of loopback, so that any listener takes them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from protocols.websocket.limits import FRAMES_MAX
from tests.protocols.websocket.client import CLOSE, PING, PONG, TEXT, close, frame, request

#: What the listeners that it is sent to take of a message.
MESSAGE_BYTES = 1 << 20
CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"


class Bad(NamedTuple):
    data: bytes
    ends_with: int  # a status of HTTP, or a code of WebSocket
    words: str


def asked(path: str = "/stomp", *more: str, **headers: str | None) -> bytes:
    """Return a handshake, with more lines at the end of its head."""
    data = request(path, **{"Host": "localhost", **headers})  # type: ignore[arg-type]
    return data[:-2] + b"".join(line.encode("latin-1") + b"\r\n" for line in more) + b"\r\n"


def edited(old: bytes, new: bytes) -> bytes:
    whole = asked()
    assert old in whole
    return whole.replace(old, new, 1)


_HTTP_1 = "no request of HTTP/1.1"
_FORM = (
    b"POST /stomp HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\n\r\n%s"
)

REQUESTS: dict[str, Bad] = {
    "no host": Bad(asked(Host=None), 400, _HTTP_1),
    "two hosts": Bad(asked("/stomp", "Host: evil.example"), 400, _HTTP_1),
    "the host twice": Bad(asked("/stomp", "Host: localhost"), 400, _HTTP_1),
    "an empty host": Bad(asked(Host=""), 400, "The Host header '' is malformed"),
    "hosts in a list": Bad(asked(Host="localhost, evil.example"), 400, "is malformed"),
    "a user in the host": Bad(asked(Host="localhost@evil.example"), 400, "is malformed"),
    "a path in the host": Bad(asked(Host="localhost/x"), 400, "is malformed"),
    "a port above all": Bad(asked(Host="localhost:65536"), 400, "is malformed"),
    "a host of letters": Bad(asked(Host="l\u00f6calhost"), 400, "is malformed"),
    "no upgrade": Bad(asked(Upgrade=None), 426, "This is a port of Sluicegate"),
    "another upgrade": Bad(asked(Upgrade="websocket2"), 426, "This is a port"),
    "h2c": Bad(
        asked("/stomp", "HTTP2-Settings: AAMAAABkAAQAAP__", Upgrade="h2c"), 426, "This is a port"
    ),
    "no connection": Bad(asked(Connection=None), 400, "lacks the word Upgrade"),
    "another connection": Bad(asked(Connection="keep-alive"), 400, "lacks the word Upgrade"),
    "no key": Bad(asked(Sec_WebSocket_Key=None), 400, "Sec-WebSocket-Key"),
    "two keys": Bad(asked("/stomp", "Sec-WebSocket-Key: " + "B" * 22 + "=="), 400, "once"),
    "a short key": Bad(asked(Sec_WebSocket_Key="YWJj"), 400, "16 bytes"),
    "a long key": Bad(asked(Sec_WebSocket_Key="QUFB" * 8), 400, "16 bytes"),
    "no key at all": Bad(asked(Sec_WebSocket_Key="?" * 24), 400, "16 bytes"),
    "no version": Bad(asked(Sec_WebSocket_Version=None), 426, "not none"),
    "version 8": Bad(asked(Sec_WebSocket_Version="8"), 426, "not 8"),
    "version 99": Bad(asked(Sec_WebSocket_Version="99"), 426, "not 99"),
    "two versions": Bad(asked("/stomp", "Sec-WebSocket-Version: 13"), 426, "not 13, 13"),
    "two origins": Bad(
        asked("/stomp", "Origin: http://localhost", Origin="http://evil.example"), 400, "Origin"
    ),
    "unknown subprotocols": Bad(
        asked("/stomp", "Sec-WebSocket-Protocol: mqtt, v12.stomp.evil"), 400, "subprotocols"
    ),
    # Two readers that see two requests.
    "a length and chunks": Bad(
        asked("/stomp", "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400, ""
    ),
    "two lengths": Bad(asked("/stomp", "Content-Length: 0", "Content-Length: 9"), 400, _HTTP_1),
    "a signed length": Bad(asked("/stomp", "Content-Length: +0"), 400, _HTTP_1),
    "an unknown coding": Bad(asked("/stomp", "Transfer-Encoding: identity"), 400, ""),
    "a coding by another name": Bad(asked("/stomp", "Transfer-Encoding : chunked"), 400, _HTTP_1),
    "a body": Bad(asked("/stomp", "Content-Length: 7") + b"CONNECT", 400, "has no body"),
    "a folded line": Bad(asked("/stomp", "X: a", " Origin: http://evil.example"), 400, "folded"),
    "a folded line of tabs": Bad(asked("/stomp", "X: a", "\tb"), 400, "folded"),
    "lines without CR": Bad(asked().replace(b"\r\n", b"\n"), 400, "CR LF"),
    "a line without CR": Bad(edited(b"Upgrade: websocket\r\n", b"Upgrade: websocket\n"), 400, "CR"),
    "a space before a colon": Bad(edited(b"Upgrade:", b"Upgrade :"), 400, _HTTP_1),
    "a line without a colon": Bad(asked("/stomp", "Upgrade"), 400, _HTTP_1),
    "a NUL": Bad(asked("/stomp", "X: a\0b"), 400, _HTTP_1),
    "a CR in a line": Bad(asked("/stomp", "X: a\rY: b"), 400, _HTTP_1),
    "an absolute target": Bad(asked("http://evil.example/stomp"), 400, "no proxy"),
    "an authority": Bad(edited(b"GET /stomp", b"CONNECT evil.example:80"), 400, "no proxy"),
    "an asterisk": Bad(edited(b"GET /stomp", b"OPTIONS *"), 400, "no proxy"),
    "http/1.0": Bad(edited(b"HTTP/1.1", b"HTTP/1.0"), 505, "HTTP/1.0"),
    "http/9.9": Bad(edited(b"HTTP/1.1", b"HTTP/9.9"), 505, "HTTP/9.9"),
    "no version of http": Bad(edited(b" HTTP/1.1", b""), 400, _HTTP_1),
    "two spaces": Bad(edited(b"GET /stomp", b"GET  /stomp"), 400, _HTTP_1),
    "sockjs": Bad(asked("/stomp/info"), 404, "SockJS is not spoken here"),
    "a form of a page": Bad(_FORM % (len(CONNECT), CONNECT), 405, "begins with GET"),
    "another path": Bad(asked("/../stomp"), 404, "served at these paths"),
    "http/2": Bad(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 400, "no proxy"),
    "100,000 headers": Bad(asked("/stomp", *(f"X{n}: y" for n in range(100_000))), 431, "headers"),
    "one header of 10 MB": Bad(asked("/stomp", "X: " + "x" * 10_000_000), 431, "16384 bytes"),
    "a target of 64 KiB": Bad(asked("/stomp?" + "x" * 65_536), 431, "16384 bytes"),
}
#: Of those, requests that another listener of HTTP answers by itself.
NOT_AT_THE_DOOR = frozenset(
    [
        *("sockjs", "a form of a page", "another path", "http/2", "two spaces", "an authority"),
        *("an asterisk", "an absolute target", "no version of http"),
    ]
)

_TOO_LARGE = f"A message is larger than {MESSAGE_BYTES} bytes."
_EMPTY = frame(0, fin=False)

FRAMES: dict[str, Bad] = {
    "unmasked": Bad(frame(TEXT, b"x", mask=None), 1002, "unmasked"),
    **{
        f"reserved bits {n:03b}": Bad(frame(TEXT, b"x", reserved=n), 1002, "Reserved bit")
        for n in range(1, 8)
    },
    **{
        f"opcode {n}": Bad(frame(n, b"x"), 1002, "Invalid opcode")
        for n in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
    },
    "a ping of 126": Bad(frame(PING, b"x" * 126), 1002, "125"),
    "a pong of 64 KiB": Bad(frame(PONG, b"x" * 65_536), 1002, "125"),
    "a close of 126": Bad(frame(CLOSE, b"\x03\xe8" + b"x" * 124), 1002, "125"),
    "a ping in parts": Bad(frame(PING, b"x", fin=False), 1002, "fragment"),
    "a close in parts": Bad(frame(CLOSE, b"\x03\xe8", fin=False), 1002, "fragment"),
    "a continuation of nothing": Bad(frame(0, b"x"), 1002, "CONTINUATION"),
    "a message in a message": Bad(
        frame(TEXT, b"x", fin=False) + frame(TEXT, b"x"), 1002, "CONTINUATION"
    ),
    "a length that is too long": Bad(b"\x81\xfe\x00\x01" + b"\0" * 5, 1002, "1 would have"),
    "the top bit": Bad(b"\x82\xff" + struct.pack("!Q", 1 << 63) + b"\0" * 9, 1002, "MSB"),
    "a length of all": Bad(b"\x82\xff" + b"\xff" * 8 + b"\0" * 9, 1002, "MSB"),
    "2^63-1 bytes": Bad(
        b"\x82\xff" + struct.pack("!Q", (1 << 63) - 1) + b"\0" * 4 + b"\n" * (MESSAGE_BYTES + 1),
        1009,
        _TOO_LARGE,
    ),
    "a large message": Bad(frame(TEXT, b"\n" * (MESSAGE_BYTES + 1)), 1009, _TOO_LARGE),
    "endless parts": Bad(
        frame(TEXT, b"\n", fin=False) + frame(0, b"\n" * 65_536, fin=False) * 20, 1009, _TOO_LARGE
    ),
    "1,000,000 empty parts": Bad(
        frame(TEXT, b"\n", fin=False) + _EMPTY * 1_000_000, 1009, f"{FRAMES_MAX} frames"
    ),
    "100,000 pings": Bad(frame(PING, b"x" * 125) * 100_000, 1008, "Ping and Pong"),
    "100,000 pongs": Bad(frame(PONG) * 100_000, 1008, "Ping and Pong"),
    "bad text": Bad(frame(TEXT, b"a\xffb"), 1007, "UTF-8"),
    "bad text in parts": Bad(
        frame(TEXT, b"\xc3", fin=False) + frame(0, b"(", fin=False), 1007, "UTF-8"
    ),
    "text that is cut": Bad(frame(TEXT, b"\xf0\x9f", fin=False) + frame(0, b"\x98"), 1007, "UTF-8"),
    "overlong text": Bad(frame(TEXT, b"\xc0\xaf"), 1007, "UTF-8"),
    "a surrogate": Bad(frame(TEXT, b"\xed\xa0\x80"), 1007, "UTF-8"),
    "beyond unicode": Bad(frame(TEXT, b"\xf4\x90\x80\x80"), 1007, "UTF-8"),
    "a close of one byte": Bad(frame(CLOSE, b"\x03"), 1002, "1 byte"),
    "a close of bad text": Bad(frame(CLOSE, b"\x03\xe8\xff"), 1007, "UTF-8"),
    **{
        f"close {code}": Bad(close(code), 1002, "CLOSE")
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535)
    },
    "a second request": Bad(asked(), 1002, ""),
    "http/2 behind it": Bad(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 1002, ""),
    "data after a close": Bad(close(1001) + frame(TEXT, b"SEND\n") * 1000, 1001, ""),
    "nothing of STOMP": Bad(frame(TEXT, b"HELLO\n\n\0"), 1002, ""),
}
