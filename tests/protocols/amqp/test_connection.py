"""A connection's beginning, its frames and its clock: headers, SASL, open, sizes, time-outs."""

from __future__ import annotations

import pytest

from gateway.model.errors import Code, Refusal
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
)
from tests.protocols.amqp.peer import (
    AMQP_HEADER,
    RECEIVER,
    SASL_HEADER,
    Peer,
    condition,
    data_message,
    frame,
    names,
    of,
    raw_frame,
)
from tests.protocols.scripted_broker import ScriptedAuthenticator

OPEN = frame(Open(container_id="peer"))


def closed_user() -> Peer:
    """Return a peer of a gateway that has users."""
    return Peer(authenticator=ScriptedAuthenticator(is_open=False))


def plain(peer: Peer, response: bytes = b"\0me\0secret") -> list:
    return peer.say(frame(SaslInit(mechanism="PLAIN", initial_response=response), kind=1))


# ---- protocol headers [AMQP 2.2]


@pytest.mark.parametrize(
    "first",
    [
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x01\x01\x00\x0a",
        b"AMQP\x00\x01\x01\x00",
        b"AMQP\x00\x01\x00\x01",
        b"AMQP\x02\x01\x00\x00",
        b"AMQP\x03\x01\x00\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        b"CONNECT\naccept-version:1.2\n\n\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 64,
        b"\xff" * 64,
    ],
)
def test_unspoken_header_is_answered_with_the_one_that_is(first):
    peer = Peer()
    came = peer.say(first)
    assert [one.performative for one in came] == [SASL_HEADER]
    assert peer.gone
    assert peer.say(AMQP_HEADER + OPEN) == []


@pytest.mark.parametrize("size", range(8))
def test_half_a_header_waits(size):
    peer = Peer()
    assert peer.say(AMQP_HEADER[:size]) == []
    assert not peer.gone
    assert names(peer.say(AMQP_HEADER[size:])) == ["header"]


def test_header_without_sasl_needs_a_gateway_that_takes_anybody():
    for peer in (closed_user(), Peer(limits=AmqpLimits(anonymous=False))):
        assert [one.performative for one in peer.say(AMQP_HEADER + OPEN)] == [SASL_HEADER]
        assert peer.gone
        assert peer.engine.container == ""


# ---- SASL, then AMQP [AMQP 5.3]


def test_sasl_then_amqp():
    peer = Peer()
    came = peer.say(SASL_HEADER)
    assert names(came) == ["header", "saslmechanisms"]
    assert of(came, SaslMechanisms)[0].sasl_server_mechanisms == ("PLAIN", "ANONYMOUS")
    came = peer.say(frame(SaslInit(mechanism="ANONYMOUS"), kind=1))
    assert of(came, SaslOutcome) == [SaslOutcome(code=0)]
    assert [one.performative for one in peer.say(AMQP_HEADER)] == [AMQP_HEADER]
    assert names(peer.say(OPEN)) == ["open"]
    assert peer.engine.principal.user is None


def test_everything_in_one_piece():
    peer = Peer()
    came = peer.say(
        SASL_HEADER + frame(SaslInit(mechanism="ANONYMOUS"), kind=1) + AMQP_HEADER + OPEN
    )
    assert names(came) == ["header", "saslmechanisms", "sasloutcome", "header", "open"]


def test_anonymous_is_not_offered_where_there_are_users():
    peer = closed_user()
    came = peer.say(SASL_HEADER)
    assert of(came, SaslMechanisms)[0].sasl_server_mechanisms == ("PLAIN",)
    came = peer.say(frame(SaslInit(mechanism="ANONYMOUS"), kind=1))
    assert of(came, SaslOutcome) == [SaslOutcome(code=1)]
    assert peer.gone


def test_password_is_checked_later_and_what_comes_meanwhile_waits():
    peer = closed_user()
    peer.say(SASL_HEADER)
    assert plain(peer) == []
    assert peer.authenticator.asked == [("me", "secret")]
    assert peer.say(AMQP_HEADER + OPEN) == []
    assert names(peer.outside(lambda: peer.authenticator.answer(True))) == [
        "sasloutcome",
        "header",
        "open",
    ]
    assert peer.engine.principal.user == "me"


def test_wrong_password_ends_it_and_nothing_behind_it_is_read():
    peer = closed_user()
    peer.say(SASL_HEADER)
    plain(peer)
    peer.say(AMQP_HEADER + OPEN)
    came = peer.outside(lambda: peer.authenticator.answer(False))
    assert of(came, SaslOutcome) == [SaslOutcome(code=1)]
    assert peer.gone
    assert peer.engine.container == ""


