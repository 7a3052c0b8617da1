"""A session [AMQP 2.5]: windows and delivery-ids both ways, handles, dispositions, flow.

Delivery-ids of both directions are counted here. What the peer may send (incoming-window) is
policed; what we send stays within its window. Answers are collected as ranges and leave joined,
with the connection's next write.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from gateway.model.errors import Refusal
from gateway.model.ports import ConsumerFacts
from gateway.model.serial import MASK, add, distance
from protocols.amqp.cbs_node import CbsNode
from protocols.amqp.conditions import (
    INVALID_FIELD,
    NOT_IMPLEMENTED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    LinkFaultError,
    SessionFaultError,
    error_of,
)
from protocols.amqp.connection_port import ConnectionPort
from protocols.amqp.frames import AMQP_FRAME, accepted_range, frame
from protocols.amqp.handles import HANDLE_MAX, Handles
from protocols.amqp.incoming import IncomingLink
from protocols.amqp.outgoing import OutgoingLink, outcome_of
from protocols.amqp.performatives import (
    ACCEPTED,
    ROLE_RECEIVER,
    ROLE_SENDER,
    Attach,
    Begin,
    Composite,
    DeliveryState,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Outcome,
    TransactionalState,
    Transfer,
)
from protocols.amqp.ports import Link, SendersLink
from protocols.amqp.transactions import Transactions
from protocols.amqp.unsettled import Unsettled, neighbours

#: Transfer frames that the peer may send ahead; refreshed at half. A message of 16 MiB takes 128 of
#: them.
INCOMING_WINDOW: Final = 4096
#: No window of ours limits what we send; the peer's does.
OUTGOING_WINDOW: Final = 0x7FFFFFFF


class AmqpSession:
    """See the module text."""

    __slots__ = (
        "_accepted",
        "_connection",
        "_flow_due",
        "_pending",
        "_presumed",
        "broker",
        "channel",
        "container",
        "delivered",
        "ended",
        "flow_links",
        "handles",
        "incoming_window",
        "limits",
        "links",
        "next_delivery",
        "next_incoming_id",
        "next_outgoing_delivery",
        "next_outgoing_id",
        "nodes",
        "principal",
        "received",
        "remote_incoming_window",
        "unsettled",
    )

    def __init__(self, connection: ConnectionPort, channel: int, begin: Begin) -> None:
        self._connection = connection
        self.channel = channel
        self.limits = connection.limits
        self.broker = connection.broker
        self.nodes = connection.nodes
        self.container = connection.container
        self.principal = connection.principal
        self.handles = Handles(self, connection, begin.handle_max)
        self.links = self.handles.links  # looked up for every run
        self.next_incoming_id = begin.next_outgoing_id
        self.incoming_window = INCOMING_WINDOW
        self.next_delivery: int | None = None  # delivery-id that the peer's next delivery must have
        self.remote_incoming_window = begin.incoming_window
        self.next_outgoing_id = 1
        self.next_outgoing_delivery = 1
        self.unsettled = Unsettled()
        self.flow_links: list[SendersLink] = []
        self._pending: deque[tuple[Link, bytes]] = deque()  # wait for the peer's window
        self._accepted: list[list[int]] = []
        #: transaction, first, last: accepted if the transaction is committed
        self._presumed: list[tuple[bytes, int, int]] = []
        self._flow_due = False
        self.received = self.delivered = 0  # deliveries that came, and that went out
        self.ended = False  # we said end: what the peer still sends is ignored

    def begin(self) -> None:
        """Answer the peer's begin."""
        self.write_frame(
            Begin(
                remote_channel=self.channel,
                next_outgoing_id=self.next_outgoing_id,
                incoming_window=INCOMING_WINDOW,
                outgoing_window=OUTGOING_WINDOW,
                handle_max=HANDLE_MAX,
            )
        )

    # ---- what links ask for

    def now_ms(self) -> int:
        return self.broker.now_ms()

    @property
    def origin(self) -> str:
        """What this container's messages are told by, for no-local."""
        return f"AMQP {self.container}"

    @property
    def cbs(self) -> CbsNode:
        """What takes tokens, of the connection."""
        return self._connection.cbs

    @property
    def transactions(self) -> Transactions:
        """Those of the connection: they may have work on several sessions."""
        return self._connection.transactions

    def wake(self) -> None:
        self._connection.wake()

    @property
    def frame_max(self) -> int:
        """The largest frame that the peer takes."""
        return self._connection.remote_frame_max

    def room(self, wanted: int, each: int) -> int:
        """Return how many of `wanted` deliveries, of about `each` bytes, may go out now."""
        return self._connection.room(wanted, each)

    def write_run(self, data: bytes) -> None:
        self._connection.write(data)

    def write_frame(self, performative: Composite, payload: bytes = b"") -> None:
        self._connection.write_frame(self.channel, performative, payload)

    def sent(self, first: int, count: int, frames: int) -> None:
        """Count deliveries, and the frames of them that were written."""
        self.delivered += count
        self.next_outgoing_delivery = (first + count) & MASK
        self.next_outgoing_id = (self.next_outgoing_id + frames) & MASK
        self.remote_incoming_window -= frames

    def write_transfer(self, link: Link, transfer: Transfer, payload: bytes) -> None:
        """Write one transfer frame, or keep it until the peer's window is open [AMQP 2.5.6]."""
        data = frame(transfer, self.channel, AMQP_FRAME, payload)
        if self.remote_incoming_window <= 0:
            self._pending.append((link, data))
            return
        self.remote_incoming_window -= 1
        self.next_outgoing_id = (self.next_outgoing_id + 1) & MASK
        self._connection.write(data)

    def hold(self, size: int) -> None:
        """Count bytes of the connection's unfinished deliveries. Raises SessionFaultError."""
        self._connection.hold(size)

    def next_consumer(self) -> int:
        """Return a number that no other consumer of the connection has had."""
        return self._connection.seen.next_consumer()

    def facts(self, link: str) -> ConsumerFacts:
        """Return who has the link of that name."""
        peer = self._connection.peer
        return ConsumerFacts(
            protocol="AMQP",
            connection=peer.name,
            remote=peer.address,
            user=self._connection.principal.user,
            name=link,
        )

    def expel(self, refusal: Refusal) -> None:
        """Close the connection; its peer may have seen what it holds."""
        self._connection.fail(error_of(refusal))
        self._connection.wake()

    def link_left(self, link: Link) -> None:
        """The last transaction that needed a closed link is over."""
        self._connection.open_links.gone(link)

    def forget_frames(self, link: Link) -> None:
        """A link is gone: what still waits to be sent on it is not sent."""
        if self._pending:
            self._pending = deque(entry for entry in self._pending if entry[0] is not link)

    # ---- answers to the peer's deliveries

    def quiesce(self, link: SendersLink, refusal: Refusal) -> None:
        """A full address refused something: its sender is to give its credit back."""
        if self._connection.quiescing.ask(self, link, refusal):
            self._connection.retick = True

    def ask_to_drain(self, link: Link) -> None:
        """Say so, behind what was accepted before."""
        self.flush_accepted()
        self.write_flow(link, drain=True)

    def detach(self, link: Link, error: Error) -> None:
        """End a link with an error."""
        self.handles.end_with(link, error)
        self.wake()

    def confirm(self, ticket: int, first: int, count: int, link: SendersLink) -> None:
        """Accept deliveries when `ticket` is durable; at once when it is 0."""
        if ticket:
            self._connection.confirmations.accept_later(ticket, self, first, count, link=link)
        else:
            self.accept(first, count)

    def accept(self, first: int, count: int) -> None:
        """Add a range to what is accepted with the next write; neighbours are joined."""
        ranges = self._accepted
        last = (first + count - 1) & MASK
        if not ranges:
            self._connection.sessions_due.append(self)
            ranges.append([first, last])
        elif ranges[-1][1] + 1 == first:
            ranges[-1][1] = last
        else:
            ranges.append([first, last])

    def refuse(self, first: int, last: int, state: DeliveryState) -> None:
        """Settle deliveries with another state."""
        self.flush_accepted()
        self.write_frame(
            Disposition(role=ROLE_RECEIVER, first=first, last=last, settled=True, state=state)
        )

    def presume(self, name: bytes, delivery: int) -> None:
        """Tell with the next write that a delivery is accepted if its transaction is committed."""
        ranges = self._presumed
        if ranges and ranges[-1][0] == name and ranges[-1][2] + 1 == delivery:
            ranges[-1] = (name, ranges[-1][1], delivery)
            return
        if not ranges:
            self._connection.sessions_due.append(self)
        ranges.append((name, delivery, delivery))

    def flush_accepted(self) -> None:
        """Write the ranges that are accepted."""
        if self._presumed:
            presumed, self._presumed = self._presumed, []
            for name, first, last in presumed:
                state = TransactionalState(txn_id=name, outcome=ACCEPTED)
                self.write_frame(
                    Disposition(
                        role=ROLE_RECEIVER, first=first, last=last, settled=True, state=state
                    )
                )
        for first, last in self._accepted:
            self._connection.write(accepted_range(self.channel, first, last))
        self._accepted.clear()

    def flush_flows(self) -> None:
        """Write credit and window updates."""
        if self.flow_links:
            links, self.flow_links = self.flow_links, []
            for link in links:
                if self.links.get(link.handle) is link and link.refill():
                    self.write_flow(link)
        if self._flow_due and not self.ended:
            self.write_flow(None)

    def write_flow(self, link: Link | None, *, drain: bool = False) -> None:
        """Tell the peer where the session stands, and a link of it."""
        self._flow_due = False
        self.incoming_window = INCOMING_WINDOW
        self.write_frame(
            Flow(
                next_incoming_id=self.next_incoming_id,
                incoming_window=self.incoming_window,
                next_outgoing_id=self.next_outgoing_id,
                outgoing_window=OUTGOING_WINDOW,
                handle=link.handle if link is not None else None,
                delivery_count=link.delivery_count if link is not None else None,
                link_credit=link.credit if link is not None else None,
                drain=drain,
            )
        )

    # ---- frames

    def count_frames(self, count: int) -> None:
        """Count transfer frames that came; SessionFaultError beyond the window [AMQP 2.5.6]."""
        self.next_incoming_id = (self.next_incoming_id + count) & MASK
        self.incoming_window -= count
        if self.incoming_window < INCOMING_WINDOW // 2:
            if self.incoming_window < 0:
                raise SessionFaultError(
                    WINDOW_VIOLATION,
                    "More transfer frames came than the incoming-window "
                    f"of {INCOMING_WINDOW} allows.",
                )
            self._flow_due = True

    def receive(self, performative: Composite, payload: bytes) -> None:
        """Act on one frame. Raises SessionFaultError, ConnectionFaultError."""
        match performative:
            case Transfer():
                self._transfer(performative, payload)
            case Flow():
                self._flow(performative)
            case Disposition():
                self._disposition(performative)
            case Attach():
                self.handles.attach(performative)
            case Detach():
                self.handles.detach(performative)

    def _transfer(self, transfer: Transfer, payload: bytes) -> None:
        self.count_frames(1)
        link = self.links.get(transfer.handle)
        if not isinstance(link, IncomingLink):
            if not self.handles.leaving(transfer.handle):
                raise SessionFaultError(
                    UNATTACHED_HANDLE,
                    f"A transfer came on handle {transfer.handle}, on which nothing may be sent.",
                )
            # It was under way when we detached the link.
            self._pass_over(transfer.delivery_id)
            return
        first = link.in_delivery is None
        if first:
            if transfer.delivery_id is None:
                raise SessionFaultError(
                    INVALID_FIELD, "The first transfer of a delivery must have a delivery-id."
                )
            if (
                self.next_delivery is not None
                and distance(self.next_delivery, transfer.delivery_id) < 0
            ):
                raise SessionFaultError(
                    INVALID_FIELD,
                    f"delivery-id {transfer.delivery_id} was used before; "
                    f"{self.next_delivery} is next.",
                )
            self.next_delivery = add(transfer.delivery_id, 1)
        elif (
            transfer.delivery_id is not None
            and link.in_delivery is not None
            and transfer.delivery_id != link.in_delivery.delivery_id
        ):
            raise SessionFaultError(
                INVALID_FIELD,
                f"delivery-id {transfer.delivery_id} came inside another delivery "
                "of the same link.",
            )
        try:
            link.transfer(transfer, payload)
        except LinkFaultError as fault:
            self.handles.end_with(link, fault.error)

    def repeats(self, handle: int) -> bool:
        """Return whether what comes on a handle may be read by its shape."""
        return type(self.links.get(handle)) is IncomingLink

    def _pass_over(self, delivery_id: int | None) -> None:
        """Count a delivery that nobody takes; a later frame of it may repeat its id."""
        expected = self.next_delivery
        if delivery_id is not None and (expected is None or distance(expected, delivery_id) >= 0):
            self.next_delivery = add(delivery_id, 1)

    def _flow(self, flow: Flow) -> None:
        seen = flow.next_incoming_id if flow.next_incoming_id is not None else 1
        behind = max(0, distance(seen, self.next_outgoing_id))
        narrow = self.remote_incoming_window <= 0
        self.remote_incoming_window = flow.incoming_window - behind
        if self._pending:
            self._send_pending()
        if flow.handle is not None:
            self._link_flow(flow, flow.handle)
        elif flow.echo:
            self.write_flow(None)
        if narrow and self.remote_incoming_window > 0:
            self.resume()
            self.finish_drains()

    def _link_flow(self, flow: Flow, handle: int) -> None:
        link = self.links.get(handle)
        if link is None:
            if not self.handles.leaving(handle):
                raise SessionFaultError(
                    UNATTACHED_HANDLE,
                    f"A flow came for handle {handle}, on which nothing is attached.",
                )
        elif isinstance(link, OutgoingLink) and flow.properties and "txn-id" in flow.properties:
            text = "A flow names a transaction; transactional acquisition [AMQP 4.4.5] is not here."
            self.handles.end_with(link, Error(condition=NOT_IMPLEMENTED, description=text))
        elif isinstance(link, OutgoingLink):
            link.flow(flow.delivery_count, flow.link_credit or 0, drain=flow.drain)
            link.finish_drain()
            if flow.echo and not flow.drain and self.links.get(handle) is link:
                self.write_flow(link)
        else:
            link.flow(flow.delivery_count)
            if flow.echo:
                self.write_flow(link)

    def _send_pending(self) -> None:
        """Write the frames that waited, as far as the window is open now."""
        pending = self._pending
        while pending and self.remote_incoming_window > 0:
            self.remote_incoming_window -= 1
            self.next_outgoing_id = (self.next_outgoing_id + 1) & MASK
            self._connection.write(pending.popleft()[1])

    def resume(self) -> None:
        """There is room again: links with credit have their queues looked at."""
        for link in self.links.values():
            if isinstance(link, OutgoingLink) and link.subscription is not None and link.credit > 0:
                link.subscription.ready()

    def finish_drains(self) -> None:
        """Answer drains that had to wait for room."""
        for link in list(self.links.values()):
            if isinstance(link, OutgoingLink):
                link.drain()
                link.finish_drain()

    def _disposition(self, disposition: Disposition) -> None:
        if disposition.role is ROLE_SENDER:
            return  # the sender settles what we have settled already
        last = disposition.first if disposition.last is None else disposition.last
        if distance(disposition.first, last) < 0:
            raise SessionFaultError(
                INVALID_FIELD,
                f"A disposition covers {disposition.first} to {last}: last lies before first.",
            )
        state = disposition.state
        if isinstance(state, TransactionalState):
            self.transactions.retire(self, disposition, state, last)
            return
        outcome = outcome_of(state)
        if outcome is None and not disposition.settled:
            return  # partial progress, or nothing at all: the delivery goes on
        found = self.unsettled.pop_range(disposition.first, last)
        for first, end, chunks in neighbours(found):
            ticket = max([chunk.link.settle(outcome, chunk.messages) for chunk in chunks])
            if outcome is not None and not disposition.settled:
                self.settle_back(first, end, outcome, ticket)

    def settle_back(self, first: int, end: int, outcome: Outcome, ticket: int) -> None:
        """Settle the peer's unsettled outcome, once it cannot be undone [AMQP 2.6.12]."""
        answer = Disposition(
            role=ROLE_SENDER,
            first=first & MASK,
            last=(end - 1) & MASK,
            settled=True,
            state=outcome,
        )
        self._connection.confirmations.answer_later(ticket, self, answer)

    def end(self, error: Error | None) -> None:
        """Say end to the peer and release everything; an `error` is ours."""
        self.flush_accepted()
        self.handles.close(lost=error is not None)
        self.ended = True
        self.write_frame(End(error=error))
