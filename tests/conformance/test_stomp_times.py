"""`timestamp` and `expires` of each MESSAGE, whatever had happened to it, in each version.

A message says when it was sent, or what its sender said of that (0 where an AMQP sender said
nothing), and until when it counts, 0 for ever. What has expired, or died, counts for ever from then
on, and the expiry settings of an address change what a message says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from proton import Message

from gateway.addresses.settings import FullPolicy
from protocols.amqp.performatives import Accepted
from tests.broker.core import ANYCAST, Core, entry
from tests.conformance.clients import VERSIONS, Amqp, Stomp, took
from tests.conformance.clients import read as amqp

NOW = 1_000_000
FAR = 9_000_000
SETTINGS = {
    "dead_letter_address": "DLA",
    "expiry_address": "EXA",
    "max_delivery_attempts": 1,
}


def by_stomp(version: str, **headers: str) -> Callable[[Core], None]:
    def send(core: Core) -> None:
        client = Stomp(core, version)
        client.send("q", "x", **headers)
        client.leave()

    return send


def by_amqp(**fields: Any) -> Callable[[Core], None]:
    def send(core: Core) -> None:
        peer = Amqp.at(core)
        peer.sender(address="q")
        message = Message(body="x", durable=True, **fields)
        assert peer.give(message.encode()) == [Accepted()]

    return send


def in_transaction(core: Core) -> None:
    client = Stomp(core)
    client.do("BEGIN", transaction="t")
    client.do("SEND", "x", destination="q", transaction="t")
    client.do("COMMIT", transaction="t")
    client.leave()


#: How it was sent, and what it says: when, and until when.
SENT = {
    **{f"stomp {v}": (by_stomp(v), NOW, 0) for v in VERSIONS},
    **{f"stomp {v} expires": (by_stomp(v, expires=str(FAR)), NOW, FAR) for v in VERSIONS},
    "stomp dated": (by_stomp("1.2", timestamp="77"), 77, 0),
    "stomp without an end": (by_stomp("1.2", expires="0"), NOW, 0),
    "stomp not persistent": (by_stomp("1.2", persistent="false"), NOW, 0),
    "stomp in a transaction": (in_transaction, NOW, 0),
    "amqp": (by_amqp(), 0, 0),
    "amqp dated": (by_amqp(creation_time=12.5), 12_500, 0),
    "amqp ttl": (by_amqp(ttl=8_000), 0, FAR),
    "amqp expiry": (by_amqp(expiry_time=9_000), 0, FAR),
    "amqp both": (by_amqp(creation_time=12.5, ttl=8_000), 12_500, FAR),
}
LASTING = [name for name in SENT if "not persistent" not in name]
ENDING = [name for name, (_, _, expires) in SENT.items() if expires]


def times(data: bytes) -> list[tuple[int, int]]:
    """Return timestamp and expires of the MESSAGE frames; each has each of them once."""
    found = []
    for frame in data.split(b"\0")[:-1]:
        command, *lines = frame.lstrip(b"\n").partition(b"\n\n")[0].split(b"\n")
        if command != b"MESSAGE":
            continue
        told = [line.partition(b":")[::2] for line in lines]
        names = [name for name, _ in told]
        assert names.count(b"timestamp") == names.count(b"expires") == 1, lines
        values = dict(told)
        found.append((int(values[b"timestamp"]), int(values[b"expires"])))
    return found


def read(core: Core, version: str, destination: str = "q", **headers: str) -> list[Any]:
    """Subscribe and return the times of all that comes."""
    client = Stomp(core, version)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    frame = f"SUBSCRIBE\nid:s\ndestination:{destination}\n{lines}\n\0"
    client.session.receive_data(frame.encode(), client.now)
    out = b""
    for _ in range(4):
        core.sync()
        out += client.session.data_to_send()
    found = times(out)
    client.cut()
    core.sync()
    return found


def core_of(**more: object) -> Core:
    core = Core(entry("#", **{**SETTINGS, **more}))
    for name in ("q", "DLA", "EXA"):
        core.administration.create_queue(name, name, ANYCAST)
    return core


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sent", SENT)
def test_from_a_queue(version, sent):
    send, stamp, expires = SENT[sent]
    core = core_of()
    send(core)
    core.now += 5
    assert read(core, version) == [(stamp, expires)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sent", SENT)
def test_to_who_waits_already(version, sent):
    send, stamp, expires = SENT[sent]
    core = core_of()
    client = Stomp(core, version)
    client.subscribe("q")
    send(core)
    assert times(client.session.data_to_send()) == [(stamp, expires)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sent", LASTING)
@pytest.mark.parametrize("clean", [True, False])
def test_after_a_restart(version, sent, clean):
    send, stamp, expires = SENT[sent]
    core = core_of()
    send(core)
    core.restart(clean=clean)
    core.now += 5
    assert read(core, version) == [(stamp, expires)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sent", LASTING)
@pytest.mark.parametrize("restarted", [False, True])
def test_from_pages(version, sent, restarted):
    send, stamp, expires = SENT[sent]
    core = core_of(max_size_messages=1, address_full_policy=FullPolicy.PAGE)
    for _ in range(4):
        send(core)
    core.sync()
    assert core.queue("q").paged_count == 3
    if restarted:
        core.restart(clean=True)
        assert core.queue("q").paged_count
    assert read(core, version) == [(stamp, expires)] * 4


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sent", SENT)
def test_redelivered(version, sent):
    send, stamp, expires = SENT[sent]
    core = core_of(max_delivery_attempts=10)
    send(core)
    for _ in range(3):
        assert read(core, version, ack="client") == [(stamp, expires)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sent", SENT)
def test_dead(version, sent):
    """A dead letter has no end, as in Artemis."""
    send, stamp, expires = SENT[sent]
    core = core_of()
    send(core)
    assert read(core, version, ack="client") == [(stamp, expires)]
    assert core.queue("q").message_count == 0
    assert read(core, version, "DLA") == [(stamp, 0)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sent", LASTING)
def test_dead_and_restarted_and_tried_again(version, sent):
    send, stamp, _ = SENT[sent]
    core = core_of()
    send(core)
    read(core, version, ack="client")
    core.restart(clean=True)
    assert core.gateway.retry_messages(core.queue("DLA")) == 1
    core.sync()
    assert read(core, version) == [(stamp, 0)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sent", ENDING)
@pytest.mark.parametrize("restarted", [False, True])
def test_expired(version, sent, restarted):
    """Its own end is over: it waits for ever where expired messages go, as in Artemis."""
    send, stamp, _ = SENT[sent]
    core = core_of()
    send(core)
    core.pass_time(FAR - core.now + 1)
    core.gateway.expire()
    core.sync()
    if restarted:
        core.restart(clean=True)
    assert read(core, version, "EXA") == [(stamp, 0)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sent", SENT)
def test_looked_at(version, sent):
    send, stamp, expires = SENT[sent]
    core = core_of()
    send(core)
    client = Stomp(core, version)
    client.session.receive_data(b"SUBSCRIBE\nid:s\ndestination:q\nbrowser:true\n\n\0", client.now)
    core.sync()
    first, _, end = client.session.data_to_send().rpartition(b"MESSAGE\n")
    assert b"browser:end" in end
    assert times(first) == [(stamp, expires)]
    assert core.queue("q").message_count == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_an_end_that_the_address_gives(version):
    """What an address' settings say of the end is what its messages say."""
    core = core_of(expiry_delay=5_000)
    by_stomp(version)(core)
    by_amqp()(core)
    assert [end for _, end in read(core, version)] == [NOW + 5_000, NOW + 5_000]


