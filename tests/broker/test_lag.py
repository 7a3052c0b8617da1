"""A disk that lags: dispatch waits for it meanwhile, in order, and for nothing longer than that."""

from __future__ import annotations

import random

import pytest

from gateway.broker.pressure.lag import Lag
from gateway.model.definitions import DivertDefinition
from gateway.model.run import Run
from gateway.queues.ports import Gone
from tests.broker.core import ANYCAST, MULTICAST, Core, body_of, entry, flags_of, stomp

LIMIT, CALM = 0.1, 1.0


def core_of(*entries, **how) -> Core:
    return Core(*entries, lag=(LIMIT, CALM), **how)


def lagging(core: Core, name: str = "elsewhere") -> Core:
    """Have something wait for the disk for longer than it should."""
    core.send(name, b"first")
    core.pass_time(100)
    assert core.gateway.pressure.lag.waits
    return core


def calmed(core: Core) -> Core:
    core.sync()
    core.sync()  # what a ring gives up for what was stored is recorded only now
    core.pass_time(1100)
    assert not core.gateway.pressure.lag.waits
    return core


def test_what_waits_less_than_the_limit_changes_nothing():
    core = core_of()
    taker = core.consume("q")
    for number in range(20):
        core.send("q", b"%d" % number)
        core.pass_time(99)
        core.sync()
    assert core.gateway.pressure.lag.times == 0
    assert len(taker.got) == 20


def test_new_messages_are_stored_first_while_the_disk_lags():
    core = core_of()
    taker = core.consume("q")
    core.send("q", b"1")
    assert taker.bodies() == [b"1"]
    lagging(core)
    core.send("q", b"2", b"3")
    assert taker.bodies() == [b"1"], "handed out before it is on disk"
    assert core.figures("q") == (3, 1, 0)
    core.sync()
    assert taker.bodies() == [b"1", b"2", b"3"]
    core.check()


def test_the_disk_that_stands_is_noticed_without_any_traffic():
    core = core_of()
    taker = core.consume("q")
    core.send("q", b"1")
    core.pass_time(5000)
    assert core.gateway.pressure.lag.waits
    core.send("q", b"2")
    assert taker.bodies() == [b"1"]


def test_it_changes_back_when_nothing_has_waited_for_long_and_keeps_order():
    core = core_of()
    taker = core.consume("q")
    lagging(core)
    core.sync()
    core.pass_time(990)
    core.send("q", b"1")
    assert taker.got == [], "calm is not over"
    core.pass_time(20)
    assert not core.gateway.pressure.lag.waits
    core.send("q", b"2", b"3")
    assert taker.got == [], "what is held is overtaken by what came later"
    core.sync()
    assert taker.bodies() == [b"1", b"2", b"3"]
    core.send("q", b"4")
    assert taker.bodies()[-1] == b"4", "dispatch waits although it changed back"
    assert core.queue("q").storing_count == 0
    core.check()


def test_calm_begins_anew_with_each_write_that_takes_half_the_limit():
    core = core_of()
    lagging(core)
    for wait, waits in ((60, True), (60, True), (40, True), (40, False)):
        core.sync()
        core.pass_time(540)
        core.send("q", b"x")
        core.pass_time(wait)
        assert core.gateway.pressure.lag.waits is waits, wait
    assert core.gateway.pressure.lag.times == 1


def test_idle_it_changes_back_by_itself():
    core = lagging(core_of())
    core.sync()
    core.pass_time(1100)
    assert not core.gateway.pressure.lag.waits
    assert core.timers == [], "somebody is called back for ever"


def test_what_was_handed_out_before_is_settled_as_ever():
    core = core_of()
    taker = core.consume("q")
    core.send("q", b"1", b"2")
    lagging(core)
    taker.ack(1)
    taker.release(1)
    core.turn()
    assert taker.bodies() == [b"2"], "what was handed out stays in front, whatever lags"
    core.sync()
    core.restart()
    assert core.waiting("q") == [b"2"]


def test_what_is_not_durable_waits_for_nothing_but_its_elders():
    core = core_of()
    taker = core.consume("q")
    lagging(core)
    core.send("q", b"free", durable=False)
    core.send("q", b"held")
    core.send("q", b"behind", durable=False)
    assert taker.bodies() == [b"free"]
    core.sync()
    assert taker.bodies() == [b"free", b"held", b"behind"]


