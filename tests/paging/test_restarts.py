"""What simulated lives of the core found about pages and restarts, each told in a few steps."""

from __future__ import annotations

import pytest

from gateway.addresses.match import SettingsEntry
from gateway.broker import Limits
from gateway.model.address import RoutingType, parse_destination
from gateway.model.message import EXPIRES, MAYBE_SEEN
from gateway.model.run import Run
from storage import journal as journal_module
from tests.broker.core import Taker, body_of, flags_of, stomp
from tests.paging.node import node

SETTINGS = SettingsEntry(match="#", values={"max_size_messages": 2, "page_size_bytes": 1024})


def bodies(first: int, count: int) -> list[bytes]:
    return [b"%03d" % number + b"." * 60 for number in range(first, first + count)]


def test_a_number_of_a_page_is_never_used_again(tmp_path):
    life = node(tmp_path, SettingsEntry(match="q", values={"max_size_messages": 0}))
    life.send("old", bodies(9, 1))  # the journal keeps what it says of that time
    life.send("q", bodies(0, 3))
    life.sync()
    taker = life.consume("q", 3)
    taker.ack()
    life.sync()
    taker.leave()
    life.restart(clean=True)
    assert life.gateway.addresses["q"].paging is not None
    life.send("q", bodies(3, 3))
    life.sync()
    life.restart()
    assert life.drain("q") == bodies(3, 3)


def test_a_queue_never_gets_the_number_of_one_that_is_still_on_pages(tmp_path):
    life = node(tmp_path, SETTINGS)
    life.gateway.administration.create_queue("first", "t", RoutingType.MULTICAST)
    life.send("t", bodies(0, 4), routing=RoutingType.MULTICAST)
    taker = Taker(0)
    taker.hold = life.gateway.subscribe(parse_destination("t"), RoutingType.MULTICAST, taker)
    life.send("t", bodies(4, 4), routing=RoutingType.MULTICAST)
    life.sync()
    life.restart()
    life.gateway.administration.create_queue("second", "t", RoutingType.MULTICAST)
    life.sync()
    life.restart()
    assert life.gateway.queues["second"].message_count == 0
    assert life.gateway.queues["first"].message_count == 8


def test_a_dead_letter_is_in_the_batch_of_its_end(tmp_path, monkeypatch):
    """A batch that is full of pages ends before an atomic part; the removal is in that part."""
    monkeypatch.setattr(journal_module, "BATCH_RECORDS_MAX", 1)
    life = node(tmp_path, SettingsEntry(match="#", values={"max_size_messages": 0}))
    route = life.producer("q")
    route.send(Run([stomp(b"x")], flags_of() | EXPIRES, life.now + 5))
    life.sync()
    taker = life.consume("q")
    life.now += 10
    life.send("other", bodies(0, 1))  # the open batch is full of pages now
    batch = life.journal.ticket
    taker.take(1)
    life.turn()
    assert life.gateway.queues["ExpiryQueue"].message_count == 1
    assert life.journal.ticket > batch
    # All of it is lost, or nothing.
    while life.journal.synced < batch:
        life.store.flush()
        assert life.writer.step() or life.writer.answer()
    life.restart()
    held = [
        life.gateway.queues[name].message_count
        for name in ("q", "ExpiryQueue")
        if name in life.gateway.queues
    ]
    assert sum(held) == 1


@pytest.mark.parametrize("roll", [False, True])
def test_a_redelivery_delay_outlives_a_restart(tmp_path, roll):
    settings = {"max_size_messages": 0, "redelivery_delay": 500, "page_size_bytes": 1024}
    life = node(tmp_path, SettingsEntry(match="#", values=settings), segment_bytes=4096)
    life.send("q", bodies(0, 2))
    life.sync()
    taker = life.consume("q", 1)
    taker.release(failed=True, delayed=True)
    due = life.now + 500
    life.sync()
    if roll:
        before = life.journal.segment
        while life.journal.segment < before + 3:
            life.send("filler", bodies(0, 5))
            life.sync()
    life.restart()
    (back,) = [m for m in life.gateway.queues["q"].browse(0, 10) if body_of(m) == bodies(0, 1)[0]]
    assert (back.due, back.delivery_count) == (due, 1)
    taker = life.consume("q", 10)
    assert taker.bodies() == bodies(1, 1)
    life.now = due
    life.gateway.on_time()
    life.turn()
    assert taker.bodies() == [*bodies(1, 1), *bodies(0, 1)]


def test_page_mode_ends_when_others_make_room(tmp_path):
    life = node(tmp_path, limits=Limits(global_max_messages=3))
    life.send("full", bodies(0, 3))
    life.send("q", bodies(3, 1))
    life.sync()
    assert life.drain("q") == bodies(3, 1)
    assert life.gateway.addresses["q"].paging is not None, "the gateway is full still"
    life.drain("full")
    assert life.gateway.addresses["q"].paging is None
    assert life.page_files() == []


def test_a_kill_is_known_where_only_pages_hold_messages(tmp_path):
    """Whoever only delivered wrote nothing; what it delivered is marked all the same."""
    life = node(tmp_path, SettingsEntry(match="#", values={"max_size_messages": 0}))
    life.send("q", bodies(0, 3))
    life.sync()
    # A segment that begins with all definitions, and says nothing more of pages.
    life.restart(clean=True)
    life.gateway.administration.create_queue("other", "other", RoutingType.ANYCAST)
    life.restart(clean=True)
    taker = life.consume("q", 3)
    assert [m.flags & MAYBE_SEEN for m in taker.got] == [0, 0, 0]
    life.restart()
    taker = life.consume("q", 3)
    assert [m.flags & MAYBE_SEEN for m in taker.got] == [MAYBE_SEEN] * 3


def test_a_purge_forgets_what_was_counted_of_what_is_on_pages(tmp_path):
    life = node(tmp_path, SettingsEntry(match="#", values={"max_size_messages": 0}))
    life.send("q", [b"1", b"2"])
    life.sync()
    taker = life.consume("q", 1)
    life.sync()
    taker.release(failed=True)
    life.sync()
    life.restart()
    queue = life.gateway.queues["q"]
    backlog = queue.backlog
    assert backlog.flags
    assert queue.purge() == 2
    assert not backlog.flags
    life.check()
