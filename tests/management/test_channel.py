"""Malformed, smuggled, oversized and slow requests: one refusal, and nothing is dispatched."""

from __future__ import annotations

import json

import pytest

from gateway.management import channel as channel_module
from gateway.management.http import BODY_BYTES_MAX, Response
from gateway.management.router import Router
from gateway.model.roles import Need
from tests.management.harness import Peer, build_site, request_bytes

SMUGGLED = b"DELETE /thing HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Site:
    """A site whose one route counts how often it was reached."""

    def __init__(self) -> None:
        self.seen = []
        router = Router()
        for method in ("GET", "POST", "DELETE"):
            router.add(method, "/thing", self.function, need=Need.VIEW)
        self.site, self.clock = build_site(router)
        self.peer = Peer(self.site, self.clock)

    def function(self, request):
        self.seen.append((request.method, request.body))
        return Response(status=200, body=b"{}")


def head(*lines: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} /thing HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


CL_AND_TE = head(
    "Content-Length: 4", "Transfer-Encoding: chunked", "Content-Type: application/json"
)
JSON = "Content-Type: application/json"

MALFORMED = {
    "cl then te": CL_AND_TE + b"0\r\n\r\n",
    "te then cl": head("Transfer-Encoding: chunked", "Content-Length: 4") + b"0\r\n\r\n",
    "two equal lengths": head("Content-Length: 2", "Content-Length: 2", JSON) + b"{}",
    "two different lengths": head("Content-Length: 2", "Content-Length: 20", JSON) + b"{}",
    "length list": head("Content-Length: 2, 2", JSON) + b"{}",
    "length signed": head("Content-Length: +2", JSON) + b"{}",
    "length negative": head("Content-Length: -1", JSON) + b"{}",
    "length hexadecimal": head("Content-Length: 0x2", JSON) + b"{}",
    "length empty": head("Content-Length:", JSON) + b"{}",
    "length unicode digits": head("Content-Length: \u0662", JSON) + b"{}",
    "te chunked, identity": head("Transfer-Encoding: chunked, identity", JSON) + b"0\r\n\r\n",
    "te identity": head("Transfer-Encoding: identity", JSON),
    "te identity and length": head("Transfer-Encoding: identity", "Content-Length: 2") + b"{}",
    "te twice": head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "te xchunked": head("Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "te gzip": head("Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
    "te on 1.0": b"POST /thing HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk size 0x10": head("Transfer-Encoding: chunked", JSON) + b"0x10\r\n",
    "chunk size -1": head("Transfer-Encoding: chunked", JSON) + b"-1\r\n",
    "chunk size +1": head("Transfer-Encoding: chunked", JSON) + b"+1\r\nx\r\n0\r\n\r\n",
    "chunk size spaced": head("Transfer-Encoding: chunked", JSON) + b" 1\r\nx\r\n0\r\n\r\n",
    "chunk size underscore": head("Transfer-Encoding: chunked", JSON) + b"1_0\r\n",
    "chunk without end": head("Transfer-Encoding: chunked", JSON) + b"2\r\n{}X0\r\n\r\n",
    "chunk line endless": head("Transfer-Encoding: chunked", JSON) + b"0" * 2000,
    "trailers 1 MB": head("Transfer-Encoding: chunked", JSON) + b"0\r\n" + b"a: b\r\n" * 170_000,
    "obs-fold": head("X-A: b", " folded: c"),
    "obs-fold with tab": head("X-A: b", "\tfolded: c"),
    "space first": b" GET /thing HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "space before colon": head("Content-Length : 2", JSON) + b"{}",
    "no colon": head("nonsense"),
    "empty header name": head(": x"),
    "control character in name": head("X\x01A: b"),
    "NUL in value": head("X-A: b\0c"),
    "bare LF in head": head("X-A: b\nContent-Length: 5"),
    "bare CR in value": head("X-A: b\rX-B: c"),
    "bare LF in request line": b"GET /thing HTTP/1.1\nHost: localhost\r\n\r\n",
    "two words": b"GET /thing\r\nHost: localhost\r\n\r\n",
    "four words": b"GET /thing x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /thing\r\n\r\n",
    "501 headers": head(*[f"X-{i}: y" for i in range(501)]),
    "101 headers": head(*[f"X-{i}: y" for i in range(101)]),
    "heads of 17 KiB": head(*[f"X-{i}: {'y' * 1000}" for i in range(17)]),
    "STOMP": b"CONNECT\r\naccept-version:1.2\r\n\r\n\0",
    "AMQP": b"AMQP\0\1\0\0\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_requests_are_refused_once_and_nothing_after_them_counts(name):
    site = Site()
    replies = site.peer.send(MALFORMED[name] + SMUGGLED)
    assert [r.status for r in replies] == [400]
    assert replies[0].headers["connection"] == "close"
    assert json.loads(replies[0].body)["code"] == "bad-request"
    assert site.peer.send(SMUGGLED) == []
    assert site.seen == []


@pytest.mark.parametrize("name", [n for n in MALFORMED if "1 MB" not in n])
def test_malformed_requests_are_refused_byte_by_byte_too(name):
    site = Site()
    statuses = []
    for byte in MALFORMED[name] + SMUGGLED:
        site.peer.channel.dataReceived(bytes([byte]))
    statuses = [r.status for r in site.peer.replies()]
    assert statuses == [400]
    assert site.seen == []


def test_a_refused_peer_is_let_go_after_a_while():
    site = Site()
    site.peer.send(MALFORMED["obs-fold"])
    assert not site.peer.closed
    site.clock.advance(channel_module.LINGER_SECONDS)
    assert site.peer.closed


def test_a_refused_peer_that_keeps_sending_is_let_go_at_once(monkeypatch):
    monkeypatch.setattr(channel_module, "LINGER_BYTES_MAX", 10)
    site = Site()
    site.peer.send(MALFORMED["obs-fold"])
    site.peer.send(b"x" * 11)
    assert site.peer.closed


def test_a_connection_that_does_not_end_is_cut():
    site = Site()
    site.peer.send(MALFORMED["obs-fold"])
    site.clock.advance(channel_module.LINGER_SECONDS)
    assert not site.peer.transport.disconnected
    site.clock.advance(channel_module.STALL_SECONDS + 1)
    assert site.peer.transport.disconnected


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (head("X-A: " + "b" * 65536), 431),
        (head("Expect: a miracle", "Content-Length: 2") + b"{}", 417),
        (head(f"Content-Length: {BODY_BYTES_MAX + 1}", JSON), 413),
        (head(f"Content-Length: {10**4000}", JSON), 413),
        (head(f"Content-Length: {2**64}", "Expect: 100-continue", JSON), 413),
    ],
)
def test_what_is_too_large_is_refused_before_it_has_come(data, status):
    site = Site()
    replies = site.peer.send(data + SMUGGLED)
    assert [r.status for r in replies] == [status]
    assert site.seen == []


