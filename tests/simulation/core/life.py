"""What every world of a whole core has: a disk, clocks, and lives that each end somehow.

It starts the core on what a disk holds, as the service does, and lets its time and its writer go on
a step at a time. Who sends and takes, and what is promised to them, is in the worlds built on it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

from gateway.addresses.match import SettingsTable
from gateway.broker import Gateway
from gateway.broker.operations.effects import QueueEffects
from gateway.model.message import Message
from gateway.model.turn import Turn
from gateway.paging import paging as paging_module
from gateway.queues.queue import Queue
from gateway.store.persistence import Restored, open_journal
from gateway.time.alarm import Alarm
from storage import journal as journal_module
from storage import pages as pages_module
from storage.errors import StorageError
from storage.journal import Journal
from storage.pages import PageReader, PageWriter
from storage.segments import Segments
from tests.simulation.clocks import Clocks, disturb
from tests.simulation.core.plan import Plan
from tests.simulation.core.record import CoreModel, Recorder
from tests.simulation.disk import Crash, SimDisk
from tests.simulation.fetches import TurnFetches
from tests.simulation.model import ViolationError
from tests.simulation.writer import TurnWriter

JOURNAL = "d/journal"
PAGING = "d/paging"
#: Turns that calm takes at most: what needs more goes round in circles.
CALM_MAX = 3000
FIRST_ID = 100
#: The gateway's own timers make at least one turn a second.
_TURN_SECONDS = 1.0
_TIMER_SECONDS = 0.001


class HeardGateway(Gateway):
    """It has a dictionary besides its slots: a world hears of what it does by replacing methods."""


class HeardEffects:
    """Stands for the effects of queues: a world hears of what leaves a queue before they do."""

    def __init__(self, told: QueueEffects, gone: Callable[..., int]) -> None:
        self._told = told
        self.gone = gone

    def __getattr__(self, name: str) -> object:
        return getattr(self._told, name)


class Life:
    """See the module text. `kind` keeps the chance of one world apart from that of others.

    Attributes:
        evicted: what rings give up while a core is being made; None afterwards.
        failed: the store has said that it failed.
        found_up_to: the ticket that the last start found all of.
    """

    gateway: Gateway
    journal: Journal
    store: Recorder
    writer: TurnWriter
    fetches: TurnFetches
    found_up_to: int

    def __init__(self, kind: str, seed: int | str, plan: Plan) -> None:
        self.seed = seed
        self.plan = plan
        self.chance = random.Random(f"{kind}/{seed}")
        self.clock_chance = random.Random(f"{kind} clocks/{seed}")
        #: How often an event is one of the clocks'; most seeds have none, or few.
        self.clock_rate = self.clock_chance.choice([0.0, 0.0, 0.02, 0.1])
        self.disk = SimDisk(random.Random(f"{kind} disk/{seed}"))
        self.model = CoreModel()
        self.clocks = Clocks()
        self.names = 0
        self.later: list[Callable[[], None]] = []
        self.evicted: list[tuple[Queue, Message]] | None = None
        self.failed = self.closed = False
        self.figures: Counter[str] = Counter()

    @property
    def now(self) -> int:
        """Return what broker time has to be, in ms."""
        return self.clocks.now

    def log(self, text: str) -> None:
        self.disk.log.append(text)

    # ---- what worlds say

    def before_start(self) -> None:
        """The process is down."""

    def made(self, gateway: Gateway) -> None:
        """A gateway is made, and empty."""

    def compare(self, found: Restored) -> None:
        """A gateway has begun with what was found."""

    def on_durable(self, ticket: int) -> None:
        """All up to a ticket is on disk."""

    def on_consumed(self, tickets: list[int]) -> None:
        """What was sent with these need not be."""

    # ---- a start

    def start(self) -> None:
        """Start until it goes well; crashes and faults may come in between."""
        attempts = 0
        self.before_start()
        while True:
            attempts += 1
            if attempts <= 2:
                self._threaten_start()
            try:
                self.journal, found = open_journal(
                    self.disk, JOURNAL, self.plan.segment_bytes, self.plan.rule, paging=PAGING
                )
                segments = Segments(self.disk, JOURNAL, lambda: self.chance.randbytes(16))
            except Crash:
                self.lose()
                continue
            except (OSError, StorageError) as error:
                if "simulated" not in str(error):
                    raise
                self.log(f"start refused: {error}")
                self.disk.boot()
                continue
            break
        if self.disk.fds:
            raise ViolationError(f"a start leaves {len(self.disk.fds)} files open")
        self.disk.crash_at = -1
        self.disk.read_faults = self.disk.sync_faults = 0
        self.found_up_to = self.model.recovered(found, self.journal.synced, attempts=attempts)
        self._make(found, segments)
        self.compare(found)

    def _threaten_start(self) -> None:
        if self.plan.faults and self.chance.random() < 0.15:
            self.disk.read_faults = self.chance.randint(1, 6)
        elif self.plan.faults and self.chance.random() < 0.1:
            self.disk.sync_faults = self.chance.randint(1, 6)
        elif self.chance.random() < 0.25:
            self.disk.crash_at = self.disk.calls + self.chance.randint(1, 12)

    def _make(self, found: Restored, segments: Segments) -> None:
        """Build the core on what was found, as the service does."""
        self.failed = self.closed = False
        self.later = []
        self.clocks.boot()
        self.store = Recorder(self.journal, PageReader(self.disk, PAGING), self.model)
        self.store.fetches = self.fetches = TurnFetches(PageReader(self.disk, PAGING))
        self.gateway = gateway = HeardGateway(
            turn=Turn(self.later.append),
            settings=SettingsTable(tuple(self.plan.entries)),
            store=self.store,
            limits=self.plan.limits,
            now_ms=self.clocks.broker.now_ms,
            make_name=self._make_name,
        )
        alarm = Alarm(self.clocks.reactor, self.clocks.broker.now_ms, gateway.on_time)
        gateway.dispatch.timetable.alarm = alarm.set
        gateway.operations.pager.on_mode = self._mode
        gateway.directory.serialized = frozenset(self.plan.serialized)
        self.made(gateway)
        self.journal.cancels = self.plan.cancels
        self.journal.on_durable = self._on_durable
        self.journal.on_consumed = self._on_consumed
        self.journal.on_failed = self._on_failed
        self.store.snapshot = lambda: [
            *gateway.directory.snapshot(),
            *gateway.operations.pager.definitions(),
        ]
        self._bring_back(gateway, found)
        pages = PageWriter(self.disk, PAGING, lambda: self.chance.randbytes(16))
        self.writer = TurnWriter(self.journal, segments, self.plan.segment_bytes, pages=pages)
        self.journal.start(self.writer)

    def _bring_back(self, gateway: Gateway, found: Restored) -> None:
        self.evicted = []
        directory = gateway.directory
        for address in found.addresses:
            directory.restore_address(address)
        for definition in found.queues:
            queue = directory.restore_queue(definition)
            queue.restore(found.messages.get(definition.queue_id, []))
            highest = found.highest.get(definition.queue_id, 0)
            queue.counts.next_seq = max(queue.next_seq, highest + 1)
            gateway.restored(queue)
        gateway.recovered()
        directory.next_id = max(found.next_id, FIRST_ID)
        gateway.operations.pager.restore(found.pages)

    def _make_name(self) -> str:
        self.names += 1
        return f"temporary-{self.names}"

    def _mode(self, address: str, paging: bool) -> None:
        self.log(f"      {address} {'pages' if paging else 'pages no more'}")
        self.figures["paged" if paging else "pages ended"] += 1

    # ---- what the journal tells

    def _on_durable(self, ticket: int) -> None:
        self.log(f"      durable up to {ticket}")
        if self.failed:
            raise ViolationError(f"ticket {ticket} reported after the store had failed")
        self.model.report(ticket)
        self.on_durable(ticket)
        held = self.gateway.pressure.holds.held
        self.gateway.durable_up_to(ticket)
        self.figures["held"] += self.gateway.pressure.holds.held - held

    def _on_consumed(self, tickets: list[int]) -> None:
        self.log(f"      consumed {tickets}")
        self.figures["consumed before they were stored"] += len(tickets)
        if self.failed:
            raise ViolationError(f"tickets {tickets} told after the store had failed")
        self.on_consumed(tickets)
        self.gateway.listeners.consumed(tickets)

    def _on_failed(self, error: BaseException) -> None:
        self.log(f"      failed: {error}")
        if self.failed:
            raise ViolationError("the failure was told twice")
        if not isinstance(error, OSError):
            raise error
        self.failed = True
        self.gateway.store_failed(str(error))

    def note_handed(self) -> None:
        """After each step: the journal is in order, and what the writer has may be on disk."""
        self.journal.check_invariants()
        busy = self.journal._busy
        if busy is not None:
            self.model.hand(busy)

    # ---- time and the disk

    def turn(self) -> None:
        """Let turns end until nothing waits for one."""
        while self.later:
            waiting, self.later[:] = list(self.later), []
            for action in waiting:
                action()

    def pass_time(self, by_ms: int) -> None:
        """Let time go by, in the turns that timers make of it."""
        rest = by_ms / 1000
        while rest > 0:
            following = self.clocks.next_in()
            part = min(rest, _TURN_SECONDS)
            if following is not None:
                part = min(part, max(following, _TIMER_SECONDS))
            rest = round(rest - part, 6)
            self.clocks.advance(part)
            self.turn()
        self.clocks.check()
        self.gateway.on_time()
        self.turn()

    def disturb_clocks(self) -> None:
        """Now and then the wall clock steps, or the process stands still."""
        if self.clock_rate and self.clock_chance.random() < self.clock_rate:
            self.log(f"  {disturb(self.clock_chance, self.clocks)}")

    def settle(self) -> None:
        """Let all that waits go to the disk, and what follows from it happen."""
        for _ in range(CALM_MAX):
            self.turn()
            self.store.flush()
            self.note_handed()
            fetched = self.fetches.step() or self.fetches.answer()
            if not (self.writer.step() or self.writer.answer() or fetched or self.later):
                return
        raise ViolationError("the store never comes to rest")

    # ---- the end of a life

    def threaten(self) -> None:
        """Have the disk fail somewhere in this life."""
        kind = self.chance.random()
        if kind < 0.3:
            self.disk.sync_faults = self.chance.randint(1, 25)
        elif kind < 0.6:
            room = self.chance.randint(0, 4) * self.plan.segment_bytes
            self.disk.capacity = self.disk._used() + room

    def lose(self) -> None:
        """The machine or the process goes off."""
        if self.chance.random() < self.plan.power:
            self.log("power lost")
            self.disk.lose_power()
        else:
            self.log("killed")
            self.disk.boot()

    def stop_store(self) -> None:
        """Close the journal in order, as far as the disk allows."""
        self.model.stop = "maybe"
        self.journal.close(self._on_closed)
        while True:
            self.note_handed()
            if not (self.writer.step() or self.writer.answer()):
                break
        if not self.closed:
            raise ViolationError("the stop never came to its end")
        self.store.close_pages()
        if self.failed:
            self.lose()
            return
        if self.disk.fds:
            raise ViolationError(f"a stop leaves {len(self.disk.fds)} files open")
        self.model.stop = "clean"
        self.disk.boot()

    def _on_closed(self) -> None:
        self.closed = True

    # ---- what must hold whoever sends and takes

    def check_accounts(self) -> None:
        """Memory and messages of the gateway are the sum of its addresses'."""
        gateway = self.gateway
        accounts = list(gateway.addresses.values())
        for address in accounts:
            if address.paging is not None:
                address.paging.check_invariants()
        if gateway.load.memory != sum(a.size_bytes for a in accounts):
            raise ViolationError(f"{gateway.load.memory} bytes, and the accounts have others")
        if gateway.load.messages != sum(a.messages for a in accounts):
            raise ViolationError(f"{gateway.load.messages} messages, and the accounts have others")

    def check_empty(self) -> None:
        """Nothing is left of messages when all are gone."""
        gateway = self.gateway
        if gateway.load.memory or gateway.load.messages:
            raise ViolationError(
                f"{gateway.load.memory} bytes, {gateway.load.messages} messages of nothing"
            )
        zero = {"max_size_messages": 0, "max_size_bytes": 0}
        for address in gateway.addresses.values():
            values = {name: getattr(address.settings, name) for name in zero}
            if address.paging is not None and 0 not in values.values():
                raise ViolationError(f"{address.name} still pages nothing")
        names = [n for n in self.disk.listdir(PAGING) if n.endswith(".page")]
        if names:
            raise ViolationError(f"pages of nothing stay: {names}")
        self.store.close_pages()
        pages = self.writer.work._pages
        if len(self.disk.fds) > 1 + len(pages._open if pages else ()):
            raise ViolationError(f"{len(self.disk.fds)} files are open")


@contextmanager
def small(plan: Plan) -> Iterator[None]:
    """Let batches and blocks close, and blocks be forgotten, as early as the plan says."""
    wanted: list[tuple[ModuleType, str, int]] = [
        (journal_module, "BATCH_RECORDS_MAX", plan.batch_records),
        (pages_module, "BLOCK_MESSAGES_MAX", plan.block_messages),
        (paging_module, "_KEPT_BLOCKS", plan.kept_blocks),
    ]
    with ExitStack() as stack:
        for module, name, value in wanted:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield
