"""The gateway's heart: the Broker port, the turn, and what the rooms hear of one another.

Single-threaded. Time, names and the end of the turn are passed in; it knows no reactor and no file.
The rooms of this package are made here, each of those below it:

    directory    addresses, queues and diverts
    pressure     what holds senders back
    routing      the ways of runs to queues and streams
    operations   what happens to messages that wait
    consuming    consumers and browsers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.addresses.match import SettingsTable
from gateway.broker.clock import TurnClock
from gateway.broker.consuming.consuming import Consuming
from gateway.broker.directory.address import Address
from gateway.broker.directory.administration import Administration
from gateway.broker.directory.branches import Branches
from gateway.broker.directory.directory import Directory
from gateway.broker.directory.on_demand import OnDemand
from gateway.broker.directory.reaper import Reaper
from gateway.broker.dispatch import Dispatch
from gateway.broker.listeners import Listeners
from gateway.broker.operations.copies import Recovering
from gateway.broker.operations.errand import refilter
from gateway.broker.operations.operations import Operations
from gateway.broker.ports.store import Store
from gateway.broker.ports.streams import NoStreams, Streams
from gateway.broker.pressure.disk_gate import Relay
from gateway.broker.pressure.figures import Figures
from gateway.broker.pressure.load import Limits, Load
from gateway.broker.pressure.pressure import Pressure
from gateway.broker.pressure.visible import Visible
from gateway.broker.routing.route import Route
from gateway.broker.routing.routing import Routing
from gateway.broker.transactions import Work
from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Code, Refusal
from gateway.model.grants import Grants
from gateway.model.message import Message
from gateway.model.ports import Consumer, DurableListener, ProducerOwner, Subscription
from gateway.model.principal import Principal
from gateway.model.stream_start import StreamStart
from gateway.model.turn import Turn
from gateway.queues.queue import Queue


class Gateway:
    """See the module text.

    Attributes:
        durable: the highest ticket on disk.
        grants: what principals were allowed and still have.
        failure: why nothing is confirmed any more; None while the disk works.
    """

    __slots__ = (
        "_consuming",
        "_recovering",
        "administration",
        "branches",
        "clock",
        "directory",
        "dispatch",
        "durable",
        "failure",
        "figures",
        "grants",
        "listeners",
        "on_demand",
        "operations",
        "pressure",
        "reaper",
        "routing",
        "streams",
        "turn",
        "visible",
    )

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
        self.durable = 0
        self.failure: Refusal | None = None
        self.figures = figures = Figures()
        self.clock = clock = TurnClock(turn, now_ms)
        self.dispatch = dispatch = Dispatch(turn, clock, figures)
        self.streams: Streams = NoStreams()
        self.directory = directory = Directory(settings, store)
        self.grants = Grants(turn.after)
        self.on_demand = OnDemand(directory, lambda *which: refilter(self, *which), self.grants)
        self.administration = Administration(directory)
        self.branches = Branches(directory.queues, store)
        self.reaper = Reaper(directory, clock.now_ms, self.branches.diverted)
        self.visible = Visible(store, dispatch)
        self.listeners = Listeners(store, turn)
        self.pressure = pressure = Pressure(
            limits, figures, directory, turn=turn, clock=clock, dispatch=dispatch
        )
        self.routing = Routing(
            directory,
            self.on_demand,
            self.branches,
            pressure,
            clock=clock,
            dispatch=dispatch,
            synced=lambda: self.durable,
        )
        self.operations = Operations(
            directory,
            pressure,
            self.routing,
            self.visible,
            figures,
            turn=turn,
            clock=clock,
            dispatch=dispatch,
        )
        self._consuming = Consuming(
            directory,
            self.on_demand,
            self.reaper,
            self.operations,
            pressure.load,
            dispatch=dispatch,
            make_name=make_name,
        )
        self._recovering = Recovering(pressure.load, directory.addresses)
        directory.watcher = self
        dispatch.pages = self.operations.pager
        turn.begin, turn.dispatch, turn.store = clock.read, dispatch.end_turn, self._store_turn

    # ---- what others read

    @property
    def store(self) -> Store:
        return self.directory.store

    @property
    def load(self) -> Load:
        return self.pressure.load

    @property
    def settings(self) -> SettingsTable:
        return self.directory.settings

    @property
    def queues(self) -> dict[str, Queue]:
        return self.directory.queues

    @property
    def addresses(self) -> dict[str, Address]:
        return self.directory.addresses

    def now_ms(self) -> int:
        """Return broker time; read once a turn."""
        return self.clock.now_ms()

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for the disk."""
        return self.listeners.waiting or self.pressure.holds.waiting or self.visible.waiting

    # ---- durability

    def await_durable(self, listener: DurableListener) -> None:
        """See the Broker port."""
        self.listeners.add(listener)

    def _store_turn(self) -> None:
        """End a turn: let the store write, and look whether that is too much for it."""
        self.pressure.busy.flush()
        if self.dispatch.touched:  # by what the store told; this turn's dispatch is over
            self.turn.after(self.turn.need_end)

    def durable_up_to(self, ticket: int) -> None:
        """Step 5 of the durable order: called by the store, from nowhere else."""
        self.clock.read()
        self.durable = ticket
        pressure = self.pressure
        pressure.lag.durable_up_to(ticket)
        pressure.holds.durable_up_to(ticket)
        pressure.busy.look()
        self.streams.durable_up_to(ticket)
        self.operations.pager.durable_up_to(ticket)
        self.visible.durable_up_to(ticket)
        if self.listeners.waiting:
            self.listeners.tell(ticket)

    def store_failed(self, text: str) -> None:
        """The disk refused: nothing more is confirmed."""
        self.failure = Refusal(code=Code.STORE_FAILED, text=text)
        self.listeners.fail(self.failure)

    # ---- what the rooms hear of the directory

    def touch(self, queue: Queue) -> None:
        """See to it that the queue is dispatched at the end of this turn."""
        self.dispatch.touch(queue)

    def address_made(self, address: Address, *, new: bool) -> None:
        """An address was made, or brought back at the start."""
        self.branches.made(address)
        if new:
            self.routing.retro.look_at(address)

    def queue_made(self, queue: Queue) -> None:
        """A queue was made, and has the filter that it is to have."""
        self.routing.retro.fill(queue)

    def queues_changed(self, address: Address) -> None:
        """An address has got or lost a queue."""
        self.branches.queues_changed(address)

    def address_gone(self, name: str) -> None:
        """An address was deleted, and what it knew is forgotten."""
        self.routing.duplicates.clear(name)
        self.branches.gone(name)
        self.routing.retro.gone(name)

    # ---- the Broker port

    def open_producer(
        self,
        destination: Destination,
        routing: RoutingType | None,
        owner: ProducerOwner,
        *,
        origin: str = "",
        principal: Principal | None = None,
    ) -> Route:
        """See the Broker port."""
        return self.routing.open_producer(
            destination, routing, owner, origin=origin, principal=principal
        )

    def open_relay(self, owner: ProducerOwner, principal: Principal | None = None) -> Relay:
        """See the Broker port."""
        return self.pressure.disk.open_relay(owner)

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
        principal: Principal | None = None,
        options: Mapping[str, str] | None = None,
        start: StreamStart | None = None,
    ) -> Subscription:
        """See the Broker port."""
        if start is not None:
            return self._consuming.replay(
                self.streams,
                destination,
                consumer,
                start,
                selector=selector,
                owner=owner,
                principal=principal,
            )
        return self._consuming.subscribe(
            destination,
            routing,
            consumer,
            durable_name=durable_name,
            shared=shared,
            browse=browse,
            temporary=temporary,
            priority=priority,
            selector=selector,
            no_local=no_local,
            owner=owner,
            principal=principal,
            options=options,
        )

    def find(self, name: str) -> Destination | None:
        """See the Broker port."""
        return self.on_demand.find(name)

    def find_subscription(self, durable_name: str) -> tuple[str, bool] | None:
        """See the Broker port."""
        return self._consuming.find_subscription(durable_name)

    def delete_subscription(self, durable_name: str, principal: Principal | None = None) -> None:
        """See the Broker port."""
        self.administration.delete_subscription(durable_name, principal)

    def create_temporary(
        self, routing: RoutingType, owner: object, principal: Principal | None = None
    ) -> str:
        """See the Broker port."""
        return self._consuming.create_temporary(routing, owner, principal)

    def delete_temporary(self, name: str) -> None:
        """See the Broker port."""
        self.directory.drop_temporary(name)

    def begin(self) -> Work:
        """See the Broker port."""
        return Work(self.routing.forecast)

    # ---- an operator's calls

    def block_address(self, name: str, blocked: bool) -> None:  # noqa: FBT001 - says it by name
        """Hold an address' senders back, or let them go. Raises RefusedError (not-found)."""
        self.pressure.room.block(self.directory.find_address(name), blocked)

    def retry_messages(self, queue: Queue, messages: list[Message] | None = None) -> int:
        """Send what waits in a queue back to where it died or expired; returns how many went."""
        chosen = queue.browse(0, queue.ready_count) if messages is None else messages
        return len(self.operations.mover.retry(queue, chosen))

    # ---- upkeep

    def on_time(self) -> None:
        """Dispatch the queues whose time has come; the timetable's alarm calls it."""
        self.dispatch.on_time()

    def expire(self) -> int:
        """Remove expired messages that wait in queues; called every message-expiry-scan-period."""
        self.clock.read()
        total = 0
        for queue in list(self.queues.values()):
            total += queue.expire(self.clock.at_ms)
            if queue.backlog is not None:
                total += self.operations.pager.expire(queue)
        return total

    def restored(self, queue: Queue) -> None:
        """Charge memory for what recovery put into a queue."""
        self._recovering.restored(queue)

    def recovered(self) -> None:
        """All queues are back: a ring that was lowered before the stop evicts now."""
        self._recovering = Recovering(self.pressure.load, self.addresses)
        for queue in self.queues.values():
            queue.trim()
            if queue.scheduled_count:
                self.dispatch.wake(queue, queue.next_time)
        self.dispatch.on_time()
