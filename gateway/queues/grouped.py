"""How a queue serves message groups.

A queue without grouped messages pays one comparison for each dispatch. With the first one its ready
messages move to an index, and consumers are served from their lanes (see `groups`). With
`group-first-key` the first message of a group for a consumer is delivered with that property; the
queue gets the message back as it holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Final

from gateway.model.attributes import PLAIN, QueueAttributes
from gateway.model.message import EXPIRES, GROUPED, SCHEDULED, SHARED, Message
from gateway.queues.groups import GroupOf, Groups, in_buckets
from gateway.queues.in_delivery import InDelivery
from gateway.queues.line import Line
from gateway.queues.ports import Gone
from gateway.queues.ring import Leave
from gateway.queues.searching import Searching
from gateway.queues.seats import Consumers
from gateway.queues.selecting import Held
from gateway.queues.sharing import remember

#: How often a queue looks whether what is in delivery is settled, so that groups may move.
SETTLING_MS: Final = 20


def _no_group(message: Message) -> tuple[str | None, bool]:
    return None, False


def _unmarked(body: bytes, flags: int, key: str) -> bytes:
    return body


def _room_of(held: Held) -> int:
    return held.consumer.room() if held.attached else 0


class Grouping:
    """See the module text.

    Attributes:
        group_of: tells the group of a message.
        mark_first: returns a stored message with a property that is true.
        groups: None while no message has a group.
    """

    __slots__ = (
        "_attributes",
        "_leave",
        "_line",
        "_out",
        "_patient",
        "_searching",
        "_seats",
        "_wake",
        "group_of",
        "groups",
        "mark_first",
    )

    def __init__(
        self,
        line: Line,
        seats: Consumers,
        out: InDelivery,
        searching: Searching,
        *,
        leave: Leave,
        wake: Callable[[int], None],
    ) -> None:
        self._line = line
        self._seats = seats
        self._out = out
        self._searching = searching
        self._leave = leave
        self._wake = wake
        self._attributes = PLAIN
        self._patient: list[Held] | tuple[()] = ()  # for the end of the scan (drain)
        self.group_of: GroupOf = _no_group
        self.mark_first: Callable[[bytes, int, str], bytes] = _unmarked
        self.groups: Groups | None = None

    @property
    def count(self) -> int:
        """How many groups are pinned to a consumer."""
        return 0 if self.groups is None else len(self.groups.pinned)

    def behave(self, attributes: QueueAttributes) -> None:
        """Use these attributes from now on; with other buckets all groups are free."""
        before, self._attributes = self._attributes, attributes
        if attributes.group_buckets != before.group_buckets:
            self.end()

    def seated(self) -> None:
        """A consumer came."""
        if self.groups is not None:
            self.groups.joined(
                rebalance=self._attributes.group_rebalance and len(self._seats) > 1,
                pause=self._attributes.group_rebalance_pause_dispatch,
            )

    def unseated(self, held: Held) -> None:
        """A consumer is gone."""
        assert not held.attached, "it leaves its groups, and stays"
        if self.groups is not None:
            self.groups.left(held)

    def is_on(self) -> bool:
        """Whether messages go out by their groups now; with the first one they begin to."""
        if self.groups is None:
            if not self._line.any_flags & GROUPED or not self._attributes.group_buckets:
                return False
            group_of = in_buckets(self.group_of, self._attributes.group_buckets)
            self.groups = Groups(self._line.make_index(), group_of)
        return True

    def end(self) -> None:
        """Let go of all groups, and of the index."""
        if self.groups is not None:
            self.groups.end()
            self.groups = None
            self._searching.more = False
            self._tell_patient()

    def end_if_idle(self) -> bool:
        """End where nothing is remembered and nothing waits; returns whether there are none."""
        if self.groups is not None and self.groups.idle and not self._line.ready:
            self.end()
        return self.groups is None

    @property
    def unfinished(self) -> bool:
        """Whether the scan has not seen all that waits, and a consumer has room."""
        return self.groups is not None and self.groups.unfinished

    def wait(self, member: Held) -> bool:
        """Whether what is for it may not have been scanned yet; the end of that will be told."""
        assert member.attached, "one that has left waits"
        if not self.unfinished:
            return False
        if member not in self._patient:
            self._patient = [*self._patient, member]
        return True

    def hand_out(self, now_ms: int, limit: int) -> int:
        """Serve consumers from their lanes; returns how many messages went out."""
        groups = self.groups
        assert groups is not None, "no groups"
        total = 0
        groups.unfinished = False
        while self._line.ready and len(self._seats) and total < limit:
            if groups.settling:
                if self._out.count:
                    self._wake(now_ms + SETTLING_MS)
                    break
                groups.settling = False
            went, expired = self._round(groups, now_ms, limit - total)
            total += went
            # What has expired or was removed stood in a lane, and kept others out of it.
            if not (went or expired or groups.stale):
                break
        self._searching.more = groups.unfinished
        if self._patient and not groups.unfinished:
            self._tell_patient()
        return total

    def _tell_patient(self) -> None:
        waiting, self._patient = self._patient, ()
        for member in waiting:
            if member.attached:
                member.consumer.exhausted()

    def _round(self, groups: Groups, now_ms: int, limit: int) -> tuple[int, int]:
        """Serve each consumer once; returns how many messages went out, and how many expired."""
        late: list[Message] = []

        def keep(message: Message) -> bool:
            if message.flags & EXPIRES and message.expires <= now_ms:
                late.append(message)
                return False
            return True

        line = self._line
        rooms = groups.assign(self._seats.in_turn(), limit, keep)
        self._seats.turn += groups.chosen
        index = line.make_index()  # a consumer that gets something may have the queue purged
        index.remove([m for m in late if index.has(m)])
        total = 0
        flags = line.any_flags, line.all_flags
        for held, room in rooms.items():
            if room <= 0 or not held.attached:
                continue
            taken = groups.take(held, min(room, limit - total))
            for _, like in groupby(taken, key=attrgetter("priority")):
                remember(line, flags)
                run = [m for m in like if keep(m)]
                most = _room_of(held)
                total += self._deliver(groups, held, run[:most])
                for message in run[most:]:  # the run before was larger than it had thought
                    line.ready.put_back(message)
        if late:
            remember(line, flags)
            self._leave(late, Gone.EXPIRED)
        return total, len(late)

    def _deliver(self, groups: Groups, held: Held, messages: list[Message]) -> int:
        count = len(messages)
        if not count:
            return 0
        self._out.hand_out(held, messages)
        key = self._attributes.group_first_key
        if groups.firsts:
            firsts = {m.seq for m in messages} & groups.firsts
            groups.firsts -= firsts
            if key and firsts:
                messages = [self._marked_copy(m, key) if m.seq in firsts else m for m in messages]
        held.consumer.deliver(messages, self._line.any_flags)
        return count

    def _marked_copy(self, message: Message, key: str) -> Message:
        copy = Message(self.mark_first(message.body, message.flags, key), message.seq, 0)
        copy.flags = message.flags & ~SHARED
        if message.flags & EXPIRES:
            copy.expires = message.expires
        if message.flags & SCHEDULED:
            copy.due = message.due
        self._out.mark(message)
        return copy

    def check_invariants(self) -> None:
        """Assert that nobody waits for a scan that there is not, and of the groups."""
        groups = self.groups
        if groups is None:
            assert not self._patient, "one waits for the end of no scan"
            return
        assert self._attributes.group_buckets, "groups, and there are to be none"
        assert len(set(self._patient)) == len(self._patient), "one waits twice for the same end"
        groups.check_invariants(self._line.ready, self._seats.all)
