"""Proton's reactor and engine: credit, drain, pipelining, transactions, aborts, time-outs."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from proton import Collector, Connection, Endpoint, Message, Transport
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

from gateway.trial.scratch import ScratchGateway
from tests.interop.support import amqp_url, connected, queue, raw, trust, wait_until

pytestmark = pytest.mark.interop

DEADLINE = 20.0


class Script(MessagingHandler, TransactionHandler):
    """A conversation that ends by `finish`, or fails at the deadline; `failure` says how."""

    def __init__(self, gateway: ScratchGateway, address: str, **options: Any) -> None:
        super().__init__(**options)
        self.gateway = gateway
        self.address = address
        self.failure: str | None = None

    def perform(self) -> None:
        Container(self).run()
        assert self.failure is None, self.failure

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.timer = event.container.schedule(DEADLINE, self)
        self.connection = event.container.connect(
            amqp_url(self.gateway), ssl_domain=trust(self.gateway), reconnect=False
        )
        self.begin()

    def begin(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.timer.cancel()
        self.connection.close()

    def on_timer_task(self, event: Any) -> None:
        self.fail("not over at the deadline")

    def on_transport_error(self, event: Any) -> None:
        self.fail(f"transport: {event.transport.condition}")

    def on_link_error(self, event: Any) -> None:
        self.fail(f"link: {event.link.remote_condition}")

    def on_connection_error(self, event: Any) -> None:
        self.fail(f"connection: {event.connection.remote_condition}")

    def fail(self, text: str) -> None:
        self.failure = self.failure or text
        self.finish()


def fill(gateway: ScratchGateway, address: str, count: int) -> None:
    with connected(gateway) as connection:
        sender = connection.create_sender(address)
        for number in range(count):
            sender.send(Message(body=number))


class Pipeline(Script):
    """Sends all that credit allows without waiting."""

    def __init__(self, gateway: ScratchGateway, address: str, count: int) -> None:
        super().__init__(gateway, address)
        self.count = count
        self.sent = self.accepted = 0
        self.credits: list[int] = []

    def begin(self) -> None:
        self.link = self.container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        self.credits.append(self.link.credit)
        while self.link.credit and self.sent < self.count:
            self.link.send(Message(body=self.sent, durable=True))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        if self.accepted == self.count:
            self.finish()


def test_a_pipeline_is_topped_up_and_each_message_accepted(
    shared: ScratchGateway, address: str
) -> None:
    script = Pipeline(shared, address, 3500)
    script.perform()
    assert script.credits[0] == 1000
    assert max(script.credits) <= 1000
    assert queue(shared, address)["messageCount"] == 3500


class Credit(Script):
    """Takes in portions: 3, then a drain of 50 over 4 that are left, then 5 that stay open."""

    def __init__(self, gateway: ScratchGateway, address: str) -> None:
        super().__init__(gateway, address, prefetch=0)
        self.bodies: list[int] = []
        self.portions: list[int] = []
        self.drained = 0

    def begin(self) -> None:
        self.link = self.container.create_receiver(self.connection, self.address)

    def on_link_opened(self, event: Any) -> None:
        self.link.flow(3)

    def on_message(self, event: Any) -> None:
        self.bodies.append(event.message.body)
        if len(self.bodies) == 3:
            # Nothing more may come by itself: look after a while.
            self.container.schedule(0.3, Later(self.drain_it))

    def drain_it(self) -> None:
        self.portions.append(len(self.bodies))
        self.link.drain(50)

    def on_link_flow(self, event: Any) -> None:
        if self.link.drain_mode and self.link.credit == 0:
            self.drained += 1
            self.portions.append(len(self.bodies))
            self.link.drain_mode = False
            self.link.flow(5)
            self.container.schedule(0.2, Later(self.finish))


class Later(MessagingHandler):
    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self.call = call

    def on_timer_task(self, event: Any) -> None:
        self.call()


def test_credit_is_kept_to_the_message_and_a_drain_gives_back_the_rest(
    shared: ScratchGateway, address: str
) -> None:
    fill(shared, address, 7)
    script = Credit(shared, address)
    script.perform()
    assert script.portions == [3, 7]
    assert script.bodies == list(range(7))
    assert script.drained == 1
    wait_until(lambda: queue(shared, address)["messageCount"] == 0)


class EmptyDrain(Script):
    """Drains an empty queue, then waits with open credit for what is sent afterwards."""

    def __init__(self, gateway: ScratchGateway, address: str) -> None:
        super().__init__(gateway, address, prefetch=0)
        self.drained_empty = False
        self.bodies: list[str] = []

    def begin(self) -> None:
        self.link = self.container.create_receiver(self.connection, self.address)
        self.link.drain(20)

    def on_link_flow(self, event: Any) -> None:
        if event.link == self.link and not self.drained_empty and self.link.credit == 0:
            self.drained_empty = True
            self.link.drain_mode = False
            self.link.flow(1)
            self.sender = self.container.create_sender(self.connection, self.address, name="s")

    def on_sendable(self, event: Any) -> None:
        if event.sender.credit and not event.sender.queued and not self.bodies:
            self.bodies.append("sent")
            event.sender.send(Message(body="later"))

    def on_message(self, event: Any) -> None:
        self.bodies.append(event.message.body)
        self.finish()


def test_a_drain_of_an_empty_queue_ends_at_once_and_the_link_goes_on(
    shared: ScratchGateway, address: str
) -> None:
    script = EmptyDrain(shared, address)
    script.perform()
    assert script.drained_empty
    assert script.bodies == ["sent", "later"]


class Peer:
    """Proton's engine over a socket: what no reactor would do."""

    def __init__(self, gateway: ScratchGateway, **idle: float) -> None:
        self.transport = Transport()
        if idle:
            self.transport.idle_timeout = idle["idle"]
        self.connection = Connection()
        self.connection.container = "peer"
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.connection.open()
        self.session = self.connection.session()
        self.session.open()
        self.socket = raw(gateway, gateway.port)
        self.socket.settimeout(0.05)

    def turn(self) -> None:
        while (pending := self.transport.pending()) > 0:
            self.socket.sendall(self.transport.peek(pending))
            self.transport.pop(pending)
        try:
            data = self.socket.recv(65536)
            if data:
                self.transport.push(data)
            else:
                self.transport.close_tail()
        except TimeoutError:
            pass
        while self.collector.peek() is not None:
            self.collector.pop()

    def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            self.turn()


