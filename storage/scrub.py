"""Reads what lies on the disk and is not needed now, to see whether it is still what was written.

Journal files, pages and the Arrow files of streams, a piece at a time: whoever drives a check
decides how fast. A check is a generator that yields how many bytes it has just read from the device
(the cache is dropped first), and adds to a list each place that is damaged. It changes nothing, and
may run beside whoever writes: it judges only what was synced when it began.

Each flipped bit of what was synced is found: all of it is under a checksum, or, in an Arrow file's
index, known byte for byte. What lies behind the last batch of a file is leftover and not judged.

A file that is taken away meanwhile raises FileNotFoundError where it is opened. A journal file may
be used again while it is read: whoever drives the check asks, when it tells of damage, whether the
file is still the journal's.
"""

from __future__ import annotations

import posixpath
import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

from storage.arrow_index import END_MARK
from storage.arrow_segment import SCHEMA_MESSAGE, LogFile
from storage.errors import PageDamageError
from storage.files import FileSystem
from storage.journal import Journal
from storage.pages import PAGE_HEADER_BYTES, decode_page_header, page_name, page_uuid
from storage.record import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    SEGMENT_HEADER_BYTES,
    BatchHead,
    decode_batch_head,
    decode_segment_header,
    salt_of,
)
from storage.segments import segment_name

#: What is read at a time: bounds how long one step takes.
SLICE: Final = 256 << 10
_MAGIC: Final = BATCH_MAGIC.to_bytes(4, "little")

