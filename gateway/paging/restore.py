"""Paging after a restart: pages as they were found, less what their queues were done with.

A snapshot of the journal says what was done before it; removals after it name seqs and tickets. A
removal concerns blocks of its own ticket or an older one: seqs behind them may be used again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.model.pages import FoundBlock, FoundPage, FoundPages
from gateway.paging.page import Page
from gateway.paging.paging import Paging
from gateway.paging.part import Part
from gateway.queues.queue import Queue

#: How many messages of a queue may have gone with the pages between two that are there.
_SEQS_BETWEEN: Final = 1 << 24


class _Blocks:
    """The blocks of one queue: ascending tickets, last seqs, where they are, sizes of bodies."""

    __slots__ = ("firsts", "lasts", "lost", "parts", "sizes", "tickets")

    def __init__(self) -> None:
        self.tickets = array("Q")
        self.firsts = array("Q")
        self.lasts = array("Q")
        self.parts: list[Part] = []
        self.sizes: list[array[int]] = []
        self.lost: list[tuple[int, str]] = []  # place here, why


def restore_paging(paging: Paging, found: FoundPages, queues: Mapping[int, Queue]) -> None:
    """Fill `paging` with what a start found; `queues` are those that are there, by id."""
    paging.take_up()
    paging.suspect = max(found.suspect, found.definition.suspect)
    paging.next_page = max(paging.next_page, found.definition.next_page)
    known: dict[int, _Blocks] = {}
    for page in found.pages:
        _restore_page(paging, page, queues, known)
    for mark in found.definition.marks:
        page_known = paging.pages.get(mark.page)
        part = page_known.parts.get(mark.queue_id) if page_known is not None else None
        if part is not None:
            part.restore_marks(mark.first, mark.floor, mark.marks)
    for queue_id, blocks in known.items():
        removed = found.removed.get(queue_id, array("Q"))
        for at in range(0, len(removed), 3):
            _remove(blocks, *removed[at : at + 3])
        _give_up(paging, queues[queue_id], blocks)
        backlog = paging.backlogs[queue_id]
        definition = found.definition
        counted = found.counted.get(queue_id, {})
        postponed = found.postponed.get(queue_id, {})
        backlog.flags.update(_restore_changes(queue_id, definition.counts, counted, blocks))
        backlog.dues.update(_restore_changes(queue_id, definition.dues, postponed, blocks))
        _count(paging, queues[queue_id], blocks)
    for page_found in list(paging.pages.values()):
        page_found.live = sum([part.live for part in page_found.parts.values()])
    paging.live = sum([page.live for page in paging.pages.values()])
    for page_found in list(paging.pages.values()):
        if not page_found.live:
            paging.retire(page_found)


def _restore_page(
    paging: Paging, found: FoundPage, queues: Mapping[int, Queue], known: dict[int, _Blocks]
) -> None:
    page = paging.pages[found.number] = Page(found.number)
    page.size = page.charge = found.size
    paging.next_page = max(paging.next_page, found.number + 1)
    for block in found.blocks:
        number = block.number
        page.blocks = number + 1
        # Of lost blocks of which nothing is known only the number is there.
        if number >= len(page.offsets):
            page.offsets.extend([0] * (number - len(page.offsets)) + [block.offset])
            page.lengths.extend([0] * (number - len(page.lengths)) + [block.length])
        if block.ticket < paging.suspect:
            page.suspect = number + 1
        for queue_id, first in block.targets:
            queue = queues.get(queue_id)
            before = known[queue_id].lasts[-1] if queue_id in known else -1
            if queue is not None and (not block.lost or _believable(page, queue, first, before)):
                _restore_block(paging, page, (number, first), queue, block)
                blocks = known.setdefault(queue_id, _Blocks())
                blocks.tickets.append(block.ticket)
                blocks.firsts.append(first)
                blocks.lasts.append(first + len(block.sizes) - 1)
                blocks.parts.append(page.parts[queue_id])
                blocks.sizes.append(block.sizes)
                if block.lost:
                    blocks.lost.append((len(blocks.firsts) - 1, found.damage))


def _believable(page: Page, queue: Queue, first: int, before: int) -> bool:
    """Whether a lost block can begin there: a damaged head may have said so.

    `before` is the last seq of the queue on pages before it; what was between may be gone.
    """
    part = page.parts.get(queue.queue_id)
    if part is not None:
        return first == part.last + 1
    return before < first <= max(before, queue.next_seq) + _SEQS_BETWEEN


def _restore_block(
    paging: Paging, page: Page, place: tuple[int, int], queue: Queue, block: FoundBlock
) -> None:
    number, first = place
    assert page.blocks == number + 1, "a block behind one that is not known"
    count = len(block.sizes)
    paging.backlog_of(queue).grow(page, first, count, 0)
    page.parts[queue.queue_id].index(number, first, count)
    queue.counts.next_seq = max(queue.next_seq, first + count)


def _remove(blocks: _Blocks, ticket: int, low: int, high: int) -> None:
    """Apply one removal to the blocks that were there when it was recorded."""
    assert low <= high, "a removal of nothing"
    end = bisect_right(blocks.tickets, ticket)
    at = bisect_right(blocks.firsts, low) - 1
    for place in range(max(at, 0), end):
        if blocks.firsts[place] > high:
            return
        first, last = max(low, blocks.firsts[place]), min(high, blocks.lasts[place])
        blocks.parts[place].finish(first, last)


def _give_up(paging: Paging, queue: Queue, blocks: _Blocks) -> None:
    """Be done with what was in blocks that cannot be read, and tell how many that were."""
    for place, why in blocks.lost:
        part, low, high = blocks.parts[place], blocks.firsts[place], blocks.lasts[place]
        gone = [(first, min(last, high)) for first, last in part.waiting(low) if first <= high]
        for first, last in gone:
            part.finish(first, last)
            paging.remove(queue, first, last)
        count = sum([last + 1 - first for first, last in gone])
        if count:
            paging.give_up(queue, count, why)


def _restore_changes(
    queue_id: int,
    snapshot: Sequence[tuple[int, int, int]],
    later: Mapping[int, tuple[int, int]],
    blocks: _Blocks,
) -> dict[int, int]:
    """Return what changed (flags, or due times) of messages that are still there, by seq."""
    changed = {seq: value for own, seq, value in snapshot if own == queue_id}
    tickets = dict.fromkeys(changed, 1 << 64)
    for seq, (ticket, value) in later.items():
        changed[seq], tickets[seq] = value, ticket
    kept: dict[int, int] = {}
    for seq, value in changed.items():
        at = bisect_right(blocks.firsts, seq) - 1
        there = at >= 0 and seq <= blocks.lasts[at] and blocks.tickets[at] <= tickets[seq]
        if there and any(low <= seq <= high for low, high in blocks.parts[at].waiting(seq)):
            kept[seq] = value
    return kept


def _count(paging: Paging, queue: Queue, blocks: _Blocks) -> None:
    """Count what the queue has left."""
    backlog = paging.backlogs[queue.queue_id]
    backlog.live = backlog.count = sum([part.live for _, part in backlog.parts()])
    backlog.size = 0
    for first, last, part, sizes in zip(
        blocks.firsts, blocks.lasts, blocks.parts, blocks.sizes, strict=True
    ):
        if part.floor > last:
            continue
        for low, high in part.waiting(first):
            if low > last:
                break
            backlog.size += sum(sizes[low - first : min(high, last) + 1 - first])
    assert backlog.size >= 0, "size went below zero"
    assert paging.begun, "pages that the journal does not know"
    queue.counts.added += backlog.count
