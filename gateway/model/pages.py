"""What paging needs of the store and of queues, and what a start gives back to it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gateway.model.definitions import Definition, PagesDefinition
from gateway.model.run import Run, StoredRun


class Block(Protocol):
    """Messages that lie together on a page; `offset` and `length` hold once it is durable."""

    @property
    def number(self) -> int: ...

    @property
    def count(self) -> int: ...

    @property
    def ticket(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def length(self) -> int: ...


class UnreadablePageError(Exception):
    """A block cannot be read, or is not what was written; the text says which and why."""


#: A block that was asked for, or why there is none.
Fetched = StoredRun | UnreadablePageError


class PageStore(Protocol):
    """Page files, and the records about them."""

    def page(
        self,
        place: tuple[int, int, int],
        targets: Sequence[tuple[int, int]],
        run: Run,
        now_ms: int,
    ) -> Block:
        """Append a run to a page for several queues; `place` is (store, page, blocks so far).

        Returns a new block with the next number, or the one before, grown. `targets` are (queue id,
        seq of the first).
        """

    def read_page(self, place: tuple[int, int], offset: int, length: int) -> StoredRun:
        """Read one durable block of (store, page). Raises UnreadablePageError."""

    def fetch_page(
        self, place: tuple[int, int], offset: int, length: int, done: Callable[[Fetched], None]
    ) -> None:
        """As `read_page`, beside what goes on: `done` gets the answer, now or on a later turn."""

    def remove_paged(self, queue_id: int, first: int, last: int) -> int:
        """The messages of a queue between two seqs, which are on pages, are gone."""

    def drop_pages(self, store_id: int, pages: Sequence[int]) -> None:
        """Delete pages; what says that they are gone is durable."""

    def define(self, definition: Definition) -> int: ...

    def undefine(self, definition: Definition) -> int: ...


class FoundBlock(Protocol):
    """A block that was found at start; one that is `lost` held so much and cannot be read."""

    @property
    def number(self) -> int: ...

    @property
    def lost(self) -> bool: ...

    @property
    def offset(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def ticket(self) -> int: ...

    @property
    def targets(self) -> Sequence[tuple[int, int]]: ...

    @property
    def sizes(self) -> array[int]: ...


class FoundPage(Protocol):
    """A page that was found at start; `damage` says what is wrong with it, if anything."""

    @property
    def number(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def blocks(self) -> Sequence[FoundBlock]: ...

    @property
    def damage(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPages:
    """What a start found of one stay of an address in page mode.

    Attributes:
        definition: as of the last snapshot; later records are in the fields below.
        pages: ascending.
        removed: per queue id ticket, first, last ... of removals; they concern blocks of the same
            ticket or an older one.
        counted: per queue id seq -> (ticket, flags), alike.
        postponed: per queue id seq -> (ticket, due), alike.
        suspect: blocks of an older ticket may have been seen by a consumer.
    """

    definition: PagesDefinition
    pages: Sequence[FoundPage]
    removed: Mapping[int, array[int]] = field(default_factory=dict)
    counted: Mapping[int, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    postponed: Mapping[int, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    suspect: int = 0
