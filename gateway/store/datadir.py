"""A data directory looked at from outside: survey, salvage, compaction of what no gateway runs on.

`look` changes nothing and works beside a running gateway, whose files come and go meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import posixpath
import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway import __version__
from gateway.model.definitions import (
    AddressDefinition,
    Definition,
    IdsDefinition,
    QueueDefinition,
    StreamDefinition,
)
from gateway.store.notes import decode_definition
from gateway.store.orphans import adopted_name, orphaned
from gateway.store.page_rescue import Rescue, look_for_pages
from gateway.store.paged_recovery import known_blocks
from gateway.store.persistence import JournalStore, open_journal, restore
from storage.ballast import NAME as BALLAST
from storage.compaction import CompactionRule
from storage.errors import StorageError
from storage.files import FileSystem, RealFiles, read_file
from storage.lock import DirectoryLock
from storage.page_scan import scan_page
from storage.pages import page_name
from storage.record import AddRun, Record, Remove, decode_records
from storage.salvage import salvage
from storage.segments import Segments, segment_name, segment_number
from storage.spares import spare_number
from storage.survey import Survey, survey
from storage.writer import ThreadWriter

QUARANTINE: Final = "quarantine"
#: A running gateway may take files away while they are read: then all is read again.
_TRIES: Final = 10
#: Files with less than this percentage alive are worth writing anew.
_ALIVE_PERCENT: Final = 75
#: What of a file is used, at least, when large messages do not fit its rest.
_FILLED_PERCENT: Final = 90


class MissingJournalError(StorageError):
    """There is no journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """What a salvage found and did; `copies` are the files in the quarantine.

    `rescue` is what it took back of pages that the journal had lost.
    """

    seen: Survey
    copies: list[str]
    rescue: Rescue


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The directories of one gateway: `data` has its lock."""

    data: str
    journal: str
    paging: str


def places_below(data: str) -> Places:
    """Return where everything is unless the configuration says otherwise."""
    journal, paging = (posixpath.join(data, name) for name in ("journal", "paging"))
    return Places(data=data, journal=journal, paging=paging)


def journal_of(places: Places) -> str:
    """Return where the journal is. Raises MissingJournalError."""
    if not os.path.isdir(places.journal):  # noqa: PTH112 - the file port takes texts
        text = f"There is no journal in {places.data}: {places.journal} is no directory."
        raise MissingJournalError(text)
    return places.journal


def owner_of(data: str) -> str | None:
    """Return who has the data directory, None when nobody does. Changes nothing."""
    try:
        fd = os.open(posixpath.join(data, "lock"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 200, 0).decode("utf-8", "replace").strip() or "another process"
    else:
        return None
    finally:
        os.close(fd)


def look(directory: str) -> Survey:
    """Read the whole journal. Raises FormatError, OSError."""
    fs = RealFiles()
    for _ in range(_TRIES):
        try:
            return survey(_files(fs, directory))
        except FileNotFoundError:
            continue  # a running gateway had no more need of it
    return survey(_files(fs, directory))


def _files(fs: FileSystem, directory: str) -> Iterator[tuple[int, str, bytes]]:
    numbers = sorted(n for n in map(segment_number, fs.listdir(directory)) if n is not None)
    for number in numbers:
        path = posixpath.join(directory, segment_name(number))
        yield number, path, read_file(fs, path)


#: Before the name of an address: what its duplicate ids are called.
IDS_OF: Final = "duplicate ids of "


def names_of(seen: Survey) -> dict[int, str]:
    """Return per queue or stream id what people call it; those that are gone are not in it."""
    names: dict[int, str] = {}
    for note in seen.found.notes:
        definition, gone = decode_definition(note)
        match definition:
            case QueueDefinition():
                number, name = definition.queue_id, definition.name
            case IdsDefinition():
                number, name = definition.ids_id, IDS_OF + definition.address
            case StreamDefinition():
                number, name = definition.stream_id, f"stream {definition.name}"
            case _:
                continue
        if gone:
            names.pop(number, None)
        else:
            names[number] = name
    held = [number for number, messages in seen.found.queues.items() if messages]
    names |= {number: adopted_name(number) for number in orphaned(held, restore(seen.found))}
    return names


def records_of(seen: Survey) -> Iterator[tuple[str, int, int, Record]]:
    """Yield (file name, offset, batch, record) of all that is whole."""
    for facts in seen.segments:
        for number, offset, payload in facts.batches:
            for record in decode_records(payload):
                yield posixpath.basename(facts.path), offset, number, record


def describe(record: Record) -> str:
    """Return one line for people; bodies are told by their size."""
    match record:
        case AddRun():
            size = sum(len(body) for body in record.bodies if body is not None)
            count = len(record.bodies)
            places = [f"{q}:{first}-{first + count - 1}" for q, first in record.targets]
            return f"add {' '.join(places)} {size} B"
        case Remove():
            pairs = zip(record.ranges[::2], record.ranges[1::2], strict=True)
            return f"remove {record.queue_id}:{','.join(f'{a}-{b}' for a, b in pairs)}"
        case _:
            return str(record)


def repair(places: Places, make_uuid: Callable[[], bytes]) -> Salvaged:
    """Salvage the journal of a data directory that nobody runs on.

    Raises LockedError naming the owner, FormatError, OSError.
    """
    fs = RealFiles()
    fs.mkdir(places.data)
    fs.mkdir(places.journal)
    lock = DirectoryLock(places.data, f"process {os.getpid()} (sluicegate {__version__}, salvage)")
    try:
        seen = look(places.journal)
        rescue = look_for_pages(fs, places.paging, seen)
        quarantine = posixpath.join(places.data, QUARANTINE)
        copies = salvage(fs, seen, quarantine, make_uuid, instead=rescue.records())
        return Salvaged(seen=seen, copies=copies, rescue=rescue)
    finally:
        lock.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a compaction found and left; sizes are those that the disk has given, in bytes."""

    before: Survey
    after: Survey
    allocated_before: int
    allocated_after: int


