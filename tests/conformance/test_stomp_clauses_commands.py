"""Clauses of STOMP 1.2 that are a server's: what each frame does.

`stomp_clauses.toml` says which test proves which clause. What 1.0 and 1.1 have in common with 1.2
is tried in all of them.
"""

from __future__ import annotations

import pytest

from tests.broker.core import Core
from tests.conformance.clients import Stomp, bodies
from tests.conformance.stomp_clauses import ends, every_version, from_1_1, refused, taken


@pytest.fixture
def core() -> Core:
    return Core()


# ---- Client Frames


@every_version
@pytest.mark.parametrize("command", ["PING", "MESSAGE", "RECEIPT", "CONNECTED", "ERROR", "x" * 40])
def test_another_command_is_an_error_and_the_end(core, version, command):
    client = Stomp(core, version)
    refused(client.say(f"{command}\n\n\0"), "bad-frame")
    assert client.session.closing


# ---- SEND


@every_version
def test_send_needs_a_destination(core, version):
    client = Stomp(core, version)
    headers = client.refused("SEND", "x")
    assert "destination" in headers["message"]
    assert ends(client)


@every_version
def test_headers_of_the_sender_are_passed_through(core, version):
    client = Stomp(core, version)
    mine = {"a": "1", "B": "", "trace-id": "x/y", "id": "7", "type": "t", "reply-to": "r"}
    client.send("q", "x", **mine)
    ((_, headers, _),) = Stomp(core, version).subscribe("q")
    assert mine.items() <= headers.items()


@every_version
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "bad-header"),
        ({"destination": ""}, "bad-name"),
        ({"destination": "q", "priority": "high"}, "bad-value"),
        ({"destination": "q", "expires": "soon"}, "bad-value"),
        ({"destination": "q", "transaction": "none"}, "not-found"),
        ({"destination": "/amq/queue/none"}, "not-found"),
        ({"destination": "/exchange/e/k"}, "not-implemented"),
    ],
)
def test_a_send_that_cannot_be_done_is_an_error(core, version, headers, code):
    client = Stomp(core, version)
    assert client.refused("SEND", "x", **headers)["error-code"] == code
    assert ends(client)
    assert taken(core) == []


# ---- SUBSCRIBE


@every_version
def test_subscribe_needs_a_destination(core, version):
    client = Stomp(core, version)
    assert "destination" in client.refused("SUBSCRIBE", id="s")["message"]
    assert ends(client)


@from_1_1
def test_subscribe_needs_an_id(core, version):
    client = Stomp(core, version)
    assert "id" in client.refused("SUBSCRIBE", destination="q")["message"]
    assert ends(client)
    assert "q" not in core.gateway.queues


def test_1_0_subscribes_without_an_id(core):
    client = Stomp(core, "1.0")
    assert client.do("SUBSCRIBE", destination="q") == []
    ((_, headers, _),) = client.do("SEND", "x", destination="q")
    assert headers["subscription"] == "subscription/q"
    assert client.do("UNSUBSCRIBE", destination="q") == []


@every_version
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"selector": "a ="}, "bad-selector"),
        ({"destination": "$x"}, "bad-name"),
        ({"durable-subscription-name": "n"}, "bad-header"),
        ({"subscription-type": "x"}, "bad-value"),
    ],
)
def test_a_subscription_that_cannot_be_made_is_an_error(core, version, headers, code):
    client = Stomp(core, version)
    named = {k.replace("-", "_"): v for k, v in ({"destination": "q", "id": "s"} | headers).items()}
    assert client.refused("SUBSCRIBE", **named)["error-code"] == code
    assert ends(client)
    if version != "1.2":
        assert client.do("SEND", "x", destination="q") == []


@every_version
def test_what_is_sent_to_a_subscription_follows_it(core, version):
    sender = Stomp(core, version)
    sender.send("q", "before")
    client = Stomp(core, version)
    assert bodies(client.subscribe("q")) == ["before"]
    sender.send("q", "1", "2")
    assert bodies(client.more()) == ["1", "2"]


