"""A subscription's stages, every input, and the calls that meet it late."""

from __future__ import annotations

import pytest

from gateway.model.errors import Code, Refusal
from protocols.stomp.subscription import Input, Stage, StompConsumer
from tests.protocols.stomp.peer import Peer, frames, message

LEGAL = {
    (Stage.SUBSCRIBED, Input.START): Stage.OPEN,
    (Stage.OPEN, Input.ALL_SHOWN): Stage.SHOWN,
    (Stage.SUBSCRIBED, Input.END): Stage.ENDED,
    (Stage.OPEN, Input.END): Stage.ENDED,
    (Stage.SHOWN, Input.END): Stage.ENDED,
    (Stage.ENDED, Input.FREE): Stage.GONE,
}
REFUSAL = Refusal(code=Code.NOT_FOUND, text="The queue is gone.")


def subscribed(stage: Stage) -> tuple[Peer, StompConsumer]:
    """Return a browser of q at a stage."""
    peer = Peer("1.1")
    if stage is Stage.SUBSCRIBED:
        peer.say(b"SEND\ndestination:x\nreceipt:0\n\n\0")  # its RECEIPT waits, and all behind it
    peer.say(b"SUBSCRIBE\nid:0\ndestination:q\nack:client\nbrowser:true\nreceipt:1\n\n\0")
    consumer = peer.broker.subscription("q").consumer
    assert isinstance(consumer, StompConsumer)
    if stage is Stage.SHOWN:
        consumer.exhausted()
    if stage in (Stage.ENDED, Stage.GONE):
        if stage is Stage.ENDED:
            consumer.enter_transaction()
        peer.say(b"UNSUBSCRIBE\nid:0\n\n\0")
    peer.hear()
    assert consumer.stage is stage
    return peer, consumer


@pytest.mark.parametrize("stage", list(Stage))
@pytest.mark.parametrize("what", list(Input))
def test_a_step_outside_the_table_asserts(stage: Stage, what: Input) -> None:
    _, consumer = subscribed(stage)
    following = LEGAL.get((stage, what))
    if following is not None:
        consumer._step(what)
        assert consumer.stage is following
        return
    with pytest.raises(AssertionError, match=f"{what.value} in stage {stage.value}"):
        consumer._step(what)
    assert consumer.stage is stage


@pytest.mark.parametrize("stage", list(Stage))
def test_only_an_open_one_takes_messages(stage: Stage) -> None:
    _, consumer = subscribed(stage)
    assert (consumer.room() > 0) is (stage is Stage.OPEN)


@pytest.mark.parametrize("stage", list(Stage))
def test_a_browser_is_told_once_that_it_has_seen_all(stage: Stage) -> None:
    peer, consumer = subscribed(stage)
    consumer.exhausted()
    consumer.exhausted()
    assert peer.hear().count(b"browser:end") == (1 if stage is Stage.OPEN else 0)


@pytest.mark.parametrize("stage", list(Stage))
def test_it_is_closed_once_however_often_it_ends(stage: Stage) -> None:
    peer, consumer = subscribed(stage)
    consumer.unsubscribe()
    consumer.removed(REFUSAL)
    consumer.leave()
    if stage is Stage.ENDED:
        assert peer.broker.of("close subscription") == []
        consumer.leave_transaction()
    assert peer.broker.of("close subscription") == [("q",)]
    assert consumer.stage is Stage.GONE


def test_a_receipt_that_comes_behind_the_end_starts_nothing() -> None:
    peer, consumer = subscribed(Stage.SUBSCRIBED)
    peer.say(b"UNSUBSCRIBE\nid:0\nreceipt:2\n\n\0")
    peer.broker.touched.clear()
    answers = [headers["receipt-id"] for _, headers, _ in frames(peer.sync())]
    assert answers == ["0", "1", "2"]
    assert consumer.stage is Stage.GONE
    assert peer.broker.touched == {}, "its subscription is closed"


def test_the_end_of_a_kept_subscription_leaves_the_next_of_its_id_alone() -> None:
    peer = Peer("1.1")
    peer.say(b"SUBSCRIBE\nid:0\ndestination:q\nack:client\n\n\0")
    out = peer.offer("q", message(b"x", 1))
    name = frames(out)[0][1]["message-id"]
    peer.say(b"BEGIN\ntransaction:t\n\n\0")
    peer.say(f"ACK\nsubscription:0\nmessage-id:{name}\ntransaction:t\n\n\0".encode())
    first = peer.broker.subscription("q").consumer
    peer.say(b"UNSUBSCRIBE\nid:0\n\n\0SUBSCRIBE\nid:0\ndestination:p\nack:client\n\n\0")
    first.removed(REFUSAL)
    assert frames(peer.hear())[0][0] == "ERROR"
    out = peer.offer("p", message(b"y", 2))
    name = frames(out)[0][1]["message-id"]
    assert peer.say(f"ACK\nsubscription:0\nmessage-id:{name}\n\n\0".encode()) == b""
    assert peer.broker.of("acknowledge") == [("p", [2])]
    assert peer.say(b"UNSUBSCRIBE\nid:0\nreceipt:1\n\n\0").startswith(b"RECEIPT")
