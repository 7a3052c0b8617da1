"""Pages as a start reads them: which blocks are whole, and what those that are not have cost.

A block that is not whole costs itself and nothing else: what follows is found by its header, whose
sum is salted with the page's uuid and its place, so that no other bytes pass for it.

    whole    header and payload are right
    lost     one of them is not; what it held is known
               from the head of its record, where that fits to its neighbours of each queue,
               or from the gap that it leaves between them; or it is not certain

Pure but for reading the file.
"""

from __future__ import annotations

import posixpath
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from storage.errors import PageDamageError
from storage.files import FileSystem, read_file
from storage.pages import PAGE_HEADER_BYTES, decode_page_header, page_name, page_uuid
from storage.record import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    BadRecordError,
    BatchHead,
    decode_batch_head,
    likely_add,
    peek_add,
    salt_of,
)

_MAGIC: Final = BATCH_MAGIC.to_bytes(4, "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBlock:
    """One block of a page; `sizes` are those of its bodies, `lost`: it cannot be read."""

    number: int
    offset: int
    length: int
    ticket: int
    targets: Sequence[tuple[int, int]]
    sizes: array[int]
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPage:
    """One page that was read at start.

    Attributes:
        blocks: ascending; of those that exist by the journal, the whole ones, and for each queue
            what lost ones held of it.
        damage: the first thing that is wrong with it, or "".
        unknown: lost blocks of which it is not certain what they held.
    """

    number: int
    size: int
    blocks: Sequence[FoundBlock]
    damage: str = ""
    unknown: int = 0


class _Scan:
    """One page that is being read."""

    def __init__(self, path: str, data: bytes, uuid: bytes, blocks: int) -> None:
        self.path = path
        self.data = data
        self.uuid = uuid
        self.count = blocks
        self.damage = ""
        self.found: list[FoundBlock] = []

    def wrong(self, offset: int, what: str) -> None:
        """Note damage; the first one is told."""
        if not self.damage:
            self.damage = str(PageDamageError(self.path, offset, what))

    def head(self, offset: int) -> BatchHead | None:
        return decode_batch_head(self.data, offset, salt_of(self.uuid, offset))

    def next_head(self, offset: int, number: int) -> tuple[int, BatchHead] | None:
        """Return where a later block than `number` begins, from `offset` on."""
        at = self.data.find(_MAGIC, offset)
        while at >= 0:
            head = self.head(at)
            if head is not None and number < head.number < self.count:
                return at, head
            at = self.data.find(_MAGIC, at + 1)
        return None

    def run(self) -> None:
        """Go through all blocks that exist by the journal."""
        assert not self.found, "the page was gone through"
        offset, number, ticket = PAGE_HEADER_BYTES, 0, 0
        while number < self.count:
            head = self.head(offset)
            if head is not None and head.number == number:
                self._block(offset, head)
                offset += BATCH_HEADER_BYTES + head.length
                number, ticket = number + 1, head.synced
                continue
            self.wrong(offset, f"block {number} has no whole header")
            following = self.next_head(offset, number)
            end = len(self.data) if following is None else following[0]
            self._lost(number, (offset, end - offset), ticket)
            if following is None:
                self._rest(number + 1, ticket)
                return
            for missing in range(number + 1, following[1].number):
                self._lost(missing, (end, 0), ticket)
            offset, number = end, following[1].number

    def _rest(self, number: int, ticket: int) -> None:
        for missing in range(number, self.count):
            self._lost(missing, (len(self.data), 0), ticket)

    def _block(self, offset: int, head: BatchHead) -> None:
        start = offset + BATCH_HEADER_BYTES
        payload = self.data[start : start + head.length]
        salt = salt_of(self.uuid, offset)
        length = BATCH_HEADER_BYTES + head.length
        if len(payload) != head.length or zlib.crc32(payload, salt) != head.payload_crc:
            self.wrong(offset, f"block {head.number} is not whole")
            self._lost(head.number, (offset, length), head.synced)
            return
        try:
            record = peek_add(payload)
        except BadRecordError as error:
            self.wrong(offset, str(error))
            self._lost(head.number, (offset, length), head.synced)
            return
        self.found.append(
            FoundBlock(
                number=head.number,
                offset=offset,
                length=length,
                ticket=head.synced,
                targets=record.targets,
                sizes=record.sizes,
            )
        )

    def _lost(self, number: int, place: tuple[int, int], ticket: int) -> None:
        """Note a block that cannot be read, with what the head of its record says, if anything."""
        offset, length = place
        assert length >= 0, f"{length} bytes are lost"
        targets: Sequence[tuple[int, int]] = ()
        sizes = array("I")
        record = likely_add(self.data[offset + BATCH_HEADER_BYTES : offset + length])
        if record is not None:
            targets, sizes = record.targets, record.sizes
        self.found.append(
            FoundBlock(
                number=number,
                offset=offset,
                length=length,
                ticket=ticket,
                targets=targets,
                sizes=sizes,
                lost=True,
            )
        )


class _Judgement:
    """What lost blocks held: by the heads of their records, held against their neighbours.

    For each queue seqs go up without a gap on a page. What lies between two whole blocks is
    certain; before the first one, or behind the last, a head is believed when it fits to its one
    neighbour; a head of a queue that is nowhere else on the page is believed as it stands.
    """

    def __init__(self, found: Sequence[FoundBlock]) -> None:
        self.found = found
        self.lost = [place for place, block in enumerate(found) if block.lost]
        self.told: dict[int, list[tuple[int, int, int]]] = {place: [] for place in self.lost}
        self.sure: set[tuple[int, int]] = set()
        whole = [(place, block) for place, block in enumerate(found) if not block.lost]
        ends: dict[int, list[tuple[int, int, int]]] = {}
        for place, block in whole:
            for queue, first in block.targets:
                ends.setdefault(queue, []).append((place, first, first + len(block.sizes)))
        for queue, known in ends.items():
            self._before(queue, known[0][0], known[0][1])
            for (left, _, low), (right, high, _) in pairwise(known):
                self._between(queue, (left, right), low, high)
            self._behind(queue, known[-1][0], known[-1][2])
        for place in self.lost:
            for queue, first in found[place].targets:
                if queue not in ends:
                    self.told[place].append((queue, first, len(found[place].sizes)))

    def _claims(self, queue: int, places: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return (place, first seq, count) of what heads say of a queue."""
        return [
            (place, first, len(self.found[place].sizes))
            for place in places
            for own, first in self.found[place].targets
            if own == queue
        ]

    def _between(self, queue: int, places: tuple[int, int], low: int, high: int) -> None:
        lost = [place for place in self.lost if places[0] < place < places[1]]
        if low == high:
            return
        claims = [c for c in self._claims(queue, lost) if low <= c[1] and c[1] + c[2] <= high]
        if sum([count for _, _, count in claims]) == high - low:
            for place, first, count in claims:
                self.told[place].append((queue, first, count))
                self.sure.add((place, queue))
        elif lost:
            # How it was spread over them nobody needs to know.
            self.told[lost[0]].append((queue, low, high - low))
            self.sure.update((place, queue) for place in lost)

    def _before(self, queue: int, place: int, first: int) -> None:
        for claim in reversed(self._claims(queue, [p for p in self.lost if p < place])):
            if claim[1] + claim[2] == first:
                self.told[claim[0]].insert(0, (queue, claim[1], claim[2]))
                first = claim[1]

    def _behind(self, queue: int, place: int, behind: int) -> None:
        for claim in self._claims(queue, [p for p in self.lost if p > place]):
            if claim[1] == behind:
                self.told[claim[0]].append((queue, claim[1], claim[2]))
                behind += claim[2]

    def blocks(self) -> tuple[list[FoundBlock], int]:
        """Return all blocks, and of how many lost ones it is not certain what they held."""
        blocks: list[FoundBlock] = []
        unsure = 0
        for place, block in enumerate(self.found):
            if not block.lost:
                blocks.append(block)
                continue
            claimed = {(place, queue) for queue, _ in block.targets}
            unsure += not claimed or not claimed <= self.sure
            for queue, first, count in self.told[place]:
                sizes = array("I", bytes(4 * count))
                blocks.append(replace(block, targets=((queue, first),), sizes=sizes))
        return blocks, unsure


def block_tickets(fs: FileSystem, directory: str, store: int, page: int) -> list[tuple[int, int]]:
    """Return (number, ticket) of all blocks in a page whose header is whole. Raises OSError.

    Also of those that the journal does not say exist.
    """
    path = posixpath.join(directory, page_name(store, page))
    data = read_file(fs, path)
    try:
        scan = _Scan(path, data, page_uuid(data, store, page, path), 1 << 32)
    except PageDamageError:
        return []
    found: list[tuple[int, int]] = []
    offset, number = PAGE_HEADER_BYTES, -1
    while True:
        head = scan.head(offset)
        if head is None or head.number <= number:
            following = scan.next_head(offset, number)
            if following is None:
                return found
            offset, head = following
        found.append((head.number, head.synced))
        offset, number = offset + BATCH_HEADER_BYTES + head.length, head.number


def scan_page(fs: FileSystem, directory: str, store: int, page: int, blocks: int) -> FoundPage:
    """Read one page of which the journal says that `blocks` exist. Raises OSError."""
    path = posixpath.join(directory, page_name(store, page))
    if not fs.exists(path):
        text = str(PageDamageError(path, 0, "the page is not there"))
        return FoundPage(number=page, size=0, blocks=(), damage=text, unknown=blocks)
    data = read_file(fs, path)
    try:
        uuid = page_uuid(data, store, page, path)
    except PageDamageError as error:
        return FoundPage(number=page, size=len(data), blocks=(), damage=str(error), unknown=blocks)
    scan = _Scan(path, data, uuid, blocks)
    try:
        decode_page_header(data, store, page, path)
    except PageDamageError as error:
        scan.damage = str(error)
    scan.run()
    assert len(scan.found) == blocks, f"{len(scan.found)} of {blocks} blocks are accounted for"
    if not any(block.lost for block in scan.found):
        return FoundPage(number=page, size=len(data), blocks=scan.found, damage=scan.damage)
    found, unknown = _Judgement(scan.found).blocks()
    lost = sum([block.lost for block in scan.found])
    text = f"{scan.damage}; {lost} of {blocks} blocks are lost"
    if unknown:
        text += f", what {unknown} of them held is not certain"
    return FoundPage(number=page, size=len(data), blocks=found, damage=text, unknown=unknown)
