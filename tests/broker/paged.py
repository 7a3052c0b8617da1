"""Page files as a store of lists keeps them: for gateways that are tested without a disk."""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

from gateway.model.pages import FoundPages, UnreadablePageError


class MemoryBlock:
    """A block of a page; `offset` is its number, so that a wrong one is noticed."""

    length = 7
    lost = False

    def __init__(self, number: int, ticket: int, targets, due: int) -> None:
        self.number = self.offset = number
        self.ticket = ticket
        self.targets = list(targets)
        self.due = due
        self.bodies, self.flags, self.expires = [], [], []

    @property
    def count(self) -> int:
        return len(self.bodies)

    @property
    def sizes(self):
        return array("I", map(len, self.bodies))


class PageMemory:
    """The PageStore port over lists; `_record`, `ticket` and `page_room` are the store's.

    What is fetched comes at once, or, with `late` a list, when `arrive` is called.
    """

    def __init__(self) -> None:
        self.pages: dict[tuple[int, int], list[MemoryBlock]] = {}
        self.dropped: list[tuple[int, int]] = []
        self.unreadable: set[tuple[int, int, int]] = set()
        self.reads = 0
        self.late: list | None = None

    def page(self, place, targets, run, now_ms):
        store, page, blocks = place
        bodies, flags, expires, due = run.bodies, run.flags, run.expires, run.due
        ticket = self.page_room()
        held = self.pages.setdefault((store, page), [])
        last = next(
            (b for b in reversed(held) if [q for q, _ in b.targets] == [q for q, _ in targets]),
            None,
        )
        follows = (
            last is not None
            and last.ticket == ticket
            and last.due == due
            and last.count < 4
            and [(q, s + last.count) for q, s in last.targets] == list(targets)
        )
        if not follows:
            assert blocks == len(held), "blocks are numbered without a gap"
            last = MemoryBlock(blocks, ticket, targets, due)
            held.append(last)
            self._record("block", (store, page), last)
        last.bodies += bodies
        last.flags += [flags] * len(bodies)
        last.expires += [expires] * len(bodies)
        return last

    def read_page(self, place, offset, length):
        self.reads += 1
        assert length == MemoryBlock.length
        assert place not in self.dropped, "a page is read that is gone"
        if (*place, offset) in self.unreadable:
            raise UnreadablePageError(f"block {offset} of page {place} is bad")
        block = self.pages[place][offset]
        return SimpleNamespace(
            bodies=list(block.bodies),
            flags=list(block.flags),
            expires=list(block.expires),
            due=block.due,
        )

    def fetch_page(self, place, offset, length, done) -> None:
        if self.late is None:
            self._fetch(place, offset, length, done)
        else:
            self.late.append((place, offset, length, done))

    def arrive(self, which: int = 0) -> bool:
        """Let one of those that were fetched come; returns whether there was one."""
        if not self.late:
            return False
        place, *rest = self.late.pop(which % len(self.late))
        if place in self.dropped:
            rest[-1](UnreadablePageError("the page is gone"))
        else:
            self._fetch(place, *rest)
        return True

    def _fetch(self, place, offset, length, done) -> None:
        try:
            run = self.read_page(place, offset, length)
        except UnreadablePageError as error:
            run = error
        done(run)

    def remove_paged(self, queue_id, first, last) -> int:
        return self._record("paged-remove", queue_id, first, last)

    def drop_pages(self, store_id, pages) -> None:
        self.dropped += [(store_id, page) for page in pages]


def found_pages(batches, *, clean: bool) -> list[FoundPages]:
    """Return what a start finds of the pages, from the records of the batches that were kept."""
    stores, gone, blocks = {}, set(), defaultdict(list)
    removed, counted, paged = {}, defaultdict(dict), set()
    for ticket, batch in enumerate(batches, 1):
        for record in batch:
            match record:
                case "define", definition if hasattr(definition, "marks"):
                    stores[definition.store_id] = definition
                case "define", definition if hasattr(definition, "page"):
                    gone.add((definition.store_id, definition.page))
                case "undefine", definition if hasattr(definition, "marks"):
                    stores.pop(definition.store_id, None)
                    # Its number may be given again.
                    for place in [p for p in blocks if p[0] == definition.store_id]:
                        del blocks[place]
                    gone -= {place for place in gone if place[0] == definition.store_id}
                case "block", place, block:
                    blocks[place].append(block)
                    for queue_id, first in block.targets:
                        paged.update((queue_id, first + n) for n in range(block.count))
                case "paged-remove", queue_id, first, last:
                    removed.setdefault(queue_id, array("Q")).extend((ticket, first, last))
                case "count", queue_id, entries:
                    for seq, flags in entries:
                        if (queue_id, seq) in paged:
                            counted[queue_id][seq] = ticket, flags
    return [
        FoundPages(
            definition=replace(
                definition,
                next_page=max(
                    [1, *(p + 1 for s, p in (*blocks, *gone) if s == store_id)],
                ),
            ),
            pages=[
                SimpleNamespace(number=page, size=100, blocks=held, damage="")
                for (store, page), held in sorted(blocks.items())
                if store == store_id and (store, page) not in gone
            ],
            removed=removed,
            counted=counted,
            suspect=0 if clean else len(batches) + 1,
        )
        for store_id, definition in stores.items()
    ]
