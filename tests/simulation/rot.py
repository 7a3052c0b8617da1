"""Bits that flip on the device: what a recovery may make of each place where one can.

In the header of a segment, or in any batch but the last of all, a flip must be refused: the bytes
were confirmed. In the last batch it may look like a torn tail, and then exactly that batch is gone.
Behind the last batch it must change nothing; a file that was never begun may be refused or not.

A batch that is missing between others must be refused too, even where all sums are right: only the
numbers tell.
"""

from __future__ import annotations

import posixpath
import random
import zlib
from itertools import pairwise

from storage.errors import DamageError, FormatError
from storage.record import (
    BATCH_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    decode_batch_head,
    decode_segment_header,
    encode_batch,
    salt_of,
)
from storage.recovery import Recovered, recover
from storage.segments import segment_number
from tests.simulation.disk import SimDisk
from tests.simulation.model import ViolationError

Files = list[tuple[int, str, bytes]]
FLIPS = 4


def segment_files(disk: SimDisk, directory: str) -> Files:
    """Return the segments as the device has them."""
    found = []
    for name in disk.listdir(directory):
        number = segment_number(name)
        if number is not None:
            path = posixpath.join(directory, name)
            found.append((number, path, bytes(disk.nodes[disk.names[path]].cache)))
    return found


def spans(files: Files) -> list[tuple[int, int, int]]:
    """Return (file, start, end) of each segment header and whole batch, in order."""
    found = []
    expected: int | None = None
    for index, (number, _, data) in enumerate(files):
        head = decode_segment_header(data)
        if head is None or head.number != number:
            continue
        found.append((index, 0, SEGMENT_HEADER_BYTES))
        offset = SEGMENT_HEADER_BYTES
        expected = head.first if expected is None else expected
        while True:
            batch = decode_batch_head(data, offset, salt_of(head.uuid, offset))
            if batch is None or batch.number != expected:
                break
            start = offset + BATCH_HEADER_BYTES
            end = start + batch.length
            if zlib.crc32(data[start:end], salt_of(head.uuid, offset)) != batch.payload_crc:
                break
            found.append((index, offset, end))
            offset = end
            expected += 1
    return found


def check_rot(disk: SimDisk, directory: str, chance: random.Random) -> None:
    """Flip bits, one at a time, and judge what a recovery makes of it. Changes nothing."""
    files = segment_files(disk, directory)
    if not files:
        return
    sound = recover(iter(files))
    places = spans(files)
    for _ in range(FLIPS):
        if places and chance.random() < 0.8:
            index, start, end = chance.choice(places)
            offset = chance.randrange(start, end)
        else:
            index = chance.randrange(len(files))
            if not files[index][2]:
                continue
            offset = chance.randrange(len(files[index][2]))
        _judge(files, index, offset, chance.randrange(8), sound=sound, places=places)


def check_gap(disk: SimDisk, directory: str, chance: random.Random) -> None:
    """Cut a batch out and move what follows up, as a program with a wrong offset would."""
    files = segment_files(disk, directory)
    places = [place for place in spans(files) if place[1] > 0]
    pairs = [(a, b) for a, b in pairwise(places) if a[0] == b[0]]
    if not pairs:
        return
    (index, start, _), (_, low, high) = chance.choice(pairs)
    number, path, data = files[index]
    head = decode_segment_header(data)
    assert head is not None
    batch = decode_batch_head(data, low, salt_of(head.uuid, low))
    assert batch is not None
    payload = data[low + BATCH_HEADER_BYTES : high]
    moved = encode_batch(payload, batch.number, batch.synced, salt_of(head.uuid, start)) + payload
    rest = data[start + len(moved) :]
    changed = [*files]
    changed[index] = (number, path, data[:start] + moved + rest)
    try:
        recover(iter(changed))
    except DamageError as error:
        if path not in str(error):
            raise ViolationError(f"the refusal names another file: {error}") from error
        return
    raise ViolationError(f"batch {batch.number - 1} is missing in {path}, and nobody was told")


def _judge(
    files: Files,
    index: int,
    offset: int,
    bit: int,
    *,
    sound: Recovered,
    places: list[tuple[int, int, int]],
) -> None:
    number, path, data = files[index]
    rotten = bytearray(data)
    rotten[offset] ^= 1 << bit
    changed = [*files]
    changed[index] = (number, path, bytes(rotten))
    where = f"bit {bit} of byte {offset} of {path}"
    at = next(
        (n for n, (i, low, high) in enumerate(places) if i == index and low <= offset < high), -1
    )
    try:
        found: Recovered | None = recover(iter(changed))
    except (DamageError, FormatError) as error:
        head = decode_segment_header(data)
        if at < 0 and head is not None and head.number == number:
            raise ViolationError(f"{where} holds nothing, and a start is refused") from error
        if path not in str(error):
            raise ViolationError(f"{where}: the refusal names another file: {error}") from error
        return
    assert found is not None
    if at < 0:
        if not _same(found, sound):
            raise ViolationError(f"{where} holds nothing, and changed what was found")
        return
    last = [n for n, (_, low, _) in enumerate(places) if low > 0][-1:] == [at]
    if not last:
        raise ViolationError(f"{where} was confirmed, is damaged, and nobody was told")
    if found.ticket != sound.ticket - 1 and sound.ticket == _ticket(files, places, at):
        raise ViolationError(f"{where} is in the last batch, and {found.ticket} was found")


def _ticket(files: Files, places: list[tuple[int, int, int]], at: int) -> int:
    index, start, _ = places[at]
    head = decode_segment_header(files[index][2])
    assert head is not None
    batch = decode_batch_head(files[index][2], start, salt_of(head.uuid, start))
    return batch.number if batch is not None else -1


def _same(one: Recovered, other: Recovered) -> bool:
    return (
        one.queues == other.queues
        and one.notes == other.notes
        and one.ticket == other.ticket
        and one.clean == other.clean
    )
