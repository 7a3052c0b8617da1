"""A block of stored messages decoded: runs of one shape at once, what is left row by row.

    rows ──the first row is parsed: its head, its shape──> all rows that fit have its head
      ^                                                        │ some do not
      └────────────────── the others, a few times ─────────────┘
    what fits nothing ──> row by row

The others come again only while a shape takes a fair part of them: where each message has a head of
its own, looking at all of them for each would cost more than parsing them one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..model.message import STOMP
from .columns import BlockReader, Head

#: Fewer rows are read one by one: a round costs as much as some thirty of them.
ROWS_MIN: Final = 32
#: Shapes of one block; senders whose messages lie mixed have one each.
ROUNDS_MAX: Final = 16
#: A shape goes on to the next one when it took this part of what it saw.
PART_MIN: Final = 1 / 16


class Decoded(NamedTuple):
    """A block: `indices[i]` says which of `heads` row i has; None: all have the first."""

    heads: Sequence[Head]
    indices: pa.Array | None
    bodies: pa.Array


class _Piece(NamedTuple):
    """Rows of a block: where they are (None: all of them), their heads, their bodies."""

    places: pa.Array | None
    heads: Sequence[Head]
    indices: pa.Array | None
    bodies: pa.Array


def decode_block(reader: BlockReader, raw: pa.Array, flags: pa.Array) -> Decoded:
    """Return heads and bodies of stored messages: a binary array, and one word for each.

    Never raises on a message, whatever its bytes are.
    """
    pieces: list[_Piece] = []
    places: pa.Array | None = None
    rounds = 0
    while len(raw) >= ROWS_MIN and rounds < ROUNDS_MAX:
        rounds += 1
        head, shape = reader.shape_of(raw[0].as_py(), flags[0].as_py())
        if shape is None:
            break
        fits = shape.fitting(raw)
        stomp = pc.not_equal(pc.bit_wise_and(flags, STOMP), 0)
        fits = pc.and_(fits, pc.equal(stomp, stomp[0]))
        count = fits.true_count
        if count == len(raw):
            pieces.append(_Piece(places, [head], None, shape.bodies(raw)))
            return _join(pieces)
        if count < max(len(raw) * PART_MIN, 2):
            break
        taken, others = pc.indices_nonzero(fits), pc.indices_nonzero(pc.invert(fits))
        where = taken if places is None else places.take(taken)
        pieces.append(_Piece(where, [head], None, shape.bodies(raw.take(taken))))
        places = others if places is None else places.take(others)
        raw, flags = raw.take(others), flags.take(others)
    pieces.append(_one_by_one(reader, raw, flags, places))
    return _join(pieces)


def _one_by_one(
    reader: BlockReader, raw: pa.Array, flags: pa.Array, places: pa.Array | None
) -> _Piece:
    data, offsets = _bytes_of(raw)
    found = reader.read(data, offsets, flags.to_pylist())
    return _Piece(places, found.heads, _int32(found.indices), pa.array(found.bodies, pa.binary()))


def _join(pieces: Sequence[_Piece]) -> Decoded:
    """Put the pieces of a block together in the order of its rows."""
    if len(pieces) == 1 and pieces[0].places is None:
        return Decoded(pieces[0].heads, pieces[0].indices, pieces[0].bodies)
    heads: list[Head] = []
    indices, places, bodies = [], [], []
    for piece in pieces:
        assert piece.places is not None, "a piece of several has no places"
        own = piece.indices
        if own is None:
            own = pa.repeat(pa.scalar(0, pa.int32()), len(piece.bodies))
        indices.append(pc.add(own, pa.scalar(len(heads), pa.int32())))
        places.append(piece.places)
        bodies.append(piece.bodies)
        heads += piece.heads
    order = pc.sort_indices(pa.concat_arrays(places))
    return Decoded(
        heads, pa.concat_arrays(indices).take(order), pa.concat_arrays(bodies).take(order)
    )


def _bytes_of(column: pa.Array) -> tuple[bytes, list[int]]:
    """Return the bytes that a binary column lies in, and where its values start and end."""
    _, offsets, data = column.buffers()
    words = memoryview(offsets).cast("i")[column.offset : column.offset + len(column) + 1]
    return (data.to_pybytes() if data is not None else b""), words.tolist()


def _int32(numbers: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
