"""Core objects to storage records and back: the Store port over the journal, and replay at start.

Definitions are notes in the journal (`gateway.store.notes`); each segment begins with all that
hold, so that old segments can go. Streams keep their unsealed tail as a "queue" of their own
number.

The file `began` beside the segments holds the ticket of the clean stop that a process started from.
A process that only delivers and is killed writes nothing else, and the next start must know that
what it finds may have been seen.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.model.definitions import (
    AddressDefinition,
    CommitDefinition,
    Definition,
    DivertDefinition,
    IdsDefinition,
    PageGone,
    PagesDefinition,
    ProgressDefinition,
    QueueDefinition,
    StreamDefinition,
)
from gateway.model.message import EXPIRES, MAYBE_SEEN, SCHEDULED, Message
from gateway.model.pages import Fetched, FoundPages, UnreadablePageError
from gateway.model.run import Run, StoredRun
from gateway.store.notes import decode_definition, encode_definition, key_of
from gateway.store.paged_recovery import find_pages, ids_on_pages
from storage.compaction import CompactionRule
from storage.errors import StorageError
from storage.files import FileSystem, durable_replace, read_file, settle
from storage.journal import DEFAULT_SEGMENT_BYTES, Journal
from storage.page_reads import Answer, Fetches
from storage.pages import PageBlock, PageReader
from storage.record import AddRun
from storage.recovery import Recovered, Stored, recover
from storage.segments import segment_name, segment_number
from storage.writing import Writer

_BEGAN: Final = "began"
#: What the note of a stay in page mode begins with: `kind` is written first.
_PAGES_NOTE: Final = b'{"kind":"pages"'


@dataclass(slots=True)
class Restored:
    """What a start found: definitions that hold, and what lives.

    `messages` is per queue or stream id, in ascending seq. `accepted` has the same shape, in ms.
    `deleted` are the numbers of what was deleted, whose messages may still be in the journal.
    """

    queues: list[QueueDefinition] = field(default_factory=list)
    addresses: list[AddressDefinition] = field(default_factory=list)
    streams: list[StreamDefinition] = field(default_factory=list)
    messages: dict[int, list[Message]] = field(default_factory=dict)
    accepted: dict[int, list[int]] = field(default_factory=dict)
    highest: dict[int, int] = field(default_factory=dict)
    next_id: int = 1
    clean: bool = True
    torn_bytes: int = 0
    records: int = 0
    ids: list[IdsDefinition] = field(default_factory=list)
    diverts: list[DivertDefinition] = field(default_factory=list)
    page_stores: list[PagesDefinition] = field(default_factory=list)
    pages_gone: set[tuple[int, int]] = field(default_factory=set)
    pages: list[FoundPages] = field(default_factory=list)
    deleted: set[int] = field(default_factory=set)
    commits: list[CommitDefinition] = field(default_factory=list)
    progress: list[ProgressDefinition] = field(default_factory=list)


def _fetched(answer: Answer) -> Fetched:
    return answer if isinstance(answer, AddRun) else UnreadablePageError(str(answer))


class JournalStore:
    """Implements the broker's Store port."""

    def __init__(self, journal: Journal, reader: PageReader | None = None) -> None:
        """`reader`: of the page files; without one nothing was ever paged."""
        self.journal = journal
        self._reader = reader
        self.fetches: Fetches | None = None  # who reads pages beside the reactor
        self._blocks: dict[tuple[int, int, tuple[int, ...]], PageBlock] = {}
        self._blocks_ticket = 0
        self._atomic = 0
        self._last: AddRun | None = None  # of the atomic part that is under way
        self.snapshot: Callable[[], Sequence[Definition]] = tuple
        journal.rotation.snapshot = self._snapshot_notes
        self.append_run: Callable[[AddRun, int], int] = journal.append

    @property
    def ticket(self) -> int:
        return self.journal.ticket

    @property
    def unsynced(self) -> int:
        return self.journal.unsynced

    def first_unsynced(self, queue_id: int) -> tuple[int, int] | None:
        """See the Store port."""
        if self.journal.failure is not None:
            return self.journal.ticket, 0  # what the disk had when it failed nobody knows
        for batch in self.journal.waiting():
            seq = batch.first_seqs.get(queue_id)
            if seq is not None:
                return batch.number, seq
        return None

    @property
    def congested(self) -> bool:
        return self.journal.congested

    @property
    def relieved(self) -> bool:
        return self.journal.relieved

    def relax(self, queue_id: int) -> None:
        """See the Store port."""
        self.journal.lax.add(queue_id)

    def tighten(self, queue_id: int) -> None:
        """See the Store port."""
        self.journal.lax.discard(queue_id)

    def append(
        self, targets: Sequence[tuple[int, int]], run: StoredRun, size: int, now_ms: int
    ) -> int:
        """See the Store port."""
        return self.append_run(
            AddRun(targets, run.bodies, run.flags, run.expires, now_ms, run.due), size
        )

    def remove(self, queue_id: int, first: int, last: int, count: int) -> int:
        """See the Store port."""
        return self.journal.remove(queue_id, first, last, count)

    def replace(self, queue_id: int, first: int, last: int, count: int) -> int:
        """See the Store port."""
        return self.journal.remove(queue_id, first, last, count, consumed=False)

    def count(self, queue_id: int, entries: Sequence[tuple[int, int]]) -> int:
        """See the Store port."""
        return self.journal.count(queue_id, entries)

    def postpone(self, queue_id: int, entries: Sequence[tuple[int, int]]) -> int:
        """See the Store port."""
        return self.journal.postpone(queue_id, entries)

    def page(
        self,
        place: tuple[int, int, int],
        targets: Sequence[tuple[int, int]],
        run: Run,
        now_ms: int,
    ) -> PageBlock:
        """See the PageStore port: runs of one batch for the same queues share a block."""
        store, page, blocks = place
        ticket = self.journal.make_room()
        if ticket != self._blocks_ticket:
            self._blocks_ticket = ticket
            self._blocks = {}
        key = store, page, tuple([queue_id for queue_id, _ in targets])
        block = self._blocks.get(key)
        if block is None or not block.continues(targets, run.due):
            block = self._blocks[key] = PageBlock(store, page, blocks, targets, now_ms)
            block.due = run.due
            self.journal.append_block(block)
        block.extend(run.bodies, run.flags, run.expires, run.size)
        self.journal.grow_pages(run.size)
        return block

    def read_page(self, place: tuple[int, int], offset: int, length: int) -> AddRun:
        """See the PageStore port."""
        assert self._reader is not None, "no place for pages"
        try:
            return self._reader.read(*place, offset, length)
        except (OSError, StorageError) as error:
            raise UnreadablePageError(str(error)) from error

    def fetch_page(
        self, place: tuple[int, int], offset: int, length: int, done: Callable[[Fetched], None]
    ) -> None:
        """See the PageStore port; without `fetches` the answer comes inside this call."""
        if self.fetches is not None:
            self.fetches.fetch(place, offset, length, lambda answer: done(_fetched(answer)))
            return
        try:
            run: Fetched = self.read_page(place, offset, length)
        except UnreadablePageError as error:
            run = error
        done(run)

    def remove_paged(self, queue_id: int, first: int, last: int) -> int:
        """See the PageStore port."""
        return self.journal.remove_paged(queue_id, first, last)

    def drop_pages(self, store_id: int, pages: Sequence[int]) -> None:
        """See the PageStore port."""
        if self._reader is not None:
            self._reader.forget(store_id, pages)
        if self.fetches is not None:
            self.fetches.forget(store_id, pages)
        self.journal.drop_pages(store_id, pages)

    def close_pages(self) -> None:
        """Close the page files that are open for reading."""
        if self._reader is not None:
            self._reader.close()
        if self.fetches is not None:
            self.fetches.stop()

    def define(self, definition: Definition) -> int:
        """See the Store port."""
        return self.journal.note(encode_definition(definition))

    def undefine(self, definition: Definition) -> int:
        """See the Store port."""
        match definition:
            case QueueDefinition():
                self.journal.forget(definition.queue_id)
                self.journal.lax.discard(definition.queue_id)
            case StreamDefinition():
                self.journal.forget(definition.stream_id)
            case IdsDefinition():
                self.journal.forget(definition.ids_id)
            case AddressDefinition() | PagesDefinition() | PageGone() | DivertDefinition():
                pass  # the journal's segments hold nothing of it
            case CommitDefinition() | ProgressDefinition():
                pass  # nor of these
        return self.journal.note(encode_definition(definition, gone=True))

    def begin_atomic(self) -> None:
        """See the Store port; calls may nest."""
        if not self._atomic:
            self._last = None
            self.append_run = self._append_shared
            self.journal.make_room()
        self._atomic += 1
        self.journal.begin_atomic()

    def end_atomic(self) -> None:
        """See the Store port."""
        self._atomic -= 1
        if not self._atomic:
            self._last = None
            self.append_run = self.journal.append
            self.journal.end_atomic()

    def _append_shared(self, run: AddRun, size: int) -> int:
        """Store a run, once where the same bodies go to one address after another."""
        last = self._last
        if (
            last is not None
            and last.bodies is run.bodies
            and (last.flags, last.expires, last.due) == (run.flags, run.expires, run.due)
            and last.accepted_ms == run.accepted_ms
        ):
            return self.journal.share(last, run.targets)
        self._last = run
        return self.journal.append(run, size)

    def flush(self) -> None:
        """See the Store port."""
        self.journal.flush()

    def release_stream(self, stream_id: int, first: int, last: int) -> None:
        """A range of a stream's tail is safe in its Arrow log: the journal may forget it."""
        self.journal.remove(stream_id, first, last, last - first + 1)
        self.journal.flush()

    def _snapshot_notes(self) -> list[bytes]:
        return [encode_definition(d) for d in self.snapshot()]