def test_a_chunked_body_is_refused_when_it_passes_the_limit():
    site = Site()
    site.peer.send(head("Transfer-Encoding: chunked", JSON))
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    statuses = [[r.status for r in site.peer.send(piece)] for _ in range(17)]
    assert statuses == [[]] * 16 + [[413]]
    site.peer.send(b"0\r\n\r\n" + SMUGGLED)
    assert site.seen == []


def test_a_chunk_size_beyond_64_bits_holds_no_more_than_the_limit():
    site = Site()
    replies = site.peer.send(head("Transfer-Encoding: chunked", JSON) + b"f" * 20 + b"\r\n")
    assert [r.status for r in replies] == [413]


def test_more_chunks_behind_the_one_too_many_are_not_answered_again():
    site = Site()
    piece = b"80000\r\n" + b"x" * 0x80000 + b"\r\n"
    site.peer.send(head("Transfer-Encoding: chunked", JSON))
    assert [r.status for r in site.peer.send(piece * 4 + b"0\r\n\r\n" + SMUGGLED)] == [413]
    assert site.seen == []


def test_a_body_of_exactly_the_limit_is_taken():
    site = Site()
    body = b"[" + b" " * (BODY_BYTES_MAX - 2) + b"]"
    (reply,) = site.peer.send(request_bytes("POST", "/thing", body))
    assert reply.status == 200
    assert site.seen == [("POST", body)]


def test_a_chunked_body_is_joined():
    site = Site()
    data = head("Transfer-Encoding: chunked", JSON) + b"1;ext=1\r\n{\r\n1\r\n}\r\n0\r\nA: b\r\n\r\n"
    (reply,) = site.peer.send(data)
    assert reply.status == 200
    assert site.seen == [("POST", b"{}")]


def test_pipelined_unsafe_requests_run_one_after_the_other():
    site = Site()
    replies = site.peer.send(request_bytes("POST", "/thing", b"{}") + SMUGGLED + SMUGGLED)
    assert [r.status for r in replies] == [200, 200, 200]
    assert [method for method, _ in site.seen] == ["POST", "DELETE", "DELETE"]


def test_expect_continue_is_answered():
    site = Site()
    replies = site.peer.send(head("Expect: 100-continue", "Content-Length: 2", JSON))
    assert [r.status for r in replies] == [100]
    assert [r.status for r in site.peer.send(b"{}")] == [200]


def test_a_drip_of_bytes_does_not_gain_time():
    site = Site()
    for byte in request_bytes("GET", "/thing")[:29]:
        site.peer.channel.dataReceived(bytes([byte]))
        site.clock.advance(1)
    assert site.peer.replies() == []
    site.clock.advance(1)
    (reply,) = site.peer.replies()
    assert reply.status == 408
    assert "30 s" in json.loads(reply.body)["message"]
    assert site.peer.send(SMUGGLED) == []
    assert site.seen == []


