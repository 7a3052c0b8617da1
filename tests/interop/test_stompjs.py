"""stompjs, the client for browsers and Node, by stream sockets and WebSocket, in each version."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from typing import Any

import pytest

from gateway.trial.scratch import ScratchGateway
from tests.interop.node import STOMPJS, NoNodeError, install, major
from tests.interop.support import queue, wait_until

# One worker, for one installation.
pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("stompjs"), pytest.mark.timeout(180)]

VERSIONS = ["1.0", "1.1", "1.2"]
THREE = ["first", "second", "third"]
#: How stompjs comes to the gateway: by a stream socket, or by WebSocket.
WAYS = [None, {}]
#: Kinds of frames by what `stompjs/peer.js` calls them; `bare` offers no subprotocol.
FRAMES = [
    {"bare": True},
    {"bare": True, "binary": True},
    {"binary": True, "path": "/stomp"},
    {"split": True, "path": "/"},
]
BUILTIN_NODE = 22


@pytest.fixture(scope="module")
def node() -> list[str]:
    try:
        return install(STOMPJS)
    except NoNodeError as error:
        pytest.fail(str(error))


def perform(node: list[str], gateway: ScratchGateway, scenario: str, **given: Any) -> Any:
    """Play one scenario of `stompjs/peer.js` and return what it saw."""
    given["port"] = gateway.port if given.get("websocket") is not None else gateway.stomp_port
    extra = {}
    if gateway.certificate is not None:
        given["certificate"] = str(gateway.certificate)
        # Node's own WebSocket can be told in no other way what to trust.
        extra["NODE_EXTRA_CA_CERTS"] = given["certificate"]
    ended = subprocess.run(
        [*node, str(STOMPJS / "peer.js"), scenario],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | extra,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return json.loads(ended.stdout)


@pytest.fixture(params=WAYS, ids=["stream", "websocket"])
def way(request: pytest.FixtureRequest) -> dict[str, Any] | None:
    """One of `WAYS`."""
    chosen: dict[str, Any] | None = request.param
    return chosen


@pytest.fixture(params=VERSIONS)
def play(
    request: pytest.FixtureRequest,
    node: list[str],
    shared: ScratchGateway,
    address: str,
    way: dict[str, Any] | None,
) -> Any:
    """A function that plays a scenario in one version of the protocol."""
    version = request.param

    def played(scenario: str, **more: Any) -> Any:
        given = {"version": version, "address": address, "websocket": way, **more}
        seen = perform(node, shared, scenario, **given)
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


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_stream_is_replayed_and_gone_on_with(
    play: Any, shared: ScratchGateway, address: str, ack: str
) -> None:
    made = {"name": address, "address": address}
    assert shared.request("POST", "/api/v1/streams", made)[0] == 201
    bodies = [f"message {number}" for number in range(20)]
    seen = play("replay", bodies=bodies, counts=[7, 13], ack=ack)
    assert seen["seen"] == [[number, body] for number, body in enumerate(bodies)]
    assert queue(shared, address)["messageCount"] == 20


def test_any_bytes_arrive_as_they_were_between_others(
    play: Any, way: dict[str, Any] | None
) -> None:
    # By WebSocket 1 MiB is the most that a message may be, its headers included.
    large = bytes(range(256)) * (4096 if way is None else 4000)
    bodies = [b"before", b"\0", bytes(range(256)), b"\n\n\0\n", large, b"after"]
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
    node: list[str], shared: ScratchGateway, address: str, way: dict[str, Any] | None
) -> None:
    for version in ("1.1", "1.2"):
        given = {"version": version, "address": address, "beat": 500, "websocket": way}
        assert perform(node, shared, "beats", **given)["beats"] >= 2


def test_a_wrong_password_is_told(
    node: list[str], guarded: ScratchGateway, address: str, way: dict[str, Any] | None
) -> None:
    for version in VERSIONS:
        given = {"version": version, "address": address, "websocket": way}
        wrong = {"login": "ann", "passcode": "wrong"}
        assert perform(node, guarded, "refused", login=wrong, **given)["message"]
        good = {"login": "ann", "passcode": "se:cret"}
        seen = perform(node, guarded, "queued", login=good, bodies=THREE, acked=0, **given)
        assert len(seen["bodies"]) >= 3


@pytest.mark.parametrize("frames", FRAMES, ids="-".join)
def test_large_text_and_bytes_in_frames_of_every_kind(
    node: list[str], shared: ScratchGateway, address: str, frames: dict[str, Any]
) -> None:
    for version in VERSIONS:
        given = {"version": version, "address": address, "websocket": frames}
        text = ["grün " * 40_000, "after"]
        seen = perform(node, shared, "crossing", bodies=text, **given)
        assert (seen["in"], seen["out"], seen["version"]) == (text, text, version)
        coded = [base64.b64encode(bytes(range(256)) * 800).decode()]
        assert perform(node, shared, "bytes", bodies=coded, **given)["bodies"] == coded


def test_what_one_sends_by_tcp_another_has_by_websocket(
    node: list[str], shared: ScratchGateway, address: str
) -> None:
    for version in VERSIONS:
        given = {"version": version, "address": address, "bodies": THREE, "websocket": {}}
        seen = perform(node, shared, "crossing", **given)
        assert (seen["in"], seen["out"]) == (THREE, THREE)


@pytest.mark.parametrize("binary", [False, True])
def test_a_websocket_that_cuts_texts_at_a_zero_byte(
    node: list[str], shared: ScratchGateway, address: str, *, binary: bool
) -> None:
    """React Native's does: what stands behind the first frame of a message would be lost."""
    numbers = [str(number) for number in range(200)]
    for version in VERSIONS:
        given = {"version": version, "address": address, "bodies": numbers}
        seen = perform(node, shared, "crossing", **given, websocket={"cut": True, "binary": binary})
        assert (seen["in"], seen["out"]) == (numbers, numbers)


def test_the_websocket_of_node_itself(
    node: list[str], shared: ScratchGateway, address: str
) -> None:
    if major(node) < BUILTIN_NODE:
        pytest.skip(f"Node {BUILTIN_NODE} or later has a WebSocket of its own; this is older")
    for frames in ({"builtin": True}, {"builtin": True, "bare": True, "binary": True}):
        given = {"version": "1.2", "address": address, "bodies": THREE, "websocket": frames}
        seen = perform(node, shared, "crossing", **given)
        assert (seen["in"], seen["out"]) == (THREE, THREE)
