"""Destinations as they are written, by users of which broker ever, and where they lead."""

from __future__ import annotations

import pytest

from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Code, RefusedError
from gateway.model.run import TAKEN, MixedRun, Run
from protocols.stomp.destinations import resolve
from protocols.stomp.limits import StompLimits
from protocols.stomp.nowhere import Nowhere
from protocols.stomp.places import Places, answer_to
from protocols.stomp.styles import Place, read_destination
from tests.protocols.scripted_broker import ScriptedBroker
from tests.protocols.stomp.peer import Peer, frames, message

LIMITS = StompLimits()
ANYCAST = RoutingType.ANYCAST
MULTICAST = RoutingType.MULTICAST


def found(
    headers: dict[str, str], limits: StompLimits = LIMITS, broker: ScriptedBroker | None = None
) -> tuple[Destination | None, RoutingType | None]:
    """Return where a SEND's headers lead."""
    named, routing = resolve(headers, "SEND", ("type",), limits)
    places = Places(broker or ScriptedBroker(), limits, object())
    return places.find(named, None), routing


def refused(text: str, **headers: str) -> str:
    """Return the text with which a destination is refused; it has a code and a reason."""
    with pytest.raises(RefusedError) as caught:
        found({"destination": text, **headers})
    assert caught.value.refusal.code is Code.NOT_IMPLEMENTED
    return caught.value.refusal.text


@pytest.mark.parametrize(
    ("text", "destination", "routing"),
    [
        ("a", Destination("a"), None),
        ("a::b", Destination("a", "b"), None),
        ("/queue/a", Destination("a"), ANYCAST),
        ("/topic/a", Destination("a"), MULTICAST),
        ("/queue/a/b", Destination("a/b"), ANYCAST),
        ("/topic/a::b", Destination("a", "b"), MULTICAST),
        ("queue://a.b", Destination("a.b"), ANYCAST),
        ("topic://a.b", Destination("a.b"), MULTICAST),
        ("/exchange/amq.topic/a.b", Destination("a.b"), MULTICAST),
        ("/exchange/amq.topic/a.*.#", Destination("a.*.#"), MULTICAST),
        ("/exchange/amq.topic/a%2Fb%25", Destination("a/b%"), MULTICAST),
        ("jms.queue.a::jms.queue.a", Destination("jms.queue.a", "jms.queue.a"), None),
        ("a.>::a.>", Destination("a.>", "a.>"), None),
        ("/topic/a.>.b", Destination("a.>.b"), MULTICAST),
        ("a,b", Destination("a,b"), None),
        ("//", Destination("//"), None),
        ("../../etc", Destination("../../etc"), None),
    ],
)
def test_what_each_style_means(
    text: str, destination: Destination, routing: RoutingType | None
) -> None:
    assert found({"destination": text}) == (destination, routing)


@pytest.mark.parametrize(
    ("headers", "destination", "routing"),
    [
        ({"destination": "a", "type": "ANYCAST"}, Destination("a"), ANYCAST),
        ({"destination": "/topic/a", "type": "MULTICAST"}, Destination("a"), MULTICAST),
        ({"destination": "topic://a", "type": "MULTICAST"}, Destination("a"), MULTICAST),
    ],
)
def test_a_header_says_the_type_too(
    headers: dict[str, str], destination: Destination, routing: RoutingType | None
) -> None:
    assert found(headers) == (destination, routing)


