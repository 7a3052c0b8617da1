"""Page files: where the messages of an address go that does not fit into memory any more.

One directory holds all; `00000000000000000012-000000003.page` is page 3 of page store 12. A store
is one stay of an address in page mode. Page files know queues by number only.

A page file:

    0   header  64 B   magic "SLPG", version u16, checksum id u16 (1 = zlib.crc32), store u64,
                       page u32, uuid 16 B, zeros, crc32 of the 60 bytes before
    64  blocks, one behind the other

A block is a journal batch with one ADD record in it (see `storage.record`): its number counts the
blocks of the page from 0, its "last synced" is the number of the journal batch that commits it, and
its sums are salted with the page's uuid and its offset.

    blocks written ──pages synced──> journal batch with PAGED records synced ──> exist

The journal says how many blocks of a page exist, so that one sync of it commits messages in memory,
on pages, and removals together. What a page has behind those is a torn tail and is never read. No
page is appended to after a restart. A page goes only when the batch that says so is durable.
"""

from __future__ import annotations

import posixpath
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from storage.ballast import NO_ROOM, Ballast
from storage.errors import PageDamageError
from storage.files import FileSystem
from storage.record import (
    BATCH_HEADER_BYTES,
    AddRun,
    BadRecordError,
    decode_batch_head,
    decode_records,
    encode_add,
    encode_batch,
    salt_of,
)

PAGE_MAGIC: Final = b"SLPG"
VERSION: Final = 1
PAGE_HEADER_BYTES: Final = 64
#: A block is read whole: bounds what one step of reading costs.
BLOCK_BYTES_MAX: Final = 256 << 10
BLOCK_MESSAGES_MAX: Final = 1024
#: Open files of pages that are written or read; more addresses than that may page at a time.
OPEN_MAX: Final = 32

_HEAD = struct.Struct("<4sHHQI16s24x")
_CRC = struct.Struct("<I")
_SUFFIX: Final = ".page"
_STORE_DIGITS: Final = 20
_PAGE_DIGITS: Final = 9


def page_name(store: int, page: int) -> str:
    """Return the file name of a page; names sort as store and page do."""
    assert store >= 0, f"page store {store}"
    assert page >= 0, f"page {page}"
    return f"{store:0{_STORE_DIGITS}d}-{page:0{_PAGE_DIGITS}d}{_SUFFIX}"


def page_of_name(name: str) -> tuple[int, int] | None:
    """Return (store, page) of a page file's name, None for other files."""
    store, _, page = name.removesuffix(_SUFFIX).partition("-")
    if not (store.isascii() and store.isdigit() and page.isascii() and page.isdigit()):
        return None
    found = int(store), int(page)
    return found if page_name(*found) == name else None


def encode_page_header(store: int, page: int, uuid: bytes) -> bytes:
    """Return the 64 bytes that open a page."""
    assert len(uuid) == 16, "the salt would not be that of the header"
    head = _HEAD.pack(PAGE_MAGIC, VERSION, 1, store, page, uuid)
    return head + _CRC.pack(zlib.crc32(head))


def page_uuid(data: bytes, store: int, page: int, path: str) -> bytes:
    """Return the uuid of a page whose header may be damaged: then its blocks' sums tell.

    Raises PageDamageError when not even that is there, or it is the header of another page.
    """
    if len(data) < PAGE_HEADER_BYTES:
        raise PageDamageError(path, 0, "the header of the page is cut short")
    if _CRC.unpack_from(data, _HEAD.size)[0] == zlib.crc32(data[: _HEAD.size]):
        return decode_page_header(data, store, page, path)
    return bytes(_HEAD.unpack_from(data)[5])


def decode_page_header(data: bytes, store: int, page: int, path: str) -> bytes:
    """Return the page's uuid. Raises PageDamageError when it is not the header of this page."""
    if len(data) >= PAGE_HEADER_BYTES:
        magic, version, checksum, own_store, own_page, uuid = _HEAD.unpack_from(data)
        whole = _CRC.unpack_from(data, _HEAD.size)[0] == zlib.crc32(data[: _HEAD.size])
        right = (PAGE_MAGIC, VERSION, 1, store, page)
        if whole and (magic, version, checksum, own_store, own_page) == right:
            return bytes(uuid)
    raise PageDamageError(path, 0, "the header of the page is not whole, or not its own")


