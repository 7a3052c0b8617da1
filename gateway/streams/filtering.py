"""A selector over stored rows: those that match stay, the others are left out.

Rows have the columns `offset, timestamp, flags, raw` (`gateway.decoding.view.STORED`); a selector
sees them as it sees messages of a queue. Runs on the worker thread that reads.

What a selector looks at lies in front of the body and in the flags, and senders repeat both: one
evaluation stands for all rows of a block whose bytes in front of the body are the same. Arrow's
kernels find them while a front takes a fair part of the rows, as the decoder finds its shapes; what
is left is looked at one by one, and outcomes are remembered by their fronts. A few fields differ
from row to row all the same (`_OF_ROW`); a selector that names one of them is evaluated for each.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from gateway.decoding.blocks import PART_MIN, ROUNDS_MAX, ROWS_MIN
from gateway.decoding.shapes import Length, Shape
from gateway.model.amqp_types import DecodeError
from gateway.model.message import EXPIRES, STOMP, Message
from gateway.model.sections import DATA, expiry_and_group, header_facts
from gateway.selectors import Selector

#: Fields that rows with the same flags and the same bytes in front of their bodies may differ in:
#: the length of the whole, an expiry counted from the arrival, the length of a STOMP body.
_OF_ROW: Final = frozenset({"AMQSize", "AMQExpiration", "JMSExpiration", "content-length"})
#: Outcomes remembered at once; a sender with ids in its messages repeats none.
_REMEMBERED_MAX: Final = 4096
_WORD: Final = 0xFFFFFFFF
_LENGTH: Final = b"\ncontent-length:"
#: How sections in front of a body are written, nearly always [AMQP 1.2, 3.2].
_SMALL_ULONG: Final = 0x53
_SHORT: Final = (0xC0, 0xC1)
_LONG: Final = (0xD0, 0xD1)
_EMPTY_LIST: Final = 0x45


class _Front(NamedTuple):
    """How a message begins whose bytes in front of the body are those of another one.

    It starts with `before`; in STOMP with a content-length, digits and `behind` follow.
    """

    before: bytes
    behind: bytes | None


class _Rows(NamedTuple):
    """Rows of a block that are still to be judged; `places` says where they are (None: all)."""

    raw: pa.Array
    flags: pa.Array
    stamps: pa.Array
    places: pa.Array | None

    def places_of(self, indices: pa.Array) -> pa.Array:
        """Return the places in the block of some of these rows."""
        return indices.cast(pa.uint64()) if self.places is None else self.places.take(indices)

    def take(self, indices: pa.Array) -> _Rows:
        raw, flags, stamps = (one.take(indices) for one in (self.raw, self.flags, self.stamps))
        return _Rows(raw, flags, stamps, self.places_of(indices))


class Filter:
    """One selector over the rows of one reading; remembers outcomes. Never shared by threads."""

    __slots__ = ("_by_row", "_known", "_selector")

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._by_row = not _OF_ROW.isdisjoint(selector.names)
        #: What stands in front of a body, and the flags -> the outcome.
        self._known: dict[tuple[_Front, int], bool] = {}

    def keep(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that match, in their order. Never raises, whatever their bytes are."""
        kept: list[pa.Array] = []
        left = _Rows(rows.column(3), rows.column(2), rows.column(1), None)
        rounds = 0 if self._by_row else ROUNDS_MAX
        while len(left.raw) >= ROWS_MIN and rounds:
            rounds -= 1
            raw, word = left.raw[0].as_py(), left.flags[0].as_py()
            front = _front_of(raw, word)
            if front is None:
                break
            fits = pc.and_(_fitting(front, raw, left.raw), pc.equal(left.flags, word))
            if fits.true_count < max(len(left.raw) * PART_MIN, 2):
                break
            if self._outcome(front, raw, word, 0):
                if fits.true_count == len(rows):
                    return rows
                kept.append(left.places_of(pc.indices_nonzero(fits)))
            left = left.take(pc.indices_nonzero(pc.invert(fits)))
        if len(left.raw):
            kept.append(left.places_of(self._one_by_one(left)))
        places = pa.concat_arrays([pa.array([], pa.uint64()), *kept])
        if len(places) == len(rows):
            return rows
        return rows.take(places if len(kept) < 2 else places.take(pc.sort_indices(places)))

    def _one_by_one(self, left: _Rows) -> pa.Array:
        """Return where the rows are that match; a row that begins as the one before is like it."""
        data, places = _bytes_of(left.raw)
        flags = left.flags.to_pylist()
        by_row = self._by_row
        stamps = left.stamps.cast(pa.int64()).to_pylist() if by_row else [0] * len(flags)
        kept = array("Q")
        front: _Front | None = None
        outcome, before_word = False, 0
        for index, word in enumerate(flags):
            at, end = places[index], places[index + 1]
            same = front is not None and word == before_word and _begins(data, at, end, front)
            if not same:
                raw = data[at:end]
                front, before_word = None if by_row else _front_of(raw, word), word
                outcome = self._outcome(front, raw, word, stamps[index])
            if outcome:
                kept.append(index)
        return pa.Array.from_buffers(pa.uint64(), len(kept), [None, pa.py_buffer(kept)])

    def _outcome(self, front: _Front | None, raw: bytes, word: int, stamp_us: int) -> bool:
        known = None if front is None else self._known.get((front, word))
        if known is not None:
            return known
        outcome = self._selector.matches(_message(raw, word & _WORD, stamp_us // 1000))
        if front is not None and len(self._known) < _REMEMBERED_MAX:
            self._known[front, word] = outcome
        return outcome


def _bytes_of(column: pa.Array) -> tuple[bytes, list[int]]:
    """Return the bytes that a binary column lies in, and where its values start and end."""
    _, offsets, data = column.buffers()
    words = memoryview(offsets).cast("i")[column.offset : column.offset + len(column) + 1]
    return (data.to_pybytes() if data is not None else b""), words.tolist()


def _fitting(front: _Front, raw: bytes, rows: pa.Array) -> pa.Array:
    """Return which rows have the front of `raw`, as booleans."""
    if front.behind is None:
        return pc.starts_with(rows, pattern=front.before)
    width = raw.find(b"\n", len(front.before)) - len(front.before)
    return Shape(front.before, Length.DIGITS, width, front.behind).fitting(rows)


def _begins(data: bytes, at: int, end: int, front: _Front) -> bool:
    """Whether the message `data[at:end]` has this front."""
    if not data.startswith(front.before, at, end):
        return False
    if front.behind is None:
        return True
    line_end = data.find(b"\n", at + len(front.before), end)
    return line_end >= 0 and data.startswith(front.behind, line_end, end)


def _front_of(raw: bytes, word: int) -> _Front | None:
    """Return what stands in front of the body; None where that cannot be told."""
    if not word & STOMP:
        at = _body_at(raw)
        return None if at < 0 else _Front(raw[: at + 3], None)
    split = raw.find(b"\n\n")
    if split < 0:
        return None
    length_at = raw.find(_LENGTH, 0, split)
    if length_at < 0:
        return _Front(raw[: split + 2], None)
    digits_at = length_at + len(_LENGTH)
    return _Front(raw[:digits_at], raw[raw.find(b"\n", digits_at) : split + 2])


def _body_at(raw: bytes) -> int:
    """Return where the first body section starts; -1 unless all before it has the short forms."""
    at, end = 0, len(raw)
    try:
        while at < end and not raw[at] and raw[at + 1] == _SMALL_ULONG:
            if raw[at + 2] >= DATA:
                return at
            kind = raw[at + 3]
            if kind in _SHORT:
                at += 5 + raw[at + 4]
            elif kind in _LONG:
                at += 8 + int.from_bytes(raw[at + 4 : at + 8], "big")
            elif kind == _EMPTY_LIST:
                at += 4
            else:
                break
    except IndexError:
        pass
    return -1


def _message(raw: bytes, flags: int, arrived_ms: int) -> Message:
    """Return a stored message as a queue would hold it."""
    message = Message(raw, 0, flags)
    if flags & EXPIRES:
        message.expires = _expires_stomp(raw) if flags & STOMP else _expires_amqp(raw, arrived_ms)
    return message


def _expires_stomp(raw: bytes) -> int:
    start = raw.find(b"\nexpires:") + 9
    digits = raw[start : raw.find(b"\n", start)]
    return int(digits) if start > 8 and digits.isdigit() and len(digits) < 20 else 0


def _expires_amqp(raw: bytes, arrived_ms: int) -> int:
    """Return absolute-expiry-time, else arrival and ttl, as the gateway reckoned at the arrival."""
    expires = 0
    try:
        facts = header_facts(raw)
        expires = arrived_ms + facts.ttl_ms if facts.ttl_ms else 0
        absolute, _ = expiry_and_group(raw, facts.end)
        expires = absolute if absolute > 0 else expires
    except DecodeError:
        pass  # what the header said still holds
    return expires
