"""Shapes: runs of stored messages that differ in their bodies alone, told apart without a loop.

A sender repeats its head. In front of the body are then the same bytes in each message, and the
digits or bytes that say how long the body is:

    AMQP    sections ... 00 53 75 (data) or 00 53 77 (amqp-value), constructor, length   | body
    STOMP   header lines ... content-length:DIGITS, header lines, empty line             | body

A shape is that front: constant bytes, a length of known width, constant bytes. Rows fit when the
constant bytes are theirs and the length says what is left of the row: then nothing is behind the
body, and a decoder would find the same. All rows are compared at once by Arrow's kernels.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from enum import Enum
from sys import byteorder
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

#: No body is as long: Arrow's slice takes a stop, and fails without one (seen in 26.0).
_END: Final = 0x7FFFFFFF


class Length(Enum):
    """How a front says how long its body is."""

    NOWHERE = "not at all"
    BINARY = "an unsigned number, most significant byte first"
    DIGITS = "decimal digits"


@dataclass(frozen=True, slots=True)
class Shape:
    """What stands in front of a body.

    Attributes:
        before: the bytes in front of the length.
        length: how it is written.
        width: how many bytes it has; 0 for NOWHERE.
        behind: the bytes between the length and the body.
    """

    before: bytes
    length: Length = Length.NOWHERE
    width: int = 0
    behind: bytes = b""

    @property
    def start(self) -> int:
        """Where the body begins."""
        return len(self.before) + self.width + len(self.behind)

    def bodies(self, rows: pa.Array) -> pa.Array:
        """Return the bodies of rows that fit."""
        return pc.binary_slice(rows, self.start, _END)

    def fitting(self, rows: pa.Array) -> pa.Array:
        """Return which binary `rows` fit, as booleans."""
        long_enough = pc.greater_equal(pc.binary_length(rows), self.start)
        fits = pc.and_(pc.starts_with(rows, pattern=self.before), long_enough)
        if self.length is Length.NOWHERE:
            return fits
        if fits.true_count == len(rows):
            return self._measured(rows)
        places = pc.indices_nonzero(fits)
        if not len(places):
            return fits
        measured = self._measured(rows.take(places))
        return pc.replace_with_mask(fits, fits, measured)

    def _measured(self, rows: pa.Array) -> pa.Array:
        """Return which rows have a length that is theirs; all begin right and are long enough."""
        left = pc.subtract(pc.binary_length(rows), self.start)
        place = len(self.before)
        if self.behind:
            behind = pc.binary_slice(rows, place + self.width, self.start)
            closed = pc.equal(behind, pa.scalar(self.behind, rows.type))
        else:
            closed = None
        written = pc.binary_slice(rows, place, place + self.width)
        if self.length is Length.BINARY:
            fits = pc.equal(_numbers(written, self.width), pc.cast(left, pa.int64()))
        else:
            fits = _same_digits(written, left)
        return fits if closed is None else pc.and_(fits, closed)


def _numbers(written: pa.Array, width: int) -> pa.Array:
    """Return numbers of one or four bytes, most significant first, as int64."""
    _, offsets, data = written.buffers()
    first = memoryview(offsets).cast("i")[written.offset]
    numbers = array("B" if width == 1 else "I")
    numbers.frombytes(data.slice(first, len(written) * width))
    if byteorder == "little" and width > 1:
        numbers.byteswap()
    kind = pa.uint8() if width == 1 else pa.uint32()
    made = pa.Array.from_buffers(kind, len(written), [None, pa.py_buffer(numbers)])
    return pc.cast(made, pa.int64())


def _same_digits(written: pa.Array, numbers: pa.Array) -> pa.Array:
    """Return where decimal digits write a number without a sign, a blank or a leading zero."""
    wanted = pc.cast(pc.cast(numbers, pa.string()), pa.binary())
    return pc.equal(written, wanted)
