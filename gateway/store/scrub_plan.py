"""What a scrub reads, in what order, whom damage concerns, and what memory can give back.

First the journal, without which nothing starts, then pages, then the Arrow files of streams.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from twisted.internet.interfaces import IReactorTime

from gateway.broker import Gateway
from gateway.model.message import DURABLE, EXPIRES, IDENTIFIED, PAGED, SCHEDULED, SHARED, Message
from gateway.paging.paging import Paging
from gateway.queues.queue import Queue
from gateway.store.paged_recovery import QUARANTINE
from gateway.store.scrubber import Item, RunBlocking, Scrubber
from gateway.streams.registry import StreamRegistry
from gateway.streams.tap import Tap
from storage.arrow_log import ArrowLog
from storage.arrow_segment import LogFile
from storage.compaction import Ranges
from storage.files import FileSystem
from storage.journal import Journal
from storage.pages import page_name
from storage.quarantine import keep_copy
from storage.record import AddRun
from storage.scrub import Check, Place, check_journal_file, check_log_file, check_page
from storage.segments import segment_name

#: One record of what memory gives back holds at most so many messages.
_RUN_MAX: Final = 1024
#: What a message in memory has and its record has not.
_NOT_STORED: Final = SHARED | PAGED | IDENTIFIED

_JOURNAL_ADVICE: Final = (
    "What lives in the file is being written to another one, from memory where it cannot be read; "
    "then it goes. Until it is gone from this list do not stop the gateway: the next start would "
    "refuse the file. Messages that a consumer holds are waited for. Look after the disk."
)
_PAGE_ADVICE: Final = (
    "What the gateway cannot read of it when its turn comes is lost and counted; nothing else is "
    "touched. Have it sent again if you can. Look after the disk."
)
_STREAM_ADVICE: Final = (
    "Readers of these offsets are refused with the file's name; others are not touched. Stop the "
    "gateway and put back a copy of the file, or have it read again from its source. Look after "
    "the disk."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The parts of a core that a scrub reads, and where they are."""

    files: FileSystem
    broker: Gateway
    journal: Journal
    streams: StreamRegistry
    journal_directory: str
    paging_directory: str
    quarantine: str

    def plan(self) -> list[Item]:
        """Return all files there are."""
        return [*self.segments(), *self.pages(), *self.logs()]

    def segments(self) -> Iterator[Item]:
        """Go through the journal's files, oldest first."""
        for number in sorted(self.journal.index.live):
            yield SegmentItem(self, number)

    def pages(self) -> Iterator[Item]:
        """Go through the pages of all addresses."""
        for name in sorted(self.broker.addresses):
            paging = self.broker.addresses[name].paging
            if paging is not None:
                for number in sorted(paging.pages):
                    yield PageItem(self, paging, number)

    def logs(self) -> Iterator[Item]:
        """Go through the files of all streams."""
        for tap in self.streams.all():
            if isinstance(tap.log, ArrowLog):
                for file in tap.log.files():
                    yield LogItem(self, tap, tap.log, file)

    def named(self, counts: Mapping[int, int]) -> dict[str, int]:
        """Return counts by name instead of by number."""
        names = {queue.queue_id: queue.name for queue in self.broker.queues.values()}
        names |= {t.stream.stream_id: f"stream {t.stream.name}" for t in self.streams.all()}
        names |= self.broker.routing.duplicates.names()
        return {names.get(number, f"queue {number}"): n for number, n in sorted(counts.items())}


