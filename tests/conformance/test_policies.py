"""Full addresses: the scenario rows P that concern DROP, FAIL and BLOCK, by their numbers.

Rows about page files are in `test_paging`.
"""

from __future__ import annotations

import pytest

from gateway.addresses.settings import DiskFullPolicy, FullPolicy, contradiction
from gateway.broker import Limits
from gateway.broker.pressure.load import OVERHEAD_BYTES
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.run import MixedRun, Run
from tests.broker.core import ANYCAST, MULTICAST, Core, entry, flags_of, stomp

BLOCK, FAIL, DROP, PAGE = (
    FullPolicy.BLOCK,
    FullPolicy.FAIL,
    FullPolicy.DROP,
    FullPolicy.PAGE,
)
MANY = [b"%03d" % i for i in range(50)]
EACH = len(stomp(b"000")) + OVERHEAD_BYTES


def limited(policy: FullPolicy, **limits: int) -> Core:
    return Core(entry("#", address_full_policy=policy, **limits))


def drain(core: Core, name: str, amount: int | None = None) -> list[bytes]:
    taker = core.consume(name, room=1000 if amount is None else amount)
    bodies = taker.bodies()
    taker.ack()
    taker.leave()
    core.turn()
    core.check()
    return bodies


@pytest.mark.parametrize("together", [False, True])
def test_p8_drop_keeps_the_first_and_accepts_all(together):
    core = limited(DROP, max_size_messages=5)
    route, owner = core.producer("q")
    for round_number in range(1, 3):
        assert core.send("q", *MANY[:10], together=together) == [True] * 10
        assert core.gateway.addresses["q"].dropped == 5 * round_number
        assert drain(core, "q") == MANY[:5]
        assert core.gateway.addresses["q"].size_bytes == 0
    assert core.queue("q").added == 10
    # Who is never refused is not held back either.
    assert (route.blocked(), owner.told) == (None, [])


@pytest.mark.parametrize("together", [False, True])
def test_p9_fail_takes_what_reaches_the_limit_and_refuses_the_rest(together):
    core = limited(FAIL, max_size_messages=11)
    assert core.send("q", *MANY, together=together) == [True] * 11 + [False] * 39
    route, _ = core.producer("q")
    outcome = route.send(Run([stomp(b"x")], flags_of()))
    assert outcome.refusal is not None
    assert (outcome.taken, outcome.ticket) == (0, 0)
    refusal = outcome.refusal
    assert refusal.code is Code.ADDRESS_FULL
    assert "max-size-messages is 11" in refusal.text
    assert refusal.transient


@pytest.mark.parametrize("everywhere", [False, True])
def test_p10_the_cycle_of_full_and_empty_repeats(everywhere):
    core = (
        Core(entry("#", address_full_policy=FAIL), limits=Limits(global_max_messages=10))
        if everywhere
        else limited(FAIL, max_size_messages=10)
    )
    for number in range(5):
        durable = bool(number % 2)
        assert core.send("q", *MANY[:11], durable=durable) == [True] * 10 + [False]
        assert drain(core, "q") == MANY[:10]
    full = Code.MEMORY_FULL if everywhere else Code.ADDRESS_FULL
    assert core.gateway.figures.refused[full] == 5


def test_p12_blocked_by_an_operator_before_the_attach():
    core = limited(BLOCK, max_size_messages=5)
    core.send("q")
    core.gateway.block_address("q", blocked=True)
    route, owner = core.producer("q")
    assert "operator" in route.blocked().text
    core.gateway.block_address("q", blocked=False)
    assert (route.blocked(), owner.told) == (None, ["unblocked"])


@pytest.mark.parametrize("policy", [FAIL, DROP, BLOCK, PAGE])
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("together", [False, True])
def test_p40_the_boundary_in_bytes_is_exact(policy, more, together):
    core = limited(policy, max_size_bytes=3 * EACH + more)
    taken = core.send("q", *MANY[:10], together=together)
    stored = core.queue("q").added
    if policy in (BLOCK, PAGE):
        assert (taken, stored) == ([True] * 10, 10)
        if policy is PAGE:
            assert core.queue("q").paged_count == 7 - more
    else:
        assert stored == 3 + more
        assert taken.count(True) == (10 if policy is DROP else 3 + more)
    assert (core.producer("q")[0].blocked() is None) == (policy in (DROP, PAGE))