def test_a_passing_subscriber_waits_for_nothing():
    core = core_of()
    core.administration.create_queue("s", "t", MULTICAST)
    durable, passing = core.consume("t::s"), core.consume("t", routing=MULTICAST)
    lagging(core)
    core.send("t", b"m", routing=MULTICAST)
    assert (durable.bodies(), passing.bodies()) == ([], [b"m"])
    core.sync()
    assert durable.bodies() == [b"m"]


@pytest.mark.parametrize("how", ["strict", "switch"])
def test_queues_that_always_wait_notice_nothing(how):
    entries = [entry("q", strict_dispatch=True)] if how == "strict" else []
    core = core_of(*entries, serialized=() if how == "strict" else (ANYCAST,))
    taker = core.consume("q")
    core.send("q", b"1")
    lagging(core)
    calmed(core)
    core.send("q", b"2")
    assert taker.bodies() == [b"1"]
    assert core.queue("q").serialized
    core.sync()
    assert taker.bodies() == [b"1", b"2"]


def test_routes_that_were_open_queues_that_are_new_diverts_and_dead_letters_wait_too():
    core = core_of(entry("#", dead_letter_address="dead"))
    core.gateway.branches.create(DivertDefinition(name="d", address="q", forwarding=("p",)))
    route, _ = core.producer("q")
    takers = {name: core.consume(name) for name in ("q", "p", "dead")}
    route.send(Run([stomp(b"0")], flags_of()))
    core.turn()
    assert [len(t.got) for t in takers.values()] == [1, 1, 0]
    lagging(core)
    takers["q"].reject()
    route.send(Run([stomp(b"1")], flags_of()))
    core.turn()
    takers["new"] = core.consume("new")
    core.send("new", b"2")
    assert [len(t.got) for t in takers.values()] == [0, 1, 0, 0]
    core.sync()
    assert [len(t.got) for t in takers.values()] == [1, 2, 1, 1]
    calmed(core)
    route.send(Run([stomp(b"3")], flags_of()))
    core.turn()
    assert [len(t.got) for t in takers.values()] == [2, 3, 1, 1]
    core.check()


def test_rings_purges_and_deletes_find_what_is_held():
    core = lagging(core_of())
    core.administration.create_queue("ring", "q", ANYCAST, ring_size=2)
    core.send("q::ring", b"1", b"2", b"3")
    core.send("p", b"1", b"2")
    assert core.queue("p").purge() == 2
    calmed(core)
    assert core.waiting("ring") == [b"2", b"3"]
    core.send("p", b"3")
    core.administration.delete_queue("p")
    core.sync()
    core.check()
    core.restart()
    assert core.waiting("ring") == [b"2", b"3"]


def test_a_commit_across_the_change_is_seen_whole():
    core = core_of()
    taker = core.consume("q")
    work = core.gateway.begin()
    work.send(core.producer("q")[0], Run((stomp(b"1"),), flags_of()))
    work.send(core.producer("q")[0], Run((stomp(b"2"),), flags_of(durable=False)))
    lagging(core)
    work.commit()
    core.send("q", b"3")
    assert taker.got == []
    core.sync()
    assert taker.bodies() == [b"1", b"2", b"3"]
    calmed(core)
    core.send("q", b"4")
    assert taker.bodies()[-1] == b"4"


def test_a_gateway_that_could_not_act_itself_does_not_blame_the_disk():
    core = core_of()
    core.send("q", b"1")
    core.now += 3000  # nobody was called in between
    ((_, call),) = core.timers
    core.timers.clear()
    call()
    assert not core.gateway.pressure.lag.waits
    core.sync()
    core.pass_time(500)
    assert core.gateway.pressure.lag.times == 0
    core.send("q", b"2")
    core.now += 3000
    core.send("q", b"3")
    assert not core.gateway.pressure.lag.waits
    core.pass_time(100)
    assert core.gateway.pressure.lag.waits, "the answer was not there after all"


def test_each_change_is_told_with_its_figures():
    core = core_of()
    told = []
    core.gateway.pressure.lag.on_change = lambda lag: told.append(
        (lag.waits, round(lag.longest, 3), round(lag.age, 3), lag.times)
    )
    lagging(core)
    core.pass_time(400)
    calmed(core)
    assert told == [(True, 0.1, 0.1, 1), (False, 0.5, 0.0, 1)]
    assert core.gateway.pressure.lag.age == 0