def test_answer_for_a_peer_that_is_gone_changes_nothing():
    peer = closed_user()
    peer.say(SASL_HEADER)
    plain(peer)
    peer.engine.connection_lost(peer.now)
    peer.authenticator.answer(True)
    assert peer.hear() == []
    assert peer.engine.principal.user is None


def test_a_peer_that_sends_on_while_its_password_is_checked_is_bounded():
    peer = closed_user()
    peer.say(SASL_HEADER)
    plain(peer)
    most = peer.limits.prelogin_bytes
    for _ in range(most // 1024):
        peer.say(bytes(1024))
    assert not peer.gone
    peer.say(bytes(1024))
    assert peer.gone
    assert str(most) in peer.engine.fault.description


def test_response_without_a_challenge_and_two_inits_end_it():
    peer = Peer()
    peer.say(SASL_HEADER)
    came = peer.say(frame(SaslResponse(response=b""), kind=1))
    assert of(came, SaslOutcome) == [SaslOutcome(code=3)]
    assert peer.gone
    peer = Peer()
    peer.say(SASL_HEADER)
    twice = frame(SaslInit(mechanism="ANONYMOUS"), kind=1) * 2
    assert names(peer.say(twice)) == ["sasloutcome", "header"]
    assert peer.gone


@pytest.mark.parametrize("kind", [0, 2, 3, 255])
def test_frame_of_another_type_inside_sasl_reaches_nothing(kind):
    peer = Peer()
    peer.say(SASL_HEADER)
    assert peer.say(raw_frame(b"\x00\x53\x10\xc0\x04\x01\xa1\x01x", kind=kind)) == []
    assert peer.gone
    assert peer.engine.container == ""
    assert peer.broker.calls == []


def test_sasl_frames_are_small():
    peer = Peer()
    peer.say(SASL_HEADER)
    response = b"\0" + b"u" * 4096 + b"\0p"
    assert plain(peer, response) == []
    assert peer.gone
    assert "4096" in peer.engine.fault.description


# ---- open and close [AMQP 2.4]


def test_our_open():
    peer = Peer(limits=AmqpLimits(container_id="gw", version="1.2", idle_ms=60000))
    ours = of(peer.say(AMQP_HEADER + OPEN), Open)[0]
    assert ours.container_id == "gw"
    assert ours.max_frame_size == 131072
    assert ours.channel_max == 255
    assert ours.idle_time_out == 30000
    assert set(ours.offered_capabilities) == {
        "ANONYMOUS-RELAY",
        "DELAYED_DELIVERY",
        "SHARED-SUBS",
        "sole-connection-for-container",
    }
    assert ours.properties["product"] == "sluicegate"
    assert ours.properties["version"] == "1.2"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"max_frame_size": 511}, "amqp:connection:framing-error"),
        ({"max_frame_size": 0}, "amqp:connection:framing-error"),
        ({"container_id": ""}, "amqp:not-allowed"),
        ({"container_id": "x" * 1025}, "amqp:invalid-field"),
        ({"hostname": "x" * 1025}, "amqp:invalid-field"),
        ({"idle_time_out": 99}, "amqp:not-allowed"),
        ({"properties": {"x": "y" * 9000}}, "amqp:invalid-field"),
    ],
)
def test_opens_that_are_refused(fields, error):
    peer = Peer()
    came = peer.say(AMQP_HEADER + frame(Open(**{"container_id": "peer", **fields})))
    assert names(came) == ["header", "open", "close"]
    assert condition(came) == f"close {error}"
    assert peer.gone


@pytest.mark.parametrize(
    "fields",
    [
        {"max_frame_size": 512},
        {"max_frame_size": 2**32 - 1},
        {"channel_max": 0},
        {"hostname": "a\0b"},
        {"idle_time_out": 0},
        {"idle_time_out": 100},
        {"idle_time_out": 2**32 - 1},
    ],
)
def test_opens_that_are_taken(fields):
    peer = Peer.opened(**fields)
    assert not peer.gone


def test_open_belongs_on_channel_0():
    came = Peer().say(AMQP_HEADER + frame(Open(container_id="x"), 3))
    assert condition(came) == "close amqp:connection:framing-error"