def test_p40_full_at_exactly_the_limit():
    for more, free in ((0, False), (1, True)):
        core = limited(FAIL, max_size_bytes=3 * EACH + more)
        core.send("q", *MANY[:3])
        assert (core.producer("q")[0].blocked() is None) == free


def test_p37_block_holds_at_the_limit_and_lets_go_below_it():
    core = limited(BLOCK, max_size_messages=5)
    core.send("q", *MANY[:4])
    early, owner = core.producer("q")
    assert early.blocked() is None
    core.send("q", MANY[4])
    assert owner.blocked
    late, late_owner = core.producer("q")
    assert late.blocked() is not None
    core.send("q", MANY[5])
    assert core.queue("q").message_count == 6
    drain(core, "q", 1)
    assert owner.blocked
    drain(core, "q", 1)
    assert (early.blocked(), late.blocked()) == (None, None)
    assert owner.told == ["blocked", "unblocked"]
    assert late_owner.told == ["unblocked"]


def test_block_lets_go_a_tenth_below_and_fail_just_below_the_limit():
    for policy, free_at in ((BLOCK, 89), (FAIL, 99)):
        core = limited(policy, max_size_messages=100)
        core.send("q", *[b"x"] * 100)
        route, _ = core.producer("q")
        left = 100
        while route.blocked() is not None:
            drain(core, "q", 1)
            left -= 1
        assert left == free_at, policy


def test_p33_others_on_the_gateway_are_served():
    core = Core(entry("full", address_full_policy=BLOCK, max_size_bytes=20 << 10))
    core.send("full", *[b"x" * 1024] * 30)
    assert core.producer("full")[0].blocked() is not None
    assert core.producer("other")[0].blocked() is None
    assert core.send("other", b"y") == [True]


def test_p17_fail_by_bytes_takes_some_and_then_none():
    core = limited(FAIL, max_size_bytes=1000)
    taken = core.send("q", *MANY[:10])
    assert taken == sorted(taken, reverse=True)
    assert 0 < taken.count(True) < 10
    assert not any(core.send("q", *MANY[:3]))


def test_p18_a_topic_counts_a_message_once_whatever_its_subscriptions():
    core = limited(FAIL, max_size_messages=5)
    takers = [core.consume("t", room=0, routing=MULTICAST, durable_name=f"c.{n}") for n in range(3)]
    assert core.send("t", *MANY[:9], routing=MULTICAST) == [True] * 5 + [False] * 4
    assert core.gateway.addresses["t"].messages == 5
    # One slow subscriber keeps the address full for all.
    for taker in takers[:2]:
        taker.take(9)
        core.turn()
        assert taker.bodies() == MANY[:5]
        taker.ack()
    core.check()
    assert core.gateway.addresses["t"].messages == 5
    assert core.send("t", b"x", routing=MULTICAST) == [False]
    takers[2].take(1)
    core.turn()
    takers[2].ack()
    core.check()
    assert core.gateway.addresses["t"].messages == 4
    assert core.send("t", b"x", b"y", routing=MULTICAST) == [True, False]


def test_p18_copies_count_once_after_a_restart_too():
    core = limited(FAIL, max_size_messages=5)
    for n in range(3):
        core.consume("t", room=0, routing=MULTICAST, durable_name=f"c.{n}").leave()
    core.send("t", *MANY[:4], routing=MULTICAST)
    core.sync()
    size = core.gateway.load.memory
    core.restart()
    assert core.gateway.addresses["t"].messages == 4
    assert core.gateway.load.memory == size
    for n in range(3):
        assert drain(core, f"t::c.{n}") == MANY[:4]
    assert (core.gateway.load.memory, core.gateway.load.messages) == (0, 0)