class SegmentItem:
    """A file of the journal; see `Item`."""

    kind = "journal"
    advice = _JOURNAL_ADVICE

    def __init__(self, stored: Stored, number: int) -> None:
        self._stored = stored
        self._number = number
        self.path = posixpath.join(stored.journal_directory, segment_name(number))
        self.size = stored.journal.index.used.get(number, 0)

    def check(self, found: list[Place]) -> Check:
        """See Item; up to what is synced now."""
        stored = self._stored
        directory = stored.journal_directory
        return check_journal_file(stored.files, directory, self._number, stored.journal, found)

    def is_here(self) -> bool:
        """See Item."""
        return self._number in self._stored.journal.index.live

    def affected(self, places: Sequence[Place]) -> Mapping[str, int]:
        """See Item; what lives in the file, since nothing says what of it is in those bytes."""
        living = self._stored.journal.index.living(self._number)
        return self._stored.named({number: _count(ranges) for number, ranges in living.items()})

    def keep(self) -> str:
        """See Item."""
        return keep_copy(self._stored.files, self.path, self._stored.quarantine)

    def repair(self, places: Sequence[Place]) -> None:
        """See Item; messages that are in memory are written to another file."""
        self._stored.journal.empty(self._number, {place.offset: place.end for place in places})


class PageItem:
    """A page; see `Item`. It is not repaired: what is in memory stays there."""

    kind = "page"
    advice = _PAGE_ADVICE

    def __init__(self, stored: Stored, paging: Paging, number: int) -> None:
        self._stored = stored
        self._paging = paging
        self._number = number
        name = page_name(paging.store_id, number)
        self.path = posixpath.join(stored.paging_directory, name)
        self.size = paging.pages[number].size

    def check(self, found: list[Place]) -> Check:
        """See Item."""
        page = self._paging.pages[self._number]
        place = self._paging.store_id, self._number
        directory = self._stored.paging_directory
        return check_page(self._stored.files, directory, place, len(page.offsets), found)

    def is_here(self) -> bool:
        """See Item."""
        # An address that ended page mode has another `Paging` when it begins again.
        address = self._stored.broker.addresses.get(self._paging.address)
        there = address is not None and address.paging is self._paging
        return there and self._number in self._paging.pages

    def affected(self, places: Sequence[Place]) -> Mapping[str, int]:
        """See Item; what the queues are not done with in the damaged blocks."""
        page = self._paging.pages[self._number]
        blocks = {
            block
            for block, (offset, length) in enumerate(zip(page.offsets, page.lengths, strict=True))
            if any(_overlaps(place, offset, offset + length) for place in places)
        }
        counts: dict[int, int] = {}
        for number, part in page.parts.items():
            seqs = [
                (max(low, first), min(high, last))
                for low, high in part.waiting(part.floor)
                for first, last in _spans(part.blocks_from(low), low, blocks)
                if first <= high
            ]
            if seqs:
                counts[number] = _count(seqs)
        return self._stored.named(counts)

    def keep(self) -> str:
        """See Item."""
        directory = posixpath.join(self._stored.paging_directory, QUARANTINE)
        return keep_copy(self._stored.files, self.path, directory)

    def repair(self, places: Sequence[Place]) -> None:
        """See Item."""


class LogItem:
    """An Arrow file of a stream, with its index; see `Item`. It is not repaired."""

    kind = "stream"
    advice = _STREAM_ADVICE

    def __init__(self, stored: Stored, tap: Tap, log: ArrowLog, file: LogFile) -> None:
        self._stored = stored
        self._tap = tap
        self._log = log
        self._file = file
        self.path = file.path
        self.size = sum(ref.size for ref in file.blocks) + len(file.index)

    def check(self, found: list[Place]) -> Check:
        """See Item; as it is now, since it may have grown."""
        now = [file for file in self._log.files() if file.path == self.path]
        self._file = now[0] if now else self._file
        return check_log_file(self._stored.files, self._file, found)

    def is_here(self) -> bool:
        """See Item."""
        return not self._tap.deleted and self._log.holds(self.path)

    def affected(self, places: Sequence[Place]) -> Mapping[str, int]:
        """See Item; the rows of the damaged blocks, or all where the file itself is."""
        offsets = [place.offset for place in places if place.path == self.path]
        hit = [ref for ref in self._file.blocks if ref.position in offsets]
        whole = len(hit) < len(places)
        rows = sum(ref.rows for ref in (self._file.blocks if whole else hit))
        return {f"stream {self._tap.stream.name}": rows}

    def keep(self) -> str:
        """See Item."""
        stored = self._stored
        copies = [
            keep_copy(
                stored.files,
                path,
                stored.quarantine,
                f"stream-{self._tap.stream.stream_id}-{posixpath.basename(path)}",
            )
            for path in (self._file.path, self._file.index_path)
        ]
        return copies[0]

    def repair(self, places: Sequence[Place]) -> None:
        """See Item."""