def test_close_is_answered_and_releases_everything():
    peer = Peer.begun()
    peer.sender(0)
    peer.receiver(1, credit=2)
    peer.broker.offer("q", b"1")
    peer.hear()
    mine = Error(condition="amqp:internal-error", description="I fell over")
    came = peer.tell(Close(error=mine))
    assert names(came) == ["close"]
    assert of(came, Close) == [Close()]
    assert peer.gone
    assert peer.broker.of("release") == [("q", [1])]
    assert peer.broker.subscriptions == []


def test_messages_of_a_cut_connection_count_an_attempt():
    peer = Peer.begun()
    peer.receiver(1, credit=2)
    peer.broker.offer("q", b"1")
    peer.hear()
    peer.engine.connection_lost(peer.now)
    assert peer.broker.of("release failed") == [("q", [1])]
    peer.engine.connection_lost(peer.now)
    assert peer.hear() == []


def test_stop_tells_an_open_peer_and_cuts_another():
    peer = Peer.begun()
    peer.engine.stop(peer.now)
    came = peer.say(b"")
    assert condition(came) == "close amqp:connection:forced"
    assert peer.gone
    early = Peer()
    early.engine.stop(early.now)
    assert early.hear() == []
    assert early.gone


def test_a_failed_store_closes_without_an_outcome():
    peer = Peer.begun()
    peer.sender(0)
    peer.say(peer.transfer(data_message(b"x", durable=True)))
    came = peer.outside(peer.broker.fail_store)
    assert names(came) == ["close"]
    assert condition(came) == "close amqp:illegal-state"
    assert peer.gone
    assert peer.sync() == []


# ---- channels


def test_channel_max_is_the_smaller_one():
    peer = Peer.opened(channel_max=3)
    peer.begin(3)
    came = peer.tell(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), 4)
    assert condition(came) == "close amqp:connection:framing-error"
    assert came[-1].performative.error.description == (
        "Channel 4 is above the channel-max of 3 [AMQP 2.7.1]."
    )


@pytest.mark.parametrize("channel", [256, 65535])
def test_channels_above_ours_are_refused(channel):
    peer = Peer.opened()
    came = peer.tell(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), channel)
    assert condition(came) == "close amqp:connection:framing-error"


def test_begin_that_answers_nothing():
    peer = Peer.opened()
    came = peer.tell(
        Begin(remote_channel=7, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    )
    assert condition(came) == "close amqp:not-allowed"


def test_channel_is_free_again_after_end_both_ways():
    peer = Peer.begun()
    for _ in range(3):
        assert names(peer.tell(End())) == ["end"]
        peer.begin()
    assert names(peer.tell(Detach(handle=3))) == ["end"]
    assert peer.tell(End()) == []
    peer.begin()
    assert names(peer.sender(0)) == ["attach", "flow"]


# ---- frames


@pytest.mark.parametrize(
    ("size", "doff", "body"),
    [
        (0, 2, b""),
        (1, 2, b""),
        (7, 2, b""),
        (8, 0, b""),
        (8, 1, b""),
        (8, 3, b""),
        (8, 255, b""),
        (12, 255, bytes(4)),
        (131073, 2, b""),
        (2**31 - 1, 2, b""),
        (2**31, 2, b""),
        (2**32 - 1, 2, b""),
    ],
)
@pytest.mark.parametrize("state", ["sasl", "opening", "opened"])
def test_frame_sizes_that_lie(state, size, doff, body):
    peer = Peer()
    if state == "sasl":
        peer.say(SASL_HEADER)
    elif state == "opening":
        peer.say(AMQP_HEADER)
    else:
        peer.say(AMQP_HEADER + OPEN)
    came = peer.say(raw_frame(body, size=size, doff=doff))
    assert peer.gone
    if state != "sasl":
        assert condition(came) == "close amqp:connection:framing-error"
        assert str(size) in came[-1].performative.error.description


@pytest.mark.parametrize("doff", [2, 3, 17, 255])
def test_extended_headers_are_passed_over(doff):
    peer = Peer.opened()
    begin = frame(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))[8:]
    assert names(peer.say(raw_frame(begin, doff=doff))) == ["begin"]
    assert peer.say(raw_frame(b"", doff=doff)) == []


def test_largest_frame_is_taken_and_one_byte_more_is_not():
    for more in (0, 1):
        peer = Peer.begun()
        peer.sender(0)
        room = 131072 - len(peer.transfer(b""))
        peer._ids.clear()
        body = data_message(b"x" * (room - 8 + more))
        came = peer.say(peer.transfer(body))
        if more:
            assert condition(came) == "close amqp:connection:framing-error"
        else:
            assert names(came) == ["disposition"]


