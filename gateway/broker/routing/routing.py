"""The ways of all senders: opened here, by name.

Clients open a `Route` to a destination, which is made on demand; the gateway's own sends (dead
letters, what expired, notices) go over routes without an owner.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.broker.directory.branches import Branches
from gateway.broker.directory.directory import Directory
from gateway.broker.directory.on_demand import OnDemand
from gateway.broker.directory.permitting import check_send
from gateway.broker.ports.turns import Clock, Dispatching
from gateway.broker.pressure.pressure import Pressure
from gateway.broker.routing.duplicates import Duplicates
from gateway.broker.routing.forecast import Forecast
from gateway.broker.routing.retro import Retro
from gateway.broker.routing.route import Route
from gateway.broker.routing.shared import Shared
from gateway.broker.routing.stamped import route_kind
from gateway.model.address import Destination, RoutingType, check_not_ours
from gateway.model.ports import ProducerOwner
from gateway.model.principal import Permission, Principal


class Routing:
    """See the module text.

    Attributes:
        shared: what all routes share.
        duplicates: the ids that addresses remember.
        forecast: whether a transaction would be taken.
        retro: what addresses keep for queues that are still to come.
    """

    __slots__ = ("duplicates", "forecast", "retro", "shared")

    def __init__(
        self,
        directory: Directory,
        on_demand: OnDemand,
        branches: Branches,
        pressure: Pressure,
        *,
        clock: Clock,
        dispatch: Dispatching,
        synced: Callable[[], int],
    ) -> None:
        """`synced` tells the highest ticket on disk."""
        store = directory.store
        self.duplicates = Duplicates(store, clock, directory.take_id, synced)
        self.shared = Shared(
            store,
            branches=branches,
            on_demand=on_demand,
            pressure=pressure,
            duplicates=self.duplicates,
            clock=clock,
            dispatch=dispatch,
        )
        self.forecast = Forecast(self.shared, directory.addresses)
        self.shared.judge = self.forecast
        self.retro = Retro(self.shared, directory)

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
        check_not_ours(destination.address)
        check_send(principal, destination.address, destination.queue)
        shared = self.shared
        address, only = shared.on_demand.for_sending(destination, routing, principal)
        route = route_kind(address)(shared, address, routing, owner, only=only, origin=origin)
        route.principal = principal
        route.grant = shared.on_demand.grants.hold(
            principal, Permission.SEND, destination.address, destination.queue, route.revoke
        )
        if address.branched:
            route.resolve()  # what holds it back may be at another address
        if not address.guarded or address.blocked is None:
            shared.room.watch(address)
        return route

    def internal(self, name: str, queue: str | None = None) -> Route:
        """Return a route for the gateway's own sends: dead letters, expiry. Raises RefusedError."""
        address, only = self.shared.on_demand.for_sending(Destination(name, queue), None)
        return Route(self.shared, address, None, None, only=only)
