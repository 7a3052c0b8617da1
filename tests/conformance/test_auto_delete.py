"""What was made on demand and is not used any more: rows A31 and A32, sweep by sweep."""

from __future__ import annotations

import pytest

from tests.broker.core import ANYCAST, MULTICAST, Core, entry

ON = {"auto_delete_queues": True}


def used(core: Core, name: str = "q") -> None:
    """Send, consume and leave."""
    core.send(name, b"x")
    taker = core.consume(name)
    taker.ack()
    taker.leave()
    core.turn()


def sweep(core: Core, seconds: float = 30) -> list[str]:
    core.now += round(seconds * 1000)
    core.gateway.expire()  # broker time is read
    gone = core.gateway.reaper.sweep()
    core.check()
    return gone


def test_a31_gone_with_the_second_sweep():
    core = Core(entry(**ON))
    used(core)
    assert sweep(core) == []
    assert sweep(core) == ["queue q"]
    assert core.gateway.queues == {}
    assert sweep(core) == []
    # Its name can be used again.
    core.send("q", b"y")
    assert core.waiting("q") == [b"y"]


def test_a31_never_where_it_is_off():
    core = Core()
    used(core)
    assert [sweep(core) for _ in range(4)] == [[]] * 4


@pytest.mark.parametrize("skip", [False, True])
def test_a31_one_that_was_never_used_stays_unless_that_does_not_count(skip):
    core = Core(entry(**ON, auto_delete_queues_skip_usage_check=skip))
    core.producer("q")[0].close()
    assert core.queue("q").auto_created
    gone = [sweep(core) for _ in range(3)]
    assert gone == ([[], ["queue q"], []] if skip else [[], [], []])


def test_a31_a_consumer_that_got_nothing_is_a_use():
    core = Core(entry(**ON))
    core.consume("q").leave()
    assert [sweep(core), sweep(core)] == [[], ["queue q"]]


def test_a31_any_use_between_takes_the_mark_away():
    core = Core(entry(**ON))
    used(core)
    sweep(core)
    taker = core.consume("q")
    assert sweep(core) == []
    taker.leave()
    assert sweep(core) == []
    core.consume("q").leave()
    assert sweep(core) == []
    core.send("q", b"y")
    assert sweep(core) == []
    core.queue("q").purge()
    assert [sweep(core), sweep(core)] == [[], ["queue q"]]


@pytest.mark.parametrize(("most", "gone"), [(0, False), (1, True), (2, True), (-1, True)])
def test_a31_so_many_messages_may_be_left(most, gone):
    core = Core(entry(**ON, auto_delete_queues_message_count=most))
    used(core)
    core.send("q", b"left")
    sweep(core)
    assert (sweep(core) == ["queue q"]) == gone
    assert core.gateway.load.messages == (0 if gone else 1)


def test_a31_what_others_made_stays():
    core = Core(entry(**ON, auto_delete_queues_skip_usage_check=True))
    core.administration.create_queue("made", "made", ANYCAST)
    core.consume("news", routing=MULTICAST, durable_name="sub").leave()
    core.gateway.create_temporary(ANYCAST, core)
    assert [sweep(core) for _ in range(3)] == [[]] * 3
    core = Core(entry(auto_delete_created_queues=True, auto_delete_queues_skip_usage_check=True))
    core.administration.create_queue("made", "made", ANYCAST)
    core.administration.create_queue("written", "written", ANYCAST)
    core.gateway.reaper.kept = frozenset({"written"})
    assert [sweep(core), sweep(core), sweep(core)] == [[], ["queue made"], []]


def test_a32_present_until_its_delay_is_over():
    settings = {"auto_delete_queues_delay": 1500, "auto_delete_queues_skip_usage_check": True}
    core = Core(entry(**ON, **settings))
    core.producer("q")[0].close()
    steps = 0
    while sweep(core, 0.1) == []:
        steps += 1
        assert steps < 100
    # Seen by the first sweep, idle for 15 more, marked, and gone with the next.
    assert steps == 16


def test_a_delay_counts_from_the_last_consumer():
    core = Core(entry(**ON, auto_delete_queues_delay=60_000))
    used(core)
    assert [sweep(core, 25) for _ in range(3)] == [[]] * 3
    core.consume("q").leave()
    assert [sweep(core, 25) for _ in range(4)] == [[], [], [], ["queue q"]]


