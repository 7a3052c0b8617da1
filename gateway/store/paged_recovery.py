"""Page files at start: which exist by the journal, what they hold, and what is left over.

A file that the journal does not know was never committed, or all were done with it: it goes. One
that the journal knows and that is not whole costs its address what cannot be read of it, block by
block, and nobody else anything; its bytes are kept in `quarantine`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gateway.model.definitions import PagesDefinition
from gateway.model.pages import FoundPages
from storage.files import FileSystem, settle
from storage.page_scan import FoundPage, scan_page
from storage.pages import page_files, page_name
from storage.quarantine import keep_copy
from storage.recovery import Recovered

#: Where the bytes of damaged pages are kept, below the directory of the page files.
QUARANTINE: Final = "quarantine"


def find_pages(
    fs: FileSystem,
    directory: str,
    found: Recovered,
    stores: Iterable[PagesDefinition],
    gone: set[tuple[int, int]],
) -> list[FoundPages]:
    """Read the pages in `directory` that exist, and delete the others.

    `stores` are those that did not end, `gone` the (store, page) that were done with. Raises
    OSError.
    """
    fs.mkdir(directory)
    fs.fsync_dir(directory)
    there = page_files(fs, directory)
    suspect = found.suspect if found.clean else found.ticket + 1
    known: set[tuple[int, int]] = set()
    result = []
    for definition in stores:
        blocks = known_blocks(definition, found.pages)
        wanted = [
            (page, count)
            for page, count in sorted(blocks.items())
            if count and (definition.store_id, page) not in gone
        ]
        known.update((definition.store_id, page) for page, _ in wanted)
        pages = [
            _read(fs, directory, (definition.store_id, page), count, device=not found.clean)
            for page, count in wanted
        ]
        result.append(
            FoundPages(
                definition=replace(definition, next_page=_next_page(definition, blocks, gone)),
                pages=pages,
                removed=found.removed,
                counted=found.counted,
                postponed=found.postponed,
                suspect=suspect,
            )
        )
    left = [page for page in there if page not in known]
    for store, page in left:
        fs.unlink(posixpath.join(directory, page_name(store, page)))
    if left:
        fs.fsync_dir(directory)
    return result


def known_blocks(
    definition: PagesDefinition, later: Mapping[tuple[int, int], int]
) -> dict[int, int]:
    """Return per page how many blocks the journal says there are."""
    blocks = dict(definition.pages)
    for (store, page), count in later.items():
        if store == definition.store_id:
            blocks[page] = max(blocks.get(page, 0), count)
    return blocks


def _next_page(
    definition: PagesDefinition, blocks: Mapping[int, int], gone: set[tuple[int, int]]
) -> int:
    """Return a number that no page of the store ever had.

    What the journal still says of a page that is gone would be taken for what it says of a new one.
    """
    dead = [page for store, page in gone if store == definition.store_id]
    return max([definition.next_page, *(page + 1 for page in (*blocks, *dead))])


def _read(
    fs: FileSystem, directory: str, place: tuple[int, int], blocks: int, *, device: bool
) -> FoundPage:
    path = posixpath.join(directory, page_name(*place))
    if device and fs.exists(path):
        settle(fs, path)
    scanned = scan_page(fs, directory, *place, blocks)
    if scanned.damage and fs.exists(path):
        keep_copy(fs, path, posixpath.join(directory, QUARANTINE))
    return scanned


def ids_on_pages(stores: Sequence[FoundPages]) -> Iterator[int]:
    """Yield 0, and a number that is above each queue's on pages."""
    yield 0
    for store in stores:
        for page in store.pages:
            for block in page.blocks:
                yield max([queue_id + 1 for queue_id, _ in block.targets], default=0)
