"""stompjs, the client for browsers and Node, over a stream socket, in each version."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import Any

import pytest

from gateway.trial.scratch import ScratchGateway
from tests.interop.node import STOMPJS, NoNodeError, install
from tests.interop.support import queue, wait_until

# One worker, for one installation.
pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("stompjs"), pytest.mark.timeout(180)]

VERSIONS = ["1.0", "1.1", "1.2"]
THREE = ["first", "second", "third"]


@pytest.fixture(scope="module")
def node() -> list[str]:
    try:
        return install(STOMPJS)
    except NoNodeError as error:
        pytest.fail(str(error))


def perform(node: list[str], gateway: ScratchGateway, scenario: str, **given: Any) -> Any:
    """Play one scenario of `stompjs/peer.js` and return what it saw."""
    given["port"] = gateway.stomp_port
    if gateway.certificate is not None:
        given["certificate"] = str(gateway.certificate)
    ended = subprocess.run(
        [*node, str(STOMPJS / "peer.js"), scenario],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return json.loads(ended.stdout)


@pytest.fixture(params=VERSIONS)
def play(
    request: pytest.FixtureRequest, node: list[str], shared: ScratchGateway, address: str
) -> Any:
    """A function that plays a scenario in one version of the protocol."""
    version = request.param

    def played(scenario: str, **more: Any) -> Any:
        seen = perform(node, shared, scenario, version=version, address=address, **more)
        assert seen["version"] == version
        return seen

    played.version = version  # type: ignore[attr-defined]
    return played


def test_a_thousand_are_received_in_order_and_acknowledged(
    play: Any, shared: ScratchGateway, address: str
) -> None:
    assert play("pipeline", count=1000)["numbers"] == list(range(1000))
    wait_until(lambda: queue(shared, address)["messageCount"] == 0)
    assert queue(shared, address)["messagesAcknowledged"] == 1000


def test_several_that_were_queued_are_read_one_by_one(
    play: Any, shared: ScratchGateway, address: str
) -> None:
    seen = play("queued", bodies=THREE, acked=1)
    assert (seen["bodies"], seen["more"]) == (THREE, 0)
    wait_until(lambda: queue(shared, address)["deliveringCount"] == 0)
    assert queue(shared, address)["messageCount"] == 2


def test_any_bytes_arrive_as_they_were_between_others(play: Any) -> None:
    bodies = [b"before", b"\0", bytes(range(256)), b"\n\n\0\n", bytes(range(256)) * 4096, b"after"]
    coded = [base64.b64encode(body).decode() for body in bodies]
    assert play("bytes", bodies=coded)["bodies"] == coded


def test_headers_arrive(play: Any) -> None:
    headers = {"colour": "grün", "priority": "7", "correlation-id": "c", "persistent": "true"}
    if play.version == "1.2":  # to 1.1 stompjs writes values without escapes
        headers |= {"nasty": "c:d\\e\nf"}
    seen = play("headers", headers=headers)
    assert {name: seen["headers"][name] for name in headers} == headers
    assert seen["headers"]["expires"] == "0"
    assert int(seen["headers"]["timestamp"]) > 1_600_000_000_000


def test_what_is_not_acknowledged_comes_again_marked(
    node: list[str], shared: ScratchGateway, address: str
) -> None:
    for version in ("1.1", "1.2"):
        seen = perform(node, shared, "nack", version=version, address=address)
        assert seen["redelivered"] == ["false", "true"]
    assert queue(shared, address)["messageCount"] == 0


def test_a_transaction_happens_whole_or_not_at_all(play: Any) -> None:
    seen = play("transaction", bodies=THREE)
    assert (seen["bodies"], seen["again"], seen["last"]) == (THREE, THREE, "last")


def test_heart_beats_keep_a_connection(
    node: list[str], shared: ScratchGateway, address: str
) -> None:
    for version in ("1.1", "1.2"):
        seen = perform(node, shared, "beats", version=version, address=address, beat=500)
        assert seen["beats"] >= 2


def test_a_wrong_password_is_told(node: list[str], guarded: ScratchGateway, address: str) -> None:
    for version in VERSIONS:
        wrong = {"login": "ann", "passcode": "wrong"}
        seen = perform(node, guarded, "refused", version=version, address=address, login=wrong)
        assert seen["message"]
        good = {"login": "ann", "passcode": "se:cret"}
        seen = perform(
            node,
            guarded,
            "queued",
            version=version,
            address=address,
            login=good,
            bodies=THREE,
            acked=0,
        )
        assert len(seen["bodies"]) >= 3
