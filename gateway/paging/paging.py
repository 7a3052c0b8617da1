"""One stay of an address in page mode: its pages, and what goes to them.

    begun ──a run──> pages grow ──page full──> the next page
                     a page that all are done with, and is not the newest ──recorded──> deleted
                     nothing on any page ──(the broker)──> ended, all pages deleted

What is on pages is known by block (arrays) and by range, never by message. A page's messages are in
the journal's care: appending, and being done, are records of its batches. Nothing is read, and no
file deleted, before the batch that says so is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from gateway.addresses.settings import AddressSettings
from gateway.model.definitions import PageGone, PageMark, PagesDefinition
from gateway.model.errors import Refusal
from gateway.model.pages import Block, Fetched, PageStore, UnreadablePageError
from gateway.model.run import Run, StoredRun
from gateway.paging.backlog import Backlog
from gateway.paging.limits import pages_allowed, pages_full
from gateway.paging.page import Page
from gateway.queues.ordered import ascends
from gateway.queues.queue import Queue

#: What a message counts against page-size-bytes beside its body: at least what it takes in the file
#: (its own head, and that of a block where it is alone in it).
MESSAGE_BYTES: Final = 96
#: Blocks that are kept for the next reader: several queues read the same pages.
_KEPT_BLOCKS: Final = 2
#: What one that reads on has in front of it.
_AHEAD: Final = 4
#: Blocks that are on their way from the disk at most; as many that have arrived are safe from
#: those that come after them.
_ASKED_MAX: Final = 16


class Paging:
    """See the module text.

    Attributes:
        live: messages on pages that some queue is not done with, once for each queue.
        begun: the journal knows of it.
    """

    def __init__(
        self,
        store: PageStore,
        store_id: int,
        address: str,
        *,
        changed: Callable[[], None],
        lost: Callable[[Queue, int, str], None],
        fetched: Callable[[Queue], None],
    ) -> None:
        """`changed` is called when less is live than before, `lost` for what cannot be read.

        `fetched` gets a queue that waited for blocks.
        """
        self.store_id = store_id
        self.address = address
        self.pages: dict[int, Page] = {}
        self.backlogs: dict[int, Backlog] = {}
        self.live = 0
        self.suspect = 0
        self.next_page = 1
        self.begun = False
        self._store = store
        self._changed = changed
        self._lost = lost
        self._fetched = fetched
        self._current: Page | None = None
        self._unsynced: deque[tuple[Block, Page, Sequence[tuple[int, int]]]] = deque()
        self._doomed: deque[tuple[int, int]] = deque()  # ticket, page
        self._kept: dict[tuple[int, int], Fetched] = {}
        self._asked: set[tuple[int, int]] = set()  # blocks that are on their way
        self._waiting: dict[Callable[[], None], None] = {}

    # ---- figures

    @property
    def page_files(self) -> int:
        return len(self.pages)

    @property
    def charge(self) -> int:
        """What the newest page counts against page-size-bytes; 0 where there is none."""
        return self._current.charge if self._current is not None else 0

    @property
    def page_bytes(self) -> int:
        """Bytes of the files, as far as they are durable."""
        return sum([page.size for page in self.pages.values()])

    @property
    def most_messages(self) -> int:
        """What the queue with the most messages on pages has there."""
        return max([backlog.live for backlog in self.backlogs.values()], default=0)

    def full(self, settings: AddressSettings) -> Refusal | None:
        """Return which limit its pages have reached, or None."""
        return pages_full(
            self.address, settings, pages=len(self.pages), most_messages=self.most_messages
        )

    # ---- in

    def room(self, settings: AddressSettings, run: Run, *, limited: bool) -> int:
        """Return how many of a run go to one page; `limited`: and may go before it is `full`.

        At least 1 when it is not full.
        """
        page = self._current
        bodies, count = run.bodies, run.count
        charge = page.charge if page is not None else 0
        page_size = settings.page_size_bytes
        opens = page is None or not fits(charge, len(bodies[0]), page_size)
        if limited:
            if settings.page_limit_messages >= 0:
                count = min(count, settings.page_limit_messages - self.most_messages)
            allowed = pages_allowed(settings)
            if opens and allowed is not None and len(self.pages) >= allowed:
                return min(count, 1)  # this page is one too many
        assert count <= run.count, "room for more than comes"
        if opens:
            charge = 0
        if charge + run.size + MESSAGE_BYTES * run.count <= page_size:
            return count
        taken = 0
        for body in bodies[:count]:
            if taken and not fits(charge, len(body), page_size):
                break
            charge += len(body) + MESSAGE_BYTES
            taken += 1
        return taken

    def append(
        self,
        queues: Sequence[Queue],
        run: Run,
        *,
        now_ms: int,
        page_size: int,
        origin: str = "",
    ) -> int:
        """Append what `room` has allowed, for all of `queues`; returns the ticket."""
        size, count = run.size, run.count
        assert count > 0, "nothing goes to a page"
        if not self.begun:
            self.begun = True
            self._store.define(self.definition())
        page = self._current
        if page is None or not fits(page.charge, len(run.bodies[0]), page_size):
            page = self._open_page()
        targets = [(queue.queue_id, queue.take_places(count)) for queue in queues]
        block = self._store.page((self.store_id, page.number, page.blocks), targets, run, now_ms)
        if block.number == page.blocks:
            page.blocks += 1
            self._unsynced.append((block, page, targets))
        page.charge += size + MESSAGE_BYTES * count
        self.live += count * len(queues)
        for queue, (_, first) in zip(queues, targets, strict=True):
            told = origin if queue.told_apart else ""
            self.backlog_of(queue).grow(page, first, count, size, told)
        return block.ticket

    def _open_page(self) -> Page:
        before = self._current
        assert self.next_page not in self.pages, "a page that is there already"
        page = self.pages[self.next_page] = Page(self.next_page)
        self.next_page += 1
        self._current = page
        if before is not None and not before.live:
            self.retire(before)
        return page

    def backlog_of(self, queue: Queue) -> Backlog:
        """Return what a queue has here."""
        backlog = self.backlogs.get(queue.queue_id)
        if backlog is None:
            backlog = self.backlogs[queue.queue_id] = Backlog(queue, self)
            queue.backlog = backlog
        return backlog

    def durable_up_to(self, ticket: int) -> list[Queue]:
        """Blocks are durable, and pages may go; returns the queues that have more to read."""
        unsynced = self._unsynced
        touched: dict[int, Queue] = {}
        while unsynced and unsynced[0][0].ticket <= ticket:
            block, page, targets = unsynced.popleft()
            assert block.number == len(page.offsets), "blocks are durable in no order"
            page.offsets.append(block.offset)
            page.lengths.append(block.length)
            page.size = block.offset + block.length
            for queue_id, first in targets:
                part = page.parts.get(queue_id)
                if part is not None:
                    part.index(block.number, first, block.count)
                    touched[queue_id] = self.backlogs[queue_id].queue
        gone = []
        while self._doomed and self._doomed[0][0] <= ticket:
            gone.append(self._doomed.popleft()[1])
        if gone:
            self._store.drop_pages(self.store_id, gone)
        return list(touched.values())

    # ---- what backlogs need (Source)

    def read(self, page: Page, block: int) -> StoredRun:
        """See Source."""
        key = page.number, block
        run = self._kept.pop(key, None)
        if run is None:
            assert block < len(page.offsets), "a block is read that is not durable"
            run = self._store.read_page(
                (self.store_id, page.number), page.offsets[block], page.lengths[block]
            )
        if isinstance(run, UnreadablePageError):
            raise run
        self._kept[key] = run
        if not self._asked:
            self._keep(_KEPT_BLOCKS + _AHEAD)
        return run

    def here(self, page: Page, block: int) -> bool:
        """See Source."""
        return (page.number, block) in self._kept

    def fetch(self, wake: Callable[[], None], wanted: Sequence[tuple[Page, int]]) -> bool:
        """See Source."""
        assert wanted, "no block is wanted"
        first = wanted[0][0].number, wanted[0][1]
        for page, block in wanted:
            key = page.number, block
            if key in self._kept or key in self._asked:
                continue
            if len(self._asked) >= _ASKED_MAX:
                break  # whoever waits is woken by what arrives, and asks again
            self._keep(2 * _ASKED_MAX - len(self._asked) - 1)
            self._asked.add(key)
            self._store.fetch_page(
                (self.store_id, page.number),
                page.offsets[block],
                page.lengths[block],
                partial(self._arrived, key),
            )
        if first in self._kept:
            return True
        self._waiting[wake] = None
        return False

    def touch(self, queue: Queue) -> None:
        """See Source."""
        self._fetched(queue)

    def _arrived(self, key: tuple[int, int], run: Fetched) -> None:
        assert key in self._asked, "a block comes that nobody has asked for"
        self._asked.remove(key)
        if key[0] in self.pages:
            self._kept[key] = run
        waiting, self._waiting = self._waiting, {}
        for wake in waiting:
            wake()

    def _keep(self, most: int) -> None:
        """Let go of the blocks that nobody has wanted for the longest time."""
        while len(self._kept) > most:
            del self._kept[next(iter(self._kept))]
        assert len(self._kept) <= max(0, most), "more blocks are kept than may be"

    def lost(self, queue: Queue, count: int, error: UnreadablePageError) -> None:
        """See Source."""
        self.give_up(queue, count, str(error))

    def give_up(self, queue: Queue, count: int, why: str) -> None:
        """So many messages of a queue are lost."""
        self._lost(queue, count, why)

    def remove(self, queue: Queue, first: int, last: int) -> int:
        """See Source."""
        if not queue.durable or queue.deleted:
            return 0
        return self._store.remove_paged(queue.queue_id, first, last)

    def finished(self, page: Page, count: int) -> None:
        """See Source."""
        self.live -= count
        assert self.live >= page.live >= 0, "done with more than there was"
        if not page.live and page is not self._current:
            self.retire(page)
        self._changed()

    def retire(self, page: Page) -> None:
        """A page that nobody needs goes once that is durable."""
        assert not page.live, "a page goes that somebody needs"
        if self.pages.pop(page.number, None) is None:
            return
        for backlog in self.backlogs.values():
            backlog.forget_page(page)
        ticket = self._store.define(PageGone(store_id=self.store_id, page=page.number))
        self._doomed.append((ticket, page.number))
        for key in [key for key in self._kept if key[0] == page.number]:
            del self._kept[key]

    # ---- the end, and what outlives a restart

    def retire_current(self) -> None:
        """Let go of the newest page too, when nothing on it is live; the next run opens another."""
        page, self._current = self._current, None
        if page is not None and not page.live:
            self.retire(page)

    def end(self) -> tuple[int, list[int]]:
        """Let go of the queues; returns the ticket after which these pages are to be deleted."""
        for backlog in self.backlogs.values():
            backlog.queue.backlog = None
        if not self.begun:
            return 0, []
        gone = PagesDefinition(store_id=self.store_id, address=self.address)
        return self._store.undefine(gone), [*(page for _, page in self._doomed), *self.pages]

    def take_up(self) -> None:
        """Go on with what the journal knows already."""
        self.begun = True

    def definition(self) -> PagesDefinition:
        """Return all that a new journal segment must know of it."""
        marks = tuple(
            PageMark(
                queue_id=queue_id,
                page=page.number,
                first=part.first,
                floor=part.floor,
                marks=part.marks(),
            )
            for page in self.pages.values()
            for queue_id, part in page.parts.items()
            if part.floor > part.first or part.marks()
        )
        backlogs = self.backlogs.items()
        counts = tuple((q, seq, flags) for q, one in backlogs for seq, flags in one.flags.items())
        dues = tuple((q, seq, due) for q, one in backlogs for seq, due in one.dues.items())
        return PagesDefinition(
            store_id=self.store_id,
            address=self.address,
            pages={page.number: page.blocks for page in self.pages.values()},
            marks=marks,
            counts=counts,
            dues=dues,
            suspect=self.suspect,
            next_page=self.next_page,
        )

    def check_invariants(self) -> None:
        """Assert that all figures are the sum of what they stand for; tests call it."""
        pages, current = self.pages.values(), self._current
        assert ascends(self.pages), "pages in no order"
        assert max(self.pages, default=0) < self.next_page, "a page whose number is to come"
        assert current is None or self.pages.get(current.number) is current, "it writes to no page"
        for page in pages:
            page.check_invariants()
            assert page.live or page is self._current, "a page is kept that nobody needs"
        assert self.live == sum(page.live for page in pages), "paging is miscounted"
        for queue_id, backlog in self.backlogs.items():
            live = sum(p.parts[queue_id].live for p in pages if queue_id in p.parts)
            assert backlog.live == live, "a backlog is miscounted"
            assert backlog.queue.queue_id == queue_id, "the backlog of another queue"
            backlog.check_invariants()
        self._check_blocks()

    def _check_blocks(self) -> None:
        tickets = [block.ticket for block, _, _ in self._unsynced]
        assert tickets == sorted(tickets), "blocks are not written in order"
        for page in self.pages.values():
            waiting = [block.number for block, on, _ in self._unsynced if on is page]
            known = list(range(len(page.offsets), page.blocks))
            assert waiting == known, f"blocks {known} are not durable, and {waiting} wait to be"
        doomed = [ticket for ticket, _ in self._doomed]
        assert doomed == sorted(doomed), "pages do not go in order"
        assert self.pages.keys().isdisjoint(page for _, page in self._doomed), (
            "it goes, and is there"
        )
        assert len(self._asked) <= _ASKED_MAX, "more is asked of the disk than may be"
        assert self.pages.keys() >= {page for page, _ in self._kept}, (
            "blocks of a page that is gone"
        )
        assert self.begun or not self.pages, "pages that the journal does not know"


def fits(charge: int, size: int, page_size: int) -> bool:
    """Whether a page of so much takes one more message; an empty one takes any."""
    return not charge or charge + size + MESSAGE_BYTES <= page_size
