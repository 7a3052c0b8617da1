"""rhea, the client for Node, against the gateway: both directions, each outcome, odd sizes.

Each test runs twice more: over TCP, and over WebSocket.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from gateway.trial.scratch import ScratchGateway
from tests.interop.node import FOLDER, NoNodeError, install
from tests.interop.support import queue, wait_until

# One worker, for one installation.
pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("rhea"), pytest.mark.timeout(180)]

#: How rhea comes to the gateway; what it offers over WebSocket is what Azure's libraries offer.
WAYS = [None, {"path": "/", "protocols": ["binary", "AMQPWSB10", "amqp"]}]
#: What else it may be configured with.
OFFERS = [
    {"path": "/amqp", "protocols": ["amqp"]},
    {"path": "/$servicebus/websocket", "protocols": ["AMQPWSB10"]},
    {"path": "/ws", "protocols": []},
]


@pytest.fixture(scope="module")
def node() -> list[str]:
    try:
        return install()
    except NoNodeError as error:
        pytest.fail(str(error))


@pytest.fixture(params=WAYS, ids=["tcp", "websocket"])
def way(request: pytest.FixtureRequest) -> Any:
    """One of `WAYS`."""
    return request.param


@pytest.fixture
def play(node: list[str], shared: ScratchGateway, address: str, way: Any) -> Any:
    """A function that plays one scenario of `rhea/peer.js` and returns what it saw."""

    def perform(scenario: str, **more: Any) -> Any:
        certificate = {"certificate": str(shared.certificate)} if shared.certificate else {}
        given = {"port": shared.port, "address": address, "websocket": way, **certificate, **more}
        command = [*node, str(FOLDER / "peer.js"), scenario, json.dumps(given)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""
        return json.loads(ended.stdout)

    return perform


def test_a_pipeline_both_ways(play: Any, shared: ScratchGateway, address: str) -> None:
    seen = play("pipeline", count=2500)
    assert (seen["sent"], seen["accepted"], seen["credit"]) == (2500, 2500, 1000)
    assert seen["numbers"] == list(range(2500))
    wait_until(lambda: queue(shared, address)["messageCount"] == 0)


def test_every_field_arrives(play: Any) -> None:
    seen = play("properties")
    assert seen.pop("creation_time") == "2023-11-14T22:13:20.123Z"
    assert seen.pop("application_properties") == {
        "text": "grün",
        "yes": True,
        "small": 200,
        "long": -5,
        "real": 0.5,
        "when": "2023-11-14T22:13:20.123Z",
    }
    assert seen.pop("message_annotations") == {"x-opt-mine": "kept"}
    assert seen == {
        "durable": True,
        "priority": 7,
        "ttl": 60000,
        "first_acquirer": True,
        "message_id": "id-1",
        "user_id": "ann",
        "to": "elsewhere",
        "subject": "subject",
        "reply_to": "answers",
        "correlation_id": "correlation",
        "content_type": "application/json",
        "content_encoding": "identity",
        "group_id": "group",
        "group_sequence": 3,
        "reply_to_group_id": "other group",
        "body": ['{"a":', "1}"],
    }


def test_bodies_of_every_kind_arrive(play: Any) -> None:
    seen = play("bodies")
    assert seen == [
        "text",
        12,
        True,
        None,
        [1, "two"],
        {"a": {"b": [1]}},
        {"section": [1, "two"]},
    ]


def test_each_outcome_has_its_effect(play: Any, shared: ScratchGateway, address: str) -> None:
    seen = play("outcomes")
    assert seen["counts"] == [0, 0, 1]
    assert seen["annotations"]["x-opt-ORIG-ADDRESS"] == address
    assert queue(shared, address)["messageCount"] == 0


def test_credit_and_drain(play: Any, shared: ScratchGateway, address: str) -> None:
    seen = play("drain")
    assert seen == {"bodies": [0, 1, 2, 3, 4], "portions": [3, 5], "credit": 0}
    wait_until(lambda: queue(shared, address)["messageCount"] == 0)


def test_five_megabytes_in_small_frames(play: Any) -> None:
    assert play("large") == {"size": 5 << 20, "same": True}


def test_settled_by_both_at_once(play: Any) -> None:
    assert play("presettled") == {"bodies": list(range(20))}


def test_a_request_is_answered_at_a_dynamic_address(play: Any) -> None:
    assert play("request") == {"answer": "QUESTION", "correlation": "c-1"}


def test_a_durable_subscription_keeps_what_came_meanwhile(play: Any) -> None:
    assert play("subscription") == {"bodies": [0, 1, 2]}


def test_plain_takes_the_users_of_the_file_only(play: Any, guarded: ScratchGateway) -> None:
    ann = {"port": guarded.port, "user": "ann"}
    if guarded.certificate is not None:
        ann["certificate"] = str(guarded.certificate)
    assert play("login", password="se:cret", **ann) == {"open": True}
    refused = play("login", password="secret", **ann)
    assert not refused["open"]
    assert "authenticat" in refused["error"].lower() or "unauthorized" in refused["error"]


@pytest.mark.parametrize("offer", OFFERS, ids=lambda offer: "-".join(offer["protocols"]) or "none")
@pytest.mark.parametrize("way", [None], ids=["websocket"])
def test_other_subprotocols_and_paths(
    play: Any, guarded: ScratchGateway, offer: dict[str, Any]
) -> None:
    assert play("presettled", websocket=offer) == {"bodies": list(range(20))}
    # A user without a password: SASL ANONYMOUS.
    assert play("login", user="anybody", websocket=offer) == {"open": True}
    refused = play("login", user="anybody", websocket=offer, port=guarded.port)
    assert not refused["open"]


def test_a_quiet_connection_is_kept_alive(play: Any) -> None:
    assert play("idle")["after"] >= 1500


def test_a_refusal_costs_its_link_only(play: Any) -> None:
    seen = play("refusals")["seen"]
    assert seen == ["amqp:invalid-field", "amqp:invalid-field"]


def test_a_selector_takes_and_a_browser_sees_what_it_says(
    play: Any, shared: ScratchGateway, address: str
) -> None:
    assert play("selecting") == {"shown": [3, 5, 7, 9], "taken": [3, 5, 7, 9]}
    wait_until(lambda: queue(shared, address)["messageCount"] == 6)


def test_a_stream_is_replayed_and_gone_on_with(
    play: Any, shared: ScratchGateway, address: str
) -> None:
    made = {"name": address, "address": address}
    assert shared.request("POST", "/api/v1/streams", made)[0] == 201
    seen = play("replay", count=20, half=7)
    assert seen == {"seen": [[number, number] for number in range(20)], "echoed": 7}
    assert queue(shared, address)["messageCount"] == 20
