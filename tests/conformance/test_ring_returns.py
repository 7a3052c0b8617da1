"""What comes back to a ring, R4 and R18: the newest stay, in whatever order and frames it returns.

Over both protocols and every way in which deliveries come back. The rule itself is judged by the
machines in tests/queues against a naive queue.
"""

from __future__ import annotations

from itertools import permutations

import pytest

from gateway.addresses.settings import RingVictim
from protocols.amqp.performatives import RELEASED, Close, Detach, End, Modified
from tests.broker.core import ANYCAST, Core, entry
from tests.conformance.clients import Stomp, bodies, data, took
from tests.conformance.test_paging import paged, paging
from tests.conformance.test_transactions import Client

VERSIONS = ["1.0", "1.1", "1.2"]
VICTIMS = list(RingVictim)
ORDERS = list(permutations(range(3)))
FAILED = Modified(delivery_failed=True)
NEITHER = Modified()


def ring(size: int, victim: RingVictim = RingVictim.OLDEST, **more: object) -> Core:
    core = Core(entry("#", ring_victim=victim, **more))
    core.administration.create_queue("q", "q", ANYCAST, ring_size=size)
    return core


def figures(core: Core) -> tuple[int, int, int]:
    """Return (message count, delivering, replaced), after all has been checked."""
    core.check()
    return core.figures("q")


def reading(core: Core, credit: int = 3) -> Client:
    """An AMQP receiver on `q` with so much credit."""
    client = Client.at(core)
    client.peer.receiver(1, credit=credit)
    client.peer.more()
    return client


def subscribed(core: Core, version: str) -> Stomp:
    client = Stomp(core, version)
    assert client.subscribe("q", "client-individual") == []
    return client


def in_delivery(core: Core, *names: str, priorities: tuple[int, ...] = ()) -> None:
    """Send A, B, C to a consumer that has room for all of them."""
    for at, name in enumerate(names or "ABC"):
        core.send("q", name.encode(), priority=priorities[at] if priorities else 4)
    count = len(names or "ABC")
    assert figures(core) == (count, count, 0)


# ---- AMQP


@pytest.mark.parametrize(
    "state", [RELEASED, NEITHER, FAILED], ids=["released", "modified", "failed"]
)
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("order", ORDERS)
def test_r18_three_amqp_dispositions_in_any_order_leave_the_newest(order, victim, state):
    core = ring(2, victim)
    one = reading(core).peer
    in_delivery(core)
    for number in order:
        one.settle(number + 1, state)
    assert figures(core) == (2, 0, 1)
    assert core.waiting("q") == [b"B", b"C"]


@pytest.mark.parametrize(
    "state", [RELEASED, NEITHER, FAILED], ids=["released", "modified", "failed"]
)
@pytest.mark.parametrize("victim", VICTIMS)
def test_r18_one_amqp_disposition_for_three_leaves_the_newest(victim, state):
    core = ring(2, victim)
    one = reading(core).peer
    in_delivery(core)
    one.settle(1, state, last=3)
    assert figures(core) == (2, 0, 1)
    assert core.waiting("q") == [b"B", b"C"]


def test_r18_what_is_in_delivery_counts_as_there():
    """Who gives the oldest back while two later ones are held has it replaced at once."""
    core = ring(2)
    one = reading(core).peer
    in_delivery(core)
    one.settle(1, RELEASED)
    assert figures(core) == (2, 2, 1)
    one.settle(3, RELEASED)
    assert figures(core) == (2, 1, 1)
    one.settle(2, RELEASED)
    assert core.waiting("q") == [b"B", b"C"]


@pytest.mark.parametrize("priorities", [(9, 4, 4), (4, 9, 0), (0, 4, 9), (9, 0, 4)])
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("order", ORDERS)
def test_r18_the_newest_stay_whatever_their_priority(order, victim, priorities):
    core = ring(2, victim)
    one = reading(core).peer
    in_delivery(core, priorities=priorities)
    for number in order:
        one.settle(number + 1, RELEASED)
    assert sorted(core.waiting("q")) == [b"B", b"C"]
    assert figures(core) == (2, 0, 1)


