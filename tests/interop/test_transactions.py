"""AMQP transactions as Proton makes them: the rows, its own transaction class, and kill -9."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message
from proton.utils import LinkDetached

from gateway.trial.scratch import ScratchGateway
from gateway.trial.self_signed import KeyPair
from tests.interop.support import connected, queue, wait_until
from tests.interop.test_proton_reactor import Script
from tests.interop.transacting import ACCEPTED, Transacting, take, transacting

pytestmark = pytest.mark.interop

KILLS = 3
PARTS = 3
FULL = (
    'address-settings."full.#".address-full-policy=FAIL',
    'address-settings."full.#".max-size-bytes=1000',
)


def fill(one: Transacting, address: str, count: int) -> Any:
    """Return a sender that has put so many numbers into a queue."""
    sender = one.connection.create_sender(address)
    for number in range(count):
        sender.send(Message(body=number, durable=True))
    return sender


def mc(gateway: ScratchGateway, name: str) -> int:
    return int(queue(gateway, name)["messageCount"])


@pytest.mark.parametrize("settled", [True, False])
def test_q7_a_commit_into_a_full_address_is_rejected(
    tmp_path: Path, settled: bool, tls: KeyPair | None
) -> None:
    gateway = ScratchGateway(tmp_path, settings=FULL, tls=tls)
    with gateway, transacting(gateway) as one:
        sender = one.connection.create_sender("full.q")
        name = one.declare()
        one.post(name, sender, *["x" * 300] * 5, settled=settled)
        refusal = one.discharge(name)
        assert refusal.startswith("amqp:transaction:rollback: ")
        assert "'full.q'" in refusal
        assert mc(gateway, "full.q") == 0


@pytest.mark.parametrize("commit", [True, False])
def test_q26_three_receivers_on_three_sessions(
    shared: ScratchGateway, address: str, commit: bool
) -> None:
    with transacting(shared) as one:
        fill(one, address, 3)
        name = one.declare()
        for _ in range(3):
            receiver = one.receiver(address, credit=1)
            _, deliveries = take(receiver, 1)
            one.retire(name, deliveries, settled=True)
        assert mc(shared, address) == 3
        assert one.discharge(name, fail=not commit) == ""
        assert mc(shared, address) == (0 if commit else 3)


def test_q27_accepted_unsettled_and_rolled_back(shared: ScratchGateway, address: str) -> None:
    with transacting(shared) as one:
        fill(one, address, 11)
        receiver = one.receiver(address, credit=10)
        bodies, deliveries = take(receiver, 10)
        assert bodies == list(range(10))
        name = one.declare()
        one.retire(name, deliveries[:5], settled=False)
        assert one.discharge(name) == ""
        name = one.declare()
        one.retire(name, deliveries[5:], settled=False)
        assert one.discharge(name, fail=True) == ""
        receiver.link.flow(1)
        bodies, last = take(receiver, 1)
        assert bodies == [10]
        name = one.declare()
        one.retire(name, deliveries[5:], settled=False)
        assert one.discharge(name) == ""
        assert mc(shared, address) == 1
        last[0].update(Delivery.ACCEPTED)
        last[0].settle()
    wait_until(lambda: mc(shared, address) == 0)


@pytest.mark.parametrize("settled", [True, False])
def test_q28_q29_a_rolled_back_accept_keeps_its_place(
    shared: ScratchGateway, address: str, settled: bool
) -> None:
    with transacting(shared) as one:
        sender = fill(one, address, 10)
        receiver = one.receiver(address, credit=2)
        _, deliveries = take(receiver, 2)
        name = one.declare()
        one.retire(name, deliveries[:1], settled=True)
        assert one.post(name, sender, 10) == [ACCEPTED]
        assert one.discharge(name) == ""
        name = one.declare()
        one.retire(name, deliveries[1:], settled=settled)
        assert one.post(name, sender, 11) == [ACCEPTED]
        assert one.discharge(name, fail=True) == ""
        receiver.link.flow(10)
        if settled:
            assert take(receiver, 10)[0] == list(range(1, 11))
        else:
            assert take(receiver, 9)[0] == list(range(2, 11))
            deliveries[1].update(Delivery.RELEASED)
            deliveries[1].settle()
            assert take(receiver, 1)[0] == [1]
        assert mc(shared, address) == 10


def test_q30_a_thousand_transactions(shared: ScratchGateway) -> None:
    with transacting(shared) as one:
        for _ in range(1000):
            assert one.discharge(one.declare()) == ""


def test_what_is_over_is_unknown(shared: ScratchGateway, address: str) -> None:
    with transacting(shared) as one:
        sender = one.connection.create_sender(address)
        name = one.declare()
        one.post(name, sender, "undone")
        assert one.discharge(name, fail=True) == ""
        assert one.discharge(name).startswith("amqp:transaction:unknown-id: ")
        delivery = sender.link.send(Message(body="late"))
        delivery.local.data = [name]
        delivery.update(0x34)
        one.connection.wait(lambda: delivery.settled)
        assert delivery.remote_state == Delivery.REJECTED
        assert delivery.remote.condition.name == "amqp:transaction:unknown-id"
        sender.send(Message(body="outside"))
    assert queue(shared, address)["messagesAdded"] == 1


def test_a_lost_connection_rolls_back(shared: ScratchGateway, address: str) -> None:
    with transacting(shared) as one:
        sender = fill(one, address, 2)
        receiver = one.receiver(address, credit=2)
        _, deliveries = take(receiver, 2)
        name = one.declare()
        one.retire(name, deliveries, settled=True)
        one.post(name, sender, "never")
        assert mc(shared, address) == 2
    wait_until(lambda: queue(shared, address)["consumerCount"] == 0)
    with connected(shared) as connection:
        receiver = connection.create_receiver(address, credit=5)
        found = [receiver.receive() for _ in range(2)]
        assert [(m.body, m.delivery_count) for m in found] == [(0, 1), (1, 1)]
        receiver.accept()
        receiver.accept()
    wait_until(lambda: mc(shared, address) == 0)


def test_a_commit_outlives_kill_minus_nine_and_nothing_else_does(
    tmp_path: Path, tls: KeyPair | None
) -> None:
    gateway = ScratchGateway(tmp_path, tls=tls)
    with gateway:
        with transacting(gateway) as one:
            sender = fill(one, "q", 2)
            receiver = one.receiver("q", credit=2)
            _, deliveries = take(receiver, 2)
            kept, lost = one.declare(), one.declare()
            one.retire(kept, deliveries[:1], settled=True)
            one.post(kept, sender, "kept", "both")
            one.retire(lost, deliveries[1:], settled=True)
            one.post(lost, sender, "lost")
            assert one.discharge(kept) == ""
            gateway.kill()
            with pytest.raises(Exception):  # noqa: B017 - the socket is gone, in one way or another
                one.discharge(lost)
        gateway.start()
        with connected(gateway) as connection:
            receiver = connection.create_receiver("q", credit=5)
            assert [receiver.receive().body for _ in range(3)] == [1, "kept", "both"]
            for _ in range(3):
                receiver.accept()
        wait_until(lambda: mc(gateway, "q") == 0)


def test_kills_leave_each_commit_whole_or_not_there(tmp_path: Path, tls: KeyPair | None) -> None:
    """What was confirmed is there, nothing is there in part, whenever the process is killed."""
    gateway = ScratchGateway(tmp_path, tls=tls)
    chance = random.Random(7)
    confirmed: set[int] = set()
    tried = 0
    for _ in range(KILLS):
        with gateway:
            timer = threading.Timer(chance.uniform(0.0, 0.4), gateway.kill)
            before = len(confirmed)
            with suppress(Exception), transacting(gateway) as one:
                senders = [one.connection.create_sender(f"kill.{n}") for n in range(PARTS)]
                while True:
                    tried += 1
                    name = one.declare()
                    for sender in senders:
                        one.post(name, sender, tried, settled=True)
                    if one.discharge(name) == "":
                        confirmed.add(tried)
                        if len(confirmed) == before + 1:
                            timer.start()  # however slow the machine is, there is something to lose
            assert len(confirmed) > before
            timer.join()
    with gateway, connected(gateway) as connection:
        held = []
        for number in range(PARTS):
            receiver = connection.create_receiver(f"kill.{number}", credit=1000)
            amount = mc(gateway, f"kill.{number}")
            held.append([receiver.receive().body for _ in range(amount)])
    assert held[0] == held[1] == held[2], "a commit is there in part"
    assert confirmed <= set(held[0]), "a confirmed commit is gone"
    assert len(set(held[0])) == len(held[0]) <= len(confirmed) + KILLS
    assert len(confirmed) >= KILLS


def test_an_idle_transaction_is_rolled_back_and_its_commit_told_so(
    tmp_path: Path, tls: KeyPair | None
) -> None:
    gateway = ScratchGateway(tmp_path, settings=["transaction-timeout=400"], tls=tls)
    with gateway, transacting(gateway) as one:
        sender = fill(one, "q", 1)
        receiver = one.receiver("q", 1)
        _, deliveries = take(receiver, 1)
        name, empty = one.declare(), one.declare()
        one.retire(name, deliveries, settled=True)
        one.post(name, sender, "never")
        receiver.link.flow(1)
        assert take(receiver, 1)[0] == [0]  # it comes again by itself
        assert one.discharge(name).startswith("amqp:transaction:timeout: ")
        assert one.discharge(empty) == ""
        assert mc(gateway, "q") == 1


class Transacted(Script):
    """Proton's own transactions: ten are answered in twos; every other two are undone first."""

    def __init__(self, gateway: ScratchGateway, address: str, *, settled: bool) -> None:
        super().__init__(gateway, address, prefetch=0, auto_accept=False)
        self.settled = settled
        self.batch = 0
        self.open: list[Any] = []
        self.transaction: Any = None
        self.aborted = 0

    def begin(self) -> None:
        self.sender = self.container.create_sender(self.connection, f"{self.address}.out")
        self.receiver = self.container.create_receiver(self.connection, self.address)
        self._declare()

    def _declare(self) -> None:
        self.container.declare_transaction(
            self.connection, handler=self, settle_before_discharge=self.settled
        )

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.seen = 0
        self.receiver.flow(2)

    def on_message(self, event: Any) -> None:
        self.transaction.send(self.sender, Message(body=event.message.body, durable=True))
        self.transaction.accept(event.delivery)
        self.seen += 1
        if self.seen == 2:
            self.batch += 1
            (self.transaction.abort if self.batch % 2 else self.transaction.commit)()

    def on_transaction_committed(self, event: Any) -> None:
        if self.batch >= 10:
            self.finish()
        else:
            self._declare()

    def on_transaction_aborted(self, event: Any) -> None:
        self.aborted += 1
        self._declare()

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.fail("a commit failed")

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.fail("a declare failed")


@pytest.mark.parametrize("settled", [True, False])
def test_protons_own_transactions(shared: ScratchGateway, address: str, settled: bool) -> None:
    with transacting(shared) as one:
        fill(one, address, 10)
    script = Transacted(shared, address, settled=settled)
    script.perform()
    assert script.aborted == 5
    wait_until(lambda: mc(shared, address) == 0)
    with connected(shared) as connection:
        receiver = connection.create_receiver(f"{address}.out", credit=20)
        assert [receiver.receive().body for _ in range(10)] == list(range(10))
        for _ in range(10):
            receiver.accept()


def test_a_settled_command_ends_its_link(shared: ScratchGateway) -> None:
    with transacting(shared) as one:
        one.control.link.send(Message(body="x")).settle()
        with pytest.raises(LinkDetached, match="settled"):
            one.connection.wait(lambda: False, timeout=5)
