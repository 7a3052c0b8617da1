"""What every world of a whole core has besides a journal: the core itself, clocks, and turns.

It makes the core on what a disk holds, as the service does, and lets its time and its writer go on
a step at a time. Who sends and takes, and what is promised to them, is in the worlds built on it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

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
from storage.pages import PageReader, PageWriter
from storage.segments import Segments
from tests.simulation.clocks import Clocks, disturb
from tests.simulation.core.plan import Plan
from tests.simulation.core.record import CoreModel, Recorder
from tests.simulation.fetches import TurnFetches
from tests.simulation.lives import Lives, replaced
from tests.simulation.model import ViolationError
from tests.simulation.writer import TurnWriter

JOURNAL = "d/journal"
PAGING = "d/paging"
#: Turns that calm takes at most: what needs more goes round in circles.
CALM_MAX = 3000
EVERYTHING = 1 << 30
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


class Life(Lives):
    """See the module text. `kind` keeps the chance of one world apart from that of others.

    Attributes:
        evicted: what rings give up while a core is being made; None afterwards.
    """

    model: CoreModel
    gateway: Gateway
    store: Recorder
    fetches: TurnFetches

    def __init__(self, kind: str, seed: int | str, plan: Plan) -> None:
        super().__init__(seed, streams=(kind, f"{kind} disk"), model=CoreModel())
        self.plan = plan
        self.lives, self.power, self.faults = plan.lives, plan.power, plan.faults
        self.segment_bytes = plan.segment_bytes
        self.clock_chance = random.Random(f"{kind} clocks/{seed}")
        #: How often an event is one of the clocks'; most seeds have none, or few.
        self.clock_rate = self.clock_chance.choice([0.0, 0.0, 0.02, 0.1])
        self.clocks = Clocks()
        self.names = 0
        self.later: list[Callable[[], None]] = []
        self.evicted: list[tuple[Queue, Message]] | None = None
        self.figures: Counter[str] = Counter()

    @property
    def now(self) -> int:
        """Return what broker time has to be, in ms."""
        return self.clocks.now

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

    def tight(self) -> AbstractContextManager[None]:
        """Let batches and blocks close, and blocks be forgotten, as early as the plan says."""
        return replaced(
            [
                (journal_module, "BATCH_RECORDS_MAX", self.plan.batch_records),
                (pages_module, "BLOCK_MESSAGES_MAX", self.plan.block_messages),
                (paging_module, "_KEPT_BLOCKS", self.plan.kept_blocks),
            ]
        )

    def start(self) -> None:
        self.before_start()
        super().start()

    def threaten_start(self) -> None:
        self.may_fail_at_start(reads=0.15, faults=6, crash=0.25, calls=12)

    def open(self) -> tuple[Restored, Segments]:
        self.journal, found = open_journal(
            self.disk, JOURNAL, self.segment_bytes, self.plan.rule, paging=PAGING
        )
        return found, Segments(self.disk, JOURNAL, lambda: self.chance.randbytes(16))

    def join(self, found: Restored, segments: Segments) -> None:
        self._make(found, segments)
        self.compare(found)

    def _make(self, found: Restored, segments: Segments) -> None:
        """Build the core on what was found, as the service does."""
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
        self.listen()
        self.journal.on_consumed = self._on_consumed
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

    def durable_up_to(self, ticket: int) -> None:
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
        super()._on_failed(error)
        self.gateway.store_failed(str(error))

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

    def close_files(self) -> None:
        self.store.close_pages()

    def stop_store(self) -> bool:
        if not super().stop_store():
            return False
        self.disk.boot()
        return True

    # ---- what must hold whoever sends and takes

    def holdings(self) -> dict[str, list[Message]]:
        """Return what each queue holds after a start, once it is what was recorded."""
        held: dict[str, list[Message]] = {}
        for queue in self.gateway.queues.values():
            messages = queue.browse(0, EVERYTHING)
            ready = queue.ready_count
            messages[ready:ready] = [m for m in queue.holdings() if m not in messages[:ready]]
            self.model.compare(queue, messages)
            held[queue.name] = messages
        return held

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
