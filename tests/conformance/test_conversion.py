"""The scenario rows C that need a broker between the two protocols, by their numbers.

What one message becomes is in tests/protocols/test_convert; what real clients make of it in
tests/interop.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from proton import Described, Message, symbol, ubyte, uint, ulong

from protocols.amqp.performatives import Accepted, Close, Source
from tests.broker.core import Core
from tests.conformance.clients import VERSIONS, Amqp, Stomp, bodies, data, plain, read, took
from tests.protocols.amqp.peer import fresh

#: A described map with half a pair inside the value section.
BROKEN_MAP = b"\x00\x53\x77\x00\xa3\x01x\xc1\x03\x01\xa1\x00"
#: Properties that are a map and not a list, and data that ends too early.
BROKEN_PROPERTIES = b"\x00\x53\x73\xc1\x01\x00\x00\x53\x75\xa0\x01x"
CUT_DATA = b"\x00\x53\x75\xa0\x09abc"


@pytest.fixture
def core() -> Core:
    return Core()


def sent(core: Core, *messages: bytes, address: str = "q") -> None:
    peer = Amqp.at(core)
    peer.sender(address=address)
    assert peer.give(*messages) == [Accepted()] * len(messages)


def arrived(core: Core, address: str = "q") -> list[bytes]:
    """Return the messages as an AMQP receiver gets them, who gives them back."""
    peer = Amqp.at(core)
    came = peer.receiver(address=address, credit=50) + peer.more()
    peer.tell(Close())
    core.turn()
    return [message for _, message in took(came)]


def decoded(message: bytes) -> Message:
    made = Message()
    made.decode(message)
    return made


def encoded(**fields: Any) -> bytes:
    made = Message(**fields)
    return made.encode()


@pytest.mark.parametrize("version", VERSIONS)
def test_c1_a_string_with_its_header(core, version):
    sent(core, encoded(body="mine", durable=True, priority=7))
    ((_, headers, body),) = Stomp(core, version).subscribe("q")
    assert body == b"mine"
    assert (headers["persistent"], headers["priority"]) == ("true", "7")
    assert "expires" not in headers or headers["expires"] == "0"


def test_c6_a_map_comes_back_the_same_and_is_json_in_stomp(core):
    value = {"a": [1, {"b": None}], "c": 2.5}
    sent(core, encoded(body=value), encoded(body=value))
    peer = Amqp.at(core)
    came = peer.receiver(credit=1) + peer.more()
    assert [decoded(message).body for _, message in took(came)] == [value]
    ((_, headers, body),) = Stomp(core).subscribe("q")
    assert body == b'{"a":[1,{"b":null}],"c":2.5}'
    assert headers["content-type"] == "application/json"


IDS = {
    "uuid": b"\x98" + uuid.UUID(int=5).bytes,
    "ulong": b"\x53\x07",
    "binary": b"\xa0\x02\x00\xff",
    "string": b"\xa1\x04text",
}


@pytest.mark.parametrize("ident", IDS.values(), ids=IDS.keys())
def test_c7_a_copied_correlation_id_comes_back_typed(core, ident):
    properties = b"\x06" + b"\x40" * 5 + ident
    message = b"\x00\x53\x73\xc0%c%b" % (len(properties), properties) + plain("m")
    sent(core, message)
    client = Stomp(core)
    ((_, headers, _),) = client.subscribe("q")
    client.send("back", "m", correlation_id=headers["correlation-id"])
    (back,) = arrived(core, "back")
    before, after = read(message).correlation_id, read(back).correlation_id
    assert (after, type(after)) == (before, type(before))
    assert after is not None


def test_c8_annotations_of_unknown_types_are_kept_to_the_byte(core):
    annotations = {
        symbol("x-opt-mine"): Described(symbol("unknown:type"), [1, "x"]),
        symbol("x-opt-number"): uint(7),
    }
    message = encoded(body="m", annotations=annotations)
    sent(core, message)
    assert arrived(core) == [fresh(message)]


def test_c9_unsigned_properties_stay_unsigned(core):
    properties = {"small": ubyte(5), "large": ubyte(200), "long": uint(3_000_000_000)}
    sent(core, encoded(body="m", properties=properties))
    (message,) = arrived(core)
    got = decoded(message).properties
    assert got == properties
    assert {name: type(value) for name, value in got.items()} == {
        "small": ubyte,
        "large": ubyte,
        "long": uint,
    }
    ((_, headers, _),) = Stomp(core).subscribe("q")
    assert {name: headers[name] for name in properties} == {
        "small": "5",
        "large": "200",
        "long": "3000000000",
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_c10_a_delayed_message_reaches_stomp_after_its_delay(core, version):
    client = Stomp(core, version)
    client.subscribe("q")
    sent(core, encoded(body="m", annotations={symbol("x-opt-delivery-delay"): ulong(6000)}))
    core.pass_time(5999)
    assert client.more() == []
    core.pass_time(1)
    assert bodies(client.more()) == ["m"]


def test_c14_sequences_come_back_to_the_byte(core):
    message = b"".join(b"\x00\x53\x76\xc0\x04\x02\x54%c\x41" % number for number in range(3))
    sent(core, message)
    assert arrived(core) == [fresh(message)]


def test_c15_what_cannot_be_converted_costs_an_amqp_consumer_nothing(core):
    sent(core, BROKEN_MAP, plain("next"))
    peer = Amqp.at(core)
    came = peer.receiver(credit=3) + peer.more()
    assert [message for _, message in took(came)] == [fresh(BROKEN_MAP), fresh(plain("next"))]
    sent(core, plain("third"))
    assert data(peer.more()) == [b"third"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("broken", [BROKEN_MAP, BROKEN_PROPERTIES, CUT_DATA])
def test_c17_the_raw_message_arrives_and_the_next_one_comes(core, version, broken):
    client = Stomp(core, version)
    assert client.subscribe("q") == []
    sent(core, broken, plain("next"))
    first, second = client.more()
    assert first[2] == broken
    assert first[1]["content-type"] == "application/vnd.amqp"
    assert bodies([second]) == ["next"]
    assert not client.session.closing


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_c18_a_stomp_service_answers_an_amqp_question(core, kind):
    asker, service = Amqp.at(core), Stomp(core)
    capability = (kind,)
    asker.receiver(address=None, **answers(capability), credit=5)
    service.subscribe("service")
    annotations = {symbol("x-opt-jms-reply-to"): ubyte(0 if kind == "queue" else 1)}
    sent(core, encoded(body="?", reply_to="answers", annotations=annotations), address="service")
    ((_, headers, _),) = service.more()
    service.send(headers["reply-to"], "!")
    ((_, answer),) = took(asker.more())
    assert decoded(answer).body == "!"


def answers(capability: tuple[str, ...]) -> dict[str, Any]:
    return {"source": Source(address="answers", capabilities=capability)}


@pytest.mark.parametrize("reply_to", ["answers", "/queue/answers", "/topic/answers"])
def test_c18_an_amqp_service_answers_a_stomp_question(core, reply_to):
    asker = Stomp(core)
    asker.subscribe(reply_to)
    asker.send("service", "?", reply_to=reply_to)
    (question,) = arrived(core, "service")
    found = read(question)
    peer = Amqp.at(core)
    peer.sender(address=None)
    target = found.reply_to
    annotations = {}
    kind = found.message_annotations.get("x-opt-jms-reply-to")
    if kind is not None:
        annotations = {symbol("x-opt-jms-dest"): ubyte(int(kind))}
    answer = encoded(body="!", address=target, annotations=annotations)
    assert peer.give(answer) == [Accepted()]
    assert bodies(asker.more()) == ["!"]


@pytest.mark.parametrize("version", VERSIONS)
def test_c16_a_large_message_crosses_whole(core, version):
    large = bytes(range(256)) * 1200
    peer = Amqp.at(core)
    peer.sender()
    message = plain(large)
    parts = [message[i : i + 100_000] for i in range(0, len(message), 100_000)]
    for number, part in enumerate(parts):
        peer.say(peer.transfer(part, delivery_id=0, more=number < len(parts) - 1))
    ((_, headers, body),) = Stomp(core, version).subscribe("q")
    assert body == large
    assert headers["content-length"] == str(len(large))
    head = f"SEND\ndestination:back\ncontent-length:{len(large)}\n\n"
    Stomp(core, version).say(head.encode() + large + b"\0")
    assert [read(message).data() for message in arrived(core, "back")] == [large]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ttl_ms", [2**32 - 1, 2**31])
def test_c12_the_longest_time_to_live_is_a_late_expires(core, version, ttl_ms):
    header = b"\x00\x53\x70\xc0\x08\x03\x40\x40\x70" + ttl_ms.to_bytes(4, "big")
    sent(core, header + plain("m"))
    ((_, headers, _),) = Stomp(core, version).subscribe("q")
    assert headers["expires"] == str(core.now + ttl_ms)
