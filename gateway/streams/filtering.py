"""A selector over stored rows: those that match stay, the others are left out.

Rows have the columns `offset, timestamp, flags, raw` (`gateway.decoding.view.STORED`); a selector
sees them as it sees messages of a queue. Runs on the worker thread that reads.

All that a selector looks at lies in front of the body and in the flags, and senders repeat both.
One evaluation stands for all rows of a block that have one shape, as the decoder finds them, with
holes where values are each message's own and the selector does not look. What is left is looked at
row by row: neighbours with the same bytes in front of their bodies are one evaluation, and outcomes
are remembered by these bytes. A few fields differ from row to row all the same (`_OF_ROW`); a
selector that names one of them is evaluated for each.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from gateway.decoding.blocks import MISSES_MAX, ROUNDS_MAX, ROWS_MIN, shape_at
from gateway.decoding.columns import BlockReader
from gateway.decoding.shapes import Hole
from gateway.decoding.spots import STOMP_HEAD, Spot
from gateway.model.amqp_types import DecodeError
from gateway.model.message import EXPIRES, STOMP, Message
from gateway.model.sections import APPLICATION_PROPERTIES, DATA, expiry_and_group, header_facts
from gateway.selectors import Selector
from gateway.selectors.fields import is_fact, is_property

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

    __slots__ = ("_by_row", "_known", "_own_only", "_reader", "_selector")

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._by_row = not _OF_ROW.isdisjoint(selector.names)
        #: It names facts and the sender's own properties: all other values may differ.
        self._own_only = all(is_fact(name) or is_property(name) for name in selector.names)
        self._reader = BlockReader()
        #: What stands in front of a body, and the flags -> the outcome.
        self._known: dict[tuple[_Front, int], bool] = {}

    def keep(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that match, in their order. Never raises, whatever their bytes are."""
        kept: list[pa.Array] = []
        left = _Rows(rows.column(3), rows.column(2), rows.column(1), None)
        missed = MISSES_MAX if self._by_row else 0
        for _ in range(ROUNDS_MAX):
            if len(left.raw) < ROWS_MIN or missed == MISSES_MAX:
                break
            # One row may be unlike all others: the next one is looked for further behind.
            at = len(left.raw) * missed // MISSES_MAX
            fits = self._fitting(left, at)
            if fits is None or fits.true_count < ROWS_MIN:
                missed += 1
                continue
            if self._outcome(None, left.raw[at].as_py(), left.flags[at].as_py(), 0):
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

    def _fitting(self, left: _Rows, at: int) -> pa.Array | None:
        """Return which rows have the outcome of row `at`, as booleans; None where none can."""
        _, shape, spots = shape_at(self._reader, left.raw, left.flags, at)
        if shape is None:
            return None
        free = {Hole(spot.start, spot.end) for spot in spots if not self._looks_at(spot)}
        shape = shape.with_holes(tuple(hole for hole in shape.holes if hole in free))
        return pc.and_(shape.fitting(left.raw), pc.equal(left.flags, left.flags[at]))

    def _looks_at(self, spot: Spot) -> bool:
        if not self._own_only:
            return True
        own = spot.section in (APPLICATION_PROPERTIES, STOMP_HEAD)
        return own and spot.name in self._selector.names

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
