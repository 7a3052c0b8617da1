"""Scheduled messages as Proton and stomp.py send and see them, and over kill -9 (rows Q15, Q16)."""

from __future__ import annotations

import time

import pytest
from proton import Message, symbol

from gateway.trial.scratch import ScratchGateway
from tests.interop.support import connected, queue, wait_until
from tests.interop.test_crossing import StompClient

pytestmark = pytest.mark.interop

DELAY_MS = 700


def later(body: str, **annotations: int) -> Message:
    named = {symbol(name.replace("_", "-")): value for name, value in annotations.items()}
    return Message(body=body, durable=True, annotations=named)


def counts(gateway: ScratchGateway, name: str) -> tuple[int, int]:
    shown = queue(gateway, name)
    return shown["messageCount"], shown["scheduledCount"]


@pytest.mark.parametrize("kind", ["time", "delay"])
def test_q15_q16_proton_waits_for_the_time(shared, address, kind) -> None:
    begun = time.time()
    asked = int(begun * 1000) + DELAY_MS if kind == "time" else DELAY_MS
    with connected(shared) as connection:
        sender = connection.create_sender(address)
        sender.send(later("late", **{f"x_opt_delivery_{kind}": asked}))
        sender.send(Message(body="now"))
        count, scheduled = counts(shared, address)
        receiver = connection.create_receiver(address, credit=5)
        # A machine may be so slow that it is due by now.
        due = time.time() - begun >= DELAY_MS / 1000 - 0.005
        assert count == 2
        assert scheduled == 1 or due
        order = []
        for _ in range(2):
            message = receiver.receive()
            receiver.accept()
            order.append(message.body)
            if message.body == "late":
                assert time.time() - begun >= DELAY_MS / 1000 - 0.005
                assert message.annotations[symbol(f"x-opt-delivery-{kind}")] == asked
        assert order == ["now", "late"] or (due and sorted(order) == ["late", "now"])
    wait_until(lambda: counts(shared, address) == (0, 0))


def test_a_stomp_delay_reaches_proton_as_a_time(shared, address) -> None:
    client = StompClient(shared)
    begun = time.time()
    headers = {"AMQ_SCHEDULED_DELAY": str(DELAY_MS), "receipt": "r"}
    client.connection.send(address, "late", headers=headers)
    wait_until(lambda: "r" in client.receipts)
    with connected(shared) as connection:
        message = connection.create_receiver(address, credit=1).receive()
    assert time.time() - begun >= DELAY_MS / 1000 - 0.005
    due = message.annotations[symbol("x-opt-delivery-time")]
    assert -1 <= due - begun * 1000 - DELAY_MS < 5000
    client.connection.disconnect()


def test_the_time_survives_kill_9(tmp_path, address, tls) -> None:
    with ScratchGateway(tmp_path, tls=tls) as gateway:
        due = int(time.time() * 1000) + 4000
        with connected(gateway) as connection:
            sender = connection.create_sender(address)
            sender.send(later("late", x_opt_delivery_time=due))
        gateway.kill()
        gateway.start()
        count, scheduled = counts(gateway, address)
        assert count == 1
        # A machine may be so slow that it is due by now.
        assert scheduled == 1 or time.time() * 1000 >= due
        with connected(gateway) as connection:
            receiver = connection.create_receiver(address, credit=1)
            message = receiver.receive()
            receiver.accept()
            assert time.time() * 1000 >= due
            assert message.body == "late"
