"""What one hostile peer does, over and over, until it is killed. Each runs in a process of its own.

A flood gets a `Where` and never returns. It opens another connection when it is cut, as an attacker
would; what it may not do is allocate so much itself that the machine, not the gateway, suffers.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway.model.amqp_types import Described, Symbol, Timestamp, Value
from gateway.trial.scratch import HOST
from protocols.amqp.performatives import (
    Attach,
    Begin,
    Composite,
    Detach,
    End,
    Flow,
    Open,
    Source,
    Transfer,
    encode_performative,
)
from protocols.amqp.performatives import Target as AmqpTarget

_MANY: Final = 3000
#: Handles that a session has, and connections with so many links that a peer keeps.
_LINKS: Final = 256
_LINKING: Final = 60
#: Messages that a sender has credit for.
_CREDIT: Final = 1000
_AGAIN_SECONDS: Final = 0.02
_LONG: Final = b"x" * 8000


@dataclass(frozen=True, kw_only=True)
class Where:
    """The ports of a gateway; `tls`: what its AMQP and STOMP listener speaks within, if it does."""

    port: int
    management: int
    tls: ssl.SSLContext | None = None


Flood = Callable[[Where], None]


def connect(where: Where, *, reads: bool = True, port: int = 0) -> socket.socket:
    """Open a connection; `reads`: a thread takes whatever comes."""
    plain = socket.create_connection((HOST, port or where.port), timeout=30)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if where.tls is not None and not port:
        plain = where.tls.wrap_socket(plain, server_hostname="localhost")
    if reads:
        threading.Thread(target=_read_all, args=(plain,), daemon=True).start()
    return plain


def _read_all(sock: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while sock.recv(1 << 18):
            pass


def _frame(performative: Composite, channel: int = 0, payload: bytes = b"") -> bytes:
    body = encode_performative(performative) + payload
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


_BEGIN: Final = Begin(next_outgoing_id=0, incoming_window=1 << 20, outgoing_window=1 << 20)
_OPENED: Final = b"AMQP\0\1\0\0" + _frame(Open(container_id="flood")) + _frame(_BEGIN)
_CONNECT: Final = b"CONNECT\naccept-version:1.1\nhost:h\n\n\0"


def _again(where: Where, first: bytes, data: bytes, *, reads: bool = True) -> None:
    """Say `first` and then `data` for ever."""
    while True:
        with contextlib.suppress(OSError), connect(where, reads=reads) as sock:
            sock.sendall(first)
            while True:
                sock.sendall(data)
        time.sleep(_AGAIN_SECONDS)


def stomp_abort(where: Where) -> None:
    """ABORT of transactions that are not there."""
    _again(where, _CONNECT, b"ABORT\ntransaction:none\n\n\0" * _MANY)


def amqp_flow(where: Where) -> None:
    """Flows that ask for an answer."""
    flow = Flow(
        next_incoming_id=0,
        incoming_window=1 << 20,
        next_outgoing_id=0,
        outgoing_window=1 << 20,
        echo=True,
    )
    _again(where, _OPENED, _frame(flow) * _MANY)


def amqp_begin(where: Where) -> None:
    """Sessions that begin and end."""
    _again(where, _OPENED, (_frame(_BEGIN, 1) + _frame(End(), 1)) * _MANY)


def amqp_attach(where: Where) -> None:
    """Links that come and go."""
    attach = Attach(
        name="l", handle=0, role=True, source=Source(address="flood"), target=AmqpTarget()
    )
    _again(where, _OPENED, (_frame(attach) + _frame(Detach(handle=0, closed=True))) * _MANY)


def amqp_replays(where: Where) -> None:
    """Replays of a stream from a time, which come and go."""
    _stream(where)
    attach = _replay("l", 0, Timestamp(1))
    flow = _credit(0, 100)
    coming = _frame(attach) + _frame(flow) + _frame(Detach(handle=0, closed=True))
    _again(where, _OPENED, coming * _MANY)


def amqp_replays_held(where: Where) -> None:
    """Replays of a stream with all the credit there is, which settle nothing."""
    _stream(where)
    held: list[socket.socket] = []
    while True:
        with contextlib.suppress(OSError):
            sock = connect(where)
            held.append(sock)
            sock.sendall(_OPENED)
            for handle in range(_LINKS):
                sock.sendall(_frame(_replay(f"l{handle}", handle, "first")))
                sock.sendall(_frame(_credit(handle, 1 << 30)))
        while len(held) > _LINKING:
            held.pop(0).close()
        time.sleep(_AGAIN_SECONDS)


def _stream(where: Where) -> None:
    """Make a stream with a history, of which no queue has anything."""
    made = http.client.HTTPConnection(HOST, where.management, timeout=30)
    body = '{"name": "flooded", "address": "flooded"}'
    made.request("POST", "/api/v1/streams", body, {"Content-Type": "application/json"})
    made.getresponse().read()
    made.close()
    with connect(where) as sock:
        sock.sendall(_CONNECT)
        sock.sendall((b"SEND\ndestination:/topic/flooded\n\n" + b"x" * 200 + b"\0") * 1_000)
        time.sleep(0.5)


def _replay(name: str, handle: int, place: Value) -> Attach:
    key = Symbol("sluicegate:stream-offset")
    source = Source(address="flooded", filter={key: Described(key, place)})
    return Attach(name=name, handle=handle, role=True, source=source, target=AmqpTarget())


def _credit(handle: int, credit: int) -> Flow:
    return Flow(
        next_incoming_id=0,
        incoming_window=1 << 30,
        next_outgoing_id=0,
        outgoing_window=1 << 20,
        handle=handle,
        delivery_count=0,
        link_credit=credit,
    )


def stomp_unread_receipts(where: Where) -> None:
    """SENDs with long receipts, and nothing is read."""
    send = b"SEND\ndestination:flood\nreceipt:" + _LONG + b"\n\nx\0"
    _again(where, _CONNECT, send * 30, reads=False)


def stomp_unread_errors(where: Where) -> None:
    """ERRORs that nobody reads."""
    bad = b"ABORT\ntransaction:none\nreceipt:" + _LONG + b"\n\n\0"
    _again(where, _CONNECT, bad * 30, reads=False)


def amqp_unread_flows(where: Where) -> None:
    """Flows that ask for answers, which nobody reads."""
    flow = Flow(
        next_incoming_id=0,
        incoming_window=1 << 20,
        next_outgoing_id=0,
        outgoing_window=1 << 20,
        echo=True,
    )
    _again(where, _OPENED, _frame(flow) * _MANY, reads=False)


def idle(where: Where) -> None:
    """Connections that say nothing, as many as one process may have."""
    _pile(lambda: connect(where, reads=False) if where.tls is None else _bare(where))


def half_open(where: Where) -> None:
    """TLS handshakes that stop after a few bytes; over plain TCP half a greeting."""
    first = b"\x16\x03\x01\x02\x00\x01" if where.tls is not None else b"CONN"

    def one() -> socket.socket:
        sock = _bare(where)
        sock.sendall(first)
        return sock

    _pile(one)


def idle_http(where: Where) -> None:
    """Connections to the management API that say nothing."""
    _pile(lambda: connect(where, reads=False, port=where.management))


def _bare(where: Where) -> socket.socket:
    return socket.create_connection((HOST, where.port), timeout=30)


def _pile(one: Callable[[], socket.socket]) -> None:
    held: list[socket.socket] = []
    while True:
        try:
            held.append(one())
        except OSError:
            time.sleep(_AGAIN_SECONDS)
        if len(held) >= _MANY:
            for sock in held[: _MANY // 2]:
                sock.close()
            del held[: _MANY // 2]


def http_unread(where: Where) -> None:
    """Requests in a row on one connection, whose answers nobody reads."""
    ask = b"GET /api/v1/queues HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % where.management
    while True:
        with (
            contextlib.suppress(OSError),
            connect(where, reads=False, port=where.management) as sock,
        ):
            while True:
                sock.sendall(ask * 200)
        time.sleep(_AGAIN_SECONDS)


def stomp_addresses(where: Where) -> None:
    """A SEND to another address each time."""
    numbers = itertools.count()
    while True:
        with contextlib.suppress(OSError), connect(where) as sock:
            sock.sendall(_CONNECT)
            for part in _addresses(numbers):
                sock.sendall(part)
        time.sleep(_AGAIN_SECONDS)


def _addresses(numbers: Iterator[int]) -> Iterator[bytes]:
    while True:
        yield b"".join(b"SEND\ndestination:flood.%d\n\nx\0" % next(numbers) for _ in range(200))


def stomp_scattered(where: Where) -> None:
    """SENDs to forty addresses in turn: no two that follow each other go the same way."""
    sends = (b"SEND\ndestination:/topic/flood.%d\n\nx\0" % (n % 40) for n in range(_MANY))
    _again(where, _CONNECT, b"".join(sends))


def amqp_scattered(where: Where) -> None:
    """Messages of a sender without a target, to another address each."""
    attach = Attach(name="l", handle=0, role=False, source=Source(), target=AmqpTarget())
    numbers = itertools.count()
    while True:
        with contextlib.suppress(OSError), connect(where) as sock:
            sock.sendall(_OPENED + _frame(attach))
            ids = iter(range(_CREDIT))
            while some := list(itertools.islice(ids, 200)):
                sock.sendall(b"".join(_relayed(n, b"flood.%d" % next(numbers)) for n in some))
        time.sleep(_AGAIN_SECONDS)


def _relayed(number: int, to: bytes) -> bytes:
    transfer = Transfer(
        handle=0, delivery_id=number, delivery_tag=b"%d" % number, message_format=0, settled=True
    )
    properties = b"\x40\x40\xa1%c%b" % (len(to), to)
    head = b"\x00\x53\x73\xc0%c\x03" % (len(properties) + 1)
    return _frame(transfer, payload=head + properties + b"\x00\x53\x77\xa1\x01x")


def stomp_subscriptions(where: Where) -> None:
    """A SUBSCRIBE to another topic each time."""
    _numbered(where, _CONNECT, b"SUBSCRIBE\nid:%d\ndestination:/topic/flood.%d\n\n\0")


def stomp_durable(where: Where) -> None:
    """Durable subscriptions with another name each time, from connections that come and go."""
    numbers = itertools.count()
    lasting = b"id:1\ndestination:/topic/flood\ndurable-subscription-name:%d\n\n\0"
    while True:
        hello = _CONNECT.replace(b"host:h", b"host:h\nclient-id:c%d" % next(numbers))
        with contextlib.suppress(OSError), connect(where) as sock:
            sock.sendall(hello)
            for number in range(_MANY):
                sock.sendall(b"SUBSCRIBE\n" + lasting % number + b"UNSUBSCRIBE\nid:1\n\n\0")
        time.sleep(_AGAIN_SECONDS)


def _numbered(where: Where, first: bytes, form: bytes) -> None:
    """Say `form` for ever, with another number in both its places each time."""
    numbers = itertools.count()
    while True:
        with contextlib.suppress(OSError), connect(where) as sock:
            sock.sendall(first)
            while True:
                sock.sendall(b"".join(form % (n, n) for n in itertools.islice(numbers, 200)))
        time.sleep(_AGAIN_SECONDS)


def amqp_links(where: Where) -> None:
    """Receivers from another address each, which stay: as many as a connection may have."""
    _links(where, lambda name: Source(address=name))


def amqp_nodes(where: Where) -> None:
    """Dynamic nodes, which stay: as many as a connection may have."""
    _links(where, lambda _: Source(dynamic=True))


def _links(where: Where, source: Callable[[str], Source]) -> None:
    numbers = itertools.count()
    held: list[socket.socket] = []
    while True:
        with contextlib.suppress(OSError):
            sock = connect(where)
            held.append(sock)
            sock.sendall(_OPENED)
            for handle in range(_LINKS):
                name = f"flood.{next(numbers)}"
                one = Attach(
                    name=name, handle=handle, role=True, source=source(name), target=AmqpTarget()
                )
                sock.sendall(_frame(one))
        while len(held) > _LINKING:
            held.pop(0).close()
        time.sleep(_AGAIN_SECONDS)


def tiny_pieces(where: Where) -> None:
    """A SEND that nobody gets, byte by byte: over TLS each in a record of its own."""
    send = b"SEND\ndestination:/topic/flood\nreceipt:1\n\nx\0"
    while True:
        with contextlib.suppress(OSError), connect(where) as sock:
            sock.sendall(_CONNECT)
            while True:
                for at in range(len(send)):
                    sock.sendall(send[at : at + 1])
        time.sleep(_AGAIN_SECONDS)


def come_and_go(where: Where) -> None:
    """Connections that log in and leave."""
    while True:
        with contextlib.suppress(OSError), connect(where, reads=False) as sock:
            sock.sendall(_CONNECT)
            sock.recv(100)


# ---- WebSocket

_UPGRADE: Final = (
    b"GET /stomp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)
#: A frame's mask of zeros leaves its payload as it is.
_UNMASKED: Final = b"\0\0\0\0"
_HELLO: Final = _UPGRADE + bytes([0x81, 0x80 | len(_CONNECT)]) + _UNMASKED + _CONNECT


def ws_idle(where: Where) -> None:
    """WebSockets in which nothing is said, as many as one process may have."""

    def one() -> socket.socket:
        sock = connect(where, reads=False)
        sock.sendall(_UPGRADE)
        return sock

    _pile(one)


def ws_handshakes(where: Where) -> None:
    """Handshakes, one after the other, and half of one each time."""
    while True:
        with contextlib.suppress(OSError), connect(where, reads=False) as sock:
            sock.sendall(_UPGRADE)
            sock.recv(100)
        with contextlib.suppress(OSError), connect(where, reads=False) as sock:
            sock.sendall(_UPGRADE[:100])


def ws_pings(where: Where) -> None:
    """Pings of the largest size, until that is too many."""
    _again(where, _HELLO, (bytes([0x89, 0x80 | 125]) + _UNMASKED + b"x" * 125) * 2000)


def ws_fragments(where: Where) -> None:
    """Line ends in frames of their own, a thousand for each message."""
    first, more = bytes([0x01, 0x81]) + _UNMASKED, bytes([0x00, 0x81]) + _UNMASKED
    last = bytes([0x80, 0x81]) + _UNMASKED
    message = first + b"\n" + (more + b"\n") * 1000 + last + b"\n"
    _again(where, _HELLO, message * 10)


def ws_empty(where: Where) -> None:
    """Messages with nothing in them."""
    _again(where, _HELLO, (bytes([0x81, 0x80]) + _UNMASKED) * 10_000)


def ws_unread(where: Where) -> None:
    """SENDs with long receipts over WebSocket, and nothing is read."""
    send = b"SEND\ndestination:flood\nreceipt:" + _LONG + b"\n\nx\0"
    head = bytes([0x81, 0x80 | 126]) + len(send).to_bytes(2, "big") + _UNMASKED
    _again(where, _HELLO, (head + send) * 30, reads=False)


def ws_bombs(where: Where) -> None:
    """Messages of a few KiB that inflate to line ends without number."""
    _again(where, _HELLO, _pressed(64 << 20))


def ws_heartbeats(where: Where) -> None:
    """Messages of 1 KiB that inflate to as much as a message may have: heart-beats, all of them."""
    _again(where, _HELLO, _pressed(1 << 20) * 100)


def _pressed(size: int) -> bytes:
    """Return a compressed message of so many line ends."""
    made = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = made.compress(b"\n" * size) + made.flush(zlib.Z_SYNC_FLUSH)
    body = body.removesuffix(b"\0\0\xff\xff")
    return bytes([0xC2, 0x80 | 127]) + len(body).to_bytes(8, "big") + _UNMASKED + body


FLOODS: Final[dict[str, Flood]] = {
    flood.__name__: flood
    for flood in (
        stomp_abort,
        amqp_flow,
        amqp_begin,
        amqp_attach,
        amqp_replays,
        amqp_replays_held,
        stomp_unread_receipts,
        stomp_unread_errors,
        amqp_unread_flows,
        idle,
        half_open,
        idle_http,
        http_unread,
        stomp_addresses,
        stomp_scattered,
        amqp_scattered,
        stomp_subscriptions,
        stomp_durable,
        amqp_links,
        amqp_nodes,
        tiny_pieces,
        come_and_go,
        ws_idle,
        ws_handshakes,
        ws_pings,
        ws_fragments,
        ws_empty,
        ws_unread,
        ws_bombs,
        ws_heartbeats,
    )
}