def compact(places: Places, segment_bytes: int, make_uuid: Callable[[], bytes]) -> Compacted:
    """Carry forward what lives, so that old files go, and give back all that holds nothing.

    A gateway makes files ahead and keeps a ballast; both go, and the next start makes them again.

    Raises LockedError naming the owner, DamageError, StorageError, OSError.
    """
    directory = journal_of(places)
    lock = DirectoryLock(
        places.data, f"process {os.getpid()} (sluicegate {__version__}, compaction)"
    )
    try:
        before = look(directory)
        if before.found.pages or restore(before.found).page_stores:
            raise StorageError(
                "Messages of this data directory are on pages; a running gateway compacts it."
            )
        allocated = _allocated(directory)
        # First of all: on a full disk this is the room that the copies need.
        _drop_reserves(directory)
        if _worth_it(before, segment_bytes):
            _compact(directory, segment_bytes, make_uuid)
            _drop_reserves(directory)
        after = look(directory)
        _cut(after)
        return Compacted(
            before=before,
            after=after,
            allocated_before=allocated,
            allocated_after=_allocated(directory),
        )
    finally:
        lock.release()


def _worth_it(seen: Survey, segment_bytes: int) -> bool:
    """Whether fewer or smaller files would do."""
    live = sum(size for _, size in seen.live().values())
    used = sum(facts.used for facts in seen.segments)
    needed = 1 + live * 100 // (segment_bytes * _FILLED_PERCENT)
    crowded = len(seen.segments) > needed or live * 100 < used * _ALIVE_PERCENT
    return crowded or not seen.found.clean


def _drop_reserves(directory: str) -> None:
    """Unlink the ballast and what was made ahead."""
    fs = RealFiles()
    for name in fs.listdir(directory):
        if name == BALLAST or spare_number(name) is not None:
            fs.unlink(posixpath.join(directory, name))
    fs.fsync_dir(directory)


def _cut(seen: Survey) -> None:
    """Give back what is behind the last batch of each file: nobody writes there any more."""
    fs = RealFiles()
    for facts in seen.segments:
        if facts.damaged or facts.used >= facts.size:
            continue
        fd = fs.open(facts.path)
        try:
            fs.truncate(fd, facts.used)
            fs.fsync(fd)
        finally:
            fs.close(fd)


