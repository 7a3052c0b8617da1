"""Message groups: who has which group, and what waits for whom.

    unpinned ──a message of it for somebody──> pinned to that consumer
    pinned ──the consumer leaves, the group is closed, or all are reset──> unpinned

What waits of a queue with groups is in its index. A scan goes through it once, in delivery order,
and puts each message into the lane of the consumer that gets it: of a pinned group its own, else
the next one that has room. A lane is places in the index, by delivery order: what was removed
meanwhile is passed over, and with a consumer that leaves, its lane goes back to the scan. So each
message is judged once, and nobody waits behind the group of another. It knows no clock or store.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from zlib import crc32

from gateway.model.message import Message
from gateway.queues.indexed import IndexedReady, Search, place_of
from gateway.queues.ordered import is_heap
from gateway.queues.ready import _key
from gateway.queues.selecting import Held

#: Returns the group of a message, or None, and whether it is the last of its group.
GroupOf = Callable[[Message], tuple[str | None, bool]]
#: Delivery order (two numbers, of which the second is the place), group ("": none), the last of it.
Entry = tuple[int, int, str, bool]


def in_buckets(group_of: GroupOf, buckets: int) -> GroupOf:
    """Return the same for groups that share so many buckets; -1: each has its own."""
    if buckets <= 0:
        return group_of

    def bucket_of(message: Message) -> tuple[str | None, bool]:
        group, closes = group_of(message)
        if group is None:
            return None, False
        return str(crc32(group.encode("utf-8", "surrogatepass")) % buckets), closes

    return bucket_of


class Groups:
    """See the module text.

    Attributes:
        pinned: the consumer of each group.
        firsts: seqs of messages that are the first of their group for their consumer.
        passed: messages that no consumer wants; the scan begins anew with the next one that comes.
        settling: groups were reset, and wait until what is in delivery is settled.
        chosen: how many had a choice of consumers in the last round.
        stale: places in lanes that had lost their message meanwhile, in the last round.
        unfinished: the scan has not seen all that waits, and somebody has room.
    """

    __slots__ = (
        "_group_of",
        "_in_lane",
        "_index",
        "_lanes",
        "_search",
        "chosen",
        "firsts",
        "passed",
        "pinned",
        "settling",
        "stale",
        "unfinished",
    )

    def __init__(self, index: IndexedReady, group_of: GroupOf) -> None:
        self.pinned: dict[str, Held] = {}
        self.firsts: set[int] = set()
        self.passed = 0
        self.chosen = self.stale = 0
        self.settling = False
        self.unfinished = False
        self._group_of = group_of
        self._index = index
        self._lanes: dict[Held, list[Entry]] = {}
        self._in_lane: dict[str, int] = {}  # messages of each pinned group
        self._search = Search(None, takes=False)  # what it finds stays until it is delivered
        index.searches.append(self._search)

    def end(self) -> None:
        """Let go of the index."""
        assert self._search in self._index.searches, "groups have ended already"
        self._index.searches.remove(self._search)

    @property
    def idle(self) -> bool:
        """Whether nothing is remembered."""
        return not (self.pinned or self._lanes)

    # ---- who is there

    def joined(self, *, rebalance: bool, pause: bool) -> None:
        """A consumer came."""
        if rebalance:
            self.reset()
            self.settling = pause
        if self.passed:
            self._scan_again()
        self._loosen()

    def left(self, held: Held) -> None:
        """A consumer is gone: its groups are free, and what waited for it is scanned again."""
        for group in [g for g, holder in self.pinned.items() if holder is held]:
            self._unpin(group)
        self._give_back(self._lanes.pop(held, []))
        self._loosen()
        assert held not in self._lanes, "a lane for one that has left"

    def _loosen(self) -> None:
        """Have what no group holds to its lane scanned again: another consumer may have room."""
        for held, lane in list(self._lanes.items()):
            loose = [entry for entry in lane if not entry[2]]
            if not loose:
                continue
            self._give_back(loose)
            lane[:] = [entry for entry in lane if entry[2]]
            heapq.heapify(lane)
            if not lane:
                del self._lanes[held]

    def reset(self) -> None:
        """Unpin all groups."""
        self.pinned.clear()
        self._in_lane.clear()
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            self._give_back(lane)

    def _unpin(self, group: str) -> None:
        del self.pinned[group]
        self._in_lane.pop(group, None)

    def _give_back(self, lane: Iterable[Entry]) -> None:
        waiting, returned = self._index.waiting, self._search.returned
        for _, place, _, _ in lane:
            message = waiting.get(place)
            if message is not None:
                self.firsts.discard(message.seq)
                heapq.heappush(returned[message.priority], place)

    def _scan_again(self) -> None:
        """Begin anew: what was passed over may be for somebody now."""
        self.passed = 0
        self._lanes.clear()
        self._in_lane.clear()
        self.firsts.clear()
        self._index.searches.remove(self._search)
        self._search = Search(None, takes=False)
        self._index.searches.append(self._search)

    # ---- sharing out

    def assign(
        self, consumers: list[Held], budget: int, keep: Callable[[Message], bool]
    ) -> dict[Held, int]:
        """Put messages into lanes while somebody has room; returns the room of those asked.

        Looks at about `budget` messages; those that `keep` refuses are left out. `consumers` are in
        the order in which they are served.
        """
        rooms = {held: max(0, held.consumer.room()) for held in consumers}
        spare = {held: room - len(self._lanes.get(held, ())) for held, room in rooms.items()}
        open_count = sum(room > 0 for room in spare.values())
        chooser = _Chooser(consumers, spare)
        self.unfinished = False
        self.stale = 0
        search = self._search
        search.allowance = 1 << 30
        while open_count > 0:
            if budget <= 0:
                self.unfinished = True
                break
            batch = self._index.find(search, min(budget, 256))
            if not batch:
                break
            budget -= len(batch)
            for at, message in enumerate(batch):
                if not keep(message):
                    continue
                held, group, closes = self._holder(message, chooser)
                if held is None:
                    self.passed += 1
                    continue
                entry = (*_key(message), group, closes)
                heapq.heappush(self._lanes.setdefault(held, []), entry)
                if held in spare:
                    spare[held] -= 1
                    open_count -= spare[held] == 0
                if not open_count:
                    for later in batch[at + 1 :]:
                        heapq.heappush(search.returned[later.priority], place_of(later))
                    break
        self.chosen = chooser.chosen
        return rooms

    def _holder(self, message: Message, chooser: _Chooser) -> tuple[Held | None, str, bool]:
        """Return who gets a message, its group, which is pinned now, and whether it is its last.

        None: nobody who is there wants it. A group of "": it is not held to its group.
        """
        group, closes = self._group_of(message)
        if group is None:
            return chooser.choose(message), "", False
        held = self.pinned.get(group)
        if held is not None and not _wants(held, message):
            return chooser.choose(message), "", False  # not for its consumer: another may have it
        if held is None:
            held = chooser.choose(message)
            if held is None:
                return None, "", False
            self.pinned[group] = held
            self.firsts.add(message.seq)
        self._in_lane[group] = self._in_lane.get(group, 0) + 1
        return held, group, closes

    def take(self, held: Held, room: int) -> list[Message]:
        """Take up to `room` messages out of a lane, in delivery order."""
        lane = self._lanes.get(held)
        if lane is None:
            return []
        waiting = self._index.waiting
        taken: list[Message] = []
        while lane and len(taken) < room:
            _, place, group, closes = heapq.heappop(lane)
            message = waiting.get(place)
            if message is not None:
                taken.append(message)
            else:
                self.stale += 1
            if group:
                assert self._in_lane[group] > 0, "a group is miscounted"
                self._in_lane[group] -= 1
                if closes and message is not None:
                    self._close(group, lane)
        if not lane:
            del self._lanes[held]
        assert len(taken) <= max(0, room), "more taken than it has room for"
        self._index.remove(taken)
        return taken

    def _close(self, group: str, lane: list[Entry]) -> None:
        """The last message of a group goes out: what follows in the lane is for anybody."""
        assert group in self.pinned, "a group closes that nobody has"
        if self._in_lane[group]:
            self._give_back([entry for entry in lane if entry[2] == group])
            lane[:] = [entry for entry in lane if entry[2] != group]
            heapq.heapify(lane)
        self._unpin(group)

    def check_invariants(self, index: object, seated: list[Held]) -> None:
        """Assert that groups and lanes are of consumers that are there, and are counted right."""
        assert self._index is index, "groups of an index that is gone"
        assert self._search in self._index.searches, "nothing tells groups of what comes back"
        assert self.passed >= 0, "passed by fewer than none"
        assert set(self.pinned.values()) <= set(seated), "a group is pinned to one that has left"
        assert self._lanes.keys() <= set(seated), "a lane for one that has left"
        assert self._in_lane.keys() <= self.pinned.keys(), "a free group is counted"
        counted = dict.fromkeys(self._in_lane, 0)
        for held, lane in self._lanes.items():
            assert lane, "an empty lane"
            assert is_heap([entry[:2] for entry in lane]), "a lane is no heap"
            for _, _, group, _ in lane:
                assert not group or self.pinned.get(group) is held, "in the lane of another"
                if group:
                    counted[group] = counted.get(group, 0) + 1
        assert counted == self._in_lane, "groups are miscounted in their lanes"


def _wants(held: Held, message: Message) -> bool:
    if held.barred is not None and message.seq in held.barred:
        return False
    condition = None if held.group is None else held.group.condition
    return condition is None or condition.matches(message)


class _Chooser:
    """Chooses consumers in turn: of the highest priority first, those with room before others."""

    __slots__ = ("_ranks", "_spare", "chosen")

    def __init__(self, consumers: list[Held], spare: dict[Held, int]) -> None:
        self._spare = spare
        self.chosen = 0
        self._ranks = [deque(rank) for _, rank in groupby(consumers, key=attrgetter("priority"))]

    def choose(self, message: Message) -> Held | None:
        """Return who gets the next message."""
        for rank in self._ranks:
            for _ in range(len(rank)):
                held = rank[0]
                rank.rotate(-1)
                if self._spare[held] > 0 and _wants(held, message):
                    self.chosen += 1
                    return held
        # Only selectors and barred messages come here: it waits for one of those that want it.
        wanting = [held for held in self._spare if _wants(held, message)]
        return max(wanting, key=lambda held: self._spare[held], default=None)
