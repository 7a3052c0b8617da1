"""Looking at the messages on pages: what they are, how much is looked at, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from gateway.model.message import (
    COUNT_SHIFT,
    DURABLE,
    EXPIRES,
    MAYBE_SEEN,
    ONE_DELIVERY,
    PAGED,
    SCHEDULED,
)
from gateway.model.pages import UnreadablePageError
from gateway.model.run import Run
from gateway.paging.cursor import Cursor
from gateway.paging.limits import Room
from gateway.paging.looking import Looking
from gateway.paging.page import Page
from gateway.paging.part import Part
from gateway.queues.queue import Queue

BODIES = 4
ALL = Room(100, 1 << 20)


class Pages:
    """Three blocks of four messages of ten bytes, on one page; seqs 0 to 11."""

    def __init__(self, **run: int) -> None:
        self.page = Page(1)
        part = self.page.parts[1] = Part(0)
        self.cursor = Cursor()
        self.cursor.add(self.page, part)
        self.looking = Looking(self.cursor, self)
        self.runs: dict[int, Run] = {}
        self.gone: set[int] = set()
        self.away: set[int] = set()
        self.woken: list[Callable[[], None]] = []
        for block in range(3):
            first = block * BODIES
            part.grow(first, BODIES)
            part.index(block, first, BODIES)
            bodies = [b"%010d" % seq for seq in range(first, first + BODIES)]
            self.runs[block] = Run(bodies, **{"flags": DURABLE, "expires": 0, "due": 0, **run})

    # what a `Source` does
    def read(self, page: Page, block: int) -> Run:
        assert page is self.page
        if block in self.gone:
            raise UnreadablePageError("it has rotted")
        return self.runs[block]

    def here(self, page: Page, block: int) -> bool:
        return block not in self.away

    def fetch(self, wake: Callable[[], None], wanted: Sequence[tuple[Page, int]]) -> bool:
        if wanted[0][1] not in self.away:
            return True
        self.woken.append(wake)
        return False

    def touch(self, queue: Queue) -> None:
        raise AssertionError("nothing is touched by looking")

    def lost(self, queue: Queue, count: int, error: UnreadablePageError) -> None:
        raise AssertionError("nothing is lost by looking")

    def remove(self, queue: Queue, first: int, last: int) -> int:
        raise AssertionError("nothing is removed by looking")

    def finished(self, page: Page, count: int) -> None:
        raise AssertionError("nothing is finished by looking")

    def seqs(self, start: int, room: Room, *, here: bool = False) -> tuple[list[int], int]:
        found, at = self.looking.look(start, room, here=here)
        return [message.seq for message in found], at


def test_messages_are_what_their_page_says() -> None:
    pages = Pages()
    pages.page.suspect = 1
    found, at = pages.looking.look(2, ALL)
    assert [(m.seq, m.body) for m in found] == [(seq, b"%010d" % seq) for seq in range(2, 12)]
    assert [m.flags for m in found[:3]] == [
        DURABLE | PAGED | MAYBE_SEEN,
        DURABLE | PAGED | MAYBE_SEEN,
        DURABLE | PAGED,
    ]
    assert at == 12


def test_what_happened_since_is_said_of_its_message_alone() -> None:
    pages = Pages(flags=DURABLE | SCHEDULED | EXPIRES, due=50, expires=90)
    pages.looking.flags[1] = DURABLE | SCHEDULED | EXPIRES | ONE_DELIVERY
    pages.looking.dues[1] = 70
    pages.looking.note_origin(0, "a")
    pages.looking.note_origin(2, "")
    found, _ = pages.looking.look(0, Room(3, 1 << 20))
    assert [m.flags >> COUNT_SHIFT for m in found] == [0, 1, 0]
    assert [m.due for m in found] == [50, 70, 50]
    assert [m.expires for m in found] == [90, 90, 90]
    assert [getattr(m, "origin", "") for m in found] == ["a", "a", ""]
    pages.looking.forget(0, 3)
    assert (pages.looking.flags, pages.looking.dues) == ({}, {})


@pytest.mark.parametrize(
    ("room", "seqs"),
    [
        (Room(0, 1000), []),
        (Room(6, 1000), [0, 1, 2, 3, 4, 5]),
        (Room(100, 0), []),
        (Room(100, 25), [0, 1, 2]),  # the one that crosses the limit is among them
        (Room(100, 40), [0, 1, 2, 3]),
        (Room(100, 41), [0, 1, 2, 3, 4]),
    ],
)
def test_no_more_is_looked_at_than_there_is_room_for(room: Room, seqs: list[int]) -> None:
    assert Pages().seqs(0, room) == (seqs, len(seqs))


def test_what_was_read_ahead_is_left_out() -> None:
    pages = Pages()
    pages.cursor.read_ahead([1, 2, 6])
    assert pages.seqs(0, ALL)[0] == [0, 3, 4, 5, 7, 8, 9, 10, 11]


def test_with_here_it_ends_where_the_disk_would_be_needed() -> None:
    pages = Pages()
    pages.away = {1}
    assert pages.seqs(0, ALL, here=True) == ([0, 1, 2, 3], 4)
    assert pages.seqs(4, ALL, here=True) == ([], 4)


def test_a_block_that_cannot_be_read_ends_the_list_or_is_raised_or_passed_over() -> None:
    pages = Pages()
    pages.gone = {1}
    assert pages.seqs(0, ALL) == ([0, 1, 2, 3], 4)
    with pytest.raises(UnreadablePageError):
        pages.looking.look(4, ALL)
    found, at = pages.looking.look_past(4, ALL)
    assert ([m.seq for m in found], at) == ([8, 9, 10, 11], 12)
    assert [m.seq for m in pages.looking.browse(2, 4)] == [2, 3, 8, 9]


def test_a_search_returns_what_matches_and_where_to_go_on() -> None:
    pages = Pages()
    found, at = pages.looking.search(0, lambda m: m.seq % 3 == 0, Room(2, 1000), 100)
    assert ([m.seq for m in found], at) == ([0, 3], 4)
    found, at = pages.looking.search(at, lambda m: m.seq % 3 == 0, Room(2, 1000), 4)
    assert ([m.seq for m in found], at) == ([6], 8)
    pages.away = {2}
    assert pages.looking.search(8, lambda _: True, ALL, 100) == ([], 8)


def test_a_peek_waits_for_the_block_that_comes_next() -> None:
    pages = Pages()
    pages.away = {0}

    def wake() -> None:
        """Be told that the block is there."""

    peeked = pages.looking.peek(0, 2, wake)
    assert (peeked.messages, peeked.coming) == ([], True)
    assert pages.woken == [wake]
    pages.away = set()
    peeked = pages.looking.peek(0, 2, wake)
    assert [m.seq for m in peeked.messages] == [0, 1]
    assert not peeked.coming
    assert not peeked.unsynced
