"""The files of the audit trail, as one thread writes them: append, sync, rotate, go on.

    audit.jsonl          the newest; its first line says its number
    audit.jsonl.000007   number 7, whole; the oldest go when there are more than `files_kept`
    audit.jsonl.head     the last line that is known to be on the disk (`gateway.audit.chain`)

The head is written behind a sync, so it never names what the disk has not. A start compares both:
bytes behind the head that are no line were torn by a crash, and stay, with a line behind them that
says how many they are. A trail that lacks what its head names was tampered with, or has rotted: it
is kept as it is, and a new file begins whose first line tells the fault.

Knows no thread, no clock and no queue. Raises OSError; what was appended then is written again by
the next call.
"""

from __future__ import annotations

import datetime as dt
import json
import posixpath
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from gateway.audit.chain import (
    GENESIS,
    Head,
    Line,
    fits,
    hash_of,
    key_id,
    read_head,
    read_line,
    seal,
    write_head,
)
from gateway.audit.events import DROPPED, OPENED, RESUMED
from gateway.audit.verify import Kind, TrailFile, bare_lines, tells_of_torn
from storage.files import FileSystem, durable_replace, read_file

_DIGITS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailSettings:
    """Where a trail is kept, and how.

    Attributes:
        path: of the newest file.
        key: that lines are sealed with; None: anybody could seal them.
        file_bytes: after which a file is full.
        file_ms: after which it is full; below 0: never.
        files_kept: how many there are at most, the newest counted.
        synced: what is written is synced at all; the head goes behind syncs.
    """

    path: str
    key: bytes | None = None
    file_bytes: int = 16 << 20
    file_ms: int = 86_400_000
    files_kept: int = 90
    synced: bool = True


def time_text(ms: int) -> str:
    """Return a date as a line has it."""
    made = dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
    return made.replace("+00:00", "Z")


def time_ms(text: object) -> int | None:
    """Return the date of a line in ms; None where it is none."""
    try:
        return round(dt.datetime.fromisoformat(str(text)).timestamp() * 1000)
    except ValueError:
        return None


def head_path(path: str) -> str:
    """Return where the head of a trail is."""
    return path + ".head"


def numbered(path: str, number: int) -> str:
    """Return what a file of a trail is called once another one follows it."""
    return f"{path}.{number:0{_DIGITS}d}"


def numbers(fs: FileSystem, path: str) -> list[int]:
    """Return the numbers of the files that others follow, from the oldest on."""
    folder, name = posixpath.split(path)
    if not fs.exists(folder or "."):
        return []
    ends = [one.removeprefix(name + ".") for one in fs.listdir(folder or ".")]
    return sorted({int(one) for one in ends if one.isdigit() and len(one) >= _DIGITS})


def trail_files(fs: FileSystem, path: str) -> list[TrailFile]:
    """Return the files of a trail from the oldest to the newest."""
    found = [_file(fs, numbered(path, number), number) for number in numbers(fs, path)]
    if fs.exists(path):
        found.append(_file(fs, path, None))
    return found


def _file(fs: FileSystem, name: str, number: int | None) -> TrailFile:
    return TrailFile(name=name, number=number, read=lambda: read_file(fs, name))


def head_of(fs: FileSystem, path: str, key: bytes | None) -> Head | Kind:
    """Return the head of a trail, or what is wrong with it."""
    try:
        data = read_file(fs, head_path(path))
    except FileNotFoundError:
        return Kind.HEAD_MISSING
    return read_head(data, key) or Kind.HEAD_CHANGED


@dataclass(slots=True)
class _Tail:
    """The end of a file: its last good line, where that ends, and what stands behind it."""

    number: int | None = None
    key: str = ""
    last: Line | None = None
    end: int = 0
    opened_ms: int | None = None
    behind: bytes = b""
    named: str = ""  # the hash of the line that the head names