def test_an_aborted_delivery_leaves_nothing(shared: ScratchGateway, address: str) -> None:
    peer = Peer(shared)
    link = peer.session.sender("s")
    link.target.address = address
    link.open()
    peer.until(lambda: link.credit > 0)
    whole = Message(body="whole").encode()
    delivery = link.delivery("one")
    link.stream(whole[:5])
    peer.turn()
    delivery.abort()
    peer.turn()
    link.delivery("two")
    link.send(whole)
    assert link.advance()
    second = link.current
    assert second is None
    wait = time.monotonic() + 5
    while queue(shared, address)["messageCount"] != 1:
        assert time.monotonic() < wait
        peer.turn()
    peer.socket.close()
    with connected(shared) as connection:
        receiver = connection.create_receiver(address, credit=2)
        assert receiver.receive().body == "whole"
        receiver.accept()


def test_what_a_lost_reader_held_comes_again_marked(shared: ScratchGateway, address: str) -> None:
    fill(shared, address, 2)
    peer = Peer(shared)
    link = peer.session.receiver("r")
    link.source.address = address
    link.open()
    link.flow(2)
    peer.until(lambda: link.queued == 2)
    peer.socket.close()
    with connected(shared) as connection:
        receiver = connection.create_receiver(address, credit=2)
        got = [receiver.receive() for _ in range(2)]
        assert [message.body for message in got] == [0, 1]
        assert not any(message.first_acquirer for message in got)


def test_a_silent_peer_is_cut_off(gateway_process: Any) -> None:
    gateway = gateway_process(settings=("acceptors.all.amqp-idle-timeout=600",))
    peer = Peer(gateway)
    peer.until(lambda: bool(peer.connection.state & Endpoint.REMOTE_ACTIVE))
    # The gateway names half of what it waits [AMQP 2.4.5].
    assert peer.transport.remote_idle_timeout == 0.3
    peer.socket.settimeout(5)
    began = time.monotonic()
    assert peer.socket.recv(1024) == b"", "a peer that may be gone is not told"
    assert 0.3 < time.monotonic() - began < 3
    peer.socket.close()


def test_a_peer_with_a_short_patience_gets_empty_frames(shared: ScratchGateway) -> None:
    peer = Peer(shared, idle=0.4)
    peer.until(lambda: bool(peer.connection.state & Endpoint.REMOTE_ACTIVE))
    peer.socket.settimeout(2)
    arrived = [peer.socket.recv(64) for _ in range(3)]
    assert {b"".join(arrived)[i : i + 8] for i in range(0, 24, 8)} == {
        struct.pack(">IBBH", 8, 2, 0, 0)
    }
    peer.socket.close()
