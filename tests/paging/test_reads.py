"""Reading pages beside the reactor: what is fetched ahead, and what arrives too late."""

from __future__ import annotations

import queue

import pytest

from gateway.addresses.match import SettingsEntry
from storage.page_reads import ThreadPages
from storage.pages import PageReader
from tests.paging.node import Node, node
from tests.simulation.fetches import TurnFetches

BODIES = [b"%04d" % number + b"." * 200 for number in range(3000)]
SETTINGS = {"max_size_messages": 1, "page_size_bytes": 1 << 20}


@pytest.fixture
def life(tmp_path) -> Node:
    made = node(tmp_path, SettingsEntry(match="#", values=SETTINGS))
    for at in range(0, 3000, 250):
        made.send("q", BODIES[at : at + 250])
        made.sync()
    made.store.fetches = TurnFetches(PageReader(made.fs, f"{made.directory}/paging"))
    return made


def test_nothing_is_read_on_the_way_of_a_turn(life):
    taker = life.consume("q", 3000)
    fetches = life.store.fetches
    assert taker.bodies() == BODIES[:1], "what is in memory goes out at once"
    assert len(fetches.jobs) == 4, "what follows is fetched with it"
    got = 1
    while got < 3000:
        assert fetches.step() or fetches.answer()
        life.turn()
        assert len(taker.got) >= got
        got = len(taker.got)
    assert taker.bodies() == BODIES
    life.check()


def drained(life: Node, taker) -> list[int]:
    """Let all that is fetched arrive, one by one; returns how many it had when it was told."""
    told = []

    def exhausted() -> None:
        # As a link does that drains: whoever is told early asks again.
        if taker.left and not taker.hold.keeps_searching():
            told.append(len(taker.got))

    taker.exhausted = exhausted
    taker.hold.dispatch_now()
    assert taker.hold.keeps_searching()
    fetches = life.store.fetches
    while fetches.step() or fetches.answer() or life.later:
        assert not told
        life.turn()
    return told


def test_who_must_know_that_this_is_all_is_told_when_it_is(life):
    taker = life.consume("q")
    taker.left = 5000
    assert drained(life, taker) == [3000]
    assert taker.bodies() == BODIES
    assert not taker.hold.keeps_searching()


def test_who_must_know_is_told_where_a_limit_ends_it(tmp_path):
    limited = SettingsEntry(match="#", values={**SETTINGS, "max_read_page_messages": 100})
    made = node(tmp_path, limited)
    made.send("q", BODIES[:300])
    made.send("q", BODIES[300:600])
    made.sync()
    made.store.fetches = TurnFetches(PageReader(made.fs, f"{made.directory}/paging"))
    taker = made.consume("q")
    taker.left = 5000
    assert drained(made, taker) == [100]
    assert taker.bodies() == BODIES[:100]


@pytest.mark.parametrize("how", ["purge", "delete", "pause"])
def test_who_must_know_is_told_when_nothing_comes_any_more(life, how):
    taker = life.consume("q")
    taker.left = 5000
    told = []
    taker.exhausted = lambda: told.append(True)
    taker.hold.dispatch_now()
    assert taker.hold.keeps_searching()
    if how == "purge":
        taker.ack()
        life.gateway.queues["q"].purge()
    elif how == "pause":
        life.gateway.administration.update_queue("q", paused=True)
    else:
        life.gateway.administration.delete_queue("q", remove_consumers=True)
    life.sync()
    fetches = life.store.fetches
    while fetches.step() or fetches.answer() or life.later:
        life.turn()
    assert told or taker.refusals
    assert how == "delete" or not taker.hold.keeps_searching()


def test_blocks_that_arrive_when_nobody_wants_them_change_nothing(life):
    taker = life.consume("q", 5)
    fetches = life.store.fetches
    while fetches.step():
        pass
    life.gateway.administration.delete_queue("q", remove_consumers=True)
    life.sync()
    while fetches.answer():
        life.turn()
    life.sync()
    assert life.page_files() == []
    assert taker.refusals


def test_a_block_that_cannot_be_read_is_given_up_and_the_next_one_comes(life):
    part = next(iter(life.gateway.addresses["q"].paging.pages.values()))
    part.lengths[1] -= 1  # as if it were not what was written
    lost = life.gateway.addresses["q"].paging.backlogs[life.gateway.queues["q"].queue_id]
    first, second, third = next(lost.parts())[1]._seqs[:3]
    taker = life.consume("q", 3000)
    fetches = life.store.fetches
    while fetches.step() or fetches.answer() or life.later:
        life.turn()
    assert life.gateway.operations.pager.lost == third - second
    assert taker.bodies() == BODIES[: second - 1] + BODIES[third - 1 :]
    assert first == 2


def test_a_thread_reads_in_order_and_ends(life):
    posted: queue.SimpleQueue = queue.SimpleQueue()
    reader = PageReader(life.fs, f"{life.directory}/paging")
    life.store.fetches = ThreadPages(reader, posted.put)
    taker = life.consume("q", 3000)
    while len(taker.got) < 3000:
        posted.get(timeout=10)()
        life.turn()
    assert taker.bodies() == BODIES
    life.store.close_pages()
    assert not reader._open
