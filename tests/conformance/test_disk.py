"""The disk monitor: the scenario rows D by their numbers, U3 and U8, on a disk of figures.

Judgement and broker are the real ones, the protocols too; only the disk is a number that the test
sets. What needs a process and a real file system is in `test_disk_live`.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock, LoopingCall

from gateway.addresses.settings import DiskFullPolicy, FullPolicy
from gateway.disk.judging import MARGIN_MAX, Change, DiskLimit, DiskMonitor, Space
from gateway.disk.watching import DiskWatch
from gateway.model.errors import Code
from gateway.model.message import DURABLE
from gateway.model.run import Run
from protocols.amqp.performatives import Accepted, Disposition, Flow, Rejected, Released
from tests.broker.core import Core, entry, stomp
from tests.conformance.clients import Amqp, Stomp
from tests.protocols.amqp.peer import Peer, data_message, of

MIB = 1 << 20
GIB = 1 << 30
BLOCK, FAIL, DROP = DiskFullPolicy.BLOCK, DiskFullPolicy.FAIL, DiskFullPolicy.DROP


def disk(free: int, total: int = 100 * GIB, path: str = "/data") -> Space:
    return Space(path=path, total=total, free=free)


def judged(free: int, total: int, **limit) -> bool:
    monitor = DiskMonitor(DiskLimit(**limit))
    changes = monitor.look([disk(free, total)], 0.0)
    assert monitor.full == (changes == [Change.FULL])
    return monitor.full


class Site:
    """A broker whose disk is watched; `free` is what the next scan finds."""

    def __init__(self, *entries, **limit) -> None:
        self.core = Core(*entries)
        self.clock = Clock()
        self.free = 50 * GIB
        self.total = 100 * GIB
        self.watch = DiskWatch(
            DiskLimit(**(limit or {"min_free": GIB})),
            self.core.gateway.pressure.disk,
            measure=lambda: [disk(self.free, self.total)],
            seconds=self.clock.seconds,
            ballast=None,
            threads=Threads(),
        )

    def scan(self, free: int, seconds: float = 5.0) -> None:
        self.clock.advance(seconds)
        self.free = free
        self.watch.scan()
        self.core.turn()

    def fill(self) -> None:
        self.scan(GIB)

    def release(self) -> None:
        self.scan(2 * GIB)

    def amqp(self) -> Amqp:
        return Amqp.at(self.core)


class Threads:
    def run(self, function) -> Deferred:
        return succeed(function())


class StompClient(Stomp):
    """A STOMP connection to a site."""

    def __init__(self, site: Site, version: str = "1.2", **limits) -> None:
        super().__init__(site.core, version, **limits)

    def give(self, body: str, receipt: str = "", queue: str = "q", more: str = ""):
        head = f"receipt:{receipt}\n" if receipt else ""
        return self.say(f"SEND\ndestination:{queue}\n{head}{more}\n{body}\0")


def credit(came) -> int:
    flows = [f.link_credit for f in of(came, Flow) if f.handle is not None]
    return flows[-1] if flows else 0


def states(came) -> list[object]:
    return [d.state for d in of(came, Disposition)]


def news(peer: Peer):
    """Return what came to a peer while the test did something else; it must have asked for it."""
    assert peer._woken, "nobody was told"
    peer._read()
    return peer.hear()


# ---- the judgement


def test_d1_a_limit_that_is_not_reached_and_one_that_always_is():
    free, total = 40 * GIB, 100 * GIB
    monitor = DiskMonitor(DiskLimit(max_usage=99.9))
    assert monitor.look([disk(free, total)], 0.0) == []
    monitor.limit = DiskLimit(max_usage=0)
    assert monitor.look([disk(free, total)], 5.0) == [Change.FULL]
    assert (monitor.scans, monitor.raised) == (2, 1)


def test_d2_the_least_and_the_largest_min_free():
    monitor = DiskMonitor(DiskLimit(min_free=0))
    assert monitor.look([disk(GIB)], 0.0) == []
    monitor.limit = DiskLimit(min_free=(1 << 63) - 1)
    assert monitor.look([disk(GIB)], 5.0) == [Change.FULL]


def test_d3_a_scan_each_period_and_none_after_the_stop():
    site = Site()
    loop = LoopingCall(site.watch.scan)
    loop.clock = site.clock
    loop.start(0.02, now=False)
    site.clock.pump([0.02] * 50)
    assert site.watch.monitor.scans == 50
    loop.stop()
    site.clock.pump([0.02] * 50)
    assert site.watch.monitor.scans == 50


@pytest.mark.parametrize(("free", "full"), [(10 * MIB, True), (10 * MIB + 1, False)])
def test_d10_usage_exactly_at_the_limit_is_full(free, full):
    assert judged(free, 100 * MIB, max_usage=90) is full


@pytest.mark.parametrize(("free", "full"), [(GIB - 1, True), (GIB, True), (GIB + 1, False)])
def test_d11_free_exactly_at_the_minimum_is_full(free, full):
    assert judged(free, 100 * GIB, min_free=GIB) is full


def test_d12_min_free_wins_when_both_are_written():
    assert not judged(5 * GIB, 100 * GIB, max_usage=90, min_free=4 * GIB)
    assert judged(5 * GIB, 100 * GIB, max_usage=90)
    assert judged(5 * GIB, 100 * GIB, max_usage=100, min_free=6 * GIB)


@pytest.mark.parametrize("limit", [{"max_usage": -1}, {"min_free": -1}])
def test_minus_one_is_no_limit(limit):
    assert not judged(0, 100 * GIB, **limit)
    assert DiskLimit(**limit).floor(100 * GIB) == -1


def test_min_free_of_minus_one_leaves_the_written_usage():
    assert judged(10, 1000, max_usage=90, min_free=-1)
    assert not judged(101, 1000, max_usage=90, min_free=-1)


@pytest.mark.parametrize(
    ("total", "floor"), [(100 * GIB, GIB), (20 * GIB, GIB), (10 * GIB, GIB // 2), (0, 0)]
)
def test_the_default_is_one_gib_or_a_twentieth(total, floor):
    limit = DiskLimit()
    assert limit.floor(total) == floor
    assert f"min-disk-free is {floor} bytes by default" in limit.in_words(total)
    assert DiskLimit(max_usage=100).floor(100 * GIB) == 0


def test_a_file_system_without_a_size_is_never_full_by_percentage():
    assert not judged(0, 0, max_usage=90)


def test_one_full_file_system_is_enough_and_is_named():
    monitor = DiskMonitor(DiskLimit(min_free=GIB))
    spaces = [disk(5 * GIB), disk(GIB - 7, path="/journal"), disk(2 * GIB, path="/pages")]
    assert monitor.look(spaces, 0.0) == [Change.FULL]
    text = monitor.refusal.text
    assert f"{GIB - 7} of {100 * GIB} bytes are free at /journal (99.0 % used)" in text
    assert f"min-disk-free is {GIB} bytes" in text
    assert monitor.refusal.code is Code.DISK_FULL
    spaces[1] = disk(3 * GIB, path="/journal")
    assert Change.ROOM in monitor.look(spaces, 5.0)
    spaces[2] = disk(GIB, path="/pages")
    assert Change.FULL in monitor.look(spaces, 10.0)


def test_the_text_says_where_the_limit_was_set():
    limit = DiskLimit(min_free=GIB, origins={"min-disk-free": "gate.toml:3"})
    monitor = DiskMonitor(limit)
    monitor.look([disk(GIB)], 0.0)
    assert f"and min-disk-free is {GIB} bytes (gate.toml:3). Nothing" in monitor.refusal.text
    monitor = DiskMonitor(DiskLimit(max_usage=50, origins=limit.origins))
    monitor.look([disk(GIB)], 0.0)
    assert "and max-disk-usage is 50 %. Nothing" in monitor.refusal.text


@pytest.mark.parametrize(
    ("frees", "wait"),
    [
        # It stands still, or fills: nothing changes before the next scan.
        ((GIB, GIB, GIB), 7.0),
        ((3 * GIB, 2 * GIB, GIB), 7.0),
        # It has emptied for ten minutes by 10 MiB a second, and 110 MiB are missing.
        ((*(GIB - (100 + n * 10) * MIB for n in range(600, -1, -1)),), 11.0),
        # It empties so slowly that it would take hours.
        ((*(GIB // 2 + n * 1000 for n in range(600)),), 60.0),
    ],
)
def test_a_sender_is_told_when_there_may_be_room(frees, wait):
    monitor = DiskMonitor(DiskLimit(min_free=GIB, scan_seconds=7.0))
    for second, free in enumerate(frees):
        monitor.look([disk(free)], float(second))
    assert monitor.full
    assert monitor.refusal.wait == pytest.approx(wait, rel=0.02)


def test_a_disk_that_ended_before_a_look_is_worth_another_one():
    monitor = DiskMonitor(DiskLimit())
    monitor.ran_out(0.0)
    assert monitor.refusal.wait == 5.0


@pytest.mark.parametrize("limit", [{"min_free": GIB}, {"max_usage": 99}, {}])
def test_the_way_back_has_a_margin_of_one_page_at_most(limit):
    monitor = DiskMonitor(DiskLimit(**limit))
    floor = monitor.limit.floor(100 * GIB)
    assert monitor.limit.margin(100 * GIB) == MARGIN_MAX
    monitor.look([disk(floor)], 0.0)
    assert monitor.look([disk(floor + MARGIN_MAX)], 5.0) == []
    assert monitor.full
    assert monitor.look([disk(floor + MARGIN_MAX + 1)], 10.0) == [Change.ROOM]
    assert monitor.refusal is None


def test_the_margin_of_a_small_limit_is_a_tenth_of_it():
    assert DiskLimit(min_free=MIB).margin(100 * GIB) == MIB // 10
    assert DiskLimit(max_usage=10).margin(100 * MIB) == MIB
    # A floor that is nearly the whole disk can still be left.
    assert DiskLimit(min_free=95 * MIB).margin(100 * MIB) == MIB // 2


def test_u8_at_most_one_flip_a_second():
    monitor = DiskMonitor(DiskLimit(min_free=GIB))
    flips = []
    for tick in range(1000):
        now = tick * 0.02
        free = GIB if tick % 2 else 3 * GIB
        flips += [now for c in monitor.look([disk(free)], now) if c is not Change.FILLING]
    assert len(flips) >= 15
    assert all(later - earlier >= 0.999 for earlier, later in itertools.pairwise(flips))


@given(
    st.lists(st.tuples(st.integers(0, 4 * GIB), st.floats(0.01, 10)), min_size=1, max_size=40),
    st.sampled_from(
        [{"min_free": GIB}, {"max_usage": 97}, {}, {"max_usage": -1}, {"max_usage": 0}]
    ),
)
def test_the_state_is_always_explained_by_a_look(looks, limit):
    monitor = DiskMonitor(DiskLimit(**limit))
    now, flipped_at, full = 0.0, None, False
    floor = monitor.limit.floor(100 * GIB)
    margin = monitor.limit.margin(100 * GIB)
    for free, span in looks:
        now += span
        changes = [c for c in monitor.look([disk(free)], now) if c is not Change.FILLING]
        may = flipped_at is None or now - flipped_at >= 1.0
        if free <= floor:
            assert monitor.full or not may
        elif free > floor + margin:
            assert not monitor.full or not may
        else:
            assert monitor.full == full
        if monitor.full != full:
            full, flipped_at = monitor.full, now
            assert changes == [Change.FULL if full else Change.ROOM]
        else:
            assert changes == []
        assert (monitor.refusal is not None) == full


# ---- the forecast


def test_the_forecast_follows_a_steady_rate():
    monitor = DiskMonitor(DiskLimit(min_free=GIB))
    free = 50 * GIB
    for tick in range(200):
        monitor.look([disk(free)], tick * 5.0)
        free -= 5 * MIB
    left = (free + 5 * MIB - GIB) / MIB
    assert monitor.seconds_left == pytest.approx(left, rel=0.01)


def test_the_forecast_is_told_once_and_again_after_it_was_over():
    monitor = DiskMonitor(DiskLimit(min_free=GIB))
    now, free, told = 0.0, 20 * GIB, []

    def run(rate: int, looks: int) -> None:
        nonlocal now, free
        for _ in range(looks):
            told.extend(monitor.look([disk(free)], now))
            now += 5.0
            free -= 5 * rate

    run(0, 10)
    assert monitor.seconds_left is None
    run(10 * MIB, 60)
    assert told == [Change.FILLING]
    assert monitor.seconds_left < 3600
    run(-10 * MIB, 120)
    assert monitor.seconds_left is None
    run(10 * MIB, 60)
    assert told == [Change.FILLING, Change.FILLING]


# ---- what senders meet


@pytest.mark.parametrize("policy", list(FullPolicy), ids=lambda p: p.value)
def test_d4_named_and_anonymous_senders_wait_and_both_go_on(policy):
    site = Site(entry(address_full_policy=policy, max_size_messages=1000))
    site.fill()
    named, relay = site.amqp(), site.amqp()
    assert credit(named.sender()) == 0
    assert credit(relay.sender(address="")) == 0
    gate = site.core.gateway.pressure.disk
    assert gate.held == 2
    assert credit(named.outside(lambda: site.scan(GIB))) == 0
    came = named.outside(site.release)
    assert credit(came) == 1000
    assert credit(news(relay)) == 1000
    assert gate.held == 0
    assert gate.refusal is None


def test_d4_a_relay_that_sent_before_the_disk_was_full():
    site = Site()
    peer = site.amqp()
    assert credit(peer.sender(address="")) == 1000
    site.fill()
    to_q = b"\x00\x53\x73\xc0\x06\x03\x40\x40\xa1\x01q" + data_message(b"x")
    came = peer.say(peer.transfer(to_q))
    assert states(came) == [Released()]
    # It has 999 left, and may use them again.
    assert credit(peer.outside(site.release)) == 0
    came = peer.say(peer.transfer(to_q)) + peer.sync()
    assert states(came) == [Accepted()]
    assert site.core.queue("q").message_count == 1


def test_d5_drop_accepts_and_stores_nothing():
    site = Site(entry(disk_full_policy=DROP))
    site.fill()
    peer = site.amqp()
    assert credit(peer.sender()) == 1000
    came = peer.send(b"1", b"2") + peer.sync()
    assert states(came) == [Accepted()]
    assert site.core.queue("q").message_count == 0
    assert site.core.gateway.addresses["q"].dropped == 2
    assert site.core.gateway.figures.refused[Code.DISK_FULL] == 2


def test_d6_fail_gives_no_credit_and_rejects_what_comes_on_credit_given_before():
    site = Site(entry(disk_full_policy=FAIL))
    early = site.amqp()
    assert credit(early.sender()) == 1000
    site.fill()
    late = site.amqp()
    assert credit(late.sender()) == 0
    (state,) = states(early.send(b"x"))
    assert isinstance(state, Rejected)
    assert state.error.condition == "amqp:resource-limit-exceeded"
    assert "min-disk-free" in state.error.description
    assert site.core.queue("q").message_count == 0
    assert credit(late.outside(site.release)) == 1000
    assert states(early.send(b"x") + early.sync()) == [Accepted()]


def test_d7_block_gives_back_what_comes_and_lets_go_with_room():
    site = Site(entry(disk_full_policy=BLOCK))
    peer = site.amqp()
    peer.sender()
    site.fill()
    # What was granted may be used up; none of it is stored, and no more is given.
    for _ in range(10):
        came = peer.send(*[b"x"] * 100)
        assert set(map(type, states(came))) == {Released}
        assert credit(came) == 0
    assert site.core.queue("q").message_count == 0
    assert site.core.gateway.figures.refused[Code.DISK_FULL] == 1000
    assert credit(peer.outside(site.release)) == 1000
    assert states(peer.send(b"x") + peer.sync()) == [Accepted()]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("receipt", ["", "r1"])
@pytest.mark.parametrize("policy", [BLOCK, FAIL, DROP], ids=lambda p: p.value)
@pytest.mark.parametrize("early", [False, True])
def test_d8_a_stomp_sender_gets_an_error_and_is_dropped(version, receipt, policy, early):
    site = Site(entry(disk_full_policy=policy))
    client = StompClient(site, version)
    if early:
        client.give("0", "before")
    site.fill()
    ((command, headers, body),) = client.give("1", receipt)
    assert command == "ERROR"
    assert headers.get("receipt-id") == (receipt or None)
    assert (headers["error-code"], headers["retry-after"]) == ("disk-full", "5")
    assert f"{GIB} of {100 * GIB} bytes are free" in headers["message"]
    assert b"min-disk-free" in body
    assert client.session.closing
    assert site.core.gateway.figures.refused[Code.DISK_FULL] == 1
    # Nothing is stored, and nothing made for a sender that is refused.
    assert [q.message_count for q in site.core.gateway.queues.values()] == ([1] if early else [])
    site.core.check()


def test_d8_of_a_run_the_first_is_refused_and_the_others_are_not_answered():
    site = Site()
    client = StompClient(site)
    client.give("0", "r")
    site.fill()
    sends = "".join(f"SEND\ndestination:q\nreceipt:{n}\n\n{n}\0" for n in range(1, 4))
    ((command, headers, _),) = client.say(sends)
    assert (command, headers["receipt-id"]) == ("ERROR", "1")
    assert client.session.closing
    assert site.core.waiting("q") == [b"0"]


def test_d8_in_a_transaction_too():
    site = Site()
    client = StompClient(site)
    client.say("BEGIN\ntransaction:t\n\n\0")
    client.give("0", more="transaction:t\n")
    site.fill()
    ((command, headers, _),) = client.give("1", "r", more="transaction:t\n")
    assert (command, headers["receipt-id"], headers["error-code"]) == ("ERROR", "r", "disk-full")
    assert client.session.closing
    assert site.core.queue("q").message_count == 0


def test_stomp_can_wait_instead():
    site = Site()
    client = StompClient(site, disk_full_pause=True)
    client.give("0", "a")
    site.fill()
    assert client.give("1", "b") == []
    assert client.session.paused_reading
    assert not client.session.closing
    assert site.core.waiting("q") == [b"0"]
    site.release()
    came = client.more()
    assert [(c, h["receipt-id"]) for c, h, _ in came] == [("RECEIPT", "b")]
    assert not client.session.paused_reading
    assert site.core.waiting("q") == [b"0", b"1"]


def test_stomp_waits_with_a_transaction_and_in_an_address_that_drops():
    site = Site(entry(disk_full_policy=DROP))
    client = StompClient(site, disk_full_pause=True)
    client.say("BEGIN\ntransaction:t\n\n\0")
    client.give("0", more="transaction:t\n")
    site.fill()
    assert client.give("1", "b", more="transaction:t\n") == []
    assert client.session.paused_reading
    site.release()
    assert [c for c, _, _ in client.more()] == ["RECEIPT"]
    client.say("COMMIT\ntransaction:t\n\n\0")
    assert site.core.waiting("q") == [b"0", b"1"]
    # A run on a head that the parser knows already.
    client.give("2", "c")
    site.fill()
    assert client.give("3", "d") == []
    assert client.session.paused_reading
    site.release()
    assert [h["receipt-id"] for _, h, _ in client.more()] == ["d"]
    assert site.core.waiting("q") == [b"0", b"1", b"2", b"3"]


def test_a_paused_stomp_peer_that_holds_deliveries_is_heard():
    site = Site()
    client = StompClient(site, disk_full_pause=True)
    client.give("0", "a")
    ((_, headers, _),) = client.say("SUBSCRIBE\nid:s\ndestination:q\nack:client\n\n\0")
    site.fill()
    assert client.give("1", "b") == []
    assert not client.session.paused_reading
    client.say(f"ACK\nid:{headers['ack']}\n\n\0")
    assert site.core.queue("q").acknowledged == 1
    assert client.session.paused_reading


@pytest.mark.parametrize("early", [False, True])
def test_d9_consumers_go_on(early):
    site = Site()
    site.core.send("q", b"a", b"b")
    subscribe = "SUBSCRIBE\nid:s\ndestination:q\nack:client-individual\n\n\0"
    reader = StompClient(site)
    came = reader.say(subscribe) if early else []
    site.fill()
    came += [] if early else reader.say(subscribe)
    assert [b.rpartition(b"\0")[0] or b for _, _, b in came] == [b"a", b"b"]
    for _, headers, _ in came:
        ((command, _, _),) = reader.say(f"ACK\nid:{headers['ack']}\nreceipt:x\n\n\0")
        assert command == "RECEIPT"
    site.core.check()
    assert site.core.queue("q").message_count == 0
    peer = site.amqp()
    assert [f.name for f in peer.receiver(credit=10)] == ["attach"]


def test_d14_full_before_the_start_is_full_for_the_first_sender():
    site = Site()
    site.free = 1
    site.watch.start()
    assert credit(site.amqp().sender()) == 0
    ((command, _, _),) = StompClient(site).give("1")
    assert command == "ERROR"


def test_d15_what_was_sent_in_a_transaction_before_is_committed():
    for policy in (BLOCK, FAIL):
        site = Site(entry(disk_full_policy=policy))
        route, _ = site.core.producer("q")
        work = site.core.gateway.begin()
        assert work.send(route, Run((stomp(b"1"),), DURABLE)) is None
        site.fill()
        refusal = work.send(route, Run((stomp(b"2"),), DURABLE))
        assert (refusal.code, refusal.transient) == (Code.DISK_FULL, policy is BLOCK)
        assert work.commit() > 0
        site.core.sync()
        assert site.core.waiting("q") == [b"1"]
        site.core.check()


def test_dead_letters_and_expiry_are_no_senders():
    site = Site(entry(max_delivery_attempts=1, expiry_address="ExpiryQueue"))
    site.core.send("q", b"dead")
    site.core.send("q", b"late", ttl=5)
    taker = site.core.consume("q", room=1)
    site.fill()
    taker.release(failed=True)
    taker.leave()
    site.core.now += 1000
    site.core.gateway.expire()
    site.core.turn()
    assert site.core.waiting("DLQ") == [b"dead"]
    assert site.core.waiting("ExpiryQueue") == [b"late"]
    assert site.core.gateway.figures.lost_dead_letters == 0
    site.core.check()


def test_u3_three_blocked_senders_are_let_go_by_one_scan():
    site = Site()
    peers = [site.amqp() for _ in range(3)]
    for peer, address in zip(peers, ["a", "b", ""], strict=True):
        assert credit(peer.sender(address=address)) == 1000
    site.fill()
    for peer in peers[:2]:
        peer.send(*[b"x"] * 900)
    assert site.core.gateway.pressure.disk.held == 3
    site.release()
    assert [credit(news(p)) for p in peers[:2]] == [1000, 1000]
    assert site.core.gateway.pressure.disk.held == 0


def test_the_disk_and_a_full_address_hold_apart():
    site = Site(entry(address_full_policy=FullPolicy.BLOCK, max_size_messages=2))
    route, owner = site.core.producer("q")
    site.core.send("q", b"1", b"2")
    assert route.blocked().code is Code.ADDRESS_FULL
    site.fill()
    assert route.blocked().code is Code.DISK_FULL
    taker = site.core.consume("q")
    taker.ack()
    site.core.turn()
    # There is room at the address; the disk still holds.
    assert route.blocked().code is Code.DISK_FULL
    peer = site.amqp()
    assert credit(peer.sender()) == 0
    site.release()
    assert route.blocked() is None
    assert not owner.blocked
    assert credit(news(peer)) == 1000
    taker.leave()
    site.core.send("q", b"1", b"2")
    site.fill()
    site.release()
    assert route.blocked().code is Code.ADDRESS_FULL
    assert owner.blocked


def test_a_closed_sender_is_told_nothing_and_held_no_more():
    site = Site()
    route, owner = site.core.producer("q")
    relay = site.core.gateway.open_relay(owner)
    site.fill()
    assert site.core.gateway.pressure.disk.held == 2
    route.close()
    relay.close()
    assert site.core.gateway.pressure.disk.held == 0
    site.release()
    assert owner.told == ["blocked", "blocked"]


def test_the_figures_of_a_refusal_are_those_of_the_last_look():
    site = Site()
    site.fill()
    before = site.core.gateway.pressure.disk.refusal.text
    site.scan(GIB // 2)
    after = site.core.gateway.pressure.disk.refusal.text
    assert f"{GIB} of" in before
    assert f"{GIB // 2} of" in after
    assert site.watch.monitor.raised == 1


# ---- the end of the disk


def test_a_write_that_finds_no_room_holds_senders_at_once():
    site = Site(max_usage=-1)
    route, owner = site.core.producer("q")
    site.scan(0)
    assert route.blocked() is None
    site.watch.ran_out()
    assert owner.blocked
    assert "no room left" in route.blocked().text
    site.watch.ran_out()
    assert site.watch.monitor.raised == 1
    site.scan(GIB)
    assert not owner.blocked


class Ballast:
    """Missing until `make` may succeed."""

    def __init__(self) -> None:
        self.size, self.missing, self.made = 0, 64 * MIB, 0

    def make(self) -> bool:
        self.made += 1
        self.size, self.missing = 64 * MIB, 0
        return True


def test_senders_wait_until_the_ballast_is_whole_again():
    site = Site()
    site.watch.ballast = ballast = Ballast()
    site.watch.ran_out()
    site.scan(GIB + MARGIN_MAX + 64 * MIB)
    assert (ballast.made, site.watch.monitor.full) == (0, True)
    assert "ballast-size" in site.core.gateway.pressure.disk.refusal.text
    site.scan(GIB + MARGIN_MAX + 64 * MIB + 1)
    assert (ballast.made, site.watch.monitor.full) == (1, False)


def test_a_disk_that_cannot_be_measured_is_told():
    site = Site()
    told = []
    site.watch.failed = told.append

    def broken():
        raise OSError(5, "Input/output error")

    site.watch._measure = broken
    site.watch.scan()
    assert [error.errno for error in told] == [5]


def test_another_limit_is_judged_by_at_once():
    site = Site(min_free=GIB)
    site.free = 10 * GIB
    site.watch.start()
    assert site.core.gateway.pressure.disk.refusal is None
    site.watch.monitor.use(DiskLimit(min_free=20 * GIB))
    site.watch.scan()
    assert "min-disk-free is 21474836480 bytes" in site.core.gateway.pressure.disk.refusal.text
    site.watch.monitor.use(DiskLimit(max_usage=95))
    site.watch.scan()  # within the second that flips are apart
    assert site.core.gateway.pressure.disk.refusal is None