def open_journal(
    fs: FileSystem,
    directory: str,
    segment_bytes: int = DEFAULT_SEGMENT_BYTES,
    rule: CompactionRule | None = None,
    *,
    paging: str | None = None,
) -> tuple[Journal, Restored]:
    """Return the journal in `directory`, ready for its writer, and what it held.

    The directory is made when it is not there, and so is `paging`, that of the page files.

    Raises DamageError, FormatError, StorageError, OSError.
    """
    fs.mkdir(directory)
    # A process that was killed leaves names that are seen and not yet on the device. What is built
    # on them here must not outlive them.
    fs.fsync_dir(directory)
    found = recover(_segments(fs, directory))
    _mark_begun(fs, posixpath.join(directory, _BEGAN), found)
    journal = Journal(
        next_ticket=found.ticket + 1,
        next_segment=found.segment + 1,
        segment_bytes=segment_bytes,
        suspect=not found.clean,
        rule=rule or CompactionRule(),
        seen=MAYBE_SEEN,
        suspect_before=found.suspect,
    )
    for number in found.segments:
        journal.index.open_segment(number, found.used.get(number, 0))
    restored = restore(found)
    alive = {d.queue_id for d in restored.queues} | {d.stream_id for d in restored.streams}
    alive |= {d.ids_id for d in restored.ids}
    for queue_id, held in found.queues.items():
        if queue_id in alive:
            _index(journal, queue_id, held, clean=found.clean)
    if paging is not None:
        restored.pages = find_pages(fs, paging, found, restored.page_stores, restored.pages_gone)
        # Pages also name queues that nothing else remembers: nobody else may have their numbers.
        restored.next_id = max(restored.next_id, *ids_on_pages(restored.pages))
    return journal, restored


