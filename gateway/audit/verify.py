"""Whether an audit trail is what was written: which line was changed, removed, moved or cut. Pure.

Lines are walked from the oldest file to the newest. Each has to fit its own hash, to name the hash
of the line before, and to be the next in number. What a crash has torn is followed by a line that
says so, sealed like all others, with the hash of the torn bytes: nothing else is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from gateway.audit.chain import GENESIS, Head, Line, fits, hash_of, read_line
from gateway.audit.events import DROPPED, LOST, OPENED, RESUMED

#: Of one trail; what is wrong beyond them is counted.
FINDINGS_MAX: Final = 1000


class Kind(Enum):
    """What was found; the value is the code that programs see."""

    CHANGED = "changed"
    REMOVED = "removed"
    REORDERED = "reordered"
    FORGED = "forged"
    CUT = "cut"
    FILE_MISSING = "file-missing"
    HEAD_MISSING = "head-missing"
    HEAD_CHANGED = "head-changed"
    NO_KEY = "no-key"
    FAULT_TOLD = "fault-told"
    NOT_SEEN = "not-seen"
    TORN = "torn"
    NOT_WRITTEN = "not-written"

    @property
    def harmless(self) -> bool:
        """Whether it is no sign of tampering."""
        return self in (Kind.TORN, Kind.NOT_WRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found; `line` counts from 1 in its file, 0: the whole file."""

    kind: Kind
    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailFile:
    """One file: its name, its number (None: the newest, whose first line says it), its bytes."""

    name: str
    number: int | None
    read: Callable[[], bytes]


@dataclass(slots=True, kw_only=True)
class Report:
    """What a walk has found; `left_out` more were not listed."""

    files: int = 0
    lines: int = 0
    first: int = 0
    last: int = 0
    last_hash: str = ""
    findings: list[Finding] = field(default_factory=list)
    left_out: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing of it was tampered with."""
        return all(found.kind.harmless for found in self.findings) and not self.left_out


def verify(
    files: Sequence[TrailFile],
    head: Head | Kind | None,
    keys: Mapping[str, bytes],
    seen: Mapping[int, str] | None = None,
) -> Report:
    """Walk a trail.

    Args:
        files: from the oldest to the newest.
        head: what its file says, or what is wrong with that; None: it is not asked for.
        keys: by their id.
        seen: hashes of lines by number, noted at another place, that must be in it.
    """
    walk = _Walk(head, keys, seen or {})
    for file in files:
        walk.file(file)
    walk.end(files[-1].name if files else "")
    return walk.report


def bare_lines(data: bytes) -> Iterator[tuple[int, bytes, bool]]:
    """Yield offset, bytes without line feed, and whether there is one, of each line of a file."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        if end < 0:
            yield at, data[at:], False
            return
        yield at, data[at:end], True
        at = end + 1


def tells_of_torn(line: Line, torn: bytes) -> bool:
    """Whether a line says that a crash has left these bytes before it."""
    facts = line.facts
    if line.event != RESUMED or not torn or facts.get("torn") != len(torn):
        return False
    return facts.get("torn_hash") == hash_of(torn, None)


@dataclass(slots=True)
class _At:
    """Where a walk is in a file."""

    name: str
    number: int | None
    key: bytes | None = None
    known_key: bool = True
    opened: bool = False
    line: int = 0


