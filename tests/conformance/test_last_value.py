"""Last-value queues over the core: rows A16 to A21 and R28, and what meets them.

Keys are headers; a test's messages are texts such as `a1`: key `a`, first value.
"""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.model.errors import Code, RefusedError
from gateway.model.message import EXPIRES
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from gateway.queues.queue import Gone
from tests.broker.core import ANYCAST, MULTICAST, Core, entry, flags_of

KEY = "_AMQ_LVQ_NAME"


def last_values(*entries, queue: str = "q", ring_size: int | None = None, **attributes) -> Core:
    core = Core(*entries)
    attributes = {"last_value": True, **attributes}
    core.administration.create_queue(
        queue, "q", ANYCAST, ring_size=ring_size, attributes=attributes
    )
    core.sync()
    return core


def value(text: str, key: str = KEY) -> bytes:
    """Return a stored message; its key is the first letter, `-` for none."""
    headers = [] if text[0] == "-" else [(key, text[0])]
    return pack("q", text.encode(), persistent=True, headers=headers)


def send(core: Core, *texts: str, name: str = "q", together: bool = False, key: str = KEY, **how):
    """Send values one by one, a turn each, or in one run."""
    delay = how.pop("delay", None)
    durable = how.pop("durable", True)
    sync = how.pop("sync", True)
    priority = how.pop("priority", 4)
    route, _ = core.producer(name)
    flags = flags_of(priority, durable=durable)
    stored = [value(text, key) for text in texts]
    for run in [stored] if together else [[one] for one in stored]:
        if delay is None:
            assert route.send(Run(run, flags)).refusal is None
        else:
            assert route.send(Run(run, flags, 0, core.now + delay)).refusal is None
        core.turn()
    route.close()
    if sync:
        core.sync()
    core.check()


def waiting(core: Core, name: str = "q") -> list[str]:
    return [body.decode() for body in core.waiting(name)]


def texts(taker) -> list[str]:
    return [body.decode() for body in taker.bodies()]


# ---- the rows


@pytest.mark.parametrize("together", [False, True])
def test_a16_of_two_messages_of_one_key_the_later_stays(together):
    core = last_values()
    send(core, "a1", "a2", together=together)
    queue = core.queue("q")
    assert (queue.added, queue.message_count, queue.replaced) == (2, 1, 1)
    assert texts(core.consume("q")) == ["a2"]


@pytest.mark.parametrize("together", [False, True])
def test_a17_each_key_keeps_its_last_in_the_order_of_the_last(together):
    core = last_values()
    send(core, "a1", "b2", "a3", "b4", together=together)
    queue = core.queue("q")
    assert (queue.added, queue.message_count, queue.replaced) == (4, 2, 2)
    assert texts(core.consume("q")) == ["a3", "b4"]
    other = last_values()
    send(other, "a1", "b2", "c3", "a4", together=together)
    assert waiting(other) == ["b2", "c3", "a4"]


def test_a18_messages_without_a_key_are_not_replaced():
    core = last_values()
    send(core, "-1", "a1", "-2", "a2")
    assert texts(core.consume("q")) == ["-1", "-2", "a2"]


def test_a19_a_later_value_follows_one_that_is_in_delivery():
    core = last_values()
    send(core, "a1")
    taker = core.consume("q", room=1)
    send(core, "a2")
    assert core.figures("q") == (2, 1, 0)
    taker.ack()
    taker.take(1)
    core.turn()
    assert texts(taker) == ["a2"]
    assert core.figures("q") == (1, 1, 0)


@pytest.mark.parametrize("failed", [False, True])
def test_a20_a_value_that_came_back_is_replaced_by_the_later_one(failed):
    core = last_values()
    send(core, "a1")
    taker = core.consume("q", room=1)
    send(core, "a2")
    taker.leave(failed=failed)
    assert waiting(core) == ["a2"]
    assert core.figures("q") == (1, 0, 1)
    assert texts(core.consume("q")) == ["a2"]
    core.check()


def test_a20_without_a_later_value_it_waits_again():
    core = last_values()
    send(core, "a1", "b1")
    core.consume("q", room=1).leave()
    assert waiting(core) == ["a1", "b1"]
    send(core, "a2")
    assert waiting(core) == ["b1", "a2"]


