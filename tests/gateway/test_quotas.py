"""Quotas with the real process: every protocol, what people are told, and a reload."""

from __future__ import annotations

import http.client
import json
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection, LinkDetached

from gateway.management.sink_api import ARROW
from gateway.trial.scratch import HOST, ScratchGateway
from tests.gateway.reloading import Live, Start
from tests.gateway.stomp_peer import StompPeer
from tests.gateway.test_object_limits import ANN, with_users
from tests.gateway.web_tab import Tab
from tests.interop.support import wait_until
from tests.logs import wait_records
from tests.quotas.test_senders import sends
from tests.sink.core import stream

pytestmark = pytest.mark.timeout(120)
BEN = ("ben", "tea")
LOGIN = "login:ann\npasscode:tea\n"


def amqp(gateway: ScratchGateway, login: tuple[str, str] = ANN) -> BlockingConnection:
    return BlockingConnection(
        f"{HOST}:{gateway.port}", user=login[0], password=login[1], timeout=15
    )


def gateway_of(tmp_path: Path, *settings: str) -> ScratchGateway:
    return ScratchGateway(with_users(tmp_path), settings=settings)


def text_of(gateway: ScratchGateway, path: str) -> str:
    connection = http.client.HTTPConnection(HOST, gateway.management_port, timeout=30)
    connection.request("GET", path, headers={"Authorization": "Basic YW5uOnRlYQ=="})
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.read().decode()


def items(gateway: ScratchGateway, path: str) -> list[dict[str, Any]]:
    return list(json.loads(text_of(gateway, f"/api/v1/{path}"))["items"])


def count(gateway: ScratchGateway, queue: str) -> int:
    return int(json.loads(text_of(gateway, f"/api/v1/queues/{queue}"))["messageCount"])


