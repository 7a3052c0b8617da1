"""Looking through pages whose blocks come late: what changes meanwhile is seen as it is then."""

from __future__ import annotations

import errno

import pytest

from gateway.addresses.match import SettingsEntry
from gateway.broker.operations.errand import Errand, counting, removing
from gateway.management import browsing
from gateway.model.address import RoutingType, parse_destination
from gateway.model.message import EXPIRES
from gateway.model.run import Run
from gateway.queues.queue import Gone
from storage.pages import PageReader
from tests.broker.core import Core, Taker, body_of, entry, flags_of, stomp
from tests.paging.node import Node, node
from tests.simulation.fetches import TurnFetches

BODIES = [b"%04d" % number + b"." * 200 for number in range(1200)]
SETTINGS = {"max_size_messages": 1, "page_size_bytes": 1 << 16}


@pytest.fixture
def life(tmp_path) -> Node:
    made = node(tmp_path, SettingsEntry(match="#", values=SETTINGS))
    for at in range(0, 1200, 60):
        made.send("q", BODIES[at : at + 60])
        made.sync()
    made.store.fetches = TurnFetches(PageReader(made.fs, f"{made.directory}/paging"))
    return made


def come(life: Node, blocks: int = 1 << 30) -> int:
    """Let blocks come, one at a time; returns how many did."""
    came = 0
    while came < blocks and (life.store.fetches.step() or life.later):
        came += life.store.fetches.answer()
        life.turn()
    return came


def rest(life: Node) -> None:
    while come(life):
        life.sync()
    life.sync()


def drain(life: Node) -> list[bytes]:
    """Take all, with blocks that come at once."""
    life.store.fetches = None
    return life.drain("q")


def start(life: Node, act, **how) -> tuple[Errand, list]:
    told: list = []
    errand = Errand(life.gateway, life.gateway.queues["q"], act, **how)
    errand.start(lambda *answer: told.append(answer))
    life.turn()
    return errand, told


def test_an_errand_waits_for_each_block_and_takes_all(life):
    queue = life.gateway.queues["q"]
    _, told = start(life, removing(queue, Gone.REMOVED))
    assert queue.message_count == 1200 - 1, "what is in memory goes at once"
    before = 1199
    while not told:
        if not come(life, 1):
            life.sync()
        assert before - 60 * 4 <= queue.message_count <= before, "as the blocks come"
        before = queue.message_count
    assert told == [(1200, None)]
    assert queue.message_count == 0
    life.check()


def test_what_is_read_back_while_an_errand_waits_is_found_in_memory(life):
    queue = life.gateway.queues["q"]
    _, told = start(life, removing(queue, Gone.REMOVED))
    for _ in range(3):
        assert life.store.fetches.step()
        assert life.store.fetches.answer()
    # The errand knows of one block; a scan reads all three, and finds that nothing has expired.
    assert life.gateway.expire() == 0
    assert queue.ready_count > 120
    rest(life)
    assert told == [(1200, None)]
    assert queue.message_count == 0
    life.check()


def test_what_a_consumer_took_meanwhile_is_passed_over(life):
    queue = life.gateway.queues["q"]
    taker = life.consume("q", 300)
    seen: list[bytes] = []
    _, told = start(life, counting(lambda m: seen.append(body_of(m))))
    rest(life)
    assert taker.bodies() == BODIES[:300]
    assert told == [(len(seen), None)]
    assert len(set(seen)) == len(seen)
    assert seen[-900:] == BODIES[300:], "in order, and all that nobody took"
    assert queue.delivering == 300


@pytest.mark.parametrize("whys", [(Gone.REMOVED, Gone.REMOVED), (Gone.REMOVED, Gone.KILLED)])
def test_two_errands_at_a_time_take_each_message_once(life, whys):
    queue = life.gateway.queues["q"]
    one = start(life, removing(queue, whys[0]), selects=lambda m: m.seq % 3 == 0)[1]
    other = start(life, removing(queue, whys[1]))[1]
    rest(life)
    assert one[0][0] + other[0][0] == 1200
    assert queue.message_count == 0
    life.check()


def test_an_errand_that_is_cancelled_does_nothing_more(life):
    queue = life.gateway.queues["q"]
    errand, told = start(life, removing(queue, Gone.REMOVED))
    come(life, 3)
    left = queue.message_count
    assert 0 < left < 1200
    errand.cancel()
    rest(life)
    assert (queue.message_count, told) == (left, [])
    assert drain(life) == BODIES[1200 - left :]


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_an_errand_ends_when_there_is_nothing_any_more(life, how):
    queue = life.gateway.queues["q"]
    _, told = start(life, counting(lambda _: None))
    if how == "purge":
        queue.purge()
    else:
        life.gateway.administration.delete_queue("q", remove_consumers=True)
    rest(life)
    assert told == [(1, None)]


