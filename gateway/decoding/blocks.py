"""A block of stored messages decoded: runs of one shape at once, what is left row by row.

    rows ──a row is parsed: its head, its shape──> all rows that fit are a run
      ^                                                        │ some do not
      └────────────────── the others, a few times ─────────────┘
    a row that fits nothing ──> row by row

Which values of a head are each message's own shows in a few other rows of the same structure: where
they differ from the first, the shape has holes. The others come again only while a shape takes
enough of them: looking at all of them for each message would cost more than parsing it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..model.message import STOMP
from . import fields
from .columns import BlockReader, Head
from .shapes import Hole, Shape
from .spots import Spot

#: Fewer rows are read one by one: a run costs as much as some fifteen of them (measured).
ROWS_MIN: Final = 24
#: Shapes of one block; senders whose messages lie mixed have one each.
ROUNDS_MAX: Final = 16
#: Rows that are tried as the first of a run, before what is left is read one by one.
MISSES_MAX: Final = 4
#: Rows that are looked at to see where heads differ.
SAMPLES: Final = 24

OfHead = Callable[[Head], object]


class Loose:
    """Rows that were parsed one by one: `indices[i]` says which of `heads` row i has."""

    def __init__(self, reader: BlockReader, raw: pa.Array, flags: pa.Array) -> None:
        data, offsets = _bytes_of(raw)
        found = reader.read(data, offsets, flags.to_pylist())
        self._heads = found.heads
        self._indices = _int32(found.indices)
        self.bodies = pa.array(found.bodies, pa.binary())

    def column(self, name: str, kind: pa.DataType, function: OfHead) -> pa.Array:
        """Return what `function` says of the head of each row."""
        values = pa.array([function(head) for head in self._heads], kind)
        return values.take(self._indices)


class Run:
    """Rows of one shape; `head` is that of the first, and `spots` are the holes of the shape."""

    def __init__(
        self, reader: BlockReader, head: Head, shape: Shape, spots: Sequence[Spot], raw: pa.Array
    ) -> None:
        self.bodies = shape.bodies(raw)
        self._reader = reader
        self._head = head
        self._raw = raw
        self._word = STOMP if shape.text else 0
        holes = _in_holes(shape, spots)
        self._touched = [(fields.columns_of(spot, spots), spot) for spot in holes]
        self._loose: Loose | None = None

    def column(self, name: str, kind: pa.DataType, function: OfHead) -> pa.Array:
        """Return what `function` says of the head of each row."""
        holes = [spot for names, spot in self._touched if name in names]
        count = len(self.bodies)
        if not holes:
            value = function(self._head)
            if value is None:
                return pa.nulls(count, kind)
            return pa.repeat(pa.scalar(value, kind), count)
        made = fields.column(name, holes, self._raw, self._head, kind)
        if made is not None:
            return made
        if self._loose is None:
            self._loose = Loose(self._reader, self._raw, _words(self._word, count))
        return self._loose.column(name, kind, function)


class Decoded:
    """A block: its bodies, and columns of what stands in front of them."""

    def __init__(self, pieces: Sequence[Run | Loose], places: Sequence[pa.Array | None]) -> None:
        """`places[i]` are the rows of piece i; None, of a single one: all of them."""
        self._pieces = pieces
        self._order: pa.Array | None = None
        if len(pieces) > 1:
            self._order = pc.sort_indices(pa.concat_arrays(places))
        self.bodies = self._joined([piece.bodies for piece in pieces])

    def column(self, name: str, kind: pa.DataType, function: OfHead) -> pa.Array:
        """Return the column `name`: what `function` says of the head of each row."""
        return self._joined([piece.column(name, kind, function) for piece in self._pieces])

    @property
    def pieces(self) -> tuple[int, int]:
        """How many runs of one shape there are, and how many rows that were parsed one by one."""
        loose = [piece for piece in self._pieces if isinstance(piece, Loose)]
        return len(self._pieces) - len(loose), sum(len(piece.bodies) for piece in loose)

    def _joined(self, parts: list[pa.Array]) -> pa.Array:
        return parts[0] if self._order is None else pa.concat_arrays(parts).take(self._order)


def decode_block(reader: BlockReader, raw: pa.Array, flags: pa.Array) -> Decoded:
    """Return stored messages, a binary array with one word for each, decoded.

    Never raises on a message, whatever its bytes are.
    """
    pieces: list[Run | Loose] = []
    places: list[pa.Array | None] = []
    left: pa.Array | None = None
    missed = 0
    for _ in range(ROUNDS_MAX):
        if len(raw) < ROWS_MIN or missed == MISSES_MAX:
            break
        # One row may be unlike all others: the next one is looked for further behind.
        head, shape, spots = shape_at(reader, raw, flags, len(raw) * missed // MISSES_MAX)
        fits = None if shape is None else _fitting(shape, raw, flags)
        if shape is None or fits is None or fits.true_count < ROWS_MIN:
            missed += 1
            continue
        if fits.true_count == len(raw):
            pieces.append(_piece(reader, head, shape, spots, raw))
            places.append(left)
            return Decoded(pieces, places)
        taken, others = pc.indices_nonzero(fits), pc.indices_nonzero(pc.invert(fits))
        pieces.append(_piece(reader, head, shape, spots, raw.take(taken)))
        places.append(taken if left is None else left.take(taken))
        left = others if left is None else left.take(others)
        raw, flags = raw.take(others), flags.take(others)
    pieces.append(Loose(reader, raw, flags))
    places.append(left)
    return Decoded(pieces, places)


def _piece(
    reader: BlockReader, head: Head, shape: Shape, spots: Sequence[Spot], raw: pa.Array
) -> Run | Loose:
    """Return rows that fit as a run, or loose where a decoder would refuse some of their values."""
    if fields.readable(_in_holes(shape, spots), raw):
        return Run(reader, head, shape, spots, raw)
    return Loose(reader, raw, _words(0, len(raw)))


def _in_holes(shape: Shape, spots: Sequence[Spot]) -> list[Spot]:
    return [spot for spot in spots if Hole(spot.start, spot.end) in shape.holes]


def _words(word: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(word, pa.int32()), count)


def _fitting(shape: Shape, raw: pa.Array, flags: pa.Array) -> pa.Array:
    stomp = pc.not_equal(pc.bit_wise_and(flags, STOMP), 0)
    return pc.and_(shape.fitting(raw), stomp if shape.text else pc.invert(stomp))


def shape_at(
    reader: BlockReader, raw: pa.Array, flags: pa.Array, at: int
) -> tuple[Head, Shape | None, Sequence[Spot]]:
    """Return head and shape of a row, with holes where rows of its structure differ."""
    head, shape = reader.shape_of(raw[at].as_py(), flags[at].as_py())
    if shape is None:
        return head, None, ()
    spots, front = reader.spots_of(shape), shape.front
    alike = list(shape.with_holes(_holes(spots)).constants())
    differing: set[Spot] = set()
    for sample in range(0, len(raw), max(len(raw) // SAMPLES, 1)):
        other = raw[sample].as_py()
        if all(other[a:b] == front[a:b] for a, b in alike):
            differing.update(s for s in spots if other[s.start : s.end] != front[s.start : s.end])
    return head, shape.with_holes(_holes(differing)), spots


def _holes(spots: Iterable[Spot]) -> tuple[Hole, ...]:
    return tuple(sorted(Hole(spot.start, spot.end) for spot in spots))


def _bytes_of(column: pa.Array) -> tuple[bytes, list[int]]:
    """Return the bytes that a binary column lies in, and where its values start and end."""
    _, offsets, data = column.buffers()
    words = memoryview(offsets).cast("i")[column.offset : column.offset + len(column) + 1]
    return (data.to_pybytes() if data is not None else b""), words.tolist()


def _int32(numbers: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
