"""Row R34: what counts as an attempt to deliver, by the way in which a consumer leaves."""

from __future__ import annotations

import pytest

from gateway.model.sections import header_facts
from protocols.amqp.performatives import Close, Detach, End
from tests.broker.core import Core
from tests.conformance.clients import VERSIONS, Amqp, Stomp, bodies, took


def count_of_next(core: Core) -> int:
    """Return the delivery-count that the next AMQP receiver is told."""
    core.sync()
    peer = Amqp.at(core)
    ((_, message),) = took(peer.receiver(credit=1) + peer.more())
    return header_facts(message).delivery_count


@pytest.mark.parametrize(
    ("how", "attempts"),
    [("detach", 0), ("closing detach", 0), ("end", 0), ("close", 0), ("cut", 1)],
)
def test_r34_the_count_after_an_amqp_receiver_left(how, attempts):
    core = Core()
    core.send("q", b"A")
    peer = Amqp.at(core)
    assert len(took(peer.receiver(credit=1) + peer.more())) == 1
    match how:
        case "detach" | "closing detach":
            peer.tell(Detach(handle=1, closed=how == "closing detach"))
        case "end":
            peer.tell(End())
        case "close":
            peer.tell(Close(), channel=0)
        case _:
            peer.cut()
    assert count_of_next(core) == attempts


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("how", "attempts"), [("UNSUBSCRIBE", 0), ("DISCONNECT", 1), ("cut", 1)])
def test_r34_the_count_after_a_stomp_subscriber_left(how, attempts, version):
    core = Core()
    core.send("q", b"A")
    client = Stomp(core, version)
    assert bodies(client.subscribe("q", "client")) == ["A"]
    match how:
        case "UNSUBSCRIBE":
            client.do("UNSUBSCRIBE", id="s", destination="q")
        case "DISCONNECT":
            client.leave()
        case _:
            client.cut()
    assert count_of_next(core) == attempts
