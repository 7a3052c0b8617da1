"""The frames of a run of deliveries that take one each: delivery-id and size are all that vary.

    size:4 | of the link:16 | id:4 | a0 04 | id:4 | format 0, settled:2 | header | rest of the body

Each number is packed on its own, or, in long runs of messages of one size, a byte of all of them
at a time: which is a fifth less, and costs more to set up.
"""

from __future__ import annotations

import struct
import sys
from array import array
from itertools import repeat
from typing import Final

from gateway.model.serial import MASK

#: Bytes that are the same for all deliveries of a link: doff, type, channel, up to the handle.
LINK_BYTES: Final = 16
#: What is behind the tag, without the header: format 0, settled.
_TAIL_BYTES: Final = 2
_TAG_HEAD: Final = b"\xa0\x04"
_ID: Final = 4 + LINK_BYTES
_TAG: Final = _ID + 4 + len(_TAG_HEAD)
_HEAD_BYTES: Final = _TAG + 4 + _TAIL_BYTES
#: From so many deliveries on the columns are quicker.
_COLUMNS_MIN: Final = 64


class RunFrames:
    """Puts bodies into frames, with `head` before each.

    Attributes:
        bytes_each: of a frame without its body.
    """

    __slots__ = ("_pack", "_slices", "bytes_each", "head")

    def __init__(self, head: bytes) -> None:
        self.head = head
        self.bytes_each = _HEAD_BYTES + len(head)
        self._pack = struct.Struct(f">I{LINK_BYTES}sI2sI{_TAIL_BYTES + len(head)}s").pack
        self._slices = struct.Struct(f"{self.bytes_each}s").iter_unpack

    def join(
        self, same: bytes, settled: bytes, bodies: list[bytes], sizes: list[int], first: int
    ) -> bytes:
        """Return the frames. Hot.

        Args:
            same: the LINK_BYTES of the link.
            settled: format 0 and whether the deliveries are settled.
            bodies: what follows the header in each.
            sizes: their bytes.
            first: the first delivery-id; they wrap.
        """
        count = len(bodies)
        out: list[bytes] = [b""] * (2 * count)
        if count >= _COLUMNS_MIN and first + count <= MASK and sizes.count(sizes[0]) == count:
            out[::2] = self._columns(same, settled, sizes[0], first, count)
        else:
            ids = (
                range(first, first + count)
                if first + count <= MASK
                else [i & MASK for i in range(first, first + count)]
            )
            out[::2] = map(
                self._pack,
                map(self.bytes_each.__add__, sizes),
                repeat(same),
                ids,
                repeat(_TAG_HEAD),
                ids,
                repeat(settled + self.head),
            )
        out[1::2] = bodies
        return b"".join(out)

    def _columns(
        self, same: bytes, settled: bytes, size: int, first: int, count: int
    ) -> list[bytes]:
        each = self.bytes_each
        heads = bytearray(
            self._pack(each + size, same, 0, _TAG_HEAD, 0, settled + self.head) * count
        )
        numbers = array("I", range(first, first + count))
        if sys.byteorder == "little":
            numbers.byteswap()
        ids = numbers.tobytes()
        for place in range(4):
            column = ids[place::4]
            heads[_ID + place :: each] = column
            heads[_TAG + place :: each] = column
        return [head for (head,) in self._slices(heads)]