def eventually(find: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    wait_until(lambda: bool(find()))
    return find()


@pytest.fixture
def two_each(tmp_path: Path) -> Iterator[ScratchGateway]:
    with gateway_of(tmp_path, 'quotas.users."*".connections=2') as one:
        yield one


def test_connections_of_a_user_are_counted_over_all_protocols(two_each: ScratchGateway) -> None:
    tab = Tab(two_each.port, connect=LOGIN)
    first = amqp(two_each)
    assert tab.greeting[0] == "CONNECTED"
    for _ in range(3):
        refused = StompPeer(two_each.stomp_port, ANN)
        told = refused.greeting if refused.greeting[0] == "ERROR" else refused.read()
        assert told[0] == "ERROR"
        assert told[1]["error-code"] == "too-many"
        assert "User 'ann' has 2 connections" in told[1]["message"]
        assert int(told[1]["retry-after"]) == 10
        refused.close()
    with pytest.raises((ConnectionException, LinkDetached), match="resource-limit-exceeded"):
        amqp(two_each).create_sender("q")
    over = Tab(two_each.port, connect=LOGIN)
    told_tab = over.greeting if over.greeting[0] == "ERROR" else over.frame()
    assert told_tab[1]["error-code"] == "too-many"
    ben = StompPeer(two_each.stomp_port, BEN)
    assert ben.greeting[0] == "CONNECTED"
    ben.close()
    first.close()

    def let_in() -> bool:
        peer = StompPeer(two_each.stomp_port, ANN)
        peer.send("/queue/q", b"x", "r")
        command = peer.read()[0]
        peer.close()
        return command == "RECEIPT"

    wait_until(let_in)
    (told_log,) = wait_records(two_each, "quota.reached", user="ann")
    assert told_log["limit"] == 2
    assert told_log["key"] == 'quotas.users."*".connections'


def test_connections_of_a_remote_are_refused_before_the_login(tmp_path: Path) -> None:
    with gateway_of(tmp_path, 'quotas.remotes."127.0.0.0/8".connections=1') as gateway:
        first = StompPeer(gateway.stomp_port, ANN)
        told = StompPeer(gateway.stomp_port, BEN).greeting
        assert told[0] == "ERROR"
        assert told[1]["error-code"] == "too-many"
        assert "as many connections here as it may" in told[1]["message"]
        assert "quotas" not in told[1]["message"]  # nobody has said who it is
        first.close()
        wait_until(lambda: StompPeer(gateway.stomp_port, BEN).greeting[0] == "CONNECTED")


def test_who_is_held_back_is_shown_and_told_of_once(tmp_path: Path) -> None:
    with gateway_of(tmp_path, "quotas.users.ann.messages-in=20") as gateway:
        peer = StompPeer(gateway.stomp_port, ANN)
        began = time.monotonic()
        peer._socket.sendall(sends(100).encode())
        (item,) = eventually(
            lambda: [one for one in items(gateway, "connections") if one["throttled"]]
        )
        assert item["throttled"] == {
            "scope": "user",
            "name": "ann",
            "direction": "in",
            "key": "quotas.users.ann.messages-in",
            "limit": 20,
        }
        (quota,) = items(gateway, "quotas?scope=user")
        assert quota["name"] == "ann"
        assert quota["in"]["waiting"] == 1
        assert quota["in"]["messages"] >= 20
        assert quota["limits"][0]["key"] == "quotas.users.ann.messages-in"
        wait_until(lambda: count(gateway, "q") == 100)
        # 80 beyond the burst, 20 a second.
        assert 3.5 <= time.monotonic() - began <= 30
        metrics = text_of(gateway, "/metrics")
        assert 'sluicegate_quota_user_messages_total{user="ann",direction="in"} 100' in metrics
        assert 'sluicegate_quota_reached_total{scope="user",limit="messages-in"}' in metrics
        nobody = 'sluicegate_quota_waiting{scope="user"} 0'
        wait_until(lambda: nobody in text_of(gateway, "/metrics"))
        wait_records(gateway, "quota.room_again", user="ann")
        assert len(wait_records(gateway, "quota.reached")) == 1
        peer.close()


def test_a_sender_and_a_receiver_of_proton_go_as_fast_as_they_may(tmp_path: Path) -> None:
    settings = ("quotas.users.ann.messages-in=100", "quotas.users.ben.messages-out=100")
    with gateway_of(tmp_path, *settings, 'quotas.users."*".burst="100ms"') as gateway:
        began = time.monotonic()
        connection = amqp(gateway)
        sender = connection.create_sender("q")
        for number in range(200):
            sender.send(Message(body=number))
        assert 1.5 <= time.monotonic() - began <= 30
        began = time.monotonic()
        reading = amqp(gateway, BEN)
        receiver = reading.create_receiver("q", credit=50)
        for number in range(200):
            assert receiver.receive(timeout=15).body == number
            receiver.accept()
        assert 1.5 <= time.monotonic() - began <= 30
        connection.close()
        reading.close()


def test_a_browser_tab_is_read_as_fast_as_it_may_send(tmp_path: Path) -> None:
    with gateway_of(tmp_path, "quotas.users.ann.messages-in=10") as gateway:
        tab = Tab(gateway.port, connect=LOGIN + "heart-beat:500,500\n")
        began = time.monotonic()
        for number in range(40):
            tab.send("/queue/q", "x", str(number))
        got: list[str] = []
        while len(got) < 40:
            tab.say("\n")  # its heart-beat, which is not read for a while
            got += [headers["receipt-id"] for _, headers, _ in tab.hear(0.3)]
            assert tab.end is None
        assert got == [str(number) for number in range(40)]
        assert 2.5 <= time.monotonic() - began <= 30


def test_programs_that_stage_or_read_too_much_are_told_when_to_come_again(tmp_path: Path) -> None:
    quota = ('quotas.users."*".bytes-in=8192', 'quotas.users."*".bytes-out=8192')
    with ScratchGateway(tmp_path, settings=quota) as gateway:
        gateway.request("POST", "/api/v1/streams", {"name": "q", "address": "q"})
        piece, stage = stream(2_000), "/api/v1/sink/stages/p/0/0/a"
        assert len(piece) > 8192
        assert post(gateway, stage, piece, ARROW)[0] == 200
        sealed = {"size": len(piece), "crc32": zlib.crc32(piece)}
        status, after, answer = post(gateway, f"{stage}:seal", sealed)
        assert (status, answer["code"]) == (429, "quota-reached")
        assert 'quotas.users."*".bytes-in is 8192 a second' in answer["message"]
        assert 1 <= after <= 1 + len(piece) // 8192
        wait_until(lambda: post(gateway, f"{stage}:seal", sealed)[0] == 200)
        stages = [{"partition": 0, "attempt": "a", "rows": 2_000}]
        commit = "/api/v1/sink/producers/p:commit"
        wait_until(lambda: post(gateway, commit, {"batch": 0, "stages": stages})[0] == 200)
        epoch = json.loads(ask(gateway, "/api/v1/streams/q"))["epoch"]
        ranges = [{"stream": "q", "epoch": epoch, "start": 0, "end": 2_000}]
        read = "/api/v1/streams/read"
        assert post(gateway, read, {"ranges": ranges, "columns": ["body"]})[0] == 200
        status, after, answer = post(gateway, read, {"ranges": ranges, "columns": ["body"]})
        assert (status, answer["code"]) == (429, "quota-reached")
        assert after >= 1
        wait_until(lambda: post(gateway, read, {"ranges": ranges, "columns": ["body"]})[0] == 200)


def post(
    gateway: ScratchGateway, path: str, body: object, kind: str = "application/json"
) -> tuple[int, int, Any]:
    """Return status, Retry-After and the JSON of an answer; None where it is none."""
    connection = http.client.HTTPConnection(HOST, gateway.management_port, timeout=30)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, data, {"Content-Type": kind})
    answer = connection.getresponse()
    text = answer.read()
    shown = json.loads(text) if answer.headers["Content-Type"] == "application/json" else None
    return answer.status, int(answer.headers.get("Retry-After", 0)), shown