def test_a_slow_body_is_refused():
    site = Site()
    site.peer.send(head("Content-Length: 100", JSON))
    for _ in range(29):
        site.peer.send(b"x")
        site.clock.advance(1)
    site.clock.advance(1)
    assert [r.status for r in site.peer.replies()] == [408]


def test_an_idle_connection_is_closed_without_a_word():
    site = Site()
    assert site.peer.ask("GET", "/thing").status == 200
    site.clock.advance(29)
    assert site.peer.ask("GET", "/thing").status == 200
    site.clock.advance(31)
    assert site.peer.replies() == []
    assert site.peer.closed


def test_a_peer_that_does_not_read_is_cut_after_a_time_that_grows_with_the_answer():
    site = Site()
    site.peer.ask("GET", "/thing")
    channel = site.peer.channel
    channel.write(b"x" * 8192 * 10)
    channel.pauseProducing()
    site.clock.advance(channel_module.STALL_SECONDS + 9)
    assert not site.peer.transport.disconnected
    site.clock.advance(2)
    assert site.peer.transport.disconnected


def test_a_peer_that_reads_again_is_kept():
    site = Site()
    channel = site.peer.channel
    channel.pauseProducing()
    site.clock.advance(channel_module.STALL_SECONDS - 1)
    channel.resumeProducing()
    site.clock.advance(0.5)
    assert site.peer.ask("GET", "/thing").status == 200
    assert not site.peer.transport.disconnected


def test_nothing_is_left_on_the_clock_when_a_peer_goes():
    site = Site()
    site.peer.send(b"GET /thing HTT")
    site.peer.channel.pauseProducing()
    site.peer.leave()
    assert site.clock.getDelayedCalls() == []
    assert not site.site.channels


def test_one_empty_line_before_a_request_is_forgiven():
    site = Site()
    assert [r.status for r in site.peer.send(b"\r\n" + request_bytes("GET", "/thing"))] == [200]


def test_cookies_are_not_even_read():
    site = Site()
    assert site.peer.ask("GET", "/thing", Cookie="=;;=a;" * 100).status == 200


# ---- one after the other


class Paced:
    """A site whose answers are of this size, and a transport that may take no more."""

    def __init__(self, size: int) -> None:
        self.site = Site()
        self.body = b"x" * size
        self.site.function = self.function
        router = Router()
        router.add("GET", "/thing", self.function, need=Need.VIEW)
        self.site.site, self.site.clock = build_site(router)
        self.peer = Peer(self.site.site, self.site.clock)
        self.seen = 0

    def function(self, request):
        self.seen += 1
        return Response(status=200, body=self.body)


def gets(count: int) -> bytes:
    return head(method="GET") * count


def test_each_pipelined_request_has_a_turn_of_its_own():
    paced = Paced(10)
    channel = paced.peer.channel
    turns = []
    later, channel.callLater = channel.callLater, lambda _, call: turns.append(call)
    channel.setTimeout(None)
    channel.dataReceived(gets(5))
    for expected in (1, 2, 3, 4):
        assert paced.seen == expected
        (turn,) = turns
        turns.clear()
        turn()
    assert paced.seen == 5
    channel.callLater = later
    assert len(paced.peer.replies()) == 5


def test_a_pipelined_request_begins_when_the_answer_before_it_is_written():
    paced = Paced(10)
    channel = paced.peer.channel
    channel.pauseProducing()  # the transport: it has more than it takes
    channel.dataReceived(gets(3))
    assert len(paced.peer.replies()) == 1
    assert paced.seen == 1
    channel.resumeProducing()
    assert len(paced.peer.replies()) == 2
    assert paced.seen == 3


@pytest.mark.parametrize("paused", [True, False])
def test_what_is_pipelined_is_read_no_more_when_it_is_much(*, paused):
    paced = Paced(10)
    channel, transport = paced.peer.channel, paced.peer.transport
    if paused:
        channel.pauseProducing()
    many = channel_module.WAITING_BYTES_MAX // len(gets(1)) + 10
    channel.dataReceived(gets(many))
    assert transport.producerState == "paused"
    if paused:
        channel.resumeProducing()
    replies = []
    for _ in range(100):
        replies += paced.peer.replies()
    assert len(replies) == many
    assert transport.producerState == "producing"


def test_a_client_that_leaves_with_requests_waiting_is_forgotten():
    paced = Paced(10)
    paced.peer.channel.dataReceived(gets(5))
    paced.peer.leave()
    paced.site.clock.advance(0)
    assert paced.seen == 1
    assert not paced.site.clock.getDelayedCalls()