@pytest.mark.parametrize("policy", [FAIL, DROP, BLOCK])
def test_p3_the_limit_of_the_gateway_concerns_an_empty_address_too(policy):
    core = Core(entry("#", address_full_policy=policy), limits=Limits(global_max_messages=3))
    core.send("one", *MANY[:3])
    taken = core.send("two", b"x")
    added = core.queue("two").added
    assert (taken, added) == {
        FAIL: ([False], 0),
        DROP: ([True], 0),
        BLOCK: ([True], 1),
    }[policy]
    assert (core.producer("two")[0].blocked() is None) == (policy is DROP)


def test_the_gateways_bytes_are_a_limit_to_the_byte():
    for more in (0, 1):
        limits = Limits(global_max_size=3 * EACH + more)
        for together in (False, True):
            core = Core(entry("#", address_full_policy=FAIL), limits=limits)
            taken = core.send("q", *MANY[:9], together=together)
            assert taken.count(True) == 3 + more
            drain(core, "q", 1)
            assert core.send("q", b"000") == [True]


def test_p4_both_addresses_count_for_the_gateway():
    core = Core(entry("#", address_full_policy=FAIL), limits=Limits(global_max_messages=50))
    assert all(core.send("a1", *MANY[:30]))
    assert core.producer("a1")[0].blocked() is None
    assert core.send("a2", *MANY[:30]).count(True) == 20
    assert core.producer("a2")[0].blocked().code is Code.MEMORY_FULL


def test_p5_the_tenth_address_meets_the_gateways_limit():
    core = Core(
        entry("#", address_full_policy=FAIL, max_size_messages=5),
        limits=Limits(global_max_messages=40),
    )
    taken = [all(core.send(f"a{n}", *MANY[:4])) for n in range(11)]
    assert taken == [True] * 10 + [False]


@pytest.mark.parametrize("policy", [FAIL, DROP, BLOCK])
def test_p36_a_limit_of_nothing_is_refused(policy):
    for field in ("max_size_bytes", "max_size_messages"):
        where, why = contradiction({field: 0, "address_full_policy": policy})
        assert where == field
        assert "full for ever" in why
        assert contradiction({field: -1, "address_full_policy": policy}) is None
        assert contradiction({field: 0, "address_full_policy": PAGE}) is None


def test_p39_bodies_count_in_full():
    core = Core()
    for size in (10, 1000, 300_000):
        core.send("q", b"x" * size)
        assert core.gateway.addresses["q"].size_bytes == len(stomp(b"x" * size)) + OVERHEAD_BYTES
        drain(core, "q")


def test_a_mixed_run_stops_where_the_address_is_full():
    core = limited(FAIL, max_size_messages=3)
    route, _ = core.producer("q")
    bodies = [stomp(b) for b in MANY[:6]]
    flags = [flags_of(9), flags_of(9), flags_of(0, durable=False), *[flags_of()] * 3]
    outcome = route.send_mixed(MixedRun(bodies, flags, [0] * 6))
    assert outcome.refusal is not None
    assert (outcome.taken, outcome.ticket) == (3, core.store.ticket)
    assert core.waiting("q") == MANY[:3]


# ---- transactions at the limit


def commit(core: Core, *sends: tuple[str, bytes]) -> bool:
    """Commit sends in one transaction; False when refused."""
    routes = {name: core.producer(name)[0] for name, _ in sends}
    work = core.gateway.begin()
    for name, body in sends:
        assert work.send(routes[name], Run((stomp(body),), flags_of())) is None
    try:
        work.commit()
        done = True
    except RefusedError:
        work.rollback()
        done = False
    core.sync()
    core.check()
    return done


@pytest.mark.parametrize("size", range(7))
def test_p16_a_commit_that_would_pass_the_limit_is_refused_whole(size):
    core = limited(FAIL, max_size_messages=5)
    core.send("q", *MANY[:2])
    done = commit(core, *[("q", MANY[i]) for i in range(size)], ("other", b"x"))
    # The message that reaches the limit is taken; one behind it is not.
    assert done == (size <= 3)
    assert core.queue("q").added == 2 + (size if done else 0)
    assert core.queue("other").added == int(done)


def test_p16_a_commit_in_bytes_is_whole_or_nothing():
    for more, whole in ((0, False), (1, True)):
        core = limited(FAIL, max_size_bytes=3 * EACH + more)
        assert commit(core, *[("q", b"000")] * 4) == whole
        assert core.queue("q").added == (4 if whole else 0)


