"""The place of a queue on its pages: which of their messages it has not read yet. Pure.

    |-- read or done --|next|-- not read, but for what was read ahead --|readable|-- not on disk --|

A queue reads its pages in order, and `next` goes on with it. What a selector wants may be taken
from behind `next`; until `next` has passed it, it is in `ahead`. All of it is seqs and blocks: no
message is looked at here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from gateway.paging.page import Page
from gateway.paging.part import Part
from gateway.queues.ordered import ascends

#: Blocks that are fetched together: the disk works while those before are handed out.
_FETCHED: Final = 4


class Cursor:
    """See the module text.

    Attributes:
        next: nothing before this seq is left to read.
        ahead: seqs behind `next` that were read out of their order; in memory, all of them.
    """

    __slots__ = ("_entries", "_firsts", "ahead", "next")

    def __init__(self) -> None:
        self.next = 0
        self.ahead: set[int] = set()
        self._entries: list[tuple[Page, Part]] = []
        self._firsts: list[int] = []

    # ---- the pages

    def add(self, page: Page, part: Part) -> None:
        """Know one more page, which is the last one."""
        assert not self._firsts or self._firsts[-1] < part.first, "a page behind later ones"
        self._entries.append((page, part))
        self._firsts.append(part.first)

    def forget_page(self, page: Page) -> None:
        """Forget a page that is gone."""
        for at, (known, _) in enumerate(self._entries):
            if known is page:
                del self._entries[at], self._firsts[at]
                return

    def parts(self) -> Iterator[tuple[Page, Part]]:
        """Go through all pages that the queue has something on."""
        return iter(self._entries)

    def parts_from(self, seq: int) -> Iterator[tuple[Page, Part]]:
        """Go through the pages from the one on that may have `seq`."""
        at = max(0, bisect_right(self._firsts, seq) - 1)
        while at < len(self._entries):
            yield self._entries[at]
            at += 1

    @property
    def unsynced(self) -> bool:
        """Whether some of it is not on disk yet; what is comes before it."""
        return bool(self._entries) and self._entries[-1][1].readable < self._entries[-1][1].last

    # ---- what was not read

    def unread(self, part: Part, start: int) -> Iterator[tuple[int, int]]:
        """Yield (first, last) of what is neither done nor read ahead, from `start` on."""
        if not self.ahead:
            yield from part.waiting(start)
            return
        ahead = sorted(self.ahead)
        for low, high in part.waiting(start):
            at = low
            for seq in ahead[bisect_left(ahead, low) : bisect_right(ahead, high)]:
                if seq > at:
                    yield at, seq - 1
                at = seq + 1
            if at <= high:
                yield at, high

    def _next_in(self, part: Part, start: int) -> int:
        """Return the first seq from `start` on that is neither done nor read ahead."""
        at = part.next_waiting(start)
        while at in self.ahead:
            at = part.next_waiting(at + 1)
        return at

    def is_unread(self, seq: int) -> bool:
        """Whether a message is on its page and not in memory."""
        if seq < self.next or seq in self.ahead:
            return False
        for _, part in self.parts_from(seq):
            return any(low == seq for low, _ in part.waiting(seq))
        return False

    def has(self, seq: int) -> bool:
        """Whether something from that seq on is on disk and was not read."""
        for _, part in self.parts_from(max(seq, self.next)):
            for low, _ in self.unread(part, max(seq, self.next)):
                return low <= part.readable
        return False

    def wanted(self, start: int) -> list[tuple[Page, int]]:
        """Return the blocks, as many as are fetched together, of what is next from `start` on."""
        wanted: list[tuple[Page, int]] = []
        at = max(start, self.next)
        for page, part in self.parts_from(at):
            at = self._next_in(part, at)
            while at <= part.readable:
                block, last = part.block_with(at)
                wanted.append((page, block))
                if len(wanted) >= _FETCHED:
                    return wanted
                at = self._next_in(part, last + 1)
            if part.readable < part.last:
                break
        return wanted

    def behind_block(self, start: int) -> int:
        """Return the seq behind the block that has what is next from `start` on."""
        for _, part in self.parts_from(start):
            at = self._next_in(part, start)
            if at <= part.readable:
                return part.block_with(at)[1] + 1
        return start

    def rest_of_block(self) -> tuple[Page, Part, int, int] | None:
        """Return what is next, up to the end of its block: page, part, first and last seq."""
        for page, part in self.parts_from(self.next):
            for low, high in self.unread(part, self.next):
                block, _ = part.block_of(low)
                last = low
                while last < min(high, part.readable) and part.block_of(last + 1)[0] == block:
                    last += 1
                return page, part, low, last
        return None

    def skip(self, offset: int) -> int:
        """Return the seq before which so many were not read; what is there is not looked at."""
        at = self.next
        for _, part in self.parts_from(at):
            unread = self._count_unread(part)
            if offset < unread:
                for low, high in self.unread(part, at):
                    if offset <= high - low:
                        return low + offset
                    offset -= high - low + 1
            offset -= unread
            at = max(at, part.last + 1)
        return at

    def _count_unread(self, part: Part) -> int:
        if part.first < self.next:
            return sum([high - low + 1 for low, high in self.unread(part, self.next)])
        return part.live - sum([part.first <= seq <= part.last for seq in self.ahead])

    # ---- on and back

    def go_on(self, following: int) -> None:
        """Go on from there: what was read ahead of it is where it belongs now."""
        assert following >= self.next, "it goes on backwards"
        self.next = following
        if self.ahead:
            self.ahead = {seq for seq in self.ahead if seq >= following}

    def read_ahead(self, seqs: Iterable[int]) -> None:
        """Note what was read although something before it was not."""
        self.ahead.update(seqs)
        assert not self.ahead or self.next <= min(self.ahead), "read ahead, and before what is next"

    def done(self, first: int, last: int) -> None:
        """Forget that anything between two seqs was read ahead: the queue is done with it."""
        if self.ahead:
            self.ahead.difference_update(range(first, last + 1))

    def check_invariants(self) -> None:
        """Assert that parts are in order, and that what was read ahead is of them."""
        assert self._firsts == [part.first for _, part in self._entries], "a part begins elsewhere"
        lasts = [part.last for _, part in self._entries]
        assert ascends(page.number for page, _ in self._entries), "pages in no order"
        assert ascends(self._firsts), "parts in no order"
        assert all(a < b for a, b in zip(lasts, self._firsts[1:], strict=False)), "parts overlap"
        for page, part in self._entries:
            part.check_invariants()
            assert part in page.parts.values(), "a part that its page does not know"
        assert all(seq >= self.next for seq in self.ahead), "read ahead, and passed"
        for seq in self.ahead:
            _, part = next(self.parts_from(seq))
            assert part.next_waiting(seq) == seq <= part.readable, (
                "read ahead, and done or not there"
            )
