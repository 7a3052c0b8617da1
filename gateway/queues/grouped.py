"""The part of a queue that message groups see.

A queue without grouped messages pays two comparisons for each dispatch. With the first one its
ready messages move to an index, and consumers are served from their lanes (see `groups`). With
`group-first-key` the first message of a group for a consumer is delivered with that property; the
queue gets the message back as it holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Final

from gateway.model.attributes import QueueAttributes
from gateway.model.message import EXPIRES, GROUPED, SCHEDULED, SHARED, Message
from gateway.queues.groups import GroupOf, Groups, in_buckets
from gateway.queues.in_delivery import InDelivery
from gateway.queues.ports import Gone
from gateway.queues.seats import Seated
from gateway.queues.selecting import Held, Searches

#: How often a queue looks whether what is in delivery is settled, so that groups may move.
SETTLING_MS: Final = 20


def _no_group(message: Message) -> tuple[str | None, bool]:
    return None, False


def _unmarked(body: bytes, flags: int, key: str) -> bytes:
    return body


def _room_of(held: Held) -> int:
    return held.consumer.room() if held.attached else 0


class Grouped(Seated):
    """See the module text.

    Attributes:
        group_of: tells the group of a message.
        mark_first: returns a stored message with a property that is true.
    """

    __slots__ = (
        "_groups",
        "_marked",
        "_out",
        "_own_way",
        "_patient",
        "delivering",
        "group_of",
        "mark_first",
    )

    delivering: int

    def __init__(self) -> None:
        super().__init__()
        self.group_of: GroupOf = _no_group
        self.mark_first: Callable[[bytes, int, str], bytes] = _unmarked
        self._groups: Groups | None = None
        self._patient: list[Held] = []  # who waits for the end of the scan (drain)
        self._own_way = False  # it may not hand out as plain queues do
        self._out = InDelivery()  # known while the queue is a ring
        self._marked: dict[int, Message] = {}  # what is in delivery with a mark, by seq

    @property
    def group_count(self) -> int:
        """Groups that are pinned to a consumer."""
        return 0 if self._groups is None else len(self._groups.pinned)

    def behave(self, attributes: QueueAttributes) -> None:
        """See Conduct; with other buckets all groups are free."""
        before = self.attributes.group_buckets
        super().behave(attributes)
        if attributes.group_buckets != before:
            self._end_groups()

    # ---- consumers

    def _seat(self, held: Held) -> None:
        super()._seat(held)
        if self._groups is not None:
            attributes = self.attributes
            self._groups.joined(
                rebalance=attributes.group_rebalance and len(self._consumers) > 1,
                pause=attributes.group_rebalance_pause_dispatch,
            )

    def _unseat(self, held: Held) -> None:
        super()._unseat(held)
        if self._groups is not None:
            self._groups.left(held)

    # ---- out

    def _has_own_way(self) -> bool:
        """Whether messages go out by their groups now; with the first one they begin to."""
        if self._groups is None:
            if not self.any_flags & GROUPED or not self.attributes.group_buckets:
                return False
            group_of = in_buckets(self.group_of, self.attributes.group_buckets)
            self._groups = Groups(self._make_index(), group_of)
            self._own_way = True
        return True

    def _end_groups(self) -> None:
        if self._groups is not None:
            self._groups.end()
            self._groups = None
            self._own_way = False
            self.searching = False
            self._tell_patient()

    def _end_searches(self, searches: Searches, *, limited: bool) -> None:
        super()._end_searches(searches, limited=limited)
        if self._groups is not None and self._groups.unfinished:
            self.searching = True

    def _forget_index(self) -> None:
        if self._groups is not None and self._groups.idle and not self._ready:
            self._end_groups()
        if self._groups is None:
            super()._forget_index()

    def _hand_out(self, now_ms: int, limit: int) -> int:
        """Serve consumers from their lanes; returns how many messages went out."""
        groups = self._groups
        assert groups is not None, "no groups"
        total = 0
        groups.unfinished = False
        while self._ready and self._consumers and not self.paused and total < limit:
            if groups.settling:
                if self.delivering:
                    self._wake(now_ms + SETTLING_MS)
                    break
                groups.settling = False
            went = self._round_of_groups(groups, now_ms, limit - total)
            if not went:
                break
            total += went
        self.searching = groups.unfinished
        if self._patient and not groups.unfinished:
            self._tell_patient()
        return total

    def _tell_patient(self) -> None:
        waiting, self._patient = self._patient, []
        for member in waiting:
            if member.attached:
                member.consumer.exhausted()

    def wait_for_search(self, member: Held) -> bool:
        """See Searched: what is for it may not have been scanned yet."""
        if self._groups is None or not self._groups.unfinished:
            return super().wait_for_search(member)
        if member not in self._patient:
            self._patient.append(member)
        return True

    def _round_of_groups(self, groups: Groups, now_ms: int, limit: int) -> int:
        late: list[Message] = []

        def keep(message: Message) -> bool:
            if message.flags & EXPIRES and message.expires <= now_ms:
                late.append(message)
                return False
            return True

        rooms = groups.assign(self._in_turn(), limit, keep)
        self._next += groups.chosen
        index = self._make_index()  # whoever gets something may have the queue purged
        index.remove([m for m in late if index.has(m)])
        total = 0
        flags = self.any_flags, self.all_flags
        for held, room in rooms.items():
            if room <= 0 or not held.attached:
                continue
            taken = groups.take(held, min(room, limit - total))
            for _, like in groupby(taken, key=attrgetter("priority")):
                self._remember(flags)
                run = [m for m in like if keep(m)]
                most = _room_of(held)
                total += self._deliver_run(groups, held, run[:most])
                for message in run[most:]:  # the run before was larger than it had thought
                    self._ready.put_back(message)
        if late:
            self._remember(flags)
            self.expired += len(late)
            self._leave(late, Gone.EXPIRED)
        return total

    def _remember(self, flags: tuple[int, int]) -> None:
        """Whoever settles at once may have emptied the queue, which then forgets its flags."""
        self.any_flags |= flags[0]
        self.all_flags &= flags[1]

    def _deliver_run(self, groups: Groups, held: Held, messages: list[Message]) -> int:
        count = len(messages)
        if not count:
            return 0
        held.count += count
        self.delivering += count
        if self.ring_size >= 0:
            self._out.add(messages)
        key = self.attributes.group_first_key
        if groups.firsts:
            firsts = {m.seq for m in messages} & groups.firsts
            groups.firsts -= firsts
            if key and firsts:
                messages = [self._marked_copy(m, key) if m.seq in firsts else m for m in messages]
        held.consumer.deliver(messages, self.any_flags)
        return count

    def _in_turn(self) -> list[Held]:
        """Return the consumers in the order in which they are served now."""
        if self.exclusive:
            return self._consumers[:1]
        found: list[Held] = []
        for first, after in self._ranks or self._ranked():
            count = after - first
            start = self._next % count
            rank = self._consumers[first:after]
            found += rank[start:] + rank[:start]
        return found

    # ---- marks

    def _marked_copy(self, message: Message, key: str) -> Message:
        copy = Message(self.mark_first(message.body, message.flags, key), message.seq, 0)
        copy.flags = message.flags & ~SHARED
        if message.flags & EXPIRES:
            copy.expires = message.expires
        if message.flags & SCHEDULED:
            copy.due = message.due
        self._marked[message.seq] = message
        return copy

    def _as_held(self, messages: list[Message]) -> list[Message]:
        """Return messages as the queue holds them, without marks."""
        marked = self._marked
        return [marked.pop(m.seq, m) for m in messages]

    # ---- what the queue does

    def _leave(self, messages: list[Message], why: Gone) -> None:
        raise NotImplementedError

    def _wake(self, at_ms: int) -> None:
        raise NotImplementedError
