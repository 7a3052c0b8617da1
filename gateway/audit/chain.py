r"""One line of the audit trail, sealed: a JSON object that names the hash of the line before. Pure.

    {"seq":7,"prev":"<hash of 6>","time":"...","event":"login.refused",...,"hash":"<of this>"}\n
     └──────────────────────────── what is hashed ────────────────────┘

The hash is SHA-256 of the bytes up to its own comma, or HMAC-SHA-256 with a key: whoever has the
disk and not the key can then make no line. Bytes are checked, never what they parse to, so that no
other way of writing the same JSON passes. The head is one more sealed line, in a file of its own:
the last line that is known to be on the disk. It tells a trail that was cut from one that a crash
has torn.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from typing import Any, Final

#: What the first line of a trail names as the one before it.
GENESIS: Final = "0" * 64
#: Bytes of the file of the head: a sector, so that it changes whole.
HEAD_BYTES: Final = 512
_TAIL: Final = len(b',"hash":"' + b"0" * 64 + b'"}')
_FRAME: Final = re.compile(
    rb'\{"seq":(0|[1-9][0-9]{0,18}),"prev":"([0-9a-f]{64})",("[^\n]*),"hash":"([0-9a-f]{64})"\}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line as it stands in a file; `facts` are all of its fields."""

    seq: int
    prev: str
    hash: str
    facts: dict[str, Any]

    @property
    def event(self) -> str:
        """The name of its event."""
        return str(self.facts.get("event", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The last line that is known to be on the disk: file number, its line and hash, end in it."""

    file: int
    seq: int
    hash: str
    end: int


def hash_of(data: bytes, key: bytes | None) -> str:
    """Return 64 hex digits that fit these bytes, and with a key only for those who have it."""
    if key is None:
        return hashlib.sha256(data).hexdigest()
    return hmac.digest(key, data, hashlib.sha256).hex()


def key_id(key: bytes | None) -> str:
    """Return a name for a key that does not tell it; empty: no key."""
    return "" if key is None else hash_of(b"sluicegate audit key", key)[:16]


def seal(seq: int, prev: str, body: bytes, key: bytes | None) -> tuple[bytes, str]:
    """Return a line, with its line feed, and its hash; `body` is a JSON object with a field."""
    content = b'{"seq":%d,"prev":"%s",%s' % (seq, prev.encode(), body[1:-1])
    made = hash_of(content, key)
    return b'%s,"hash":"%s"}\n' % (content, made.encode()), made


def read_line(raw: bytes) -> Line | None:
    """Return what a line without its line feed says; None where it has not the form of one."""
    found = _FRAME.fullmatch(raw)
    if found is None:
        return None
    try:
        facts = json.loads(raw)
    except ValueError:
        return None
    return Line(seq=int(found[1]), prev=found[2].decode(), hash=found[4].decode(), facts=facts)


def fits(raw: bytes, line: Line, key: bytes | None) -> bool:
    """Whether the hash of a line is that of its bytes."""
    return hmac.compare_digest(hash_of(raw[:-_TAIL], key), line.hash)


def write_head(head: Head, key: bytes | None) -> bytes:
    """Return the bytes of the file of the head."""
    body = json.dumps({"file": head.file, "end": head.end}, separators=(",", ":")).encode()
    line, _ = seal(head.seq, head.hash, body, key)
    return line.rstrip(b"\n").ljust(HEAD_BYTES - 1) + b"\n"


def read_head(data: bytes, key: bytes | None) -> Head | None:
    """Return the head; None where it is not what was written, or was written with another key."""
    raw = data[:-1].rstrip(b" ")
    line = read_line(raw)
    if line is None or data != raw.ljust(HEAD_BYTES - 1) + b"\n" or not fits(raw, line, key):
        return None
    file, end = line.facts.get("file"), line.facts.get("end")
    if not isinstance(file, int) or not isinstance(end, int):
        return None
    return Head(file=file, seq=line.seq, hash=line.prev, end=end)
