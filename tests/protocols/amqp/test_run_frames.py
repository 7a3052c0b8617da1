"""Frames of a run: long and short ones, of one size and of several, are the same frames."""

from __future__ import annotations

import random

import pytest

from gateway.model.serial import MASK
from protocols.amqp.run_frames import LINK_BYTES, RunFrames

SAME = bytes(range(LINK_BYTES))
SETTLED = b"\x43\x41"


def plainly(head: bytes, bodies: list[bytes], first: int) -> bytes:
    """Return the frames, put together number by number."""
    frames = b""
    for place, body in enumerate(bodies):
        number = ((first + place) & MASK).to_bytes(4, "big")
        inside = SAME + number + b"\xa0\x04" + number + SETTLED + head + body
        frames += (4 + len(inside)).to_bytes(4, "big") + inside
    return frames


@pytest.mark.parametrize("head", [b"", b"header"])
@pytest.mark.parametrize("first", [0, 255, 65_500, 0x01020304, MASK - 70, MASK - 3])
@pytest.mark.parametrize("count", [1, 3, 63, 64, 65, 300])
@pytest.mark.parametrize("sizes", [(100,), (0,), (70_000,), (1, 300)])
def test_frames_are_what_they_would_be_one_by_one(head, first, count, sizes):
    chance = random.Random(count)
    bodies = [chance.randbytes(sizes[place % len(sizes)]) for place in range(count)]
    frames = RunFrames(head).join(SAME, SETTLED, bodies, list(map(len, bodies)), first)
    assert frames == plainly(head, bodies, first)