@pytest.mark.parametrize(
    ("headers", "code", "part"),
    [
        ({}, Code.BAD_HEADER, "SEND has no destination"),
        ({"destination": ""}, Code.BAD_NAME, "empty"),
        ({"destination": "/queue/"}, Code.BAD_NAME, "empty"),
        ({"destination": "/temp-queue/"}, Code.BAD_NAME, "names nothing behind '/temp-queue/'"),
        ({"destination": "/amq/queue/"}, Code.BAD_NAME, "names nothing"),
        ({"destination": "/exchange/amq.topic/"}, Code.BAD_NAME, "names nothing"),
        ({"destination": "queue://"}, Code.BAD_NAME, "names nothing"),
        ({"destination": "a::"}, Code.BAD_NAME, "empty"),
        ({"destination": "a\nb"}, Code.BAD_NAME, "control"),
        ({"destination": "/exchange/amq.topic/a%0Ab"}, Code.BAD_NAME, "control"),
        ({"destination": "$management"}, Code.BAD_NAME, "$"),
        ({"destination": "/amq/queue/$.artemis.internal.x"}, Code.BAD_NAME, "$"),
        ({"destination": "/reply-queue/$.artemis.internal.x"}, Code.BAD_NAME, "$"),
        ({"destination": "x" * 256}, Code.BAD_NAME, "255"),
        ({"destination": "activemq.management"}, Code.NOT_IMPLEMENTED, "HTTP API"),
        ({"destination": "a", "type": "anycast"}, Code.BAD_VALUE, "neither ANYCAST"),
        ({"destination": "/topic/a", "type": "ANYCAST"}, Code.ROUTING_MISMATCH, "MULTICAST"),
        ({"destination": "/temp-topic/a", "type": "ANYCAST"}, Code.ROUTING_MISMATCH, "MULTICAST"),
        ({"destination": "/amq/queue/a"}, Code.NOT_FOUND, "Write '/queue/a' to have one made."),
    ],
)
def test_what_is_wrong_is_refused(headers: dict[str, str], code: Code, part: str) -> None:
    with pytest.raises(RefusedError) as caught:
        found(headers)
    assert caught.value.refusal.code is code
    assert part in caught.value.refusal.text


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("/exchange/amq.direct/k", "Write '/topic/k' for a copy to each"),
        ("/exchange/amq.fanout", "Write '/topic/NAME'"),
        ("/exchange/amq.fanout/k", "Write '/topic/NAME'"),
        ("/exchange/amq.headers/k", "addresses in place of exchanges"),
        ("/exchange/orders/eu.new", "write '/topic/eu.new'"),
        ("/exchange/orders", "'/queue/KEY'"),
        ("/exchange/", "addresses in place of exchanges"),
        ("/exchange/amq.topic", "Write '/exchange/amq.topic/KEY', with a key."),
        ("/exchange/amq.topic/a/b", "Write %2F"),
        ("/amq/queue/a/b", "Write %2F"),
        ("temp-queue://a", "Write '/temp-queue/a'."),
        ("temp-topic://a", "Write '/temp-topic/a'."),
        ("jms.queue.a", "Write '/queue/a', or set anycast-prefix = \"jms.queue.\""),
        ("jms.topic.a", "Write '/topic/a', or set multicast-prefix = \"jms.topic.\""),
        ("/queue/a,/queue/b", "Send to each"),
        ("/queue/a,/topic/b", "divert"),
        ("queue://a,topic://b", "Send to each"),
        ("/queue/a?consumer.prefetchSize=1", "headers of SUBSCRIBE"),
        ("a?consumer.exclusive=true", "headers of SUBSCRIBE"),
        ("/topic/prices.>", "Write '/topic/prices.#'."),
        ("prices.>", "Write 'prices.#'."),
        ("/topic/>", "Write '/topic/#'."),
    ],
)
def test_styles_that_are_not_offered_say_what_to_write(text: str, instead: str) -> None:
    """Each is refused by its name, whoever writes it and where."""
    said = refused(text)
    assert text[:50] in said
    assert instead in said
    with pytest.raises(RefusedError) as caught:
        read_destination(text, LIMITS)
    assert caught.value.refusal.text == said


def test_prefixes_can_be_switched_off() -> None:
    limits = StompLimits(anycast_prefixes=(), multicast_prefixes=("t:",))
    assert found({"destination": "/queue/a"}, limits) == (Destination("/queue/a"), None)
    assert found({"destination": "t:a"}, limits) == (Destination("a"), MULTICAST)


@pytest.mark.parametrize(
    "prefix", ["jms.queue.", "/exchange/orders/", "/temp-queue/", "temp-queue://", "/amq/queue/"]
)
def test_the_acceptors_prefixes_win(prefix: str) -> None:
    limits = StompLimits(anycast_prefixes=(prefix,))
    assert found({"destination": f"{prefix}a"}, limits) == (Destination("a"), ANYCAST)


def test_a_queue_that_is_there_is_named_by_its_own_name() -> None:
    broker = ScriptedBroker()
    broker.queues["a/b"] = []
    destination, routing = found({"destination": "/amq/queue/a%2Fb"}, broker=broker)
    assert (destination, routing) == (Destination("a/b", "a/b"), None)
    assert broker.calls == [], "nothing is made"


def test_a_temporary_topic_is_no_queue_that_is_there() -> None:
    broker = ScriptedBroker()
    name = broker.create_temporary(MULTICAST, object())
    with pytest.raises(RefusedError, match="makes none"):
        found({"destination": f"/amq/queue/{name}"}, broker=broker)
    assert found({"destination": f"/remote-temp-topic/{name}"}, broker=broker)[0] is not None


