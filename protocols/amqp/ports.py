"""What a link sees of its session, and its session of it, as structural types.

A link stands below its session: it names no class of a storey above it, and calls no more of its
session than `SessionPort` has. What a session sees of its connection is in
`protocols.amqp.connection_port`.
"""

from __future__ import annotations

from typing import Protocol

from gateway.model.errors import Refusal
from gateway.model.ports import Broker, ConsumerFacts, Producer
from gateway.model.principal import Principal
from gateway.model.run import Run
from protocols.amqp.cbs_node import CbsNode
from protocols.amqp.dynamic import DynamicNodes
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import Composite, DeliveryState, Error, Transfer
from protocols.amqp.unsettled import Unsettled


class Link(Protocol):
    """A link of either direction, as its session sees it."""

    name: str
    handle: int
    credit: int
    delivery_count: int
    temporary: str | None

    def end(self, *, closed: bool, lost: bool) -> Error | None:
        """End it; returns what could not be done of that.

        `closed`: for good, so that a durable subscription goes as well. `lost`: not by the peer's
        word, which may have seen what the link holds.
        """


class SendersLink(Link, Protocol):
    """A link on which the peer sends, as those see it that hold answers and credit back.

    Attributes:
        draining: it was asked to give its credit back.
    """

    draining: bool

    def refill(self) -> bool:
        """Top the credit up; returns whether there is more to tell the peer."""

    def confirmed(self, count: int) -> None:
        """The answers to `count` deliveries went out after their batch was synced."""


class TransactionPort(Protocol):
    """One open transaction, as a sender's link sees it."""

    @property
    def name(self) -> bytes: ...

    def post(self, route: Producer, run: Run) -> Error | None:
        """Add a message that was sent; returns why not, and then all of it has failed."""

    def fail(self, refusal: Refusal) -> Error:
        """A part was refused: it can only be rolled back."""


class TransactionsPort(Protocol):
    """The open transactions of a connection."""

    def get(self, name: bytes) -> TransactionPort:
        """Return one; raises TransactionFaultError (unknown-id)."""

    def declare(self, coordinator: object) -> bytes:
        """Open one; returns its id. Raises TransactionFaultError when there are too many."""

    def discharge(self, name: bytes, *, fail: bool) -> int:
        """End one; returns the ticket after which it cannot be undone.

        Raises TransactionFaultError, LinkFaultError when it did not end so.
        """

    def dropped(self, coordinator: object) -> None:
        """A coordinator link is gone: what it declared is rolled back."""


class SessionPort(Protocol):
    """A session, as its links see it.

    Attributes:
        channel: its number.
        container: how the peer calls itself.
        principal: for whom it acts.
        flow_links: links that are to have their credit topped up with the next write.
        received: deliveries that came; each link counts its own there.
        remote_incoming_window: transfer frames that the peer takes now.
        next_outgoing_delivery: the delivery-id of what is sent next.
        frame_max: the largest frame that the peer takes.
        origin: what this container's messages are told by, for no-local.
        unsettled: what was sent and is not settled.
    """

    channel: int
    limits: AmqpLimits
    broker: Broker
    nodes: DynamicNodes
    container: str
    principal: Principal
    flow_links: list[SendersLink]
    received: int
    remote_incoming_window: int
    next_outgoing_delivery: int
    unsettled: Unsettled

    @property
    def frame_max(self) -> int: ...

    @property
    def origin(self) -> str: ...

    @property
    def cbs(self) -> CbsNode:
        """What takes tokens, of the connection."""

    @property
    def transactions(self) -> TransactionsPort:
        """Those of the connection: they may have work on several sessions."""

    def now_ms(self) -> int:
        """Return the broker's time."""

    def wake(self) -> None:
        """Have written what there is to write."""

    def next_consumer(self) -> int:
        """Return a number that no other consumer of the connection has had."""

    def facts(self, link: str) -> ConsumerFacts:
        """Return who has the link of that name."""

    # ---- answers to the peer's deliveries

    def confirm(self, ticket: int, first: int, count: int, link: SendersLink) -> None:
        """Accept deliveries when `ticket` is durable; at once when it is 0."""

    def refuse(self, first: int, last: int, state: DeliveryState) -> None:
        """Settle deliveries with another state."""

    def presume(self, name: bytes, delivery: int) -> None:
        """Tell with the next write that a delivery is accepted if its transaction is committed."""

    def hold(self, size: int) -> None:
        """Count bytes of the connection's unfinished deliveries. Raises SessionFaultError."""

    def quiesce(self, link: SendersLink, refusal: Refusal) -> None:
        """A full address refused something: its sender is to give its credit back."""

    # ---- what is sent

    def room(self, wanted: int, each: int) -> int:
        """Return how many of `wanted` deliveries, of about `each` bytes, may go out now."""

    def write_run(self, data: bytes) -> None:
        """Write transfer frames."""

    def write_transfer(self, link: Link, transfer: Transfer, payload: bytes) -> None:
        """Write one transfer frame, or keep it until the peer's window is open [AMQP 2.5.6]."""

    def write_frame(self, performative: Composite, payload: bytes = b"") -> None:
        """Write any other frame."""

    def write_flow(self, link: Link | None, *, drain: bool = False) -> None:
        """Tell the peer where the session stands, and a link of it."""

    def sent(self, first: int, count: int, frames: int) -> None:
        """Count deliveries, and the frames of them that were written."""

    # ---- the end

    def detach(self, link: Link, error: Error) -> None:
        """End a link with an error."""

    def expel(self, refusal: Refusal) -> None:
        """Close the connection; its peer may have seen what it holds."""

    def link_left(self, link: Link) -> None:
        """The last transaction that needed a closed link is over."""