@pytest.mark.parametrize("version", VERSIONS)
def test_no_end_where_the_address_knows_none(version):
    core = core_of(no_expiry=True)
    by_stomp(version, expires=str(FAR))(core)
    by_amqp(ttl=8_000)(core)
    by_amqp(expiry_time=9_000)(core)
    assert [end for _, end in read(core, version)] == [0, 0, 0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize(
    ("rule", "asked", "end"),
    [
        ({"expiry_delay": 5_000}, 0, NOW + 5_000),
        ({"expiry_delay": 5_000}, FAR, FAR),
        ({"max_expiry_delay": 5_000}, FAR, NOW + 5_000),
        ({"min_expiry_delay": 9_000_000}, FAR, NOW + 9_000_000),
        ({"no_expiry": True}, FAR, 0),
    ],
)
def test_what_a_stomp_message_says_follows_the_rules(version, rule, asked, end, paged):
    """In memory, from pages and after a restart; the queue drops it at the end that it says."""
    pages = {"max_size_messages": 1, "address_full_policy": FullPolicy.PAGE} if paged else {}
    core = core_of(max_delivery_attempts=10, **rule, **pages)
    for _ in range(3):
        by_stomp(version, **({"expires": str(asked)} if asked else {}))(core)
    core.sync()
    core.check()
    core.restart(clean=True)
    assert read(core, version, ack="client") == [(NOW, end)] * 3
    peer = Amqp.at(core)
    ((_, message), *_) = took(peer.receiver(credit=5) + peer.more())
    assert (amqp(message).absolute_expiry_time or 0) == end


def test_an_amqp_reader_of_a_dead_stomp_letter_is_told_no_end():
    """A client that looks at it would throw the letter away."""
    core = core_of()
    by_stomp("1.2", expires=str(NOW + 50))(core)
    read(core, "1.2", ack="client")
    core.pass_time(100)
    peer = Amqp.at(core)
    ((_, message),) = took(peer.receiver(address="DLA", credit=5) + peer.more())
    told = Message()
    told.decode(message)
    assert (told.expiry_time, told.ttl) == (0, 0)