def _allocated(directory: str) -> int:
    """Return what the files of a directory take on the disk."""
    return sum(entry.stat().st_blocks * 512 for entry in os.scandir(directory))


def _compact(directory: str, segment_bytes: int, make_uuid: Callable[[], bytes]) -> None:
    fs = RealFiles()
    last = max(segment_number(name) or 0 for name in fs.listdir(directory))
    rule = CompactionRule(min_files=1, through=last)
    journal, restored = open_journal(fs, directory, segment_bytes, rule)
    store = JournalStore(journal)
    definitions: list[Definition] = [*restored.queues, *restored.addresses, *restored.streams]
    definitions += [*restored.ids, *restored.diverts, *restored.commits, *restored.progress]
    store.snapshot = lambda: definitions
    answers: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    failures: list[BaseException] = []
    compaction = journal.compaction
    journal.on_failed = compaction.on_failed = failures.append
    segments = Segments(fs, directory, make_uuid)
    journal.start(ThreadWriter(journal, segments, answers.put, segment_bytes))
    stopped: list[bool] = []
    # Something has to be written: the first batch opens a file, from then on the others are old.
    store.define(AddressDefinition(name="", routing_types=frozenset()))
    store.undefine(AddressDefinition(name="", routing_types=frozenset()))
    journal.flush()
    while not failures and (journal.writing or compaction.under_way(journal.synced)):
        answers.get()()
    journal.close(lambda: stopped.append(True))
    while not stopped:
        answers.get()()
    if failures:
        raise StorageError(f"The compaction stopped: {failures[0]}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """One page file that the journal knows; `damage` says what is wrong with it, if anything."""

    path: str
    address: str
    size: int
    blocks: int
    messages: int
    damage: str


def look_at_pages(places: Places, seen: Survey) -> list[PageFacts]:
    """Read all pages that the journal knows. Raises OSError.

    `messages` counts each once, whether its queues are done with it or not. A running gateway may
    take pages away meanwhile: what is not there is told only where nobody has the directory.
    """
    fs, directory = RealFiles(), places.paging
    restored = restore(seen.found)
    busy = owner_of(places.data) is not None
    facts = []
    for definition in restored.page_stores:
        store = definition.store_id
        for page, count in sorted(known_blocks(definition, seen.found.pages).items()):
            path = posixpath.join(directory, page_name(store, page))
            gone = not count or (store, page) in restored.pages_gone
            if gone or (busy and not fs.exists(path)):
                continue
            scanned = scan_page(fs, directory, store, page, count)
            messages = sum([len(block.sizes) for block in scanned.blocks if not block.lost])
            facts.append(
                PageFacts(
                    path=path,
                    address=definition.address,
                    size=scanned.size,
                    blocks=count,
                    messages=messages,
                    damage=scanned.damage,
                )
            )
    for lost in look_for_pages(fs, directory, seen).pages:
        path = posixpath.join(directory, page_name(lost.store, lost.page))
        facts.append(
            PageFacts(
                path=path,
                address=lost.address,
                size=len(read_file(fs, path)),
                blocks=lost.blocks,
                messages=lost.messages,
                damage="what the journal said of it is damaged; run --salvage takes it back",
            )
        )
    return facts


def lost_by_name(seen: Survey) -> dict[str, int]:
    """Return per queue how many messages are missing, at most; `queue 7` when it has no name."""
    names = names_of(seen)
    return {names.get(number, f"queue {number}"): n for number, n in sorted(seen.lost().items())}


def counts_by_name(seen: Survey) -> dict[str, tuple[int, int]]:
    """Return per queue and stream that exists how many messages it has, and their bytes."""
    restored = restore(seen.found)
    counts = {}
    for number, name in names_of(seen).items():
        messages = restored.messages.get(number, [])
        counts[name] = len(messages), sum(len(message.body) for message in messages)
    return dict(sorted(counts.items()))
