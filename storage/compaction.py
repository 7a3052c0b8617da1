"""Ack compaction: what still lives in the oldest segment is copied forward, so its file can go.

A removal may concern any older segment, so segments go oldest first, and one message that nobody
takes would pin every file behind its own. This module judges when that costs too much, and what of
a segment has to be copied; it knows no file and no thread. `storage.journal` carries it out:

    resting ──rule──> reading a piece ──> runs waiting ──> copies in a batch ──durable──┐
       ^                   ^                   ^───────────── more runs ─────────────────┤
       └── nothing lives ──┴───────────────────────────── runs used up ──────────────────┘

A copy is an ADD record like the first one, with the same seqs, so replay needs to know nothing of
it. The copied message counts in the new segment once the copy is durable, and only then may the old
file go. A removal that is recorded after the copy stands behind it in the journal, or in the same
batch, where removals count last; what was removed before is not copied.

A segment that has rotted is emptied the same way, and so are those before it, whatever the rule
says: what cannot be read of it is taken from whoever has it in memory (`recall`). What nobody gives
now is asked for again (`ask_again`): it is on its way to a consumer, and comes back or is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from storage.batch import Batch, cut_run, run_bound
from storage.ranges import merged_ranges, without_ranges
from storage.record import AddRun
from storage.segment_index import SegmentIndex

#: Bytes that one batch carries forward, beside what senders give: a sync stays short.
COPY_BYTES: Final = 1 << 20
#: Messages that one turn looks at.
COPY_MESSAGES: Final = 4096

Ranges = list[tuple[int, int]]
#: Takes per queue the seqs that are wanted, and returns those that memory has, as runs for one
#: queue each. Without it what has rotted stays.
Recall = Callable[[dict[int, Ranges]], Sequence[AddRun]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRule:
    """When copying pays: at least `min_files` files (0: never), less than `percentage` alive.

    Segments up to `through` are emptied whatever the figures say.
    """

    min_files: int = 3
    percentage: int = 50
    through: int = 0

    def wants(self, files: int, used: int, live: int) -> bool:
        """Judge by the number of files, the bytes in them and those that live."""
        return 0 < self.min_files <= files and live * 100 < used * self.percentage


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Part of a segment read back: its ADD records with the tickets of their batches.

    `end` is where the next piece begins; `last`: there is none.
    """

    runs: Sequence[tuple[int, AddRun]]
    end: int
    last: bool


class Changes:
    """Flags and due times that records after the ADD gave to messages. Pure.

    Forgets a message when it is removed, so it holds what was returned or postponed and lives.
    """

    __slots__ = ("_dues", "_flags")

    def __init__(self) -> None:
        self._flags: dict[int, dict[int, int]] = {}
        self._dues: dict[int, dict[int, int]] = {}

    def count(self, queue_id: int, entries: Iterable[tuple[int, int]]) -> None:
        """Note new flags, as (seq, flags)."""
        self._flags.setdefault(queue_id, {}).update(entries)

    def postpone(self, queue_id: int, entries: Iterable[tuple[int, int]]) -> None:
        """Note new due times, as (seq, due in ms)."""
        self._dues.setdefault(queue_id, {}).update(entries)

    def removed(self, queue_id: int, first: int, last: int) -> None:
        """Forget messages that are gone."""
        if not self._flags and not self._dues:
            return
        for table in (self._flags, self._dues):
            known = table.get(queue_id)
            if known is None:
                continue
            if last - first < len(known):
                for seq in range(first, last + 1):
                    known.pop(seq, None)
            else:
                for seq in [seq for seq in known if first <= seq <= last]:
                    del known[seq]
            if not known:
                del table[queue_id]

    def forget_queue(self, queue_id: int) -> None:
        """Forget a queue that is gone."""
        self._flags.pop(queue_id, None)
        self._dues.pop(queue_id, None)

    def __len__(self) -> int:
        """Return for how many messages something is known."""
        return sum(map(len, self._flags.values())) + sum(map(len, self._dues.values()))

    def check_invariants(self) -> None:
        """Assert that no table is kept for a queue without changes."""
        assert all(self._flags.values()), "a table of no flags"
        assert all(self._dues.values()), "a table of no due times"

    def touched(self, queue_id: int, first: int, last: int) -> list[int]:
        """Return the seqs between two that have changed, ascending."""
        seqs: set[int] = set()
        for table in (self._flags, self._dues):
            known = table.get(queue_id, {})
            if last - first < len(known):
                seqs.update(seq for seq in range(first, last + 1) if seq in known)
            else:
                seqs.update(seq for seq in known if first <= seq <= last)
        return sorted(seqs)

    def apply(self, queue_id: int, seq: int, flags: int, due: int) -> tuple[int, int]:
        """Return flags and due time as they are now."""
        return (
            self._flags.get(queue_id, {}).get(seq, flags),
            self._dues.get(queue_id, {}).get(seq, due),
        )