class PageBlock:
    """Messages that lie together on a page, for the same queues; grows until its batch is closed.

    `targets` are (queue, seq of the first). `ticket` is the batch that commits it, `written_as` its
    number on disk, once it is closed (0: the same). `offset` and `length` (with the header) are
    known when that batch is durable.
    """

    __slots__ = (
        "accepted_ms",
        "bodies",
        "count",
        "due",
        "expires",
        "flags",
        "length",
        "number",
        "offset",
        "page",
        "size",
        "store",
        "targets",
        "ticket",
        "written_as",
    )

    def __init__(
        self, store: int, page: int, number: int, targets: Sequence[tuple[int, int]], now_ms: int
    ) -> None:
        self.store = store
        self.page = page
        self.number = number
        self.targets = targets
        self.accepted_ms = now_ms
        self.due = 0
        self.bodies: list[bytes] = []
        self.flags: list[int] = []
        self.expires: list[int] = []
        self.count = self.size = 0
        self.ticket = self.written_as = self.offset = self.length = 0

    def extend(self, bodies: Sequence[bytes], flags: int, expires: int, size: int) -> None:
        """Append a run that shares flags and expiry."""
        count = len(bodies)
        self.bodies += bodies
        self.flags += [flags] * count
        self.expires += [expires] * count
        self.count += count
        self.size += size

    def continues(self, targets: Sequence[tuple[int, int]], due: int) -> bool:
        """Whether a run for `targets` may be appended here."""
        count = self.count
        return (
            count < BLOCK_MESSAGES_MAX
            and self.size < BLOCK_BYTES_MAX
            and self.due == due
            and len(targets) == len(self.targets)
            and all(
                queue == own and seq == first + count
                for (queue, seq), (own, first) in zip(targets, self.targets, strict=True)
            )
        )

    def encode(self) -> bytes:
        """Return its one record."""
        assert self.count == len(self.bodies), "its bodies are on the device, and forgotten"
        assert self.count > 0, "a block of nothing"
        flags, expires = self.flags, self.expires
        run = AddRun(
            self.targets,
            self.bodies,
            flags[0] if flags.count(flags[0]) == self.count else flags,
            expires[0] if expires.count(expires[0]) == self.count else expires,
            self.accepted_ms,
            self.due,
        )
        parts: list[bytes] = []
        encode_add(run, parts)
        return b"".join(parts)

    def forget_bodies(self) -> None:
        """Let go of what is on the device."""
        self.bodies, self.flags, self.expires = [], [], []


class _OpenPage:
    """A page that is being written."""

    __slots__ = ("end", "fd", "page", "path", "uuid")

    def __init__(self, fd: int, page: int, path: str, uuid: bytes) -> None:
        self.fd = fd
        self.page = page
        self.path = path
        self.uuid = uuid
        self.end = PAGE_HEADER_BYTES


class PageWriter:
    """Writes blocks and deletes pages, on the writer's thread. All errors are OSError.

    With `ballast` a full disk is one only when that is used up.
    """

    __slots__ = ("_ballast", "_directory", "_fs", "_make_uuid", "_open")

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        make_uuid: Callable[[], bytes],
        ballast: Ballast | None = None,
    ) -> None:
        self._fs = fs
        self._ballast = ballast
        self._directory = directory
        self._make_uuid = make_uuid
        self._open: dict[int, _OpenPage] = {}  # by store: its newest page; fd -1: closed

    def write(self, blocks: Sequence[PageBlock]) -> int:
        """Write blocks, in order for each page, and sync; returns the bytes written."""
        by_page: dict[tuple[int, int], list[PageBlock]] = {}
        for block in blocks:
            by_page.setdefault((block.store, block.page), []).append(block)
        total = 0
        made = False
        for (store, number), run in by_page.items():
            page = self._open.get(store)
            if page is None or page.page != number:
                page = self._create(store, number)
                made = True
            total += self._write_run(page, run)
        if made:
            self._fs.fsync_dir(self._directory)
        self._close_some()
        return total

    def _write_run(self, page: _OpenPage, blocks: Sequence[PageBlock]) -> int:
        assert blocks, "nothing is written"
        if page.fd < 0:
            page.fd = self._fs.open(page.path)
        parts: list[bytes] = []
        start = end = page.end
        if start == PAGE_HEADER_BYTES:
            parts.append(encode_page_header(blocks[0].store, page.page, page.uuid))
            start = 0
        for block in blocks:
            payload = block.encode()
            committed = block.written_as or block.ticket
            parts.append(encode_batch(payload, block.number, committed, salt_of(page.uuid, end)))
            parts.append(payload)
            block.offset = end
            block.length = BATCH_HEADER_BYTES + len(payload)
            end += block.length
            block.forget_bodies()
        data = b"".join(parts)
        self._put(page.fd, data, start)
        if start:
            self._fs.fdatasync(page.fd)
        else:
            self._fs.fsync(page.fd)
        page.end = end
        return len(data)

    def _put(self, fd: int, data: bytes, offset: int) -> None:
        """Write, again where the disk was full and the ballast has made room: nothing is synced."""
        while True:
            try:
                self._fs.pwrite(fd, data, offset)
            except OSError as error:
                if error.errno not in NO_ROOM or self._ballast is None:
                    raise
                if not self._ballast.give(len(data)):
                    raise
            else:
                return

    def _create(self, store: int, number: int) -> _OpenPage:
        known = self._open.get(store)
        assert known is None or known.page < number, f"page {number} is not the next one"
        before = self._open.pop(store, None)
        if before is not None and before.fd >= 0:
            self._fs.close(before.fd)
        path = posixpath.join(self._directory, page_name(store, number))
        fd = self._fs.open(path, create=True)
        page = self._open[store] = _OpenPage(fd, number, path, self._make_uuid())
        return page

    def _close_some(self) -> None:
        """Keep the number of open files bounded: what is closed is opened again when needed."""
        opened = [page for page in self._open.values() if page.fd >= 0]
        for page in opened[:-OPEN_MAX]:
            self._fs.close(page.fd)
            page.fd = -1

    def delete(self, store: int, pages: Sequence[int]) -> None:
        """Delete pages that the journal says are gone; those that were never written are not there.

        Their names may come back after a crash: a start deletes what the journal does not know.
        """
        current = self._open.get(store)
        if current is not None and current.page in pages:
            if current.fd >= 0:
                self._fs.close(current.fd)
            del self._open[store]
        for page in pages:
            path = posixpath.join(self._directory, page_name(store, page))
            if self._fs.exists(path):
                self._fs.unlink(path)

    def close(self) -> None:
        """Close all files."""
        for page in self._open.values():
            if page.fd >= 0:
                self._fs.close(page.fd)
        self._open = {}