def _overlaps(place: Place, start: int, end: int) -> bool:
    """Whether a place reaches into a range; one without an end reaches to the end of the file."""
    return place.offset < end and (not place.end or place.end > start)


def _spans(
    blocks: Iterable[tuple[int, int]], first: int, wanted: set[int]
) -> Iterator[tuple[int, int]]:
    """Yield (first, last) seq of those blocks, given as (block, last seq), that are wanted."""
    for block, last in blocks:
        if block in wanted:
            yield first, last
        first = last + 1


def _count(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(high - low + 1 for low, high in ranges)


def make_scrubber(
    stored: Stored, threads: RunBlocking, timer: IReactorTime, *, rate: int, period: float
) -> Scrubber:
    """Return the scrub of a core, and let the journal take from memory what has rotted."""
    now_ms = stored.broker.now_ms
    scrubber = Scrubber(stored.plan, threads, timer, now_ms, rate=rate, period=period)
    journal, compaction = stored.journal, stored.journal.compaction
    scrubber.on_waiting = journal.go_on
    compaction.recall = lambda wanted: recall(stored.broker, wanted)
    told = compaction.on_failed

    def failed(error: Exception) -> None:
        told(error)
        scrubber.suspect()

    compaction.on_failed = failed
    return scrubber


# ---- what memory has of the journal


def recall(broker: Gateway, wanted: Mapping[int, Ranges]) -> list[AddRun]:
    """Return what queues and duplicate ids hold in memory of these seqs, as records.

    What a consumer holds is not there: it comes back or is done. A stream's tail is not either: it
    goes to the stream's own files within seconds.
    """
    queues = {queue.queue_id: queue for queue in broker.queues.values()}
    now_ms = broker.now_ms()
    runs: list[AddRun] = []
    for number, ranges in wanted.items():
        queue = queues.get(number)
        if queue is not None:
            runs += _runs(number, _held(queue, ranges), now_ms)
        else:
            keys = broker.routing.duplicates.recall(number)
            found = [Message(key, seq, flags) for seq, key, flags in keys if _within(seq, ranges)]
            runs += _runs(number, found, now_ms)
    return runs


def _held(queue: Queue, ranges: Ranges) -> list[Message]:
    found = [
        message
        for message in chain(queue.holdings(), queue.storing())
        if message.flags & DURABLE and not message.flags & PAGED and _within(message.seq, ranges)
    ]
    found.sort(key=lambda message: message.seq)
    return found


def _within(seq: int, ranges: Ranges) -> bool:
    at = bisect_right(ranges, seq, key=lambda pair: pair[0]) - 1
    return at >= 0 and seq <= ranges[at][1]


def _runs(number: int, messages: Sequence[Message], now_ms: int) -> Iterator[AddRun]:
    """Join messages, in ascending seq, to records: neighbours that are due at the same time."""
    start = 0
    for at in range(1, len(messages) + 1):
        before = messages[at - 1]
        if at < len(messages) and at - start < _RUN_MAX:
            message = messages[at]
            if message.seq == before.seq + 1 and _due(message) == _due(before):
                continue
        run = messages[start:at]
        yield AddRun(
            [(number, run[0].seq)],
            [message.body for message in run],
            [message.flags & ~_NOT_STORED for message in run],
            [message.expires if message.flags & EXPIRES else 0 for message in run],
            now_ms,
            _due(run[0]),
        )
        start = at


def _due(message: Message) -> int:
    return message.due if message.flags & SCHEDULED else 0