class Compaction:
    """What is being compacted; see the module text.

    Figures (read only): `copied` messages and `copied_bytes`, `emptied` segments; `failure` says
    why a segment could not be read: then nothing is compacted until the next start, or until it is
    emptied as damaged, and its file stays; `failed_at` is (segment, offset). `recalled` messages
    were taken from memory, `lacking` is how many memory did not have when it was asked last.
    """

    __slots__ = (
        "_asked",
        "_damaged",
        "_ended",
        "_index",
        "_offset",
        "_runs",
        "_seen",
        "_settled_at",
        "_suspect_before",
        "changes",
        "copied",
        "copied_bytes",
        "emptied",
        "failed_at",
        "failure",
        "lacking",
        "on_failed",
        "reading",
        "recall",
        "recalled",
        "rule",
        "segment",
        "ticket",
    )

    def __init__(
        self,
        index: SegmentIndex,
        rule: CompactionRule,
        *,
        seen: int = 0,
        suspect_before: int = 0,
    ) -> None:
        """Copies of what was stored before the ticket `suspect_before` get the flag `seen`."""
        self._index = index
        self._seen = seen
        self._suspect_before = suspect_before
        self._runs: deque[tuple[int, AddRun]] = deque()
        self._offset = 0
        self._ended = False
        self._settled_at = 0
        self.rule = rule
        self.changes = Changes()
        self.segment = 0  # the one that is being emptied, 0: none
        self.reading = False
        self.ticket = 0  # of the last copy
        self.copied = self.copied_bytes = self.emptied = 0
        self.failure: Exception | None = None
        self.failed_at = 0, 0
        self.on_failed: Callable[[Exception], None] = _ignore
        self._damaged: dict[int, dict[int, int]] = {}  # segment -> where it rots -> until where
        self._asked = False  # memory, for what lives in the segment
        self.recall: Recall | None = None
        self.recalled = self.lacking = 0

    # ---- which segment

    @property
    def waiting(self) -> bool:
        """Whether runs wait to be copied."""
        return bool(self._runs)

    def under_way(self, synced: int) -> bool:
        """Whether a step has begun and is not on disk, which all up to the ticket `synced` is."""
        return self.reading or self.waiting or self.ticket > synced

    @property
    def damaged(self) -> list[int]:
        """The damaged segments that are still there."""
        for segment in [one for one in self._damaged if one not in self._index.live]:
            del self._damaged[segment]
        return sorted(self._damaged)

    def empty(self, segment: int, places: Mapping[int, int]) -> None:
        """Have a damaged segment emptied; `places` are offset -> where it is whole again, or 0."""
        assert segment > 0, f"segment {segment}"
        self._damaged[segment] = dict(places)
        self.failure = None
        if self.failed_at[0] == segment:
            self.failed_at = 0, 0
        self._asked = False

    def ask_again(self) -> None:
        """Ask memory once more for what it did not have."""
        self._asked = False

    def choose(self, synced_segment: int, synced: int) -> int | None:
        """Return the offset at which `segment` is to be read on, None when there is no need.

        `synced` is the last durable ticket, `synced_segment` where it lies.
        """
        if self.failure is not None or self.reading or self._runs:
            return None
        if self.segment and not self._index.live.get(self.segment):
            self.emptied += 1
            self.segment = 0
        elif self.segment and self._ended:
            if synced < self._settled_at:
                return None  # what was removed meanwhile is still counted
            if self._is_damaged(self.segment):
                self._ask_memory(synced)
                return None
            text = f"segment {self.segment} ends before all that lives in it was read"
            self.failed(self.segment, ValueError(text))
            return None
        if not self.segment:
            index = self._index
            oldest = index.oldest()
            if oldest is None or oldest >= synced_segment:
                return None
            wanted = self.rule.wants(len(index.live), index.used_bytes, index.live_bytes)
            if not wanted and oldest > max(self.rule.through, *self.damaged, 0):
                return None
            self.segment, self._offset, self._ended = oldest, 0, False
            self._asked = False
        assert self.segment, "no segment is being emptied"
        self.reading = True
        return self._offset

    def take(self, segment: int, piece: Piece) -> None:
        """Take what was read."""
        assert self.reading, "nothing was asked for"
        self.reading = False
        if segment != self.segment or segment not in self._index.live:
            self._give_up()
            return
        self._runs.extend(piece.runs)
        self._offset = piece.end
        self._ended = piece.last
        whole_at = self._damaged.get(segment, {}).get(piece.end, 0)
        if piece.last and whole_at > piece.end:
            self._offset, self._ended = whole_at, False

    def _is_damaged(self, segment: int) -> bool:
        return self.recall is not None and segment in self._damaged

    def _ask_memory(self, synced: int) -> None:
        """Take what lives in the segment, and was not read, from memory."""
        if self._asked or self.recall is None:
            return
        self._asked = True
        wanted = self._index.living(self.segment)
        runs = self.recall(wanted)
        # Of a ticket that nothing was seen before: their flags say it already.
        self._runs.extend((synced + 1, run) for run in runs)
        count = sum(len(run.bodies) for run in runs)
        self.recalled += count
        all_ = sum(high - low + 1 for ranges in wanted.values() for low, high in ranges)
        assert count <= all_, f"memory gives {count} messages of {all_}"
        self.lacking = all_ - count

    def failed(self, segment: int, error: Exception) -> None:
        """A segment could not be read: unless it is gone by now, nothing more is compacted."""
        self.reading = False
        if segment == self.segment and segment in self._index.live and self._is_damaged(segment):
            self._ended = True  # the rest is asked of memory
            return
        self._give_up()
        if segment in self._index.live:
            self.failure, self.failed_at = error, (segment, self._offset)
            self.on_failed(error)

    def _give_up(self) -> None:
        self.segment = 0
        self._runs.clear()

    def check_invariants(self) -> None:
        """Assert that reads and waiting runs are of a segment that is being emptied."""
        assert self.segment or not self._runs, "runs of no segment wait"
        assert self.segment or not self.reading, "no segment is being read"
        assert not (self.reading and self._runs), "more is read than is copied"
        assert self.segment in (0, self._index.oldest()) or not self._runs, "not the oldest"
        assert min(self.copied, self.copied_bytes, self.emptied, self.lacking) >= 0, "figures"
        self.changes.check_invariants()

    # ---- what is copied

    def advance(
        self, batch: Batch, unsettled: Sequence[Batch], limit: int, synced: tuple[int, int]
    ) -> int | None:
        """Put copies into `batch` (see `fill`), or return where `segment` is to be read on.

        `synced` are the segment and the ticket of what is durable.
        """
        while True:
            while self._runs:
                self.fill(batch, unsettled, limit)
                if batch.copies:
                    self.ticket = batch.number
                    return None
            offset = self.choose(*synced)
            if offset is not None or not self._runs:
                return offset

    def fill(self, batch: Batch, unsettled: Sequence[Batch], limit: int) -> None:
        """Put copies of up to `limit` bytes, or of one message, into `batch`.

        `unsettled` are the closed batches before it that are not durable yet.
        """
        assert limit > 0, "not even one message would be copied"
        assert all(one.number < batch.number for one in unsettled), "removals of a later batch"
        gone = _removals(unsettled)
        if unsettled:
            self._settled_at = unsettled[-1].number
        dropped = {queue_id for closed in unsettled for queue_id in closed.forgotten}
        looked = copied = 0
        while self._runs and looked < COPY_MESSAGES and copied < limit:
            ticket, run = self._runs.popleft()
            most = _fitting(run, limit - copied, COPY_MESSAGES - looked)
            if most < len(run.bodies):
                self._runs.appendleft((ticket, cut_run(run, most, len(run.bodies))))
                run = cut_run(run, 0, most)
            looked += len(run.bodies)
            copied += self._copy(batch, run, ticket, gone, dropped)

    def _copy(
        self,
        batch: Batch,
        run: AddRun,
        ticket: int,
        gone: dict[int, Ranges],
        dropped: set[int],
    ) -> int:
        """Put what lives of a run into the batch; returns its bytes."""
        count = len(run.bodies)
        absent = set() if isinstance(run.flags, int) else _absent(run.bodies)
        alive: dict[int, list[int]] = {}
        for place, (queue_id, first) in enumerate(run.targets):
            if queue_id in dropped:
                continue
            ranges = self._index.alive(queue_id, self.segment, first, first + count - 1)
            ranges = without_ranges(ranges, gone.get(queue_id, []))
            seqs = [seq for low, high in ranges for seq in range(low, high + 1)]
            alive[place] = [seq - first for seq in seqs if seq - first not in absent]
        seen = self._seen if ticket < self._suspect_before else 0
        sizes = dict.fromkeys(alive, 0)
        for places, at, end in _blocks(alive, self._own(run, alive)):
            size = self._put(batch, run, places, (at, end), seen)
            for place in places:
                sizes[place] += size // len(places)
        for place, size in sizes.items():
            queue_id, first = run.targets[place]
            if alive[place]:
                batch.move(queue_id, first, first + count - 1, size, self.segment)
        return sum(sizes.values())

    def _own(self, run: AddRun, alive: dict[int, list[int]]) -> dict[int, set[int]]:
        """Return per place the indices whose message has changed: each has a record of its own."""
        own: dict[int, set[int]] = {}
        for place in alive:
            queue_id, first = run.targets[place]
            touched = self.changes.touched(queue_id, first, first + len(run.bodies) - 1)
            own[place] = {seq - first for seq in touched}
        return own

    def _put(
        self, batch: Batch, run: AddRun, places: Sequence[int], span: tuple[int, int], seen: int
    ) -> int:
        part = cut_run(run, *span)
        assert len(part.bodies) == span[1] - span[0] > 0, "a copy of nothing"
        targets = [part.targets[place] for place in places]
        flags = part.flags
        due = part.due
        if len(targets) == 1 and len(part.bodies) == 1:
            queue_id, seq = targets[0]
            was = flags if isinstance(flags, int) else flags[0]
            flags, due = self.changes.apply(queue_id, seq, was, due)
        if seen:
            flags = flags | seen if isinstance(flags, int) else [flag | seen for flag in flags]
        copy = AddRun(targets, part.bodies, flags, part.expires, part.accepted_ms, due)
        size = batch.copy(copy)
        self.copied += len(part.bodies) * len(targets)
        self.copied_bytes += size
        return size


