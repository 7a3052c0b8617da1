"""Answers in pieces: pulled as the client reads, closed however it ends."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs
from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import TestCase

from gateway.management.chunks import TURN_PIECES, TURN_SECONDS, Rounds
from gateway.management.http import Response
from gateway.management.router import Router
from gateway.management.wire import ApiSite, WireSettings
from gateway.model.errors import Code, RefusedError
from gateway.model.roles import Need
from tests.management.harness import Peer, Users, build_site, parse_replies, request_bytes


class Source:
    """Pieces that tell how many were pulled and whether they were closed."""

    def __init__(self, count: int, piece: bytes = b"x" * 1000, fail_at: int | None = None) -> None:
        self.count, self.piece, self.fail_at = count, piece, fail_at
        self.pulled = 0
        self.closed = 0

    def __iter__(self):
        return self

    def __next__(self) -> bytes:
        if self.pulled == self.fail_at:
            raise OSError("disk gone")
        if self.pulled == self.count:
            raise StopIteration
        self.pulled += 1
        return self.piece

    def close(self) -> None:
        self.closed += 1


def serve(source) -> Peer:
    router = Router()
    router.add("GET", "/stream", lambda request: Response(status=200, body=source), need=Need.VIEW)
    return Peer(*build_site(router))


def test_all_pieces_arrive_chunked_and_the_source_is_closed():
    source = Source(1000)
    peer = serve(source)
    (reply,) = peer.send(request_bytes("GET", "/stream"))
    assert reply.headers["transfer-encoding"] == "chunked"
    assert reply.body == source.piece * 1000
    assert reply.whole
    assert source.closed == 1


def test_the_connection_serves_the_next_request():
    source = Source(3)
    peer = serve(source)
    replies = peer.send(request_bytes("GET", "/stream") + request_bytes("GET", "/nothing"))
    assert [r.status for r in replies] == [200, 404]


def one_turn(peer: Peer) -> None:
    """Run the call that is due first; `advance` would also run those that it makes."""
    call = peer.clock.calls.pop(0)
    call.called = 1
    call.func(*call.args, **call.kw)


def test_one_turn_takes_a_bounded_number_of_pieces():
    source = Source(10 * TURN_PIECES, piece=b"x")
    peer = serve(source)
    peer.channel.dataReceived(request_bytes("GET", "/stream"))
    assert source.pulled == 1
    one_turn(peer)
    assert source.pulled == 1 + TURN_PIECES


def test_one_turn_takes_a_bounded_number_of_bytes():
    source = Source(10, piece=b"x" * 600_000)
    peer = serve(source)
    peer.channel.dataReceived(request_bytes("GET", "/stream"))
    one_turn(peer)
    assert source.pulled == 3


def test_many_senders_have_the_time_of_one_in_a_turn():
    clock = Clock()
    rounds = Rounds(clock)
    wrote = []

    class Sender:
        def __init__(self, number: int) -> None:
            self.number = number

        def write_some(self) -> None:
            wrote.append(self.number)
            clock.rightNow += TURN_SECONDS / 2
            if wrote.count(self.number) < 2:
                rounds.ask(self)

    for number in range(5):
        rounds.ask(Sender(number))
    turns = []
    while clock.calls:
        before = len(wrote)
        clock.calls.pop(0).func()
        turns.append(len(wrote) - before)
    assert turns == [2, 2, 2, 2, 2]
    assert wrote == [0, 1, 2, 3, 4] * 2, "one after the other"


def test_nothing_is_pulled_while_the_transport_is_full():
    source = Source(1000)
    peer = serve(source)
    peer.channel.dataReceived(request_bytes("GET", "/stream"))
    peer.channel.pauseProducing()
    peer.replies()
    assert source.pulled == 1
    peer.channel.resumeProducing()
    peer.clock.advance(0)
    assert source.pulled > 1


def test_pressure_inside_a_write_stops_that_turn():
    source = Source(1000)
    peer = serve(source)
    peer.channel.dataReceived(request_bytes("GET", "/stream"))
    write = peer.transport.writeSequence

    def full(pieces):
        write(pieces)
        peer.channel.pauseProducing()

    peer.transport.writeSequence = full
    peer.clock.advance(0)
    peer.clock.advance(0)
    assert source.pulled == 2


def test_no_pieces_are_an_empty_answer():
    source = Source(0)
    (reply,) = serve(source).send(request_bytes("GET", "/stream"))
    assert (reply.status, reply.body, reply.whole) == (200, b"", True)


def test_head_pulls_nothing_and_closes():
    source = Source(5)
    peer = serve(source)
    peer.channel.dataReceived(request_bytes("HEAD", "/stream"))
    assert peer.transport.value().endswith(b"\r\n\r\n")
    assert (source.pulled, source.closed) == (0, 1)


def test_a_fault_before_the_first_piece_is_a_500():
    (reply,) = serve(Source(5, fail_at=0)).send(request_bytes("GET", "/stream"))
    assert reply.status == 500
    assert b"disk gone" not in reply.body


def test_a_refusal_before_the_first_piece_is_told():
    def pieces():
        raise RefusedError.of(Code.NOT_FOUND, "gone")
        yield b""

    (reply,) = serve(pieces()).send(request_bytes("GET", "/stream"))
    assert reply.status == 404
    assert json.loads(reply.body) == {"code": "not-found", "message": "gone"}


def test_a_fault_later_cuts_the_connection_so_that_it_is_seen():
    source = Source(500, fail_at=200)
    peer = serve(source)
    with capture_logs() as logs:
        (reply,) = peer.send(request_bytes("GET", "/stream"))
    assert not reply.whole
    assert peer.transport.disconnected
    assert source.closed == 1
    assert [e["event"] for e in logs if e["log_level"] == "error"] == ["http.answer_cut"]


@pytest.mark.parametrize("turns", [0, 1])
def test_a_client_that_leaves_closes_the_source(turns):
    source = Source(1000)
    peer = serve(source)
    peer.channel.dataReceived(request_bytes("GET", "/stream"))
    for _ in range(turns):
        one_turn(peer)
    peer.leave()
    assert source.closed == 1
    pulled = source.pulled
    peer.clock.advance(1)
    assert source.pulled == pulled
    assert peer.clock.getDelayedCalls() == []


class Reader(Protocol):
    """A client that reads only when told."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.wanted = 0
        self.reached = None

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        if self.reached is not None and len(self.data) >= self.wanted:
            self.transport.pauseProducing()
            reached, self.reached = self.reached, None
            reached.callback(None)

    def read(self, size: int) -> Deferred[None]:
        self.wanted, self.reached = size, Deferred()
        self.transport.resumeProducing()
        return self.reached


