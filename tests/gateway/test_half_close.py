"""Peers that shut their sending side: in every state it is the end of the connection [corpus A17].

TCP lets a peer say "I send no more" and go on reading. No protocol here has a use for that: what
came whole before it counts, what is unfinished does not, and nothing is held for a peer that can
settle nothing any more. The gateway closes, within the time of a moment.

Over TLS a peer says so by a close_notify, by the end of TCP alone, or by both.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Iterator

import pytest

from gateway.trial.scratch import ScratchGateway
from protocols.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Declare,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode_performative,
)
from tests.certificates import Authority
from tests.interop.support import queue, wait_until
from tests.secure import Peer, connected

AMQP = b"AMQP\x00\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"
SENDER, RECEIVER = False, True
PATIENCE = 5.0
NAME = (1).to_bytes(8, "big")


def frame(performative: Composite, payload: bytes = b"", kind: int = 0) -> bytes:
    body = encode_performative(performative) + payload
    return struct.pack(">IBBH", 8 + len(body), 2, kind, 0) + body


def attach(handle: int, role: bool, address: str, **fields: object) -> bytes:
    fields.setdefault("target", Target(address=address))
    fields.setdefault("source", Source(address=address))
    count = 0 if role is SENDER else None
    made = Attach(
        name=f"n{handle}", handle=handle, role=role, initial_delivery_count=count, **fields
    )
    return frame(made)


def transfer(number: int, payload: bytes, handle: int = 0, **fields: object) -> bytes:
    tag = number.to_bytes(4, "big")
    made = Transfer(handle=handle, delivery_id=number, delivery_tag=tag, message_format=0, **fields)
    return frame(made, payload)


def data(body: bytes) -> bytes:
    return b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xa0" + bytes([len(body)]) + body


def steps(address: str) -> dict[str, bytes]:
    """Return what brings an AMQP connection from one state to the next, in order."""
    flow = Flow(
        next_incoming_id=1,
        incoming_window=50,
        next_outgoing_id=0,
        outgoing_window=50,
        handle=1,
        delivery_count=0,
        link_credit=1,
    )
    inside = TransactionalState(txn_id=NAME)
    return {
        "nothing": b"",
        "half a header": SASL[:4],
        "sasl": SASL[4:],
        "logged in": frame(SaslInit(mechanism="ANONYMOUS"), kind=1),
        "opening": AMQP,
        "half an open": frame(Open(container_id="half"))[:9],
        "opened": frame(Open(container_id="half"))[9:],
        "begun": frame(Begin(next_outgoing_id=0, incoming_window=50, outgoing_window=50)),
        "sending": attach(0, SENDER, address),
        "sent": transfer(0, data(b"whole")),
        "receiving": attach(1, RECEIVER, address),
        "received": frame(flow),
        "coordinator": attach(2, SENDER, "", target=Coordinator()),
        "declared": transfer(1, b"\x00\x53\x77" + encode_performative(Declare()), 2),
        "posted": transfer(2, data(b"in the transaction"), state=inside),
        "retired": frame(
            Disposition(
                role=RECEIVER,
                first=1,
                settled=True,
                state=TransactionalState(txn_id=NAME, outcome=ACCEPTED),
            )
        ),
        "amid a delivery": transfer(3, data(b"unfinished")[:-3], more=True),
        "half a frame": transfer(4, data(b"cut"))[:20],
    }


STATES = list(steps(""))
ENDS = {"ended": frame(End()), "closed": frame(Close())}


#: How a peer says that it sends no more: over plain TCP, and over TLS.
WAYS = ("tcp", "tls", "tls without close_notify", "close_notify alone")


class Half:
    """A gateway, and peers of one kind that say their end in one way."""

    def __init__(self, gateway: ScratchGateway, context: ssl.SSLContext | None, way: str) -> None:
        self.gateway = gateway
        self.context = context
        self.way = way

    def connected(self, port: int) -> Peer:
        return connected(port, self.context)

    def end(self, peer: Peer) -> None:
        if peer.tls is not None and self.way != "tls without close_notify":
            peer.socket.sendall(peer.tls.close())
        if self.way != "close_notify alone":
            peer.socket.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module", params=WAYS)
def half(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Half]:
    folder = tmp_path_factory.mktemp("gateway")
    if request.param == "tcp":
        with ScratchGateway(folder) as running:
            yield Half(running, None, request.param)
        return
    authority = Authority(folder)
    with ScratchGateway(folder, tls=authority.issue()) as running:
        yield Half(running, authority.client(), request.param)


def closed_by_peer(peer: Peer) -> None:
    """Wait until the gateway closes; it must within the patience."""
    peer.socket.settimeout(PATIENCE)
    try:
        while peer.socket.recv(65536):
            pass
    except ConnectionResetError:
        pass  # it closed with bytes of ours unread


def consumers(gateway: ScratchGateway, name: str) -> int:
    return int(queue(gateway, name)["consumerCount"])


@pytest.mark.parametrize("state", [*STATES, *sorted(ENDS)])
def test_an_amqp_peer_that_sends_no_more(half: Half, state: str) -> None:
    address = f"half.{state.replace(' ', '.')}"
    said = steps(address)
    last = STATES.index(state) if state in STATES else STATES.index("retired")
    begun = time.monotonic()
    with half.connected(half.gateway.port) as peer:
        for name in STATES[: last + 1]:
            peer.sendall(said[name])
            if name in ("received", "sent"):
                time.sleep(0.1)  # a delivery is on its way
        peer.sendall(ENDS.get(state, b""))
        half.end(peer)
        closed_by_peer(peer)
    assert time.monotonic() - begun < PATIENCE
    if last >= STATES.index("sent"):
        only_what_was_whole_is_there(half.gateway, address)


def only_what_was_whole_is_there(gateway: ScratchGateway, address: str) -> None:
    """Assert that nothing of the transaction happened, nor of what was unfinished."""
    wait_until(lambda: consumers(gateway, address) == 0)
    facts = queue(gateway, address)
    assert (facts["messageCount"], facts["messagesAdded"]) == (1, 1)
    assert facts["deliveringCount"] == 0


STOMP_STEPS = {
    "nothing": "",
    "half a frame": "CONNECT\naccept-v",
    "connected": "ersion:1.2\nhost:h\n\n\0",
    "sent": "SEND\ndestination:{0}\n\nwhole\0",
    "subscribed": "SUBSCRIBE\nid:s\nack:client\ndestination:{0}\n\n\0",
    "begun": "BEGIN\ntransaction:t\n\n\0SEND\ndestination:{0}\ntransaction:t\n\nin it\0",
    "half a body": "SEND\ndestination:{0}\ncontent-length:10\n\n12345",
}
STOMP_STATES = list(STOMP_STEPS)


@pytest.mark.parametrize("state", STOMP_STATES)
def test_a_stomp_peer_that_sends_no_more(half: Half, state: str) -> None:
    address = f"half.stomp.{state.replace(' ', '.')}"
    last = STOMP_STATES.index(state)
    begun = time.monotonic()
    with half.connected(half.gateway.stomp_port) as peer:
        for name in STOMP_STATES[: last + 1]:
            peer.sendall(STOMP_STEPS[name].format(address).encode())
            if name == "subscribed":
                time.sleep(0.1)  # a MESSAGE is on its way
        half.end(peer)
        closed_by_peer(peer)
    assert time.monotonic() - begun < PATIENCE
    if last >= STOMP_STATES.index("sent"):
        only_what_was_whole_is_there(half.gateway, address)
