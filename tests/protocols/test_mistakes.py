"""A client that does not listen to its errors is cut; one that errs now and then is not."""

from __future__ import annotations

from itertools import count

import pytest

from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import Attach, Begin, Close, Detach, End, Target
from protocols.stomp.limits import StompLimits
from tests.protocols.amqp.peer import Peer as AmqpPeer
from tests.protocols.amqp.peer import condition, names, of
from tests.protocols.stomp.peer import Peer as StompPeer
from tests.protocols.stomp.peer import frames

MOST = 10
ABORT = b"ABORT\ntransaction:none\n\n\0"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_stomp_client_that_repeats_its_mistake_is_cut(version):
    peer = StompPeer(version, limits=StompLimits(errors_per_minute=MOST))
    told = frames(peer.say(ABORT * MOST))
    assert [command for command, _, _ in told] == ["ERROR"] * MOST
    assert not peer.session.closing
    ((command, headers, body),) = frames(peer.say(ABORT * 100))
    assert (command, headers["error-code"]) == ("ERROR", "too-many")
    assert f"More than {MOST} errors" in headers["message"] + body.decode()
    assert peer.session.closing


def test_a_stomp_client_that_errs_now_and_then_is_not_cut():
    peer = StompPeer("1.1", limits=StompLimits(errors_per_minute=MOST, ttl_ms=-1))
    for _ in range(5 * MOST):
        peer.now += 60 / MOST
        assert len(frames(peer.say(ABORT))) == 1
    assert not peer.session.closing


def test_an_amqp_client_whose_links_are_refused_again_and_again_is_cut():
    peer = AmqpPeer.begun(limits=AmqpLimits(errors_per_minute=MOST))
    for handle in range(MOST):
        wrong = Attach(name=f"n{handle}", handle=handle, role=True, source=None, target=Target())
        assert names(peer.tell(wrong)) == ["attach", "detach"]
        peer.tell(Detach(handle=handle, closed=True))
    came = peer.tell(Attach(name="n", handle=99, role=True, source=None, target=Target()))
    assert condition(came) == "close amqp:resource-limit-exceeded"
    assert f"More than {MOST} errors" in of(came, Close)[0].error.description


def test_an_amqp_client_whose_sessions_end_with_an_error_again_and_again_is_cut():
    peer = AmqpPeer.opened(limits=AmqpLimits(errors_per_minute=MOST))
    begin = Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)
    for channel in count():
        peer.tell(begin, channel % 200)
        came = peer.tell(Detach(handle=7), channel % 200)
        if names(came)[-1] == "close":
            break
        assert names(came) == ["end"]
        assert channel < MOST, "it goes on for ever"
        peer.tell(End(), channel % 200)
    assert channel == MOST
    assert peer.gone