@pytest.mark.parametrize("begin", ["/reply-queue/", "/remote-temp-queue/", "/remote-temp-topic/"])
def test_where_nobody_waits_for_the_answer_it_leads_nowhere(begin: str) -> None:
    assert found({"destination": f"{begin}gone"}) == (None, None)


# ---- the temporary ones of a connection


def test_a_word_stands_for_one_address_until_the_connection_ends() -> None:
    broker, owner = ScriptedBroker(), object()
    places = Places(broker, LIMITS, owner)
    queue = read_destination("/temp-queue/a", LIMITS)
    topic = read_destination("/temp-topic/a", LIMITS)
    assert (queue.place, queue.routing, topic.routing) == (Place.OWN, ANYCAST, MULTICAST)
    first = places.find(queue, "u")
    assert first == places.find(queue, "u")
    second = places.find(topic, "u")
    assert first is not None
    assert second is not None
    assert broker.of("create temporary") == [(first.address, ANYCAST), (second.address, MULTICAST)]
    assert answer_to(queue, first.address) == f"/reply-queue/{first.address}"
    assert answer_to(topic, second.address) == f"/remote-temp-topic/{second.address}"
    places.leave()
    places.leave()
    assert broker.of("delete temporary") == [(first.address,), (second.address,)]


def test_a_word_has_a_new_address_when_an_operator_deleted_the_old_one() -> None:
    broker = ScriptedBroker()
    places = Places(broker, LIMITS, object())
    named = read_destination("/temp-queue/a", LIMITS)
    first = places.own(named, None)
    broker.delete_temporary(first)
    assert places.own(named, None) != first


def test_temporary_destinations_have_a_limit() -> None:
    limits = StompLimits(subscriptions_max=2)
    places = Places(ScriptedBroker(), limits, object())
    for name in ("a", "b", "a", "b"):
        places.own(read_destination(f"/temp-queue/{name}", limits), None)
    with pytest.raises(RefusedError, match="2 temporary destinations") as caught:
        places.own(read_destination("/temp-queue/c", limits), None)
    assert caught.value.refusal.code is Code.TOO_MANY


def test_nowhere_takes_everything_and_holds_nobody_back() -> None:
    nowhere = Nowhere("gone")
    run = Run([b"x"], 4, 0)
    assert nowhere.send(run) is nowhere.send_mixed(MixedRun([b"x"], [4], [0])) is TAKEN
    assert nowhere.stamped(run) is run
    assert nowhere.blocked() is None
    assert (nowhere.waits, nowhere.holds, nowhere.remakes) == (False, False, False)
    assert nowhere.credit(5, 100) == 5
    nowhere.close()


# ---- reply-to, over the session


ASK = b"SEND\ndestination:service\nreply-to:/temp-queue/a\ncorrelation-id:7\n\nwhat?\0"


def asked(version: str = "1.2") -> tuple[Peer, str]:
    """Return a connection that has asked a question, and the address for the answer."""
    peer = Peer(version)
    assert peer.say(ASK) == b""
    ((address, routing),) = peer.broker.of("create temporary")
    assert routing is ANYCAST
    return peer, address


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_answer_comes_on_a_subscription_of_the_word(version: str) -> None:
    peer, address = asked(version)
    (stored,) = peer.broker.bodies()
    assert b"\nreply-to:/reply-queue/" + address.encode() + b"\n" in stored
    assert peer.broker.of("subscribe") == [(address, ANYCAST, {})]
    ((command, headers, body),) = frames(peer.offer(address, message(b"that", 1)))
    assert (command, headers["subscription"], body) == ("MESSAGE", "/temp-queue/a", b"that")
    assert "ack" not in headers
    assert peer.broker.of("acknowledge") == [(address, [1])]


def test_one_subscription_serves_many_questions_and_goes_with_the_connection() -> None:
    peer, address = asked()
    peer.say(ASK * 3)
    assert len(peer.broker.of("subscribe")) == 1
    assert len(peer.broker.bodies()) == 4
    peer.session.connection_lost(peer.now)
    assert peer.broker.of("delete temporary") == [(address,)]
    assert peer.broker.of("close subscription") == [(address,)]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("first", ["ask", "subscribe"])
def test_a_connection_that_subscribes_itself_has_no_second_one(version: str, first: str) -> None:
    """As clients of ActiveMQ do."""
    peer = Peer(version)
    subscribe = b"SUBSCRIBE\nid:mine\ndestination:/temp-queue/a\n\n\0"
    peer.say(ASK + subscribe if first == "ask" else subscribe + ASK)
    ((address, _),) = peer.broker.of("create temporary")
    assert list(peer.session._commands.subscriptions.by_id) == ["mine"]
    ((_, headers, _),) = frames(peer.offer(address, message(b"that", 1)))
    assert headers["subscription"] == "mine"


