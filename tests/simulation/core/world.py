"""One seed: lives of a whole core over its own disk, each ended by a crash, a fault or a stop.

Under test are the real gateway core (broker, queues, pages, transactions, dead letters, expiry,
schedules), the real persistence and all of `storage` but its threads. The clock, chance, the disk
and the clients are the simulation's. `ledger` judges what clients see, `model` what the journal and
the pages give back.
"""

from __future__ import annotations

import random

from gateway.broker import Gateway
from gateway.model.address import RoutingType, parse_destination
from gateway.model.message import DURABLE, PAGED, SCHEDULED, Message
from gateway.model.ports import Producer
from gateway.queues.queue import Gone, Queue
from gateway.store.persistence import Restored
from storage import pages as pages_module
from tests.simulation.core.clients import Sender, Taker
from tests.simulation.core.ledger import Copy, Ledger, State, key_of
from tests.simulation.core.life import CALM_MAX, EVERYTHING, PAGING, HeardEffects, Life
from tests.simulation.core.looking import Job, Viewer
from tests.simulation.core.operations import OPERATIONS, RARE
from tests.simulation.core.plan import draw, draw_linger
from tests.simulation.core.rotting import Rotting
from tests.simulation.core.steady import Steady
from tests.simulation.lives import run_to_its_end
from tests.simulation.model import ViolationError

MULTICAST = ("topic",)