@pytest.mark.parametrize("clean", [False, True])
def test_a21_keys_are_known_after_a_restart(clean):
    core = last_values()
    send(core, "a1", "b1", "a2")
    core.sync()
    core.restart(clean=clean)
    assert (waiting(core), core.queue("q").replaced) == (["b1", "a2"], 0)
    core.check()
    send(core, "a3")
    assert (waiting(core), core.queue("q").replaced) == (["b1", "a3"], 1)
    core.sync()
    core.restart(clean=clean)
    assert waiting(core) == ["b1", "a3"]


@pytest.mark.parametrize("together", [False, True])
def test_r28_last_values_in_a_ring(together):
    core = last_values(ring_size=2)
    send(core, "a1", "b1", "a2", "c1", together=together)
    assert waiting(core) == ["a2", "c1"]
    assert core.figures("q") == (2, 0, 2)


# ---- what meets them


def test_a_value_is_there_after_every_cut():
    """Whenever the power goes, a key that had a value has one: the old one or the later one."""
    core = last_values()
    send(core, "a1")
    core.sync()
    first = len(core.store.batches)
    for number in range(2, 6):
        send(core, f"a{number}", f"b{number}", sync=False)
    send(core, "a6", "a7", "b6", together=True, sync=False)
    core.sync()
    for batches in range(first, len(core.store.batches) + 1):
        _, held, _ = core.store.kept(batches)
        bodies = [
            body.rpartition(b"\n")[2] for stored in held.values() for body, *_ in stored.values()
        ]
        assert len([b for b in bodies if b[:1] == b"a"]) == 1, (batches, bodies)
        assert len([b for b in bodies if b[:1] == b"b"]) <= 1, (batches, bodies)


def test_what_is_scheduled_becomes_a_value_when_it_is_due():
    core = last_values()
    send(core, "a1", delay=50)
    send(core, "a2")
    assert core.figures("q") == (2, 0, 0)
    core.pass_time(49)
    assert waiting(core) == ["a2"]
    core.pass_time(1)
    assert (waiting(core), core.figures("q")) == (["a1"], (1, 0, 1))
    core.check()


def test_of_several_that_are_due_together_the_one_that_is_due_last_stays():
    core = last_values(ring_size=2)
    send(core, "a2", delay=20)
    send(core, "a1", delay=10)
    send(core, "b1", delay=15)
    send(core, "a0", "b0")
    core.now += 30
    core.pass_time(0)
    assert waiting(core) == ["b1", "a2"]
    assert core.queue("q").replaced == 3
    core.check()


def test_a_value_that_waits_to_be_delivered_again_is_replaced_at_once():
    core = last_values(entry("#", redelivery_delay=100))
    send(core, "a1", "b1")
    taker = core.consume("q", room=1)
    taker.release(failed=True, delayed=True)
    assert core.queue("q").scheduled_count == 1
    send(core, "a2")
    assert core.queue("q").scheduled_count == 0
    assert core.figures("q") == (2, 0, 1)
    core.sync()
    core.restart()
    core.pass_time(200)
    assert waiting(core) == ["b1", "a2"]
    core.check()


def test_a_late_return_does_not_outlive_a_later_value_that_is_in_delivery():
    core = last_values()
    send(core, "a1")
    first = core.consume("q", room=1)
    send(core, "a2")
    second = core.consume("q", room=1)
    assert (texts(first), texts(second)) == (["a1"], ["a2"])
    first.release()
    core.turn()
    assert core.figures("q") == (1, 1, 1)
    second.release()
    core.turn()
    assert waiting(core) == ["a2"]
    core.check()


def test_rolled_back_values_come_back_in_their_rank():
    core = last_values()
    taker = core.consume("q", room=3)
    send(core, "a1", "a2", "a3")
    one, two, three = taker.got
    taker.got.clear()
    taker.hold.acknowledge([three])
    work = core.gateway.begin()
    work.acknowledge(taker.hold, [one])
    work.rollback()
    assert (waiting(core), core.queue("q").replaced) == ([], 1)  # the second is still out
    work = core.gateway.begin()
    work.acknowledge(taker.hold, [two])
    work.rollback()
    assert (waiting(core), core.queue("q").replaced) == (["a2"], 1)
    core.check()


