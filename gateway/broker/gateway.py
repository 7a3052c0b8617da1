"""The gateway's heart: addresses, queues, and what follows when they change.

Implements the Broker port. Single-threaded. Time, names and the end of the turn are passed in; it
knows no reactor and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.addresses.match import SettingsTable
from gateway.addresses.settings import FullPolicy
from gateway.broker.address import Address
from gateway.broker.admission import Usage, full_because, room_again
from gateway.broker.branches import Branches
from gateway.broker.conduct import check_owner, too_many_consumers
from gateway.broker.copies import Recovering
from gateway.broker.directory import Directory
from gateway.broker.disk_gate import DiskGate, Relay
from gateway.broker.duplicates import Duplicates
from gateway.broker.errand import refilter
from gateway.broker.figures import Figures, Limits, NoStreams
from gateway.broker.forecast import Forecast
from gateway.broker.fullness import Fullness
from gateway.broker.holds import Holds
from gateway.broker.lag import Lag
from gateway.broker.listeners import Listeners
from gateway.broker.moves import Mover
from gateway.broker.notices import Notices
from gateway.broker.pager import Pager, uses_pages
from gateway.broker.parts import Parts
from gateway.broker.ports import Store, Streams
from gateway.broker.producer import OVERHEAD_BYTES, Route
from gateway.broker.reaper import Reaper
from gateway.broker.redelivery import redelivery_delay
from gateway.broker.retro import Retro
from gateway.broker.shares import joined_ranges, without_copies
from gateway.broker.slow import SlowConsumers
from gateway.broker.stamped import route_kind
from gateway.broker.store_gate import StoreGate
from gateway.broker.subscription import Hold, LocalHold, Look, NotFrom
from gateway.broker.timetable import Timetable
from gateway.broker.transactions import Work
from gateway.broker.visible import Visible
from gateway.model.address import Destination, RoutingType, check_not_ours
from gateway.model.errors import Code, Refusal
from gateway.model.message import DURABLE, PAGED, SHARED, Message
from gateway.model.ports import Consumer, DurableListener, ProducerOwner
from gateway.model.turn import Turn
from gateway.queues.queue import Gone, Queue
from gateway.queues.scheduled import NEVER
from gateway.selectors import compile_selector

#: Messages a queue hands out before the others have their turn: about 2 ms of work.
DISPATCH_RUN = 2048
#: Messages all queues together hand out in one reactor turn: bounds a turn to some tens of
#: milliseconds.
DISPATCH_TURN = 16384


class Gateway(Parts):
    """See the module text."""

    __slots__ = ()

    def __init__(
        self,
        *,
        turn: Turn,
        settings: SettingsTable,
        store: Store,
        limits: Limits,
        now_ms: Callable[[], int],
        make_name: Callable[[], str],
    ) -> None:
        self.turn = turn
        self.store = store
        self.settings = settings
        self.branches = Branches(self)
        self.retro = Retro(self)
        self.forecast = Forecast(self)
        self.directory = Directory(self, settings, store)
        self.directory.refilter = lambda *which: refilter(self, *which)
        self.streams: Streams = NoStreams()  # type: ignore[assignment]
        self.memory = self.messages = self.received = 0
        self.memory_max = limits.global_max_size if limits.global_max_size >= 0 else 1 << 62
        self.messages_max = limits.global_max_messages
        self.durable = 0  # the highest ticket on disk
        self.duplicates = Duplicates(self, self.directory.take_id)
        self.figures = Figures()
        self.disk = DiskGate(self)
        self.busy = StoreGate(self)
        self.holds = Holds(self)
        self.lag = Lag(self)
        self.reaper = Reaper(self.directory, now_ms, self.branches.diverted)
        self.visible = Visible(self)
        self.slow = SlowConsumers(self, Notices(self).consumer_slow)
        self._clock_ms = now_ms
        self._now_ms = now_ms()
        self._make_name = make_name
        self.touched: list[Queue] = []
        self.listeners = Listeners(self)
        self._blocked: dict[str, Address] = {}
        self.mover = Mover(self)
        self.timetable = Timetable()
        self.chance: Callable[[], float] = lambda: 0.5  # until somebody brings a source of it
        self.pager = Pager(self)
        self.fullness = Fullness(self)
        self._recovering = Recovering()
        self.failure: Refusal | None = None
        turn.begin, turn.dispatch = self._read_clock, self.dispatch
        turn.store = self.busy.flush

    # ---- what others read

    @property
    def queues(self) -> dict[str, Queue]:
        return self.directory.queues

    @property
    def addresses(self) -> dict[str, Address]:
        return self.directory.addresses

    def now_ms(self) -> int:
        """Return broker time; read once a turn."""
        if not self.turn.begun:
            self._read_clock()
        return self._now_ms

    def _read_clock(self) -> None:
        self._now_ms = self._clock_ms()

    # ---- turn

    def touch(self, queue: Queue) -> None:
        """See to it that the queue is dispatched at the end of this turn."""
        if not queue.touched:
            queue.touched = True
            self.touched.append(queue)
            self.turn.need_end()

    def dispatch(self) -> None:
        """Let touched queues hand out; bounded, the rest goes on in the next turn."""
        budget = DISPATCH_TURN
        again: list[Queue] = []
        # More than once: what expires while one queue hands out may go to another.
        while self.touched:
            touched, self.touched = self.touched, []
            for queue in touched:
                queue.touched = False
                if budget <= 0:
                    again.append(queue)
                    continue
                went = queue.dispatch(self._now_ms, DISPATCH_RUN)
                if queue.backlog is not None:
                    went += self.pager.feed(queue, self._now_ms, DISPATCH_RUN - went)
                budget -= max(went, 1)  # what expires here may expire there, and back again
                self.figures.delivered += went
                if went >= DISPATCH_RUN or queue.searching:
                    again.append(queue)
        if again:
            self.turn.after(lambda: self._touch_again(again))

    def _touch_again(self, queues: list[Queue]) -> None:
        for queue in queues:
            self.touch(queue)

    def synced_below(self, queue: Queue) -> int:
        """See queues.Effects."""
        return self.visible.below(queue)

    def wake(self, queue: Queue, at_ms: int) -> None:
        """See queues.Effects."""
        self.timetable.wake(queue, at_ms)

    def on_time(self) -> None:
        """Dispatch the queues whose time has come; the timetable's alarm calls it."""
        self._now_ms = self._clock_ms()
        for queue in self.timetable.take(self._now_ms):
            if self._now_ms < queue.next_time < NEVER:
                self.wake(queue, queue.next_time)  # its plan was for what is gone
            self.touch(queue)

    def dispatch_queue(self, queue: Queue) -> None:
        """Hand out at once what consumers have room for."""
        self._now_ms = self._clock_ms()
        self.figures.delivered += queue.dispatch(self._now_ms, DISPATCH_TURN)
        if queue.backlog is not None:
            went = self.pager.feed(queue, self._now_ms, DISPATCH_TURN)
            self.figures.delivered += went
        if queue.searching:
            self.touch(queue)

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for the disk."""
        return self.listeners.waiting or self.holds.waiting or self.visible.waiting

    # ---- durability

    def await_durable(self, listener: DurableListener) -> None:
        """See the Broker port."""
        self.listeners.add(listener)

    def durable_up_to(self, ticket: int) -> None:
        """Step 5 of the durable order: called by the store, from nowhere else."""
        self._now_ms = self._clock_ms()
        self.durable = ticket
        self.lag.durable_up_to(ticket)
        self.holds.durable_up_to(ticket)
        self.busy.look()
        self.streams.durable_up_to(ticket)
        self.pager.durable_up_to(ticket)
        self.visible.durable_up_to(ticket)
        if self.listeners.waiting:
            self.listeners.tell(ticket)

    def store_failed(self, text: str) -> None:
        """The disk refused: nothing more is confirmed."""
        self.failure = Refusal(code=Code.STORE_FAILED, text=text)
        self.listeners.fail(self.failure)

    # ---- effects of queues

    def gone(self, queue: Queue, messages: list[Message], why: Gone, size: int) -> int:
        """See queues.Effects: forget records, give memory back, move on what is moved on."""
        if why is Gone.EXPIRED or why is Gone.KILLED:
            self.store.begin_atomic()  # gone here and stored there, or neither
            try:
                ticket = self._let_go(queue, messages, size, why)
                self.mover.move(queue, messages, why)
            finally:
                self.store.end_atomic()
        else:
            ticket = self._let_go(queue, messages, size, why)
        self.room_made()
        if self.pager.idle:
            self.pager.room_made()
        return ticket

    def _let_go(self, queue: Queue, messages: list[Message], size: int, why: Gone) -> int:
        ticket = 0
        if queue.line.any_flags & PAGED:
            messages, ticket = self.pager.finish(queue, messages)
            size = sum([len(m.body) for m in messages])
        if queue.paged_count and queue.consumer_count:
            self.touch(queue)  # a limit may have kept more from being read
        count = len(messages)
        if messages and queue.durable and queue.line.any_flags & DURABLE and not queue.deleted:
            forget = self.store.replace if why is Gone.REPLACED else self.store.remove
            ticket = max(ticket, self._forget(queue, messages, forget))
        charge = size + OVERHEAD_BYTES * count
        if queue.line.any_flags & SHARED:
            count, kept_bytes = without_copies(messages)
            charge -= kept_bytes
        account = queue.account
        assert account is not None, "a queue without address"
        self.memory -= charge
        self.messages -= count
        account.size_bytes -= charge
        account.messages -= count
        return ticket

    def room_made(self) -> None:
        """See to it that senders who are held back are looked at."""
        if self._blocked:
            self.turn.at_end(self._look_for_room)

    def _forget(
        self, queue: Queue, messages: list[Message], forget: Callable[[int, int, int, int], int]
    ) -> int:
        if not self.turn.begun:  # until the store has its batch, a kill brings back what is gone
            self.turn.need_end()
        count = len(messages)
        first = messages[0].seq
        if count == 1:
            return forget(queue.queue_id, first, first, 1) if messages[0].flags & DURABLE else 0
        if queue.line.all_flags & DURABLE:
            last = messages[-1].seq
            if last - first == count - 1 and [m.seq for m in messages] == list(
                range(first, last + 1)
            ):
                return forget(queue.queue_id, first, last, count)
        ticket = 0
        for low, high in joined_ranges(sorted([m.seq for m in messages if m.flags & DURABLE])):
            # 0: gone without a record, which must not hide an earlier one.
            ticket = max(ticket, forget(queue.queue_id, low, high, high - low + 1))
        return ticket

    def counted(self, queue: Queue, messages: list[Message]) -> int:
        """See queues.Effects."""
        ticket = 0
        if queue.durable and messages:
            # Of the others there is no record whose flags could change.
            stored = [m for m in messages if m.flags & DURABLE]
            if stored:
                entries = [(m.seq, m.flags & ~(SHARED | PAGED)) for m in stored]
                ticket = self.store.count(queue.queue_id, entries)
            if queue.line.any_flags & PAGED:
                self.pager.counted(queue, messages)
        return ticket

    def given_up(self, queue: Queue, messages: list[Message]) -> None:
        """See queues.Effects."""
        self.mover.move(queue, messages, Gone.KILLED)

    def postponed(self, queue: Queue, messages: list[Message]) -> int:
        """See queues.Effects."""
        ticket = 0
        if queue.durable and messages:
            ticket = self.counted(queue, messages)
            due = [(m.seq, m.due) for m in messages if m.flags & DURABLE]
            if due:
                ticket = self.store.postpone(queue.queue_id, due)
            if queue.line.any_flags & PAGED:
                self.pager.postponed(queue, messages)
        return ticket

    def overflow(self, queue: Queue, added: int) -> None:
        """A ring has too much after an add: what consumers take at once is not evicted."""
        if queue.consumer_count and not (queue.paused or queue.dispatching):
            self.figures.delivered += queue.dispatch(self._now_ms, DISPATCH_RUN)
        queue.trim_ring(added)

    def redelivery(self, queue: Queue) -> Callable[[Message], int] | None:
        """Return what says when a message that comes back is due again; None: it is at once."""
        settings = self.settings.for_address(queue.address)
        if settings.redelivery_delay <= 0:
            return None
        now_ms, chance = self.now_ms(), self.chance
        return lambda m: now_ms + redelivery_delay(settings, m.delivery_count, chance)

    def rejects_as_modified(self, queue: Queue) -> bool:
        return self.settings.for_address(queue.address).reject_as_modified

    def subscription_closed(self, queue: Queue) -> None:
        """A consumer left: a temporary queue goes with its last one, or what waits does."""
        self.reaper.left(queue)
        if queue.attributes.purge_on_no_consumers and not queue.consumer_count:
            queue.purge()
        if queue.exclusive:
            self.touch(queue)  # whoever comes next has it now
        if queue.temporary and not queue.consumer_count and queue.routing is RoutingType.MULTICAST:
            self.directory.drop_queue(queue)

    def address_made(self, address: Address, *, new: bool) -> None:
        """An address was made, or brought back at the start."""
        self.branches.made(address)
        if new:
            self.retro.look_at(address)

    def queue_made(self, queue: Queue) -> None:
        """A queue was made, and has the filter that it is to have."""
        self.retro.fill(queue)

    def queues_changed(self, address: Address) -> None:
        """An address has got or lost a queue."""
        self.branches.queues_changed(address)

    def address_gone(self, name: str) -> None:
        """An address was deleted, and what it knew is forgotten."""
        self.duplicates.clear(name)
        self.branches.gone(name)
        self.retro.gone(name)

    # ---- limits

    def refused(self, refusal: Refusal, count: int) -> None:
        """Count refused messages by reason."""
        self.figures.refused[refusal.code] += count

    def full_because(self, address: Address) -> Refusal | None:
        """Return which limit holds the address' senders back, or None."""
        if address.operator_block:
            return Refusal(
                code=Code.ADDRESS_FULL,
                transient=True,
                text=f"Address {address.name!r} was blocked by an operator; unblock it "
                "through the API.",
            )
        return full_because(address.name, self.usage(address), address.settings)

    def held_back(self, address: Address) -> Refusal | None:
        """Return why the address' senders have to wait, or None."""
        if uses_pages(address) and not address.operator_block:
            return self.pager.held_back(address)
        return self.full_because(address)

    def usage(self, address: Address) -> Usage:
        """Return what the address and the gateway hold now, and the gateway's limits."""
        return Usage(
            size_bytes=address.size_bytes,
            messages=address.messages,
            global_bytes=self.memory,
            global_bytes_max=self.memory_max,
            global_messages=self.messages,
            global_messages_max=self.messages_max,
        )

    def watch_block(self, address: Address) -> None:
        """Hold the address' senders back when it is full, until there is room again."""
        refusal = self.held_back(address)
        if refusal is None or address.blocked is not None:
            return
        policy = address.settings.address_full_policy
        if policy is FullPolicy.DROP and not address.operator_block:
            return  # who is never refused need not wait either
        address.hold(refusal)
        self._blocked[address.name] = address
        for producer in list(address.producers.values()):
            producer.block(refusal)

    def _look_for_room(self) -> None:
        """Let senders go where there is room again."""
        for address in list(self._blocked.values()):
            self.look_for_room_at(address)

    def look_for_room_at(self, address: Address) -> None:
        """Let the senders of an address go that are held back and need not be."""
        if address.gone:
            self._blocked.pop(address.name, None)
        elif address.blocked is not None and self._has_room_again(address):
            del self._blocked[address.name]
            address.blocked = None
            for producer in list(address.producers.values()):
                producer.unblock()

    def _has_room_again(self, address: Address) -> bool:
        if uses_pages(address):
            return self.held_back(address) is None
        if address.operator_block:
            return False
        drops = address.settings.address_full_policy is FullPolicy.DROP
        return drops or room_again(self.usage(address), address.settings)

    def use_settings(self, settings: SettingsTable) -> None:
        """Use other settings for what is made, sent on or asked from now on; see `resettle`."""
        self.settings = settings
        self.directory.use_settings(settings)

    def block_address(self, name: str, blocked: bool) -> None:  # noqa: FBT001 - says it by name
        """Hold an address' senders back, or let them go. Raises RefusedError (not-found)."""
        address = self.directory.find_address(name)
        address.operator_block = blocked
        if blocked:
            self.watch_block(address)
        else:
            self._look_for_room()

    # ---- the Broker port

    def open_producer(
        self,
        destination: Destination,
        routing: RoutingType | None,
        owner: ProducerOwner,
        *,
        origin: str = "",
        user: str | None = None,
    ) -> Route:
        """See the Broker port."""
        check_not_ours(destination.address)
        address, only = self.directory.for_sending(destination, routing, user)
        route = route_kind(address)(self, address, routing, owner, only=only, origin=origin)
        route.user = user
        if address.branched:
            route.resolve()  # what holds it back may be at another address
        if not address.guarded or address.blocked is None:
            self.watch_block(address)
        return route

    def open_relay(self, owner: ProducerOwner) -> Relay:
        """See the Broker port."""
        return self.disk.open_relay(owner)

    def find_again(
        self, destination: Destination, routing: RoutingType | None, user: str | None = None
    ) -> tuple[Address, Queue | None]:
        """Return where a producer goes on whose address was deleted. Raises RefusedError."""
        return self.directory.for_sending(destination, routing, user)

    def retry_messages(self, queue: Queue, messages: list[Message] | None = None) -> int:
        """Send what waits in a queue back to where it died or expired; returns how many went."""
        chosen = queue.browse(0, queue.ready_count) if messages is None else messages
        return len(self.mover.retry(queue, chosen))

    def internal_route(self, name: str, queue: str | None = None) -> Route:
        """Return a route for the gateway's own sends: dead letters, expiry. Raises RefusedError."""
        address, only = self.directory.for_sending(Destination(name, queue), None)
        return Route(self, address, None, None, only=only)

    def subscribe(
        self,
        destination: Destination,
        routing: RoutingType | None,
        consumer: Consumer,
        *,
        durable_name: str | None = None,
        shared: bool = False,
        browse: bool = False,
        temporary: bool = False,
        priority: int | None = None,
        selector: str = "",
        no_local: str = "",
        owner: object | None = None,
        user: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Hold | Look:
        """See the Broker port."""
        condition = compile_selector(selector, destination.address) if selector else None
        may_add = (options or {}).get("may-add-type", "yes") == "yes"
        check_owner(self.directory.addresses.get(destination.address), owner)
        kind = self.directory.consuming_type(destination, routing, may_add=may_add)
        if kind is RoutingType.MULTICAST and destination.queue is None:
            queue = self.directory.subscription_queue(
                destination.address,
                durable_name,
                shared=shared,
                temporary=temporary,
                make_name=self._make_name,
                condition=condition,
                no_local=no_local,
                owner=owner,
                user=user,
            )
            browse, no_local, condition = False, "", condition if queue.paged_count else None
        else:
            queue = self.directory.for_consuming(destination, routing, user)
        check_owner(queue, owner)
        if not browse and 0 <= queue.max_consumers <= queue.consumer_count:
            self.subscription_closed(queue)  # one that was made for it goes again
            raise too_many_consumers(queue)
        self.touch(queue)
        if browse:
            return Look(self, queue, consumer, condition)
        if no_local:
            bindings = self.directory.addresses[queue.address]
            return LocalHold(self, bindings, queue, consumer, NotFrom(no_local, condition))
        return Hold(self, queue, consumer, priority, condition)

    def find_subscription(self, durable_name: str) -> tuple[str, bool] | None:
        """See the Broker port."""
        queue = self.directory.queues.get(durable_name)
        if queue is None or queue.temporary or queue.routing is not RoutingType.MULTICAST:
            return None
        return queue.filter_text, bool(queue.no_local)

    def delete_subscription(self, durable_name: str) -> None:
        """See the Broker port."""
        self.directory.delete_subscription(durable_name)

    def create_temporary(self, routing: RoutingType, owner: object, user: str | None = None) -> str:
        """See the Broker port."""
        name = self._make_name()
        self.directory.make_temporary(name, routing, owner, user)
        return name

    def delete_temporary(self, name: str) -> None:
        """See the Broker port."""
        self.directory.drop_temporary(name)

    def begin(self) -> Work:
        """See the Broker port."""
        return Work(self.forecast)

    # ---- upkeep

    def expire(self) -> int:
        """Remove expired messages that wait in queues; called every message-expiry-scan-period."""
        self._now_ms = self._clock_ms()
        total = 0
        for queue in list(self.queues.values()):
            total += queue.expire(self._now_ms)
            if queue.backlog is not None:
                total += self.pager.expire(queue)
        return total

    def restored(self, queue: Queue) -> None:
        """Charge memory for what recovery put into a queue."""
        count = queue.message_count
        charge = queue.size_bytes + OVERHEAD_BYTES * count
        if queue.routing is RoutingType.MULTICAST:
            copies = self._recovering.join(queue)
            count -= len(copies)
            charge -= sum([len(m.body) for m in copies])
        address = self.directory.addresses[queue.address]
        self.memory += charge
        self.messages += count
        address.size_bytes += charge
        address.messages += count

    def recovered(self) -> None:
        """All queues are back: a ring that was lowered before the stop evicts now."""
        self._recovering = Recovering()
        for queue in self.queues.values():
            queue.trim()
            if queue.scheduled_count:
                self.wake(queue, queue.next_time)
        self.on_time()
