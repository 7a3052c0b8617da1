"""The connections of an acceptor: who makes room, who is refused, and how all of them end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.trial.unittest import SynchronousTestCase

from gateway.config.check import HostFacts
from gateway.config.load import load
from gateway.listening.connections import TURNED_MAX, ConnectionLimits, Connections, drain
from gateway.model.peers import PeerState
from gateway.model.principal import ANYBODY
from gateway.model.turn import Turn
from gateway.process.descriptors import Descriptors, Share
from protocols.transport.reads import Reads
from protocols.transport.sniff import Guess
from protocols.transport.speaking import PeerFacts, Speaker
from protocols.transport.timers import Timers

HOST = HostFacts(memory_bytes=1 << 30, working_directory="/w", data_directory="/d")


class Nameless:
    """What is seen of a session that says nothing of itself."""

    ending = None
    principal = ANYBODY

    def __init__(self) -> None:
        self.on_login: Any = None

    def state(self) -> PeerState:
        return PeerState(
            protocol="AMQP",
            version="1.0",
            user=None,
            client_id="",
            product="",
            product_version="",
            messages_in=0,
            messages_out=0,
        )


class PoliteSession:
    """A session that closes when it is told to, or (stubborn) does not."""

    def __init__(self, peer: PeerFacts, *, stubborn: bool = False) -> None:
        self.peer = peer
        self.closing = False
        self.paused_reading = self.behind = False
        self.write_room = True
        self.retick = False
        self.out = b""
        self.stubborn = stubborn
        self.told = False
        self.wake: Any = None
        self.seen = Nameless()

    def receive_data(self, data: bytes, now: float) -> None:
        self.out += data

    def go_on(self, now: float) -> None: ...

    def data_to_send(self) -> bytes:
        out, self.out = self.out, b""
        return out

    def tick(self, now: float) -> float | None:
        return None

    def connection_lost(self, now: float) -> None: ...

    def write_resumed(self) -> None: ...

    def stop(self, now: float) -> None:
        self.told = True
        self.closing = not self.stubborn


def connections(
    clock: Clock,
    *,
    stubborn: bool = False,
    most: int = 10,
    descriptors: Descriptors | None = None,
) -> Connections:
    group = Connections(
        "all",
        Turn(lambda action: clock.callLater(0, action)),
        Timers(clock),
        Reads(),
        ConnectionLimits(allowed=most),
        descriptors=descriptors,
    )
    group.speakers = (
        Speaker(guess=Guess.STOMP.value, build=lambda peer: PoliteSession(peer, stubborn=stubborn)),
    )
    return group


class LostTransport(StringTransportWithDisconnection):
    """A transport whose `abortConnection` loses the connection, as a socket's does."""

    aborting = False

    def abortConnection(self) -> None:
        self.aborting = True
        self.loseConnection()


def connect(group: Connections) -> LostTransport:
    wire = group.buildProtocol(None)
    assert wire is not None
    transport = LostTransport()
    transport.protocol = wire
    wire.makeConnection(transport)
    return transport


