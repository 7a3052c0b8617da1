"""Listeners: opening, refusing, saying good-bye, and what a protocol is told of its settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.error import CannotListenError
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransportWithDisconnection
from twisted.trial.unittest import SynchronousTestCase

from gateway.config.check import HostFacts
from gateway.config.endpoints import read_endpoint
from gateway.config.load import load
from gateway.config.tree import Config
from gateway.listening.listeners import (
    BACKLOG,
    FOR_EVER_MS,
    ConnectionLimits,
    Connections,
    Listener,
    ListenError,
    amqp_limits,
    description,
    drain,
    sasl_offer,
    stomp_limits,
)
from gateway.model.address import RoutingType
from gateway.model.peers import PeerState
from gateway.model.turn import Turn
from gateway.process.descriptors import Descriptors, Share
from protocols.transport.reads import Reads
from protocols.transport.shell import PeerFacts, Speaker
from protocols.transport.sniff import Guess
from protocols.transport.timers import Timers

HOST = HostFacts(memory_bytes=1 << 30, working_directory="/w", data_directory="/d")


class Nameless:
    """What is seen of a session that says nothing of itself."""

    ending = None

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


class _Gate:
    mechanisms: tuple[str, ...] = ()


def config(*sets: str) -> Config:
    return load(None, sets, environment={}, host=HOST)


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
        assert group.buildProtocol(None) is None
        assert (group.refused, group.dismissed) == (1, 0)
        assert [first.aborting, second.aborting] == [False, False]

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


class TestListener(SynchronousTestCase):
    def test_it_opens_with_our_backlog_and_tells_where(self) -> None:
        reactor = MemoryReactorClock()
        endpoint = read_endpoint("tcp:5672:interface=127.0.0.1")
        listener = Listener(reactor, "acceptors.all", endpoint, connections(reactor))
        self.successResultOf(listener.open())
        (opened,) = reactor.tcpServers
        assert (opened[0], opened[2], opened[3]) == (5672, BACKLOG, "127.0.0.1")
        assert listener.address.startswith("127.0.0.1:")
        self.successResultOf(listener.stop_listening())
        self.successResultOf(listener.stop_listening())

    def test_a_port_in_use_is_named(self) -> None:
        reactor = MemoryReactorClock()

        def refuse(*_: Any, **__: Any) -> None:
            raise CannotListenError("127.0.0.1", 5672, OSError(98, "Address already in use"))

        reactor.listenTCP = refuse
        endpoint = read_endpoint("tcp:5672:interface=127.0.0.1")
        listener = Listener(reactor, "acceptors.all", endpoint, connections(reactor))
        failure = self.failureResultOf(listener.open(), ListenError)
        text = failure.getErrorMessage()
        assert text == "acceptors.all: 127.0.0.1:5672 cannot be opened: Address already in use"

    def test_what_twisted_cannot_make_is_an_error_before_anything_opens(self) -> None:
        endpoint = read_endpoint("haproxy:ssl:5671:privateKey=/nowhere/key.pem")
        told = r"acceptors\.all\.endpoint: haproxy:ssl:.*No such file"
        with pytest.raises(ListenError, match=told):
            Listener(MemoryReactorClock(), "acceptors.all", endpoint, connections(Clock()))

    def test_a_written_backlog_stays(self) -> None:
        assert description(read_endpoint("tcp:1:backlog=5")) == "tcp:1:backlog=5"
        assert description(read_endpoint("unix:/run/x")) == "unix:/run/x"


class TestLimits(SynchronousTestCase):
    def test_stomp_gets_the_keys_of_its_acceptor(self) -> None:
        whole = config(
            "acceptors.all.connection-ttl=-1",
            "acceptors.all.connection-ttl-max=10s",
            "acceptors.all.max-message-size=1MiB",
            "acceptors.all.disable-stomp-server-header=true",
            "acceptors.all.multicast-prefix=",
            "stomp-default-persistent=false",
            "transaction-timeout=2m",
        )
        limits = stomp_limits(whole, whole.acceptors[0])
        assert (limits.ttl_ms, limits.ttl_max_ms) == (FOR_EVER_MS, 10_000)
        assert limits.body_bytes_max == 1 << 20
        assert limits.server_name is None
        assert (limits.anycast_prefixes, limits.multicast_prefixes) == (("/queue/",), ())
        assert limits.default_persistent is False
        assert limits.transaction_seconds == 120.0

    def test_scram_is_offered_where_all_can_use_it_and_what_is_written_wins(self) -> None:
        (plain,) = [a for a in config().acceptors if a.name == "all"]
        written = config('acceptors.all.sasl-mechanisms=["plain","scram-sha-512"]')
        (chosen,) = [a for a in written.acceptors if a.name == "all"]
        gate = _Gate()
        assert sasl_offer(plain, gate) == ("PLAIN",)
        gate.mechanisms = ("SCRAM-SHA-256",)
        assert sasl_offer(plain, gate) == ("SCRAM-SHA-256", "PLAIN")
        assert sasl_offer(chosen, gate) == ("SCRAM-SHA-512", "PLAIN")
        assert amqp_limits(written, chosen, anonymous=True, sasl=("PLAIN",)).sasl == ("PLAIN",)

    def test_amqp_gets_the_keys_of_its_acceptor_and_prefixes_only_when_written(self) -> None:
        plain = config(
            "name=edge", "acceptors.all.amqp-credits=50", "acceptors.all.amqp-low-credits=5"
        )
        limits = amqp_limits(plain, plain.acceptors[0], anonymous=False)
        assert (limits.amqp_credits, limits.amqp_low_credits) == (50, 5)
        assert not limits.use_modified
        assert (limits.prefixes, limits.anonymous, limits.container_id) == ((), False, "edge")
        written = config("acceptors.all.multicast-prefix=/topic/", "transaction-timeout=500")
        limits = amqp_limits(written, written.acceptors[0], anonymous=True)
        assert limits.prefixes == (("/topic/", RoutingType.MULTICAST),)
        assert limits.transaction_seconds == 0.5
        flagged = config("acceptors.all.amqp-use-modified-for-transient-delivery-errors=true")
        assert amqp_limits(flagged, flagged.acceptors[0], anonymous=True).use_modified

    def test_who_means_harm_is_bounded_by_the_keys_of_its_acceptor(self) -> None:
        plain = config()
        amqp = amqp_limits(plain, plain.acceptors[0], anonymous=True)
        stomp = stomp_limits(plain, plain.acceptors[0])
        assert (amqp.unfinished_seconds, amqp.unfinished_bytes_per_second) == (30.0, 8192)
        assert (stomp.frame_seconds, stomp.frame_bytes_per_second) == (30.0, 8192)
        assert (amqp.stuck_seconds, stomp.stuck_seconds) == (0.0, 1800.0)
        written = config(
            "acceptors.all.unfinished-timeout=5s",
            "acceptors.all.unfinished-min-rate=1KiB",
            "acceptors.all.consumer-stuck-timeout=1h",
            "acceptors.all.max-unread-size=2MiB",
            "acceptors.all.unread-timeout=10s",
            "global-max-size=40MiB",
        )
        (acceptor,) = [a for a in written.acceptors if a.name == "all"]
        amqp = amqp_limits(written, acceptor, anonymous=True)
        stomp = stomp_limits(written, acceptor)
        assert (amqp.unfinished_seconds, amqp.unfinished_bytes_per_second) == (5.0, 1024)
        assert (stomp.frame_seconds, stomp.frame_bytes_per_second) == (5.0, 1024)
        assert (amqp.stuck_seconds, stomp.stuck_seconds) == (3600.0, 3600.0)
        assert stomp.unconfirmed_bytes_max == 2 << 20
        never = config("acceptors.all.consumer-stuck-timeout=-1")
        assert stomp_limits(never, never.acceptors[0]).stuck_seconds == 0.0
        group = connections(Clock())
        before = group.output
        group.bound_output(written, acceptor)
        assert (group.output.bytes_max, group.output.seconds) == (2 << 20, 10.0)
        assert group.output.shared is before.shared
        assert group.output.shared.maximum == 10 << 20