class _Walk:
    """The state of one walk: which line has to come next."""

    def __init__(
        self, head: Head | Kind | None, keys: Mapping[str, bytes], seen: Mapping[int, str]
    ) -> None:
        self.report = Report()
        self._head = head
        self._keys = keys
        self._seen = dict(seen)
        self._seq = 0  # of the last line
        self._hash: str | None = None  # None: not known
        self._began = False
        self._number: int | None = None  # of the last file
        self._dropped: set[int] = set()
        self._before: int | None = None  # files before the oldest one, whose end has to be told
        self._head_met = isinstance(head, Head) and head.seq == 0
        self._sealed = False  # whether the last file has a key

    def file(self, file: TrailFile) -> None:
        """Walk one file."""
        data = file.read()
        self.report.files += 1
        at = _At(file.name, file.number)
        marked = b'"event":"' + RESUMED.encode() + b'"'
        pieces = bare_lines(data)
        resumed = (
            [piece for piece in bare_lines(data) if marked in piece[1]] if marked in data else []
        )
        skip_to = 0
        for offset, raw, whole in pieces:
            at.line += 1
            if offset < skip_to:
                continue
            line = read_line(raw) if whole else None
            if line is not None and not at.opened:
                self._open(at, line)
            if line is None or (at.known_key and not fits(raw, line, at.key)):
                after = self._torn_until(data, offset, resumed, at)
                if after is not None:
                    skip_to = after
                    self._found(Kind.TORN, at, "a crash has torn what stood here")
                    continue
                self._bad(at, line, whole=whole)
                continue
            self._good(at, line)
        if not data and file.number is not None:
            self._found(Kind.CHANGED, at, "the file is empty")
        self._sealed = at.key is not None or not at.known_key

    def _open(self, at: _At, line: Line) -> None:
        """Take from the first line of a file its number and the key that it is sealed with."""
        at.opened = True
        said, named = line.facts.get("file"), str(line.facts.get("key", ""))
        at.key = self._keys.get(named) if named else None
        at.known_key = not named or at.key is not None
        if not at.known_key:
            self._found(
                Kind.NO_KEY, at, f"is sealed with the key {named}, which was not given: --key"
            )
        number = said if isinstance(said, int) else None
        if at.number is not None and number is not None and number != at.number:
            self._found(Kind.CHANGED, at, f"says that it is file {number}, and is {at.number}")
        number = at.number if at.number is not None else number
        self._came(at, number)

    def _came(self, at: _At, number: int | None) -> None:
        if number is None:
            return
        if self._number is not None and number > self._number + 1:
            gone = f"{self._number + 1} to {number - 1}"
            self._found(Kind.FILE_MISSING, at, f"files {gone} before it are missing")
        if self._number is None and number > 1:
            self._before = number - 1
        self._number = number

    def _bad(self, at: _At, line: Line | None, *, whole: bool) -> None:
        """A line is not what was written."""
        if not whole and not self._named_by_head(self._seq + 1):
            self._found(
                Kind.TORN, at, "the last line is not whole: a crash, or it is being written"
            )
            return
        what = "has not the form of a line" if line is None else "does not fit its hash"
        self._found(Kind.CHANGED, at, f"line {self._seq + 1} of the trail {what}")
        self._seq += 1
        self._hash = None

    def _named_by_head(self, seq: int) -> bool:
        return isinstance(self._head, Head) and self._head.seq >= seq

    def _good(self, at: _At, line: Line) -> None:
        """A line fits its own hash: is it the next one?"""
        if not self._began:
            self._began = True
            self.report.first = line.seq
            if self._before is None and (line.seq != 1 or line.prev != GENESIS):
                self._found(Kind.REMOVED, at, f"lines 1 to {line.seq - 1} are missing")
        elif line.seq <= self._seq:
            self._found(
                Kind.REORDERED, at, f"line {line.seq} of the trail stands behind {self._seq}"
            )
            return
        elif line.seq > self._seq + 1:
            gone = (
                f"{self._seq + 1}"
                if line.seq == self._seq + 2
                else (f"{self._seq + 1} to {line.seq - 1}")
            )
            self._found(Kind.REMOVED, at, f"of the trail, {gone} before it are missing")
        elif self._hash is not None and line.prev != self._hash:
            text = f"line {line.seq} of the trail names another line before it"
            self._found(Kind.FORGED, at, text)
        self._seq, self._hash = line.seq, line.hash
        self.report.lines += 1
        self._told(at, line)

    def _told(self, at: _At, line: Line) -> None:
        """What a line itself says of the trail; and whether it is one that was seen before."""
        if isinstance(self._head, Head) and line.seq == self._head.seq:
            self._head_met = True
            if line.hash != self._head.hash:
                self._found(Kind.FORGED, at, f"line {line.seq} is not the one the head names")
        noted = self._seen.pop(line.seq, None)
        if noted is not None and noted != line.hash:
            self._found(Kind.NOT_SEEN, at, f"line {line.seq} is not the one that was seen")
        if line.event == DROPPED and isinstance(line.facts.get("file"), int):
            self._dropped.add(line.facts["file"])
        if line.event == LOST:
            self._found(
                Kind.NOT_WRITTEN, at, f"{line.facts.get('count')} events before it were not kept"
            )
        if line.event in (OPENED, RESUMED) and line.facts.get("fault"):
            self._found(
                Kind.FAULT_TOLD, at, f"a start has found the trail wrong: {line.facts['fault']}"
            )

    def _torn_until(
        self, data: bytes, offset: int, resumed: Iterable[tuple[int, bytes, bool]], at: _At
    ) -> int | None:
        """Return where a line stands that says what is torn before it; None: there is none."""
        for there, raw, whole in resumed:
            if there <= offset or not whole:
                continue
            line = read_line(raw)
            if line is None or line.facts.get("torn") != there - offset - 1:
                continue  # before the hash of so many bytes is worked out
            if not at.opened:
                self._open(at, line)
            if tells_of_torn(line, data[offset : there - 1]) and (
                not at.known_key or fits(raw, line, at.key)
            ):
                return there
        return None

    def end(self, name: str) -> None:
        """All files were walked."""
        at = _At(name, None)
        report, head = self.report, self._head
        report.last, report.last_hash = self._seq, self._hash or ""
        if isinstance(head, Kind):
            self._found(head, at, _HEAD_TEXTS[head])
        elif head is not None and not self._head_met:
            if head.seq > self._seq:
                gone = f"the trail ends at line {self._seq}, and line {head.seq} was on the disk"
                self._found(Kind.CUT, at, gone)
            elif self._began and head.seq >= report.first:
                self._found(Kind.REMOVED, at, f"line {head.seq}, which the head names, is missing")
            else:
                self._found(Kind.HEAD_CHANGED, at, "the head is older than the oldest line")
        if isinstance(head, Head) and head.file > (self._number or 0):
            text = f"file {head.file}, which the head names, is missing"
            self._found(Kind.FILE_MISSING, at, text)
        if self._before is not None and self._before not in self._dropped:
            text = f"files up to {self._before} are missing, and no line says that they had to go"
            self._found(Kind.FILE_MISSING, at, text)
        for seq in sorted(self._seen):
            self._found(Kind.NOT_SEEN, at, f"line {seq}, which was seen, is not there")
        # A keyed line vouches for all before it, whoever sealed those.
        if self._keys and self._began and not self._sealed:
            text = "the newest file is sealed without a key, and so may be anybody's work"
            self._found(Kind.NO_KEY, at, text)

    def _found(self, kind: Kind, at: _At, text: str) -> None:
        if len(self.report.findings) >= FINDINGS_MAX:
            self.report.left_out += 1
            return
        self.report.findings.append(Finding(kind=kind, file=at.name, line=at.line, text=text))


_HEAD_TEXTS: Final = {
    Kind.HEAD_MISSING: "the file of the head is missing: that nothing was cut cannot be shown",
    Kind.HEAD_CHANGED: "the file of the head is not what was written, or has another key",
}
