"""Slow consumers: the rows A29 and A30, by their numbers, at the core and over the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.addresses.settings import SlowPolicy
from gateway.model.amqp_types import Symbol
from protocols.amqp.performatives import Close
from tests.broker.core import Core, entry
from tests.conformance.clients import Amqp, Stomp, read, source, took
from tests.protocols.amqp.peer import of

BODIES = [b"%d" % i for i in range(25)]


def core_with(policy: SlowPolicy) -> Core:
    return Core(
        entry(
            "#",
            slow_consumer_threshold=10,
            slow_consumer_check_period=1,
            slow_consumer_policy=policy,
        )
    )


def seconds(core: Core, count: int) -> None:
    for _ in range(count):
        core.pass_time(1000)
        core.gateway.pressure.slow.look()
        core.sync()


def test_a29_kill_closes_an_amqp_connection_and_says_why():
    core = core_with(SlowPolicy.KILL)
    core.send("q", *BODIES)
    peer = Amqp.at(core)
    peer.receiver(address="q", credit=25)
    peer.more()
    assert core.queue("q").delivering == 25
    seconds(core, 3)
    (close,) = of(peer.more(), Close)
    assert close.error.condition == "amqp:connection:forced"
    assert "slow-consumer-threshold" in close.error.description
    assert dict(close.error.info) == {Symbol("x-reason"): "slow-consumer"}
    assert peer.engine.closing
    # What it had not settled goes back as from a connection that was cut.
    queue = core.queue("q")
    assert (queue.consumer_count, queue.ready_count) == (0, 25)
    assert {m.delivery_count for m in queue.browse(0, 25)} == {1}
    core.check()


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a29_kill_ends_a_stomp_connection_with_an_error(version):
    core = core_with(SlowPolicy.KILL)
    core.send("q", *BODIES)
    client = Stomp(core, version)
    client.subscribe("q", ack="client-individual")
    seconds(core, 3)
    ((name, headers, body),) = client.more()
    assert (name, headers["error-code"]) == ("ERROR", "slow-consumer")
    assert b"slow-consumer-policy is KILL" in body
    assert client.session.closing
    assert (core.queue("q").consumer_count, core.queue("q").ready_count) == (0, 25)
    core.check()


@pytest.mark.parametrize("listener", ["STOMP", "AMQP"])
def test_a29_notify_tells_whoever_listens_once_a_period(listener):
    core = core_with(SlowPolicy.NOTIFY)
    core.send("q", *BODIES)
    watching: Any = Stomp(core) if listener == "STOMP" else Amqp.at(core)
    if listener == "STOMP":
        watching.subscribe("/topic/activemq.notifications", id="n")
    else:
        capable = source("activemq.notifications", capabilities=(Symbol("topic"),))
        watching.receiver(credit=9, **capable)
    client = Stomp(core)
    assert client.subscribe("q", ack="client") != []
    seconds(core, 4)
    if listener == "STOMP":
        came = watching.more()
        assert {headers["content-type"] for _, headers, _ in came} == {"application/json"}
        told = [json.loads(body) for _, _, body in came]
    else:
        notices = [read(message) for _, message in took(watching.more())]
        told = [json.loads(notice.data()) for notice in notices]
        named = notices[0].application_properties
        assert (named["_AMQ_NotifType"], named["_AMQ_ConsumerCount"]) == ("CONSUMER_SLOW", 1)
        assert named["_AMQ_Address"] == "q"
    assert len(told) == 3
    one = told[0]
    assert (one["notifType"], one["address"], one["consumerCount"]) == ("CONSUMER_SLOW", "q", 1)
    connection = client.session.connection
    assert (one["protocolName"], one["remoteAddress"]) == ("STOMP", connection.remote)
    assert one["connectionName"] == connection.name
    assert not client.session.closing
    assert core.gateway.pressure.slow.found == 3
    core.check()


@pytest.mark.parametrize("policy", list(SlowPolicy))
def test_a30_a_queue_with_little_to_do_has_no_slow_consumer(policy):
    core = core_with(policy)
    core.send("q", *BODIES[:5])
    taker = core.consume("q", room=25)
    seconds(core, 4)
    assert len(taker.got) == 5
    assert (taker.refusals, core.gateway.pressure.slow.found) == ([], 0)