@every_version
def test_ids_of_subscriptions_differ_on_one_connection_and_need_not_on_two(core, version):
    client, other = Stomp(core, version), Stomp(core, version)
    client.subscribe("q", id="same")
    assert other.subscribe("r", id="same") == []
    assert client.refused("SUBSCRIBE", destination="r", id="same")["error-code"] == "already-exists"
    assert ends(client)


@every_version
@pytest.mark.parametrize("mode", [{}, {"ack": "auto"}])
def test_in_auto_mode_it_is_consumed_when_it_was_sent(core, version, mode):
    Stomp(core, version).send("q", "1", "2")
    client = Stomp(core, version)
    assert bodies(client.do("SUBSCRIBE", destination="q", id="s", **mode)) == ["1", "2"]
    client.cut()
    assert taken(core) == []


@every_version
def test_in_client_mode_an_ack_covers_all_before_it_of_its_subscription(core, version):
    Stomp(core, version).send("q", "1", "2", "3")
    Stomp(core, version).send("r", "other")
    client = Stomp(core, version)
    came = client.subscribe("r", "client", id="r") + client.subscribe("q", "client", id="q")
    assert client.settle(came[2]) == []
    client.cut()
    assert (taken(core), taken(core, "r")) == (["3"], ["other"])


@every_version
def test_in_individual_mode_an_ack_covers_itself(core, version):
    Stomp(core, version).send("q", "1", "2", "3")
    client = Stomp(core, version)
    came = client.subscribe("q", "client-individual")
    client.settle(came[1])
    client.cut()
    assert taken(core) == ["1", "3"]


@every_version
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_what_was_not_acknowledged_goes_to_another_client(core, version, mode):
    Stomp(core, version).send("q", "x")
    client = Stomp(core, version)
    client.subscribe("q", mode)
    client.cut()
    ((_, headers, body),) = Stomp(core, version).subscribe("q")
    assert (headers["redelivered"], body) == ("true", b"x")


# ---- UNSUBSCRIBE


@every_version
def test_after_unsubscribe_nothing_comes(core, version):
    client = Stomp(core, version)
    client.subscribe("q")
    client.do("UNSUBSCRIBE", id="s")
    assert client.do("SEND", "x", destination="q") == []
    assert taken(core) == ["x"]


@every_version
def test_unsubscribe_names_a_subscription_that_is_there(core, version):
    client = Stomp(core, version)
    assert client.refused("UNSUBSCRIBE", id="none")["error-code"] == "not-found"
    assert ends(client)
    other = Stomp(core, version)
    assert "id" in other.refused("UNSUBSCRIBE")["message"]


# ---- ACK, NACK


@pytest.mark.parametrize(
    ("version", "command"),
    [("1.0", "ACK"), ("1.1", "ACK"), ("1.1", "NACK"), ("1.2", "ACK"), ("1.2", "NACK")],
)
def test_ack_and_nack_name_a_delivery(core, version, command):
    client = Stomp(core, version)
    needed = {"1.0": "message-id", "1.1": "message-id", "1.2": "id"}[version]
    assert needed in client.refused(command)["message"]
    assert ends(client)
    other = Stomp(core, version)
    named = {"id": "x-1"} if version == "1.2" else {"message_id": "x-1", "subscription": "s"}
    assert other.refused(command, **named)["error-code"] == "not-found"


@from_1_1
def test_an_ack_waits_for_its_transaction(core, version):
    Stomp(core, version).send("q", "x")
    client = Stomp(core, version)
    ((message),) = client.subscribe("q", "client")
    client.do("BEGIN", transaction="t")
    client.settle(message, transaction="t")
    assert core.queue("q").message_count == 1
    client.do("COMMIT", transaction="t")
    client.cut()
    assert taken(core) == []