def _removals(batches: Sequence[Batch]) -> dict[int, Ranges]:
    """Return per queue the ranges that these batches remove."""
    flat: dict[int, list[int]] = {}
    for batch in batches:
        for queue_id, ranges in batch.removes.items():
            flat.setdefault(queue_id, []).extend(ranges)
    return {queue_id: merged_ranges(ranges) for queue_id, ranges in flat.items()}


def _absent(bodies: Sequence[bytes | None]) -> set[int]:
    return {index for index, body in enumerate(bodies) if body is None}


def _fitting(run: AddRun, room: int, most: int) -> int:
    """Return how many bodies of a run fit; at least one."""
    if len(run.bodies) <= most and run_bound(run) <= room:
        return len(run.bodies)
    size = 0
    for count, body in enumerate(run.bodies[:most]):
        size += run_bound(cut_run(run, count, count + 1)) if body is not None else 0
        if count and size > room:
            return count
    return max(1, min(most, len(run.bodies)))


def _blocks(
    alive: dict[int, list[int]], own: dict[int, set[int]]
) -> list[tuple[tuple[int, ...], int, int]]:
    """Return (places, at, end): spans of a run that live in the same queues, unchanged.

    What has changed in one queue is a span of one message for that queue alone.
    """
    singles: list[tuple[tuple[int, ...], int, int]] = []
    together: dict[int, list[int]] = {}
    for place, indices in alive.items():
        for index in indices:
            if index in own[place]:
                singles.append(((place,), index, index + 1))
            else:
                together.setdefault(index, []).append(place)
    spans: list[tuple[tuple[int, ...], int, int]] = []
    for index in sorted(together):
        places = tuple(together[index])
        if spans and spans[-1][2] == index and spans[-1][0] == places:
            spans[-1] = places, spans[-1][1], index + 1
        else:
            spans.append((places, index, index + 1))
    return sorted(spans + singles, key=lambda span: span[1])


def _ignore(error: Exception) -> None:
    """Stand for a listener that is not there yet."""
