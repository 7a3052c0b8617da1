"""Permissions with Qpid JMS, rhea and stompjs: what a row needs is enough, and less is refused."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.model.principal import Permission
from gateway.trial.scratch import ScratchGateway
from gateway.trial.self_signed import KeyPair
from tests.interop.node import FOLDER, STOMPJS, NoNodeError
from tests.interop.node import install as install_node
from tests.interop.permissions import PASSWORD, QUEUE, SHOWN_BY, TOPIC, gateway_with_roles
from tests.interop.qpid_jms import NoJmsError
from tests.interop.qpid_jms import install as install_jms
from tests.interop.test_qpid_jms import Peer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

#: What each of these clients does; JMS closes a link to unsubscribe, and stompjs has no such word.
JMS_ROWS = [
    "send", "consume", "browse", "make-address", "make-queue", "subscribe", "subscribe-durably",
    "unsubscribe", "temporary",
]  # fmt: skip
NODE_ROWS = ["send", "consume", "browse", "make-address", "make-queue", "subscribe", "temporary"]
_fresh = itertools.count(1)


@pytest.fixture(scope="module")
def roles(
    tmp_path_factory: pytest.TempPathFactory, tls: KeyPair | None
) -> Iterator[ScratchGateway]:
    with gateway_with_roles(tmp_path_factory.mktemp("roles"), tls) as gateway:
        yield gateway


def address_of(row: str) -> str:
    if row.startswith("make"):
        return f"made.{next(_fresh)}"
    return TOPIC if "subscribe" in row else QUEUE


def denials(rows: list[str]) -> list[tuple[str, str]]:
    """Return (permission, row): each permission by the first of these rows that needs it."""
    found = []
    for permission in Permission:
        row = next((one for one in rows if one in SHOWN_BY[permission]), None)
        if row is not None:
            found.append((permission.value, row))
    return found


@pytest.fixture(scope="module")
def jms(roles: ScratchGateway) -> Iterator[Peer]:
    try:
        command = install_jms()
    except NoJmsError as error:
        pytest.fail(str(error))
    made = Peer(command, roles)
    yield made
    made.end()


def play_jms(jms: Peer, user: str, row: str) -> str:
    words = ",".join([user, PASSWORD, row, address_of(row)])
    return str(jms.play("permitted", words))


@pytest.mark.xdist_group("jms")
@pytest.mark.parametrize("row", JMS_ROWS)
def test_jms_does_what_its_role_allows(jms: Peer, row: str) -> None:
    assert play_jms(jms, f"for-{row}", row) == "done"


@pytest.mark.xdist_group("jms")
@pytest.mark.parametrize(("permission", "row"), denials(JMS_ROWS))
def test_jms_is_told_what_is_missing(jms: Peer, permission: str, row: str) -> None:
    told = play_jms(jms, f"no-{permission}", row)
    assert f"User 'no-{permission}'" in told
    assert permission in told.partition("may not")[2]


@pytest.fixture(scope="module")
def node() -> list[str]:
    try:
        install_node(STOMPJS)
        return install_node()
    except NoNodeError as error:
        pytest.fail(str(error))


def run(command: list[str], given: dict[str, Any], gateway: ScratchGateway) -> Any:
    if gateway.certificate is not None:
        given["certificate"] = str(gateway.certificate)
    text = json.dumps(given)
    ended = subprocess.run(
        [*command, text],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"NODE_EXTRA_CA_CERTS": given.get("certificate", "")},
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def play_rhea(
    node: list[str], gateway: ScratchGateway, user: str, row: str, *, websocket: bool
) -> Any:
    given = {
        "port": gateway.port, "user": user, "password": PASSWORD, "row": row,
        "address": address_of(row), "websocket": websocket,
    }  # fmt: skip
    return run([*node, str(FOLDER / "permissions.js")], given, gateway)


@pytest.mark.xdist_group("rhea")
@pytest.mark.parametrize("websocket", [False, True], ids=["stream", "websocket"])
@pytest.mark.parametrize("row", NODE_ROWS)
def test_rhea_does_what_its_role_allows(
    node: list[str],
    roles: ScratchGateway,
    row: str,
    websocket: bool,
) -> None:
    assert play_rhea(node, roles, f"for-{row}", row, websocket=websocket) == {"done": True}


@pytest.mark.xdist_group("rhea")
@pytest.mark.parametrize("websocket", [False, True], ids=["stream", "websocket"])
@pytest.mark.parametrize(("permission", "row"), denials(NODE_ROWS))
def test_rhea_is_told_what_is_missing(
    node: list[str],
    roles: ScratchGateway,
    permission: str,
    row: str,
    websocket: bool,
) -> None:
    told = play_rhea(node, roles, f"no-{permission}", row, websocket=websocket)
    assert told["condition"] == "amqp:unauthorized-access"
    assert permission in told["description"].partition("may not")[2]


def play_stompjs(
    node: list[str], gateway: ScratchGateway, user: str, row: str, version: str
) -> Any:
    name = address_of(row)
    style = {"make-address": "/topic/", "subscribe": "/topic/", "subscribe-durably": "/topic/"}
    address = "/temp-queue/mine" if row == "temporary" else style.get(row, "/queue/") + name
    given = {
        "port": gateway.port, "version": version, "row": row, "address": address,
        "login": {"login": user, "passcode": PASSWORD},
    }  # fmt: skip
    return run([*node, str(STOMPJS / "permissions.js")], given, gateway)


STOMP_ROWS = [*NODE_ROWS, "subscribe-durably"]


@pytest.mark.xdist_group("stompjs")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("row", STOMP_ROWS)
def test_stompjs_does_what_its_role_allows(
    node: list[str], roles: ScratchGateway, row: str, version: str
) -> None:
    assert play_stompjs(node, roles, f"for-{row}", row, version) == {"done": True}


@pytest.mark.xdist_group("stompjs")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(("permission", "row"), denials(STOMP_ROWS))
def test_stompjs_is_told_what_is_missing(
    node: list[str], roles: ScratchGateway, permission: str, row: str, version: str
) -> None:
    told = play_stompjs(node, roles, f"no-{permission}", row, version)
    assert told["code"] == "not-authorized"
    assert permission in told["text"].partition("may not")[2]