@from_1_1
def test_a_nack_gives_the_message_to_a_client_again(core, version):
    Stomp(core, version).send("q", "x")
    client = Stomp(core, version)
    (message,) = client.subscribe("q", "client-individual")
    ((_, headers, body),) = client.settle(message, "NACK")
    assert (headers["redelivered"], body) == ("true", b"x")


@from_1_1
@pytest.mark.parametrize(("mode", "rest"), [("client", ["3"]), ("client-individual", ["1", "3"])])
def test_a_nack_covers_what_an_ack_would(core, version, mode, rest):
    Stomp(core, version).send("q", "1", "2", "3")
    client = Stomp(core, version)
    came = client.subscribe("q", mode)
    client.settle(came[1], "NACK", requeue="false")
    client.cut()
    assert taken(core) == rest


# ---- transactions


@every_version
@pytest.mark.parametrize("command", ["BEGIN", "COMMIT", "ABORT"])
def test_each_command_of_a_transaction_names_it(core, version, command):
    client = Stomp(core, version)
    assert "transaction" in client.refused(command)["message"]
    assert ends(client)
    if command != "BEGIN":
        other = Stomp(core, version)
        assert other.refused(command, transaction="none")["error-code"] == "not-found"


@every_version
def test_a_transaction_happens_whole_or_not_at_all(core, version):
    client = Stomp(core, version)
    for name, command in (("a", "ABORT"), ("b", "COMMIT")):
        client.do("BEGIN", transaction=name)
        for body in ("1", "2"):
            client.do("SEND", name + body, destination="q", transaction=name)
        assert taken(core) == []
        client.do(command, transaction=name)
    assert taken(core) == ["b1", "b2"]


@every_version
def test_open_transactions_have_names_of_their_own(core, version):
    client, other = Stomp(core, version), Stomp(core, version)
    client.do("BEGIN", transaction="t")
    other.do("BEGIN", transaction="t")
    assert client.refused("BEGIN", transaction="t")["error-code"] == "already-exists"
    assert ends(client)


@every_version
@pytest.mark.parametrize("how", ["leave", "cut"])
def test_the_end_of_a_connection_aborts_its_transactions(core, version, how):
    client = Stomp(core, version)
    client.do("BEGIN", transaction="t")
    client.do("SEND", "x", destination="q", transaction="t")
    getattr(client, how)()
    assert taken(core) == []
    core.check()


# ---- DISCONNECT


@every_version
def test_the_receipt_of_disconnect_comes_behind_all_that_was_sent(core, version):
    client = Stomp(core, version)
    came = client.say(
        "SEND\ndestination:q\nreceipt:1\n\na\0SEND\ndestination:q\n\nb\0DISCONNECT\nreceipt:2\n\n\0"
    )
    assert [headers["receipt-id"] for _, headers, _ in came] == ["1", "2"]
    assert client.session.closing
    core.restart()
    assert taken(core) == ["a", "b"]


@every_version
def test_frames_behind_disconnect_do_not_count(core, version):
    client = Stomp(core, version)
    came = client.say("DISCONNECT\nreceipt:1\n\n\0SEND\ndestination:q\nreceipt:2\n\nx\0")
    assert [headers["receipt-id"] for _, headers, _ in came] == ["1"]
    assert taken(core) == []


@every_version
def test_frames_that_came_before_the_connection_was_lost_count(core, version):
    client = Stomp(core, version)
    client.session.receive_data(b"SEND\ndestination:q\n\na\0SEND\ndestination:q\n\nb\0SEND", 100.0)
    client.cut()
    assert taken(core) == ["a", "b"]


# ---- MESSAGE


@every_version
@pytest.mark.parametrize("destination", ["q", "/queue/q", "queue://q"])
def test_a_message_says_where_it_was_sent(core, version, destination):
    client = Stomp(core, version)
    client.subscribe("q")
    ((_, headers, _),) = client.say(f"SEND\ndestination:{destination}\n\nx\0")
    written = destination.replace(":", "\\c") if version != "1.0" else destination
    assert headers["destination"] == written


