"""One seed: lives of a whole core over its own disk, each ended by a crash, a fault or a stop.

Under test are the real gateway core (broker, queues, pages, transactions, dead letters, expiry,
schedules), the real persistence and all of `storage` but its threads. The clock, chance, the disk
and the clients are the simulation's. `ledger` judges what clients see, `model` what the journal and
the pages give back.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

from gateway.addresses.match import SettingsTable
from gateway.broker import Gateway
from gateway.broker.lag import Lag
from gateway.model.address import RoutingType, parse_destination
from gateway.model.message import DURABLE, PAGED, SCHEDULED, Message
from gateway.model.ports import Producer
from gateway.model.turn import Turn
from gateway.paging import paging as paging_module
from gateway.persistence import Restored, open_journal
from gateway.queues.queue import Gone, Queue
from storage import journal as journal_module
from storage import pages as pages_module
from storage.errors import StorageError
from storage.journal import Journal
from storage.pages import PageReader, PageWriter
from storage.segments import Segments
from tests.simulation.core.clients import Sender, Taker
from tests.simulation.core.ledger import Copy, Ledger, State, key_of
from tests.simulation.core.looking import Job, Viewer
from tests.simulation.core.operations import OPERATIONS
from tests.simulation.core.plan import Plan, draw
from tests.simulation.core.record import CoreModel, Recorder
from tests.simulation.disk import Crash, SimDisk
from tests.simulation.fetches import TurnFetches
from tests.simulation.model import ViolationError
from tests.simulation.writer import TurnWriter

JOURNAL = "d/journal"
PAGING = "d/paging"
EVERYTHING = 1 << 30
#: Turns that calm takes at most: what needs more goes round in circles.
CALM_MAX = 3000
FIRST_ID = 100
MULTICAST = ("topic",)


class CoreWorld:
    """See the module text. `run()` raises ViolationError, or whatever the core raised."""

    gateway: Gateway
    journal: Journal
    store: Recorder
    writer: TurnWriter

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.chance = random.Random(f"core/{seed}")
        self.disk = SimDisk(random.Random(f"core disk/{seed}"))
        self.plan: Plan = draw(random.Random(f"core plan/{seed}"), sorted(OPERATIONS))
        self.ledger = Ledger()
        self.model = CoreModel()
        self.now = 1_000_000
        self.serial = 0
        self.names = 0
        self.parts = 0
        self.takers: list[Taker] = []
        self.viewers: list[Viewer] = []
        self.jobs: list[Job] = []
        self.acting: Job | None = None
        self.works: list[tuple[object, list[Copy], list[tuple[Taker, list[Message]]]]] = []
        self.producers: dict[str, Producer] = {}
        self.waiting: list[tuple[int, list[Copy]]] = []
        self.later: list[Callable[[], None]] = []
        self.alarm: int | None = None
        # What a slow disk is judged by: it goes on a little with all that happens.
        self.steady = random.Random(f"core steady/{seed}")
        self.seconds = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.evicted: list[tuple[Queue, Message]] | None = None
        self.failed = self.closed = False
        self.rotten: dict[str, int] = {}
        self.uncertain = False
        self.figures: Counter[str] = Counter()

    def log(self, text: str) -> None:
        self.disk.log.append(text)

    # ---- a run

    def run(self) -> None:
        with small(self.plan):
            for life in range(self.plan.lives):
                self.log(f"life {life}")
                self.start()
                self.live()
            self.log("last life")
            self.start()
            self.calm()

    def start(self) -> None:
        """Start until it goes well; crashes and faults may come in between."""
        attempts = 0
        self._rot()
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
                self._lose()
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
        self._compare(found)

    def _rot(self) -> None:
        """Flip a bit of a page that the device holds; what that costs must be told."""
        self.rotten = {}
        names = [n for n in self.disk.listdir(PAGING) if n.endswith(".page")]
        if not self.plan.rot or not names or self.chance.random() < 0.3:
            return
        path = f"{PAGING}/{self.chance.choice(names)}"
        size = len(self.disk.nodes[self.disk.names[path]].device)
        if size > pages_module.PAGE_HEADER_BYTES:
            offset = self.chance.randrange(pages_module.PAGE_HEADER_BYTES, size)
            self.log(f"byte {offset} of {path} rots")
            self.disk.flip(path, offset, self.chance.randrange(8))

    def _bury(self, found: Restored) -> None:
        """Compare what was told to be lost with what is not there any more; forget it."""
        # Once it was not certain what was lost, another start may come to know more.
        self.uncertain |= any(page.unknown for pages in found.pages for page in pages.pages)
        for queue in self.gateway.queues.values():
            before = self.model.durable.paged.get(queue.queue_id, {})
            there = {m.seq for m in queue.browse(0, EVERYTHING)} if before else set()
            there |= {m.seq for q, m in self.evicted or [] if q is queue}
            gone = {seq: kept for seq, kept in before.items() if seq not in there}
            told = self.rotten.pop(queue.name, 0)
            if told != len(gone) and not self.uncertain:
                raise ViolationError(f"{len(gone)} of {queue.name} are lost, {told} were told")
            for seq, kept in gone.items():
                if self.model.now.paged[queue.queue_id].pop(seq, None) is not None:
                    # Nothing was recorded of it; else it is told again until that is durable.
                    self.model.durable.paged[queue.queue_id].pop(seq, None)
                self.ledger.bury(queue.name, key_of(message_of(kept)))
                self.figures["lost"] += 1
        if self.rotten and not self.uncertain:
            raise ViolationError(f"lost and of no queue: {self.rotten}")

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
        self.alarm = None
        self.timers = []
        self.takers, self.works, self.producers, self.waiting = [], [], {}, []
        self.viewers, self.jobs = [], []
        self.reader = PageReader(self.disk, PAGING)
        self.store = Recorder(self.journal, self.reader, self.model)
        self.store.fetches = self.fetches = TurnFetches(PageReader(self.disk, PAGING))
        self.gateway = gateway = Gateway(
            turn=Turn(self.later.append),
            settings=SettingsTable(tuple(self.plan.entries)),
            store=self.store,
            limits=self.plan.limits,
            now_ms=lambda: self.now,
            make_name=self._make_name,
        )
        gateway.timetable.alarm = self._set_alarm
        gateway.pager.on_unreadable = self._unreadable
        gateway.pager.on_mode = self._mode
        gateway.directory.serialized = frozenset(self.plan.serialized)
        self._watch_lag(gateway)
        self._spy(gateway)
        self.journal.cancels = self.plan.cancels
        self.journal.on_durable = self._on_durable
        self.journal.on_consumed = self._on_consumed
        self.journal.on_failed = self._on_failed
        self.store.snapshot = lambda: [
            *gateway.directory.snapshot(),
            *gateway.pager.definitions(),
        ]
        self.evicted = []
        directory = gateway.directory
        for address in found.addresses:
            directory.restore_address(address)
        for definition in found.queues:
            queue = directory.restore_queue(definition)
            queue.restore(found.messages.get(definition.queue_id, []))
            queue.next_seq = max(queue.next_seq, found.highest.get(definition.queue_id, 0) + 1)
            gateway.restored(queue)
        gateway.recovered()
        directory.next_id = max(found.next_id, FIRST_ID)
        gateway.pager.restore(found.pages)
        pages = PageWriter(self.disk, PAGING, lambda: self.chance.randbytes(16))
        self.writer = TurnWriter(self.journal, segments, self.plan.segment_bytes, pages=pages)
        self.journal.start(self.writer)

    def _compare(self, found: Restored) -> None:
        """Judge what the new core holds before anything else happens to it."""
        if self.plan.rot:
            self._bury(found)
        evicted, self.evicted = self.evicted or [], None
        held: dict[str, list[Message]] = {}
        for queue in self.gateway.queues.values():
            messages = queue.browse(0, EVERYTHING)
            ready = queue.ready_count
            messages[ready:ready] = [m for m in queue.holdings() if m not in messages[:ready]]
            self.model.compare(queue, messages)
            held[queue.name] = messages + [m for q, m in evicted if q is queue]
        self.ledger.restart(held, self.found_up_to, clean=found.clean, volatile=set())
        self.ledger.reported = self.journal.synced
        for queue, message in evicted:
            copy = self.ledger.find(queue.name, message)
            self.ledger.gone(copy, "replaced")
            copy.gone_ticket = self.store.ticket
        self.figures["clean"] += int(found.clean)
        self.check()

    def _make_name(self) -> str:
        self.names += 1
        return f"temporary-{self.names}"

    def _set_alarm(self, at_ms: int) -> None:
        self.alarm = at_ms if self.alarm is None else min(self.alarm, at_ms)

    def _watch_lag(self, gateway: Gateway) -> None:
        """Have dispatch wait for a disk that lags, where the plan says so."""

        def changed(lag: Lag) -> None:
            self.log(f"      dispatch {'waits' if lag.waits else 'does not wait'} for the disk")
            self.figures["stored first" if lag.waits else "concurrent again"] += 1

        if self.plan.lag is not None:
            limit, calm = self.plan.lag
            gateway.lag.on_change = changed
            gateway.lag.watch(limit, now=lambda: self.seconds, later=self._call_later, calm=calm)
        self.ledger.lags = lambda: gateway.lag.waits

    def _call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.timers.append((self.seconds + seconds, call))

    def go_on(self, seconds: float) -> None:
        """Let the steady clock go on, and call back whom that was promised."""
        self.seconds += seconds
        due = [call for at, call in self.timers if at <= self.seconds]
        self.timers = [timer for timer in self.timers if timer[0] > self.seconds]
        for call in due:
            call()

    def _mode(self, address: str, paging: bool) -> None:
        self.log(f"      {address} {'pages' if paging else 'pages no more'}")
        self.figures["paged" if paging else "pages ended"] += 1

    # ---- what the journal tells

    def _on_durable(self, ticket: int) -> None:
        self.log(f"      durable up to {ticket}")
        if self.failed:
            raise ViolationError(f"ticket {ticket} reported after the store had failed")
        self.model.report(ticket)
        self.ledger.reported = ticket
        held = self.gateway.holds.held
        self.gateway.durable_up_to(ticket)
        self.figures["held"] += self.gateway.holds.held - held

    def _on_consumed(self, tickets: list[int]) -> None:
        self.log(f"      consumed {tickets}")
        self.figures["consumed before they were stored"] += len(tickets)
        if self.failed:
            raise ViolationError(f"tickets {tickets} told after the store had failed")
        for copy in self.ledger.copies.values():
            if copy.ticket in tickets and copy.state is not State.GONE:
                raise ViolationError(f"told as consumed, and still there: {copy}")
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
        busy = self.journal._busy
        if busy is not None:
            self.model.hand(busy)

    # ---- what queues tell

    def _spy(self, gateway: Gateway) -> None:
        """Hear of each message that leaves a queue for good, before the gateway does."""
        told = gateway.gone

        def gone(queue: Queue, messages: list[Message], why: Gone, size: int) -> None:
            if self.evicted is not None:
                self.evicted += [(queue, message) for message in messages]
                told(queue, messages, why, size)
                return
            copies = [self._judge_gone(queue, message, why) for message in messages]
            moves = self._moves(queue, copies, why)
            lost = gateway.figures.lost_dead_letters
            told(queue, messages, why, size)
            lost = gateway.figures.lost_dead_letters - lost
            for copy in copies:
                copy.gone_ticket = self.store.ticket
                if copy.moved is not None:
                    copy.moved.ticket = self.store.ticket
            if moves and lost:
                raise ViolationError(f"{lost} dead letters lost: {copies}")

        gateway.gone = gone  # type: ignore[method-assign]

    def _judge_gone(self, queue: Queue, message: Message, why: Gone) -> Copy:
        copy = self.ledger.find(queue.name, message)
        legal = {
            Gone.ACKNOWLEDGED: copy.intent == "acknowledged",
            Gone.EXPIRED: 0 < copy.expires <= self.now and copy.state is State.WAITING,
            Gone.KILLED: copy.intent == "rejected" or 0 < queue.max_attempts <= copy.attempts,
            Gone.REPLACED: queue.ring_size >= 0 and copy.state is State.WAITING,
            Gone.REMOVED: copy.intent == "removed" or queue.deleted,
        }[why]
        if self.acting is not None:
            legal = self.acting.takes(queue.name, copy, why)
        if not legal:
            raise ViolationError(f"gone as {why.value} without a reason: {copy}")
        self.figures[why.value] += 1
        return copy

    def _moves(self, queue: Queue, copies: list[Copy], why: Gone) -> bool:
        """Note where these copies go from here; returns whether they are moved."""
        target = {Gone.KILLED: "DLQ", Gone.EXPIRED: "ExpiryQueue"}.get(why, "")
        moved = bool(target) and target != queue.address
        for copy in copies:
            self.ledger.gone(copy, "moved" if moved else why.value)
            if moved:
                key = copy.key if b"@" in copy.key else copy.key + b"@" + queue.name.encode()
                copy.moved = self.ledger.arrive(
                    target, key, copy.priority, durable=copy.durable, lasting=copy.durable
                )
        return moved

    def _unreadable(self, queue: str, count: int, why: str) -> None:
        self.log(f"      {count} of {queue} cannot be read: {why}")
        if self.evicted is not None and self.plan.rot:
            self.rotten[queue] = self.rotten.get(queue, 0) + count
            return
        raise ViolationError(f"{count} of {queue} cannot be read: {why}")

    def delivered(self, taker: Taker, messages: list[Message]) -> None:
        """A consumer got these."""
        queue = self.gateway.queues[taker.queue]
        storing = [key_of(message) for message in queue.storing()]
        asks = queue.serialized or (queue.durable and self.plan.lag is not None)
        stored = self.model.durable.of(queue.queue_id) if asks else None
        for message in messages:
            self.figures["read back"] += bool(message.flags & PAGED)
            self.ledger.deliver(
                taker.queue,
                message,
                taker,
                now=self.gateway._now_ms,
                wants=taker.wants,
                barred=taker.barred,
                paged=queue.backlog is not None,
                unstored=stored is not None
                and bool(message.flags & DURABLE)
                and message.seq not in stored,
                always=queue.serialized,
                storing=storing,
            )
        self.log(f"      {taker.queue} delivers {[m.seq for m in messages]}")

    # ---- settling

    def release(self, taker: Taker, messages: list[Message], **how: bool) -> None:
        """Give messages back."""
        failed = how.get("failed", False)
        due = 0
        if how.get("delayed") and self.plan.redelivery_delay:
            due = self.now + self.plan.redelivery_delay
        for message in messages:
            copy = self.ledger.find(taker.queue, message)
            self.ledger.back(copy, failed=failed, due=due)
            if how.get("undeliverable_here"):
                taker.barred.add(copy.key)
        taker.hold.release(messages, **how)

    def drop_work(self, taker: Taker) -> None:
        """A consumer leaves: what its transactions hold is rolled back before."""
        for work in [w for w in self.works if any(t is taker for t, _ in w[2])]:
            self.roll_back(work)

    def roll_back(self, work: tuple) -> None:
        self.works.remove(work)
        due = self.now + self.plan.redelivery_delay if self.plan.redelivery_delay else 0
        for taker, messages in work[2]:
            for message in messages:
                taker.bound.remove(message)
                self.ledger.back(self.ledger.find(taker.queue, message), failed=True, due=due)
        work[0].rollback()

    # ---- time and the disk

    def turn(self) -> None:
        """Let turns end until nothing waits for one."""
        while self.later:
            waiting, self.later[:] = list(self.later), []
            for action in waiting:
                action()

    def pass_time(self, by_ms: int) -> None:
        end = self.now + by_ms
        while self.alarm is not None and self.alarm <= end:
            self.now, self.alarm = max(self.now, self.alarm), None
            self.gateway.on_time()
            self.turn()
        self.now = end
        self.go_on(by_ms / 1000)
        self.gateway.on_time()
        self.turn()

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

    # ---- a life

    def live(self) -> None:
        """Work, until one of the ends comes."""
        chance, plan = self.chance, self.plan
        steps = chance.choice(plan.steps)
        if chance.random() < 0.6:
            self.disk.crash_at = self.disk.calls + chance.randint(1, max(10, steps * 2))
        if plan.faults:
            self._threaten()
        names, weights = list(plan.weights), list(plan.weights.values())
        try:
            for number, name in enumerate(chance.choices(names, weights, k=steps)):
                self.log(f"  {name}")
                OPERATIONS[name](self)
                self.go_on(self.steady.choice((0, 0.001, 0.01, 0.05)))
                self.note_handed()
                if self.failed:
                    break
                if number % 5 == 0:
                    self.turn()
                    self.check()
            self._end()
        except Crash:
            self.note_handed()
            self._lose()
        self.disk.capacity = None

    def _threaten(self) -> None:
        kind = self.chance.random()
        if kind < 0.3:
            self.disk.sync_faults = self.chance.randint(1, 25)
        elif kind < 0.6:
            room = self.chance.randint(0, 4) * self.plan.segment_bytes
            self.disk.capacity = self.disk._used() + room

    def _end(self) -> None:
        if self.failed:
            self.model.stop = "unclean"
            self._lose()
        elif self.chance.random() < 0.4:
            self.close()
        else:
            self._lose()

    def _lose(self) -> None:
        if self.chance.random() < self.plan.power:
            self.log("power lost")
            self.disk.lose_power()
        else:
            self.log("killed")
            self.disk.boot()

    def close(self) -> None:
        """Stop in order, as far as the disk allows."""
        self.log("close")
        for one in [*self.takers, *self.viewers]:
            one.close()
        for work in list(self.works):
            self.roll_back(work)
        self.settle()
        if not self.failed:
            self.check()
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
            self._lose()
            return
        if self.disk.fds:
            raise ViolationError(f"a stop leaves {len(self.disk.fds)} files open")
        self.model.stop = "clean"
        self.disk.boot()

    def _on_closed(self) -> None:
        self.closed = True

    # ---- checks

    def check(self) -> None:
        """Compare all queues with the ledger, and the ledger with what is recorded."""
        gateway = self.gateway
        held: dict[str, list[Message]] = {}
        for taker in self.takers:
            held.setdefault(taker.queue, []).extend(taker.held + taker.bound)
        for queue in gateway.queues.values():
            queue.check_invariants()
            mine = held.get(queue.name, [])
            if len(mine) != queue.delivering:
                raise ViolationError(
                    f"{queue.name}: {queue.delivering} delivering, not {len(mine)}"
                )
            memory = [*queue.holdings(), *queue.storing(), *mine]
            if len(memory) + queue.paged_count != queue.message_count:
                raise ViolationError(f"{queue.name}: {queue.message_count} is not the sum")
            self.ledger.check(queue.name, memory, queue.message_count)
            if queue.stores_first and not (queue.serialized or gateway.lag.waits):
                raise ViolationError(f"{queue.name} waits for a disk that does not lag")
            if queue.durable:
                self._check_recorded(queue)
        for address in gateway.addresses.values():
            if address.paging is not None:
                address.paging.check_invariants()
        accounts = list(gateway.addresses.values())
        if gateway.memory != sum(a.size_bytes for a in accounts):
            raise ViolationError(f"{gateway.memory} bytes, and the accounts have others")
        if gateway.messages != sum(a.messages for a in accounts):
            raise ViolationError(f"{gateway.messages} messages, and the accounts have others")

    def check_fed(self) -> None:
        """At rest nobody with room waits for what is there, unless a limit of reading says so."""
        for taker in self.takers:
            if taker.draining and not taker.selector:
                raise ViolationError(f"a drain of {taker.queue} has no end")
            queue = self.gateway.queues[taker.queue]
            settings = self.gateway.addresses[queue.address].settings
            limit, size = settings.max_read_page_messages, settings.max_read_bytes
            held = [m for t in self.takers if t.queue == taker.queue for m in t.held + t.bound]
            # Who takes all has to take what waits first; what is not due yet is in the way of all.
            selects = bool(taker.selector)
            held += [m for m in queue.holdings() if m.flags & SCHEDULED or not selects]
            if taker.left <= 0 or queue.paused or 0 < limit <= len(held):
                continue
            if held and (0 < size <= 4096 or (size <= 0 and limit <= 0)):
                continue  # bytes are estimated, and the older rule is one of bytes
            for copy in self.ledger.live[taker.queue].values():
                late = 0 < copy.expires <= self.now
                if copy.state is not State.WAITING or copy.due > self.now or late:
                    continue
                if taker.wants(copy.key) and copy.key not in taker.barred:
                    raise ViolationError(f"a consumer with room waits in vain for {copy}")

    def check_keeps_up(self) -> None:
        """At rest the disk does not lag for long."""
        for _ in range(3):
            self.go_on(0.1)
        if self.gateway.lag.waits or self.timers:
            raise ViolationError("dispatch waits for a disk that has nothing to do")

    def _check_recorded(self, queue: Queue) -> None:
        """What would be found is what is there: a copy lives exactly while its record does."""
        paged = self.model.now.paged.get(queue.queue_id, {})
        stored = self.model.now.queues.get(queue.queue_id, {})
        if paged.keys() & stored.keys():
            raise ViolationError(f"{queue.name}: in the journal and on a page")
        recorded = {key_of(message_of(kept)) for part in (paged, stored) for kept in part.values()}
        live = self.ledger.live[queue.name]
        if not recorded <= live.keys():
            raise ViolationError(f"{queue.name}: recorded and gone {recorded - live.keys()}")
        missing = [c for k, c in live.items() if c.lasting and k not in recorded]
        if missing:
            raise ViolationError(f"{queue.name}: there and not recorded {missing}")

    def calm(self) -> None:
        """Nothing fails any more: take all, and nothing may stay anywhere."""
        for queue in list(self.gateway.queues.values()):
            if queue.paused:
                self.gateway.directory.update_queue(queue.name, paused=False)
        for _ in range(CALM_MAX):
            self.settle()
            queues = [q for q in self.gateway.queues.values() if q.message_count]
            if not queues:
                break
            for queue in queues:
                if not queue.consumer_count:
                    self.attach(queue.name)
            for taker in list(self.takers):
                if taker.left < EVERYTHING // 2:  # what they settle must be enough to go on
                    taker.left = EVERYTHING
                    taker.hold.ready()
            self.settle()
            for taker in list(self.takers):
                self.acknowledge(taker, len(taker.held))
            self.settle()
            self.pass_time(100)
        else:
            raise ViolationError(f"never empty: {self.ledger.live}")
        for one in [*self.takers, *self.viewers]:
            one.close()
        self.settle()
        self.check()
        self._check_empty()

    def _check_empty(self) -> None:
        gateway = self.gateway
        self.check_keeps_up()
        if gateway.memory or gateway.messages:
            raise ViolationError(f"{gateway.memory} bytes, {gateway.messages} messages of nothing")
        zero = {"max_size_messages": 0, "max_size_bytes": 0}
        for address in gateway.addresses.values():
            values = {name: getattr(address.settings, name) for name in zero}
            if address.paging is not None and 0 not in values.values():
                raise ViolationError(f"{address.name} still pages nothing")
        names = [n for n in self.disk.listdir(PAGING) if n.endswith(".page")]
        if names:
            raise ViolationError(f"pages of nothing stay: {names}")
        self.store.close_pages()
        if len(self.disk.fds) > 1 + len(
            self.writer.work._pages._open if self.writer.work._pages else ()
        ):
            raise ViolationError(f"{len(self.disk.fds)} files are open")

    # ---- what operations share

    def attach(self, queue: str, selector: str = "", **how: object) -> Taker:
        """Attach a consumer to a queue that is there."""
        found = self.gateway.queues[queue]
        taker = Taker(self, queue, selector)
        destination = parse_destination(f"{found.address}::{queue}")
        taker.hold = self.gateway.subscribe(destination, None, taker, selector=selector, **how)
        self.takers.append(taker)
        return taker

    def producer(self, address: str) -> Producer:
        """Return the producer of an address; it is kept for its life."""
        if address not in self.producers:
            routing = RoutingType.MULTICAST if address in MULTICAST else RoutingType.ANYCAST
            self.producers[address] = self.gateway.open_producer(
                parse_destination(address), routing, Sender()
            )
        return self.producers[address]

    def acknowledge(self, taker: Taker, count: int) -> None:
        messages = taker.take_out(count)
        copies = [self.ledger.find(taker.queue, m) for m in messages]
        for copy in copies:
            copy.intent = "acknowledged"
        ticket = taker.hold.acknowledge(messages)
        self.figures["needed no disk"] += sum(not ticket and copy.lasting for copy in copies)
        for copy in copies:
            copy.gone_ticket = ticket


def message_of(kept: object) -> Message:
    """Return a message that can be named."""
    return Message(kept.body, 0, kept.flags)  # type: ignore[attr-defined]


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


def run_core_seed(seed: int | str) -> CoreWorld:
    """Run one seed; raises what it found, with the last events as a note."""
    world = CoreWorld(seed)
    try:
        world.run()
    except BaseException as error:
        error.add_note(f"seed {seed}; SEED={seed} replays it. The last events:")
        error.add_note("\n".join(world.disk.log))
        raise
    return world