@pytest.mark.parametrize(("taken", "most"), [(512, 512), (4096, 4096), (2**32 - 1, 65_536)])
def test_what_goes_in_one_message_of_websocket(taken: int, most: int) -> None:
    """Qpid JMS takes no message that is larger than its AMQP frames."""
    data = bytes(range(256)) * 1000
    for engine, size in ((Peer().engine, 512), (Peer.begun(max_frame_size=taken).engine, most)):
        pieces = engine.pieces(data, 65_536)
        assert b"".join(pieces) == data
        assert max(map(len, pieces)) == size
        assert engine.pieces(data[:size], 65_536) == (data[:size],)


def test_what_we_send_fits_the_peers_frames():
    """Texts are shortened; the watch of the peer checks each frame against its 512 bytes."""
    peer = Peer.begun(max_frame_size=512)
    peer.broker.refuse_open = Refusal(code=Code.NOT_FOUND, text="é" * 900)
    came = peer.sender(0)
    assert names(came) == ["attach", "detach"]
    told = of(came, Detach)[0].error
    assert told.condition == "amqp:not-found"
    assert 100 < len(told.description) < 250


@pytest.mark.parametrize("role", [False, True])
def test_answer_that_cannot_fit_closes_and_leaks_nothing(role):
    peer = Peer.begun(max_frame_size=512)
    attach = Attach(
        name="n" * 300,
        handle=0,
        role=role,
        source=Source(address="q" * 100, dynamic_node_properties={"x": "y" * 200}),
        target=Target(address="q" * 100, dynamic_node_properties={"x": "y" * 200}),
        initial_delivery_count=None if role is RECEIVER else 0,
    )
    came = peer.tell(attach)
    assert condition(came) == "close amqp:frame-size-too-small"
    assert "512" in came[-1].performative.error.description
    assert peer.gone
    assert peer.broker.subscriptions == []
    assert all(producer.closed for producer in peer.broker.producers)
    assert peer.engine.links == 0
    assert len(peer.broker.calls) == 2


# ---- time [AMQP 2.4.5]


def test_login_takes_no_longer_than_allowed():
    for first in (b"", SASL_HEADER, AMQP_HEADER):
        peer = Peer(limits=AmqpLimits(login_seconds=10.0))
        peer.say(first)
        following, _ = peer.tick(9.9)
        assert following == pytest.approx(110.0)
        assert not peer.gone
        following, came = peer.tick(0.1)
        assert following is None
        assert came == []
        assert peer.gone


def test_trickling_bytes_do_not_stretch_the_login():
    peer = Peer(limits=AmqpLimits(login_seconds=10.0))
    for byte in AMQP_HEADER:
        peer.say(bytes([byte]))
        peer.tick(2)
    assert peer.gone


def test_silent_peer_is_cut():
    peer = Peer.begun(limits=AmqpLimits(idle_ms=1000))
    peer.receiver(1, credit=1)
    peer.broker.offer("q", b"x")
    peer.hear()
    peer.tick(0.9)
    peer.say(raw_frame(b""))
    following, _ = peer.tick(0.9)
    assert not peer.gone
    assert following == pytest.approx(peer.now + 0.1)
    peer.tick(0.1)
    assert peer.gone
    assert peer.broker.of("release failed") == [("q", [1])]


def test_we_expect_no_life_where_none_was_asked():
    peer = Peer.opened(limits=AmqpLimits(idle_ms=0))
    following, _ = peer.tick(1e6)
    assert following is None
    assert not peer.gone
    assert (
        of(Peer(limits=AmqpLimits(idle_ms=0)).say(AMQP_HEADER + OPEN), Open)[0].idle_time_out
        is None
    )


def test_peer_is_kept_alive_at_half_its_time_out():
    peer = Peer.opened(idle_time_out=1000)
    following, came = peer.tick(0.2)
    assert following == pytest.approx(100.5)
    assert came == []
    following, came = peer.tick(0.3)
    assert names(came) == ["empty"]
    assert following == pytest.approx(101.0)
    peer.begin()
    following, came = peer.tick(0.2)
    assert came == []
    assert following == pytest.approx(101.0)


def test_peer_without_time_out_gets_no_empty_frames():
    peer = Peer.opened(idle_time_out=0)
    for _ in range(20):
        _, came = peer.tick(1.0)
        assert came == []


def test_no_word_after_close():
    peer = Peer.begun(idle_time_out=1000)
    peer.tell(Close())
    following, came = peer.tick(50)
    assert following is None
    assert came == []
    assert peer.say(frame(Close())) == []
