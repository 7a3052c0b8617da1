"""Page mode: the scenario rows P that concern page files, by their numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.addresses.settings import FullPolicy, PageFullPolicy
from gateway.broker import Limits
from gateway.model.address import parse_destination
from gateway.model.errors import Code, RefusedError
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from tests.broker.core import ANYCAST, MULTICAST, Core, Owner, entry, flags_of, stomp

PAGE = FullPolicy.PAGE
MANY = [b"%04d" % i for i in range(1000)]


def paged(**settings: object) -> Core:
    return Core(entry("#", address_full_policy=PAGE, **settings))


def paging(core: Core, name: str = "q") -> bool:
    return core.gateway.addresses[name].paging is not None


def files(core: Core, name: str = "q") -> int:
    found = core.gateway.addresses[name].paging
    return 0 if found is None else found.page_files


def drain(core: Core, name: str = "q", amount: int | None = None, step: int = 7) -> list[bytes]:
    """Consume and acknowledge, `step` at a time, until nothing comes or `amount` is reached."""
    taker = core.consume(name, room=0)
    taken: list[bytes] = []
    while amount is None or len(taken) < amount:
        taker.take(step if amount is None else min(step, amount - len(taken)))
        core.sync()
        if not taker.got:
            break
        taken += taker.bodies()
        taker.ack()
        taker.left = 0
        core.sync()
        core.check()
    taker.leave()
    core.sync()
    core.check()
    return taken


@pytest.mark.parametrize("together", [False, True])
def test_p1_p2_the_first_stay_in_memory_and_all_come_in_order(together):
    core = paged(max_size_messages=5)
    for number in range(5):
        assert not number or not paging(core)
        core.send("q", MANY[number])
    assert paging(core)
    assert core.send("q", *MANY[5:10], together=together) == [True] * 5
    assert core.gateway.addresses["q"].messages == 5
    assert core.queue("q").paged_count == 5
    assert core.queue("q").message_count == 10
    core.sync()
    assert core.waiting("q") == MANY[:10]
    assert drain(core) == MANY[:10]
    assert (paging(core), files(core), core.queue("q").message_count) == (False, 0, 0)
    assert core.send("q", MANY[0])
    assert (paging(core), core.gateway.addresses["q"].messages) == (False, 1)


def test_p1_a_run_is_cut_at_the_limit():
    core = paged(max_size_messages=5)
    assert core.send("q", *MANY[:10], together=True) == [True] * 10
    assert (core.gateway.addresses["q"].messages, core.queue("q").paged_count) == (5, 5)
    assert drain(core) == MANY[:10]


def test_p1_what_is_sent_while_paging_waits_behind_the_pages():
    core = paged(max_size_messages=5)
    core.send("q", *MANY[:8])
    assert drain(core, amount=5) == MANY[:5]
    assert core.gateway.addresses["q"].messages == 0
    core.send("q", *MANY[8:12])
    assert core.gateway.addresses["q"].messages == 0
    assert drain(core) == MANY[5:12]
    assert not paging(core)


def test_p3_p6_the_global_limit_starts_page_mode():
    for limit in (100, 5):
        core = Core(limits=Limits(global_max_messages=limit))
        core.send("q", *MANY[: limit - 1])
        assert not paging(core)
        core.send("q", *MANY[limit - 1 : limit + 5])
        assert paging(core)
        assert core.gateway.load.messages == limit
        assert drain(core) == MANY[: limit + 5]


def test_p4_p5_the_address_that_reaches_it_pages():
    core = Core(limits=Limits(global_max_messages=50))
    core.send("a1", *MANY[:30])
    core.send("a2", *MANY[:30])
    assert (paging(core, "a1"), paging(core, "a2")) == (False, True)
    core = Core(entry(max_size_messages=5), limits=Limits(global_max_messages=40))
    for number in range(11):
        core.send(f"a{number}", *MANY[:4])
    assert [paging(core, f"a{number}") for number in range(11)] == [False] * 9 + [True] * 2


def test_p7_a_limit_of_nothing_always_pages():
    core = Core(entry("q", max_size_bytes=0, page_size_bytes=1024))
    core.send("q", *MANY[:10])
    core.send("other", *MANY[:10])
    assert (paging(core), paging(core, "other")) == (True, False)
    assert core.queue("q").paged_count == 10
    assert drain(core) == MANY[:10]
    assert (paging(core), files(core)) == (True, 0)
    core.send("q", *MANY[:3])
    assert drain(core) == MANY[:3]


def limited(**more: object) -> Core:
    return paged(max_size_messages=10, page_limit_messages=300, **more)


def test_p20_p21_the_limit_of_messages_counts_what_is_there():
    core = limited()
    assert core.send("q", *MANY[:310]) == [True] * 310
    route, owner = core.producer("q")
    assert route.blocked().code is Code.PAGE_FULL
    outcome = route.send(Run([stomp(b"x")], flags_of()))
    assert outcome.refusal is not None
    assert outcome.refusal.code is Code.PAGE_FULL
    assert "page-limit-messages is 300" in outcome.refusal.text
    assert drain(core, amount=150) == MANY[:150]
    assert route.blocked() is None
    assert owner.told == ["unblocked"]
    assert core.send("q", *MANY[310:451]) == [True] * 140 + [False]
    assert drain(core) == MANY[150:450]
    assert not paging(core)


def test_p20_a_run_is_taken_up_to_the_limit():
    core = limited()
    route, _ = core.producer("q")
    outcome = route.send(Run([stomp(body) for body in MANY[:400]], flags_of()))
    assert outcome.refusal is not None
    assert outcome.taken == 310
    core.sync()
    assert core.queue("q").message_count == 310
    assert drain(core) == MANY[:310]


def big(number: int, size: int = 950) -> bytes:
    return b"%05d" % number + b"x" * (size - 5)


def test_p22_p38_the_page_that_is_one_too_many_holds_one_message():
    core = paged(max_size_messages=1, page_size_bytes=4096, page_limit_bytes=3 * 4096)
    bodies = [big(number) for number in range(30)]
    assert core.send("q", *bodies) == [True] * 11 + [False] * 19
    assert files(core) == 4
    assert drain(core, amount=6) == bodies[:6]
    assert core.send("q", bodies[11]) == [True]
    assert drain(core) == bodies[6:12]


def test_p22_a_run_stops_at_the_same_place():
    core = paged(max_size_messages=1, page_size_bytes=4096, page_limit_bytes=3 * 4096)
    bodies = [big(number) for number in range(30)]
    assert core.send("q", *bodies, together=True) == [True] * 11 + [False] * 19
    assert files(core) == 4
    assert drain(core) == bodies[:11]


@pytest.mark.parametrize(
    ("limit", "full"), [(1 << 20, False), ((1 << 20) - 1, True), (2 << 20, False)]
)
def test_pages_are_counted_whole(limit, full):
    mib = 1 << 20
    core = paged(max_size_bytes=mib, page_size_bytes=mib, page_limit_bytes=limit)
    taken = core.send("q", *[big(number, 90_000) for number in range(15)])
    assert paging(core)
    assert taken == ([True] * 13 + [False] * 2 if full else [True] * 15)


def test_p24_the_first_limit_counts():
    core = paged(max_size_messages=1, page_limit_messages=10, page_limit_bytes=10 * (10 << 20))
    assert core.send("q", *MANY[:20]) == [True] * 11 + [False] * 9
    bodies = [big(number) for number in range(30)]
    bytes_first = {"page_size_bytes": 4096, "page_limit_bytes": 3 * 4096}
    core = paged(max_size_messages=1, page_limit_messages=20, **bytes_first)
    assert core.send("q", *bodies) == [True] * 11 + [False] * 19


def test_page_full_drop_takes_and_drops():
    core = limited(page_full_policy=PageFullPolicy.DROP)
    assert core.send("q", *MANY[:320]) == [True] * 320
    assert core.gateway.addresses["q"].dropped == 10
    _, owner = core.producer("q")
    assert not owner.blocked
    assert drain(core) == MANY[:310]


def test_p25_a_page_in_the_middle_goes_and_stays_away():
    core = paged(max_size_messages=1, page_size_bytes=1024, max_read_page_bytes=1 << 20)
    core.send("q", *MANY[:100])
    taker = core.consume("q", room=100)
    core.sync()
    before = files(core)
    assert before > 5
    assert taker.bodies() == MANY[:100]
    middle = taker.got[40:60]
    taker.got[40:60] = []
    taker.hold.acknowledge(middle)
    core.sync()
    assert before - 3 <= files(core) < before
    core.restart()
    assert before - 3 <= files(core) < before
    assert core.queue("q").message_count == 80
    assert core.waiting("q") == MANY[:40] + MANY[60:100]
    assert drain(core) == MANY[:40] + MANY[60:100]


def test_p26_a_transaction_that_is_rolled_back_leaves_nothing():
    core = limited()
    core.send("q", *MANY[:12])
    route, _ = core.producer("q")
    work = core.gateway.begin()
    for body in MANY[:10]:
        work.send(route, Run((stomp(body),), flags_of()))
    work.rollback()
    assert drain(core) == MANY[:12]
    assert not paging(core)


def test_p32_a_transaction_that_crosses_into_page_mode_keeps_its_order():
    core = paged(max_size_messages=100)
    taker = core.consume("q", room=0)
    route, _ = core.producer("q")
    work = core.gateway.begin()
    for body in MANY:
        work.send(route, Run((stomp(body),), flags_of()))
    work.commit()
    assert core.queue("q").message_count == 1000
    core.sync()
    taker.take(1000)
    core.sync()
    assert taker.bodies() == MANY
    taker.ack()
    core.sync()
    assert not paging(core)


def test_a_commit_that_would_pass_the_page_limit_does_nothing():
    core = limited()
    core.send("q", *MANY[:10])
    route, _ = core.producer("q")
    for count, fits in ((301, False), (300, True)):
        work = core.gateway.begin()
        for body in MANY[:count]:
            work.send(route, Run((stomp(body),), flags_of()))
        if fits:
            work.commit()
        else:
            with pytest.raises(RefusedError, match="page-limit-messages"):
                work.commit()
            work.rollback()
        core.sync()
        assert core.queue("q").message_count == (310 if fits else 10)


def two_queues(core: Core, *, durable: bool = True) -> None:
    core.directory.make_address("t", frozenset({MULTICAST}))
    core.administration.create_queue("t1", "t", MULTICAST)
    core.administration.create_queue("t2", "t", MULTICAST, durable=durable)
    core.sync()


@pytest.mark.parametrize("clean", [False, True])
def test_p27_each_queue_gets_all_over_a_restart(clean):
    core = paged(max_size_messages=5, page_size_bytes=1024)
    two_queues(core)
    core.send("t", *MANY[:100])
    assert drain(core, "t::t1") == MANY[:100]
    core.restart(clean=clean)
    assert paging(core, "t")
    assert core.queue("t1").message_count == 0
    assert core.queue("t2").message_count == 100
    assert drain(core, "t::t2") == MANY[:100]
    assert not paging(core, "t")


def test_p28_an_idle_queue_keeps_the_pages_until_it_is_deleted():
    core = paged(max_size_messages=5, page_size_bytes=1024)
    two_queues(core)
    core.send("t", *MANY[:100])
    before = files(core, "t")
    assert drain(core, "t::t1") == MANY[:100]
    assert (paging(core, "t"), files(core, "t")) == (True, before)
    assert core.queue("t1").message_count == 0
    core.administration.delete_queue("t2")
    core.sync()
    assert (paging(core, "t"), files(core, "t")) == (False, 0)


def test_multicast_stores_one_copy():
    core = paged(max_size_messages=5)
    two_queues(core)
    core.send("t", *MANY[:50])
    stored = sum(block.count for blocks in core.store.pages.values() for block in blocks)
    assert stored == 45


@pytest.mark.parametrize("read", [100, 1])
def test_p29_a_consumer_that_settles_nothing_gets_what_may_be_read(read):
    core = paged(max_size_messages=1, max_read_page_messages=read)
    core.send("q", *MANY[:500])
    core.sync()
    taker = core.consume("q", room=1000)
    core.sync()
    assert taker.bodies() == MANY[:read]
    taker.ack()
    core.sync()
    assert taker.bodies() == MANY[read : 2 * read]


def test_p29_the_limit_of_bytes_is_crossed_by_one():
    core = paged(max_size_messages=1, max_read_page_bytes=51_200)
    core.send("q", *[big(number) for number in range(100)])
    each = len(stomp(big(0)))
    core.sync()
    taker = core.consume("q", room=1000)
    core.sync()
    assert len(taker.got) == -(-51_200 // each)


def test_p30_what_a_queue_that_is_not_durable_had_goes_with_it():
    core = paged(max_size_messages=5)
    two_queues(core, durable=False)
    core.send("t", *MANY[:50])
    core.sync()
    core.restart()
    assert "t2" not in core.gateway.queues
    assert drain(core, "t::t1") == MANY[:50]
    assert not paging(core, "t")


def test_p31_the_same_message_again_and_again():
    core = paged(max_size_bytes=20 << 10)
    core.send("q", *[big(7, 1024)] * 200)
    assert drain(core) == [big(7, 1024)] * 200


def test_p41_room_that_consuming_makes_is_used_at_once():
    core = paged(max_size_messages=5, page_limit_messages=10)
    assert core.send("q", *MANY[:16]) == [True] * 15 + [False]
    assert drain(core, amount=14) == MANY[:14]
    assert core.send("q", MANY[15]) == [True]
    assert drain(core) == MANY[14:16]


def test_non_durable_messages_on_pages_live_through_a_kill():
    core = paged(max_size_messages=10)
    core.send("q", *MANY[:30], durable=False)
    core.sync()
    core.restart()
    assert drain(core) == MANY[10:30]


def test_purge_takes_pages_too_and_ends_page_mode():
    core = paged(max_size_messages=10, page_size_bytes=1024)
    core.send("q", *MANY[:100])
    assert core.queue("q").purge() == 100
    core.sync()
    core.check()
    assert (paging(core), core.queue("q").killed) == (False, 100)
    core.restart()
    assert core.queue("q").message_count == 0


def test_browsing_goes_on_from_memory_to_pages():
    core = paged(max_size_messages=10, page_size_bytes=1024)
    core.send("q", *MANY[:100])
    core.sync()
    queue = core.queue("q")
    shown = [m.body for at in range(0, 110, 9) for m in queue.browse(at, 9)]
    assert shown == [stomp(body) for body in MANY[:100]]
    assert queue.paged_count == 90
    assert files(core) > 1


def test_what_expires_on_pages_is_found_by_the_scan():
    core = paged(max_size_messages=10)
    core.send("q", *MANY[:30], ttl=50)
    core.sync()
    core.now += 100
    core.gateway.expire()
    core.sync()
    core.check()
    assert core.queue("q").expired == 30
    assert not paging(core)


def test_a_ring_drains_the_pages_to_its_last_ones():
    core = paged(max_size_messages=5)
    core.administration.create_queue("r", "r", ANYCAST, ring_size=8)
    core.send("r", *MANY[:30])
    core.sync()
    core.check()
    assert core.waiting("r") == MANY[22:30]
    assert core.queue("r").message_count == 8
    assert drain(core, "r") == MANY[22:30]
    assert not paging(core, "r")


def test_r29_r33_a_ring_below_the_limit_never_pages():
    core = paged(max_size_messages=5)
    core.administration.create_queue("r", "r", ANYCAST, ring_size=3)
    core.send("r", *MANY[:100], together=True)
    core.send("r", *MANY[100:150])
    assert core.waiting("r") == MANY[147:150]
    assert core.gateway.operations.pager.started == 0


def test_delivery_counts_of_what_is_on_pages_are_remembered():
    core = paged(max_size_messages=1)
    core.send("q", *MANY[:5])
    core.sync()
    taker = core.consume("q", room=5)
    core.sync()
    taker.release(failed=True)
    taker.leave()
    core.sync()
    core.restart(clean=True)
    again = core.consume("q", room=5)
    core.sync()
    assert [m.delivery_count for m in again.got] == [1] * 5


def test_a_message_that_is_killed_leaves_its_page():
    core = paged(max_size_messages=1)
    core.send("q", *MANY[:5])
    core.sync()
    taker = core.consume("q", room=5)
    core.sync()
    taker.reject()
    taker.leave()
    core.sync()
    core.check()
    assert (core.queue("q").killed, paging(core)) == (5, False)
    assert drain(core, "DLQ") == MANY[:5]


def test_a_block_that_cannot_be_read_costs_its_own_messages():
    core = paged(max_size_messages=2)
    core.send("q", *MANY[:20], together=True)
    core.send("other", *MANY[:20])
    core.sync()
    store = core.gateway.addresses["q"].paging.store_id
    blocks = core.store.pages[store, 1]
    core.store.unreadable.add((store, 1, 0))
    lost = blocks[0].count
    assert drain(core) == MANY[:2] + MANY[2 + lost : 20]
    assert core.gateway.operations.pager.lost == lost
    assert core.queue("q").killed == lost
    assert drain(core, "other") == MANY[:20]
    assert not paging(core)


def test_two_anycast_queues_share_what_is_paged():
    core = paged(max_size_messages=4)
    core.directory.make_address("a", frozenset({ANYCAST}))
    core.administration.create_queue("a1", "a", ANYCAST)
    core.administration.create_queue("a2", "a", ANYCAST)
    core.send("a", *MANY[:10])
    core.send("a", *MANY[10:40], together=True)
    core.sync()
    counts = core.queue("a1").message_count, core.queue("a2").message_count
    assert counts == (20, 20)
    one, two = drain(core, "a::a1"), drain(core, "a::a2")
    assert one == sorted(one)
    assert two == sorted(two)
    assert sorted(one + two) == MANY[:40]
    assert not paging(core, "a")


def test_m1_counts_of_what_is_ready_scheduled_delivered_and_paged():
    core = paged(max_size_messages=6)
    core.send("q", *MANY[:5])
    core.send("q", MANY[5], delay=1000)
    core.send("q", *MANY[6:10])
    core.sync()
    core.administration.update_queue("q", paused=True)
    taker = core.consume("q", room=2)
    core.administration.update_queue("q", paused=False)
    core.sync()
    queue = core.queue("q")
    assert len(taker.got) == 2
    assert (queue.message_count, queue.delivering, queue.scheduled_count) == (10, 2, 1)
    assert queue.ready_count + queue.paged_count == 7
    core.check()


def test_u1_a_fast_subscriber_keeps_up_beside_an_idle_one():
    core = paged(max_size_messages=5, page_size_bytes=2048)
    two_queues(core)
    fast = core.consume("t::t1", room=10_000)
    for at in range(0, 300, 30):
        core.send("t", *MANY[at : at + 30], together=True)
        core.sync()
        assert fast.bodies() == MANY[at : at + 30]
        fast.ack()
        core.sync()
    assert core.queue("t1").message_count == 0
    assert core.queue("t2").message_count == 300


@pytest.mark.parametrize("batches", range(1, 12))
def test_u2_killed_while_pages_are_cleaned_up(batches):
    core = paged(max_size_messages=1, page_size_bytes=1024, max_read_page_bytes=1 << 20)
    core.send("q", *MANY[:60], together=True)
    core.sync()
    taker = core.consume("q", room=60)
    core.sync()
    before = core.store.synced
    for _ in range(12):
        taker.ack(5)
        core.sync()
    kept = before + min(batches, core.store.synced - before)
    gone = 5 * (kept - before)
    core.restart(batches=kept)
    core.check()
    assert core.queue("q").message_count == max(0, 60 - gone)
    assert drain(core) == MANY[gone:60]


def test_u5_progress_after_acks_of_a_consumer_that_held_all_it_may():
    core = paged(max_size_messages=1, max_read_page_messages=300)
    core.send("q", *MANY, together=True)
    core.sync()
    taker = core.consume("q", room=10_000)
    core.sync()
    assert len(taker.got) == 300
    taker.ack(100)
    taker.hold.ready()
    core.sync()
    assert taker.bodies() == MANY[100:400]


def test_what_goes_to_pages_goes_to_the_store_in_its_turn():
    core = paged(max_size_messages=1)
    core.send("q", *MANY[:3])
    core.sync()
    route, _ = core.producer("q")
    assert not core.later
    assert route.send(Run([stomp(b"x")], flags_of())).ticket > 0
    assert core.later, "nothing would hand the batch over"


def keyed(core: Core, key: str, count: int, name: str = "q") -> list[bytes]:
    """Send messages with the property k; returns their bodies."""
    bodies = [b"%b %04d" % (key.encode(), number) for number in range(count)]
    route, _ = core.producer(name)
    for body in bodies:
        route.send(Run([pack(name, body, persistent=True, headers=[("k", key)])], flags_of()))
        core.turn()
    route.close()
    return bodies


def test_p42_a_selector_finds_what_lies_behind_what_it_does_not_want():
    core = paged(max_size_messages=1, max_read_page_messages=10)
    unwanted = keyed(core, "a", 40)
    wanted = keyed(core, "b", 1)
    core.sync()
    taker = core.consume("q", room=100, selector="k = 'b'")
    core.sync()
    assert taker.bodies() == wanted
    taker.ack()
    core.sync()
    assert drain(core) == unwanted
    assert not paging(core)


def test_p42_of_a_long_backlog_only_what_is_wanted_comes_to_memory():
    core = paged(max_size_messages=1, max_read_page_messages=10)
    unwanted, wanted = [], []
    for _ in range(30):
        unwanted += keyed(core, "a", 100)
        wanted += keyed(core, "b", 1)
    core.sync()
    queue = core.queue("q")
    taker = core.consume("q", room=100, selector="k = 'b'")
    taken: list[bytes] = []
    for _ in range(4):
        core.sync()
        assert queue.message_count - queue.paged_count <= 2 * 10 + 1
        taken += taker.bodies()
        taker.ack()
        core.sync()
    assert taken == wanted
    core.check()
    assert drain(core) == unwanted


def test_limits_of_pages_and_of_reading_count_from_the_moment_they_change():
    core = paged(max_size_messages=1, page_limit_messages=3, max_read_page_messages=2)
    address = core.gateway.directory.make_address("q", frozenset({ANYCAST}))
    assert core.send("q", *MANY[:10]) == [True] * 4 + [False] * 6
    core.sync()
    _, owner = core.producer("q")
    assert address.blocked is not None

    def change(**values: object) -> None:
        address.apply_settings(replace(address.settings, **values))
        core.gateway.operations.pager.settings_changed(address)
        core.sync()

    change(page_limit_messages=6)
    assert address.blocked is None
    assert owner.told == ["unblocked"]
    assert core.send("q", *MANY[4:10]) == [True] * 3 + [False] * 3
    change(page_limit_messages=-1, page_limit_bytes=-1)
    assert core.send("q", *MANY[7:20]) == [True] * 13
    change(page_limit_messages=5, page_full_policy=PageFullPolicy.DROP)
    assert core.send("q", b"dropped") == [True]
    taker = core.consume("q", room=100)
    core.sync()
    assert taker.bodies() == MANY[:2]
    change(max_read_page_messages=8)
    assert taker.bodies() == MANY[:8]
    change(max_read_page_messages=-1)
    assert taker.bodies() == MANY[:20]


def test_whoever_is_not_to_get_its_own_messages_does_not_get_them_from_pages():
    core = paged(max_size_messages=1)
    taker = core.consume("q", room=0, no_local="mine")
    routes = {
        name: core.gateway.open_producer(parse_destination("q"), None, Owner(), origin=name)
        for name in ("mine", "other")
    }
    for number in range(30):
        name = "mine" if number % 3 else "other"
        routes[name].send(Run([stomp(b"%d %b" % (number, name.encode()))], flags_of()))
        core.turn()
    core.sync()
    assert core.gateway.addresses["q"].paging.live == 29
    taker.take(100)
    core.sync()
    assert taker.bodies() == [b"%d other" % number for number in range(0, 30, 3)]


def test_p25_pages_go_when_selectors_have_taken_all_that_is_on_them():
    core = paged(max_size_messages=1, page_size_bytes=1024, max_read_page_bytes=1 << 20)
    early = keyed(core, "early", 40)
    middle = keyed(core, "middle", 40)
    late = keyed(core, "late", 40)
    core.sync()
    before = files(core)
    assert before > 6
    taker = core.consume("q", room=100, selector="k = 'middle'")
    core.sync()
    assert taker.bodies() == middle
    taker.ack()
    core.sync()
    # But for those that its first and its last messages share with others.
    assert before // 3 - 2 <= before - files(core) <= before // 3 + 1
    kept = files(core)
    taker.leave()
    core.sync()
    core.restart()
    assert abs(files(core) - kept) <= 1
    assert core.waiting("q") == early + late
    assert drain(core) == early + late
    assert not paging(core)


def test_u5_a_consumer_may_hold_ten_thousand_and_goes_on_as_it_acknowledges():
    core = paged(max_size_messages=1, max_read_page_messages=10_000)
    bodies = [b"%05d" % number for number in range(12_000)]
    for at in range(0, len(bodies), 1000):
        core.send("q", *bodies[at : at + 1000], together=True)
    core.sync()
    taker = core.consume("q", room=20_000)
    core.sync()
    assert taker.bodies() == bodies[:10_000]
    core.sync()
    assert len(taker.got) == 10_000, "more than may be held"
    taker.ack(1500)
    taker.hold.ready()
    core.sync()
    assert taker.bodies() == bodies[1500:11_500]
    taker.ack()
    core.sync()
    assert taker.bodies() == bodies[11_500:]
