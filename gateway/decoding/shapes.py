"""Shapes: runs of stored messages that differ in a few places alone, told apart without a loop.

A sender repeats its head. In front of the body are then the same bytes in each message, but for the
digits or bytes that say how long the body is, and the values that are each message's own:

    AMQP    sections ... 00 53 75 (data) or 00 53 77 (amqp-value), constructor, length   | body
    STOMP   header lines ... content-length:DIGITS, header lines, empty line             | body

A shape is that front: its bytes, where the length is in it, and the holes, where values are. Rows
fit when all other bytes are theirs and the length says what is left of the row: then nothing is
behind the body, and a decoder would find the same. All rows are compared at once by Arrow's
kernels. A hole has a fixed width: a value that is longer makes another shape.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from sys import byteorder
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

#: No body is as long: Arrow's slice takes a stop, and fails without one (seen in 26.0).
_END: Final = 0x7FFFFFFF
_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_SIGNED: Final = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}
_UNSIGNED: Final = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}


class Length(Enum):
    """How a front says how long its body is."""

    NOWHERE = "not at all"
    BINARY = "an unsigned number, most significant byte first"
    DIGITS = "decimal digits"


class Hole(NamedTuple):
    """Bytes [start, end) of a front that differ from row to row."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What stands in front of a body.

    Attributes:
        front: the bytes of one message, up to its body.
        length: how the length of the body is written in them.
        length_at: where it is, `width` bytes of it.
        holes: where other messages may have other bytes, in order.
        text: a hole may hold neither a line end nor a backslash [STOMP 1.2, Value Encoding].
    """

    front: bytes
    length: Length = Length.NOWHERE
    length_at: int = 0
    width: int = 0
    holes: tuple[Hole, ...] = ()
    text: bool = False

    def bodies(self, rows: pa.Array) -> pa.Array:
        """Return the bodies of rows that fit."""
        return pc.binary_slice(rows, len(self.front), _END)

    def fitting(self, rows: pa.Array) -> pa.Array:
        """Return which binary `rows` fit, as booleans."""
        (_, first), *others = self.constants()
        long_enough = pc.greater_equal(pc.binary_length(rows), len(self.front))
        fits = pc.and_(pc.starts_with(rows, pattern=self.front[:first]), long_enough)
        if not others and not self.width:
            return fits
        if fits.true_count == len(rows):
            return self._rest(rows, others)
        places = pc.indices_nonzero(fits)
        if not len(places):
            return fits
        return pc.replace_with_mask(fits, fits, self._rest(rows.take(places), others))

    def with_holes(self, holes: tuple[Hole, ...]) -> Shape:
        """Return the shape with these holes."""
        return replace(self, holes=holes)

    def constants(self) -> Iterator[tuple[int, int]]:
        """Yield where the front is the same in all rows: (start, end); the first begins at 0."""
        gaps = list(self.holes)
        if self.width:
            gaps.append(Hole(self.length_at, self.length_at + self.width))
        at = 0
        for start, end in sorted(gaps):
            if start > at or at == 0:
                yield at, start
            at = end
        if at < len(self.front) or at == 0:
            yield at, len(self.front)

    def _rest(self, rows: pa.Array, constants: list[tuple[int, int]]) -> pa.Array:
        """Return which rows fit of those that begin right and are long enough."""
        fits = None
        for start, end in constants:
            same = pc.equal(pc.binary_slice(rows, start, end), self.front[start:end])
            fits = same if fits is None else pc.and_(fits, same)
        for hole in self.holes if self.text else ():
            value = pc.binary_slice(rows, *hole)
            odd = pc.or_(pc.match_substring(value, b"\n"), pc.match_substring(value, b"\\"))
            fits = pc.invert(odd) if fits is None else pc.and_(fits, pc.invert(odd))
        if self.width:
            measured = self._measured(rows)
            fits = measured if fits is None else pc.and_(fits, measured)
        return fits

    def _measured(self, rows: pa.Array) -> pa.Array:
        left = pc.subtract(pc.binary_length(rows), len(self.front))
        written = pc.binary_slice(rows, self.length_at, self.length_at + self.width)
        if self.length is Length.BINARY:
            return pc.equal(pc.cast(numbers(written, self.width), pa.int64()), left)
        # Without a sign, a blank or a leading zero.
        return pc.equal(written, pc.cast(pc.cast(left, pa.string()), pa.binary()))


def numbers(written: pa.Array, width: int, *, signed: bool = False) -> pa.Array:
    """Return binary values of `width` bytes each, most significant first, as numbers."""
    _, offsets, data = written.buffers()
    first = memoryview(offsets).cast("i")[written.offset]
    found = array(_CODES[width])
    found.frombytes(data.slice(first, len(written) * width))
    if byteorder == "little" and width > 1:
        found.byteswap()
    kind = (_SIGNED if signed else _UNSIGNED)[width]
    return pa.Array.from_buffers(kind, len(written), [None, pa.py_buffer(found)])
