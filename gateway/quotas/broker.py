"""The Broker port as one connection meets it: every end that it opens is held to its quotas.

Whose an end is: the account of its principal, the remote address of the connection, the address
that it leads to. What a link costs is asked before anything is made for it. What is not about ends
goes straight to the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Refusal
from gateway.model.ports import (
    Broker,
    Consumer,
    Producer,
    ProducerOwner,
    Progress,
    Relay,
    Subscription,
    Transaction,
)
from gateway.model.principal import ANYBODY, Principal
from gateway.model.run import Run
from gateway.model.stream_start import StreamStart
from gateway.quotas.ends import MeteredConsumer, MeteredProducer, MeteredRelay
from gateway.quotas.meters import Meters, Use, names_of

_LINKS: Final = "links"


class QuotaBroker:
    """Implements the Broker port; see the module text."""

    __slots__ = (
        "_broker",
        "_connection",
        "_counts_senders",
        "_meters",
        "_principal",
        "_relays",
        "_remote",
        "await_durable",
        "create_temporary",
        "delete_subscription",
        "delete_temporary",
        "find",
        "find_subscription",
        "now_ms",
    )

    def __init__(
        self,
        broker: Broker,
        meters: Meters,
        remote: str,
        connection: str,
        *,
        counts_senders: bool,
    ) -> None:
        """`connection` is its name; `counts_senders`: what it sends on are links (AMQP)."""
        self._broker = broker
        self._meters = meters
        self._remote = remote
        self._connection = connection
        self._counts_senders = counts_senders
        self._principal = ANYBODY
        self._relays: set[int] = set()
        self.now_ms = broker.now_ms
        self.await_durable = broker.await_durable
        self.find, self.find_subscription = broker.find, broker.find_subscription
        self.create_temporary = broker.create_temporary
        self.delete_temporary = broker.delete_temporary
        self.delete_subscription = broker.delete_subscription

    def _opened(self, principal: Principal | None, address: str | None, row: str) -> Use:
        """Bind an end. Raises RefusedError (too-many)."""
        who = principal or ANYBODY
        if who is not self._principal:
            self._principal = who
            who.changed.append(self._renewed)
        names = names_of(who, self._remote, address)
        return self._meters.opened(names, who.roles, row)

    def _renewed(self) -> None:
        """Its principal has other roles: what holds for its user is looked at again."""
        self._meters.find(names_of(self._principal, self._remote), self._principal.roles)

    # ---- ends

    def open_producer(
        self,
        destination: Destination,
        routing: RoutingType | None,
        owner: ProducerOwner,
        *,
        origin: str = "",
        principal: Principal | None = None,
    ) -> Producer:
        """See the Broker port."""
        relayed = id(owner) in self._relays
        row = _LINKS if self._counts_senders and not relayed else ""
        use = self._opened(principal, destination.address, row)
        try:
            inner = self._broker.open_producer(
                destination, routing, owner, origin=origin, principal=principal
            )
        except BaseException:
            use.end()
            raise
        return MeteredProducer(self._meters, use, self._connection, inner, owner, relayed=relayed)

    def open_relay(self, owner: ProducerOwner, principal: Principal | None = None) -> Relay:
        """See the Broker port."""
        if principal is None:
            return self._broker.open_relay(owner)
        use = self._opened(principal, None, _LINKS if self._counts_senders else "")
        self._relays.add(id(owner))
        inner = self._broker.open_relay(owner, principal)
        forget = self._relays.discard
        return MeteredRelay(
            self._meters, use, self._connection, inner, owner, closed=lambda: forget(id(owner))
        )

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
        use = self._opened(principal, destination.address, _LINKS)
        metered = MeteredConsumer(self._meters, use, self._connection, consumer)
        try:
            inner = self._broker.subscribe(
                destination,
                routing,
                metered,
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
                start=start,
            )
        except BaseException:
            metered.gone()
            raise
        metered.subscription = inner
        return MeteredSubscription(inner, metered)

    def begin(self) -> Transaction:
        """See the Broker port."""
        return MeteredTransaction(self._broker.begin(), self._meters)


class MeteredSubscription:
    """Implements the Subscription port: its end gives back what it counts for."""

    __slots__ = (
        "_inner",
        "_metered",
        "acknowledge",
        "annotate",
        "dispatch_now",
        "ready",
        "reject",
        "release",
    )

    def __init__(self, inner: Subscription, metered: MeteredConsumer) -> None:
        self._inner = inner
        self._metered = metered
        self.ready, self.dispatch_now = inner.ready, inner.dispatch_now
        self.acknowledge, self.release = inner.acknowledge, inner.release
        self.annotate, self.reject = inner.annotate, inner.reject

    @property
    def queue_name(self) -> str:
        return self._inner.queue_name

    @property
    def address(self) -> str:
        return self._inner.address

    @property
    def progress(self) -> Progress | None:
        return self._inner.progress

    @property
    def browses(self) -> bool:
        return self._inner.browses

    @property
    def in_flight(self) -> int:
        return self._inner.in_flight

    def keeps_searching(self) -> bool:
        """See the Subscription port: what is held back gets nothing more now, whatever waits."""
        return not self._metered.held_back and self._inner.keeps_searching()

    def close(self) -> None:
        """See the Subscription port."""
        self._metered.gone()
        self._inner.close()


class MeteredTransaction:
    """Implements the Transaction port: what is sent in it counts when it comes."""

    __slots__ = (
        "_inner",
        "_meters",
        "acknowledge",
        "annotate",
        "commit",
        "prepare",
        "reject",
        "release",
        "rollback",
    )

    def __init__(self, inner: Transaction, meters: Meters) -> None:
        self._inner = inner
        self._meters = meters
        self.acknowledge, self.reject = inner.acknowledge, inner.reject
        self.release, self.annotate = inner.release, inner.annotate
        self.prepare, self.commit, self.rollback = inner.prepare, inner.commit, inner.rollback

    def send(self, producer: Producer, run: Run) -> Refusal | None:
        """See the Transaction port."""
        if not isinstance(producer, MeteredProducer):
            return self._inner.send(producer, run)
        refusal = self._inner.send(producer.inner, run)
        if refusal is None and producer.metered:
            producer.passed(run.count, run.size, self._meters.seconds())
        return refusal
