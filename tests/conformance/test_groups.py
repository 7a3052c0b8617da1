"""Message groups over the core: a group goes to one consumer, in order.

A test's messages are texts such as `a1`: group `a`, first of it; `-1` has no group.
"""

from __future__ import annotations

import pytest

from gateway.model.amqp_types import Described, UInt, ULong, encode
from gateway.model.errors import Code, RefusedError
from gateway.model.message import DURABLE, GROUPED
from gateway.model.run import MixedRun, Run
from gateway.model.sections import peek
from gateway.model.stomp_form import pack, unpack
from tests.broker.core import ANYCAST, Core, entry, flags_of


def grouped(*entries, **attributes) -> Core:
    core = Core(*entries)
    core.administration.create_queue("q", "q", ANYCAST, attributes=attributes)
    return core


def send(core: Core, *texts: str, together: bool = False, **how) -> None:
    route, _ = core.producer("q")
    messages = []
    for text in texts:
        headers = [] if text[0] == "-" else [("JMSXGroupID", text[0])]
        if text.endswith("!"):
            headers.append(("JMSXGroupSeq", "-1"))
        flags = flags_of(how.get("priority", 4)) | (GROUPED if headers else 0)
        messages.append((pack("q", text.encode(), persistent=True, headers=headers), flags))
    if together:
        route.send_mixed(
            MixedRun([m for m, _ in messages], [f for _, f in messages], [0] * len(messages))
        )
    else:
        for message, flags in messages:
            route.send(Run([message], flags))
            core.turn()
    core.turn()
    route.close()
    core.check()


def texts(*takers) -> list[list[str]]:
    return [[body.decode() for body in taker.bodies()] for taker in takers]


@pytest.mark.parametrize("together", [False, True])
def test_a_group_stays_with_its_consumer(together):
    core = grouped()
    one, other = core.consume("q"), core.consume("q")
    send(core, "a1", "b1", "a2", "b2", "a3", "b3", together=together)
    assert sorted(texts(one, other)) == [["a1", "a2", "a3"], ["b1", "b2", "b3"]]
    assert core.queue("q").group_count == 2


def test_what_has_no_group_goes_in_turn():
    core = grouped()
    one, other = core.consume("q"), core.consume("q")
    send(core, "a1", "-1", "-2", "-3", "-4", "a2")
    mine, others = sorted(texts(one, other), key=lambda got: "a1" not in got)
    assert [t for t in mine if t[0] == "a"] == ["a1", "a2"]
    assert len(mine) - 2 == len(others) == 2


def test_a_busy_consumer_holds_up_only_its_own_groups():
    core = grouped()
    busy = core.consume("q", room=1)
    send(core, "a1")
    free = core.consume("q", room=10)
    send(core, "a2", "a3", "b1", "-1", "b2")
    assert texts(busy, free) == [["a1"], ["b1", "-1", "b2"]]
    assert [b.decode() for b in core.waiting("q")] == ["a2", "a3"]
    busy.take(5)
    core.turn()
    assert texts(busy) == [["a1", "a2", "a3"]]
    core.check()


def test_a_consumer_that_leaves_frees_its_groups_and_they_go_on_in_order():
    core = grouped()
    one = core.consume("q", room=2)
    send(core, "a1", "a2", "a3", "b1")
    other = core.consume("q", room=10)
    assert texts(one, other) == [["a1", "a2"], ["b1"]]
    one.leave()
    core.turn()
    assert texts(other) == [["b1", "a1", "a2", "a3"]]
    assert core.queue("q").group_count == 2
    core.check()


def test_the_last_of_a_group_is_delivered_and_frees_it():
    core = grouped()
    one = core.consume("q", room=1)
    send(core, "a1")
    other = core.consume("q", room=10)
    send(core, "a2!")
    assert texts(one, other) == [["a1"], []]
    one.take(1)
    core.turn()
    assert texts(one, other) == [["a1", "a2!"], []]
    assert core.queue("q").group_count == 0
    send(core, "a3")
    assert texts(other) == [["a3"]]


@pytest.mark.parametrize(("buckets", "groups"), [(-1, 3), (1, 1), (0, 0)])
def test_buckets_join_groups_and_none_turns_them_off(buckets, groups):
    core = grouped(group_buckets=buckets)
    takers = [core.consume("q") for _ in range(3)]
    send(core, *[f"{name}{i}" for i in range(4) for name in "abc"])
    owners = {
        name: {at for at, got in enumerate(texts(*takers)) if any(t[0] == name for t in got)}
        for name in "abc"
    }
    assert core.queue("q").group_count == groups
    if buckets == -1:
        assert sorted(min(at) for at in owners.values()) == [0, 1, 2]
        assert all(len(at) == 1 for at in owners.values())
    elif buckets == 1:
        assert len(set.union(*owners.values())) == 1
    else:
        assert [len(got) for got in texts(*takers)] == [4, 4, 4]