class OverTcp(TestCase):
    """The same through a real socket."""

    timeout = 30

    @inlineCallbacks
    def connect(self, source):
        router = Router()
        router.add(
            "GET", "/stream", lambda request: Response(status=200, body=source), need=Need.VIEW
        )
        self.site = ApiSite(reactor, router, Users().for_peer, WireSettings())
        port = reactor.listenTCP(0, self.site, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port)
        reader = yield connectProtocol(endpoint, Reader())
        self.addCleanup(self._end, reader)
        reader.transport.write(request_bytes("GET", "/stream"))
        return reader

    @inlineCallbacks
    def _end(self, reader):
        reader.transport.abortConnection()
        while self.site.channels:
            yield deferLater(reactor, 0.01)

    @inlineCallbacks
    def test_a_slow_reader_holds_the_source_back(self):
        source = Source(32, piece=bytes(1 << 20))
        reader = yield self.connect(source)
        yield reader.read(1 << 20)
        yield deferLater(reactor, 0.3)
        # What fits into the two kernel buffers (a few MiB on loopback) and one piece; not 32.
        held_back = source.pulled
        assert held_back < 20
        yield deferLater(reactor, 0.1)
        assert source.pulled == held_back
        yield reader.read(32 << 20)
        while reader.data[-5:] != b"0\r\n\r\n":
            reader.transport.resumeProducing()
            yield deferLater(reactor, 0.01)
        (reply,) = parse_replies(bytes(reader.data))
        assert len(reply.body) == 32 << 20
        assert (source.pulled, source.closed) == (32, 1)

    @inlineCallbacks
    def test_a_reader_that_goes_closes_the_source(self):
        source = Source(64, piece=bytes(1 << 20))
        reader = yield self.connect(source)
        yield reader.read(1 << 20)
        reader.transport.abortConnection()
        while not source.closed:
            yield deferLater(reactor, 0.01)
        assert source.pulled < 64

    @inlineCallbacks
    def test_a_refused_client_can_read_why(self):
        reader = yield self.connect(Source(1))
        reader.data.clear()
        huge = b"POST /stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n"
        reader.transport.write(huge + bytes(4 << 20))
        while b"too-large" not in reader.data:
            yield reader.read(len(reader.data) + 1)
        assert b"HTTP/1.1 413 " in reader.data
