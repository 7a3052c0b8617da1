"""Connections as an operator sees, closes and reads of them, over clients of both protocols."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from proton import Message
from proton.utils import BlockingConnection, ConnectionClosed, LinkDetached

from gateway.trial.scratch import HOST, ScratchGateway
from gateway.trial.self_signed import self_signed
from tests.gateway.stomp_peer import StompPeer
from tests.interop.node import FOLDER, install
from tests.interop.support import SECONDS, add_user, connected, queue, wait_until
from tests.logs import records, wait_records

pytestmark = pytest.mark.interop
API = "/api/v1/connections"
VERSIONS = ["1.0", "1.1", "1.2"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    with ScratchGateway(tmp_path_factory.mktemp("seen")) as served:
        yield served


def ask(gateway: ScratchGateway, path: str, method: str = "GET") -> Any:
    status, answer = gateway.request(method, path)
    assert status == 200, answer
    return answer


def only(gateway: ScratchGateway, query: str) -> dict[str, Any]:
    found = ask(gateway, f"{API}?{query}")
    assert found["total"] == 1, found
    return dict(found["items"][0])


def lines(gateway: ScratchGateway, event: str) -> list[dict[str, Any]]:
    return records(gateway, event)


class Stomp(StompPeer):
    """A client of one version, with a subscription that holds what it gets."""

    def __init__(self, port: int, version: str, address: str) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=15)
        self._data = b""
        accept = "" if version == "1.0" else f"accept-version:{version}\nhost:h\n"
        self.write(f"CONNECT\n{accept}client-id:me-{version}\nuser-agent:tool/7.1\n\n")
        self.greeting = self.read()
        self.write(
            f"SUBSCRIBE\nid:s\ndestination:{address}\nack:client-individual\n"
            "prefetch-count:5\nreceipt:r\n\n"
        )
        assert self.read()[0] == "RECEIPT"


def send(gateway: ScratchGateway, address: str, count: int) -> None:
    with connected(gateway) as connection:
        sender = connection.create_sender(address)
        for number in range(count):
            sender.send(Message(body=str(number), durable=True))


def receive(receiver: Any, count: int) -> None:
    for _ in range(count):
        receiver.receive(timeout=SECONDS)


def test_an_amqp_connection_is_shown_with_all_that_is_known(gateway: ScratchGateway) -> None:
    send(gateway, "shown", 3)
    with connected(gateway, container_id="shown-client") as connection:
        receiver = connection.create_receiver("shown", credit=10)
        assert receiver.receive(timeout=SECONDS).body == "0"
        wait_until(lambda: only(gateway, "address=shown")["messagesOut"] == 3)
        shown = only(gateway, "address=shown&protocol=amqp")
        assert (shown["protocol"], shown["version"], shown["tls"]) == ("AMQP", "1.0", None)
        assert (shown["clientId"], shown["acceptor"]) == ("shown-client", "all")
        assert shown["remote"].startswith(f"{HOST}:")
        assert (shown["sessionCount"], shown["consumerCount"], shown["producerCount"]) == (1, 1, 0)
        assert (shown["inFlight"], shown["messagesIn"]) == (3, 0)
        assert shown["bytesIn"] > 0 < shown["bytesOut"]
        assert shown["idleSeconds"] >= 0
        whole = ask(gateway, f"{API}/{shown['id']}")
        (consumer,) = whole["consumers"]
        assert (consumer["queue"], consumer["inFlight"], consumer["messagesOut"]) == ("shown", 3, 3)
        assert consumer["credit"] == shown["credit"] > 0
        assert whole["addresses"] == ["shown"]
        (listed,) = ask(gateway, "/api/v1/consumers?queue=shown")["items"]
        assert listed["id"] == consumer["id"]
        (session,) = ask(gateway, f"/api/v1/sessions?connection={shown['id']}")["items"]
        assert (session["inFlight"], session["messagesOut"]) == (3, 3)
    wait_until(lambda: ask(gateway, f"{API}?address=shown")["total"] == 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stomp_connection_is_shown_with_all_that_is_known(
    gateway: ScratchGateway, version: str
) -> None:
    address = f"stomp-shown-{version}"
    client = Stomp(gateway.stomp_port, version, address)
    client.send(address, b"one")
    assert client.read()[0] == "MESSAGE"
    shown = only(gateway, f"address={address}")
    assert (shown["protocol"], shown["version"]) == ("STOMP", version)
    assert (shown["clientId"], shown["product"], shown["productVersion"]) == (
        f"me-{version}",
        "tool",
        "7.1",
    )
    assert (shown["messagesIn"], shown["messagesOut"], shown["inFlight"]) == (1, 1, 1)
    assert (shown["credit"], shown["consumerCount"], shown["producerCount"]) == (4, 1, 1)
    client.close()


def test_tls_is_shown_with_version_and_cipher(tmp_path: Path) -> None:
    made = self_signed(tmp_path)
    with ScratchGateway(tmp_path, tls=(made.certificate, made.key)) as gateway:
        context = ssl.create_default_context(cafile=str(made.certificate))
        context.check_hostname = False
        with (
            socket.create_connection((HOST, gateway.stomp_port), timeout=SECONDS) as plain,
            context.wrap_socket(plain) as secure,
        ):
            secure.sendall(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
            assert secure.recv(4096).startswith(b"CONNECTED")
            cipher = secure.cipher()
            assert cipher is not None
            shown = only(gateway, "protocol=STOMP")
            assert shown["tls"] == {"version": secure.version(), "cipher": cipher[0]}


def test_closing_tells_an_amqp_client_and_gives_back_what_it_held(gateway: ScratchGateway) -> None:
    send(gateway, "held", 4)
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=SECONDS)
    receiver = connection.create_receiver("held", credit=10)
    receiver.receive(timeout=SECONDS)
    wait_until(lambda: queue(gateway, "held")["deliveringCount"] == 4)
    name = only(gateway, "address=held")["id"]
    closed = ask(gateway, f"{API}/{name}?reason={quote('too many of them')}", "DELETE")
    assert closed == {"closed": 1}
    with pytest.raises(ConnectionClosed, match="closed by an operator: too many of them") as told:
        receive(receiver, 10)
    assert "amqp:connection:forced" in str(told.value)
    wait_until(lambda: queue(gateway, "held")["deliveringCount"] == 0)
    assert queue(gateway, "held")["messageCount"] == 4
    assert gateway.request("DELETE", f"{API}/{name}")[0] == 404
    (line,) = wait_records(gateway, "connection.closed", connection=name)
    assert (line["cause"], line["messages_out"]) == ("operator", 4)
    assert "too many of them" in line["reason"]
    (audit,) = wait_records(gateway, "api.changed", of_id=name)
    assert (audit["method"], audit["peer"], audit["closed"]) == ("DELETE", HOST, 1)
    assert (audit["route"], audit["level"]) == (f"{API}/{{id}}", "info")


@pytest.mark.parametrize("version", VERSIONS)
def test_closing_tells_a_stomp_client_and_gives_back_what_it_held(
    gateway: ScratchGateway, version: str
) -> None:
    address = f"stomp-held-{version}"
    client = Stomp(gateway.stomp_port, version, address)
    client.send(address, b"one")
    assert client.read()[0] == "MESSAGE"
    closed = ask(gateway, f"{API}?address={address}&reason=maintenance", "DELETE")
    assert closed == {"closed": 1}
    command, headers, body = client.read()
    assert command == "ERROR"
    assert "closed by an operator: maintenance" in headers["message"] + body.decode()
    with pytest.raises(EOFError):
        client.read()
    client.close()
    wait_until(lambda: queue(gateway, address)["deliveringCount"] == 0)
    assert queue(gateway, address)["messageCount"] == 1


def test_closing_tells_rhea(gateway: ScratchGateway) -> None:
    node = install()
    given = {"port": gateway.port, "address": "node-held"}
    command = [*node, str(FOLDER / "peer.js"), "dismissed", json.dumps(given)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: ask(gateway, f"{API}?address=node-held")["total"] == 1)
        wait_until(lambda: only(gateway, "address=node-held")["credit"] == 7)
        assert only(gateway, "address=node-held")["clientId"] == "node-client"
        ask(gateway, f"{API}?address=node-held&reason=rest", "DELETE")
        told = json.loads(process.communicate(timeout=SECONDS)[0])
    assert told["condition"] == "amqp:connection:forced"
    assert "closed by an operator: rest" in told["description"]


def test_a_consumer_alone_is_detached_and_its_connection_goes_on(gateway: ScratchGateway) -> None:
    with connected(gateway) as connection:
        receiver = connection.create_receiver("lone", credit=1)
        wait_until(lambda: ask(gateway, "/api/v1/consumers?queue=lone")["total"] == 1)
        (consumer,) = ask(gateway, "/api/v1/consumers?queue=lone")["items"]
        path = f"/api/v1/consumers/{consumer['id']}"
        assert ask(gateway, path + "?reason=enough", "DELETE") == {"closed": 1}
        with pytest.raises(LinkDetached, match="closed by an operator: enough"):
            receiver.receive(timeout=SECONDS)
        assert gateway.request("DELETE", path)[0] == 404
        connection.create_sender("lone").send(Message(body="goes on"))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stomp_consumer_alone_is_told_by_an_error(gateway: ScratchGateway, version: str) -> None:
    address = f"stomp-lone-{version}"
    client = Stomp(gateway.stomp_port, version, address)
    (consumer,) = ask(gateway, f"/api/v1/consumers?queue={address}")["items"]
    assert ask(gateway, f"/api/v1/consumers/{consumer['id']}", "DELETE") == {"closed": 1}
    assert client.read()[0] == "ERROR"
    if version == "1.2":
        with pytest.raises(EOFError):
            client.read()
    else:
        client.write("SEND\ndestination:other\nreceipt:x\n\n")
        assert client.read()[0] == "RECEIPT"
    client.close()
    assert ask(gateway, f"/api/v1/consumers?queue={address}")["total"] == 0


def test_filters_order_and_pages(gateway: ScratchGateway) -> None:
    clients = [Stomp(gateway.stomp_port, "1.2", "paged") for _ in range(5)]
    clients[3].send("elsewhere", b"x" * 5000, receipt="r")
    assert clients[3].read()[0] == "RECEIPT"
    every = ask(gateway, f"{API}?address=paged")
    assert (every["total"], every["cursor"]) == (5, None)
    ids = [one["id"] for one in every["items"]]
    assert ids == sorted(ids, key=lambda name: int(name.rpartition("-")[2]))
    seen, cursor = [], ""
    while True:
        part = ask(gateway, f"{API}?address=paged&limit=2{cursor}")
        assert part["total"] == 5
        seen += [one["id"] for one in part["items"]]
        if part["cursor"] is None:
            break
        cursor = f"&cursor={part['cursor']}"
    assert seen == ids
    assert ask(gateway, f"{API}?address=paged&sort=-bytesIn")["items"][0]["id"] == ids[3]
    remote = every["items"][2]["remote"]
    assert only(gateway, f"remote={remote}")["id"] == ids[2]
    assert ask(gateway, f"{API}?address=paged&user=nobody")["total"] == 0
    for wrong in ("sort=size", "protocol=mqtt", "limit=0", "cursor=zzz", "limit=5000"):
        assert gateway.request("GET", f"{API}?{wrong}")[0] == 422, wrong
    assert gateway.request("DELETE", API)[0] == 422
    for client in clients:
        client.close()


def test_the_log_tells_who_came_and_why_they_left(tmp_path: Path) -> None:
    gateway = ScratchGateway(tmp_path)
    add_user(gateway, "ann", "se:cret")
    with gateway:
        good = StompPeer(gateway.stomp_port, ("ann", "se:cret"))
        good.write("DISCONNECT\nreceipt:bye\n\n")
        assert good.read()[0] == "RECEIPT"
        good.close()
        cut = StompPeer(gateway.stomp_port, ("ann", "se:cret"))
        cut.close()
        bad = StompPeer(gateway.stomp_port, ("ann", "wrong-passcode"))
        assert bad.greeting[0] == "ERROR"
        bad.close()
        with pytest.raises(Exception, match=r"(?i)auth"):
            BlockingConnection(
                f"{HOST}:{gateway.port}", user="ann", password="other-wrong", timeout=SECONDS
            )
        connection = BlockingConnection(
            f"{HOST}:{gateway.port}", user="ann", password="se:cret", timeout=SECONDS
        )
        connection.close()
        wait_until(lambda: len(lines(gateway, "connection.closed")) == 5)
    closed = [
        (one["protocol"].split()[0], one["cause"]) for one in lines(gateway, "connection.closed")
    ]
    assert sorted(closed) == [
        ("AMQP", "client-closed"),
        ("AMQP", "login-refused"),
        ("STOMP", "client-closed"),
        ("STOMP", "cut"),
        ("STOMP", "login-refused"),
    ]
    assert [one["user"] for one in lines(gateway, "login.accepted")] == ["ann"] * 3
    assert len(lines(gateway, "login.refused")) == 2
    assert len(lines(gateway, "connection.opened")) == 5
    text = gateway.log.read_text()
    assert "se:cret" not in text
    assert "wrong-passcode" not in text
    assert "other-wrong" not in text