class TestConnections(SynchronousTestCase):
    def test_each_has_a_name_of_its_own_and_is_forgotten_when_lost(self) -> None:
        group = connections(Clock())
        first, second = connect(group), connect(group)
        assert list(group.wires) == ["all-1", "all-2"]
        session = group.wires["all-2"].session
        assert isinstance(session, PoliteSession)
        assert session.peer.name == "all-2"
        first.loseConnection()
        assert group.count == 1
        second.loseConnection()
        assert (group.count, group.opened) == (0, 2)

    def test_beyond_the_limit_the_oldest_that_is_not_known_makes_room(self) -> None:
        group = connections(Clock(), most=2)
        first, second, third = (connect(group) for _ in range(3))
        assert [one.aborting for one in (first, second, third)] == [True, False, False]
        assert (group.refused, group.dismissed) == (0, 1)

    def test_whoever_has_logged_in_stays_and_one_more_is_refused(self) -> None:
        group = connections(Clock(), most=2)
        first, second = connect(group), connect(group)
        for wire in group.wires.values():
            assert wire.session is not None
            wire.session.seen.on_login()
        third = connect(group)
        assert (group.refused, group.dismissed, len(group.wires)) == (1, 0, 2)
        assert [first.aborting, second.aborting] == [False, False]
        third.protocol.dataReceived(b"CONNECT\naccept-version:1.2\n")
        assert third.value() == b"", "its frame is heard to the end"
        third.protocol.dataReceived(b"host:h\n\n\0")
        assert b"\nerror-code:too-many\nretry-after:10\n" in third.value()
        assert b"connections-allowed is 2. Try again later." in third.value()
        assert not third.connected
        assert group.count == 2

    def full(self) -> Connections:
        """Return a listener without a place, whose one client is known."""
        group = connections(Clock(), most=1)
        connect(group)
        (wire,) = group.wires.values()
        assert wire.session is not None
        wire.session.seen.on_login()
        return group

    def test_a_web_page_without_a_place_is_told_when_to_come_again(self) -> None:
        group = self.full()
        page = connect(group)
        page.protocol.dataReceived(b"GET /ws HTTP/1.1\r\nHost: h\r\n")
        page.protocol.dataReceived(b"\r\n")
        assert page.value().startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"\r\nRetry-After: 10\r\n" in page.value()
        assert not page.connected

    def test_amqp_without_a_place_is_closed_without_a_word(self) -> None:
        amqp = connect(self.full())
        amqp.protocol.dataReceived(b"AMQP\x03\x01\x00\x00")
        assert (amqp.value(), amqp.connected) == (b"", False)

    def test_whoever_says_no_end_is_told_all_the_same(self) -> None:
        long = connect(self.full())
        long.protocol.dataReceived(b"GET /" + b"x" * 16_384)
        assert long.value().startswith(b"HTTP/1.1 503 ")

    def test_few_are_told_at_a_time_and_they_do_not_stay(self) -> None:
        clock = Clock()
        group = connections(clock, most=1)
        connect(group)
        (wire,) = group.wires.values()
        assert wire.session is not None
        wire.session.seen.on_login()
        told = [connect(group) for _ in range(TURNED_MAX)]
        assert group.buildProtocol(None) is None
        assert (group.count, group.refused, group.opened) == (1 + TURNED_MAX, 1 + TURNED_MAX, 1)
        for _ in range(11):
            clock.advance(1.0)
        assert all(one.aborting for one in told), "they said nothing for ten seconds"
        assert group.count == 1
        again = connect(group)
        self.successResultOf(drain(clock, [group], 5.0))
        assert (again.connected, group.count) == (False, 0)

    def test_of_those_that_are_not_known_there_are_few(self) -> None:
        group = connections(Clock(), most=100)
        group.limits = replace(group.limits, strangers=3)
        transports = [connect(group) for _ in range(5)]
        assert [one.aborting for one in transports] == [True, True, False, False, False]

    def test_without_descriptors_the_oldest_stranger_of_all_listeners_goes(self) -> None:
        clock, shared = Clock(), Descriptors()
        groups = [connections(clock, descriptors=shared) for _ in range(2)]
        shared.crowds, shared.share = groups, Share(clients=2, management=4, most=256)
        first = connect(groups[1])
        clock.advance(1.0)
        second = connect(groups[0])
        third = connect(groups[0])
        assert [one.aborting for one in (first, second, third)] == [True, False, False]
        for group in groups:
            for wire in group.wires.values():
                assert wire.session is not None
                wire.session.seen.on_login()
        assert groups[1].buildProtocol(None) is None

    def test_good_byes_go_out_and_draining_ends_when_all_are_gone(self) -> None:
        clock = Clock()
        group = connections(clock)
        transports = [connect(group), connect(group)]
        sessions = [wire.session for wire in group.wires.values()]
        done = drain(clock, [group], 5.0)
        assert [isinstance(s, PoliteSession) and s.told for s in sessions] == [True, True]
        self.successResultOf(done)
        assert group.count == 0
        clock.advance(10.0)
        assert [t.aborting for t in transports] == [False, False]

    def test_who_does_not_leave_is_cut(self) -> None:
        clock = Clock()
        group = connections(clock, stubborn=True)
        transport = connect(group)
        done = drain(clock, [group], 5.0)
        clock.advance(4.9)
        self.assertNoResult(done)
        clock.advance(0.2)
        self.successResultOf(done)
        assert transport.aborting
        assert group.count == 0

    def test_nobody_there_is_drained_at_once(self) -> None:
        clock = Clock()
        self.successResultOf(drain(clock, [connections(clock)], 5.0))
        assert clock.getDelayedCalls() == []

    def test_protocols_are_told_apart_for_the_figures(self) -> None:
        group = connections(Clock())
        connect(group)
        assert group.figures().protocols == {"AMQP": 1}

    def test_output_is_bounded_for_those_that_come_later(self) -> None:
        written = load(
            None,
            (
                "acceptors.all.max-unread-size=2MiB",
                "acceptors.all.unread-timeout=10s",
                "global-max-size=40MiB",
            ),
            environment={},
            host=HOST,
        )
        (acceptor,) = [a for a in written.acceptors if a.name == "all"]
        group = connections(Clock())
        before = group.output
        group.bound_output(written, acceptor)
        assert (group.output.bytes_max, group.output.seconds) == (2 << 20, 10.0)
        assert group.output.shared is before.shared
        assert group.output.shared.maximum == 10 << 20
