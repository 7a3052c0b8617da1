"""Pages that a damaged journal no longer names: found again by what the page files say.

What is on pages is named by the journal alone: a definition for each stay of an address in page
mode, and with each batch how many blocks there are. Where the batch that said so has rotted, the
pages are whole and nobody knows of them; a start would take them for leftovers and delete them.

A block says which batch commits it. So a salvage counts as committed, beside what the journal still
names, what the lost batches have committed, and, of a stay that nothing names any more, what is
older than the journal. What it finds it writes in place of the lost batch: definitions, counts of
blocks, and queues of which only pages tell. Which messages there were done with may be lost: those
come back, marked as ones that may have been seen. Where the lost batch began the stay, the first
seq on pages tells what memory had until then: the survey counts that as missing. Changes no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.model.address import RoutingType
from gateway.model.definitions import PagesDefinition, QueueDefinition
from gateway.store.notes import encode_definition
from gateway.store.orphans import adopted_name
from gateway.store.paged_recovery import known_blocks
from gateway.store.persistence import Restored, restore
from storage.files import FileSystem
from storage.page_scan import FoundBlock, block_tickets, scan_page
from storage.pages import page_files
from storage.record import encode_note, encode_paged
from storage.survey import Survey


@dataclass(frozen=True, slots=True, kw_only=True)
class RescuedPage:
    """A page of which the journal names fewer blocks than there are, or nothing."""

    store: int
    page: int
    address: str
    blocks: int
    messages: int


@dataclass(slots=True, kw_only=True)
class Rescue:
    """What the page files tell that the journal has lost; `notes` and `paged` go to the journal."""

    pages: list[RescuedPage] = field(default_factory=list)
    definitions: list[PagesDefinition | QueueDefinition] = field(default_factory=list)

    def records(self) -> bytes:
        """Return the records that stand for what was lost."""
        parts = [encode_note(encode_definition(one)) for one in self.definitions]
        parts += [encode_paged(page.store, page.page, page.blocks) for page in self.pages]
        return b"".join(parts)


@dataclass(slots=True, kw_only=True)
class _Store:
    """The pages of one stay that were looked at: page -> blocks known, blocks there.

    `begun_in_loss`: its first block is there, and a lost batch committed it.
    """

    definition: PagesDefinition | None
    pages: dict[int, tuple[int, int]] = field(default_factory=dict)
    begun_in_loss: bool = False


def look_for_pages(fs: FileSystem, directory: str, seen: Survey) -> Rescue:
    """Return what pages in `directory` say that a damaged journal does not. Raises OSError."""
    rescue = Rescue()
    lost = [damage.batches for damage in seen.damage if damage.batches is not None]
    if not lost or not fs.exists(directory):
        return rescue
    restored = restore(seen.found)
    queues = {queue.queue_id: queue for queue in restored.queues}
    for store_id, store in sorted(_stores(fs, directory, seen, restored, lost).items()):
        counts = {page: blocks for page, (_, blocks) in store.pages.items() if blocks}
        found = {page: scan_page(fs, directory, store_id, page, n) for page, n in counts.items()}
        targets = {q for one in found.values() for b in one.blocks for q, _ in b.targets}
        numbers = sorted(targets - restored.deleted)
        unknown = [number for number in numbers if number not in queues]
        if store.begun_in_loss:
            _note_gaps(seen, found[1].blocks, unknown)
        address = _address(store, numbers, queues)
        routing = next((q.routing for q in queues.values() if q.address == address), None)
        rescue.definitions += [_adopted(number, address, routing) for number in unknown]
        if store.definition is None and counts:
            definition = PagesDefinition(
                store_id=store_id, address=address, pages=counts, suspect=seen.found.ticket + 1
            )
            rescue.definitions.append(definition)
        for page, (known, blocks) in sorted(store.pages.items()):
            if blocks > known or (store.definition is None and blocks):
                start = 0 if store.definition is None else known
                messages = sum([len(b.sizes) for b in found[page].blocks if b.number >= start])
                rescue.pages.append(
                    RescuedPage(
                        store=store_id, page=page, address=address, blocks=blocks, messages=messages
                    )
                )
    return rescue


def _stores(
    fs: FileSystem,
    directory: str,
    seen: Survey,
    restored: Restored,
    lost: Sequence[tuple[int, int]],
) -> dict[int, _Store]:
    """Return the stays whose pages are there and were not done with."""
    definitions = {one.store_id: one for one in restored.page_stores}
    oldest = seen.segments[0].first if seen.segments else 0
    stores: dict[int, _Store] = {}
    for store_id, page in page_files(fs, directory):
        if store_id in restored.deleted or (store_id, page) in restored.pages_gone:
            continue
        definition = definitions.get(store_id)
        store = stores.setdefault(store_id, _Store(definition=definition))
        empty = PagesDefinition(store_id=store_id, address="")
        known = known_blocks(definition or empty, seen.found.pages).get(page, 0)
        tickets = block_tickets(fs, directory, store_id, page)
        if page == 1 and tickets[:1] and tickets[0][0] == 0:
            ticket = tickets[0][1]
            store.begun_in_loss = any(first <= ticket <= last for first, last in lost)
        committed = [
            number + 1
            for number, ticket in tickets
            if any(first <= ticket <= last for first, last in lost)
            or (definition is None and ticket < oldest)
        ]
        store.pages[page] = known, max([known, *committed])
    return stores


def _note_gaps(seen: Survey, blocks: Sequence[FoundBlock], unknown: Sequence[int]) -> None:
    """Note in the survey which seqs were given in memory before the first page of a stay began.

    Of a queue that is not `unknown`, but of which no message was read, nobody knows where it stood.
    """
    firsts: dict[int, int] = {}
    for block in blocks:
        for queue_id, first in block.targets:
            firsts.setdefault(queue_id, first)
    for queue_id, first in firsts.items():
        last = seen.found.highest.get(queue_id, 0 if queue_id in unknown else first)
        if last + 1 < first:
            seen.gaps.setdefault(queue_id, []).extend([last + 1, first - 1])


def _address(store: _Store, numbers: Sequence[int], queues: Mapping[int, QueueDefinition]) -> str:
    if store.definition is not None:
        return store.definition.address
    known = [queues[number].address for number in numbers if number in queues]
    return known[0] if known else adopted_name(min(numbers, default=0))


def _adopted(number: int, address: str, routing: RoutingType | None) -> QueueDefinition:
    """Return a queue for messages whose queue nothing names any more."""
    return QueueDefinition(
        queue_id=number,
        name=adopted_name(number),
        address=address,
        routing=routing or RoutingType.ANYCAST,
    )


def rescued_by_address(rescue: Rescue) -> Iterator[tuple[str, int]]:
    """Yield (address, messages) of what is taken back."""
    for address in sorted({page.address for page in rescue.pages}):
        yield address, sum(page.messages for page in rescue.pages if page.address == address)