def test_its_own_id_may_be_the_word() -> None:
    peer, address = asked()
    out = peer.say(
        b"SUBSCRIBE\nid:/temp-queue/a\nack:client\nreceipt:1\ndestination:/temp-queue/a\n\n\0"
    )
    assert out == b"RECEIPT\nreceipt-id:1\n\n\0\n"
    ((_, headers, _),) = frames(peer.offer(address, message(b"that", 1)))
    assert "ack" in headers


def test_after_unsubscribe_the_next_question_subscribes_again() -> None:
    peer, address = asked()
    peer.say(b"UNSUBSCRIBE\nid:/temp-queue/a\n\n\0")
    assert peer.broker.of("close subscription") == [(address,)]
    peer.say(ASK)
    assert len(peer.broker.of("subscribe")) == 2
    assert len(peer.broker.of("create temporary")) == 1


def test_a_question_in_a_transaction_can_be_answered() -> None:
    peer = Peer()
    begin = b"BEGIN\ntransaction:t\n\n\0"
    peer.say(begin + ASK.replace(b"\n\n", b"\ntransaction:t\n\n") + b"COMMIT\ntransaction:t\n\n\0")
    assert len(peer.broker.of("subscribe")) == 1
    assert b"\nreply-to:/reply-queue/" in peer.broker.bodies()[0]


def test_a_word_that_is_an_id_already_is_refused() -> None:
    peer = Peer("1.1")
    peer.say(b"SUBSCRIBE\nid:/temp-queue/a\ndestination:q\n\n\0")
    ((command, headers, _),) = frames(peer.say(ASK))
    assert (command, headers["error-code"]) == ("ERROR", "already-exists")
    assert peer.broker.bodies() == []


def test_a_temporary_destination_has_no_durable_subscription() -> None:
    peer = Peer("1.1", connect="client-id:c\n")
    out = peer.say(b"SUBSCRIBE\nid:0\ndestination:/temp-topic/a\ndurable-subscription-name:n\n\n\0")
    ((command, headers, _),) = frames(out)
    assert (command, headers["error-code"]) == ("ERROR", "routing-mismatch")
    assert "outlives" in headers["message"]


@pytest.mark.parametrize(
    "written", ["/queue/r", "/topic/r", "r", "a::b", "/reply-queue/x", "", ">"]
)
def test_other_replies_go_as_they_were_written(written: str) -> None:
    peer = Peer("1.1")
    out = peer.say(f"SEND\ndestination:q\nreply-to:{written}\nreceipt:1\n\nx\0".encode())
    if written == ">":
        assert frames(out)[0][1]["error-code"] == "not-implemented"
        return
    (stored,) = peer.broker.bodies()
    assert f"\nreply-to:{written}\n".replace("::", "\\c\\c").encode() in stored


def test_an_answer_to_who_is_gone_is_confirmed_and_kept_by_nobody() -> None:
    """In 1.2 an ERROR would end the service's connection for each client that left early."""
    peer = Peer()
    answer = b"SEND\ndestination:/reply-queue/gone\nreceipt:%d\n\nthat\0"
    out = peer.say(answer % 1 + answer % 2 + b"BEGIN\ntransaction:t\n\n\0")
    inside = answer.replace(b"receipt:%d", b"receipt:3\ntransaction:t")
    out += peer.say(inside + b"COMMIT\nreceipt:4\ntransaction:t\n\n\0")
    assert [f[1]["receipt-id"] for f in frames(out)] == ["1", "2", "3", "4"]
    assert peer.broker.of("open producer") == []
    assert peer.broker.bodies() == []
    assert peer.session._traffic.addresses() == []


def test_what_had_led_nowhere_is_looked_for_again() -> None:
    peer = Peer()
    answer = b"SEND\ndestination:/reply-queue/late\n\nthat\0"
    peer.say(answer * 2)
    peer.broker.queues["late"] = []
    peer.say(answer * 2)
    assert peer.bodies() == [b"that"] * 2


def test_a_subscription_to_who_is_gone_is_refused() -> None:
    peer = Peer()
    ((command, headers, _),) = frames(
        peer.say(b"SUBSCRIBE\nid:0\nreceipt:1\ndestination:/reply-queue/gone\n\n\0")
    )
    assert (command, headers["error-code"]) == ("ERROR", "not-found")
    assert "is gone" in headers["message"]