def test_off_it_never_looks_at_the_clock():
    core = Core()
    lag: Lag = core.gateway.pressure.lag
    core.send("q", b"1")
    core.pass_time(60_000)
    assert (lag.limit, lag.waits, lag.age, core.timers) == (-1, False, 0, [])


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_at_any_time_with_changes_at_any_time(seed):
    """Order, nothing twice, nothing held for ever, and after a cut what was confirmed."""
    chance = random.Random(f"lag {seed}")
    core = core_of()
    core.administration.create_queue("q", "q", ANYCAST)
    core.sync()
    confirmed: set[bytes] = set()
    settled: dict[bytes, int] = {}
    sent: list[tuple[bytes, int]] = []
    route, _ = core.producer("q")
    taker = core.consume("q", room=3)
    arrived: list[bytes] = []
    held: set[bytes] = set()

    def deliver(messages):
        for message in messages:
            arrived.append(body_of(message))
            if arrived[-1] in held:
                assert tickets[arrived[-1]] <= core.gateway.durable, "handed out before stored"

    tickets: dict[bytes, int] = {}
    taker.on_deliver = deliver
    for number in range(80):
        match chance.choice(["send", "send", "send", "ack", "take", "sync", "time", "time"]):
            case "send":
                body = b"%d" % number
                if core.gateway.pressure.lag.waits:
                    held.add(body)
                tickets[body] = route.send(Run([stomp(body)], flags_of())).ticket
                sent.append((body, tickets[body]))
                core.turn()
            case "ack" if taker.got:
                body = body_of(taker.got[0])
                settled[body] = taker.ack(1)
                core.turn()
            case "take":
                taker.take(chance.choice([1, 2, 5]))
                core.turn()
            case "sync":
                core.sync()
            case "time":
                core.pass_time(chance.choice([10, 60, 150, 1200]))
    assert arrived == [body for body, _ in sent[: len(arrived)]], "order"
    core.check()
    if seed % 2:
        calmed(core)
        taker.take(1000)
        core.turn()
        assert arrived == [body for body, _ in sent], "held for ever"
        return
    durable = core.store.synced
    confirmed = {body for body, ticket in sent if ticket <= durable}
    gone = {body for body, ticket in settled.items() if ticket <= durable}
    maybe = set(settled) - gone
    core.restart()
    left = set(core.waiting("q"))
    assert confirmed - set(settled) <= left, "confirmed and lost"
    assert not left & gone, "came back"
    assert left <= confirmed - gone | maybe, "nobody was told"
    assert not core.gateway.pressure.lag.waits


# ---- another limit while it runs


def relimit(core: Core, limit: float) -> None:
    lag = core.gateway.pressure.lag
    lag.watch(limit, now=core.seconds, later=core._call_later)


def test_a_longer_limit_counts_for_what_waits_from_now_on():
    core = core_of()
    relimit(core, 5.0)
    core.send("q", b"1")
    core.pass_time(4900)
    assert not core.gateway.pressure.lag.waits
    core.pass_time(200)
    assert core.gateway.pressure.lag.waits
    calmed_after(core, 11_000)


def calmed_after(core: Core, by_ms: int) -> None:
    core.sync()
    core.pass_time(by_ms)
    assert not core.gateway.pressure.lag.waits


def test_a_limit_that_is_switched_off_lets_dispatch_go_on_at_once():
    core = lagging(core_of())
    taker = core.consume("q")
    core.send("q", b"1")
    assert taker.bodies() == []
    relimit(core, -1)
    assert not core.gateway.pressure.lag.waits
    core.sync()
    core.send("q", b"2")
    assert taker.bodies() == [b"1", b"2"]
    core.pass_time(60_000)
    assert (core.gateway.pressure.lag.waits, core.gateway.pressure.lag.times) == (False, 1)
    core.sync()
    relimit(core, LIMIT)
    lagging(core)


def test_a_limit_that_was_off_is_switched_on():
    core = Core()
    core.send("q", b"1")
    relimit(core, LIMIT)
    lagging(core)


def test_what_comes_after_all_that_waited_was_removed_waits_for_nothing():
    core = core_of(serialized=(ANYCAST,))
    taker = core.consume("q")
    core.send("q", b"1")
    queue = core.queue("q")
    assert len(queue.take_out({queue.next_seq - 1}, Gone.REMOVED)) == 1
    core.sync()
    core.send("q", b"2", durable=False)
    assert taker.bodies() == [b"2"]
    core.check()
