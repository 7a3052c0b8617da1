"""The door: which connections go to WebSocket, and that the others are HTTP's as before."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from gateway.management.door import begins_websocket
from gateway.management.http import json_response
from gateway.management.router import Router
from gateway.management.wire import WireSettings
from gateway.model.roles import Need
from gateway.model.turn import Turn
from protocols.transport.reads import Reads
from protocols.transport.shell import Wire
from protocols.transport.sniff import sniff
from protocols.transport.speaking import Speaker
from protocols.transport.timers import Timers
from protocols.websocket.limits import WebSocketLimits
from protocols.websocket.session import WebSocketSession
from tests.management.harness import Peer, Users, build_site, request_bytes
from tests.protocols.websocket.client import TOKEN, request

LIMITS = WebSocketLimits(paths=("/stomp", "/amqp"), hosts=frozenset({"gate.example"}))


class Door:
    """A site whose WebSockets have nothing inside; `told` are requests of its HTTP API."""

    def __init__(self, refused: str = "", settings: WireSettings | None = None) -> None:
        router = Router()
        self.told = []
        router.add("GET", "/thing", self.answer, need=Need.VIEW)
        router.add("GET", "/stomp", self.answer, need=Need.VIEW)
        self.site, self.clock = build_site(router, Users(), settings)
        self.site.adopt = lambda address, tls: refused or self.wire()
        self.wires: list[Wire] = []
        self.peer = Peer(self.site, self.clock)

    def answer(self, request):
        self.told.append(request.path)
        return json_response(200, {})

    def wire(self) -> Wire:
        turn, timers = Turn(lambda action: None), Timers(self.clock)
        speaker = Speaker(guess="HTTP", build=lambda facts: WebSocketSession({}, LIMITS, facts))
        self.wires.append(
            Wire(
                turn,
                timers,
                (speaker,),
                "w-1",
                tell=lambda data: sniff(data).value,
                decline=lambda name, data: None,
                reads=Reads(),
            )
        )
        return self.wires[-1]

    def said(self, data: bytes) -> bytes:
        self.peer.channel.dataReceived(data)
        for _ in range(10):
            self.clock.advance(0)
        while self.wires and self.peer.transport.producer is not None:
            self.peer.transport.producer.resumeProducing()
        came = self.peer.transport.value()
        self.peer.transport.clear()
        return came


@pytest.mark.parametrize("path", ["/stomp", "/amqp", "/stomp?a=b"])
@pytest.mark.parametrize("step", [1, 3, 12, 1000])
def test_a_connection_that_begins_with_a_websocket_is_one(path: str, step: int) -> None:
    door = Door()
    data = request(path, Host="localhost:8161")
    came = b"".join(door.said(data[at : at + step]) for at in range(0, len(data), step))
    assert came.startswith(b"HTTP/1.1 101 ")
    assert TOKEN.encode() in came
    assert not door.told
    # Nothing of HTTP is left: no place among its connections, no clock that ends it.
    assert not door.site.channels
    door.clock.advance(40)
    assert not door.peer.closed
    door.peer.leave()
    assert door.wires[0].session is None


@pytest.mark.parametrize(
    "data", [b"GET /stompx ", b"GET /amq ", b"POST /stomp ", b"GET /stomp\r\n"]
)
def test_the_first_bytes_tell_however_they_come(data: bytes) -> None:
    told = [begins_websocket(data[:end]) for end in range(len(data) + 1)]
    assert True not in told
    assert told[-1] is False
    begun = b"GET /stomp HTTP/1.1"
    assert [begins_websocket(begun[:end]) for end in (0, 5, 10, 11, 19)] == [
        None,
        None,
        None,
        True,
        True,
    ]


@pytest.mark.parametrize("step", [1, 4, 1000])
def test_other_requests_are_https_as_before(step: int) -> None:
    door = Door()
    data = request_bytes("GET", "/thing") * 3
    came = b"".join(door.said(data[at : at + step]) for at in range(0, len(data), step))
    assert came.count(b"HTTP/1.1 200 ") == 3
    assert door.told == ["/thing"] * 3
    assert len(door.site.channels) == 1


def test_a_later_request_of_a_connection_is_no_websocket() -> None:
    door = Door()
    door.said(request_bytes("GET", "/thing"))
    assert door.said(request("/stomp", Host="localhost")).startswith(b"HTTP/1.1 200 ")
    # Nor one that came behind another in one piece.
    other = Door()
    both = request_bytes("GET", "/thing") + request("/stomp", Host="localhost")
    assert b" 101 " not in other.said(both)
    assert not door.wires
    assert not other.wires


def test_one_that_dallies_with_its_first_bytes_is_ended_by_https_clock() -> None:
    door = Door(settings=WireSettings(request_seconds=30))
    door.said(b"GET /sto")
    door.clock.advance(31)
    assert b"408 Request Timeout" in door.peer.transport.value()


def test_where_there_is_no_room_the_limit_is_told() -> None:
    door = Door(refused="connections-allowed is 1 (by default)")
    came = door.said(request("/stomp", Host="localhost"))
    assert came.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"connections-allowed is 1" in came
    assert not door.wires


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8161", 101),
        ("127.0.0.1", 101),
        ("[::1]:8161", 101),
        ("Gate.Example:8161", 101),
        ("evil.example", 421),
        ("gate.example.evil.example", 421),
        ("gate.example@evil.example", 400),
        ("", 400),
    ],
)
def test_the_host_is_one_of_ours_as_for_the_api(host: str, status: int) -> None:
    came = Door().said(request("/stomp", Host=host))
    assert came.startswith(f"HTTP/1.1 {status} ".encode()), came


def test_a_request_that_waits_for_its_answer_keeps_its_connection() -> None:
    door = Door()
    waiting: Deferred = Deferred()
    door.site._api.router.add("GET", "/slow", lambda request: waiting, need=Need.VIEW)
    door.said(request_bytes("GET", "/slow"))
    assert door.said(request("/stomp", Host="localhost")) == b""
    waiting.callback(json_response(200, {}))
    assert b" 101 " not in door.said(b"")
    assert not door.wires