def test_a_value_at_its_last_attempt_is_a_dead_letter_though_a_later_one_is_there():
    core = last_values(entry("#", max_delivery_attempts=1, dead_letter_address="dead"))
    core.administration.create_queue("dead", "dead", ANYCAST)
    send(core, "a1")
    taker = core.consume("q", room=1)
    send(core, "a2")
    taker.release(failed=True)
    assert (waiting(core), waiting(core, "dead")) == (["a2"], ["a1"])
    core.check()


def test_expired_purged_moved_and_acknowledged_values_are_forgotten():
    core = last_values(entry("#", expiry_address=""))
    queue = core.queue("q")
    route, _ = core.producer("q")
    route.send(Run([value("a1")], flags_of() | EXPIRES, core.now + 5))
    core.now += 10
    core.gateway.expire()
    send(core, "a2")
    taker = core.consume("q")
    taker.ack()
    taker.leave()
    send(core, "a3")
    assert queue.purge() == 1
    send(core, "a4")
    assert (waiting(core), queue.replaced) == (["a4"], 0)
    assert len(queue.take_out({m.seq for m in queue.holdings()}, Gone.REMOVED)) == 1
    send(core, "a5")
    assert (waiting(core), queue.replaced) == (["a5"], 0)
    core.check()


def test_an_address_is_an_ordinary_one_again_when_its_queue_of_last_values_is_deleted():
    core = last_values()
    core.administration.create_queue("plain", "q", ANYCAST)
    address = core.gateway.addresses["q"]
    assert address.replacing
    core.administration.delete_queue("q")
    assert not address.replacing
    send(core, "a1", "a2")
    assert waiting(core, "plain") == ["a1", "a2"]


@pytest.mark.parametrize("policy", [FullPolicy.FAIL, FullPolicy.BLOCK])
def test_replacing_makes_room_below_a_limit(policy):
    core = last_values(entry("#", max_size_messages=3, address_full_policy=policy))
    send(core, "a1", "b1")
    send(core, *[f"a{n}" for n in range(2, 9)])
    assert waiting(core) == ["b1", "a8"]
    assert core.gateway.addresses["q"].messages == 2


def test_replacing_makes_room_in_a_transaction():
    core = last_values(entry("#", max_size_messages=3, address_full_policy=FullPolicy.FAIL))
    send(core, "a1", "b1")
    work = core.gateway.begin()
    route, _ = core.producer("q")
    for text in ("a2", "b2", "a3", "b3", "a4", "b4"):
        assert work.send(route, Run((value(text),), flags_of())) is None
    work.commit()
    core.turn()
    assert waiting(core) == ["a1", "b1"]  # a commit is seen when it is on disk
    core.sync()
    assert waiting(core) == ["a4", "b4"]
    core.check()


def test_what_a_transaction_sends_to_a_ring_evicts_and_replaces_as_it_arrives():
    core = last_values(ring_size=2)
    send(core, "a1", "b1")
    work = core.gateway.begin()
    route, _ = core.producer("q")
    for text in ("b2", "c1"):
        assert work.send(route, Run((value(text),), flags_of())) is None
    work.commit()
    core.sync()
    assert (waiting(core), core.queue("q").replaced) == (["b2", "c1"], 2)
    core.check()


@pytest.mark.parametrize("ring_size", [None, 2])
def test_where_dispatch_waits_for_the_disk_values_replace_as_they_arrive(ring_size):
    core = last_values(entry("#", strict_dispatch=True), ring_size=ring_size)
    send(core, "a1", "b1", "a2", sync=False)
    assert waiting(core) == []
    core.sync()
    assert waiting(core) == ["b1", "a2"]
    send(core, "b2", "a3", together=True)
    assert waiting(core) == ["b2", "a3"]
    send(core, "c1", "c2", "a4")
    assert waiting(core) == ["b2", "c2", "a4"][-(ring_size or 3) :]
    core.check()


