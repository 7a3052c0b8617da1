"""PHP's stomp extension against the gateway: several messages queued, bytes, acknowledgements.

The extension reads on behind one frame only when an LF follows its NUL. Where no PHP has the
extension these tests are skipped: it is a system package (`php-cli` and `php-stomp` or alike), and
the environment script has it installed where it may.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from gateway.trial.scratch import HOST, ScratchGateway
from tests.interop.support import connected, queue, wait_until

PEER = Path(__file__).with_name("php") / "peer.php"
ALL_BYTES = bytes(range(256))
BODIES = [b"first", b"second", b"third"]


def has_extension() -> bool:
    """Whether there is a PHP with the stomp extension."""
    php = shutil.which("php")
    if php is None:
        return False
    listed = subprocess.run([php, "-m"], capture_output=True, text=True, check=False, timeout=30)
    return "stomp" in listed.stdout.lower().split()


pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        not has_extension(),
        reason="no PHP with the stomp extension here (Debian: apt-get install php-cli php-stomp)",
    ),
]


def coded(bodies: list[bytes]) -> list[str]:
    return [base64.b64encode(body).decode() for body in bodies]


def plain(bodies: list[str]) -> list[bytes]:
    return [base64.b64decode(body) for body in bodies]


def run(scenario: str, given: dict[str, Any]) -> Any:
    ended = subprocess.run(
        ["php", str(PEER), scenario],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def tls() -> None:
    """Debian's extension is built without TLS."""


@pytest.fixture
def play(shared: ScratchGateway, address: str) -> Any:
    """A function that plays one scenario of `php/peer.php` and returns what it saw."""

    def perform(scenario: str, **more: Any) -> Any:
        given = {"url": f"tcp://{HOST}:{shared.stomp_port}", "destination": address, **more}
        return run(scenario, given)

    return perform


def test_three_that_were_queued_are_read_and_acknowledged(
    play: Any, shared: ScratchGateway, address: str
) -> None:
    assert play("send", bodies=coded(BODIES))["sent"] == [True] * 3
    assert queue(shared, address)["messageCount"] == 3
    seen = play("receive", count=3)
    assert plain([frame["body"] for frame in seen["frames"]]) == BODIES
    assert {frame["command"] for frame in seen["frames"]} == {"MESSAGE"}
    assert seen["silent"]
    facts = queue(shared, address)
    assert (facts["messageCount"], facts["messagesAcknowledged"]) == (0, 3)


def test_five_hundred_that_were_queued_arrive_in_order(
    play: Any, shared: ScratchGateway, address: str
) -> None:
    with connected(shared) as connection:
        sender = connection.create_sender(address)
        for number in range(500):
            sender.send(Message(body=f"m{number}", durable=True))
    seen = play("receive", count=500)
    numbers = [body.decode() for body in plain([frame["body"] for frame in seen["frames"]])]
    assert numbers == [f"m{number}" for number in range(500)]
    wait_until(lambda: queue(shared, address)["messageCount"] == 0)


def test_what_was_not_acknowledged_comes_again(
    play: Any, shared: ScratchGateway, address: str
) -> None:
    play("send", bodies=coded(BODIES))
    seen = play("queued", count=3, acked=[1])
    assert (plain(seen["bodies"]), seen["silent"]) == (BODIES, True)
    wait_until(lambda: queue(shared, address)["deliveringCount"] == 0)
    assert queue(shared, address)["messageCount"] == 2
    frames = play("receive", count=2)["frames"]
    assert plain([frame["body"] for frame in frames]) == [b"first", b"third"]
    assert [frame["headers"]["redelivered"] for frame in frames] == ["true", "true"]


@pytest.mark.parametrize(
    "body",
    [b"", b"\0", ALL_BYTES, b"\n\n\0\n", b"x" * 100_000, ALL_BYTES * 4096],
    ids=["empty", "nul", "all", "like an end", "100 kB", "1 MiB"],
)
def test_any_bytes_arrive_as_they_were_between_others(play: Any, body: bytes) -> None:
    bodies = [b"before", body, b"behind"]
    # With content-length the extension counts; without it a body ends with its first NUL.
    for one in bodies:
        play("send", bodies=coded([one]), headers={"content-length": str(len(one))})
    seen = play("receive", count=3)
    assert plain([frame["body"] for frame in seen["frames"]]) == bodies


def test_headers_arrive(play: Any) -> None:
    headers = {"colour": "green", "priority": "7", "persistent": "true", "correlation-id": "c"}
    play("send", bodies=coded([b"x"]), headers=headers)
    (frame,) = play("receive", count=1)["frames"]
    assert {name: frame["headers"][name] for name in headers} == headers


def test_a_transaction_happens_whole_or_not_at_all(
    play: Any, shared: ScratchGateway, address: str
) -> None:
    seen = play("transaction", bodies=coded(BODIES))
    assert (plain(seen["bodies"]), seen["silent"]) == (BODIES, True)
    assert plain(seen["again"]) == BODIES
    facts = queue(shared, address)
    assert (facts["messageCount"], facts["messagesAcknowledged"]) == (0, 3)


def test_nack_in_the_version_that_has_none_is_told_so(
    play: Any, shared: ScratchGateway, address: str
) -> None:
    play("send", bodies=coded([b"x"]))
    seen = play("nack")
    assert "NACK" in seen["exception"], seen
    assert queue(shared, address)["messageCount"] == 1


def test_a_wrong_password_is_told(guarded: ScratchGateway, address: str) -> None:
    given = {"url": f"tcp://{HOST}:{guarded.stomp_port}", "destination": address}
    for password, good in (("wrong", False), ("se:cret", True)):
        login = {"user": "ann", "password": password, "bodies": coded([b"x"])}
        seen = run("send", given | login)
        assert (seen.get("sent") == [True]) is good, seen
        assert ("exception" in seen) is not good, seen