def test_with_rebalance_a_new_consumer_has_its_share():
    core = grouped(group_rebalance=True)
    one = core.consume("q", room=100)
    send(core, "a1", "b1")
    other = core.consume("q", room=100)
    assert core.queue("q").group_count == 0
    send(core, "a2", "b2", "a3", "b3")
    assert {t[0] for t in texts(other)[0]} in ({"a"}, {"b"})
    assert len(texts(other)[0]) == 2
    assert len(texts(one)[0]) == 4


def test_with_a_pause_groups_move_when_all_is_settled():
    core = grouped(group_rebalance=True, group_rebalance_pause_dispatch=True)
    one = core.consume("q", room=100)
    send(core, "a1", "b1")
    other = core.consume("q", room=100)
    send(core, "a2", "b2")
    core.pass_time(1000)
    assert texts(one, other) == [["a1", "b1"], []]
    one.ack()
    core.pass_time(1000)
    assert sorted(texts(one, other)) == [["a2"], ["b2"]]
    core.check()


def test_without_rebalance_a_new_consumer_gets_new_groups_only():
    core = grouped()
    one = core.consume("q", room=100)
    send(core, "a1", "b1")
    other = core.consume("q", room=100)
    send(core, "a2", "b2", "c1", "d1")
    assert texts(one)[0][:4] == ["a1", "b1", "a2", "b2"]
    assert len(texts(other)[0]) == 1


def test_returned_messages_come_before_those_that_follow_in_the_group():
    core = grouped()
    one = core.consume("q", room=3)
    core.consume("q", room=0)
    send(core, "a1", "a2", "a3", "a4")
    one.release()
    one.take(10)
    core.turn()
    assert texts(one) == [["a1", "a2", "a3", "a4"]]
    core.check()


def test_priorities_hold_within_a_group():
    core = grouped()
    one = core.consume("q", room=1)
    send(core, "a1", "a2")
    send(core, "a3", priority=9)
    one.take(10)
    core.turn()
    assert texts(one) == [["a1", "a3", "a2"]]


def test_consumer_priority_decides_who_gets_a_group():
    core = grouped()
    low = core.consume("q", room=10)
    high = core.consume("q", room=1, priority=5)
    send(core, "a1", "b1", "a2", "b2")
    assert texts(high, low) == [["a1"], ["b1", "b2"]]


def test_the_queue_says_the_priority_of_consumers_that_do_not():
    core = grouped(consumer_priority=3)
    core.consume("q", room=10, priority=1)
    core.consume("q", room=10)
    core.consume("q", room=10, priority=-4)
    assert [held.priority for held in core.queue("q").consumers] == [3, 1, -4]


def test_selectors_and_groups():
    core = grouped()
    fives = core.consume("q", room=10, selector="JMSPriority = 5")
    fours = core.consume("q", room=10, selector="JMSPriority = 4")
    send(core, "a1", "-1", priority=5)
    send(core, "a2", "b1", priority=4)
    send(core, "b2", "-2", priority=5)
    send(core, "c1", priority=7)
    assert texts(fives, fours) == [["a1", "-1", "b2", "-2"], ["a2", "b1"]]
    everything = core.consume("q", room=10)
    assert texts(everything) == [["c1"]]
    core.check()


def test_exclusive_queues_ignore_groups():
    core = grouped(exclusive=True)
    one, other = core.consume("q"), core.consume("q")
    send(core, "a1", "b1", "a2")
    assert texts(one, other) == [["a1", "b1", "a2"], []]


def test_expired_purged_and_evicted_messages_leave_their_lanes():
    core = grouped(entry("#", expiry_address=""))
    busy = core.consume("q", room=1)
    send(core, "a1", "a2", "a3")
    assert core.queue("q").purge() == 2
    send(core, "a4", "a5")
    core.queue("q").ring_size = 1
    assert core.queue("q").trim() == 1
    busy.take(10)
    core.turn()
    assert texts(busy) == [["a1", "a5"]]
    core.check()


def test_browsers_see_what_waits_in_lanes():
    core = grouped()
    core.consume("q", room=1)
    send(core, "a1", "a2", "-1")
    core.sync()
    assert texts(core.consume("q", browse=True)) == [["a2", "-1"]]


def test_groups_survive_a_restart_as_messages_and_not_as_pins():
    core = grouped()
    one = core.consume("q", room=0)
    send(core, "a1", "b1", "a2", "b2")
    core.sync()
    core.restart()
    assert all(m.flags & GROUPED for m in core.queue("q").holdings())
    one, other = core.consume("q", room=1), core.consume("q", room=1)
    one.take(9)
    other.take(9)
    core.turn()
    assert sorted(texts(one, other)) == [["a1", "a2"], ["b1", "b2"]]


