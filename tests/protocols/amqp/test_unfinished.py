"""Frames and deliveries over AMQP that do not come to their end, and consumers that settle none."""

from __future__ import annotations

from gateway.model.budget import Budget
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import Detach, Transfer
from tests.protocols.amqp.peer import Peer, condition, data_message, frame, names

KIB = 1 << 10


def sending(limits: AmqpLimits | None = None) -> Peer:
    slow = AmqpLimits(unfinished_seconds=30, unfinished_bytes_per_second=KIB, idle_ms=0)
    peer = Peer.begun(limits=limits or slow)
    peer.sender()
    return peer


def part(size: int, *, first: bool = False, more: bool = True) -> bytes:
    begun = {"delivery_id": 0, "delivery_tag": b"t", "message_format": 0} if first else {}
    return frame(Transfer(handle=0, more=more, **begun), payload=b"\x00\x53\x75" + b"x" * size)


def test_a_frame_that_takes_too_long_ends_the_connection() -> None:
    peer = sending()
    whole = part(500, first=True)
    peer.say(whole[:100])
    assert peer.engine.retick, "it is to be looked at"
    following, came = peer.tick(0)
    assert came == []
    assert following is not None
    for at in range(100, 120):
        peer.say(whole[at : at + 1])
        following, came = peer.tick(1)
    assert following is not None
    assert not peer.gone
    _, came = peer.tick(11)
    assert condition(came) == "close amqp:resource-limit-exceeded"
    assert "A frame, of 120 bytes so far" in came[-1].performative.error.description
    assert peer.gone


def test_the_next_frame_has_its_own_time() -> None:
    peer = sending()
    whole = part(500, first=True)
    peer.say(whole[:100])
    for _ in range(10):
        peer.tick(20)
        peer.say(whole[100:] + part(500)[:100])
        whole = part(500)
    assert not peer.gone


def test_a_delivery_that_takes_too_long_ends_its_link() -> None:
    peer = sending()
    peer.say(part(100, first=True))
    peer.tick(0)
    for _ in range(29):
        peer.say(frame(Transfer(handle=0, more=True)))
        assert peer.tick(1)[1] == []
    _, came = peer.tick(2)
    assert condition(came) == "detach amqp:resource-limit-exceeded"
    assert not peer.gone
    # What it sends on that link is no more taken, and what it held is given back.
    assert peer.limits.unfinished.held == 0
    peer.tell(Detach(handle=0, closed=True))
    assert names(peer.sender(address="again"))[0] == "attach"


def test_bytes_buy_time() -> None:
    peer = sending()
    peer.say(part(100 * KIB, first=True))
    peer.tick(0)
    assert peer.tick(125)[1] == []
    peer.say(part(50 * KIB))
    assert peer.tick(50)[1] == []
    assert condition(peer.tick(20)[1]) == "detach amqp:resource-limit-exceeded"


def test_time_in_which_the_peer_was_not_read_does_not_count() -> None:
    peer = sending()
    peer.say(part(100, first=True) + part(100)[:50])
    peer.tick(0)
    peer.engine.choked = True
    for _ in range(5):
        assert peer.tick(25)[1] == []
    peer.engine.write_resumed()
    peer.tick(25)
    assert peer.tick(25)[1] == []
    assert not peer.gone
    assert condition(peer.tick(30)[1]) == "close amqp:resource-limit-exceeded"


def test_nobody_is_looked_at_who_has_begun_nothing() -> None:
    peer = sending()
    assert peer.tick(1)[0] is None
    peer.say(part(10, first=True) + part(10, more=False))
    peer.tick(1)
    assert peer.tick(1)[0] is None


def test_unfinished_frames_of_all_connections_share_a_budget() -> None:
    shared = Budget(100 * KIB)
    limits = AmqpLimits(unfinished=shared, unfinished_free_bytes=KIB)
    whole = part(80 * KIB, first=True)
    first, second, small = sending(limits), sending(limits), sending(limits)
    first.say(whole[: 60 * KIB])
    assert 60 * KIB < shared.held < 61 * KIB
    came = second.say(whole[: 60 * KIB])
    assert condition(came) == "close amqp:resource-limit-exceeded"
    assert "a quarter of global-max-size" in came[-1].performative.error.description
    assert 60 * KIB < shared.held < 61 * KIB
    small.say(whole[:500])
    assert not small.gone
    first.say(whole[60 * KIB :])
    first.engine.connection_lost(first.now)
    small.engine.connection_lost(small.now)
    assert shared.held == 0


def test_the_pieces_that_a_frame_comes_in_count_as_well() -> None:
    shared = Budget(1 << 20)
    peer = sending(AmqpLimits(unfinished=shared))
    whole = part(5000, first=True)
    for at in range(1000):
        peer.say(whole[at : at + 1])
    assert shared.held > 20 * 1000
    peer.say(whole[1000:] + part(0, more=False))
    assert shared.held == 0


def test_deliveries_that_are_larger_than_was_guessed_are_written_a_part_at_a_time() -> None:
    core = Peer.begun(limits=AmqpLimits(max_frame_size=8 << 20), max_frame_size=8 << 20)
    core.receiver(1, credit=100)
    core.broker.offer("q", *[data_message(b"x" * (1 << 20))] * 16)
    core.broker.turn()
    out = len(core.engine.data_to_send())
    assert 2 << 20 < out < 5 << 20
    assert len(core.broker.queues["q"]) > 11, "what was not written is the queue's"
