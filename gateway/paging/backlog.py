"""The messages of one queue that are on pages and not in memory, and the way back from there.

    paged ──read, in order──> the queue's ready messages      paged ──purge──> gone
      ├──a selector wants it──> the same, ahead of others
      └──cannot be read──> gone (killed, counted as lost)

What was read stays on its page until the queue is done with it. Only what is durable is read. What
a selector wants may be far behind what nobody wants: it is looked for on the pages, block by block,
and taken from the middle, so that memory holds nothing that was not asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gateway.model.message import COUNT_SHIFT, PAGED, SHARED, Message
from gateway.model.pages import UnreadablePageError
from gateway.paging.cursor import Cursor
from gateway.paging.limits import Room
from gateway.paging.looking import Looking
from gateway.paging.page import Page, Source
from gateway.paging.part import Part
from gateway.queues.ports import Peeked
from gateway.queues.queue import Queue


class Backlog:
    """See the module text. `Cursor` knows what was not read, `Looking` makes messages of it.

    Attributes:
        count: messages that were not read yet.
        size: bytes of their bodies, about.
        live: messages on pages that the queue is not done with, read or not.
    """

    __slots__ = ("_cursor", "_looking", "_source", "count", "live", "queue", "size")

    def __init__(self, queue: Queue, source: Source) -> None:
        self.queue = queue
        self.count = self.size = self.live = 0
        self._source = source
        self._cursor = Cursor()
        self._looking = Looking(self._cursor, source)

    # ---- what is known

    @property
    def next(self) -> int:
        """Nothing before this seq is left to read."""
        return self._cursor.next

    @property
    def ahead(self) -> set[int]:
        """Seqs behind `next` that were read out of their order; in memory, all of them."""
        return self._cursor.ahead

    @property
    def flags(self) -> dict[int, int]:
        """By seq: the flags of messages whose delivery was counted."""
        return self._looking.flags

    @property
    def dues(self) -> dict[int, int]:
        """By seq: when messages are due again that were given back."""
        return self._looking.dues

    def parts(self) -> Iterator[tuple[Page, Part]]:
        """Go through the pages that the queue has something on."""
        return self._cursor.parts()

    def unread(self, seq: int) -> bool:
        """Whether a message is on its page and not in memory."""
        return self._cursor.is_unread(seq)

    def has(self, seq: int) -> bool:
        """Whether something from that seq on is on disk and was not read."""
        return self._cursor.has(seq)

    def skip(self, offset: int) -> int:
        """Return the seq before which so many were not read; what is there is not looked at."""
        return self._cursor.skip(offset)

    # ---- in

    def grow(self, page: Page, first: int, count: int, size: int, origin: str = "") -> None:
        """Take in a run that was appended to a page; `origin`: where it comes from, if that counts.

        It is of a connection of this life, so that no page has it.
        """
        assert count > 0, "it grows by nothing"
        self._looking.note_origin(first, origin)
        part = page.parts.get(self.queue.queue_id)
        if part is None:
            part = page.parts[self.queue.queue_id] = Part(first)
            self._cursor.add(page, part)
        part.grow(first, count)
        page.live += count
        self.live += count
        self.count += count
        self.size += size

    def forget_page(self, page: Page) -> None:
        """Forget a page that is gone."""
        self._cursor.forget_page(page)

    # ---- out

    def fetch(self, start: int, wake: Callable[[], None] | None = None) -> bool:
        """Whether what is next from seq `start` on can be looked at without the disk.

        If not it is on its way, with what follows it, and `wake` is called when it is there, by
        default the queue is touched.
        """
        wanted = self._cursor.wanted(start)
        return not wanted or self._source.fetch(wake or self._touch, wanted)

    def _touch(self) -> None:
        if self.queue.backlog is self:
            self._source.touch(self.queue)

    def read(self, room: Room) -> int:
        """Read what comes next into the queue; returns how many left the pages.

        Only what the disk has given; the queue is touched when there is more.
        """
        before, cursor = self.count, self._cursor
        while self.count and self.count == before and room.messages and room.size:
            if not self.fetch(cursor.next):
                break
            try:
                messages, following = self._looking.look(cursor.next, room, here=True)
            except UnreadablePageError as error:
                self._lose(error)
                continue
            cursor.go_on(following)
            if not messages:
                break
            self.count -= len(messages)
            assert self.count >= 0, "read more than there was"
            size = sum([len(m.body) for m in messages])
            self.size = max(0, self.size - size) if self.count else 0
            self.queue.restore(messages)
            self.queue.counts.took_back(len(messages))
            self.queue.drop_superseded()
        return before - self.count

    def take(self, messages: list[Message]) -> None:
        """Read messages that were looked at, wherever they lie, into the queue."""
        self._cursor.read_ahead([m.seq for m in messages])
        self.count -= len(messages)
        assert self.count >= 0, "read more than there was"
        size = sum([len(m.body) for m in messages])
        self.size = max(0, self.size - size) if self.count else 0
        self.queue.restore(messages)
        self.queue.counts.took_back(len(messages))

    def give_back(self, messages: list[Message]) -> None:
        """Forget that these were read ahead: they wait on their pages again, behind older ones."""
        for message in messages:
            self._cursor.ahead.discard(message.seq)
            if message.flags >> COUNT_SHIFT:
                self._looking.flags[message.seq] = message.flags & ~(SHARED | PAGED)
        self.count += len(messages)
        assert self.count <= self.live, "more to read than there is"
        self.size += sum([len(m.body) for m in messages])

    def _lose(self, error: UnreadablePageError) -> None:
        """Give up the rest of a block that cannot be read."""
        found = self._cursor.rest_of_block()
        if found is None:
            return
        page, part, first, last = found
        lost = last + 1 - first
        assert 0 < lost <= self.count, "more is lost than was to read"
        self._cursor.go_on(last + 1)
        self.size -= self.size * lost // self.count
        self.count -= lost
        self.queue.counts.took_back(0, lost)
        self._source.lost(self.queue, lost, error)
        self._finish_part(page, part, first, last)

    # ---- looked at

    def search(
        self, start: int, matches: Callable[[Message], bool], room: Room, count: int
    ) -> tuple[list[Message], int]:
        """See Looking."""
        return self._looking.search(start, matches, room, count)

    def browse(self, offset: int, limit: int) -> list[Message]:
        """See Looking."""
        return self._looking.browse(offset, limit)

    def peek(self, start: int, count: int, wake: Callable[[], None] | None = None) -> Peeked:
        """See queues.Backlog."""
        return self._looking.peek(start, count, wake or self._touch)

    # ---- done

    def finish(self, first: int, last: int) -> int:
        """The queue is done with what it had read between two seqs; returns the ticket."""
        assert first <= last, "done with nothing"
        ticket = 0
        self._cursor.done(first, last)
        for page, part in list(self._cursor.parts_from(first)):
            if part.first > last:
                break
            one = self._finish_part(page, part, max(first, part.first), min(last, part.last))
            ticket = max(ticket, one)
        return ticket

    def _finish_part(self, page: Page, part: Part, first: int, last: int) -> int:
        self._looking.forget(first, last)
        count = part.finish(first, last)
        if not count:
            return 0
        page.live -= count
        self.live -= count
        assert page.live >= 0, "a page has less than nothing"
        assert self.count <= self.live, "more to read than there is"
        ticket = self._source.remove(self.queue, first, last)
        self._source.finished(page, count)
        return ticket

    def purge(self) -> int:
        """Be done with all that was not read; returns how many that were."""
        count, self.count, self.size = self.count, 0, 0
        cursor = self._cursor
        start = cursor.next
        for page, part in list(cursor.parts_from(start)):
            at = max(start, part.first)
            # What is done already between two seqs is done once more: one record, not thousands.
            for seq in sorted([seq for seq in cursor.ahead if at <= seq <= part.last]):
                self._finish_part(page, part, at, seq - 1)
                at = seq + 1
            self._finish_part(page, part, at, part.last)
            start = max(start, part.last + 1)
        if not cursor.ahead:
            cursor.next = start
        return count

    def check_invariants(self) -> None:
        """Assert that figures are those of its pages, and that nothing is also in memory."""
        queue, cursor = self.queue, self._cursor
        assert queue.backlog is self, "the backlog of a queue that has another"
        cursor.check_invariants()
        self._looking.check_invariants()
        live = unread = 0
        for page, part in cursor.parts():
            assert page.parts.get(queue.queue_id) is part, "a part that its page does not know"
            live += part.live
            unread += sum(high - low + 1 for low, high in cursor.unread(part, cursor.next))
        assert self.live == live, f"{self.live} on pages are counted, and {live} are not done"
        assert self.count == unread, f"{self.count} to read are counted, and {unread} are there"
        assert self.size >= 0, "size went below zero"
        assert self.count or not self.size, f"{self.size} bytes of nothing are to be read"
        assert len(cursor.ahead) <= len(queue.line) + queue.delivering, "read ahead, and not there"
        for message in queue.holdings():
            assert not cursor.is_unread(message.seq), "to be read, and in memory"
