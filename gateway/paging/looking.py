"""Looking at the messages on a queue's pages: made from blocks, and left where they are.

A message is as its page says, but for events since then: its delivery was counted, it was given
back with a time at which it is due, or it came over a connection whose consumers do not get it.
Only durable messages are looked at.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise, repeat
from typing import Final, cast

from gateway.model.message import EXPIRES, MAYBE_SEEN, PAGED, SCHEDULED, Message
from gateway.model.pages import UnreadablePageError
from gateway.paging.cursor import Cursor
from gateway.paging.limits import Room
from gateway.paging.page import Page, Source
from gateway.paging.part import Part
from gateway.queues.ordered import ascends
from gateway.queues.ports import Peeked

#: What a search looks at before it asks whether it has enough: about a block.
_LOOK: Final = 256
#: And bytes of it: what one who looks through holds at a time.
_LOOK_BYTES: Final = 1 << 20


class Looking:
    """See the module text.

    Attributes:
        flags: seq -> flags of messages whose delivery was counted.
        dues: seq -> when messages are due again that were given back.
    """

    __slots__ = ("_cursor", "_origin_firsts", "_origins", "_source", "dues", "flags")

    def __init__(self, cursor: Cursor, source: Source) -> None:
        self.flags: dict[int, int] = {}
        self.dues: dict[int, int] = {}
        self._origin_firsts = array("Q")
        self._origins: list[str] = []
        self._cursor = cursor
        self._source = source

    def note_origin(self, first: int, origin: str) -> None:
        """Note where messages from that seq on come from; empty where that does not count.

        It is of a connection of this life, so that no page has it.
        """
        if origin != (self._origins[-1] if self._origins else ""):
            assert first > (self._origin_firsts[-1] if self._origins else -1), "sent before others"
            self._origin_firsts.append(first)
            self._origins.append(origin)

    def forget(self, first: int, last: int) -> None:
        """Forget what happened to messages between two seqs: the queue is done with them."""
        if not (self.flags or self.dues):
            return
        for changed in (self.flags, self.dues):
            if len(changed) < last - first:
                gone = [seq for seq in changed if first <= seq <= last]
            else:
                gone = [seq for seq in range(first, last + 1) if seq in changed]
            for seq in gone:
                del changed[seq]

    def look(self, start: int, room: Room, *, here: bool = False) -> tuple[list[Message], int]:
        """Return messages from seq `start` on, within `room`, and where to go on.

        With `here` it ends where the disk would be needed.
        The one that crosses the limit of bytes is among them. Raises UnreadablePageError when the
        very first one cannot be read; behind others it ends the list.
        """
        found: list[Message] = []
        size = 0
        cursor = self._cursor
        for page, part in cursor.parts_from(start):
            for low, high in cursor.unread(part, start):
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

    def search(
        self, start: int, matches: Callable[[Message], bool], room: Room, count: int
    ) -> tuple[list[Message], int]:
        """Look at up to `count` messages from seq `start` on; returns those that match.

        And where to go on: no further than what is in memory. Blocks that cannot be read are passed
        over.
        """
        found: list[Message] = []
        size = 0
        start = max(start, self._cursor.next)
        while count > 0 and len(found) < room.messages and size < room.size:
            looked, following = self.look_past(start, Room(min(count, _LOOK), _LOOK_BYTES))
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

    def browse(self, offset: int, limit: int) -> list[Message]:
        """Return messages that were not read yet, without touching them; waits for the disk."""
        found: list[Message] = []
        at = self._cursor.skip(offset)
        while len(found) < limit:
            try:
                messages, at = self.look(at, Room(limit - len(found), 1 << 60))
            except UnreadablePageError:
                at = self._cursor.behind_block(at)
                continue
            if not messages:
                break
            found += messages
        return found

    def peek(self, start: int, count: int, wake: Callable[[], None]) -> Peeked:
        """See queues.Backlog."""
        cursor = self._cursor
        at = max(start, cursor.next)
        while wanted := cursor.wanted(at):
            if not self._source.fetch(wake, wanted):
                return Peeked([], at, unsynced=False, coming=True)
            messages, at = self.look_past(at, Room(count, _LOOK_BYTES))
            if messages:
                return Peeked(messages, at, unsynced=cursor.unsynced, coming=False)
        return Peeked([], at, unsynced=cursor.unsynced, coming=False)

    def look_past(self, start: int, room: Room) -> tuple[list[Message], int]:
        """As `look`, past what cannot be read, which is given up when it is read back."""
        start = max(start, self._cursor.next)
        while True:
            try:
                return self.look(start, room, here=True)
            except UnreadablePageError:
                start = self._cursor.behind_block(start)

    def check_invariants(self) -> None:
        """Assert that origins are in order, and that changes are of what is not done."""
        assert len(self._origins) == len(self._origin_firsts), "an origin of no messages"
        assert ascends(self._origin_firsts), "origins in no order"
        assert all(a != b for a, b in pairwise(self._origins)), "an origin that is noted twice"
        for seq in (*self.flags, *self.dues):
            parts = self._cursor.parts_from(seq)
            assert any(part.next_waiting(seq) == seq for _, part in parts), "changed, and done"