@every_version
def test_each_delivery_has_an_id_of_its_own_and_says_its_subscription(core, version):
    clients = [Stomp(core, version) for _ in range(2)]
    for client in clients:
        client.subscribe("/topic/t", id="one")
        client.subscribe("/topic/t", id="two")
    Stomp(core, version).send("/topic/t", *"abc")
    came = [frame for client in clients for frame in client.more()]
    assert len({headers["message-id"] for _, headers, _ in came}) == len(came) == 12
    assert {headers["subscription"] for _, headers, _ in came} == {"one", "two"}


@pytest.mark.parametrize(
    ("mode", "has"), [("auto", False), ("client", True), ("client-individual", True)]
)
def test_a_message_has_an_ack_header_where_one_is_to_be_acknowledged(core, mode, has):
    Stomp(core).send("q", "1", "2")
    client = Stomp(core)
    came = client.subscribe("q", mode)
    assert [("ack" in headers) for _, headers, _ in came] == [has] * 2
    if has:
        for one in came:
            client.do("ACK", id=one[1]["ack"])
        client.cut()
        assert taken(core) == []


# ---- ERROR


@every_version
@pytest.mark.parametrize(
    "frame",
    [
        "SEND\n\nx",
        "SEND\ndestination:q\npriority:x\n\nx",
        "SEND\ndestination:q\ntransaction:t\n\nx",
        "SUBSCRIBE\nid:s\n\n",
        "SUBSCRIBE\nid:s\ndestination:q\nselector:a =\n\n",
        "UNSUBSCRIBE\nid:s\n\n",
        "ACK\n\n",
        "ACK\nid:1\nmessage-id:1\nsubscription:s\n\n",
        "NACK\nid:1\nmessage-id:1\nsubscription:s\n\n",
        "BEGIN\n\n",
        "COMMIT\ntransaction:t\n\n",
        "ABORT\ntransaction:t\n\n",
        "NONE\n\n",
        "SEND\nno colon\n\n",
        "SEND\n:no name\n\n",
        "SEND\ndestination:q\ncontent-length:x\n\n",
        "SEND\ndestination:q\ncontent-length:99999999999\n\n",
    ],
)
@pytest.mark.parametrize("receipt", [False, True])
def test_each_error_says_what_why_and_to_which_frame(core, version, frame, receipt):
    client = Stomp(core, version)
    asked = frame.replace("\n", "\nreceipt:r\n", 1) if receipt else frame
    ((command, headers, body),) = client.say(asked + "\0")
    assert command == "ERROR"
    assert headers["message"]
    assert headers["error-code"]
    assert headers["content-type"] == "text/plain"
    assert int(headers["content-length"]) == len(body) > 0
    assert headers.get("receipt-id") == ("r" if receipt else None)


def test_an_error_is_the_last_frame_of_1_2(core):
    client = Stomp(core)
    client.subscribe("q")
    assert bodies(client.say("SEND\ndestination:q\n\nx\0")) == ["x"]
    came = client.say("UNSUBSCRIBE\nid:none\n\n\0SEND\ndestination:q\nreceipt:1\n\ny\0")
    assert [name for name, _, _ in came] == ["ERROR"]
    assert client.session.closing
    assert client.say("SEND\ndestination:q\n\nz\0") == []
    assert taken(core) == []


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_before_1_2_an_error_ends_no_connection_that_can_go_on(core, version):
    client = Stomp(core, version)
    came = client.say("UNSUBSCRIBE\nid:none\n\n\0SEND\ndestination:q\nreceipt:1\n\ny\0")
    assert [name for name, _, _ in came] == ["ERROR", "RECEIPT"]
    assert not client.session.closing