def test_what_cannot_be_read_is_passed_over_and_waits_for_who_takes_all(life):
    queue = life.gateway.queues["q"]
    page = next(iter(life.gateway.addresses["q"].paging.pages.values()))
    page.lengths[1] -= 1  # as if it were not what was written
    seen: list[bytes] = []
    viewer = Taker(2000)
    viewer.hold = life.gateway.subscribe(parse_destination("q"), None, viewer, browse=True)
    _, told = start(life, counting(lambda m: seen.append(body_of(m))))
    rest(life)
    assert viewer.bodies() == seen
    assert len(seen) == 1140
    assert told == [(1140, None)]
    assert (queue.message_count, life.gateway.operations.pager.lost) == (1200, 0)
    assert drain(life) == seen
    assert (queue.message_count, life.gateway.operations.pager.lost) == (0, 60)


def test_a_window_into_pages_reads_what_it_shows_and_no_more(life):
    queue = life.gateway.queues["q"]
    told: list = []
    browsing.Window(queue, 1000, 20, life.now).read(told.append)
    assert come(life) <= 4
    assert [body_of(m) for m, _ in browsing.shown(queue, *told, life.now)] == BODIES[1000:1020]


def test_a_window_does_not_show_what_left_while_its_pages_came(life):
    queue = life.gateway.queues["q"]
    told: list = []
    browsing.Window(queue, 0, 300, life.now).read(told.append)
    taker = life.consume("q", 100)
    rest(life)
    states = browsing.shown(queue, *told, life.now)
    assert taker.bodies() == BODIES[:100]
    shown = [body_of(message) for message, _ in states]
    assert len(set(shown)) == len(shown)
    assert shown == BODIES[100 : 100 + len(shown)]
    assert shown[-1] == BODIES[299]


def test_a_browser_sees_pages_though_others_still_write():
    """What was read from a page was taken for what is not on disk yet, and never shown."""
    core = Core(entry("#", max_size_messages=1))
    core.send("q", *[b"%d" % number for number in range(9)])
    core.sync()
    core.send("other", b"x")
    viewer = core.consume("q", browse=True)
    core.sync()
    assert viewer.bodies() == [b"%d" % number for number in range(9)]


def test_what_a_browser_reads_from_a_page_was_on_disk_whatever_became_of_it(life):
    """Of what is in memory, or is read back there, nobody knows what a disk has that failed."""
    taker = life.consume("q", room=1)
    life.turn()
    assert taker.bodies() == BODIES[:1], "all that was in memory"
    life.journal.failed(OSError(errno.EIO, "disk"))
    viewer = Taker(len(BODIES))
    viewer.hold = life.gateway.subscribe(parse_destination("q"), None, viewer, browse=True)
    viewer.hold.dispatch_now()
    while come(life):
        pass
    assert viewer.bodies() == BODIES[1:60], "the block that it looked at"


def test_a_scan_goes_on_through_what_has_expired_as_the_blocks_come(life):
    route = life.producer("late")
    late = [stomp(b"late %d" % number) for number in range(300)]
    for at in range(0, 300, 60):
        route.send(Run(late[at : at + 60], flags_of() | EXPIRES, life.now + 10))
        life.sync()
    route.close()
    life.now += 20
    queue = life.gateway.queues["late"]
    assert queue.message_count == 300
    life.gateway.expire()
    rest(life)
    assert (queue.message_count, queue.expired) == (0, 300)
    life.check()


def test_those_who_take_nothing_see_all_of_late_pages_and_a_drain_ends_with_them(life):
    life.gateway.administration.create_queue(
        "kept", "kept", RoutingType.ANYCAST, attributes={"non_destructive": True}
    )
    for at in range(0, 600, 60):
        life.send("kept", BODIES[at : at + 60])
        life.sync()
    one, other = life.consume("kept", 600), life.consume("kept", 0)
    told: list[int] = []

    def exhausted() -> None:
        if not other.hold.keeps_searching():
            told.append(len(other.got))

    other.exhausted = exhausted
    other.left = 1000
    other.hold.dispatch_now()
    assert other.hold.keeps_searching()
    rest(life)
    assert one.bodies() == other.bodies() == BODIES[:600]
    assert told == [600]
    assert life.gateway.queues["kept"].message_count == 600
    life.check()


@pytest.mark.parametrize("synced", [True, False])
def test_a_browser_is_told_the_end_when_what_it_waits_for_is_emptied(life, synced):
    queue = life.gateway.queues["q"]
    taker = life.consume("q", 1)
    taker.ack()
    taker.leave()
    rest(life)
    queue.backlog._source._kept.clear()
    viewer = Taker(2000)
    told: list[int] = []
    viewer.exhausted = lambda: told.append(len(viewer.got))
    viewer.hold = life.gateway.subscribe(parse_destination("q"), None, viewer, browse=True)
    life.turn()
    if not synced:
        life.send("q", BODIES[:60])
    before = len(viewer.got)
    assert told == []
    queue.purge()
    life.turn()
    assert queue.backlog is None
    rest(life)
    assert told == [before]