def test_p16_the_gateways_limit_over_several_addresses():
    core = Core(entry("#", address_full_policy=FAIL), limits=Limits(global_max_messages=4))
    assert not commit(core, *[(name, b"x") for name in ("a", "b", "a", "b", "c")])
    assert [core.queue(name).added for name in "abc"] == [0, 0, 0]
    assert commit(core, *[(name, b"x") for name in ("a", "b", "a", "b")])


def test_a_commit_to_a_ring_counts_what_it_evicts():
    core = limited(FAIL, max_size_messages=5)
    core.administration.create_queue("q", "q", ANYCAST, ring_size=3)
    core.send("q", b"old")
    assert commit(core, *[("q", body) for body in MANY])
    assert core.waiting("q") == MANY[-3:]


def test_a_commit_to_a_ring_in_bytes_counts_the_victims_size():
    core = limited(FAIL, max_size_bytes=2 * EACH + 2500)
    core.administration.create_queue("q", "q", ANYCAST, ring_size=2)
    core.send("q", b"x" * 1000, b"y" * 1000)
    assert commit(core, ("q", b"z" * 1000), ("q", b"z" * 1000), ("q", b"z" * 900))
    assert not commit(core, ("q", b"z" * 2600), ("q", b"z"), ("q", b"z" * 2600), ("q", b"z"))
    assert core.figures("q") == (2, 0, 3)


def test_a_commit_is_whole_though_a_consumer_keeps_a_ring_from_evicting():
    core = limited(FAIL, max_size_messages=5)
    core.administration.create_queue("q", "q", ANYCAST, ring_size=3)
    taker = core.consume("q", room=100)
    assert commit(core, *[("q", body) for body in MANY[:20]])
    assert taker.bodies() == MANY[:20]


def test_a_commit_under_drop_and_block_is_taken():
    core = limited(DROP, max_size_messages=2)
    assert commit(core, *[("q", body) for body in MANY[:4]])
    assert core.waiting("q") == MANY[:2]
    core = limited(BLOCK, max_size_messages=2)
    assert commit(core, *[("q", body) for body in MANY[:4]])
    assert core.waiting("q") == MANY[:4]
    assert core.producer("q")[0].blocked() is not None


def test_a_refused_commit_leaves_its_acknowledgements_in_delivery():
    core = limited(FAIL, max_size_messages=2)
    core.send("q", *MANY[:2])
    taker = core.consume("q")
    route, _ = core.producer("q")
    work = core.gateway.begin()
    work.acknowledge(taker.hold, taker.got[:1])
    work.send(route, Run((stomp(b"x"),), flags_of()))
    with pytest.raises(RefusedError):
        work.commit()
    assert core.figures("q") == (2, 2, 0)
    work.rollback()
    del taker.got[:1]
    core.turn()
    assert [m.delivery_count for m in taker.got] == [0, 1]


# ---- a full disk


def test_each_message_of_a_mixed_run_meets_the_full_disk_by_its_own_flags():
    core = Core(entry("#", disk_full_policy=DiskFullPolicy.DROP))
    route, _ = core.producer("q")
    core.gateway.pressure.disk.set(Refusal(code=Code.DISK_FULL, text="full", transient=True))
    amqp, form = 4, flags_of()
    # What an AMQP sender sends is dropped, what a STOMP sender sends is refused.
    bodies = [stomp(b) for b in MANY[:4]]
    outcome = route.send_mixed(MixedRun(bodies, [amqp, amqp | 0x10, form, amqp], [0] * 4))
    assert outcome.refusal is not None
    assert (outcome.taken, outcome.ticket, outcome.refusal.code) == (2, 0, Code.DISK_FULL)
    assert core.gateway.addresses["q"].dropped == 2
    outcome = route.send_mixed(MixedRun(bodies, [form, amqp, amqp, amqp], [0] * 4))
    assert outcome.refusal is not None
    assert outcome.taken == 0
    assert route.send_mixed(MixedRun(bodies, [amqp] * 4, [0] * 4)).ticket == 0
    assert core.gateway.addresses["q"].dropped == 6
    assert core.queue("q").added == 0
    core.check()