class PageReader:
    """Reads blocks that exist. One block costs one read of at most its length."""

    __slots__ = ("_directory", "_fs", "_open")

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._open: dict[tuple[int, int], tuple[int, bytes]] = {}  # (fd, uuid)

    def read(self, store: int, page: int, offset: int, length: int) -> AddRun:
        """Return the messages of one block. Raises PageDamageError, OSError."""
        assert offset >= PAGE_HEADER_BYTES, f"a block at {offset}"
        assert length > BATCH_HEADER_BYTES, f"a block of {length} bytes"
        path = posixpath.join(self._directory, page_name(store, page))
        fd, uuid = self._file(store, page, path)
        data = self._fs.pread(fd, length, offset)
        salt = salt_of(uuid, offset)
        head = decode_batch_head(data, 0, salt)
        if head is None or BATCH_HEADER_BYTES + head.length != length:
            raise PageDamageError(path, offset, "the header of the block is not whole")
        payload = data[BATCH_HEADER_BYTES:]
        if len(payload) != head.length or zlib.crc32(payload, salt) != head.payload_crc:
            raise PageDamageError(path, offset, "the block is not whole")
        try:
            record = next(decode_records(payload))
        except (BadRecordError, StopIteration) as error:
            raise PageDamageError(path, offset, f"no messages: {error}") from error
        if not isinstance(record, AddRun):
            raise PageDamageError(path, offset, "the block holds no messages")
        return record

    def _file(self, store: int, page: int, path: str) -> tuple[int, bytes]:
        key = store, page
        found = self._open.pop(key, None)
        if found is None:
            fd = self._fs.open(path, write=False)
            try:
                uuid = page_uuid(self._fs.pread(fd, PAGE_HEADER_BYTES, 0), store, page, path)
            except BaseException:
                self._fs.close(fd)
                raise
            found = fd, uuid
        self._open[key] = found
        while len(self._open) > OPEN_MAX:
            oldest = next(iter(self._open))
            self._fs.close(self._open.pop(oldest)[0])
        return found

    def forget(self, store: int, pages: Sequence[int]) -> None:
        """Close these pages' files: they are about to go."""
        for page in pages:
            found = self._open.pop((store, page), None)
            if found is not None:
                self._fs.close(found[0])

    def close(self) -> None:
        """Close all files."""
        for fd, _ in self._open.values():
            self._fs.close(fd)
        self._open = {}


def page_files(fs: FileSystem, directory: str) -> list[tuple[int, int]]:
    """Return (store, page) of all page files in a directory, ascending."""
    found = (page_of_name(name) for name in fs.listdir(directory))
    return sorted(page for page in found if page is not None)
