"""Address settings and limits that change while messages are there: rows P23 and P36 among them.

With a real process, its file and clients of both protocols: `tests/interop/test_reload.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.addresses.match import SettingsTable
from gateway.addresses.settings import (
    DiskFullPolicy,
    Durability,
    FullPolicy,
    PageFullPolicy,
    SlowPolicy,
)
from gateway.broker import Limits
from gateway.broker.resettle import STEP, resettle
from gateway.model.attributes import QueueAttributes
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import IDENTIFIED
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from tests.broker.core import ANYCAST, MULTICAST, Core, entry, flags_of, stomp

BLOCK, FAIL, DROP, PAGE = FullPolicy.BLOCK, FullPolicy.FAIL, FullPolicy.DROP, FullPolicy.PAGE
MANY = [b"%04d" % i for i in range(1000)]
MIB = 1 << 20


def change(core: Core, *entries: object, limits: Limits | None = None) -> int:
    """Have other settings and limits hold; returns in how many steps."""
    core.entries, core.limits = entries, limits or core.limits
    steps = 0
    for _ in resettle(core.gateway, SettingsTable(entries), core.limits):
        steps += 1
        core.turn()
    core.sync()
    core.check()
    return steps


def limited(policy: FullPolicy, **values: object) -> object:
    return entry("#", address_full_policy=policy, **values)


def drain(core: Core, name: str = "q", amount: int = 1000) -> list[bytes]:
    taker = core.consume(name, room=amount)
    core.sync()
    bodies = taker.bodies()
    taker.ack()
    taker.leave()
    core.sync()
    core.check()
    return bodies


# ---- pages


def test_p23_a_page_limit_is_another_one_while_it_runs():
    def with_limit(limit: int) -> object:
        return limited(PAGE, max_size_bytes=MIB, page_size_bytes=MIB, page_limit_bytes=limit)

    core = Core(with_limit(MIB))
    body = b"x" * 90_000
    assert core.send("q", *[body] * 15) == [True] * 15
    address = core.gateway.addresses["q"]
    _, owner = core.producer("q")
    assert address.paging is not None
    assert address.blocked is None
    change(core, with_limit(MIB - 1))
    assert address.blocked is not None
    assert address.blocked.code is Code.PAGE_FULL
    assert owner.blocked
    assert core.send("q", body) == [False]
    change(core, with_limit(2 * MIB))
    assert address.blocked is None
    assert not owner.blocked
    assert core.send("q", body) == [True]
    assert drain(core) == [body] * 16


def test_p23_a_limit_of_messages_on_pages_and_what_happens_at_it():
    core = Core(limited(PAGE, max_size_messages=1, page_limit_messages=3))
    assert core.send("q", *MANY[:6]) == [True] * 4 + [False] * 2
    change(core, limited(PAGE, max_size_messages=1, page_limit_messages=5))
    assert core.send("q", *MANY[4:8]) == [True] * 2 + [False] * 2
    dropping = {"page_limit_messages": 5, "page_full_policy": PageFullPolicy.DROP}
    change(core, limited(PAGE, max_size_messages=1, **dropping))
    assert core.send("q", b"dropped") == [True]
    assert core.gateway.addresses["q"].dropped == 1
    assert drain(core) == MANY[:6]


# ---- limits in memory


@pytest.mark.parametrize("policy", [FAIL, BLOCK])
def test_senders_that_wait_go_on_when_a_limit_is_raised(policy):
    core = Core(limited(policy, max_size_messages=5))
    _, owner = core.producer("q")
    core.send("q", *MANY[:5])
    assert owner.blocked
    change(core, limited(policy, max_size_messages=8))
    assert not owner.blocked
    assert core.gateway.addresses["q"].blocked is None
    assert core.send("q", *MANY[5:8]) == [True] * 3
    assert owner.blocked
    change(core, limited(policy))
    assert not owner.blocked
    assert core.send("q", *MANY[8:30]) == [True] * 22
    assert drain(core) == MANY[:30]


@pytest.mark.parametrize("policy", [FAIL, BLOCK])
def test_a_limit_below_what_is_there_holds_senders_back_at_once(policy):
    core = Core(limited(policy, max_size_messages=50))
    _, owner = core.producer("q")
    core.send("q", *MANY[:20])
    change(core, limited(policy, max_size_messages=10))
    refusal = core.gateway.addresses["q"].blocked
    assert owner.blocked
    assert "max-size-messages is 10" in refusal.text
    assert core.send("q", b"more") == [policy is BLOCK]
    change(core, limited(policy, max_size_messages=12))
    assert "max-size-messages is 12" in core.gateway.addresses["q"].blocked.text
    drain(core, amount=15)
    assert not owner.blocked


def test_a_limit_below_what_is_there_starts_page_mode_with_the_next_message():
    core = Core(limited(PAGE))
    core.send("q", *MANY[:10])
    address = core.gateway.addresses["q"]
    change(core, limited(PAGE, max_size_messages=5))
    assert address.paging is None
    core.send("q", *MANY[10:12])
    assert address.paging is not None
    assert core.queue("q").paged_count == 2
    # Once it has begun it goes on until its pages are consumed.
    change(core, limited(PAGE))
    core.send("q", MANY[12])
    assert core.queue("q").paged_count == 3
    assert drain(core) == MANY[:13]
    assert address.paging is None


@pytest.mark.parametrize("policy", [FAIL, BLOCK, DROP])
def test_page_mode_goes_on_under_another_policy_until_its_pages_are_consumed(policy):
    core = Core(limited(PAGE, max_size_messages=2))
    core.send("q", *MANY[:5])
    address = core.gateway.addresses["q"]
    change(core, limited(policy, max_size_messages=2))
    assert core.send("q", *MANY[5:8]) == [True] * 3
    assert core.queue("q").paged_count == 6
    assert drain(core) == MANY[:8]
    assert address.paging is None
    # From here on the policy is that one.
    assert (
        core.send("q", *MANY[:4])
        == {
            FAIL: [True, True, False, False],
            BLOCK: [True] * 4,
            DROP: [True] * 4,
        }[policy]
    )
    assert address.paging is None
    assert len(core.waiting("q")) == (4 if policy is BLOCK else 2)
    change(core, limited(PAGE, max_size_messages=2))
    assert address.blocked is None
    assert core.send("q", b"paged") == [True]
    assert core.queue("q").paged_count == 1


@pytest.mark.parametrize("before", [FAIL, BLOCK])
@pytest.mark.parametrize("after", [PAGE, DROP])
def test_senders_that_wait_go_on_under_a_policy_that_lets_nobody_wait(before, after):
    core = Core(limited(before, max_size_messages=3))
    _, owner = core.producer("q")
    core.send("q", *MANY[:3])
    assert owner.blocked
    change(core, limited(after, max_size_messages=3))
    assert not owner.blocked
    assert core.send("q", MANY[3]) == [True]
    assert len(drain(core)) == (4 if after is PAGE else 3)


def test_an_operators_block_outlasts_any_settings():
    core = Core(limited(BLOCK, max_size_messages=3))
    _, owner = core.producer("q")
    core.gateway.block_address("q", True)
    change(core, limited(DROP))
    assert owner.blocked
    core.gateway.block_address("q", False)
    assert not owner.blocked


def test_the_limits_of_the_gateway_hold_senders_back_and_let_them_go():
    core = Core(limited(BLOCK))
    owners = {}
    for name in ("a", "b"):
        _, owners[name] = core.producer(name)
        core.send(name, *MANY[:10])
    change(core, limited(BLOCK), limits=Limits(global_max_messages=20))
    assert {name: owner.blocked for name, owner in owners.items()} == {"a": True, "b": True}
    change(core, limited(BLOCK), limits=Limits(global_max_messages=40))
    assert not owners["a"].blocked
    assert not owners["b"].blocked
    change(core, limited(BLOCK), limits=Limits(global_max_size=MIB))
    core.send("a", b"x" * MIB)
    assert owners["a"].blocked
    change(core, limited(BLOCK), limits=Limits(global_max_size=-1))
    assert not owners["a"].blocked


def test_another_disk_full_policy_while_the_disk_is_full():
    core = Core(entry("#", disk_full_policy=DiskFullPolicy.BLOCK))
    _, owner = core.producer("q")
    gate = core.gateway.pressure.disk
    gate.set(Refusal(code=Code.DISK_FULL, text="full", transient=True))
    assert owner.blocked
    change(core, entry("#", disk_full_policy=DiskFullPolicy.DROP))
    assert not owner.blocked
    change(core, entry("#", disk_full_policy=DiskFullPolicy.FAIL))
    assert owner.blocked
    gate.set(None)
    assert not owner.blocked


# ---- matches


def test_a_match_that_comes_or_goes_changes_what_holds_for_those_that_fit():
    core = Core(entry("#", max_delivery_attempts=3))
    for name in ("a.b", "a.c", "x"):
        core.send(name, b"m")

    def attempts() -> list[int]:
        return [core.queue(name).max_attempts for name in ("a.b", "a.c", "x")]

    assert attempts() == [3, 3, 3]
    change(core, entry("#", max_delivery_attempts=3), entry("a.*", max_delivery_attempts=5))
    assert attempts() == [5, 5, 3]
    exact = entry("a.b", max_delivery_attempts=7)
    change(core, exact, entry("#"), entry("a.#", max_delivery_attempts=5))
    assert attempts() == [7, 5, 10]
    change(core)
    assert attempts() == [10, 10, 10]
    assert core.gateway.settings.for_address("a.b").max_delivery_attempts == 10


def test_defaults_of_queues_are_for_new_queues_alone():
    core = Core()
    core.send("old", *MANY[:20])
    change(
        core,
        entry(
            "#",
            default_ring_size=3,
            default_max_consumers=1,
            default_last_value_key="k",
            default_exclusive_queue=True,
        ),
    )
    old = core.queue("old")
    assert (old.ring_size, old.max_consumers, old.attributes) == (-1, -1, QueueAttributes())
    core.send("old", b"more")
    assert len(core.waiting("old")) == 21
    core.send("new", *MANY[:20])
    new = core.queue("new")
    assert (new.ring_size, new.max_consumers, new.replaces) == (3, 1, True)
    assert core.waiting("new") == MANY[17:20]
    change(core)
    assert core.queue("new").ring_size == 3


# ---- what happens to messages


def test_redelivery_dead_letters_and_expiry_follow_at_once():
    core = Core()
    core.send("q", b"1", b"2")
    taker = core.consume("q", room=1)
    change(core, entry("#", max_delivery_attempts=1, dead_letter_address="dead"))
    taker.release(failed=True)
    core.sync()
    assert core.waiting("dead") == [b"1"]
    change(core, entry("#", redelivery_delay=1000))
    taker.take(1)
    core.sync()
    taker.release(failed=True, delayed=True)
    core.sync()
    assert core.queue("q").scheduled_count == 1
    change(core, entry("#", max_expiry_delay=500, expiry_address="old"))
    core.send("q", b"short")
    core.pass_time(600)
    core.gateway.expire()
    core.sync()
    assert core.waiting("old") == [b"short"]


def test_a_producer_that_is_there_follows_expiry_rules_at_once():
    core = Core()
    route, _ = core.producer("q")
    route.send(Run([stomp(b"1")], flags_of()))
    core.turn()
    change(core, entry("#", expiry_delay=100))
    route.send(Run([stomp(b"2")], flags_of()))
    core.turn()
    core.pass_time(200)
    core.gateway.expire()
    assert core.waiting("q") == [b"1"]


def test_strict_dispatch_is_switched_on_and_off():
    core = Core()
    route, _ = core.producer("q")
    taker = core.consume("q")

    def send(body: bytes) -> None:
        route.send(Run([stomp(body)], flags_of()))
        core.turn()

    send(b"1")
    assert taker.bodies() == [b"1"]
    change(core, entry("#", strict_dispatch=True))
    send(b"2")
    assert taker.bodies() == [b"1"]
    core.sync()
    assert taker.bodies() == [b"1", b"2"]
    send(b"3")
    change_without_sync(core)
    send(b"4")
    assert taker.bodies() == [b"1", b"2"]  # nothing overtakes what waits
    core.sync()
    assert taker.bodies() == [b"1", b"2", b"3", b"4"]
    send(b"5")
    assert taker.bodies()[-1] == b"5"


def change_without_sync(core: Core) -> None:
    for _ in resettle(core.gateway, SettingsTable(()), core.limits):
        core.turn()


def test_durability_is_another_one_for_what_comes():
    core = Core()
    core.send("q", b"1")
    number = core.queue("q").queue_id
    assert core.store.relaxed == set()
    change(core, entry("#", durability=Durability.WRITE))
    assert core.store.relaxed == {number}
    change(core, entry("#", durability=Durability.FSYNC))
    assert core.store.relaxed == set()
    change(core, entry("#", durability=Durability.MEMORY))
    core.send("q", b"2")
    core.sync()
    core.restart()
    assert core.waiting("q") == [b"1"]


def test_fewer_duplicate_ids_are_remembered_at_once():
    core = Core()
    route, _ = core.producer("q")

    def send(number: int) -> None:
        body = pack("q", b"%d" % number, persistent=True, headers=[("_AMQ_DUPL_ID", str(number))])
        route.send(Run([body], flags_of() | IDENTIFIED))
        core.turn()

    for number in range(50):
        send(number)
    change(core, entry("#", id_cache_size=10))
    assert core.gateway.routing.duplicates.count("q") == 10
    send(45)
    assert len(core.waiting("q")) == 50
    send(5)
    assert len(core.waiting("q")) == 51
    change(core, entry("#", id_cache_size=0))
    assert core.gateway.routing.duplicates.count("q") == 0
    send(5)
    assert len(core.waiting("q")) == 52
    core.sync()
    core.restart()
    assert core.gateway.routing.duplicates.count("q") == 0


def test_a_retroactive_address_begins_and_ends_to_keep():
    core = Core()
    core.gateway.directory.make_address("news", frozenset({MULTICAST}))
    core.send("news", *MANY[:5], routing=MULTICAST)
    change(core, entry("news", retroactive_message_count=3))
    core.send("news", *MANY[5:10], routing=MULTICAST)
    taker = core.consume("news", routing=MULTICAST)
    assert taker.bodies() == MANY[7:10]
    change(core)
    core.send("news", MANY[10], routing=MULTICAST)
    late = core.consume("news", routing=MULTICAST)
    assert late.bodies() == []


def test_slow_consumers_are_looked_for_from_now_on_and_no_more():
    core = Core()
    found = []
    core.gateway.pressure.slow.tell = found.append
    core.send("q", *MANY[:100])
    taker = core.consume("q", room=50)

    def looked() -> int:
        before = len(found)
        for _ in range(3):
            core.pass_time(1000)
            core.gateway.pressure.slow.look()
            core.turn()
        return len(found) - before

    assert looked() == 0
    slow = {"slow_consumer_threshold": 10, "slow_consumer_check_period": 1}
    change(core, entry("#", **slow))
    assert looked() >= 1
    change(core)
    assert looked() == 0
    change(core, entry("#", **slow, slow_consumer_policy=SlowPolicy.KILL))
    assert looked() == 1
    assert [refusal.code for refusal in taker.refusals] == [Code.SLOW_CONSUMER]


def test_what_is_not_used_goes_from_now_on():
    core = Core()
    core.send("q", b"1")
    drain(core)
    assert [core.gateway.reaper.sweep() for _ in range(3)] == [[], [], []]
    change(core, entry("#", auto_delete_queues=True, auto_delete_addresses=True))
    gone = [what for _ in range(5) for what in core.gateway.reaper.sweep()]
    assert gone == ["queue q", "address q"]


def test_what_may_be_made_on_demand_is_another_thing_from_now_on():
    core = Core()
    core.send("there", b"1")
    change(core, entry("#", auto_create_addresses=False, auto_create_queues=False))
    assert core.send("there", b"2") == [True]
    with pytest.raises(RefusedError):
        core.send("new", b"1")
    change(core, entry("#", default_address_routing_type=MULTICAST))
    core.send("new", b"1")
    assert core.gateway.addresses["new"].routing_types == {MULTICAST}


def test_senders_that_attach_from_now_on_have_their_messages_stamped():
    core = Core()
    before, _ = core.producer("q")
    change(core, entry("#", enable_ingress_timestamp=True))
    after, _ = core.producer("q")
    for route in (before, after):
        route.send(Run([stomp(b"m")], flags_of()))
        core.turn()
    stamped = [b"ingress-timestamp" in m.body for m in core.queue("q").browse(0, 2)]
    assert stamped == [False, True]


# ---- how much at once


def test_very_many_addresses_follow_a_few_at_a_time():
    core = Core()
    directory = core.gateway.directory
    for number in range(10 * STEP):
        directory.make_address(f"a.{number}", frozenset({ANYCAST}))
    core.sync()
    steps = change(core, entry("#", max_delivery_attempts=2))
    assert steps == 10
    found = {a.settings.max_delivery_attempts for a in core.gateway.addresses.values()}
    assert found == {2}


def test_an_address_that_goes_meanwhile_is_left_alone():
    core = Core()
    for number in range(2 * STEP):
        core.send(f"a.{number}", b"m")
    drained = f"a.{2 * STEP - 1}"
    steps = resettle(core.gateway, SettingsTable((entry("#", no_expiry=True),)), core.limits)
    next(steps)
    core.gateway.administration.delete_address(drained, force=True)
    new = core.producer("later")[0]
    assert list(steps) is not None
    core.sync()
    assert drained not in core.gateway.addresses
    assert new.target.settings.no_expiry


def test_a_limit_that_is_there_already_is_told_once():
    core = Core(limited(BLOCK, max_size_messages=2))
    _, owner = core.producer("q")
    core.send("q", *MANY[:2])
    assert owner.told == ["blocked"]
    change(core, replace(limited(BLOCK, max_size_messages=1)))
    assert owner.told == ["blocked"]
