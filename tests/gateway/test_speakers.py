"""What a protocol is told of the settings of its acceptor, and which protocols there are."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from gateway.config.check import HostFacts
from gateway.config.load import load
from gateway.config.tree import Config, management_acceptor
from gateway.listening.speakers import (
    FOR_EVER_MS,
    TAB_TTL_MS,
    amqp_limits,
    budget_of,
    make_speakers,
    sasl_offer,
    stomp_limits,
    websocket_limits,
)
from gateway.model.address import RoutingType
from gateway.model.objects import Objects
from gateway.security.around import ReactorSurroundings
from gateway.security.gate import PasswordGate
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.containers import Containers
from protocols.stomp.session import StompSession
from protocols.transport.sniff import Guess
from protocols.transport.speaking import PeerFacts, Speaker
from protocols.websocket.session import WebSocketSession
from tests.protocols.scripted_broker import ScriptedBroker
from tests.protocols.websocket.client import frame, request

HOST = HostFacts(memory_bytes=1 << 30, working_directory="/w", data_directory="/d")
STOMP_ONLY = 'acceptors.all.protocols=["stomp"]'


class _Gate:
    mechanisms: tuple[str, ...] = ()
    tokens: object | None = None


def config(*sets: str) -> Config:
    return load(None, sets, environment={}, host=HOST)


def speakers(*sets: str) -> tuple[Speaker, ...]:
    """Return what the acceptor `all` speaks over a broker that does nothing."""
    whole = config(*sets)
    (acceptor,) = [a for a in whole.acceptors if a.name == "all"]
    gate = PasswordGate({}, ReactorSurroundings(Clock()), b"k" * 32)
    containers, objects = Containers(), Objects()
    broker = ScriptedBroker()
    return make_speakers(whole, acceptor, broker, gate, containers=containers, objects=objects)


class TestSpeakers:
    def test_an_acceptor_speaks_what_its_configuration_says(self) -> None:
        guesses = [[one.guess for one in speakers(*sets)] for sets in ((), (STOMP_ONLY,))]
        both = [Guess.AMQP.value, Guess.STOMP.value]
        assert guesses == [[*both, Guess.HTTP.value], [Guess.STOMP.value]]

    def test_each_connection_has_a_session_of_its_own(self) -> None:
        amqp, stomp, websocket = speakers()
        peer = PeerFacts(address="192.0.2.1", loopback=False, tls=False, name="all-1")
        assert isinstance(amqp.build(peer), AmqpConnection)
        first, second = stomp.build(peer), stomp.build(peer)
        assert isinstance(first, StompSession)
        assert first is not second
        assert isinstance(websocket.build(peer), WebSocketSession)
        assert (websocket.guess, websocket.name) == ("HTTP", "WS")

    def test_what_is_unfinished_shares_one_budget_of_the_acceptor(self) -> None:
        whole = config("global-max-size=40MiB", "acceptors.all.max-message-size=1MiB")
        assert budget_of(whole, whole.acceptors[0]).maximum == 10 << 20
        whole = config("global-max-size=40MiB", "acceptors.all.max-message-size=8MiB")
        assert budget_of(whole, whole.acceptors[0]).maximum == 16 << 20


class TestLimits:
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

    def test_websocket_gets_the_keys_of_its_acceptor(self) -> None:
        whole = config(
            "acceptors.all.stomp-max-frame-payload-length=64KiB",
            'acceptors.all.allowed-origins=["https://Shop.example"]',
        )
        limits = websocket_limits(whole, whole.acceptors[0], open_to_all=True)
        assert limits.message_bytes_max == 131_072, "no less than a frame of AMQP"
        assert limits.origins == {"https://shop.example"}
        assert limits.open_to_all
        assert (limits.ping_seconds, limits.deflate, limits.hosts) == (20, False, None)
        assert limits.origins_key == "acceptors.all.allowed-origins"

    @pytest.mark.parametrize(("written", "seconds"), [("45s", 45), ("0", 0), ("-1", 0)])
    def test_websocket_asks_as_often_as_is_written(self, written: str, seconds: int) -> None:
        whole = config(
            f"acceptors.all.ws-ping-interval={written}", "acceptors.all.ws-compression=deflate"
        )
        limits = websocket_limits(whole, whole.acceptors[0], open_to_all=True)
        assert (limits.ping_seconds, limits.deflate) == (seconds, True)

    def test_websocket_at_the_management_listener(self) -> None:
        whole = config(
            'management.allowed-origins=["https://shop.example"]',
            'management.allowed-hosts=["Gate.Example"]',
        )
        acceptor = management_acceptor(whole)
        assert acceptor.name == "management"
        limits = websocket_limits(whole, acceptor, open_to_all=False)
        assert limits.paths == ("/stomp", "/amqp")
        assert limits.origins == {"https://shop.example"}
        assert limits.hosts == {"gate.example"}
        assert limits.origins_key == "management.allowed-origins"
        taken = config("acceptors.management.endpoint='tcp:1:interface=127.0.0.1'")
        assert management_acceptor(taken).name == "management-websocket"

    def test_a_tab_in_the_background_may_be_silent_for_longer(self) -> None:
        whole = config("acceptors.all.connection-ttl=10s")
        limits = stomp_limits(whole, whole.acceptors[0], ttl_floor_ms=TAB_TTL_MS)
        assert (limits.ttl_ms, limits.ttl_min_ms) == (65_000, 65_000)

    def test_pages_have_a_window_of_their_own_which_is_finite(self) -> None:
        """Whatever clients over TCP have; over WebSocket it takes a key of its own to have none."""
        key, web = "acceptors.all.stomp-consumer-window-size", "acceptors.all.stomp-ws-"
        peer = PeerFacts(address="127.0.0.1", loopback=True, tls=False, name="c")
        for sets, windows in (
            ((), (10_240, 65_536)),
            ((f"{key}=-1",), (-1, 65_536)),
            ((f"{web}consumer-window-size=1KiB",), (10_240, 1024)),
            ((f"{web}consumer-window-size=-1",), (10_240, -1)),
        ):
            _, stomp, websocket = speakers(*sets)
            tab = websocket.build(peer)
            tab.receive_data(request(Sec_WebSocket_Protocol="v12.stomp") + frame(1, b"\n"), 0.0)
            assert isinstance(tab, WebSocketSession)
            found = [stomp.build(peer), tab.inner]
            limits = [one.limits for one in found if isinstance(one, StompSession)]
            assert tuple(one.window_bytes for one in limits) == windows
            assert [one.ttl_min_ms for one in limits] == [1000, TAB_TTL_MS]

    def test_scram_is_offered_where_all_can_use_it_and_what_is_written_wins(self) -> None:
        (plain,) = [a for a in config().acceptors if a.name == "all"]
        written = config('acceptors.all.sasl-mechanisms=["plain","scram-sha-512"]')
        (chosen,) = [a for a in written.acceptors if a.name == "all"]
        gate = _Gate()
        assert sasl_offer(plain, gate) == ("PLAIN",)
        gate.mechanisms = ("SCRAM-SHA-256",)
        assert sasl_offer(plain, gate) == ("SCRAM-SHA-256", "PLAIN")
        assert sasl_offer(chosen, gate) == ("SCRAM-SHA-512", "PLAIN")
        gate.tokens = object()
        offered = ("SCRAM-SHA-256", "PLAIN", "OAUTHBEARER", "XOAUTH2")
        assert sasl_offer(plain, gate) == offered
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
