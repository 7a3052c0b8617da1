"""What one hostile peer does, over and over, until it is killed. Each runs in a process of its own.

A flood gets a `Where` and never returns. It opens another connection when it is cut, as an attacker
would; what it may not do is allocate so much itself that the machine, not the gateway, suffers.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from protocols.amqp.performatives import (
    Attach,
    Detach,
    End,
    Flow,
    Source,
    Transfer,
)
from protocols.amqp.performatives import Target as AmqpTarget
from tests.attack.saying import (
    AGAIN_SECONDS,
    BEGIN,
    CONNECT,
    CREDIT,
    HELLO,
    LINKING,
    LINKS,
    LONG,
    MANY,
    OPENED,
    UNMASKED,
    UPGRADE,
    Flood,
    Where,
    again,
    bare,
    connect,
    frame,
    pile,
)
from tests.attack.stream_floods import STREAM_FLOODS


def stomp_abort(where: Where) -> None:
    """ABORT of transactions that are not there."""
    again(where, CONNECT, b"ABORT\ntransaction:none\n\n\0" * MANY)


def amqp_flow(where: Where) -> None:
    """Flows that ask for an answer."""
    flow = Flow(
        next_incoming_id=0,
        incoming_window=1 << 20,
        next_outgoing_id=0,
        outgoing_window=1 << 20,
        echo=True,
    )
    again(where, OPENED, frame(flow) * MANY)


def amqp_begin(where: Where) -> None:
    """Sessions that begin and end."""
    again(where, OPENED, (frame(BEGIN, 1) + frame(End(), 1)) * MANY)


def amqp_attach(where: Where) -> None:
    """Links that come and go."""
    attach = Attach(
        name="l", handle=0, role=True, source=Source(address="flood"), target=AmqpTarget()
    )
    again(where, OPENED, (frame(attach) + frame(Detach(handle=0, closed=True))) * MANY)


def stomp_unread_receipts(where: Where) -> None:
    """SENDs with long receipts, and nothing is read."""
    send = b"SEND\ndestination:flood\nreceipt:" + LONG + b"\n\nx\0"
    again(where, CONNECT, send * 30, reads=False)


def stomp_unread_errors(where: Where) -> None:
    """ERRORs that nobody reads."""
    bad = b"ABORT\ntransaction:none\nreceipt:" + LONG + b"\n\n\0"
    again(where, CONNECT, bad * 30, reads=False)


def amqp_unread_flows(where: Where) -> None:
    """Flows that ask for answers, which nobody reads."""
    flow = Flow(
        next_incoming_id=0,
        incoming_window=1 << 20,
        next_outgoing_id=0,
        outgoing_window=1 << 20,
        echo=True,
    )
    again(where, OPENED, frame(flow) * MANY, reads=False)


def idle(where: Where) -> None:
    """Connections that say nothing, as many as one process may have."""
    pile(lambda: connect(where, reads=False) if where.tls is None else bare(where))


def half_open(where: Where) -> None:
    """TLS handshakes that stop after a few bytes; over plain TCP half a greeting."""
    first = b"\x16\x03\x01\x02\x00\x01" if where.tls is not None else b"CONN"

    def one() -> socket.socket:
        sock = bare(where)
        sock.sendall(first)
        return sock

    pile(one)


def idle_http(where: Where) -> None:
    """Connections to the management API that say nothing."""
    pile(lambda: connect(where, reads=False, port=where.management))


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
        time.sleep(AGAIN_SECONDS)


def stomp_addresses(where: Where) -> None:
    """A SEND to another address each time."""
    numbers = itertools.count()
    while True:
        with contextlib.suppress(OSError), connect(where) as sock:
            sock.sendall(CONNECT)
            for part in _addresses(numbers):
                sock.sendall(part)
        time.sleep(AGAIN_SECONDS)


def _addresses(numbers: Iterator[int]) -> Iterator[bytes]:
    while True:
        yield b"".join(b"SEND\ndestination:flood.%d\n\nx\0" % next(numbers) for _ in range(200))


def stomp_scattered(where: Where) -> None:
    """SENDs to forty addresses in turn: no two that follow each other go the same way."""
    sends = (b"SEND\ndestination:/topic/flood.%d\n\nx\0" % (n % 40) for n in range(MANY))
    again(where, CONNECT, b"".join(sends))


def amqp_scattered(where: Where) -> None:
    """Messages of a sender without a target, to another address each."""
    attach = Attach(name="l", handle=0, role=False, source=Source(), target=AmqpTarget())
    numbers = itertools.count()
    while True:
        with contextlib.suppress(OSError), connect(where) as sock:
            sock.sendall(OPENED + frame(attach))
            ids = iter(range(CREDIT))
            while some := list(itertools.islice(ids, 200)):
                sock.sendall(b"".join(_relayed(n, b"flood.%d" % next(numbers)) for n in some))
        time.sleep(AGAIN_SECONDS)


def _relayed(number: int, to: bytes) -> bytes:
    transfer = Transfer(
        handle=0, delivery_id=number, delivery_tag=b"%d" % number, message_format=0, settled=True
    )
    properties = b"\x40\x40\xa1%c%b" % (len(to), to)
    head = b"\x00\x53\x73\xc0%c\x03" % (len(properties) + 1)
    return frame(transfer, payload=head + properties + b"\x00\x53\x77\xa1\x01x")


def stomp_subscriptions(where: Where) -> None:
    """A SUBSCRIBE to another topic each time."""
    _numbered(where, CONNECT, b"SUBSCRIBE\nid:%d\ndestination:/topic/flood.%d\n\n\0")


def stomp_durable(where: Where) -> None:
    """Durable subscriptions with another name each time, from connections that come and go."""
    numbers = itertools.count()
    lasting = b"id:1\ndestination:/topic/flood\ndurable-subscription-name:%d\n\n\0"
    while True:
        hello = CONNECT.replace(b"host:h", b"host:h\nclient-id:c%d" % next(numbers))
        with contextlib.suppress(OSError), connect(where) as sock:
            sock.sendall(hello)
            for number in range(MANY):
                sock.sendall(b"SUBSCRIBE\n" + lasting % number + b"UNSUBSCRIBE\nid:1\n\n\0")
        time.sleep(AGAIN_SECONDS)


def _numbered(where: Where, first: bytes, form: bytes) -> None:
    """Say `form` for ever, with another number in both its places each time."""
    numbers = itertools.count()
    while True:
        with contextlib.suppress(OSError), connect(where) as sock:
            sock.sendall(first)
            while True:
                sock.sendall(b"".join(form % (n, n) for n in itertools.islice(numbers, 200)))
        time.sleep(AGAIN_SECONDS)


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
            sock.sendall(OPENED)
            for handle in range(LINKS):
                name = f"flood.{next(numbers)}"
                one = Attach(
                    name=name, handle=handle, role=True, source=source(name), target=AmqpTarget()
                )
                sock.sendall(frame(one))
        while len(held) > LINKING:
            held.pop(0).close()
        time.sleep(AGAIN_SECONDS)


def tiny_pieces(where: Where) -> None:
    """A SEND that nobody gets, byte by byte: over TLS each in a record of its own."""
    send = b"SEND\ndestination:/topic/flood\nreceipt:1\n\nx\0"
    while True:
        with contextlib.suppress(OSError), connect(where) as sock:
            sock.sendall(CONNECT)
            while True:
                for at in range(len(send)):
                    sock.sendall(send[at : at + 1])
        time.sleep(AGAIN_SECONDS)


def come_and_go(where: Where) -> None:
    """Connections that log in and leave."""
    while True:
        with contextlib.suppress(OSError), connect(where, reads=False) as sock:
            sock.sendall(CONNECT)
            sock.recv(100)


# ---- WebSocket


def ws_idle(where: Where) -> None:
    """WebSockets in which nothing is said, as many as one process may have."""

    def one() -> socket.socket:
        sock = connect(where, reads=False)
        sock.sendall(UPGRADE)
        return sock

    pile(one)


def ws_handshakes(where: Where) -> None:
    """Handshakes, one after the other, and half of one each time."""
    while True:
        with contextlib.suppress(OSError), connect(where, reads=False) as sock:
            sock.sendall(UPGRADE)
            sock.recv(100)
        with contextlib.suppress(OSError), connect(where, reads=False) as sock:
            sock.sendall(UPGRADE[:100])


def ws_pings(where: Where) -> None:
    """Pings of the largest size, until that is too many."""
    again(where, HELLO, (bytes([0x89, 0x80 | 125]) + UNMASKED + b"x" * 125) * 2000)


def ws_fragments(where: Where) -> None:
    """Line ends in frames of their own, a thousand for each message."""
    first, more = bytes([0x01, 0x81]) + UNMASKED, bytes([0x00, 0x81]) + UNMASKED
    last = bytes([0x80, 0x81]) + UNMASKED
    message = first + b"\n" + (more + b"\n") * 1000 + last + b"\n"
    again(where, HELLO, message * 10)


def ws_empty(where: Where) -> None:
    """Messages with nothing in them."""
    again(where, HELLO, (bytes([0x81, 0x80]) + UNMASKED) * 10_000)


def ws_unread(where: Where) -> None:
    """SENDs with long receipts over WebSocket, and nothing is read."""
    send = b"SEND\ndestination:flood\nreceipt:" + LONG + b"\n\nx\0"
    head = bytes([0x81, 0x80 | 126]) + len(send).to_bytes(2, "big") + UNMASKED
    again(where, HELLO, (head + send) * 30, reads=False)


def ws_bombs(where: Where) -> None:
    """Messages of a few KiB that inflate to line ends without number."""
    again(where, HELLO, _pressed(64 << 20))


def ws_heartbeats(where: Where) -> None:
    """Messages of 1 KiB that inflate to as much as a message may have: heart-beats, all of them."""
    again(where, HELLO, _pressed(1 << 20) * 100)


def _pressed(size: int) -> bytes:
    """Return a compressed message of so many line ends."""
    made = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = made.compress(b"\n" * size) + made.flush(zlib.Z_SYNC_FLUSH)
    body = body.removesuffix(b"\0\0\xff\xff")
    return bytes([0xC2, 0x80 | 127]) + len(body).to_bytes(8, "big") + UNMASKED + body


FLOODS: Final[dict[str, Flood]] = {
    flood.__name__: flood
    for flood in (
        stomp_abort,
        amqp_flow,
        amqp_begin,
        amqp_attach,
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
} | STREAM_FLOODS
