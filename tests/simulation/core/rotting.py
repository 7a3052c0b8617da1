"""Bits of the journal that flip while a core lives, the scrub that finds them, and the repair.

Draws from a chance of its own, so that other events of a seed stay as they are. What is flipped is
found by the first check of its file that begins afterwards, and nothing else is ever found; a
repair leaves the records as they are, which whoever judges the start finds out. A crash comes back
to whole files, as if somebody had restored them: that a start refuses rot is judged elsewhere.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.store.scrub_plan import recall
from storage.compaction import Ranges
from storage.record import (
    BATCH_HEADER_BYTES,
    AddRun,
    decode_batch_head,
    decode_segment_header,
    salt_of,
)
from storage.scrub import Check, Place, check_journal_file
from storage.segments import segment_name
from tests.simulation.disk import SECTOR
from tests.simulation.model import ViolationError

if TYPE_CHECKING:
    from tests.simulation.core.world import CoreWorld

JOURNAL = "d/journal"
#: Steps of calm in which all has to be repaired.
_CALM = 50


@dataclass(slots=True, kw_only=True)
class Flip:
    """One byte of the device that is not what was written, in the batch that begins at `start`."""

    segment: int
    node: int
    start: int
    offset: int
    good: int
    bad: int
    header: bytes  # of the file, as it was then


class Rotting:
    """See the module text."""

    def __init__(self, world: CoreWorld, seed: int | str) -> None:
        self.world = world
        self.chance = random.Random(f"core rotting/{seed}")
        self.on = self.chance.random() < 0.4
        self.flips: list[Flip] = []
        self.check: Check | None = None
        self.segment = 0
        self.wanted: list[Flip] = []  # what the check under way has to find
        self.found: list[Place] = []

    # ---- a life begins and ends

    def begin(self) -> None:
        """A core was made: what has rotted from now on is taken from its memory."""
        self.world.journal.compaction.recall = self._recall

    def _recall(self, wanted: dict[int, Ranges]) -> list[AddRun]:
        world = self.world
        runs = recall(world.gateway, wanted)
        for run in runs:
            ((queue_id, first),) = run.targets
            count = len(run.bodies)
            world.model.rewritten.update((queue_id, first + at) for at in range(count))
            world.figures["recalled"] += count
        return runs

    def mend(self) -> None:
        """The life has ended: put back what is still there of what was flipped."""
        disk = self.world.disk
        for flip in reversed(self.flips):
            node = disk.nodes.get(flip.node)
            if node is None or bytes(node.device[:64]) != flip.header:
                continue  # it was used again
            bad = bytes([flip.bad])
            for content in (node.device, node.cache):
                if content[flip.offset] == flip.bad:
                    content[flip.offset] = flip.good
            # What was read damaged, and is written again with what stands beside it.
            sector, at = divmod(flip.offset, SECTOR)
            if versions := node.dirty.get(sector):
                node.dirty[sector] = [
                    one[:at] + bytes([flip.good]) + one[at + 1 :]
                    if one[at : at + 1] == bad
                    else one
                    for one in versions
                ]
        self.flips = []

    def drop(self) -> None:
        """End the check that is under way."""
        if self.check is not None:
            self.check.close()
            self.check = None

    # ---- what happens

    def step(self) -> None:
        """Something rots, or a scrub goes on."""
        if not self.on:
            return
        if self.chance.random() < 0.03:
            self._flip()
        if self.chance.random() < 0.3:
            self._read()
        if self.chance.random() < 0.1:
            self.world.journal.go_on()

    def calm(self) -> None:
        """Something rots while consumers hold a part; when they give it back all is repaired."""
        world = self.world
        if not self.on:
            return
        for queue in [q for q in world.gateway.queues.values() if q.message_count]:
            taker = world.attach(queue.name)
            taker.left = 1 + self.chance.randrange(3)
            taker.hold.ready()
        world.settle()
        for _ in range(3):
            self._flip()
        self._read_all()
        world.settle()
        for taker in list(world.takers):
            taker.close()
        self._finish()

    def _read_all(self) -> None:
        self.drop()
        for _ in range(len(self.world.journal.index.live)):
            while self._read():
                pass

    def _finish(self) -> None:
        """Nothing rots any more: all that has is repaired, and nothing stays damaged."""
        for turn in range(_CALM):
            if turn % 10 == 9:
                compaction = self.world.journal.compaction
                # Else it has met damage that only another scrub finds.
                if compaction.damaged and compaction.failure is None:
                    text = f"known to be damaged, and not repaired: {compaction.damaged}"
                    raise ViolationError(text)
                self._read_all()
            self.world.journal.go_on()
            self.world.settle()
            if not (self._here() or self.world.journal.compaction.damaged):
                return
        raise ViolationError(f"never repaired: {self.flips}")

    @staticmethod
    def _path(segment: int) -> str:
        return f"{JOURNAL}/{segment_name(segment)}"

    def _data(self, segment: int) -> bytearray:
        disk = self.world.disk
        return disk.nodes[disk.names[self._path(segment)]].device

    def _here(self) -> list[Flip]:
        """Return what is still there of what was flipped, and matters."""
        live = self.world.journal.index.live
        here = [flip for flip in self.flips if flip.segment in live]
        nodes = self.world.disk.nodes
        # What is to be written over it is what the system shows until then.
        here = [f for f in here if f.offset // SECTOR not in nodes[f.node].dirty]
        return [flip for flip in here if self._data(flip.segment)[flip.offset] == flip.bad]

    def _flip(self) -> None:
        journal = self.world.journal
        synced, _ = journal.rotation.reached
        segments = [s for s in sorted(journal.index.live) if s <= synced]
        if not segments or self.world.failed:
            return
        segment = self.chance.choice(segments)
        data = self._data(segment)
        spans = _spans(bytes(data), segment, journal.rotation.reached[1])
        if not spans:
            return
        start, end = self.chance.choice(spans)
        offset = self.chance.randrange(start, end)
        bit = self.chance.randrange(8)
        flip = Flip(
            segment=segment, node=self.world.disk.names[self._path(segment)],
            start=start, offset=offset, good=data[offset], bad=data[offset] ^ (1 << bit),
            header=b"",
        )  # fmt: skip
        if any(other.segment == segment and other.start == start for other in self.flips):
            return
        self.flips.append(flip)
        self.world.disk.flip(self._path(segment), offset, bit)
        flip.header = bytes(data[:64])
        self.world.log(f"      byte {offset} of {self._path(segment)} rots")
        self.world.figures["rotted"] += 1

    def _read(self) -> bool:
        """Let the check under way go on, or begin another; returns whether it goes on."""
        if self.check is None:
            self._begin()
        if self.check is None:
            return False
        try:
            next(self.check)
        except FileNotFoundError:
            self.check = None
        except StopIteration:
            self.check = None
            self._judge()
        return self.check is not None

    def _begin(self) -> None:
        journal = self.world.journal
        live = sorted(journal.index.live)
        if not live or self.world.failed:
            return
        later = [segment for segment in live if segment > self.segment]
        self.segment = later[0] if later else live[0]
        self.found = []
        self.wanted = [flip for flip in self._here() if flip.segment == self.segment]
        self.check = check_journal_file(self.world.disk, JOURNAL, self.segment, journal, self.found)

    def _judge(self) -> None:
        journal = self.world.journal
        if self.segment not in journal.index.live:
            return
        offsets = {place.offset for place in self.found}
        known = {flip.start for flip in self.flips if flip.segment == self.segment}
        if any("a compaction could not" in place.what for place in self.found):
            known |= offsets if known else set()
        if not offsets <= known:
            raise ViolationError(f"told as damaged, and is not: {self.found}, rotten is {known}")
        still = {flip.start for flip in self._here()}
        missed = [f for f in self.wanted if f.start in still and not self._covers(f.start)]
        # Where the next file has lost its header, nothing says how far this one should reach.
        if missed and not any(f.segment > self.segment and not f.start for f in self.flips):
            raise ViolationError(f"not found: {missed}, found {self.found}")
        if self.found:
            self.world.log(f"      {self._path(self.segment)} is damaged at {sorted(offsets)}")
            self.world.figures["found rotten"] += len(self.found)
            journal.empty(self.segment, {place.offset: place.end for place in self.found})

    def _covers(self, start: int) -> bool:
        """Whether what was found reaches there; without an end it reaches to that of the file."""
        for place in self.found:
            if place.offset <= start and (not place.end or start < place.end):
                return True
        return False


def _spans(data: bytes, number: int, synced: int) -> list[tuple[int, int]]:
    """Return (start, end) of the header and of the batches that are synced."""
    head = decode_segment_header(data)
    if head is None or head.number != number:
        return []
    found, offset = [(0, 64)], 64
    while True:
        batch = decode_batch_head(data, offset, salt_of(head.uuid, offset))
        if batch is None or batch.number > synced:
            return found
        end = offset + BATCH_HEADER_BYTES + batch.length
        found.append((offset, end))
        offset = end