def test_groups_over_pages():
    core = grouped(entry("#", max_size_messages=2, page_size_bytes=2000))
    one, other = core.consume("q", room=0), core.consume("q", room=0)
    send(core, *[f"{name}{i}" for i in range(10) for name in "ab"])
    core.sync()
    for taker in (one, other):
        taker.take(5)
    core.turn()
    for taker in (one, other):
        taker.take(50)
    core.sync()
    got = sorted(texts(one, other))
    assert got == [[f"a{i}" for i in range(10)], [f"b{i}" for i in range(10)]]
    core.check()


def test_last_values_with_groups():
    core = grouped(last_value=True, last_value_key="JMSXGroupID")
    one = core.consume("q", room=1)
    send(core, "a1", "a2", "b1", "a3")
    other = core.consume("q", room=5)
    assert texts(one, other) == [["a1"], ["b1"]]
    one.take(5)
    core.turn()
    assert texts(one) == [["a1", "a3"]]
    core.check()


# ---- the first of a group


def test_the_first_message_for_a_consumer_is_marked():
    core = grouped(group_first_key="isFirst")
    one = core.consume("q", room=10)
    send(core, "a1", "b1", "a2", "b2")
    marked = [unpack(m.body)[1] for m in one.got if ("isFirst", "true") in unpack(m.body)[0]]
    assert marked == [b"a1", b"b1"]
    one.ack(2)
    core.check()
    other = core.consume("q", room=10)
    one.leave()
    core.turn()
    marked = [unpack(m.body)[1] for m in other.got if ("isFirst", "true") in unpack(m.body)[0]]
    assert (texts(other), marked) == ([["a2", "b2"]], [b"a2", b"b2"])
    assert all(b"isFirst" not in m.body for m in core.queue("q").holdings())
    other.reject()
    core.check()


def amqp(text: str, group: str, sequence: int | None = None) -> bytes:
    fields: list[object] = [None] * 10 + [group, None if sequence is None else UInt(sequence)]
    properties = encode(Described(ULong(0x73), fields))
    return properties + encode(Described(ULong(0x75), text.encode()))


def test_amqp_messages_are_grouped_and_marked_and_share_groups_with_stomp():
    core = grouped(group_first_key="first")
    one, other = core.consume("q", room=10), core.consume("q", room=10)
    route, _ = core.producer("q")
    route.send(Run([amqp("x1", "a")], 4 | DURABLE | GROUPED))
    core.turn()
    send(core, "a2")
    route.send(Run([amqp("x3", "a", 0xFFFFFFFF)], 4 | DURABLE | GROUPED))
    route.send(Run([amqp("x4", "a")], 4 | DURABLE | GROUPED))
    core.turn()
    got = {m.seq: m.body for m in one.got + other.got}
    assert sorted(map(len, (one.got, other.got))) in ([1, 3], [0, 4])
    marked = [peek(got[seq]).application_properties == {"first": True} for seq in (1, 3, 4)]
    assert marked == [True, False, True]  # the group was closed before the last
    for taker in (one, other):
        taker.ack()
    core.check()


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("group_buckets", -2, "groupBuckets"),
        ("group_rebalance", 1, "groupRebalance"),
        ("group_first_key", 5, "groupFirstKey"),
        ("consumer_priority", 1 << 31, "consumerPriority"),
    ],
)
def test_impossible_values_are_named(name, value, key):
    core = grouped()
    with pytest.raises(RefusedError, match=key) as refused:
        core.administration.update_queue("q", attributes={name: value})
    assert refused.value.refusal.code is Code.BAD_VALUE


def test_groups_can_be_turned_off_while_they_are_pinned():
    core = grouped()
    one, other = core.consume("q", room=1), core.consume("q", room=10)
    send(core, "a1", "a2", "a3")
    assert texts(one, other) == [["a1"], []]
    core.administration.update_queue("q", attributes={"group_buckets": 0})
    core.turn()
    assert texts(one, other) == [["a1"], ["a2", "a3"]]
    assert core.queue("q").group_count == 0
    core.check()


def test_who_drains_waits_until_all_is_scanned():
    core = grouped()
    busy = core.consume("q", room=1)
    send(core, "a1")
    free = core.consume("q", room=0)
    send(core, *[f"a{n}" for n in range(2, 8)], "b1")
    told = []
    free.exhausted = lambda: told.append(texts(free)[0])
    free.left = 5
    queue = core.queue("q")
    assert queue.dispatch(core.now, 2) == 0
    assert queue.searching
    assert free.hold.keeps_searching()
    assert free.hold.keeps_searching()
    core.gateway.touch(queue)
    core.turn()
    assert told == [["b1"]]
    assert not free.hold.keeps_searching()
    assert texts(busy, free) == [["a1"], ["b1"]]
    core.check()