def test_copies_of_one_message_are_replaced_queue_by_queue():
    core = Core()
    core.administration.create_queue("values", "t", MULTICAST, attributes={"last_value": True})
    core.administration.create_queue("plain", "t", MULTICAST)
    send(core, "a1", "a2", name="t")
    assert (waiting(core, "values"), waiting(core, "plain")) == (["a2"], ["a1", "a2"])
    core.sync()
    core.restart()
    core.check()
    send(core, "a3", name="t")
    assert (waiting(core, "values"), waiting(core, "plain")) == (["a3"], ["a1", "a2", "a3"])


def test_non_durable_values_replace_durable_ones():
    core = last_values()
    send(core, "a1")
    send(core, "a2", durable=False)
    core.sync()
    assert waiting(core) == ["a2"]
    core.restart()
    assert waiting(core) == []


def test_priorities_order_what_waits_and_not_what_is_later():
    core = last_values()
    send(core, "a1", priority=9)
    send(core, "b1", priority=4)
    send(core, "a2", priority=0)
    assert waiting(core) == ["b1", "a2"]


def test_browsers_and_selectors_see_last_values():
    core = last_values()
    send(core, "a1", "b1")
    browser = core.consume("q", browse=True)
    chosen = core.consume("q", selector=f"{KEY} = 'b'", room=1)
    assert (texts(browser), texts(chosen)) == (["a1", "b1"], ["b1"])
    send(core, "a2")
    assert texts(browser) == ["a1", "b1", "a2"]
    assert waiting(core) == ["a2"]
    core.check()


# ---- keys


def test_another_key_may_be_named():
    core = last_values(last_value_key="instrument")
    send(core, "a1", "a2", key="instrument")
    send(core, "b1", "b2")
    assert waiting(core) == ["a2", "b1", "b2"]


def test_a_key_alone_makes_a_queue_of_last_values():
    core = Core(entry("q", default_last_value_key="k"))
    core.consume("q", room=0)
    given = core.queue("q").attributes
    assert (given.last_value, given.last_value_key) == (True, "k")
    send(core, "a1", "a2", key="k")
    assert waiting(core) == ["a2"]


def test_settings_make_queues_of_last_values():
    core = Core(entry("q", default_last_value_queue=True))
    send(core, "a1", "a2")
    assert waiting(core) == ["a2"]
    core.administration.create_queue("plain", "q", ANYCAST, attributes={"last_value": False})
    assert core.queue("plain").attributes.last_value_key == ""


def test_what_kind_a_queue_is_cannot_change():
    core = last_values()
    for change in ({"last_value": False}, {"last_value_key": "k"}, {"non_destructive": True}):
        with pytest.raises(RefusedError, match="cannot be changed") as refused:
            core.administration.update_queue("q", ring_size=5, attributes=change)
        assert refused.value.refusal.code is Code.BAD_VALUE
    assert core.queue("q").ring_size == -1
    core.administration.update_queue("q", attributes={"last_value": True})


@pytest.mark.parametrize(
    "attributes",
    [
        {"last_value": 1},
        {"last_value_key": True},
        {"last_value_key": "x" * 256},
        {"last_value_key": "a\nb"},
        {"last_value": False, "last_value_key": "k"},
    ],
)
def test_impossible_attributes_are_refused(attributes):
    core = Core()
    with pytest.raises(RefusedError, match="lastValue"):
        core.administration.create_queue("q", "q", ANYCAST, attributes=attributes)
    assert "q" not in core.gateway.queues


# ---- pages


def paged(**attributes) -> Core:
    return last_values(entry("#", max_size_messages=2, page_size_bytes=2000), **attributes)


def test_values_on_pages_replace_one_another_as_they_are_read_without_a_consumer():
    core = paged()
    send(core, "a0", "b0")
    assert core.gateway.addresses["q"].paging is not None
    for number in range(1, 30):
        send(core, f"a{number}", f"b{number}")
    core.sync()
    core.sync()
    assert waiting(core) == ["a29", "b29"]
    queue = core.queue("q")
    assert (queue.message_count, queue.replaced, queue.paged_count) == (2, 58, 0)
    core.check()
    core.restart()
    core.sync()
    assert waiting(core) == ["a29", "b29"]
    core.check()
    send(core, "a30")
    core.sync()
    core.sync()
    assert waiting(core) == ["b29", "a30"]
    core.check()