#: A check: yields bytes read, and is done when it returns.
Check = Generator[int, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Bytes that are not what was written, from `offset` to before `end` (0: not known)."""

    path: str
    offset: int
    end: int
    what: str


class _File:
    """A file that is read in slices."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path
        self.at = 0  # where it was read last
        self._fs = fs
        self._fd = fs.open(path, write=False)
        fs.drop_cache(self._fd)
        self._base = 0
        self._data = b""

    def close(self) -> None:
        """Close it; what was read is nobody else's business to have in memory."""
        self._fs.drop_cache(self._fd)
        self._fs.close(self._fd)

    def size(self) -> int:
        return self._fs.size(self._fd)

    def take(self, offset: int, count: int) -> Generator[int, None, bytes]:
        """Return `count` bytes (at most SLICE), fewer at the end of the file."""
        assert offset >= 0, f"bytes from {offset} on"
        assert 0 <= count <= SLICE, f"{count} bytes at a time"
        start = offset - self._base
        if start < 0 or start + count > len(self._data):
            self.at = offset
            self._base, self._data = offset, self._fs.pread(self._fd, SLICE, offset)
            yield len(self._data)
            start = 0
        return self._data[start : start + count]

    def checksum(self, offset: int, length: int, start: int) -> Generator[int, None, int | None]:
        """Return the CRC of a range, begun with `start`; None when the file ends before."""
        end = offset + length
        while offset < end:
            part = yield from self.take(offset, min(SLICE, end - offset))
            if not part:
                return None
            start = zlib.crc32(part, start)
            offset += len(part)
        return start

    def is_zero(self) -> Generator[int, None, bool]:
        """Whether there is nothing but zeros."""
        offset = 0
        while part := (yield from self.take(offset, SLICE)):
            if part.count(0) != len(part):
                return False
            offset += len(part)
        return True


class _Batches:
    """Batches one behind the other, numbered without a gap: of a journal file, or of a page."""

    def __init__(
        self, file: _File, uuid: bytes, words: tuple[str, str], found: list[Place]
    ) -> None:
        self._file = file
        self._uuid = uuid
        self._word, self._words = words
        self._found = found

    def check(self, offset: int, number: int, last: int | None) -> Check:
        """Go through those from `number` to `last`; None: as far as there are any."""
        while last is None or number <= last:
            head = yield from self._head(offset)
            if (
                head is not None
                and head.number == number
                and (yield from self._whole(offset, head))
            ):
                offset += BATCH_HEADER_BYTES + head.length
                number += 1
                continue
            following = yield from self._following(offset, head, (number, last))
            if following is None:
                if last is not None:
                    self._tell(offset, 0, number, last)
                return
            self._tell(offset, following[0], number, following[1] - 1)
            offset, number = following

    def _tell(self, offset: int, end: int, first: int, last: int) -> None:
        word = self._word
        which = f"{word} {first} is" if last == first else f"{self._words} {first} to {last} are"
        what = f"{which} not what was written"
        self._found.append(Place(path=self._file.path, offset=offset, end=end, what=what))

    def _head(self, offset: int) -> Generator[int, None, BatchHead | None]:
        data = yield from self._file.take(offset, BATCH_HEADER_BYTES)
        return decode_batch_head(data, 0, salt_of(self._uuid, offset))

    def _whole(self, offset: int, head: BatchHead) -> Generator[int, None, bool]:
        start = offset + BATCH_HEADER_BYTES
        salt = salt_of(self._uuid, offset)
        found = yield from self._file.checksum(start, head.length, salt)
        return found == head.payload_crc

    def _following(
        self, offset: int, head: BatchHead | None, numbers: tuple[int, int | None]
    ) -> Generator[int, None, tuple[int, int] | None]:
        """Return where a later one than that at `offset` has a whole header, and its number."""
        number, last = numbers
        if head is not None:
            after = offset + BATCH_HEADER_BYTES + head.length
            later = yield from self._head(after)
            if later is not None and _between(number, later.number, last):
                return after, later.number
        at = offset + 1
        while part := (yield from self._file.take(at, SLICE)):
            place = part.find(_MAGIC)
            if place < 0:
                if len(part) < len(_MAGIC):
                    return None
                at += len(part) - len(_MAGIC) + 1
                continue
            later = yield from self._head(at + place)
            if later is not None and _between(number, later.number, last):
                return at + place, later.number
            at += place + 1
        return None


def _between(number: int, later: int, last: int | None) -> bool:
    return number < later and (last is None or later <= last)


class _Open:
    """Closes a file behind a check, and notes where it could not be read."""

    def __init__(self, fs: FileSystem, path: str, found: list[Place]) -> None:
        self._file = _File(fs, path)
        self._found = found

    def __enter__(self) -> _File:
        return self._file

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._file.close()
        if not isinstance(error, OSError) or isinstance(error, FileNotFoundError):
            return False
        what = f"it cannot be read: {error.strerror or error}"
        place = Place(path=self._file.path, offset=self._file.at, end=0, what=what)
        self._found.append(place)
        return True


def check_journal_file(
    fs: FileSystem, directory: str, number: int, journal: Journal, found: list[Place]
) -> Check:
    """Begin to check a file of a journal at work, up to what is synced now."""
    segment, synced = journal.rotation.reached
    if number > segment:
        return _nothing()  # nothing in it is synced
    later = sorted(one for one in journal.index.live if number < one <= segment)
    check = _check_segment(fs, directory, (number, *later), synced, found)
    failed, offset = journal.compaction.failed_at
    if failed != number:
        return check
    path = posixpath.join(directory, segment_name(number))
    place = Place(path=path, offset=offset, end=0, what="a compaction could not read on")
    return _or_else(check, found, place)


def _or_else(check: Check, found: list[Place], place: Place) -> Check:
    """Tell of `place` where the check finds nothing: somebody else did."""
    yield from check
    if not found:
        found.append(place)


def _nothing() -> Check:
    yield 0


def _check_segment(
    fs: FileSystem, directory: str, numbers: Sequence[int], synced: int, found: list[Place]
) -> Check:
    """Check the first of these files; the next one that was begun says where it ends.

    Without one it is the batch `synced` (as on disk).
    """
    assert list(numbers) == sorted(numbers), "the next file says where one ends"
    number, *later = numbers
    path = posixpath.join(directory, segment_name(number))
    with _Open(fs, path, found) as file:
        data = yield from file.take(0, SEGMENT_HEADER_BYTES)
        head = decode_segment_header(data)
        if head is not None and head.number < number:
            return  # of an earlier life: nothing was ever written here
        if head is None or head.number != number:
            if not (yield from file.is_zero()):
                what = "the header of the file is not what was written"
                found.append(Place(path=path, offset=0, end=0, what=what))
            return
        last = yield from _last_batch(fs, directory, later, synced)
        batches = _Batches(file, head.uuid, ("batch", "batches"), found)
        yield from batches.check(SEGMENT_HEADER_BYTES, head.first, last)


def _last_batch(
    fs: FileSystem, directory: str, later: Sequence[int], synced: int
) -> Generator[int, None, int | None]:
    """Return the last batch before those files; None where a header does not say any more."""
    for number in later:
        fd = fs.open(posixpath.join(directory, segment_name(number)), write=False)
        try:
            data = fs.pread(fd, SEGMENT_HEADER_BYTES, 0)
        except OSError:
            return None  # told when that file is checked
        finally:
            fs.close(fd)
        yield len(data)
        head = decode_segment_header(data)
        if head is not None and head.number == number:
            return head.first - 1
        if data.count(0) != len(data) and (head is None or head.number > number):
            return None
        # A start that was cut made it ready, and the next one wrote to another file.
    return synced


def check_page(
    fs: FileSystem, directory: str, place: tuple[int, int], blocks: int, found: list[Place]
) -> Check:
    """Check the first `blocks` blocks of the page (store, page)."""
    assert blocks > 0, "no block is on the page"
    path = posixpath.join(directory, page_name(*place))
    with _Open(fs, path, found) as file:
        data = yield from file.take(0, PAGE_HEADER_BYTES)
        try:
            uuid = decode_page_header(data, *place, path)
        except PageDamageError:
            what = "the header of the page is not what was written"
            found.append(Place(path=path, offset=0, end=PAGE_HEADER_BYTES, what=what))
            try:
                uuid = page_uuid(data, *place, path)
            except PageDamageError:
                return
        checked = _Batches(file, uuid, ("block", "blocks"), found)
        yield from checked.check(PAGE_HEADER_BYTES, 0, blocks - 1)


def check_log_file(fs: FileSystem, log: LogFile, found: list[Place]) -> Check:
    """Check an Arrow file of a stream, and its index."""
    schema = SCHEMA_MESSAGE
    with _Open(fs, log.path, found) as file:
        data = yield from file.take(0, len(schema))
        if data != schema:
            what = "the schema is not what was written"
            found.append(Place(path=log.path, offset=0, end=len(schema), what=what))
        for ref in log.blocks:
            sum_ = yield from file.checksum(ref.position, ref.size, ref.first & 0xFFFFFFFF)
            if sum_ != ref.crc:
                what = f"the block of offsets {ref.first} to {ref.end - 1} is not what was written"
                end = ref.position + ref.size
                found.append(Place(path=log.path, offset=ref.position, end=end, what=what))
        if log.size:
            mark = yield from file.take(log.size - len(END_MARK), len(END_MARK))
            if mark != END_MARK or file.size() != log.size:
                what = "the end of the file is not what was written"
                at = log.size - len(END_MARK)
                found.append(Place(path=log.path, offset=at, end=log.size, what=what))
    with _Open(fs, log.index_path, found) as file:
        offset = 0
        while offset < len(log.index):
            part = yield from file.take(offset, min(SLICE, len(log.index) - offset))
            wanted = log.index[offset : offset + SLICE]
            if part != wanted:
                at = offset + _first_difference(part, wanted)
                what = "the index is not what was written"
                found.append(Place(path=log.index_path, offset=at, end=0, what=what))
                return
            offset += len(part)


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    shorter = min(len(one), len(other))
    return next((at for at, (a, b) in enumerate(pairs) if a != b), shorter)
