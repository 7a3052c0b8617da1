"""Sharing out: equal consumers get equal shares of each burst, in whatever pieces it comes.

A round asks those of the highest priority that have room, from where the last round ended, and
divides evenly what waits among them. What does not divide goes to the first ones, and the next
round begins behind them. Those with one selector are a group: what is found for it is divided
among them, since how much of what waits is for them is not known before.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.model.message import EXPIRES, Message
from gateway.queues.in_delivery import InDelivery
from gateway.queues.indexed import IndexedReady
from gateway.queues.line import Line
from gateway.queues.ports import Gone
from gateway.queues.ring import Leave
from gateway.queues.seats import Consumers
from gateway.queues.selecting import Group, Held


class Shares:
    """See the module text."""

    __slots__ = ("_leave", "_line", "_out", "_seats")

    def __init__(self, line: Line, seats: Consumers, out: InDelivery, leave: Leave) -> None:
        self._line = line
        self._seats = seats
        self._out = out
        self._leave = leave

    def hand_round(self, now_ms: int, limit: int) -> int:
        """Serve each consumer of the highest priority that has room and takes something."""
        below: int | None = None
        # Nobody beyond the number of messages can get one: most consumers are not even asked.
        enough = min(len(self._line.ready), limit)
        while open_ones := self._seats.with_room(below, enough):
            went = self.serve(open_ones, now_ms, limit)
            if went or not self._line.ready:
                return went
            if len(open_ones) >= enough:
                enough = len(self._seats) + 1
                continue
            # All that waits is barred from these: those of lower priority may have it.
            below = open_ones[0][0].priority
        return 0

    def serve(self, open_ones: list[tuple[Held, int, int]], now_ms: int, limit: int) -> int:
        """Give each an equal share once; returns how many messages went out.

        What does not divide evenly goes to the first ones, and the next round begins behind them.
        """
        if len(open_ones) == 1 and open_ones[0][0].group is None:
            return self._serve_one(open_ones[0], now_ms, limit)
        assert open_ones, "shares for nobody"
        share, odd = divmod(min(len(self._line.ready), limit), len(open_ones))
        total = 0
        dealt: list[Group] = []
        for at, (held, room, place) in enumerate(open_ones):
            if not held.attached:
                continue  # it left while another one was served
            group = held.group
            # One that is barred from some has a share of its own: none of the deal is in vain.
            if group is not None and group.members > 1 and not held.barred:
                if group in dealt:
                    continue
                dealt.append(group)
                total += self._deal(group, open_ones, share or 1, now_ms)
                continue
            part = share + (at < odd) or 1
            messages = self._take_for(held, min(room, part), now_ms)
            if not messages:
                continue
            went = len(messages)
            held.consumer.deliver(messages, self._line.any_flags)
            # Its room was a guess while it had seen no message: it may have more of it by now.
            if went < part and self._line.ready:
                went += self._give_more(held, part - went, now_ms)
            total += went
            if at < odd or not odd:
                self._seats.turn = place + 1
            if not self._line.ready:
                break
        return total

    def _serve_one(self, open_one: tuple[Held, int, int], now_ms: int, limit: int) -> int:
        """Give the only one that has room all that it may get; returns how many went out."""
        held, room, place = open_one
        part = min(room, len(self._line.ready), limit)
        messages = self._take_for(held, part, now_ms)
        if not messages:
            return 0
        self._seats.turn = place + 1
        went = len(messages)
        held.consumer.deliver(messages, self._line.any_flags)
        if went < part and self._line.ready:
            went += self._give_more(held, part - went, now_ms)
        return went

    def _give_more(self, held: Held, count: int, now_ms: int) -> int:
        """Go on with what has another priority, or came back; returns how many went out."""
        total = 0
        while total < count and self._line.ready and held.attached:
            room = min(count - total, held.consumer.room())
            messages = self._take_for(held, room, now_ms) if room > 0 else []
            if not messages:
                break
            total += len(messages)
            held.consumer.deliver(messages, self._line.any_flags)
        return total

    def _deal(
        self, group: Group, open_ones: list[tuple[Held, int, int]], share: int, now_ms: int
    ) -> int:
        """Divide what those with one selector are for evenly; returns how many went out.

        `share` is what each may get. How much of what waits is for them is not known before.
        """
        able = [one for one in open_ones if one[0].group is group]
        able = [one for one in able if one[0].attached and not one[0].barred]
        # As in `serve`, a room may be a guess: nobody gets more than the one with the least, which
        # has its true room in the next round.
        part = min([share, *(room for _, room, _ in able)])
        mates = [(held, part, place) for held, _, place in able]
        found = _find(self._line, group, sum([part for _, part, _ in mates]))
        flags = self._line.any_flags, self._line.all_flags
        total = 0
        counts, last = even(len(found), [part for _, part, _ in mates])
        assert sum(counts) == len(found), "more was found than they have room for"
        if found:
            self._seats.turn = mates[last][2] + 1
        for (held, _, _), count in zip(mates, counts, strict=True):
            mine, found = found[:count], found[count:]
            remember(self._line, flags)
            if not held.attached:
                for message in reversed(mine):
                    self._line.ready.put_back(message)
                continue
            messages = self._take_for(held, count, now_ms, mine) if mine else []
            if messages:
                total += len(messages)
                held.consumer.deliver(messages, self._line.any_flags)
        return total

    def _take_for(
        self, held: Held, count: int, now_ms: int, found: list[Message] | None = None
    ) -> list[Message]:
        """Take up to `count` messages into delivery; what has expired leaves on the way.

        They are `found`, where there are some: taken from what waits already.
        """
        group = held.group
        if group is None:
            messages = self._line.ready.take(count)
        else:
            messages = found or _find(self._line, group, count)
        late: list[Message] = []
        if self._line.any_flags & EXPIRES or held.barred:
            messages, late = self._sift(held, messages, count, now_ms)
        self._out.hand_out(held, messages)
        if late:
            self._leave(late, Gone.EXPIRED)
        return messages

    def _sift(
        self, held: Held, messages: list[Message], count: int, now_ms: int
    ) -> tuple[list[Message], list[Message]]:
        """Return which of these, or of those behind them, the consumer gets, and the expired."""
        barred = held.barred or ()
        aside: list[Message] = []
        late: list[Message] = []
        fitting: list[Message] = []
        while messages:
            for message in messages:
                if message.flags & EXPIRES and message.expires <= now_ms:
                    late.append(message)
                elif message.seq in barred:
                    aside.append(message)
                else:
                    fitting.append(message)
            if fitting:
                break
            group = held.group
            messages = (
                self._line.ready.take(count) if group is None else _find(self._line, group, count)
            )
        assert len(fitting) <= count, "more than it has room for"
        for message in reversed(aside):
            self._line.ready.put_back(message)
        return fitting, late


def remember(line: Line, flags: tuple[int, int]) -> None:
    """A consumer that settles at once may have emptied the queue, which then forgets its flags."""
    line.any_flags |= flags[0]
    line.all_flags &= flags[1]


def _find(line: Line, group: Group, count: int) -> list[Message]:
    """Take up to `count` messages of one priority that the group is for."""
    assert isinstance(line.ready, IndexedReady), "a selector on a queue without index"
    return line.ready.find(group, count)


def even(count: int, most: Sequence[int]) -> tuple[list[int], int]:
    """Divide `count` evenly among so many, nobody above his most; what is odd goes to the first.

    Returns the parts, and the place of the one behind whom the next division begins.
    """
    parts, last = [0] * len(most), -1
    while count > 0:
        hungry = [at for at, part in enumerate(parts) if part < most[at]]
        if not hungry:
            break
        step = max(1, min(count // len(hungry), *(most[at] - parts[at] for at in hungry)))
        served = hungry[:count]
        last = served[-1]
        for at in served:
            parts[at] += step
            count -= step
    assert count >= 0, "more was divided than there is"
    assert last < len(most), "behind the last one"
    return parts, last
