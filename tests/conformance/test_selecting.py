"""Rows about selectors, no-local and browsers, by their numbers, in both protocols."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message, uint

from gateway.model.address import RoutingType
from gateway.model.amqp_types import Described, Symbol, ULong
from protocols.amqp.performatives import (
    Accepted,
    Attach,
    Detach,
    Flow,
    Modified,
    Rejected,
    Source,
)
from tests.broker.core import ANYCAST, MULTICAST, Core
from tests.conformance.clients import VERSIONS, Amqp, Stomp, bodies, took
from tests.protocols.amqp.peer import condition, of

SELECTOR = Symbol("apache.org:selector-filter:string")
NO_LOCAL = Symbol("apache.org:no-local-filter:list")
CODES = {SELECTOR: ULong(0x0000468C00000004), NO_LOCAL: ULong(0x0000468C00000003)}


@pytest.fixture
def core() -> Core:
    return Core()


def selecting(text: object, key: str = "jms-selector") -> dict[Symbol, Described]:
    return {Symbol(key): Described(CODES[SELECTOR], text)}


def send(core: Core, address: str = "q", *messages: Message, **options: Any) -> None:
    peer = Amqp.at(core, **options)
    peer.sender(address=address)
    peer.give(*[message.encode() for message in messages])


def numbered(count: int, **fields: Any) -> list[Message]:
    return [Message(body=n, properties={"n": uint(n)}, **fields) for n in range(count)]


def reading(core: Core, source: Source, name: str = "r", **options: Any) -> Any:
    """Return (peer, the answer to its attach, what came)."""
    peer = Amqp.at(core, **options)
    came = peer.receiver(name=name, source=source, credit=200) + peer.more()
    (answer,) = of(came, Attach)
    return peer, answer, came


def got(came: Any) -> list[Any]:
    found = []
    for _, message in took(came):
        decoded = Message()
        decoded.decode(message)
        found.append(decoded)
    return found


def read_bodies(came: Any) -> list[Any]:
    return [message.body for message in got(came)]


# ---- Q: AMQP


@pytest.mark.parametrize("filters", [{}, selecting("n < 50"), {NO_LOCAL: Described(NO_LOCAL, [])}])
def test_q32_a_subscription_is_looked_up_with_its_filters(core, filters):
    peer = Amqp.at(core)
    asked = Source(address="t", durable=2, capabilities=("topic",), filter=filters or None)
    peer.receiver(name="sub", source=asked)
    peer.tell(Detach(handle=1, closed=False))
    peer = Amqp.at(core)
    (answer,) = of(peer.receiver(name="sub", source=None), Attach)
    # Under the names of their types, whatever the client called them.
    shown = {str(key): value.value for key, value in (answer.source.filter or {}).items()}
    expected = {}
    if filters:
        expected = {NO_LOCAL: []} if NO_LOCAL in filters else {SELECTOR: "n < 50"}
    assert shown == {str(key): value for key, value in expected.items()}


@pytest.mark.parametrize("descriptor", [SELECTOR, CODES[SELECTOR]])
@pytest.mark.parametrize("key", ["jms-selector", "apache.org:selector-filter:string", "x"])
def test_q34_a_filter_in_force_is_echoed_as_it_was_asked_for(core, descriptor, key):
    asked = {Symbol(key): Described(descriptor, "n < 3"), Symbol("my:own"): Described(ULong(5), 1)}
    send(core, "q", *numbered(5))
    _, answer, came = reading(core, Source(address="q", filter=asked))
    assert answer.source.filter == {Symbol(key): asked[Symbol(key)]}
    assert read_bodies(came) == [0, 1, 2]


@pytest.mark.parametrize("text", ["a = = b", "(" * 500, 5, None, b"a = 1"])
def test_q34_a_bad_selector_is_an_error(core, text):
    peer = Amqp.at(core)
    came = peer.receiver(source=Source(address="q", filter=selecting(text)))
    assert condition(came) == "detach amqp:invalid-field"
    assert of(came, Attach)[0].source is None
    assert "q" not in core.gateway.queues
    if text == "a = = b":
        assert "column 5" in of(came, Detach)[0].error.description


def test_q34_two_selectors_are_one_too_many(core):
    asked = selecting("a = 1") | selecting("b = 1", "other")
    came = Amqp.at(core).receiver(source=Source(address="q", filter=asked))
    assert condition(came) == "detach amqp:invalid-field"


def test_a_changed_filter_keeps_what_matches(core):
    """Of decisions: as Artemis, but messages that match the new filter are kept."""

    def subscribe(text: str) -> Any:
        asked = Source(address="t", durable=2, capabilities=("topic",), filter=selecting(text))
        peer = Amqp.at(core)
        came = peer.receiver(name="sub", source=asked, credit=0)
        return peer, came

    peer, _ = subscribe("n >= 0")
    _, refused = subscribe("n >= 3")
    assert condition(refused) == "detach amqp:illegal-state"
    peer.tell(Detach(handle=1, closed=False))
    send(core, "t", *numbered(5))
    peer, _ = subscribe("n >= 3")
    assert core.queue("peer.sub").message_count == 2
    assert read_bodies(peer.credit(10) + peer.more()) == [3, 4]
    core.check()


@pytest.mark.parametrize("anonymous", [False, True])
def test_no_local_is_deaf_to_its_own_container(core, anonymous):
    asked = {NO_LOCAL: Described(NO_LOCAL, [])}
    source = Source(address="t", capabilities=("topic",), filter=asked)
    peer, answer, _ = reading(core, source, container="mine")
    assert answer.source.filter == asked
    message = Message(body="mine", address="t" if anonymous else None)
    own = Amqp.at(core, container="mine")
    own.sender(address=None if anonymous else "t")
    own.give(message.encode())
    send(core, "t", Message(body="yours"), container="yours")
    assert read_bodies(peer.more()) == ["yours"]


# ---- browsing over AMQP


def browsing(core: Core, **source: Any) -> Any:
    return reading(core, Source(address="q", distribution_mode="copy", **source))


def test_a_browser_takes_nothing_whatever_it_says(core):
    send(core, "q", *numbered(3))
    peer, answer, came = browsing(core)
    assert answer.source.distribution_mode == "copy"
    assert read_bodies(came) == [0, 1, 2]
    for number, outcome in enumerate([Accepted(), Rejected(), Modified(delivery_failed=True)]):
        peer.settle(number, outcome)
    queue = core.queue("q")
    assert (queue.message_count, queue.delivering, queue.consumer_count) == (3, 0, 0)
    assert (queue.acknowledged, queue.killed) == (0, 0)
    peer.cut()
    assert [m.delivery_count for m in queue.browse(0, 9)] == [0, 0, 0]
    core.check()


def test_a_browser_sees_what_comes_while_it_has_credit(core):
    peer, _, came = browsing(core)
    assert took(came) == []
    send(core, "q", *numbered(2))
    assert read_bodies(peer.more()) == [0, 1]


def test_a_drained_browser_has_seen_all(core):
    send(core, "q", *numbered(900))
    peer = Amqp.at(core)
    source = Source(address="q", distribution_mode="copy", filter=selecting("n >= 898"))
    peer.receiver(source=source)
    came = peer.credit(5, drain=True) + peer.more()
    assert read_bodies(came) == [898, 899]
    assert [(f.link_credit, f.delivery_count) for f in of(came, Flow)] == [(0, 5)]


def test_a_drained_selector_has_seen_all(core):
    send(core, "q", *numbered(900))
    peer = Amqp.at(core)
    peer.receiver(source=Source(address="q", filter=selecting("n = 899")))
    came = peer.credit(5, drain=True) + peer.more()
    assert read_bodies(came) == [899]
    assert [(f.link_credit, f.delivery_count) for f in of(came, Flow)] == [(0, 5)]


def test_on_a_topic_copy_is_a_subscription(core):
    source = Source(address="t", capabilities=("topic",), distribution_mode="copy")
    peer, _, _ = reading(core, source)
    send(core, "t", Message(body="m"))
    assert read_bodies(peer.more()) == ["m"]
    assert core.gateway.addresses["t"].multicast[0].delivering == 1


# ---- R, S


def test_r22_a_selector_that_matches_nothing_holds_nothing_back(core):
    core.administration.create_queue("q", "q", ANYCAST, ring_size=2)
    taker = core.consume("q", selector="colour = 'none'")
    core.send("q", b"1", b"2", b"3", b"4")
    assert core.figures("q") == (2, 0, 2)
    assert taker.got == []
    core.check()


@pytest.mark.parametrize("version", VERSIONS)
def test_s25_a_wrong_selector_is_an_error_and_no_consumer(core, version):
    for selector, text in (("colour = = 1", "column 10"), (" ", "empty")):
        client = Stomp(core, version)
        error = client.refused("SUBSCRIBE", id="s", destination="q", selector=selector)
        assert text in error["body"]
        assert "q" not in core.gateway.queues


@pytest.mark.parametrize("version", VERSIONS)
def test_s25_a_selector_takes_what_it_says(core, version):
    client = Stomp(core, version)
    client.subscribe("q", selector="colour = 'red' AND JMSType LIKE 'b%' AND AMQPriority > 4")
    sender = Stomp(core, version)
    for colour, kind, priority in (("red", "ball", "5"), ("red", "ball", "4"), ("red", "x", "9")):
        sender.send("q", colour, colour=colour, type=kind, priority=priority)
        sender.send("q", "blue", colour="blue", type=kind, priority=priority)
    assert bodies(client.more()) == ["red"]
    assert core.queue("q").message_count == 5
    assert core.queue("q").acknowledged == 1


@pytest.mark.parametrize("destination", ["/topic/t", "/queue/t"])
@pytest.mark.parametrize("header", ["no_local", "activemq.noLocal"])
def test_s27_a_no_local_subscriber_hears_others_only(core, destination, header):
    client = Stomp(core)
    other = Stomp(core)
    client.subscribe(destination, **{header: "true"})
    client.send(destination, "mine")
    assert client.more() == []
    other.send(destination, "yours")
    assert bodies(client.more()) == ["yours"]
    waits = 1 if destination == "/queue/t" else 0
    assert sum(q.message_count for q in core.gateway.queues.values()) == waits
    core.check()


@pytest.mark.parametrize("version", VERSIONS)
def test_another_selector_at_a_durable_resubscribe_is_applied(core, version):
    """Of decisions: Artemis ignores it without a word; ours does as AMQP does."""

    def subscribe(selector: str) -> Stomp:
        client = Stomp(core, version, connect="client-id:me\n")
        client.subscribe("t", **{"durable-subscription-name": "sub"}, selector=selector)
        return client

    subscribe("colour <> 'grey'").leave()
    sender = Stomp(core)
    for colour in ("red", "blue", "grey"):
        sender.send("/topic/t", colour, colour=colour)
    assert core.waiting("me.sub") == [b"red", b"blue"]
    client = Stomp(core, version, connect="client-id:me\n")
    came = client.subscribe("t", **{"durable-subscription-name": "sub"}, selector="colour = 'blue'")
    assert bodies(came) == ["blue"]
    assert core.queue("me.sub").killed == 1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_stomp_browser_is_shown_what_waits_and_then_the_end(core, version, ack):
    sender = Stomp(core)
    for colour in ("red", "blue", "red"):
        sender.send("q", colour, colour=colour)
    client = Stomp(core, version)
    came = client.subscribe("q", ack, browser="true", selector="colour = 'red'")
    *shown, end = came
    assert bodies(shown) == ["red", "red"]
    assert (end[0], end[1]["browser"], end[2]) == ("MESSAGE", "end", b"")
    assert (end[1]["subscription"], end[1]["destination"]) == ("s", "q")
    assert end[1]["message-id"] not in {message[1]["message-id"] for message in shown}
    if ack != "auto":
        assert client.settle(shown[0]) == []
    sender.send("q", "red", colour="red")
    assert client.more() == []
    queue = core.queue("q")
    assert (queue.message_count, queue.delivering, queue.acknowledged) == (4, 0, 0)
    client.cut()
    assert [m.delivery_count for m in queue.browse(0, 9)] == [0] * 4
    core.check()


def test_a_stomp_browser_with_a_small_window_sees_all(core):
    Stomp(core).send("q", *[str(n) for n in range(5)])
    client = Stomp(core)
    came = client.subscribe("q", "client", browser="true", prefetch_count="2")
    assert bodies(came) == ["0", "1"]
    came = client.settle(came[-1])
    assert bodies(came) == ["2", "3"]
    *last, end = client.settle(came[-1])
    assert bodies(last) == ["4"]
    assert end[1]["browser"] == "end"


def test_the_browser_of_an_empty_queue_is_told_at_once(core):
    ((name, headers, _),) = Stomp(core).subscribe("q", browser="true")
    assert (name, headers["browser"]) == ("MESSAGE", "end")


def test_a_subscription_is_browsed_as_a_queue_of_its_address(core):
    core.consume("t", routing=MULTICAST, durable_name="me.sub").leave()
    core.send("t", b"m", routing=RoutingType.MULTICAST)
    (message, end) = Stomp(core).subscribe("t::me.sub", browser="true")
    assert message[2] == b"m"
    assert end[1]["browser"] == "end"
    assert core.queue("me.sub").message_count == 1
