"""A connection as an operator sees it, and how each end of it is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.model.errors import Code, Refusal
from gateway.model.peers import Cause
from protocols.stomp.connection import State
from protocols.stomp.limits import StompLimits
from tests.protocols.scripted_broker import ScriptedAuthenticator
from tests.protocols.stomp.peer import Peer, frames, message

REFUSAL = Refusal(code=Code.OPERATOR, text="An operator closed it.")


def talking() -> Peer:
    """Return a peer that has sent two messages to a and has one of two of q acknowledged."""
    peer = Peer("1.2", connect="login:ann\nclient-id:me\nuser-agent:stomp.py/8.1\n")
    peer.say(b"SEND\ndestination:a\n\nx\0" * 2)
    peer.say(b"SUBSCRIBE\nid:s\ndestination:q\nack:client\nprefetch-count:5\n\n\0")
    peer.offer("q", message(b"x", 1), message(b"y", 2))
    peer.say(b"ACK\nid:c1-1-0001\n\n\0")
    return peer


def test_before_the_login_nothing_is_known() -> None:
    seen = Peer(None).session.seen
    state = seen.state()
    assert (state.protocol, state.version, state.user, state.client_id) == ("STOMP", "", None, "")
    assert (seen.sessions(), seen.consumers(), list(seen.addresses())) == ([], [], [])
    assert seen.ending is None


def test_who_it_is_and_what_went_over_it() -> None:
    state = talking().session.seen.state()
    assert (state.version, state.user, state.client_id) == ("1.2", "ann", "me")
    assert (state.product, state.product_version) == ("stomp.py", "8.1")
    assert (state.messages_in, state.messages_out) == (2, 2)


def test_what_is_open_on_it() -> None:
    seen = talking().session.seen
    (session,) = seen.sessions()
    assert (session.producers, session.consumers, session.in_flight) == (1, 1, 1)
    assert (session.messages_in, session.messages_out) == (2, 2)
    (consumer,) = seen.consumers()
    assert (consumer.name, consumer.queue, consumer.credit) == ("s", "q", 4)
    assert (consumer.delivered, consumer.in_flight, consumer.browser) == (2, 1, False)
    assert list(seen.addresses()) == ["a", "q"]


def test_an_operator_ends_a_consumer_by_its_number() -> None:
    peer = talking()
    (consumer,) = peer.session.seen.consumers()
    assert not peer.session.seen.end_consumer(consumer.number + 1, REFUSAL)
    assert peer.session.seen.end_consumer(consumer.number, REFUSAL)
    ((command, headers, _),) = frames(peer.hear())
    assert (command, headers["error-code"]) == ("ERROR", "closed-by-operator")
    assert peer.session.closing, "1.2 ends with an ERROR"


def test_on_login_is_called_once_when_the_peer_is_let_in() -> None:
    peer = Peer(None, authenticator=ScriptedAuthenticator(is_open=False))
    calls: list[State] = []
    peer.session.seen.on_login = lambda: calls.append(peer.session.state)
    peer.say(b"CONNECT\nlogin:a\npasscode:b\n\n\0")
    assert calls == []
    assert peer.authenticator.answer is not None
    peer.authenticator.answer(True)
    assert calls == [State.OPEN]


# ---- ends


def eof(peer: Peer) -> None:
    peer.session.receive_eof(peer.now)


def cut(peer: Peer) -> None:
    peer.session.connection_lost(peer.now)


def stop(peer: Peer) -> None:
    peer.session.stop(peer.now)


def dismiss(peer: Peer) -> None:
    peer.session.seen.dismiss(REFUSAL)


def disconnect(peer: Peer) -> None:
    peer.say(b"DISCONNECT\n\n\0")


def nonsense(peer: Peer) -> None:
    peer.say(b"\x80\n\n\0")


def silence(peer: Peer) -> None:
    peer.session.tick(peer.now + 600.0)


WAYS = [
    (eof, Cause.CUT),
    (cut, Cause.CUT),
    (stop, Cause.STOPPING),
    (dismiss, Cause.OPERATOR),
    (disconnect, Cause.CLIENT),
    (nonsense, Cause.PROTOCOL_ERROR),
    (silence, Cause.TIMED_OUT),
]


@pytest.mark.parametrize(("way", "cause"), WAYS)
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_the_first_end_is_the_one_that_is_told(
    way: Callable[[Peer], None], cause: Cause, version: str
) -> None:
    peer = Peer(version)
    way(peer)
    for other, _ in WAYS:
        other(peer)
    ending = peer.session.seen.ending
    assert ending is not None
    assert ending.cause is cause
    assert peer.session.tick(peer.now) is None
    assert peer.session.seen.sessions() == []
    assert peer.session.state is (State.ENDED if way is cut else State.CLOSED)


@pytest.mark.parametrize("way", [eof, cut, stop, dismiss])
def test_the_end_before_the_login_gives_back_what_was_counted(way: Callable[[Peer], None]) -> None:
    peer = Peer(None)
    peer.say(b"CONNECT\nhost:")
    assert peer.limits.unfinished.held > 0
    way(peer)
    assert peer.limits.unfinished.held == 0
    peer.say(b"h\n\n\0")
    assert peer.broker.calls == []


def test_a_peer_that_closes_its_side_hears_what_was_under_way() -> None:
    peer = Peer("1.2")
    peer.say(b"SEND\ndestination:a\nreceipt:1\n\nx\0")
    eof(peer)
    assert not peer.session.closing
    assert [headers["receipt-id"] for _, headers, _ in frames(peer.sync())] == ["1"]
    assert peer.session.closing


# ---- silence that we caused


def test_a_peer_that_was_choked_is_not_blamed_for_its_silence() -> None:
    peer = Peer("1.2")
    peer.session.choked = True
    assert peer.session.tick(peer.now + 600.0) is not None
    peer.session.write_resumed()
    assert not peer.session.choked
    assert peer.session.tick(peer.now + 1200.0) is not None, "its time begins anew"
    assert peer.session.tick(peer.now + 1800.0) is None


def test_receipts_that_need_no_disk_let_a_paused_peer_be_read_again() -> None:
    peer = Peer("1.2", limits=StompLimits(unconfirmed_bytes_max=1000))
    sends = b"".join(b"SEND\ndestination:a\nreceipt:%d\n\nx\0" % n for n in range(90))
    peer.say(sends)
    assert peer.session.paused_reading
    wakes = peer.wakes
    peer.session.consumed([peer.broker.ticket + 1])
    assert (peer.session.paused_reading, peer.wakes) == (True, wakes)
    peer.session.consumed([peer.broker.ticket])
    assert (peer.session.paused_reading, peer.wakes) == (False, wakes + 1)
    assert len(frames(peer.hear())) == 90
    assert peer.session.tick(peer.now + 600.0) is not None