def _index(journal: Journal, queue_id: int, held: Mapping[int, Stored], *, clean: bool) -> None:
    """Tell the journal where what it held lies, and what differs there from what holds now."""
    changes = journal.compaction.changes
    for seq in sorted(held):  # a copy that was carried forward stands behind younger ones
        stored = held[seq]
        journal.index.added(queue_id, seq, seq, stored.segment, 1, size=stored.size)
        if stored.changed:
            seen = MAYBE_SEEN if stored.suspect or not clean else 0
            changes.count(queue_id, [(seq, stored.flags | seen)])
            if stored.flags & SCHEDULED:
                changes.postpone(queue_id, [(seq, stored.due)])


def _segments(fs: FileSystem, directory: str) -> Iterator[tuple[int, str, bytes]]:
    numbers = sorted(n for n in map(segment_number, fs.listdir(directory)) if n is not None)
    for number in numbers:
        path = posixpath.join(directory, segment_name(number))
        settle(fs, path)
        yield number, path, read_file(fs, path)


def _mark_begun(fs: FileSystem, path: str, found: Recovered) -> None:
    """See to it that the clean stop which was found counts for this start only."""
    paged = found.pages or any(note.startswith(_PAGES_NOTE) for note in found.notes)
    if not found.clean or not (paged or any(found.queues.values())):
        return
    if fs.exists(path) and _number(read_file(fs, path)) in (None, found.ticket):
        found.clean = False
    else:
        durable_replace(fs, path, b"%d" % found.ticket)


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None


