"""Who is slow: every combination of what a period shows, and how it is counted."""

from __future__ import annotations

import itertools

import pytest

from gateway.addresses.match import SettingsTable
from gateway.addresses.settings import AddressSettings, RateUnit, SlowPolicy
from gateway.broker.pressure.slow import Work, is_slow
from gateway.model.address import RoutingType
from gateway.model.errors import Code
from tests.broker.core import Core, entry

BODIES = [b"%d" % i for i in range(100)]


@pytest.mark.parametrize(
    ("added", "held", "acknowledged", "idle"),
    list(itertools.product([19, 20], [19, 20], [9, 10], [False, True])),
)
def test_each_combination(added, held, acknowledged, idle):
    # Two consumers, 10 a second each: a queue with less than 20 to do has nobody slow.
    work = Work(
        seconds=1.0, added=added, held=held, consumers=2, acknowledged=acknowledged, idle=idle
    )
    enough_to_do = added >= 20 or held >= 20
    assert is_slow(work, 10.0) == (enough_to_do and acknowledged < 10 and not idle)


@pytest.mark.parametrize("unit", list(RateUnit))
def test_units(unit):
    settings = AddressSettings(
        slow_consumer_threshold=720, slow_consumer_threshold_measurement_unit=unit
    )
    seconds = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400}[unit.name]
    assert settings.slow_consumer_rate == 720 / seconds
    assert unit.value == f"MESSAGES_PER_{unit.name}"


def slow_core(policy=SlowPolicy.NOTIFY, **values) -> tuple[Core, list]:
    settings = {"slow_consumer_threshold": 10, "slow_consumer_check_period": 1, **values}
    core = Core(entry("#", slow_consumer_policy=policy, **settings))
    found = []
    core.gateway.pressure.slow.tell = found.append
    return core, found


def second(core: Core, *, after=1000) -> None:
    core.pass_time(after)
    core.gateway.pressure.slow.look()
    core.turn()


def test_it_is_told_of_once_a_period_with_who_it_is():
    core, found = slow_core(slow_consumer_check_period=2)
    core.send("q", *BODIES[:25])
    taker = core.consume("q", room=25)
    for _ in range(7):
        second(core)
    # Looked at first after 1 s, judged after 3, 5 and 7.
    assert len(found) == 3
    one = found[0]
    assert (one.queue, one.address, one.consumers, one.rate) == ("q", "q", 1, 0.0)
    assert (one.who.remote, one.who.connection, one.threshold) == ("127.0.0.1", "c1", 10.0)
    assert (core.gateway.pressure.slow.found, core.gateway.pressure.slow.killed) == (3, 0)
    assert taker.refusals == []
    core.check()


def test_acknowledging_at_the_threshold_is_fast_enough():
    core, found = slow_core()
    core.send("q", *BODIES)
    taker = core.consume("q", room=50)
    second(core)
    for amount in (10, 11, 9):
        taker.ack(amount)
        second(core)
    assert [one.rate for one in found] == [9.0]


def test_what_was_acknowledged_before_the_first_look_does_not_count():
    core, found = slow_core()
    core.send("q", *BODIES)
    taker = core.consume("q", room=50)
    taker.ack(50)
    taker.take(5)
    core.turn()
    second(core)
    second(core)
    assert [one.rate for one in found] == [0.0]


def test_each_consumer_is_judged_by_itself():
    core, found = slow_core(SlowPolicy.KILL)
    core.send("q", *BODIES)
    slow, fast = core.consume("q", room=20), core.consume("q", room=20)
    second(core)
    fast.ack(12)
    second(core)
    assert [one.consumers for one in found] == [2]
    assert [r.code for r in slow.refusals] == [Code.SLOW_CONSUMER]
    assert "slow-consumer-threshold" in slow.refusals[0].text
    assert fast.refusals == []
    assert core.gateway.pressure.slow.killed == 1
    assert core.queue("q").consumer_count == 1
    core.check()


def test_a_consumer_that_nothing_is_for_is_not_slow():
    core, found = slow_core()
    core.send("q", *BODIES)
    core.consume("q", room=5, selector="color = 'red'")
    core.queue("q").paused = True
    core.consume("q", room=5)
    for _ in range(3):
        second(core)
    assert found == []


def test_one_that_asks_for_nothing_is():
    core, found = slow_core()
    core.send("q", *BODIES)
    core.consume("q", room=0)
    second(core)
    second(core)
    assert len(found) == 1


def test_a_consumer_of_a_topic_goes_with_its_queue():
    core, found = slow_core(SlowPolicy.KILL)
    takers = [
        core.consume("t", room=20, routing=RoutingType.MULTICAST, temporary=True) for _ in range(3)
    ]
    core.send("t", *BODIES, routing=RoutingType.MULTICAST)
    second(core)
    second(core)
    assert (len(found), [len(t.refusals) for t in takers]) == (3, [1, 1, 1])
    assert core.gateway.queues == {}
    second(core)
    core.check()


def test_settings_that_change_while_it_runs():
    core, found = slow_core()
    core.send("q", *BODIES)
    taker = core.consume("q", room=20)
    for threshold, more in ((10, 1), (-1, 0), (10, 1)):
        core.gateway.directory.settings = SettingsTable(
            [entry("#", slow_consumer_threshold=threshold, slow_consumer_check_period=1)]
        )
        core.gateway.addresses["q"].apply_settings(core.gateway.settings.for_address("q"))
        before = len(found)
        second(core)
        second(core)
        assert bool(len(found) - before) == bool(more)
    (held,) = core.queue("q").consumers
    assert held.acknowledge != core.queue("q").acknowledge
    core.gateway.directory.settings = SettingsTable([])
    second(core)
    assert held.acknowledge == core.queue("q").acknowledge
    taker.ack()
    core.check()
