"""Limits of what clients have made and open, with the real process; and whose they are."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton.utils import BlockingConnection, LinkDetached

from gateway.security.passwords import hash_password
from gateway.security.users import User, add_user
from gateway.trial.scratch import HOST, ScratchGateway
from tests.gateway.reloading import Live, Start
from tests.gateway.stomp_peer import StompPeer

LIMITS = ("user-max-addresses=4", "user-max-consumers=3", "user-max-links=5")
ANN = ("ann", "tea")


def with_users(folder: Path) -> Path:
    (folder / "data").mkdir()
    text = ""
    for name in ("ann", "ben"):
        text = add_user(text, User(name=name, password=hash_password("tea")))
    (folder / "data" / "users.toml").write_text(text)
    return folder


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ScratchGateway]:
    with ScratchGateway(with_users(tmp_path), settings=LIMITS) as one:
        yield one


def events(gateway: ScratchGateway, name: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in gateway.log.read_text().splitlines() if line[:1] == "{"]
    return [line for line in lines if line["event"] == name]


def sent(gateway: ScratchGateway, where: str, login: tuple[str, str] = ANN) -> dict[str, str]:
    """Send there by STOMP; returns the headers of an ERROR, {} when there is none."""
    peer = StompPeer(gateway.stomp_port, login)
    peer.send(where, b"x", "r")
    command, headers, _ = peer.read()
    peer.close()
    return headers if command == "ERROR" else {}


def test_one_user_makes_so_many_addresses_and_others_make_theirs(gateway: ScratchGateway) -> None:
    for number in range(4):
        assert sent(gateway, f"/queue/a{number}") == {}
    for number in range(20):
        refused = sent(gateway, f"/queue/b{number}")
        assert refused["error-code"] == "too-many"
        assert "user-max-addresses is 4" in refused["message"]
    assert sent(gateway, "/queue/a0") == {}
    assert sent(gateway, "/queue/ben", ("ben", "tea")) == {}
    until = time.monotonic() + 20
    while not events(gateway, "objects.limit_reached") and time.monotonic() < until:
        time.sleep(0.1)
    (told,) = events(gateway, "objects.limit_reached")
    assert (told["user"], told["key"], told["limit"]) == ("ann", "user-max-addresses", 4)
    # Whoever asks whether the gateway is ready needs no login, and learns no names.
    assert "ann" not in json.dumps(gateway.request("GET", "/readyz"))

    gateway.kill()
    gateway.start()
    assert sent(gateway, "/queue/c")["error-code"] == "too-many"
    assert sent(gateway, "/queue/a1") == {}
    assert sent(gateway, "/queue/ben2", ("ben", "tea")) == {}


def test_consumers_of_a_user_count_over_all_connections_and_protocols(
    gateway: ScratchGateway,
) -> None:
    amqp = BlockingConnection(f"{HOST}:{gateway.port}", user="ann", password="tea", timeout=10)
    receivers = [amqp.create_receiver("q", name=name) for name in ("a", "b")]
    first, second = (StompPeer(gateway.stomp_port, ANN) for _ in range(2))
    subscribe = "SUBSCRIBE\nid:1\ndestination:/queue/q\nreceipt:r\n\n"
    first.write(subscribe)
    assert first.read()[0] == "RECEIPT"
    second.write(subscribe)
    command, headers, _ = second.read()
    assert (command, headers["error-code"]) == ("ERROR", "too-many")
    with pytest.raises(LinkDetached, match="user-max-consumers is 3") as refused:
        amqp.create_receiver("q", name="more")
    assert refused.value.condition == "amqp:resource-limit-exceeded"
    receivers.pop().close()
    third = StompPeer(gateway.stomp_port, ANN)
    third.write(subscribe)
    assert third.read()[0] == "RECEIPT"
    for peer in (first, second, third):
        peer.close()
    amqp.close()


def test_links_of_a_user_are_given_back_with_their_connection(gateway: ScratchGateway) -> None:
    for _ in range(3):
        amqp = BlockingConnection(f"{HOST}:{gateway.port}", user="ann", password="tea", timeout=10)
        for number in range(5):
            amqp.create_sender("q", name=f"l{number}")
        with pytest.raises(LinkDetached, match="user-max-links is 5"):
            amqp.create_sender("q", name="more")
        amqp.close()


def test_where_anybody_may_come_a_wrong_password_is_refused_over_stomp(tmp_path: Path) -> None:
    anybody = ["acceptors.stomp.allow-anonymous=true"]
    with ScratchGateway(with_users(tmp_path), settings=anybody) as gateway:
        for login in (("ann", "wrong"), ("nobody", "tea"), ("ann", "")):
            refused = StompPeer(gateway.stomp_port, login)
            assert refused.greeting[0] == "ERROR", login
            refused.close()
        for right in (ANN, None):
            peer = StompPeer(gateway.stomp_port, right)
            assert peer.greeting[0] == "CONNECTED", right
            peer.close()


def test_a_reload_sets_limits_anew_for_what_exists(gateway_process: Start, tmp_path: Path) -> None:
    live = Live(gateway_process, tmp_path, "user-max-queues = 1\n")
    peer = StompPeer(live.gateway.stomp_port)
    peer.send("/queue/a", b"x", "r")
    assert peer.read()[0] == "RECEIPT"
    live.reload("user-max-queues = 2\n")
    peer.send("/queue/b", b"x", "r")
    assert peer.read()[0] == "RECEIPT"
    live.reload("user-max-queues = 1\n")
    peer.send("/queue/a", b"y", "r")
    assert peer.read()[0] == "RECEIPT"
    peer.send("/queue/c", b"x", "r")
    command, headers, _ = peer.read()
    assert (command, headers["error-code"]) == ("ERROR", "too-many")
    assert "has 2 queues" in headers["message"]
    assert "gate.toml\\c1" in headers["message"]  # a colon, as a header has it
    peer.close()
