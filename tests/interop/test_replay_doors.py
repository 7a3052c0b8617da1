"""Replays through every door: a full, a blocked and a slow one, a stop, a limit, a deletion."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
from proton import Message, ulong
from proton.utils import BlockingConnection, LinkDetached, SendException

from gateway.trial.scratch import HOST, ScratchGateway
from tests.interop.support import SECONDS, connected, wait_until
from tests.interop.test_crossing import stomped
from tests.interop.test_replay import From, frames, replaying, send, stream, take, tap

pytestmark = pytest.mark.interop


def test_full_and_blocked_addresses_are_replayed(
    gateway_process: Callable[..., ScratchGateway],
) -> None:
    settings = ('address-settings."full".max-size-messages=5',)
    policy = ('address-settings."full".address-full-policy="FAIL"',)
    gateway = gateway_process(settings=settings + policy)
    tap(gateway, "full")
    with connected(gateway) as amqp:
        with pytest.raises(SendException):
            send(amqp, "full", *range(9))
        kept = stream(gateway, "full")["head"]
        assert kept == 5
        for _ in range(2):
            receiver = amqp.create_receiver("full", options=From("first"))
            assert [body for _, body in take(receiver, kept)] == list(range(kept))
            receiver.close()
            status, _ = gateway.request("POST", "/api/v1/addresses/full/block", {})
            assert status == 200


def test_a_stop_in_the_middle_is_clean(gateway: ScratchGateway) -> None:
    tap(gateway, "orders")
    with connected(gateway) as amqp:
        send(amqp, "orders", *[b"x" * 1000] * 500)
    slow = BlockingConnection(f"{HOST}:{gateway.port}", timeout=SECONDS)
    slow.create_receiver("orders", options=From("first"), credit=100)
    with stomped(gateway) as client:
        more = {"x-stream-offset": "first"}
        client.request("subscribe", "/queue/orders", "s", ack="client", headers=more)
        client.get()
        begun = time.monotonic()
        assert gateway.stop() == 0
        assert time.monotonic() - begun < 15
        client.errors.clear()
    slow.conn.close()


def test_consumers_of_a_user_are_counted(gateway_process: Callable[..., ScratchGateway]) -> None:
    gateway = gateway_process(settings=("user-max-consumers=2",))
    tap(gateway, "orders")
    with connected(gateway) as amqp:
        for name in ("one", "two"):
            amqp.create_receiver("orders", name=name, options=From("first"))
        with pytest.raises(LinkDetached, match="user-max-consumers"):
            amqp.create_receiver("orders", name="three", options=From("first"))


def test_a_deleted_stream_ends_its_replays(gateway: ScratchGateway) -> None:
    tap(gateway, "orders")
    with connected(gateway) as amqp, stomped(gateway) as client:
        more = {"x-stream-offset": "first"}
        client.request("subscribe", "/queue/orders", "s", headers=more)
        receiver = amqp.create_receiver("orders", options=From("first"))
        send(amqp, "orders", "a")
        assert take(receiver, 1) == [(0, "a")]
        assert frames(client, 1) == [(0, b"a")]
        assert gateway.request("DELETE", "/api/v1/streams/orders")[0] == 204
        with pytest.raises(LinkDetached, match="'orders' of 'orders' was deleted"):
            receiver.receive(timeout=SECONDS)
        wait_until(lambda: bool(client.errors))
        assert "was deleted" in client.errors[0]["message"]
        client.errors.clear()


def test_an_operator_ends_a_replay(gateway: ScratchGateway) -> None:
    tap(gateway, "orders")
    with connected(gateway) as amqp:
        receiver = amqp.create_receiver("orders", options=From("next"))
        status, found = gateway.request("GET", "/api/v1/consumers")
        assert status == 200
        assert isinstance(found, dict)
        (one,) = found["items"]
        assert gateway.request("DELETE", f"/api/v1/consumers/{one['id']}")[0] == 200
        with pytest.raises(LinkDetached, match="closed by an operator"):
            receiver.receive(timeout=SECONDS)
    assert stream(gateway, "orders")["consumers"] == 0


def test_one_that_settles_nothing_for_too_long_is_ended(
    gateway_process: Callable[..., ScratchGateway],
) -> None:
    gateway = gateway_process(settings=("acceptors.all.consumer-stuck-timeout=1s",))
    tap(gateway, "orders")
    with connected(gateway) as amqp:
        send(amqp, "orders", "a", "b")
        receiver = amqp.create_receiver("orders", options=From("first"), credit=2)
        receiver.receive(timeout=SECONDS)
        receiver.receive(timeout=SECONDS)
        with pytest.raises(LinkDetached, match="they stay in the stream"):
            receiver.receive(timeout=SECONDS)


def test_a_slow_reader_holds_nobody_up(gateway: ScratchGateway) -> None:
    tap(gateway, "orders")
    with connected(gateway) as amqp, replaying(gateway, "orders", "first", "client") as idle:
        quick: Any = amqp.create_receiver("orders", options=From("first"), credit=50)
        bodies = [bytes([n]) * 20_000 for n in range(200)]
        sender = amqp.create_sender("orders")
        for body in bodies[:100]:
            sender.send(Message(body=body, durable=True))
        assert take(quick, 100) == list(enumerate(bodies[:100]))
        for body in bodies[100:]:
            sender.send(Message(body=body, durable=True))
        assert take(quick, 100) == list(enumerate(bodies))[100:]
        assert idle.arrived.qsize() == 1, "its window of 10 KiB holds one"


@pytest.mark.timeout(120)
def test_retention_under_a_slow_replay(gateway_process: Callable[..., ScratchGateway]) -> None:
    """Files of 64 MiB go as soon as there is another one; no queue holds what is sent."""
    gateway = gateway_process(settings=("stream-retention-bytes=1MiB",))
    topic = {"name": "news", "routingTypes": ["MULTICAST"]}
    assert gateway.request("POST", "/api/v1/addresses", topic)[0] == 201
    tap(gateway, "news")
    size = 1_000_000
    with connected(gateway) as amqp:
        sender = amqp.create_sender("news")
        slow = amqp.create_receiver("news", options=From("first"), credit=1)
        sender.send(Message(body=b"0" * size, durable=True))
        assert take(slow, 1) == [(0, b"0" * size)]
        for number in range(1, 150):
            sender.send(Message(body=str(number).encode().ljust(size), durable=True))
        wait_until(lambda: bool(stream(gateway, "news")["first"] > 2), 30)
        seen = []
        while not seen or seen[-1][0] < 149:
            seen += take(slow, 1)
        assert all(int(body[:4]) == offset for offset, body in seen)
        offsets = [offset for offset, _ in seen]
        jumps = [(a, b) for a, b in itertools.pairwise([0, *offsets]) if b != a + 1]
        skipped = sum(b - a - 1 for a, b in jumps)
        assert 1 <= len(jumps) <= 2
        assert offsets == sorted(offsets)
        assert stream(gateway, "news")["skippedMessages"] == skipped
    assert gateway.log.read_text("utf-8").count("stream.replay_jumped") == len(jumps)


def test_a_restart_in_the_middle(gateway: ScratchGateway) -> None:
    tap(gateway, "orders")
    for number in range(3):
        with connected(gateway) as amqp:
            bodies = [f"{number}-{n}" for n in range(10)]
            send(amqp, "orders", *bodies)
            receiver = amqp.create_receiver("orders", options=From(ulong(number * 10)), credit=7)
            assert take(receiver, 10) == list(enumerate(bodies, number * 10))
            with replaying(gateway, "orders", f"offset={number * 10 + 5}") as reader:
                assert [body.decode() for _, body in frames(reader, 5)] == bodies[5:]
        assert gateway.stop() == 0
        gateway.start()
    with connected(gateway) as amqp:
        receiver = amqp.create_receiver("orders", options=From("last"))
        assert take(receiver, 1) == [(29, "2-9")]
