"""Each permission, with real clients of each protocol and version: allowed, and refused by name.

Allowed is shown by users who have what a row needs and nothing else; refused by users who have all
but one permission. Each test runs over TCP and over TLS, stomp.py over WebSocket as well.
"""

from __future__ import annotations

import itertools
import queue as queues
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import pytest
import stomp
from proton import Message, symbol
from proton.reactor import Copy, DurableSubscription, LinkOption
from proton.utils import LinkDetached, SendException
from stomp.exception import NotConnectedException
from websocket import WebSocketConnectionClosedException

from gateway.model.principal import Permission
from gateway.trial.scratch import HOST, ScratchGateway
from gateway.trial.self_signed import KeyPair
from tests.interop.permissions import (
    NOT_FOR_CLIENTS,
    PASSWORD,
    QUEUE,
    ROWS,
    SHOWN_BY,
    TOPIC,
    gateway_with_roles,
)
from tests.interop.support import SECONDS, connected, over_tls

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

_fresh = itertools.count(1)


class Refused(Exception):  # noqa: N818 - an outcome that tests ask for
    """What a client asked for was refused: the protocol's own word, and the text for people."""

    def __init__(self, word: str, text: str) -> None:
        super().__init__(f"{word}: {text}")
        self.word = word
        self.text = text


class Client(Protocol):
    """A connection of a user; each method is a row of `ROWS`, and raises Refused."""

    def play(self, row: str) -> None:
        """Do what a row is about, to its end."""


@pytest.fixture(scope="module")
def roles(
    tmp_path_factory: pytest.TempPathFactory, tls: KeyPair | None
) -> Iterator[ScratchGateway]:
    with gateway_with_roles(tmp_path_factory.mktemp("roles"), tls) as gateway:
        yield gateway


# ---- Proton


class _Topic(LinkOption):
    """Asks for a multicast address."""

    def apply(self, link: Any) -> None:
        terminus = link.target if link.is_sender else link.source
        terminus.capabilities.put_object(symbol("topic"))


class ProtonClient:
    """Proton's blocking client."""

    word = "amqp:unauthorized-access"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def play(self, row: str) -> None:
        try:
            getattr(self, row.replace("-", "_"))()
        except LinkDetached as error:
            raise Refused(error.condition, str(error).replace("\\'", "'")) from None
        except SendException as error:
            raise Refused("rejected", str(error.state)) from None

    def send(self) -> None:
        self._connection.create_sender(QUEUE).send(Message(body="x"))

    def consume(self) -> None:
        self._connection.create_receiver(QUEUE).close()

    def browse(self) -> None:
        self._connection.create_receiver(QUEUE, options=[Copy()]).close()

    def make_address(self) -> None:
        sender = self._connection.create_sender(f"made.{next(_fresh)}", options=[_Topic()])
        sender.send(Message(body="x"))

    def make_queue(self) -> None:
        self._connection.create_sender(f"made.{next(_fresh)}").send(Message(body="x"))

    def subscribe(self) -> None:
        self._connection.create_receiver(TOPIC, options=[_Topic()]).close()

    def subscribe_durably(self) -> None:
        name = f"sub-{next(_fresh)}"
        options = [_Topic(), DurableSubscription()]
        self._connection.create_receiver(TOPIC, name=name, options=options).detach()

    def unsubscribe(self) -> None:
        name = f"sub-{next(_fresh)}"
        options = [_Topic(), DurableSubscription()]
        receiver = self._connection.create_receiver(TOPIC, name=name, options=options)
        receiver.close()
        self._told(receiver)

    def temporary(self) -> None:
        receiver = self._connection.create_receiver(None, dynamic=True)
        address = receiver.link.remote_source.address
        self._connection.create_sender(address).send(Message(body="x"))
        receiver.receive(timeout=SECONDS)
        receiver.accept()
        receiver.close()

    @staticmethod
    def _told(receiver: Any) -> None:
        condition = receiver.link.remote_condition
        if condition is not None:
            raise Refused(condition.name, condition.description)


@contextmanager
def proton(gateway: ScratchGateway, user: str) -> Iterator[Client]:
    with connected(gateway, user=user, password=PASSWORD, sasl_enabled=True) as connection:
        yield ProtonClient(connection)


# ---- stomp.py