def test_an_address_goes_after_its_queues():
    core = Core(entry(**ON, auto_delete_addresses=True))
    used(core)
    route, _ = core.producer("q")
    assert [sweep(core) for _ in range(4)] == [[], ["queue q"], [], []]
    route.close()
    assert [sweep(core) for _ in range(3)] == [[], ["address q"], []]
    assert core.gateway.addresses == {}


def test_an_address_that_somebody_made_stays():
    core = Core(entry(**ON, auto_delete_addresses=True))
    core.directory.make_address("a")
    assert [sweep(core) for _ in range(3)] == [[]] * 3


def test_at_the_start_what_is_empty_goes_at_once():
    core = Core(entry(**ON))
    core.send("empty", b"x")
    core.send("full", b"x")
    core.administration.create_queue("made", "made", ANYCAST)
    taker = core.consume("empty")
    taker.ack()
    taker.leave()
    core.restart(clean=True)
    assert core.gateway.reaper.start() == ["queue empty"]
    assert sorted(core.gateway.queues) == ["full", "made"]
    core.restart(clean=True)
    assert sorted(core.gateway.queues) == ["full", "made"]


def made(core: Core, name: str = "q", routing=ANYCAST, **attributes) -> None:
    said = {f"auto_delete{key}": value for key, value in attributes.items()}
    core.administration.create_queue(name, name, routing, attributes=said)
    core.consume(name).leave() if routing is ANYCAST else None


def test_a_queue_that_somebody_made_goes_when_it_asks_for_it():
    core = Core()
    made(core, "plain")
    made(core, "asks", **{"": True})
    made(core, "never", **{"": False})
    assert [sweep(core) for _ in range(3)] == [[], ["queue asks"], []]
    assert sorted(core.gateway.queues) == ["never", "plain"]


def test_what_a_queue_says_counts_before_the_settings():
    settings = {"auto_delete_created_queues": True, "auto_delete_queues_delay": 100_000}
    core = Core(entry(**settings, auto_delete_queues_message_count=1))
    made(core, "never", **{"": False})
    made(core, "soon", _delay=0)
    made(core, "full", _delay=0, _message_count=0)
    made(core, "late")
    core.send("full", b"x")
    assert [sweep(core) for _ in range(4)] == [[], ["queue soon"], [], []]
    assert sweep(core) == ["queue late"]
    core.administration.update_queue("full", attributes={"auto_delete_message_count": -1})
    assert [sweep(core), sweep(core), sweep(core)] == [[], ["queue full"], []]
    assert list(core.gateway.queues) == ["never"]
    assert core.gateway.load.messages == 0


def test_a_queue_of_the_configuration_goes_only_when_it_says_so_itself():
    core = Core(entry(auto_delete_created_queues=True))
    made(core, "written")
    made(core, "asks", **{"": True})
    core.gateway.reaper.kept = frozenset({"written", "asks"})
    assert [sweep(core), sweep(core), sweep(core)] == [[], ["queue asks"], []]


def test_a_multicast_queue_goes_when_it_asks_for_it():
    core = Core(entry(auto_delete_created_queues=True, auto_delete_queues_skip_usage_check=True))
    made(core, "plain", MULTICAST)
    made(core, "asks", MULTICAST, **{"": True})
    assert [sweep(core), sweep(core), sweep(core)] == [[], ["queue asks"], []]


def test_one_that_was_made_on_demand_is_kept_when_it_says_so():
    core = Core(entry(**ON))
    used(core)
    core.administration.update_queue("q", attributes={"auto_delete": False})
    assert [sweep(core) for _ in range(3)] == [[]] * 3
    core.restart(clean=True)
    assert core.gateway.reaper.start() == []
    assert list(core.gateway.queues) == ["q"]


def test_what_a_queue_says_is_there_after_a_power_cut():
    core = Core()
    made(core, **{"": True, "_delay": 40_000, "_message_count": 2})
    core.sync()
    core.restart()
    said = core.queue("q").attributes
    assert (said.auto_delete, said.auto_delete_delay, said.auto_delete_message_count) == (
        True,
        40_000,
        2,
    )
    assert core.gateway.reaper.start() == []
    core.consume("q").leave()
    assert [sweep(core) for _ in range(3)] == [[], [], ["queue q"]]
    core.sync()
    core.restart()
    assert core.gateway.queues == {}
