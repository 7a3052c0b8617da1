"""The messages of one queue that are on pages and not in memory, and the way back from there.

    paged ──read, in order──> the queue's ready messages      paged ──purge──> gone
      ├──a selector wants it──> the same, ahead of others
      └──cannot be read──> gone (killed, counted as lost)

What was read stays on its page until the queue is done with it. Only what is durable is read. What
a selector wants may be far behind what nobody wants: it is looked for on the pages, block by block,
and taken from the middle, so that memory holds nothing that was not asked for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Final, Protocol, cast

from gateway.model.message import (
    COUNT_SHIFT,
    EXPIRES,
    MAYBE_SEEN,
    PAGED,
    SCHEDULED,
    SHARED,
    Message,
)
from gateway.model.pages import UnreadablePageError
from gateway.model.run import StoredRun
from gateway.paging.limits import Room
from gateway.paging.part import Part
from gateway.queues.ports import Peeked
from gateway.queues.queue import Queue

#: What a search looks at before it asks whether it has enough: about a block.
_LOOK: Final = 256
#: And bytes of it: what one who looks through holds at a time.
_LOOK_BYTES: Final = 1 << 20
#: Blocks that are fetched together: the disk works while those before are handed out.
_FETCHED: Final = 4


class Page:
    """One page file as the address knows it.

    Attributes:
        blocks: how many there are, durable or not.
        charge: what it counts against page-size-bytes.
        size: bytes in the file.
        live: messages on it that some queue is not done with, once for each queue.
        suspect: how many of its first blocks may have been seen before.
    """

    __slots__ = (
        "blocks",
        "charge",
        "lengths",
        "live",
        "number",
        "offsets",
        "parts",
        "size",
        "suspect",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.blocks = self.charge = self.size = self.live = self.suspect = 0
        self.offsets = array("Q")
        self.lengths = array("I")
        self.parts: dict[int, Part] = {}


class Source(Protocol):
    """Who reads blocks and knows when a page is not needed any more."""

    def read(self, page: Page, block: int) -> StoredRun:
        """Return a durable block, from the disk if need be. Raises UnreadablePageError."""

    def here(self, page: Page, block: int) -> bool:
        """Whether a block is in memory."""

    def fetch(self, wake: Callable[[], None], wanted: Sequence[tuple[Page, int]]) -> bool:
        """Whether the first of these blocks is in memory; the others are fetched if they are not.

        If not it is fetched, and `wake` is called when it, or another one, is there: ask again.
        """

    def touch(self, queue: Queue) -> None:
        """The queue waited for a block, and may go on."""

    def lost(self, queue: Queue, count: int, error: UnreadablePageError) -> None:
        """So many messages of the queue cannot be read."""

    def remove(self, queue: Queue, first: int, last: int) -> int:
        """Record that the queue is done with what lies between two seqs; returns the ticket."""

    def finished(self, page: Page, count: int) -> None:
        """Some queue is done with so many messages on that page."""


class Backlog:
    """See the module text.

    Attributes:
        count: messages that were not read yet.
        size: bytes of their bodies, about.
        live: messages on pages that the queue is not done with, read or not.
        next: nothing before this seq is left to read.
        ahead: seqs behind `next` that were read out of their order; in memory, all of them.
        flags: seq -> flags of messages whose delivery was counted.
        dues: seq -> when messages are due again that were given back.
    """

    __slots__ = (
        "_entries",
        "_firsts",
        "_origin_firsts",
        "_origins",
        "_source",
        "ahead",
        "count",
        "dues",
        "flags",
        "live",
        "next",
        "queue",
        "size",
    )

    def __init__(self, queue: Queue, source: Source) -> None:
        self.queue = queue
        self.count = self.size = self.live = 0
        self.next = 0
        self.ahead: set[int] = set()
        self.flags: dict[int, int] = {}
        self.dues: dict[int, int] = {}
        self._origin_firsts = array("Q")
        self._origins: list[str] = []
        self._source = source
        self._entries: list[tuple[Page, Part]] = []
        self._firsts: list[int] = []

    # ---- in

    def grow(self, page: Page, first: int, count: int, size: int, origin: str = "") -> None:
        """Take in a run that was appended to a page; `origin`: where it comes from, if that counts.

        It is of a connection of this life, so that no page has it.
        """
        if origin != (self._origins[-1] if self._origins else ""):
            self._origin_firsts.append(first)
            self._origins.append(origin)
        part = page.parts.get(self.queue.queue_id)
        if part is None:
            part = page.parts[self.queue.queue_id] = Part(first)
            self._entries.append((page, part))
            self._firsts.append(first)
        part.grow(first, count)
        page.live += count
        self.live += count
        self.count += count
        self.size += size

    def forget_page(self, page: Page) -> None:
        """Forget a page that is gone."""
        for at, (known, _) in enumerate(self._entries):
            if known is page:
                del self._entries[at], self._firsts[at]
                return

    def _from(self, seq: int) -> Iterator[tuple[Page, Part]]:
        at = max(0, bisect_right(self._firsts, seq) - 1)
        while at < len(self._entries):
            yield self._entries[at]
            at += 1

    # ---- out

    def _unread(self, part: Part, start: int) -> Iterator[tuple[int, int]]:
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

    def fetch(self, start: int, wake: Callable[[], None] | None = None) -> bool:
        """Whether what is next from seq `start` on can be looked at without the disk.

        If not it is on its way, with what follows it, and `wake` is called when it is there, by
        default the queue is touched.
        """
        wanted = self._wanted(start)
        return not wanted or self._source.fetch(wake or self._touch, wanted)

    def _touch(self) -> None:
        if self.queue.backlog is self:
            self._source.touch(self.queue)

    def _wanted(self, start: int) -> list[tuple[Page, int]]:
        """Return the blocks, as many as are fetched together, of what is next from `start` on."""
        wanted: list[tuple[Page, int]] = []
        at = max(start, self.next)
        for page, part in self._from(at):
            at = self._next_in(part, at)
            while at <= part.readable:
                wanted.append((page, part.block_of(at)[0]))
                if len(wanted) >= _FETCHED:
                    return wanted
                at = self._next_in(part, part.block_end(at) + 1)
            if part.readable < part.last:
                break
        return wanted

    def _next_in(self, part: Part, start: int) -> int:
        """Return the first seq from `start` on that is neither done nor read ahead."""
        at = part.next_waiting(start)
        while at in self.ahead:
            at = part.next_waiting(at + 1)
        return at

    def look(self, start: int, room: Room, *, here: bool = False) -> tuple[list[Message], int]:
        """Return messages from seq `start` on, within `room`, and where to go on.

        With `here` it ends where the disk would be needed.
        The one that crosses the limit of bytes is among them. Raises UnreadablePageError when the
        very first one cannot be read; behind others it ends the list.
        """
        found: list[Message] = []
        size = 0
        for page, part in self._from(start):
            for low, high in self._unread(part, start):
                at = low
                while at <= min(high, part.readable):
                    left = room.messages - len(found)
                    if left <= 0 or size >= room.size:
                        return found, at
                    if here and not self._source.here(page, part.block_of(at)[0]):
                        return found, at
                    try:
                        messages, last = self._of_block(page, part, at, min(high, at + left - 1))
                    except UnreadablePageError:
                        if not found:
                            raise
                        return found, at
                    more = sum([len(m.body) for m in messages])
                    if size + more <= room.size:
                        found += messages
                        size += more
                        at = last + 1
                        continue
                    for message in messages:
                        if size >= room.size:
                            return found, message.seq
                        found.append(message)
                        size += len(message.body)
                    at = last + 1
            start = max(start, part.readable + 1)
            if part.readable < part.last:
                break
        return found, start

    def _of_block(self, page: Page, part: Part, at: int, high: int) -> tuple[list[Message], int]:
        """Return what a block has from `at` on, up to `high`, and the seq that it ends with."""
        block, first = part.block_of(at)
        run = self._source.read(page, block)
        last = min(high, first + len(run.bodies) - 1)
        seen = PAGED | (MAYBE_SEEN if block < page.suspect else 0)
        if isinstance(run.flags, int) and not (
            run.flags & (EXPIRES | SCHEDULED) or self.flags or self._origins
        ):
            # What nearly all blocks are: nothing tells one message of it from the other.
            bodies = cast("Sequence[bytes]", run.bodies[at - first : last + 1 - first])
            assert None not in bodies, "a page without the body"
            alike = repeat(run.flags | seen)
            return list(map(Message, bodies, range(at, last + 1), alike)), last
        messages: list[Message] = []
        for seq in range(at, last + 1):
            place = seq - first
            body = run.bodies[place]
            assert body is not None, "a page without the body"
            flags = run.flags if isinstance(run.flags, int) else run.flags[place]
            message = Message(body, seq, self.flags.get(seq, flags) | seen)
            if message.flags & EXPIRES:
                message.expires = (
                    run.expires if isinstance(run.expires, int) else run.expires[place]
                )
            if message.flags & SCHEDULED:
                message.due = self.dues.get(seq, run.due)
            if self._origins:
                place = bisect_right(self._origin_firsts, seq) - 1
                if place >= 0 and self._origins[place]:
                    message.origin = self._origins[place]
            messages.append(message)
        return messages, last

    def read(self, room: Room) -> int:
        """Read what comes next into the queue; returns how many left the pages.

        Only what the disk has given; the queue is touched when there is more.
        """
        before = self.count
        while self.count and self.count == before and room.messages and room.size:
            if not self.fetch(self.next):
                break
            try:
                messages, following = self.look(self.next, room, here=True)
            except UnreadablePageError as error:
                self._lose(error)
                continue
            self._pass(following)
            if not messages:
                break
            self.count -= len(messages)
            size = sum([len(m.body) for m in messages])
            self.size = max(0, self.size - size) if self.count else 0
            self.queue.restore(messages)
            self.queue.counts.took_back(len(messages))
            self.queue.drop_superseded()
        return before - self.count

    def _pass(self, following: int) -> None:
        """Go on from there: what was read ahead of it is where it belongs now."""
        self.next = following
        if self.ahead:
            self.ahead = {seq for seq in self.ahead if seq >= following}

    def take(self, messages: list[Message]) -> None:
        """Read messages that were looked at, wherever they lie, into the queue."""
        self.ahead.update([m.seq for m in messages])
        self.count -= len(messages)
        size = sum([len(m.body) for m in messages])
        self.size = max(0, self.size - size) if self.count else 0
        self.queue.restore(messages)
        self.queue.counts.took_back(len(messages))

    def give_back(self, messages: list[Message]) -> None:
        """Forget that these were read ahead: they wait on their pages again, behind older ones."""
        for message in messages:
            self.ahead.discard(message.seq)
            if message.flags >> COUNT_SHIFT:
                self.flags[message.seq] = message.flags & ~(SHARED | PAGED)
        self.count += len(messages)
        self.size += sum([len(m.body) for m in messages])

    def unread(self, seq: int) -> bool:
        """Whether a message is on its page and not in memory."""
        if seq < self.next or seq in self.ahead:
            return False
        for _, part in self._from(seq):
            return any(low == seq for low, _ in part.waiting(seq))
        return False

    def has(self, seq: int) -> bool:
        """Whether something from that seq on is on disk and was not read."""
        for _, part in self._from(max(seq, self.next)):
            for low, _ in self._unread(part, max(seq, self.next)):
                return low <= part.readable
        return False

    def search(
        self, start: int, matches: Callable[[Message], bool], room: Room, count: int
    ) -> tuple[list[Message], int]:
        """Look at up to `count` messages from seq `start` on; returns those that match.

        And where to go on: no further than what is in memory. Blocks that cannot be read are passed
        over.
        """
        found: list[Message] = []
        size = 0
        start = max(start, self.next)
        while count > 0 and len(found) < room.messages and size < room.size:
            looked, following = self._look_past(start, Room(min(count, _LOOK), _LOOK_BYTES))
            if not looked:
                return found, following
            count -= len(looked)
            for message in looked:
                start = message.seq + 1
                if matches(message):
                    found.append(message)
                    size += len(message.body)
                    if len(found) >= room.messages or size >= room.size:
                        return found, start
            start = following
        return found, start

    def _behind_block(self, start: int) -> int:
        """Return the seq behind the block that has what is next from `start` on."""
        for _, part in self._from(start):
            at = self._next_in(part, start)
            if at <= part.readable:
                return part.block_end(at) + 1
        return start

    def _lose(self, error: UnreadablePageError) -> None:
        """Give up the rest of a block that cannot be read."""
        for page, part in self._from(self.next):
            for low, high in self._unread(part, self.next):
                block, _ = part.block_of(low)
                last = low
                while last < min(high, part.readable) and part.block_of(last + 1)[0] == block:
                    last += 1
                self._pass(last + 1)
                self.count -= last + 1 - low
                self.queue.counts.took_back(0, last + 1 - low)
                self._source.lost(self.queue, last + 1 - low, error)
                self._finish_part(page, part, low, last)
                return

    def skip(self, offset: int) -> int:
        """Return the seq before which so many were not read; what is there is not looked at."""
        at = self.next
        for _, part in self._from(at):
            unread = self._count_unread(part)
            if offset < unread:
                for low, high in self._unread(part, at):
                    if offset <= high - low:
                        return low + offset
                    offset -= high - low + 1
            offset -= unread
            at = max(at, part.last + 1)
        return at

    def _count_unread(self, part: Part) -> int:
        if part.first < self.next:
            return sum([high - low + 1 for low, high in self._unread(part, self.next)])
        return part.live - sum([part.first <= seq <= part.last for seq in self.ahead])

    def browse(self, offset: int, limit: int) -> list[Message]:
        """Return messages that were not read yet, without touching them; waits for the disk."""
        found: list[Message] = []
        at = self.skip(offset)
        while len(found) < limit:
            try:
                messages, at = self.look(at, Room(limit - len(found), 1 << 60))
            except UnreadablePageError:
                at = self._behind_block(at)
                continue
            if not messages:
                break
            found += messages
        return found

    def peek(self, start: int, count: int, wake: Callable[[], None] | None = None) -> Peeked:
        """See queues.Backlog."""
        at = max(start, self.next)
        while wanted := self._wanted(at):
            if not self._source.fetch(wake or self._touch, wanted):
                return Peeked([], at, unsynced=False, coming=True)
            messages, at = self._look_past(at, Room(count, _LOOK_BYTES))
            if messages:
                return Peeked(messages, at, unsynced=self._unsynced, coming=False)
        return Peeked([], at, unsynced=self._unsynced, coming=False)

    @property
    def _unsynced(self) -> bool:
        """Whether some of it is not on disk yet; what is comes before it."""
        return bool(self._entries) and self._entries[-1][1].readable < self._entries[-1][1].last

    def _look_past(self, start: int, room: Room) -> tuple[list[Message], int]:
        """As `look`, past what cannot be read, which is given up when it is read back."""
        start = max(start, self.next)
        while True:
            try:
                return self.look(start, room, here=True)
            except UnreadablePageError:
                start = self._behind_block(start)

    # ---- done

    def finish(self, first: int, last: int) -> int:
        """The queue is done with what it had read between two seqs; returns the ticket."""
        ticket = 0
        for seq in range(first, last + 1) if self.flags else ():
            self.flags.pop(seq, None)
            self.dues.pop(seq, None)
        if self.ahead:
            self.ahead.difference_update(range(first, last + 1))
        for page, part in list(self._from(first)):
            if part.first > last:
                break
            one = self._finish_part(page, part, max(first, part.first), min(last, part.last))
            ticket = max(ticket, one)
        return ticket

    def _finish_part(self, page: Page, part: Part, first: int, last: int) -> int:
        count = part.finish(first, last)
        if not count:
            return 0
        page.live -= count
        self.live -= count
        ticket = self._source.remove(self.queue, first, last)
        self._source.finished(page, count)
        return ticket

    def purge(self) -> int:
        """Be done with all that was not read; returns how many that were."""
        count, self.count, self.size = self.count, 0, 0
        start = self.next
        for page, part in list(self._from(start)):
            at = max(start, part.first)
            # What is done already between two seqs is done once more: one record, not thousands.
            for seq in sorted([seq for seq in self.ahead if at <= seq <= part.last]):
                self._finish_part(page, part, at, seq - 1)
                at = seq + 1
            self._finish_part(page, part, at, part.last)
            start = max(start, part.last + 1)
        if not self.ahead:
            self.next = start
        return count

    # ---- at start

    def parts(self) -> Iterator[tuple[Page, Part]]:
        """Go through the pages that the queue has something on."""
        return iter(self._entries)