class CoreWorld(Life):
    """See the module text. `run()` raises ViolationError, or whatever the core raised."""

    def __init__(self, seed: int | str) -> None:
        plan = draw(random.Random(f"core plan/{seed}"), sorted(OPERATIONS))
        draw_linger(random.Random(f"core linger/{seed}"), plan)
        super().__init__("core", seed, plan)
        self.ledger = Ledger()
        self.serial = 0
        self.parts = 0
        self.takers: list[Taker] = []
        self.viewers: list[Viewer] = []
        self.jobs: list[Job] = []
        self.acting: Job | None = None
        self.works: list[tuple[object, list[Copy], list[tuple[Taker, list[Message]]]]] = []
        self.producers: dict[str, Producer] = {}
        self.steady = Steady(self, seed)
        self.rotten: dict[str, int] = {}
        self.uncertain = False
        self.rotting = Rotting(self, seed)

    # ---- a start

    def before_start(self) -> None:
        """Flip a bit of a page that the device holds; what that costs must be told."""
        self.rotting.mend()
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

    def made(self, gateway: Gateway) -> None:
        self.takers, self.works, self.producers = [], [], {}
        self.viewers, self.jobs = [], []
        gateway.operations.pager.on_unreadable = self._unreadable
        self.steady.begin(gateway)
        self._spy(gateway)
        self.rotting.begin()

    def pass_time(self, by_ms: int) -> None:
        self.steady.go_on(by_ms / 1000)
        super().pass_time(by_ms)

    def settle(self) -> None:
        super().settle()
        self.steady.end_linger(super().settle)

    def compare(self, found: Restored) -> None:
        """Judge what the new core holds before anything else happens to it."""
        if self.plan.rot:
            self._bury(found)
        evicted, self.evicted = self.evicted or [], None
        held = self.holdings()
        for queue, message in evicted:
            held[queue.name].append(message)
        self.ledger.restart(held, self.found_up_to, clean=found.clean, volatile=set())
        self.ledger.reported = self.journal.synced
        for queue, message in evicted:
            copy = self.ledger.find(queue.name, message)
            self.ledger.gone(copy, "replaced")
            copy.gone_ticket = self.store.ticket
        self.figures["clean"] += int(found.clean)
        self.check()

    # ---- what the journal tells

    def on_durable(self, ticket: int) -> None:
        self.ledger.reported = ticket

    def on_consumed(self, tickets: list[int]) -> None:
        for copy in self.ledger.copies.values():
            if copy.ticket in tickets and copy.lasting and copy.state is not State.GONE:
                raise ViolationError(f"told as consumed, and still there: {copy}")

    # ---- what queues tell

    def _spy(self, gateway: Gateway) -> None:
        """Hear of each message that leaves a queue for good, before the gateway does."""
        told = gateway.operations.effects.gone

        def gone(queue: Queue, messages: list[Message], why: Gone, size: int) -> int:
            if self.evicted is not None:
                self.evicted += [(queue, message) for message in messages]
                return told(queue, messages, why, size)
            copies = [self._judge_gone(queue, message, why) for message in messages]
            moves = self._moves(queue, copies, why)
            lost = gateway.figures.lost_dead_letters
            ticket = told(queue, messages, why, size)
            lost = gateway.figures.lost_dead_letters - lost
            for copy in copies:
                copy.gone_ticket = self.store.ticket
                if copy.moved is not None:
                    copy.moved.ticket = self.store.ticket
            if moves and lost:
                raise ViolationError(f"{lost} dead letters lost: {copies}")
            return ticket

        heard = HeardEffects(gateway.operations.effects, gone)
        gateway.directory.effects = heard  # type: ignore[assignment]

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
                now=self.gateway.clock.at_ms,
                wants=taker.wants,
                barred=taker.barred,
                paged=queue.backlog is not None,
                unstored=stored is not None
                and bool(message.flags & DURABLE)
                and message.seq not in stored,
                always=queue.serialized,
                storing=storing,
                latest=self.clocks.highest,
            )
        self.log(f"      {taker.queue} delivers {[m.seq for m in messages]}")

    # ---- settling

    def release(self, taker: Taker, messages: list[Message], **how: bool) -> None:
        """Give messages back."""
        failed = how.get("failed", False)
        due = 0
        if how.get("delayed") and self.plan.redelivery_delay:
            due = self.gateway.now_ms() + self.plan.redelivery_delay
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
        delay = self.plan.redelivery_delay
        due = self.gateway.now_ms() + delay if delay else 0
        for taker, messages in work[2]:
            for message in messages:
                taker.bound.remove(message)
                self.ledger.back(self.ledger.find(taker.queue, message), failed=True, due=due)
        work[0].rollback()

    # ---- a life

    def begin_life(self) -> tuple[int, dict[str, float]]:
        steps = self.chance.choice(self.plan.steps)
        self.may_fail(crash=0.6, calls=steps * 2, syncs=0.3, full=0.6)
        return steps, self.plan.weights

    def act(self, name: str) -> None:
        self.disturb_clocks()
        self.log(f"  {name}")
        (OPERATIONS.get(name) or RARE[name])(self)
        self.rotting.step()
        self.steady.step()

    def between(self, number: int) -> None:
        if number % 5 == 0:
            self.turn()
            self.check()

    def lose(self) -> None:
        """See Life."""
        self.rotting.drop()
        super().lose()

    def close(self) -> None:
        """Stop in order, as far as the disk allows."""
        self.log("close")
        self.rotting.drop()
        for one in [*self.takers, *self.viewers]:
            one.close()
        for work in list(self.works):
            self.roll_back(work)
        self.settle()
        if not self.failed:
            self.check()
        self.stop_store()

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
            if queue.stores_first and not (queue.serialized or gateway.pressure.lag.waits):
                raise ViolationError(f"{queue.name} waits for a disk that does not lag")
            if queue.durable:
                self._check_recorded(queue)
        self.check_accounts()

    def check_fed(self) -> None:
        """At rest nobody with room waits for what is there, unless a limit of reading says so."""
        for taker in self.takers:
            if taker.draining and not taker.selector:
                raise ViolationError(f"a drain of {taker.queue} has no end")
            self.check_taker(taker, stored=False)

    def check_taker(self, taker: Taker, *, stored: bool) -> None:
        """Nothing waits for a consumer with room, but for limits; `stored`: of what is on disk."""
        queue = self.gateway.queues[taker.queue]
        settings = self.gateway.addresses[queue.address].settings
        limit, size = settings.max_read_page_messages, settings.max_read_bytes
        held = [m for t in self.takers if t.queue == taker.queue for m in t.held + t.bound]
        # Who takes all has to take what waits first; what is not due yet is in the way of all.
        selects = bool(taker.selector)
        held += [m for m in queue.holdings() if m.flags & SCHEDULED or not selects]
        if taker.left <= 0 or queue.paused or 0 < limit <= len(held):
            return
        if held and (0 < size <= 4096 or (size <= 0 and limit <= 0)):
            return  # bytes are estimated, and the older rule is one of bytes
        storing = {key_of(message) for message in queue.storing()}
        for copy in self.ledger.live[taker.queue].values():
            late = 0 < copy.expires <= self.now
            if copy.state is not State.WAITING or copy.due > self.now or late:
                continue
            known = self.ledger.is_stored(copy) and copy.key not in storing
            if stored and (copy.floating or not known):
                continue
            if taker.wants(copy.key) and copy.key not in taker.barred:
                raise ViolationError(f"a consumer with room waits in vain for {copy}")

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

    def finish(self) -> None:
        """Nothing fails any more: take all, and nothing may stay anywhere."""
        self.clocks.repair()
        for queue in list(self.gateway.queues.values()):
            if queue.paused:
                self.gateway.administration.update_queue(queue.name, paused=False)
        self.rotting.calm()
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
        self.steady.check_keeps_up()
        self.check_empty()

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


def run_core_seed(seed: int | str) -> CoreWorld:
    """Run one seed; raises what it found, with the last events as a note."""
    return run_to_its_end(CoreWorld(seed))
