"""Page mode: which addresses are in it, what goes to their pages, and what comes back.

    memory ──a limit is reached (policy PAGE)──> paging ──nothing on pages, room──> memory

While an address is paging all that is sent to it goes to pages, whatever room there is: nothing
overtakes what lies there. What is read back is dispatched as anything else; it counts on its page
until it is gone, not in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from gateway.addresses.settings import PageFullPolicy
from gateway.broker.directory.address import Address
from gateway.broker.directory.directory import Directory
from gateway.broker.operations.shares import joined_ranges
from gateway.broker.ports.turns import Clock, Dispatching
from gateway.broker.pressure.pressure import Pressure
from gateway.broker.routing.way import Way
from gateway.model.definitions import PagesDefinition
from gateway.model.message import PAGED, SHARED, Message
from gateway.model.pages import FoundPages
from gateway.model.run import MixedRun, Outcome, Run, joined
from gateway.model.turn import Turn
from gateway.paging.backlog import Backlog
from gateway.paging.limits import Room, reading_room, searching_room
from gateway.paging.paging import Paging
from gateway.paging.restore import restore_paging
from gateway.queues.queue import Queue
from gateway.queues.scheduled import NEVER
from gateway.queues.selecting import PLACES_MIN, Held

#: Steps of reading that one expiry scan does for a queue: what expires on pages is found as it is
#: read, and a scan must end.
_EXPIRY_STEPS: Final = 64
#: Messages on pages that expire in one turn of a scan.
_EXPIRY_TURN: Final = 2048
#: Messages on pages that the selectors of one queue look at in a turn: some milliseconds, reading
#: included.
_SEARCH_TURN: Final = 1024


class Pager:
    """See the module text.

    Attributes:
        lost: messages on pages that could not be read.
        started: how often page mode began.
        idle: addresses, by store, that had nothing on pages when they were looked at last.
    """

    def __init__(
        self,
        directory: Directory,
        pressure: Pressure,
        turn: Turn,
        *,
        clock: Clock,
        dispatch: Dispatching,
    ) -> None:
        self._directory = directory
        self._store = directory.store
        self._load = pressure.load
        self._room = pressure.room
        self._turn = turn
        self._clock = clock
        self._dispatch = dispatch
        self._paging: dict[int, Address] = {}  # by store
        self._ending: deque[tuple[int, int, list[int]]] = deque()  # ticket, store id, pages
        self.idle: dict[int, Address] = {}
        self._looking = False
        self._draining: dict[Queue, list[Held]] = {}  # who waits for the end of what is read
        self.lost = 0
        self.started = 0
        self.on_mode: Callable[[str, bool], None] = _ignore_mode
        self.on_unreadable: Callable[[str, int, str], None] = _ignore

    # ---- the mode

    def pages(self, address: Address) -> bool:
        """Whether what is sent now goes to pages; begins page mode where a limit is reached."""
        if address.paging is not None:
            return True
        if self._load.full_because(address) is None or address.operator_block:
            return False
        self._begin(address, self._directory.take_id())
        return True

    def _begin(self, address: Address, store_id: int) -> Paging:
        paging = Paging(
            self._store,
            store_id,
            address.name,
            changed=lambda: self.changed(address),
            lost=self._lose,
            fetched=self._dispatch.touch,
        )
        address.set_paging(paging)
        self._paging[store_id] = self.idle[store_id] = address
        self.started += 1
        self.on_mode(address.name, True)
        return paging

    def _lose(self, queue: Queue, count: int, why: str) -> None:
        self.lost += count
        self.on_unreadable(queue.name, count, why)

    def changed(self, address: Address) -> None:
        """Less is on the address' pages than before."""
        paging = address.paging
        if paging is not None and not paging.live:
            self.idle[paging.store_id] = address
            self.room_made()
        self._room.made()

    def room_made(self) -> None:
        """Less is in memory than before, of whatever address: some limits are the gateway's."""
        if not self._looking:
            self._looking = True
            self._turn.at_end(self._look)

    def settings_changed(self, address: Address) -> None:
        """Other limits hold from now on: for who sends, and for how much is read."""
        paging = address.paging
        for queue in address.queues:
            if queue.paged_count and _reads(queue):
                self._dispatch.touch(queue)
        if paging is not None and not paging.live:
            self.idle[paging.store_id] = address
        self.room_made()
        self._room.watch(address)
        if address.blocked is not None:
            self._turn.at_end(partial(self._room.look_at, address))

    def _look(self) -> None:
        """End page mode where nothing is on pages any more, and there is room."""
        self._looking = False
        for store_id, address in list(self.idle.items()):
            paging = address.paging
            if paging is None or paging.live:
                del self.idle[store_id]
            elif address.gone or self._load.full_because(address) is None:
                self._end(address, paging)
            else:
                paging.retire_current()

    def _end(self, address: Address, paging: Paging) -> None:
        ticket, pages = paging.end()
        if pages:
            self._ending.append((ticket, paging.store_id, pages))
        address.set_paging(None)
        for queue in [q for q in self._draining if q.address == address.name]:
            self._tell_draining(queue)
        for queue in address.queues:
            if queue.browsers or queue.keeps:
                self._dispatch.touch(queue)  # what some waited for never comes
        del self._paging[paging.store_id], self.idle[paging.store_id]
        self.on_mode(address.name, False)

    # ---- in

    def send(self, route: Way, run: Run | MixedRun, *, admitted: bool) -> Outcome:
        """Store up to the message that reaches a limit, send the others to pages.

        `admitted`: no limit counts any more.
        """
        ticket = done = 0
        for one in run.runs():
            at = 0
            while at < one.count and not self.pages(route.target):
                ticket = max(ticket, route.store_run(one.part(at, at + 1)))
                at += 1
            if at < one.count:
                outcome = self._send_run(
                    route, route.ruled(one.part(at, one.count)), admitted=admitted
                )
                ticket = max(ticket, outcome.ticket)
                if outcome.refusal is not None:
                    return Outcome(ticket, outcome.refusal, done + at + outcome.taken)
            done += one.count
        self.pages(route.target)  # what was stored last may have reached the limit
        return Outcome(ticket)

    def _send_run(self, route: Way, run: Run, *, admitted: bool) -> Outcome:
        """Send a run to pages."""
        address = route.target
        paging = address.paging
        assert paging is not None, "not in page mode"
        settings = address.settings
        ticket = start = 0
        while start < run.count:
            rest = run.part(start, run.count)
            fails = settings.page_full_policy is PageFullPolicy.FAIL
            refusal = None if admitted and fails else paging.full(settings)
            if refusal is not None:
                if fails:
                    return Outcome(ticket, refusal, start)
                address.dropped += rest.count
                self._load.refuse(refusal, rest.count)
                break
            count = paging.room(settings, rest, limited=not (admitted and fails))
            ticket = max(ticket, self._append(route, paging, rest.part(0, count)))
            start += count
        return Outcome(ticket)

    def _append(self, route: Way, paging: Paging, run: Run) -> int:
        """Give a run to the queues that it is for, each message once for all of them."""
        address = route.target
        self._load.received += run.count
        route.sent += run.count
        self._turn.need_end()  # no queue is touched, and the store waits for the end of a turn
        dealt: list[tuple[list[Queue], Run]] = []
        unwanted: list[Run] = []
        for part, able, copies in route.routed(run):
            dealt += self._deal(address, able, copies, part)
            if not (able or copies or address.taps):
                unwanted.append(part)
        self._store.begin_atomic()
        try:
            ticket = route.give_up(joined(unwanted)) if unwanted else 0
            for queues, some in dealt:
                last = paging.append(
                    queues,
                    some,
                    now_ms=self._clock.now_ms(),
                    page_size=address.settings.page_size_bytes,
                    origin=route.origin,
                )
                ticket = max(ticket, last)
            return max(ticket, route.record_taps(run))
        finally:
            self._store.end_atomic()

    @staticmethod
    def _deal(
        address: Address, able: list[Queue], copies: list[Queue], run: Run
    ) -> list[tuple[list[Queue], Run]]:
        """Return which queues get what, with each message once where that can be."""
        if not able and not copies and not address.taps:
            address.unrouted += run.count
            return []
        address.routed += run.count
        ways = len(able)
        if ways <= 1:
            return [(able + copies, run)] if able or copies else []
        address.chose(able[(run.count - 1) % ways])
        dealt = [([able[way]], run.dealt(way, ways)) for way in range(min(ways, run.count))]
        return [*dealt, (copies, run)] if copies else dealt

    # ---- out

    def feed(self, queue: Queue, now_ms: int, limit: int) -> int:
        """Read back what consumers, or a ring, take; returns how many messages went out.

        Of what is in memory; what is next is fetched, and the queue touched when it is there.
        """
        total = vain = 0
        while total < limit and not queue.paused and self.read(queue):
            went = queue.dispatch(now_ms, limit - total) if queue.consumer_count else 0
            total += went
            if queue.ring_size >= 0:
                queue.trim()
            elif not went and not queue.replaces:
                # What was read has expired or waits for its time: what follows may be for now.
                vain += 1
                if queue.ready_count:
                    break
                if vain >= _EXPIRY_STEPS:
                    self._turn.after(lambda: self._dispatch.touch(queue))
                    break
        searches = queue.selective and not (queue.replaces or queue.keeps or queue.paused)
        if searches and total < limit:
            total += self._search(queue, now_ms, limit - total)
        if queue in self._draining:
            self._tell_draining(queue)
        return total

    def keeps_reading(self, queue: Queue, held: Held) -> bool:
        """Whether more is read back for consumers like this one, who is told of the end of it."""
        if not self._reads_on(queue, held):
            return False
        for gone in [q for q in self._draining if q.deleted]:
            del self._draining[gone]
        waiting = self._draining.setdefault(queue, [])
        if held not in waiting:
            waiting.append(held)
        return True

    def _reads_on(self, queue: Queue, held: Held) -> bool:
        """Whether something is on disk that will be read without anybody's doing."""
        backlog = queue.backlog
        if not isinstance(backlog, Backlog) or queue.paused or held.group is not None:
            return False  # a selector has a search of its own
        if not _reads(queue) or (queue.exclusive and queue.consumers[0] is not held):
            return False
        room = self._reading_room(queue, backlog)
        if not (room.messages and room.size and backlog.has(backlog.next)):
            return False
        if backlog.fetch(backlog.next):
            self._dispatch.touch(queue)
        return True

    def _tell_draining(self, queue: Queue) -> None:
        """Tell those that waited to see all, or have no room any more."""
        waiting = self._draining.pop(queue, [])
        for held in waiting:
            if held.attached and held.consumer.room() > 0 and self.keeps_reading(queue, held):
                continue
            if held.attached:
                held.consumer.exhausted()

    def _search(self, queue: Queue, now_ms: int, limit: int) -> int:
        """Look on the pages for what selectors want; returns how many messages went out."""
        backlog = queue.backlog
        if not isinstance(backlog, Backlog):
            return 0
        groups = [group for group in queue.searches.hungry() if backlog.has(group.page_next)]
        more = False
        went = 0
        for group in groups:
            members = [h for h in queue.consumers if h.group is group and h.consumer.room() > 0]
            room = self._searching_room(queue, backlog)
            if not room.messages or not room.size:
                break  # whatever is settled makes room, and the queue is looked at again
            if not backlog.fetch(group.page_next):
                continue
            share = max(PLACES_MIN, _SEARCH_TURN // len(groups))
            wanted = sum([h.consumer.room() for h in members])
            room = Room(min(room.messages, wanted, limit - went), room.size)
            found, group.page_next = backlog.search(
                group.page_next, group.wanted(members), room, share
            )
            if found:
                went += queue.ahead.take(backlog, group, found, now_ms)
            hungry = any(h.consumer.room() > 0 for h in members)
            more = more or (hungry and backlog.has(group.page_next))
        queue.searches.end_pages(backlog, more=more)
        if queue.next_time < NEVER:
            self._dispatch.wake(queue, queue.next_time)
        return went

    def _searching_room(self, queue: Queue, backlog: Backlog) -> Room:
        held = queue.message_count - backlog.count
        taken = max(queue.delivering, len(backlog.ahead))
        return searching_room(
            self._directory.addresses[queue.address].settings,
            taken=taken,
            taken_bytes=queue.size_bytes * taken // held if held else 0,
        )

    def read(self, queue: Queue) -> int:
        """Read one step of a queue's pages into it, for consumers or a ring."""
        return self._read_step(queue) if _reads(queue) else 0

    def _reading_room(self, queue: Queue, backlog: Backlog) -> Room:
        return reading_room(
            self._directory.addresses[queue.address].settings,
            waiting=queue.ready_count,
            held=queue.message_count - backlog.count,
            held_bytes=queue.size_bytes,
            ring=queue.ring_size >= 0 or queue.replaces,
        )

    def _read_step(self, queue: Queue) -> int:
        backlog = queue.backlog
        if not isinstance(backlog, Backlog) or not backlog.count:
            return 0
        count = backlog.read(self._reading_room(queue, backlog))
        if queue.next_time < NEVER:
            self._dispatch.wake(queue, queue.next_time)
        return count

    def expire(self, queue: Queue) -> int:
        """Read on while what is read has expired; returns how many had, until the next turn."""
        total = 0
        while total < _EXPIRY_TURN:
            backlog = queue.backlog
            if queue.ready_count or not isinstance(backlog, Backlog) or not backlog.count:
                return total
            if not backlog.fetch(backlog.next, partial(self._expire_on, queue)):
                return total
            if not self._read_step(queue):
                return total
            total += queue.expire(self._clock.now_ms())
        self._turn.after(partial(self._expire_on, queue))
        return total

    def _expire_on(self, queue: Queue) -> None:
        """A block of a queue that is scanned is there, or another turn."""
        if not queue.deleted:
            self.expire(queue)

    @staticmethod
    def counted(queue: Queue, messages: list[Message]) -> None:
        """Remember the delivery counts of what is on pages."""
        if isinstance(queue.backlog, Backlog):
            for message in messages:
                if message.flags & PAGED:
                    queue.backlog.flags[message.seq] = message.flags & ~(SHARED | PAGED)

    @staticmethod
    def postponed(queue: Queue, messages: list[Message]) -> None:
        """Remember until when what is on pages waits."""
        if isinstance(queue.backlog, Backlog):
            for message in messages:
                if message.flags & PAGED:
                    queue.backlog.dues[message.seq] = message.due

    def finish(self, queue: Queue, messages: list[Message]) -> tuple[list[Message], int]:
        """Be done with those that are on pages; returns the others, and the ticket."""
        backlog = queue.backlog
        ticket = 0
        if isinstance(backlog, Backlog):
            for low, high in joined_ranges(sorted([m.seq for m in messages if m.flags & PAGED])):
                ticket = max(ticket, backlog.finish(low, high))
        return [m for m in messages if not m.flags & PAGED], ticket

    # ---- durability

    def durable_up_to(self, ticket: int) -> None:
        """Blocks can be read, and pages may go."""
        for address in self._paging.values():
            assert address.paging is not None, "listed and not paging"
            for queue in address.paging.durable_up_to(ticket):
                if queue.consumer_count or _reads(queue) or queue.browsers:
                    self._dispatch.touch(queue)
        while self._ending and self._ending[0][0] <= ticket:
            _, store_id, pages = self._ending.popleft()
            self._store.drop_pages(store_id, pages)

    def definitions(self) -> Iterator[PagesDefinition]:
        """Return what a new journal segment must know."""
        for address in self._paging.values():
            if address.paging is not None and address.paging.begun:
                yield address.paging.definition()

    # ---- at start

    def restore(self, found: Sequence[FoundPages]) -> None:
        """Go on with the pages that a start found; the queues are there."""
        queues = {queue.queue_id: queue for queue in self._directory.queues.values()}
        for pages in found:
            definition = pages.definition
            address = self._directory.addresses.get(definition.address)
            if address is None or address.paging is not None:
                gone = PagesDefinition(store_id=definition.store_id, address=definition.address)
                ticket = self._store.undefine(gone)
                numbers = [page.number for page in pages.pages]
                self._ending.append((ticket, definition.store_id, numbers))
                continue
            paging = self._begin(address, definition.store_id)
            bound = {q.queue_id: queues[q.queue_id] for q in address.queues}
            restore_paging(paging, pages, bound)
            self.changed(address)
            for queue in address.queues:
                if _reads(queue) and queue.backlog is not None:
                    self._dispatch.touch(queue)


def _reads(queue: Queue) -> bool:
    """Whether a queue reads its pages now: for consumers, or since it lets go of what it reads."""
    if queue.ring_size >= 0 or queue.replaces:
        return True
    return bool(queue.consumer_count) and not queue.keeps  # which shows them from there


def _ignore(queue: str, count: int, why: str) -> None:
    """Stand for a listener that is not there yet."""


def _ignore_mode(address: str, paging: bool) -> None:  # noqa: FBT001 - see on_mode
    """Stand for a listener that is not there yet."""
