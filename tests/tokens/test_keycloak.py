"""Tokens of a real Keycloak where its archive can be had; else the lane is skipped by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.trial.scratch import ScratchGateway
from tests.gateway.stomp_peer import StompPeer
from tests.tokens.keycloak import AUDIENCE, VERSION, Keycloak, archive
from tests.tokens.test_live import asked

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(700)]


@pytest.fixture(scope="module")
def keycloak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keycloak]:
    zipped = archive()
    if zipped is None:
        pytest.skip(f"Maven has no keycloak-quarkus-dist {VERSION}; see tests/tokens/keycloak.py")
    one = Keycloak(zipped, tmp_path_factory.mktemp("keycloak"))
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, keycloak: Keycloak
) -> Iterator[ScratchGateway]:
    folder: Path = tmp_path_factory.mktemp("gateway")
    settings = [
        f"tokens.shop.issuer='{keycloak.issuer}'",
        f"tokens.shop.audience='{AUDIENCE}'",
        "tokens.shop.user-claim='preferred_username'",
        "tokens.shop.role-claims='realm_access.roles'",
        "tokens.shop.role-prefix='sluicegate.'",
        "tokens.shop.required-claims={azp = 'till'}",
    ]
    with ScratchGateway(folder, settings=settings) as one:
        yield one


def test_its_users_come_in_and_go_on(keycloak: Keycloak, gateway: ScratchGateway) -> None:
    peer = StompPeer(gateway.stomp_port, ("ann", keycloak.token()))
    assert peer.greeting[0] == "CONNECTED", peer.greeting
    peer.send("$token", keycloak.token().encode(), "new")
    assert peer.read()[1]["receipt-id"] == "new"
    mine = {"connection": peer.greeting[1]["session"]}
    status, said = asked(gateway, "/api/v1/token", keycloak.token(), method="POST", body=mine)
    assert (status, said["roles"]) == (200, ["view"])


def test_a_token_that_was_changed_does_not(keycloak: Keycloak, gateway: ScratchGateway) -> None:
    head, body, signature = keycloak.token().split(".")
    for bad in (f"{head}.{body}.{signature[:-8]}AAAAAAAA", f"{head}.{body[:-4]}AAAA.{signature}"):
        assert StompPeer(gateway.stomp_port, ("ann", bad)).greeting[0] == "ERROR"
    assert StompPeer(gateway.stomp_port, ("bob", keycloak.token())).greeting[0] == "ERROR"
