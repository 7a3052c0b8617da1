"""Where a queue has come to on its pages, against a list of seqs: what is unread, and where."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.paging.cursor import Cursor
from gateway.paging.page import Page
from gateway.paging.part import Part
from tests.lanes import examples

QUEUE = 1
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("page"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("block"), st.integers(1, 4), st.integers(0, 1)),
        st.tuples(st.just("sync"), st.just(0), st.just(0)),
        st.tuples(st.just("go on"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("ahead"), st.integers(0, 20), st.integers(1, 3)),
        st.tuples(st.just("finish"), st.integers(0, 20), st.integers(1, 5)),
    ),
    max_size=30,
)


@dataclass
class Naive:
    """Each message on its own: page and block of it, and what it is."""

    next: int = 0
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    synced: set[int] = field(default_factory=set)
    ahead: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)

    def unread(self) -> list[int]:
        gone = self.ahead | self.done
        return [seq for seq in sorted(self.places) if seq >= self.next and seq not in gone]

    def wanted(self, start: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for seq in self.unread():
            if seq not in self.synced:
                break
            if seq >= start and self.places[seq] not in found:
                found.append(self.places[seq])
        return found[:4]


class Both:
    """The cursor and the naive list, which take the same steps."""

    def __init__(self) -> None:
        self.cursor = Cursor()
        self.naive = Naive()
        self.pages: list[Page] = []
        self.later: list[tuple[Part, int, int, int]] = []
        self.end = 0

    def page(self, left_out: int, count: int) -> None:
        page = Page(len(self.pages))
        self.pages.append(page)
        self.end += left_out
        part = page.parts[QUEUE] = Part(self.end)
        self.cursor.add(page, part)
        self.block(count, 0)

    def block(self, count: int, _: int) -> None:
        if not self.pages:
            return
        page = self.pages[-1]
        part = page.parts[QUEUE]
        part.grow(self.end, count)
        self.later.append((part, page.blocks, self.end, count))
        for seq in range(self.end, self.end + count):
            self.naive.places[seq] = page.number, page.blocks
        page.blocks += 1
        self.end += count

    def sync(self, *_: int) -> None:
        if self.later:
            part, block, first, count = self.later.pop(0)
            part.index(block, first, count)
            self.naive.synced.update(range(first, first + count))

    def go_on(self, count: int, _: int) -> None:
        """What is read in order is on disk."""
        for seq in self.naive.unread()[:count]:
            if seq not in self.naive.synced:
                return
            self.cursor.go_on(seq + 1)
            self.naive.next = seq + 1
            self.naive.ahead = {other for other in self.naive.ahead if other > seq}

    def read_ahead(self, at: int, count: int) -> None:
        found = [seq for seq in self.naive.unread() if seq in self.naive.synced][at : at + count]
        self.cursor.read_ahead(found)
        self.naive.ahead.update(found)

    def finish(self, at: int, count: int) -> None:
        """What was read is finished, in any order."""
        unread = set(self.naive.unread())
        read = [s for s in self.naive.places if s not in unread and s not in self.naive.done]
        for seq in read[at : at + count]:
            for page, part in list(self.cursor.parts_from(seq)):
                if part.first <= seq <= part.last:
                    part.finish(seq, seq)
                    if not part.live and page is not self.pages[-1]:
                        self.cursor.forget_page(page)
            self.cursor.done(seq, seq)
            self.naive.done.add(seq)
            self.naive.ahead.discard(seq)

    def check(self) -> None:
        cursor, naive = self.cursor, self.naive
        unread = naive.unread()
        assert cursor.ahead == naive.ahead
        found = [
            seq
            for _, part in cursor.parts_from(cursor.next)
            for low, high in cursor.unread(part, cursor.next)
            for seq in range(low, high + 1)
        ]
        assert found == unread
        for seq in range(self.end + 2):
            assert cursor.is_unread(seq) is (seq in unread)
            assert [(p.number, b) for p, b in cursor.wanted(seq)] == naive.wanted(seq)
            following = next((other for other in unread if other >= seq), None)
            assert cursor.has(seq) is (following is not None and following in naive.synced)
        for offset, seq in enumerate(unread):
            assert cursor.skip(offset) == seq
        assert cursor.unsynced is bool(self.later)


@settings(max_examples=examples(200), deadline=None)
@given(STEPS)
def test_a_cursor_is_a_list_of_seqs(steps: list[tuple[str, int, int]]) -> None:
    both = Both()
    ways = {"go on": both.go_on, "ahead": both.read_ahead}
    for name, at, count in steps:
        ways.get(name, getattr(both, name, both.check))(at, count)
        both.check()


def two_blocks() -> Both:
    """Return three messages in a first block and two in a second one, both on disk."""
    both = Both()
    both.page(0, 3)
    both.block(2, 0)
    both.sync()
    both.sync()
    return both


def test_the_rest_of_a_block_ends_with_it_and_at_what_was_read_ahead() -> None:
    cursor = two_blocks().cursor
    found = cursor.rest_of_block()
    assert found is not None
    assert found[2:] == (0, 2)
    cursor.read_ahead([1])
    found = cursor.rest_of_block()
    assert found is not None
    assert found[2:] == (0, 0)
    cursor.go_on(3)
    found = cursor.rest_of_block()
    assert found is not None
    assert found[2:] == (3, 4)
    cursor.go_on(5)
    assert cursor.rest_of_block() is None


def test_behind_a_block_is_where_the_next_one_begins() -> None:
    cursor = two_blocks().cursor
    assert [cursor.behind_block(seq) for seq in range(6)] == [3, 3, 3, 5, 5, 5]