def _tail_of(data: bytes, key: bytes | None, head: Head | Kind) -> _Tail:
    """Read a file up to the first line that does not follow the one before it.

    A file that is sealed with another key is taken at its word: what follows it is not in it.
    """
    tail, mine = _Tail(), True
    wanted = head.seq if isinstance(head, Head) else -1
    for offset, raw, whole in bare_lines(data):
        line = read_line(raw) if whole else None
        if line is not None and tail.number is None:
            said = line.facts.get("file")
            tail.number = said if isinstance(said, int) else None
            tail.key = str(line.facts.get("key", ""))
            mine = tail.key == key_id(key)
            tail.opened_ms = time_ms(line.facts.get("time"))
        follows = (
            line is not None
            and (not mine or fits(raw, line, key))
            and (tail.last is None or line.prev == tail.last.hash)
            and (offset == tail.end or tells_of_torn(line, data[tail.end : offset - 1]))
        )
        if line is not None and follows:
            tail.last, tail.end = line, offset + len(raw) + 1
            if line.seq == wanted:
                tail.named = line.hash
    tail.behind = data[tail.end :]
    return tail


class Trail:
    """See the module text; `open` first.

    Attributes:
        fault: what the start found wrong with the trail; empty: nothing.
        seq, hash: of the last line that was written.
        files_dropped: how many had to go.
    """

    def __init__(self, fs: FileSystem, settings: TrailSettings, now_ms: Callable[[], int]) -> None:
        self.fault = ""
        self.seq, self.hash = 0, GENESIS
        self.files_dropped = 0
        self._fs = fs
        self._settings = settings
        self._now_ms = now_ms
        self._number = 0
        self._fd = -1
        self._head_fd = -1
        self._end = 0  # of what is written
        self._synced = 0  # of what is known to be on the disk
        self._unsynced = bytearray()  # from there on: a failed sync may have lost it
        self._opened_ms = 0

    # ---- start

    def open(self) -> None:
        """Go on where the trail ends, or begin one."""
        fs, path = self._fs, self._settings.path
        fs.mkdir(posixpath.dirname(path) or ".")
        head = head_of(fs, path, self._settings.key)
        older = numbers(fs, path)
        there = fs.exists(path)
        key, tail, before = self._settings.key, _Tail(), _Tail()
        if there:
            tail = _tail_of(read_file(fs, path), key, head)
        if older and tail.last is None:
            before = _tail_of(read_file(fs, numbered(path, older[-1])), key, head)
        self._take_over(head, tail, before, older, there=there)

    def _take_over(
        self, head: Head | Kind, tail: _Tail, before: _Tail, older: Sequence[int], *, there: bool
    ) -> None:
        """Decide between going on in the newest file and beginning another one."""
        path, last = self._settings.path, tail.last or before.last
        fresh = not there and not older
        sealed = tail.key if tail.last else before.key
        rekeyed = last is not None and sealed != key_id(self._settings.key)
        self.fault = (
            ""
            if fresh and head is Kind.HEAD_MISSING
            else _fault(head, tail, before, rekeyed=rekeyed)
        )
        self._number = tail.number or (older[-1] + 1 if older else 1)
        if last is not None:
            self.seq, self.hash = last.seq, last.hash
        if isinstance(head, Head) and self.fault:
            self.seq, self.hash = max((head.seq, head.hash), (self.seq, self.hash))
            self._number = max(self._number, head.file)
        begin = bool(self.fault) or rekeyed
        if there and not begin:
            self._resume(tail)
            return
        if there:
            self._fs.rename(path, numbered(path, self._number))
        if begin and (there or isinstance(head, Head)):
            self._number += 1
        self._begin()

    def _resume(self, tail: _Tail) -> None:
        """Go on behind the last good line, and behind what a crash has torn."""
        fs = self._fs
        self._fd = fs.open(self._settings.path)
        self._end = self._synced = tail.end + len(tail.behind)
        self._opened_ms = self._now_ms() if tail.opened_ms is None else tail.opened_ms
        self._open_head()
        torn = tail.behind
        said = {"torn": len(torn), "torn_hash": hash_of(torn, None)} if torn else {}
        self._write(self._own(RESUMED, file=self._number, **said), before=b"\n" if torn else b"")
        self.sync(always=True)

    def _begin(self) -> None:
        """Begin a file."""
        fs, path = self._fs, self._settings.path
        self._open_head()  # before the file: a trail without one was tampered with
        old, self._fd = self._fd, fs.open(path, create=True)
        if old >= 0:
            fs.close(old)
        self._end = self._synced = 0
        self._unsynced.clear()
        self._opened_ms = self._now_ms()
        fault = {"fault": self.fault} if self.fault else {}
        self._write(self._own(OPENED, file=self._number, **fault))
        self._fs.fsync(self._fd)
        self._fs.fsync_dir(posixpath.dirname(path) or ".")
        self.sync(always=True)

    def _open_head(self) -> None:
        if self._head_fd >= 0:
            return
        path = head_path(self._settings.path)
        if not self._fs.exists(path):
            durable_replace(self._fs, path, self._head())
        self._head_fd = self._fs.open(path)

    def _head(self) -> bytes:
        head = Head(file=self._number, seq=self.seq, hash=self.hash, end=self._end)
        return write_head(head, self._settings.key)

    def _own(self, event: str, **facts: object) -> bytes:
        """Return a line of the trail's own, not sealed yet."""
        named = key_id(self._settings.key)
        body: dict[str, Any] = {"time": time_text(self._now_ms()), "event": event, **facts}
        if named and event in (OPENED, RESUMED):
            body["key"] = named
        return json.dumps(body, separators=(",", ":")).encode()

    # ---- lines

    def append(self, bodies: Sequence[bytes]) -> None:
        """Write lines, each a JSON object with at least one field.

        They are taken also where this raises: the next call, with none, goes on with them.
        """
        for body in bodies:
            self._seal(body)
        self._flush()
        if self._full():
            self._rotate()

    def _seal(self, body: bytes, before: bytes = b"") -> None:
        line, self.hash = seal(self.seq + 1, self.hash, body, self._settings.key)
        self.seq += 1
        self._unsynced += before + line

    def _write(self, body: bytes, before: bytes = b"") -> None:
        self._seal(body, before)
        self._flush()

    def _flush(self) -> None:
        """Write what is not on the disk yet; also once more, after a sync or write has failed."""
        at = self._end - self._synced
        data = bytes(self._unsynced[at:])
        if data:
            self._fs.pwrite(self._fd, data, self._end)
            self._end += len(data)
        if not self._settings.synced:
            self._synced = self._end
            self._unsynced.clear()

    def sync(self, *, always: bool = False) -> None:
        """Have all that was appended on the disk, and then the head name it."""
        self._flush()
        if self._settings.synced or always:
            try:
                self._fs.fdatasync(self._fd)
            except OSError:
                self._end = self._synced  # the next call writes all of it again
                raise
        self._synced = self._end
        self._unsynced.clear()
        if self._settings.synced or always:
            self._fs.pwrite(self._head_fd, self._head(), 0)

    def _full(self) -> bool:
        settings = self._settings
        age = self._now_ms() - self._opened_ms
        written = self._synced + len(self._unsynced)
        return written >= settings.file_bytes or 0 <= settings.file_ms <= age

    def _rotate(self) -> None:
        """Close the newest file and begin another one; the oldest go where there are too many."""
        fs, path = self._fs, self._settings.path
        self.sync(always=True)
        if fs.exists(path):
            fs.rename(path, numbered(path, self._number))
            self._number += 1
        self.fault = ""
        self._begin()
        older = numbers(fs, path)
        for number in older[: max(0, len(older) + 1 - self._settings.files_kept)]:
            self._write(self._own(DROPPED, file=number))
            self.sync(always=True)  # before it goes: without this line it would be missed
            fs.unlink(numbered(path, number))
            self.files_dropped += 1

    # ---- end

    def close(self) -> None:
        """Sync and close."""
        try:
            if self._fd >= 0:
                self.sync(always=True)
        finally:
            self._close_files()

    def _close_files(self) -> None:
        for fd in (self._fd, self._head_fd):
            if fd >= 0:
                with suppress(OSError):
                    self._fs.close(fd)
        self._fd = self._head_fd = -1


def _fault(head: Head | Kind, tail: _Tail, before: _Tail, *, rekeyed: bool) -> str:
    """Say what a start finds wrong with a trail that is there."""
    last, named = tail.last or before.last, tail.named or before.named
    seq = 0 if last is None else last.seq
    if isinstance(head, Kind):
        if head is Kind.HEAD_CHANGED and rekeyed:
            return ""  # it has the old key
        return "the head is missing" if head is Kind.HEAD_MISSING else "the head was changed"
    if seq < head.seq:
        return f"lines from {seq + 1} to {head.seq} are missing or changed"
    # It may be the last line of a file that another one follows: then a newer line vouches for it.
    return f"line {head.seq} is another one" if named not in ("", head.hash) else ""