def ask(gateway: ScratchGateway, path: str) -> bytes:
    connection = http.client.HTTPConnection(HOST, gateway.management_port, timeout=30)
    connection.request("GET", path)
    return connection.getresponse().read()


def test_a_replay_of_a_stream_goes_as_fast_as_its_reader_may(tmp_path: Path) -> None:
    with ScratchGateway(tmp_path, settings=['quotas.users."*".messages-out=20']) as gateway:
        gateway.request("POST", "/api/v1/streams", {"name": "q", "address": "q"})
        peer = StompPeer(gateway.stomp_port)
        for number in range(60):
            peer.send("/queue/q", b"%d" % number, "r")
            assert peer.read()[0] == "RECEIPT"
        began = time.monotonic()
        peer.write("SUBSCRIBE\nid:1\ndestination:/queue/q\nx-stream-offset:first\n\n")
        assert [int(peer.read()[2]) for _ in range(60)] == list(range(60))
        assert 1.5 <= time.monotonic() - began <= 30
        peer.close()


def test_a_reload_sets_quotas_for_what_is_open_and_names_each(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path)
    peer = StompPeer(live.gateway.stomp_port)
    answer = live.reload('[quotas.users."*"]\nmessages-in = 5\nconnections = 1\n')
    assert live.effects(answer) == {'quotas.users."*"': "at-once"}
    peer._socket.sendall(sends(50).encode())
    late = StompPeer(live.gateway.stomp_port)
    told = late.greeting if late.greeting[0] == "ERROR" else late.read()
    assert told[0] == "ERROR"
    assert "proved no login count as one user, which has 1 connections" in told[1]["message"]
    assert "gate.toml\\c3" in told[1]["message"]
    time.sleep(0.3)
    _, queue = live.ask("GET", "/api/v1/queues/q")
    assert queue["messageCount"] < 10
    answer = live.reload('[quotas.users."*"]\nmessages-in = 5000\n')
    assert live.effects(answer) == {
        'quotas.users."*".messages-in': "at-once",
        'quotas.users."*".connections': "at-once",
    }
    live.until(lambda: live.ask("GET", "/api/v1/queues/q")[1]["messageCount"] == 50)
    again = StompPeer(live.gateway.stomp_port)
    assert again.greeting[0] == "CONNECTED"
    again.close()
    peer.close()
