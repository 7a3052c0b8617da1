"""Consumers come and go: which queue they read, and what becomes of it when the last one leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.broker.consuming.subscription import Hold, LocalHold, Look, NotFrom
from gateway.broker.directory.conduct import check_owner, too_many_consumers
from gateway.broker.directory.directory import Directory
from gateway.broker.directory.on_demand import OnDemand
from gateway.broker.directory.permitting import check_create, check_read, reading
from gateway.broker.directory.reaper import Reaper
from gateway.broker.operations.operations import Operations
from gateway.broker.ports.streams import Streams
from gateway.broker.ports.turns import Dispatching
from gateway.broker.pressure.load import Load
from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Code, RefusedError
from gateway.model.ports import Consumer, Subscription
from gateway.model.principal import Permission, Principal, account_of
from gateway.model.stream_start import StreamStart
from gateway.queues.indexed import Condition
from gateway.queues.queue import Queue
from gateway.selectors import compile_selector


class Consuming:
    """See the module text. Implements what subscriptions need of those around them."""

    __slots__ = (
        "_directory",
        "_make_name",
        "_on_demand",
        "_reaper",
        "dispatch",
        "effects",
        "load",
        "pager",
    )

    def __init__(
        self,
        directory: Directory,
        on_demand: OnDemand,
        reaper: Reaper,
        operations: Operations,
        load: Load,
        *,
        dispatch: Dispatching,
        make_name: Callable[[], str],
    ) -> None:
        self._directory = directory
        self._on_demand = on_demand
        self._reaper = reaper
        self._make_name = make_name
        self.effects = operations.effects
        self.pager = operations.pager
        self.load = load
        self.dispatch = dispatch

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
    ) -> Hold | Look:
        """See the Broker port."""
        condition = compile_selector(selector, destination.address) if selector else None
        may_add = (options or {}).get("may-add-type", "yes") == "yes"
        check_owner(self._directory.addresses.get(destination.address), owner)
        kind = self._on_demand.consuming_type(destination, routing, may_add=may_add)
        subscribes = kind is RoutingType.MULTICAST and destination.queue is None
        browse = browse and not subscribes
        read = durable_name if subscribes else self._on_demand.read_queue(destination)
        check_read(principal, destination.address, read, browse=browse)
        if subscribes:
            queue = self._on_demand.subscription_queue(
                destination.address,
                durable_name,
                shared=shared,
                temporary=temporary,
                make_name=self._make_name,
                condition=condition,
                no_local=no_local,
                owner=owner,
                principal=principal,
            )
            no_local, condition = "", condition if queue.paged_count else None
        else:
            queue = self._on_demand.for_consuming(destination, routing, principal)
        check_owner(queue, owner)
        if not browse and 0 <= queue.max_consumers <= queue.consumer_count:
            self.closed(queue)  # one that was made for it goes again
            raise too_many_consumers(queue)
        self.dispatch.touch(queue)
        found = (
            Look(self, queue, consumer, condition)
            if browse
            else self._hold(queue, consumer, priority, condition, no_local)
        )
        found.grant = self._on_demand.grants.hold(
            principal, reading(browse=browse), queue.address, queue.name, consumer.removed
        )
        return found

    def replay(
        self,
        streams: Streams,
        destination: Destination,
        consumer: Consumer,
        start: StreamStart,
        *,
        selector: str = "",
        owner: object | None = None,
        principal: Principal | None = None,
    ) -> Subscription:
        """See `Broker.subscribe` with a start: the stream of an address, which is there.

        To be shown what it keeps is to browse, since nothing is taken.
        """
        address = destination.address
        check_read(principal, address, None, browse=True)
        condition = compile_selector(selector, address) if selector else None
        check_owner(self._directory.addresses.get(address), owner)
        # RabbitMQ's clients name a queue where they mean its stream.
        if destination.queue not in (None, address):
            raise RefusedError.of(
                Code.BAD_VALUE,
                f"A stream keeps what its address accepts, not what a queue holds: name "
                f"{address!r}, without '::{destination.queue}'.",
            )
        matches = None if condition is None else condition.matches
        shown = streams.replay(address, consumer, start, matches)
        shown.grant = self._on_demand.grants.hold(
            principal, Permission.BROWSE, address, None, consumer.removed
        )
        return shown

    def _hold(
        self,
        queue: Queue,
        consumer: Consumer,
        priority: int | None,
        condition: Condition | None,
        no_local: str,
    ) -> Hold:
        if no_local:
            bindings = self._directory.addresses[queue.address]
            return LocalHold(self, bindings, queue, consumer, NotFrom(no_local, condition))
        return Hold(self, queue, consumer, priority, condition)

    def closed(self, queue: Queue) -> None:
        """A consumer left: a temporary queue goes with its last one, or what waits does."""
        self._reaper.left(queue)
        if queue.attributes.purge_on_no_consumers and not queue.consumer_count:
            queue.purge()
        if queue.exclusive:
            self.dispatch.touch(queue)  # the next consumer has it now
        if queue.temporary and not queue.consumer_count and queue.routing is RoutingType.MULTICAST:
            self._directory.drop_queue(queue)

    def find_subscription(self, durable_name: str) -> tuple[str, bool] | None:
        """See the Broker port."""
        queue = self._directory.queues.get(durable_name)
        if queue is None or queue.temporary or queue.routing is not RoutingType.MULTICAST:
            return None
        return queue.filter_text, bool(queue.no_local)

    def create_temporary(
        self, routing: RoutingType, owner: object, principal: Principal | None = None
    ) -> str:
        """See the Broker port."""
        name = self._make_name()
        check_create(principal, name, None, kind=routing, queue=name, durable=False)
        self._directory.make_temporary(name, routing, owner, account_of(principal))
        return name
