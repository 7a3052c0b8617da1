"""The scenario rows S by their numbers: STOMP sessions over the real broker, all three versions.

Rows that are one frame's matter (versions, escapes, heart-beats) are with the protocol's own tests.
"""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from tests.broker.core import ANYCAST, MULTICAST, Core, entry
from tests.conformance.clients import VERSIONS, Stomp, bodies

FIFTY = [f"m{i}" for i in range(50)]


@pytest.fixture
def core() -> Core:
    return Core()


def left(core: Core, name: str = "q") -> int:
    core.check()
    return core.queue(name).message_count


# ---- frames that the broker sees


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_s4_the_length_that_was_told_is_the_body(core, version):
    client = Stomp(core, version)
    client.subscribe("q")
    sent = "SEND\ndestination:q\ncontent-length:3\n\nabcextra\0"
    out = client.say(sent.replace("abcextra", "abc"))
    assert bodies(out) == ["abc"]
    assert out[0][1]["content-length"] == "3"
    out = client.say("SEND\ndestination:q\n\nabcextra\0")
    assert bodies(out) == ["abcextra"]
    assert out[0][1]["content-length"] == "8"


def test_s5_of_repeated_headers_the_first_counts(core):
    client = Stomp(core)
    client.subscribe("q")
    client.say("SEND\ndestination:q\ndestination:other\n\nx\0")
    assert "other" not in core.gateway.queues
    assert core.queue("q").acknowledged == 1


def test_s5_the_first_of_repeated_headers_reaches_the_subscriber(core):
    client = Stomp(core)
    client.subscribe("q")
    ((_, headers, _),) = client.say("SEND\ndestination:q\nfoo:value1\nfoo:value2\n\nx\0")
    assert headers["foo"] == "value1"


def test_s7_escaped_characters_reach_the_subscriber_as_they_were_sent(core):
    client = Stomp(core)
    client.subscribe("q")
    line = "\\rspecial-header\\\\\\n\\c\\r\\n:\\c\\\\\\ngood\\n\\r"
    client.session.receive_data(f"SEND\ndestination:q\n{line}\n\nx\0".encode(), client.now)
    core.sync()
    heard = client.session.data_to_send()
    head = heard.partition(b"\n\n")[0].decode().split("\n")
    (found,) = [one for one in head if "special" in one]
    name, _, value = (decoded(part) for part in found.partition(":"))
    assert (name, value) == ("\rspecial-header\\\n:\r\n", ":\\\ngood\n\r")


def decoded(text: str) -> str:
    """Decode by STOMP 1.2, in the plainest way [STOMP 1.2 Value Encoding]."""
    known = {"r": "\r", "n": "\n", "c": ":", "\\": "\\"}
    marks = iter(text)
    return "".join(known[next(marks)] if mark == "\\" else mark for mark in marks)


def test_s6_padding_comes_back_exactly(core):
    client = Stomp(core)
    client.subscribe("q")
    lines = {" header1": "value1 ", "header2 ": " value2", "header6": "\t\tvalue\t", " ": " "}
    written = "".join(f"{name}:{value}\n" for name, value in lines.items())
    ((_, headers, _),) = client.say(f"SEND\ndestination:q\n{written}\nx\0")
    assert {name: headers.get(name) for name in lines} == lines


def test_s8_an_undefined_escape_ends_the_connection(core):
    client = Stomp(core)
    ((command, headers, body),) = client.say("SEND\ndestination:q\nx:is\\ttab\n\nx\0")
    assert command == "ERROR"
    assert "\\t" in body.decode() or "\\t" in headers["message"].replace("\\\\", "\\")
    assert client.session.closing
    assert "q" not in core.gateway.queues


# ---- acknowledging


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("acked", "remains"), [(50, 0), (49, 1)])
def test_s9_an_ack_covers_all_before_it(core, version, acked, remains):
    client = Stomp(core, version)
    client.send("q", *FIFTY)
    came = client.subscribe("q", "client")
    assert bodies(came) == FIFTY
    client.settle(came[acked - 1])
    client.do("UNSUBSCRIBE", id="s")
    assert left(core) == remains
    assert core.waiting("q") == [b.encode() for b in FIFTY[acked:]]


@pytest.mark.parametrize("version", VERSIONS)
def test_s10_individual_acks_leave_the_others(core, version):
    client = Stomp(core, version)
    client.send("q", *FIFTY)
    came = client.subscribe("q", "client-individual")
    for message in came[::2]:
        client.settle(message)
    client.leave()
    assert left(core) == 25
    assert core.waiting("q") == [b.encode() for b in FIFTY[1::2]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["", "ack:auto\n"])