@pytest.mark.parametrize("order", ORDERS)
def test_r18_two_receivers_give_back_in_any_order(order):
    core = ring(2)
    holders = {}
    peers = [reading(core, 1).peer, reading(core, 2).peer]
    in_delivery(core)
    for peer in peers:
        came = peer.more()
        for (number, _), name in zip(took(came), data(came), strict=True):
            holders[name] = peer, number
    assert sorted(holders) == [b"A", b"B", b"C"]
    for at in order:
        peer, number = holders[b"ABC"[at : at + 1]]
        peer.settle(number, RELEASED)
    assert core.waiting("q") == [b"B", b"C"]
    assert figures(core) == (2, 0, 1)


@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("how", ["detach", "close link", "end", "close", "cut"])
def test_r18_what_a_receiver_leaves_behind_after_one_release(how, first):
    core = ring(2)
    one = reading(core).peer
    in_delivery(core)
    one.settle(first, RELEASED)
    match how:
        case "detach":
            one.tell(Detach(handle=1))
        case "close link":
            one.tell(Detach(handle=1, closed=True))
        case "end":
            one.tell(End())
        case "close":
            one.tell(Close(), channel=0)
        case _:
            one.cut()
    core.sync()
    assert core.waiting("q") == [b"B", b"C"]
    assert figures(core) == (2, 0, 1)


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("credit", [1, 2, 10])
@pytest.mark.parametrize("how", ["detach first", "rollback first"])
def test_r4_an_amqp_rollback_beside_a_later_message_keeps_the_later_one(how, credit, settled):
    core = ring(1)
    one = reading(core, credit)
    core.send("q", b"h0")
    one.peer.more()
    name = one.declare()
    one.retire(name, 1, settled=settled)
    core.send("q", b"h1")
    assert figures(core) == (2, min(credit, 2), 0)
    if how == "detach first":
        one.peer.tell(Detach(handle=1, closed=True))
        one.end(name, fail=True)
    else:
        one.end(name, fail=True)
        one.peer.tell(Detach(handle=1, closed=True))
    core.sync()
    assert core.waiting("q") == [b"h1"]
    assert figures(core) == (1, 0, 1)
    again = Client.at(core)
    assert data(again.peer.receiver(1, credit=1) + again.peer.more()) == [b"h1"]
    name = again.declare()
    again.retire(name, 1)
    again.end(name)
    assert figures(core) == (0, 0, 1)
    assert core.queue("q").acknowledged == 1


@pytest.mark.parametrize("order", ORDERS)
def test_r18_what_is_released_by_a_commit_leaves_the_newest(order):
    core = ring(2)
    one = reading(core)
    in_delivery(core)
    name = one.declare()
    for number in order:
        one.retire(name, number + 1, outcome=RELEASED)
    one.end(name)
    assert core.waiting("q") == [b"B", b"C"]
    assert figures(core) == (2, 0, 1)


