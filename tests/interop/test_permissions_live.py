"""Permissions that change while clients are there: other settings, other roles, on every door."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection, LinkDetached, SendException

from gateway.trial.scratch import HOST, ScratchGateway
from tests.gateway.stomp_peer import StompPeer
from tests.interop.permissions import PASSWORD, write_users
from tests.interop.support import SECONDS, amqp_url
from tests.logs import records, wait_records

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

BASE = """
[addresses.orders]
queues = [{ name = "orders" }]
[addresses.news]
routing-type = "MULTICAST"
[streams.kept]
address = "orders"
"""


def settings(**roles: str) -> str:
    """Return a file whose `#` gives each permission to these roles; `_` is a hyphen."""
    said = [f"{key.replace('_', '-')} = {value.split()}" for key, value in roles.items()]
    return BASE + '[security-settings."#"]\n' + "\n".join(said) + "\n"


ALL = settings(
    **dict.fromkeys(
        ("send", "consume", "browse", "create_address", "create_durable_queue",
         "create_non_durable_queue", "delete_durable_queue"), "in"
    )
)  # fmt: skip
#: Nobody has the role `out`.
NONE = settings(send="out", consume="out", browse="out")


class Live:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "gate.toml"
        self.file.write_text(ALL)
        self.gateway = ScratchGateway(folder, config=self.file)
        self.users(ann="in", ben="in other", boss="admin")

    def users(self, **roles: str) -> None:
        write_users(self.gateway, {name: frozenset(has.split()) for name, has in roles.items()})

    def reload(self, text: str | None = None, status: int = 200) -> Any:
        if text is not None:
            self.file.write_text(text)
        return self.ask("POST", "/api/v1/config:reload", status)

    def ask(self, method: str, path: str, status: int = 200) -> Any:
        connection = http.client.HTTPConnection(HOST, self.gateway.management_port, timeout=30)
        login = base64.b64encode(f"boss:{PASSWORD}".encode()).decode()
        connection.request(method, path, None, {"Authorization": f"Basic {login}"})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        connection.close()
        assert answer.status == status, told
        return told

    def amqp(self, user: str = "ann") -> BlockingConnection:
        url = amqp_url(self.gateway)
        return BlockingConnection(url, timeout=SECONDS, user=user, password=PASSWORD)

    def stomp(self, user: str = "ann") -> StompPeer:
        return StompPeer(self.gateway.stomp_port, (user, PASSWORD))


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    made = Live(tmp_path)
    with made.gateway:
        yield made


#: How what is allowed is taken away from ann alone, or from all.
CHANGES: dict[str, Callable[[Live], None]] = {
    "settings": lambda live: live.reload(NONE),
    "roles": lambda live: (live.users(ann="", ben="in other", boss="admin"), live.reload())[0],
}


@pytest.mark.parametrize("change", CHANGES)
def test_amqp_links_end_with_the_reason(live: Live, change: str) -> None:
    connection = live.amqp()
    sender = connection.create_sender("orders")
    sender.send(Message(body="x", durable=True))
    receiver = connection.create_receiver("orders", credit=0)
    anonymous = connection.create_sender(None)
    anonymous.send(Message(address="orders", body="y", durable=True))
    CHANGES[change](live)
    for act in (lambda: sender.send(Message(body="x")), lambda: receiver.receive(timeout=2)):
        with pytest.raises(LinkDetached) as ended:
            act()
        assert ended.value.condition == "amqp:unauthorized-access"
    with pytest.raises(SendException) as refused:
        anonymous.send(Message(address="orders", body="z"))
    assert refused.value.state == Delivery.REJECTED
    connection.close()


@pytest.mark.parametrize("change", CHANGES)
def test_a_stomp_subscription_ends_with_an_error(live: Live, change: str) -> None:
    peer = live.stomp()
    peer.write("SUBSCRIBE\nid:s\ndestination:orders\nack:client\nreceipt:r\n\n")
    assert peer.read()[0] == "RECEIPT"
    CHANGES[change](live)
    command, headers, body = peer.read()
    assert (command, headers["error-code"]) == ("ERROR", "not-authorized")
    assert b"User 'ann' may not consume from 'orders'" in body
    with pytest.raises(EOFError):  # as 1.2 demands
        peer.read()


@pytest.mark.parametrize("change", CHANGES)
def test_a_stomp_sender_hears_of_it_with_its_next_send(live: Live, change: str) -> None:
    peer = live.stomp()
    for _ in range(3):
        peer.send("orders", b"x", receipt="r")
        assert peer.read()[0] == "RECEIPT"
    CHANGES[change](live)
    assert peer.silent(0.3)
    peer.send("orders", b"x", receipt="last")
    command, headers, _ = peer.read()
    assert (command, headers["error-code"]) == ("ERROR", "not-authorized")
    assert headers["receipt-id"] == "last"


def test_a_stomp_sender_goes_on_when_it_may_again(live: Live) -> None:
    peer = live.stomp()
    peer.send("orders", b"x", receipt="1")
    assert peer.read()[0] == "RECEIPT"
    live.reload(NONE)
    live.reload(ALL)
    peer.send("orders", b"x", receipt="2")
    assert peer.read()[:2] == ("RECEIPT", {"receipt-id": "2"})


def test_a_replay_ends_and_a_durable_subscription_stays(live: Live) -> None:
    connection = live.amqp()
    connection.create_sender("orders").send(Message(body="x", durable=True))
    peer = live.stomp()
    peer.write("SUBSCRIBE\nid:s\ndestination:orders\nx-stream-offset:first\nreceipt:r\n\n")
    assert [peer.read()[0] for _ in range(2)] == ["RECEIPT", "MESSAGE"]
    subscriber = durable(live)
    live.reload(settings(send="in", consume="out", browse="out"))
    for one in (peer, subscriber):
        command, headers, _ = one.read()
        assert (command, headers["error-code"]) == ("ERROR", "not-authorized")
    live.reload(ALL)
    durable(live)
    connection.close()
    queues = live.ask("GET", "/api/v1/queues")
    assert "me.mine" in [queue["name"] for queue in queues["items"]]


def durable(live: Live) -> StompPeer:
    """Return a durable subscriber, subscribed."""
    peer = StompPeer(live.gateway.stomp_port, ("ann\nclient-id:me", PASSWORD))
    peer.write(
        "SUBSCRIBE\nid:s\ndestination:/topic/news\ndurable-subscription-name:mine\nreceipt:r\n\n"
    )
    assert peer.read()[0] == "RECEIPT"
    return peer


def test_who_may_still_do_it_notices_nothing(live: Live) -> None:
    ben, ann = live.amqp("ben"), live.amqp("ann")
    senders = [one.create_sender("orders") for one in (ben, ann)]
    live.reload(settings(send="other"))
    senders[0].send(Message(body="x", durable=True))
    with pytest.raises(LinkDetached):
        senders[1].send(Message(body="x"))
    ben.close()
    ann.close()


def test_a_refusal_is_in_the_log_with_all_that_an_operator_needs(live: Live) -> None:
    live.reload(settings(send="sellers"))
    connection = live.amqp()
    with pytest.raises(LinkDetached):
        connection.create_sender("orders")
    (told,) = wait_records(live.gateway, "permission.refused", 1)
    assert (told["user"], told["permission"], told["address"]) == ("ann", "send", "orders")
    assert (told["needs"], told["roles"], told["match"]) == ("sellers", "in", "#")
    assert told["remote"].startswith("127.0.0.1")
    assert told["origin"].startswith(f"{live.file}:")
    assert records(live.gateway, "permissions.asked_for")[-1]["matches"] == 1
    connection.close()


def test_a_reload_does_not_switch_permissions_off(live: Live) -> None:
    told = live.reload(BASE, status=422)
    assert "a reload does not" in str(told)
    connection = live.amqp()
    connection.create_sender("orders").close()
    connection.close()


def test_a_reload_switches_them_on_for_those_who_are_there(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.file.write_text(BASE)
    with live.gateway:
        connection, peer = live.amqp(), live.stomp()
        sender = connection.create_sender("orders")
        sender.send(Message(body="x", durable=True))
        live.reload(NONE)
        with pytest.raises(LinkDetached):
            sender.send(Message(body="x"))
        peer.send("orders", b"x", receipt="r")
        assert peer.read()[0] == "ERROR"
        connection.close()


def test_who_gives_no_user_has_no_roles(tmp_path: Path) -> None:
    """SASL ANONYMOUS, no SASL at all, and STOMP without a login are judged like all others."""
    live = Live(tmp_path)
    live.file.write_text(ALL + "[acceptors.all]\nallow-anonymous = true\n")
    with live.gateway:
        for options in ({"allowed_mechs": "ANONYMOUS"}, {"sasl_enabled": False}):
            connection = BlockingConnection(amqp_url(live.gateway), timeout=SECONDS, **options)
            with pytest.raises(LinkDetached) as ended:
                connection.create_sender("orders")
            assert "A client without a user may not send" in str(ended.value)
            connection.close()
        peer = StompPeer(live.gateway.port)
        peer.send("orders", b"x", receipt="r")
        assert peer.read()[1]["error-code"] == "not-authorized"