def test_s11_in_auto_mode_nothing_is_left(core, version, mode):
    client = Stomp(core, version)
    client.send("q", *FIFTY)
    assert bodies(client.say(f"SUBSCRIBE\nid:s\ndestination:q\n{mode}\n\0")) == FIFTY
    client.leave()
    assert left(core) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_s12_what_was_not_acknowledged_comes_again_once(core, version):
    first = Stomp(core, version)
    first.send("q", "m")
    ((_, headers, _),) = first.subscribe("q", "client")
    assert headers["redelivered"] == "false"
    first.leave()
    second = Stomp(core, version)
    ((_, headers, body),) = second.subscribe("q")
    assert (headers["redelivered"], body) == ("true", b"m")
    second.leave()
    third = Stomp(core, version)
    assert third.subscribe("q") == []
    third.send("other", "n")
    assert bodies(third.do("SEND", "n", destination="q")) == ["n"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_s13_k5_an_aborted_ack_brings_the_message_again(core, version, command):
    if (version, command) == ("1.0", "NACK"):
        return  # not in 1.0
    client = Stomp(core, version)
    client.send("q", "m")
    (message,) = client.subscribe("q", "client")
    client.do("BEGIN", transaction="t")
    assert client.settle(message, command, transaction="t") == []
    assert left(core) == 1
    (again,) = client.do("ABORT", transaction="t")
    assert (again[2], again[1]["redelivered"]) == (b"m", "true")
    client.settle(again)
    assert left(core) == 0


def test_s14_an_unknown_id_is_told_and_the_message_stays(core):
    client = Stomp(core)
    client.send("q", "m")
    client.subscribe("q", "client")
    client.refused("ACK", id="c1-1-0099")
    assert client.session.closing
    client.cut()
    assert bodies(Stomp(core).subscribe("q")) == ["m"]


def test_s15_the_wrong_subscription_settles_nothing(core):
    client = Stomp(core, "1.1")
    client.send("q", "m")
    ((_, headers, _),) = client.subscribe("q", "client")
    client.refused("ACK", message_id=headers["message-id"], subscription="another")
    assert not client.session.closing
    client.do("UNSUBSCRIBE", id="s")
    assert bodies(client.subscribe("q")) == ["m"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_s16_with_a_window_of_0_each_waits_for_the_ack_before(core, version, command):
    client = Stomp(core, version)
    client.send("q", "a", "b")
    window = {"consumer_window_size": "0"}
    (first,) = client.subscribe("q", "client-individual", **window)
    assert first[2] == b"a"
    if command == "ACK" or version == "1.0":
        (second,) = client.settle(first)
        assert second[2] == b"b"
        assert client.settle(second) == []
    else:
        # Refused without a requeue: dead, and the next one follows.
        (second,) = client.settle(first, "NACK", requeue="false")
        assert second[2] == b"b"
        assert client.settle(second, "NACK", requeue="false") == []
    assert left(core) == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_s17_acks_give_the_window_its_bytes_back(core, version, mode):
    client = Stomp(core, version)
    client.send("q", "x" * 500)
    client.subscribe("q", mode, id="0", consumer_window_size="1400")
    each = client.heard_bytes - len("RECEIPT\nreceipt-id:r\n\n\0\n")
    client.do("UNSUBSCRIBE", id="0")
    core.queue("q").purge()
    client.send("q", *["x" * (500 + 700 - each)] * 3)
    came = client.subscribe("q", mode, consumer_window_size="1400")
    assert len(came) == 2
    assert client.more() == []
    rest = client.settle(came[1])
    if mode == "client-individual":
        assert len(rest) == 1
        client.settle(came[0])
    (last,) = rest
    client.settle(last)
    assert left(core) == 0


# ---- time


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("header", ["AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME"])
def test_s24_a_scheduled_send_comes_when_it_is_due(core, version, header):
    client = Stomp(core, version)
    client.subscribe("q")
    due = 2000 if header.endswith("DELAY") else core.now + 2000
    assert client.say(f"SEND\ndestination:q\n{header}:{due}\n\nm\0") == []
    core.pass_time(1999)
    assert client.more() == []
    core.pass_time(1)
    assert bodies(client.more()) == ["m"]


@pytest.mark.parametrize("version", VERSIONS)
def test_s24_a_time_that_is_none_is_refused(core, version):
    client = Stomp(core, version)
    sent = "SEND\ndestination:q\nreceipt:r\nAMQ_SCHEDULED_DELAY:soon\n\nm\0"
    ((command, headers, body),) = client.say(sent)
    assert (command, headers["receipt-id"], headers["error-code"]) == ("ERROR", "r", "bad-value")
    assert "AMQ_SCHEDULED_DELAY" in body.decode()
    assert "q" not in core.gateway.queues


@pytest.mark.parametrize(
    ("asked", "answer", "patience"),
    [(None, None, 1.0), ("0,0", "0,500", 1.0), ("1,0", "0,2500", 5.0), ("20000,0", "0,5000", 10.0)],
)
def test_s29_heart_beats_are_answered_by_what_was_asked(core, asked, answer, patience):
    limits = {"ttl_ms": 1000, "ttl_min_ms": 5000, "ttl_max_ms": 10_000}
    connect = f"heart-beat:{asked}\n" if asked else ""
    client = Stomp(core, "1.1", connect=connect, **limits)
    assert client.greeting[0][1].get("heart-beat") == answer
    client.session.tick(client.now + patience - 0.1)
    assert not client.session.closing
    client.session.tick(client.now + patience + 0.1)
    assert client.session.closing
    assert [name for name, _, _ in client.more()] == ["ERROR"]


# ---- subscriptions


@pytest.mark.parametrize("version", VERSIONS)
def test_s18_a_durable_subscription_keeps_what_came_meanwhile(core, version):
    durable = {"durable_subscription_name": "n"}
    client = Stomp(core, version, connect="client-id:c\n")
    client.subscribe("/topic/t", **durable)
    client.leave()
    assert core.queue("c.n").consumers == []
    Stomp(core).send("/topic/t", "meanwhile")
    again = Stomp(core, version, connect="client-id:c\n")
    assert bodies(again.subscribe("/topic/t", **durable)) == ["meanwhile"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("named", [True, False])
def test_s19_unsubscribe_deletes_what_it_names(core, version, named):
    durable = {"durable_subscription_name": "n"}
    client = Stomp(core, version, connect="client-id:c\n")
    client.subscribe("/topic/t", **durable)
    client.do("UNSUBSCRIBE", id="s", **(durable if named else {}))
    assert ("c.n" in core.gateway.queues) is not named


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_s20_a_transaction_happens_at_its_commit(core, version, end):
    client = Stomp(core, version)
    client.subscribe("q")
    client.do("BEGIN", transaction="t")
    assert client.do("SEND", "m", destination="q", transaction="t") == []
    came = client.do(end, transaction="t")
    assert bodies(came) == (["m"] if end == "COMMIT" else [])
    assert left(core) == 0
    # The name is free again.
    client.do("BEGIN", transaction="t")


@pytest.mark.parametrize("version", VERSIONS)
def test_s21_a_transaction_begins_once(core, version):
    client = Stomp(core, version)
    client.do("BEGIN", transaction="tx1")
    assert client.refused("BEGIN", transaction="tx1")["error-code"] == "already-exists"


@pytest.mark.parametrize("topic_first", [True, False])
def test_s22_a_queue_and_a_topic_of_one_name(core, topic_first):
    client = Stomp(core)
    order = ["/topic/x", "/queue/x"] if topic_first else ["/queue/x", "/topic/x"]
    for name in order:
        client.subscribe(name, id=name)
    for name in order:
        ((_, headers, body),) = client.do("SEND", name, destination=name)
        assert (headers["subscription"], body.decode()) == (name, name)
        assert headers["destination"] == name
        kind = "MULTICAST" if name.startswith("/topic") else "ANYCAST"
        assert headers["destination-type"] == kind


def test_s23_a_topic_where_only_a_queue_may_be():
    core = Core(entry("#", auto_create_addresses=False, auto_create_queues=False))
    core.directory.make_address("a", frozenset({ANYCAST}))
    core.administration.create_queue("a", "a", ANYCAST)
    for command in ("SUBSCRIBE", "SEND"):
        client = Stomp(core, "1.1")
        kind = {"subscription_type": "MULTICAST"} if command == "SUBSCRIBE" else {}
        headers = client.refused(
            command, destination="a", **({"id": "s"} | kind), destination_type="MULTICAST"
        )
        assert headers["error-code"] in ("routing-mismatch", "not-found"), headers
        assert "a" in headers["body"]
        assert not client.session.closing
    assert core.queue("a").consumers == []
    assert left(core, "a") == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("selector", ["", " ", "a = = b", "a LIKE 7"])
def test_s25_a_selector_that_is_none_makes_no_consumer(core, version, selector):
    client = Stomp(core, version)
    client.send("q", "m")
    headers = client.refused("SUBSCRIBE", destination="q", id="s", selector=selector)
    assert headers["error-code"] in ("bad-value", "bad-selector")
    assert core.queue("q").consumers == []
    assert client.session.closing is (version == "1.2")


@pytest.mark.parametrize("version", VERSIONS)
def test_s25_a_selector_takes_what_it_says(core, version):
    client = Stomp(core, version)
    for colour in ("red", "blue", "red"):
        client.send("q", colour, colour=colour)
    assert bodies(client.subscribe("q", selector="colour = 'red'")) == ["red", "red"]
    assert left(core) == 1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["no_local", "activemq.noLocal"])
@pytest.mark.parametrize("topic", [True, False])
def test_s27_a_no_local_subscriber_does_not_hear_itself(core, version, name, topic):
    where = "/topic/t" if topic else "q"
    client, other = Stomp(core, version), Stomp(core, version)
    client.subscribe(where, **{name: "true"})
    assert client.do("SEND", "own", destination=where) == []
    other.send(where, "other's")
    assert bodies(client.more()) == ["other's"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_s26_each_subscriber_has_a_copy_under_its_own_ids(core, version):
    one, two = Stomp(core, version), Stomp(core, version)
    one.subscribe("/topic/t", id="sub1")
    two.subscribe("/topic/t", id="sub2")
    Stomp(core, version).send("/topic/t", "m")
    ((_, first, body),) = one.more()
    ((_, second, other),) = two.more()
    assert (first["subscription"], second["subscription"]) == ("sub1", "sub2")
    assert body == other == b"m"
    assert first["message-id"] != second["message-id"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", [{"destination_type": "ANYCAST"}, {}])
def test_s31_a_missing_queue_is_made_and_keeps_the_message(core, version, kind):
    client = Stomp(core, version)
    client.send("new", "m", **kind)
    assert left(core, "new") == 1
    assert bodies(client.subscribe("new")) == ["m"]


def test_s31_a_missing_topic_is_made_and_its_first_message_meets_nobody(core):
    client = Stomp(core)
    client.send("/topic/new", "first")
    assert core.gateway.addresses["new"].routing_types == {MULTICAST}
    assert core.gateway.addresses["new"].unrouted == 1
    client.subscribe("/topic/new")
    assert bodies(client.do("SEND", "second", destination="/topic/new")) == ["second"]


@pytest.mark.parametrize("version", VERSIONS)
def test_s32_a_thousand_come_in_the_order_they_were_sent(core, version):
    numbers = [str(i) for i in range(1000)]
    client = Stomp(core, version)
    client.say("".join(f"SEND\ndestination:q\n\n{n}\0" for n in numbers))
    assert left(core) == 1000
    assert bodies(client.subscribe("q")) == numbers


# ---- refusing


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_u7_refused_three_times_it_is_a_dead_letter(version):
    core = Core(entry("#", max_delivery_attempts=3))
    client = Stomp(core, version)
    client.send("q", "m")
    came = client.subscribe("q", "client-individual")
    for _ in range(3):
        (message,) = came
        assert message[2] == b"m"
        came = client.settle(message, "NACK")
    assert came == []
    assert left(core) == 0
    assert core.waiting("DLQ") == [b"m"]
    client.subscribe("DLQ", id="dead")
    assert core.queue("DLQ").message_count == 0


@pytest.mark.parametrize("policy", list(FullPolicy))
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_m7_a_blocked_address_is_not_read_from_stomp(version, policy):
    """One that has sent before, and one that begins to: nothing of either is taken."""
    core = Core(entry("#", address_full_policy=policy, max_size_messages=100))
    known = Stomp(core, version)
    known.send("q", "before")
    core.gateway.block_address("q", blocked=True)
    new = Stomp(core, version)
    for client in (known, new):
        assert client.say("SEND\ndestination:q\nreceipt:1\n\nheld\0") == []
        assert client.session.paused_reading
    assert left(core) == 1
    core.gateway.block_address("q", blocked=False)
    for client in (known, new):
        assert [name for name, _, _ in client.more()] == ["RECEIPT"]
        assert not client.session.paused_reading
    assert left(core) == 3


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_u6_held_at_a_full_address_it_hears_heart_beats_and_goes_on(version):
    core = Core(entry("#", address_full_policy=FullPolicy.BLOCK, max_size_messages=2))
    client = Stomp(core, version, connect="heart-beat:1000,1000\n")
    client.send("q", "1", "2")
    confirmed = []
    for number in range(3, 6):
        frame = f"SEND\ndestination:q\nreceipt:{number}\n\n{number}\0"
        confirmed += client.say(frame)
    assert len(confirmed) < 3, "a full address takes everything"
    beats = 0
    for _ in range(20):
        client.now += 0.5
        client.session.tick(client.now)
        beats += client.session.data_to_send().count(b"\n")
        assert not client.session.closing
    assert beats >= 5, "no heart-beats while it is held"
    reader = Stomp(core)
    came = reader.subscribe("q", "client")
    while len(came) < 5:
        reader.settle(came[-1])
        confirmed += client.more()
        more = reader.more()
        assert more or len(confirmed) == 3, came
        came += more
        if not more:
            break
    assert bodies(came) == ["1", "2", "3", "4", "5"]
    assert [headers["receipt-id"] for _, headers, _ in confirmed] == ["3", "4", "5"]