# ---- STOMP


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("order", ORDERS)
def test_r18_three_nacks_in_any_order_leave_the_newest(order, victim, version):
    core = ring(2, victim)
    client = subscribed(core, version)
    in_delivery(core)
    came = client.more()
    assert bodies(came) == ["A", "B", "C"]
    core.administration.update_queue("q", paused=True)  # else it has them again at once
    for at in order:
        client.settle(came[at], "NACK")
    assert core.waiting("q") == [b"B", b"C"]
    assert figures(core) == (2, 0, 1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("order", ORDERS)
def test_r18_acks_that_are_aborted_leave_the_newest(order, version):
    core = ring(2)
    client = subscribed(core, version)
    in_delivery(core)
    came = client.more()
    core.administration.update_queue("q", paused=True)
    for at in order:
        name = f"t{at}"
        client.do("BEGIN", transaction=name)
        client.settle(came[at], transaction=name)
    for at in order:
        client.do("ABORT", transaction=f"t{at}")
    assert core.waiting("q") == [b"B", b"C"]
    assert figures(core) == (2, 0, 1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("how", ["UNSUBSCRIBE", "DISCONNECT", "cut"])
@pytest.mark.parametrize("nacked", [None, 0, 1, 2])
def test_r18_what_a_stomp_subscriber_leaves_behind(how, nacked, version):
    if nacked is not None and version == "1.0":
        pytest.skip("1.0 has no NACK")
    core = ring(2)
    client = subscribed(core, version)
    in_delivery(core)
    came = client.more()
    core.administration.update_queue("q", paused=True)
    if nacked is not None:
        client.settle(came[nacked], "NACK")
    match how:
        case "UNSUBSCRIBE":
            client.do("UNSUBSCRIBE", id="s", destination="q")
        case "DISCONNECT":
            client.leave()
        case _:
            client.cut()
    core.sync()
    assert core.waiting("q") == [b"B", b"C"]
    assert figures(core) == (2, 0, 1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("how", ["unsubscribe first", "abort first"])
def test_r4_an_abort_beside_a_later_message_keeps_the_later_one(how, version):
    core = ring(1)
    client = subscribed(core, version)
    core.send("q", b"h0")
    (first,) = client.more()
    client.do("BEGIN", transaction="t")
    client.settle(first, transaction="t")
    core.send("q", b"h1")
    assert figures(core) == (2, 2, 0)
    steps = [("UNSUBSCRIBE", {"id": "s", "destination": "q"}), ("ABORT", {"transaction": "t"})]
    for command, headers in steps if how == "unsubscribe first" else steps[::-1]:
        client.do(command, **headers)
    core.sync()
    assert core.waiting("q") == [b"h1"]
    assert figures(core) == (1, 0, 1)
    assert bodies(client.subscribe("q", id="again")) == ["h1"]


# ---- pages, and a start


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_r18_beside_pages_the_newest_stay(order, victim):
    core = paged(max_size_messages=4, ring_victim=victim)
    core.administration.create_queue("q", "q", ANYCAST, ring_size=3)
    one = reading(core).peer
    in_delivery(core)
    core.send("q", b"D", b"E", b"F", b"G", b"H")
    assert paging(core)
    core.sync()
    assert core.waiting("q") == [b"F", b"G", b"H"]
    for number in order:
        one.settle(number + 1, RELEASED)
    core.sync()
    assert core.waiting("q") == [b"F", b"G", b"H"]
    assert core.figures("q")[:2] == (3, 0)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("order", ORDERS)
def test_r18_after_a_start_the_newest_are_there(order, clean):
    core = ring(2)
    one = reading(core).peer
    in_delivery(core)
    core.sync()
    one.settle(order[0] + 1, RELEASED)
    one.settle(order[1] + 1, RELEASED)
    core.sync()
    if clean:
        one.cut()
    core.restart(clean=clean)
    assert core.waiting("q") == [b"B", b"C"]
    assert figures(core)[:2] == (2, 0)
    again = Client.at(core).peer
    assert data(again.receiver(1, credit=2) + again.more()) == [b"B", b"C"]
    again.settle(2, RELEASED)
    again.settle(1, RELEASED)
    assert core.waiting("q") == [b"B", b"C"]


def test_a_ring_that_was_lowered_is_not_trimmed_by_what_comes_back():
    core = ring(9)
    core.send("q", *[b"%d" % n for n in range(9)])
    one = reading(core, 2).peer
    core.administration.update_queue("q", ring_size=4)
    one.settle(1, RELEASED, last=2)
    assert figures(core) == (7, 0, 2)
    assert core.waiting("q")[0] == b"2"


def test_what_has_room_stays_though_it_is_the_oldest():
    core = ring(4)
    one = reading(core).peer
    in_delivery(core)
    core.send("q", b"D")
    one.settle(1, RELEASED)
    assert figures(core) == (4, 2, 0)
    assert core.waiting("q") == [b"A", b"D"]