class StompClient(stomp.ConnectionListener):
    """stomp.py, in one version."""

    word = "not-authorized"

    def __init__(self, connection: Any, version: str, user: str) -> None:
        self._connection = connection
        self._version = version
        self._came: queues.Queue[tuple[str, Any]] = queues.Queue()
        connection.set_listener("", self)
        connection.connect(user, PASSWORD, wait=True, headers={"client-id": f"c-{next(_fresh)}"})

    def on_receipt(self, frame: Any) -> None:
        self._came.put(("RECEIPT", frame))

    def on_error(self, frame: Any) -> None:
        self._came.put(("ERROR", frame))

    def on_message(self, frame: Any) -> None:
        self._came.put(("MESSAGE", frame))

    def play(self, row: str) -> None:
        getattr(self, row.replace("-", "_"))()

    def _wait(self, command: str) -> Any:
        while True:
            name, frame = self._came.get(timeout=SECONDS)
            if name == "ERROR":
                raise Refused(frame.headers["error-code"], frame.body)
            if name == command:
                return frame

    def _send(self, destination: str, **headers: str) -> None:
        self._connection.send(destination, "x", receipt=f"r-{next(_fresh)}", **headers)
        self._wait("RECEIPT")

    def _subscribe(self, destination: str, **headers: str) -> None:
        asked = {"receipt": f"r-{next(_fresh)}", **headers}
        self._connection.subscribe(destination, id="s", ack="client", headers=asked)
        self._wait("RECEIPT")

    def send(self) -> None:
        self._send(QUEUE)

    def consume(self) -> None:
        self._subscribe(QUEUE)

    def browse(self) -> None:
        self._subscribe(QUEUE, browser="true")

    def make_address(self) -> None:
        self._send(f"/topic/made.{next(_fresh)}")

    def make_queue(self) -> None:
        self._send(f"/queue/made.{next(_fresh)}")

    def subscribe(self) -> None:
        self._subscribe(f"/topic/{TOPIC}")

    def subscribe_durably(self) -> None:
        self._subscribe(f"/topic/{TOPIC}", **{"durable-subscription-name": "mine"})

    def unsubscribe(self) -> None:
        durable = {"durable-subscription-name": "mine"}
        self._subscribe(f"/topic/{TOPIC}", **durable)
        headers = {"receipt": f"r-{next(_fresh)}", **durable}
        self._connection.unsubscribe(id="s", headers=headers)
        self._wait("RECEIPT")

    def temporary(self) -> None:
        self._subscribe("/temp-queue/mine")
        self._send("/temp-queue/mine")
        self._wait("MESSAGE")


_VERSIONS = {
    "1.0": stomp.StompConnection10,
    "1.1": stomp.StompConnection11,
    "1.2": stomp.StompConnection12,
}


@contextmanager
def stomp_py(gateway: ScratchGateway, user: str, version: str) -> Iterator[Client]:
    connection = _VERSIONS[version]([(HOST, gateway.stomp_port)])
    over_tls(connection, gateway)
    try:
        yield StompClient(connection, version, user)
    finally:
        # Who is refused is cut, at whatever moment the client says good-bye.
        with suppress(NotConnectedException, WebSocketConnectionClosedException, OSError):
            connection.disconnect()


@contextmanager
def web_stomp(gateway: ScratchGateway, user: str) -> Iterator[Client]:
    where = [(HOST, gateway.port)]
    connection = stomp.WSStompConnection(where)
    if gateway.certificate is not None:
        connection.set_ssl(for_hosts=where, ca_certs=str(gateway.certificate))
    try:
        yield StompClient(connection, "1.2", user)
    finally:
        # Who is refused is cut, at whatever moment the client says good-bye.
        with suppress(NotConnectedException, WebSocketConnectionClosedException, OSError):
            connection.disconnect()


@contextmanager
def client(gateway: ScratchGateway, how: str, user: str) -> Iterator[Client]:
    """A connection by protocol, version and carrier."""
    match how.split():
        case ["AMQP"]:
            made: Any = proton(gateway, user)
        case ["WebSocket", "STOMP"]:
            made = web_stomp(gateway, user)
        case ["STOMP", version]:
            made = stomp_py(gateway, user, version)
    with made as one:
        yield one


HOW = ["AMQP", "STOMP 1.0", "STOMP 1.1", "STOMP 1.2", "WebSocket STOMP"]


def test_every_permission_has_a_row() -> None:
    """A new one is shown by a row, or is said to be nothing that clients can ask for."""
    for permission in Permission:
        assert bool(SHOWN_BY[permission]) != (permission in NOT_FOR_CLIENTS), permission


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("row", ROWS)
def test_what_a_row_needs_is_enough(roles: ScratchGateway, how: str, row: str) -> None:
    with client(roles, how, f"for-{row}") as one:
        one.play(row)


_DENIED = [(permission, row) for permission, rows in SHOWN_BY.items() for row in rows]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("permission", "row"), _DENIED)
def test_without_one_permission_it_is_refused_by_its_name(
    roles: ScratchGateway, how: str, permission: Permission, row: str
) -> None:
    user = f"no-{permission.value}"
    with client(roles, how, user) as one, pytest.raises(Refused) as raised:
        one.play(row)
    assert raised.value.word in (ProtonClient.word, StompClient.word)
    text = raised.value.text
    assert f"User '{user}'" in text
    assert f"'{permission.value}'" in text or f"{permission.value} in [security-settings" in text


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("permission", sorted(NOT_FOR_CLIENTS, key=lambda one: one.value))
def test_what_only_the_api_asks_for_keeps_no_client_from_anything(
    roles: ScratchGateway, how: str, permission: Permission
) -> None:
    with client(roles, how, f"no-{permission.value}") as one:
        one.play("temporary")
        one.play("make-queue")


@pytest.mark.parametrize("how", HOW)
def test_who_may_not_manage_is_not_told_who_may(roles: ScratchGateway, how: str) -> None:
    with client(roles, how, "for-send") as one, pytest.raises(Refused) as raised:
        one.play("consume")
    text = raised.value.text
    assert f"User 'for-send' may not consume from '{QUEUE}'" in text
    assert "permission 'consume'" in text
    assert [
        hint
        for hint in ("no-", "for-consume", "security-settings", "gate.toml")
        if hint in text.replace("'for-send'", "")
    ] == []