def restore(found: Recovered) -> Restored:
    """Turn what the journal held into definitions and messages."""
    restored = Restored(
        clean=found.clean, torn_bytes=found.torn_bytes, records=found.records, highest=found.highest
    )
    # Also those that nothing defines any more: their messages may still be there.
    restored.next_id = max(found.highest, default=0) + 1
    known: dict[tuple[str, object], Definition] = {}
    for note in found.notes:
        definition, gone = decode_definition(note)
        key = key_of(definition)
        if isinstance(key[1], int):
            restored.next_id = max(restored.next_id, key[1] + 1)
            (restored.deleted.add if gone else restored.deleted.discard)(key[1])
        if gone:
            known.pop(key, None)
        else:
            known[key] = definition
    places: dict[type, Callable[[Any], None]] = {
        QueueDefinition: restored.queues.append,
        AddressDefinition: restored.addresses.append,
        StreamDefinition: restored.streams.append,
        DivertDefinition: restored.diverts.append,
        IdsDefinition: restored.ids.append,
        CommitDefinition: restored.commits.append,
        ProgressDefinition: restored.progress.append,
        PagesDefinition: restored.page_stores.append,
        PageGone: lambda gone: restored.pages_gone.add((gone.store_id, gone.page)),
    }
    for definition in known.values():
        places[type(definition)](definition)
    for queue_id, held in found.queues.items():
        restored.messages[queue_id] = _messages(held, clean=found.clean)
        restored.accepted[queue_id] = [held[m.seq].accepted_ms for m in restored.messages[queue_id]]
    return restored


def _messages(held: Mapping[int, Stored], *, clean: bool) -> list[Message]:
    """Return recovered messages; after an unclean stop a consumer may have seen each of them."""
    extra = 0 if clean else MAYBE_SEEN
    messages: list[Message] = []
    for seq in sorted(held):
        stored = held[seq]
        seen = MAYBE_SEEN if stored.suspect else extra
        message = Message(stored.body, seq, stored.flags | seen)
        if stored.flags & EXPIRES:
            message.expires = stored.expires
        if stored.flags & SCHEDULED:
            message.due = stored.due
        messages.append(message)
    return messages


__all__ = ["JournalStore", "Restored", "Writer", "open_journal"]
