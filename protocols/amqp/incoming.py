"""A link on which the gateway receives [AMQP 2.6]: credit, runs to the broker, outcomes back.

A run comes from the hot loop of the connection; everything else (several frames, odd encodings, an
anonymous target) comes one delivery at a time and goes the same way.
"""

from __future__ import annotations

from typing import Final

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.ports import Producer, Relay
from gateway.model.run import MixedRun, Outcome, Run
from gateway.model.serial import MASK, distance
from protocols.amqp.conditions import (
    MESSAGE_SIZE,
    TRANSFER_LIMIT,
    LinkFaultError,
    TransactionFaultError,
    error_of,
)
from protocols.amqp.looking import look_into
from protocols.amqp.performatives import (
    Error,
    Rejected,
    TransactionalState,
    Transfer,
)
from protocols.amqp.ports import SessionPort
from protocols.amqp.refusing import Answers
from protocols.amqp.relaying import Routes
from protocols.amqp.transfers import check_first, continued, not_taken

#: Deliveries of one link that may wait for the disk before its credit is held back (the store's own
#: task limit).
UNSETTLED_MAX: Final = 10_000
#: What a part of an unfinished delivery costs beside its bytes.
_PART_BYTES: Final = 64
#: Size of a sender's messages while none has come: it decides on the first credit alone.
_SIZE_GUESS: Final = 16 << 10


class IncomingLink:
    """Implements the ProducerOwner port for one link."""

    __slots__ = (
        "_flow_due",
        "_held",
        "_low",
        "_partial",
        "_parts",
        "_parts_bytes",
        "_session",
        "_size",
        "answers",
        "began",
        "blocked",
        "credit",
        "delivery_count",
        "draining",
        "handle",
        "message_max",
        "name",
        "producer",
        "relay",
        "routes",
        "temporary",
        "unsettled",
    )

    def __init__(
        self, session: SessionPort, name: str, handle: int, *, delivery_count: int = 0
    ) -> None:
        self._session = session
        self.name = name
        self.handle = handle
        self.producer: Producer | None = None
        self.relay: Relay | None = None  # of an anonymous target
        self.temporary: str | None = None
        self.credit = 0
        self._low = session.limits.amqp_low_credits
        self._size = _SIZE_GUESS  # of its messages lately
        self.delivery_count = delivery_count
        self.unsettled = 0
        self.blocked = False
        self.draining = False  # it was asked to give its credit back
        self.message_max = session.limits.max_message_size
        self.answers = Answers()
        self._flow_due = False
        self._partial: Transfer | None = None
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self.began: float | None = None  # see protocols.amqp.watch
        self.routes = Routes(session, self)

    # ---- credit

    def grant(self) -> None:
        """Ask for more credit when it is low; the flow goes out with this turn's bytes.

        Credit counts from the flow that tells it: a peer that sends more at once is beyond it.
        """
        if not self._flow_due and self._may_refill():
            self._flow_due = True
            self._session.flow_links.append(self)

    def _may_refill(self) -> bool:
        low = self.credit <= self._low
        return low and not self.blocked and self.unsettled <= UNSETTLED_MAX

    def refill(self) -> bool:
        """Top the credit up; returns whether there is more to tell the peer."""
        self._flow_due = False
        if not self._may_refill():
            return False
        self.draining = False
        limits = self._session.limits
        most = limits.amqp_credits
        grants = self.producer or self.relay
        self.credit = grants.credit(most, self._size) if grants else most
        low = limits.amqp_low_credits
        self._low = low if self.credit == most else self.credit * low // most
        return True

    def flow(self, delivery_count: int | None) -> None:
        """The sender says where it stands: credit that it gave up is used [AMQP 2.6.7]."""
        if delivery_count is None:
            return
        ahead = distance(self.delivery_count, delivery_count)
        if ahead > 0:
            self.delivery_count = delivery_count
            self.credit = max(0, self.credit - ahead)
            self.grant()

    def producer_blocked(self, refusal: Refusal) -> None:
        """See the ProducerOwner port: what is granted may still be used, no more is given."""
        # A sender to many addresses keeps its credit when one of them is full: only what goes there
        # is refused. A full disk holds all of them back.
        if self.producer is not None or refusal.code is Code.DISK_FULL:
            self.blocked = True
        elif refusal.code is Code.QUOTA_REACHED and self.relay is not None:
            # For an address only what goes there is given back; for its user the link waits.
            self.blocked = self.relay.blocked() is not None

    def producer_unblocked(self) -> None:
        """See the ProducerOwner port: one reason is gone, another one may hold."""
        waits = self.producer or self.relay
        self.blocked = waits is not None and waits.blocked() is not None
        if self.draining and not self.blocked:
            self._low = max(self._low, self.credit)  # new credit takes the drain back
        self.grant()
        self._session.wake()

    def producer_refused(self, refusal: Refusal) -> None:
        """See the ProducerOwner port: the link ends; an anonymous one opens its routes anew."""
        if self.producer is not None:
            self._session.detach(self, error_of(refusal))
        else:
            self.routes.close()

    # ---- runs from the hot loop

    def receive(self, run: Run, first: int, *, settled: bool) -> None:
        """Take whole deliveries `first`... within credit."""
        self._use_credit(run)
        producer = self.producer
        if producer is None:
            self._relay(run, first, settled=settled)
        else:
            self._confirm(producer.send(run), first, run.count, producer, settled=settled)
        if self.credit <= self._low:
            self.grant()

    def receive_mixed(self, run: MixedRun, first: int, *, settled: bool) -> None:
        """As `receive` for deliveries that differ; none has a time or an id of its own."""
        self._use_credit(run)
        producer = self.producer
        if producer is None:
            self._relay(run, first, settled=settled)
        else:
            self._confirm(producer.send_mixed(run), first, run.count, producer, settled=settled)
        if self.credit <= self._low:
            self.grant()

    def _use_credit(self, run: Run | MixedRun) -> None:
        count = run.count
        self.credit -= count
        self._size = len(run.bodies[-1])
        self.delivery_count = (self.delivery_count + count) & MASK
        self._session.received += count

    def _relay(self, run: Run | MixedRun, first: int, *, settled: bool) -> None:
        """Send each message to the address that it names."""
        for index, one in enumerate(run.singles()):
            delivery = (first + index) & MASK
            try:
                route = self.routes.open(one.bodies[0])
            except RefusedError as error:
                if not self.turn_away(delivery, error.refusal, settled=settled):
                    return
                continue
            if not self._confirm(route.send(one), delivery, 1, route, settled=settled):
                return

    def _confirm(
        self, outcome: Outcome, first: int, count: int, producer: Producer, *, settled: bool
    ) -> bool:
        """Hold the answers back until the ticket is durable; refuse what was not taken.

        Returns False when the link ended with it.
        """
        session = self._session
        refusal = outcome.refusal
        if refusal is None:
            if not settled:
                if outcome.ticket:
                    self.unsettled += count
                session.confirm(outcome.ticket, first, count, self)
            return True
        taken = outcome.taken
        if producer is not self.producer and refusal.code is Code.NOT_FOUND:
            # One message, by a route that led somewhere when it was opened.
            return self.turn_away(first, refusal, settled=settled)
        if taken and not settled:
            if outcome.ticket:
                self.unsettled += taken
            session.confirm(outcome.ticket, first, taken, self)
        if refusal.transient and not settled and producer is self.producer:
            session.quiesce(self, refusal)
        if not settled:
            last = (first + count - 1) & MASK
            self._refuse((first + taken) & MASK, last, refusal)
        if refusal.transient and producer is self.producer:
            self.blocked = self.blocked or producer.blocked() is not None
        return True

    def turn_away(self, delivery: int, refusal: Refusal, *, settled: bool) -> bool:
        """Refuse one message for what it says; returns False when its link ended with it.

        What is only refused for now is answered, or forgotten where no answer is wanted.
        """
        if settled and refusal.transient:
            return True
        if settled or not (self.answers.rejects or refusal.transient):
            self._session.detach(self, self.routes.tagged(error_of(refusal), delivery))
            return False
        state = self.answers.to(refusal)
        if isinstance(state, Rejected) and state.error is not None:
            state = Rejected(error=self.routes.tagged(state.error, delivery))
        self._session.refuse(delivery, delivery, state)
        return True

    def _refuse(self, first: int, last: int, refusal: Refusal) -> None:
        self._session.refuse(first, last, self.answers.to(refusal))

    def confirmed(self, count: int) -> None:
        """The answers to `count` deliveries went out after their batch was synced."""
        self.unsettled -= count
        if self.credit <= self._low:
            self.grant()

    # ---- one delivery at a time

    def transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take one frame that the general codec has read. Raises LinkFaultError."""
        partial = self._partial
        if partial is None:
            if self.credit <= 0:
                raise LinkFaultError(
                    TRANSFER_LIMIT,
                    f"Link {self.name!r} sent a transfer without credit; "
                    f"delivery-count is {self.delivery_count}.",
                )
            check_first(transfer)
            partial = transfer
            self.began = None
        else:
            partial = self._partial = continued(partial, transfer)
        if transfer.aborted:
            self._forget_partial()
            self.count_one()
            self.grant()
            return
        size = self._parts_bytes + len(payload)
        if size > self.message_max:
            self._forget_partial()
            raise LinkFaultError(
                MESSAGE_SIZE,
                f"A message on link {self.name!r} has more than {self.message_max} bytes, "
                "the max-message-size of this link.",
            )
        if transfer.more or self._partial is not None:
            self._partial = partial
            self._keep(payload)
        if transfer.more:
            return
        if self._partial is not None:
            payload = b"".join(self._parts)
            self._forget_partial()
        if partial.resume:
            # No delivery outlives its link here: none is known that could go on [AMQP 2.7.5].
            self.count_one()
            self.grant()
            return
        self.receive_whole(partial, payload)

    def receive_whole(self, transfer: Transfer, body: bytes) -> None:
        """Take a delivery that came by the general codec. Raises LinkFaultError."""
        delivery = transfer.delivery_id
        assert delivery is not None, "checked by the session"
        error = not_taken(transfer)
        if self.producer is None:
            tag = transfer.delivery_tag
            self.routes.tag_of = lambda _: tag
        if error is None and not isinstance(transfer.state, TransactionalState):
            self._receive_one(body, delivery, settled=bool(transfer.settled))
            return
        self.count_one()
        if error is None:
            self._post(transfer, delivery, body)
        elif self.answers.rejects and not transfer.settled:
            self._session.refuse(delivery, delivery, Rejected(error=error))
        else:
            raise LinkFaultError(error.condition, error.description or "")  # nothing else says so
        self.grant()

    def _post(self, transfer: Transfer, delivery: int, body: bytes) -> None:
        """Add a delivery to its transaction, and say what its outcome would be [AMQP 4.4.4].

        Raises LinkFaultError when there is no such transaction, and no other way to say so.
        """
        assert isinstance(transfer.state, TransactionalState), "asked before"
        session = self._session
        self._size = len(body)
        try:
            one = session.transactions.get(transfer.state.txn_id)
        except TransactionFaultError as fault:
            if transfer.settled or not self.answers.rejects:
                text = fault.error.description or ""
                raise LinkFaultError(fault.error.condition, text) from fault
            session.refuse(delivery, delivery, Rejected(error=fault.error))
            return
        try:
            body, flags, expires, due = look_into(
                body, session.now_ms(), ids=session.limits.duplicate_detection
            )
            route = self.producer or self.routes.open(body)
            error = one.post(route, Run((body,), flags, expires, due))
        except RefusedError as refused:
            error = self.routes.tagged(one.fail(refused.refusal), delivery)
            if not (transfer.settled or self.answers.rejects or refused.refusal.transient):
                session.detach(self, self.routes.tagged(error_of(refused.refusal), delivery))
                return
        if transfer.settled:
            return
        if error is None:
            session.presume(one.name, delivery)
        else:
            state = TransactionalState(txn_id=one.name, outcome=Rejected(error=error))
            session.refuse(delivery, delivery, state)

    def _keep(self, payload: bytes) -> None:
        """Keep one frame's part of a delivery. Raises SessionFaultError."""
        self._parts_bytes += len(payload)
        if payload:
            self._parts.append(payload)
        # Many small parts cost more than their bytes.
        self._session.hold(len(payload) + _PART_BYTES if payload else 0)

    def count_one(self) -> None:
        """A delivery has used its credit."""
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) & MASK
        self._session.received += 1

    @property
    def in_delivery(self) -> Transfer | None:
        """The first frame of a delivery that is not complete."""
        return self._partial

    @property
    def parts_bytes(self) -> int:
        """How many bytes of it have come."""
        return self._parts_bytes

    @property
    def posting_in(self) -> bytes | None:
        """The transaction of a delivery that is not complete."""
        state = None if self._partial is None else self._partial.state
        return state.txn_id if isinstance(state, TransactionalState) else None

    def _forget_partial(self) -> None:
        if self._partial is not None:
            self._session.hold(-self._parts_bytes - _PART_BYTES * len(self._parts))
        self._partial = None
        self._parts = []
        self._parts_bytes = 0

    def _receive_one(self, body: bytes, delivery: int, *, settled: bool) -> None:
        session = self._session
        try:
            body, flags, expires, due = look_into(
                body, session.now_ms(), ids=session.limits.duplicate_detection
            )
        except RefusedError as error:
            self.count_one()
            self._size = len(body)
            if self.turn_away(delivery, error.refusal, settled=settled):
                self.grant()
            return
        self.receive(Run((body,), flags, expires, due), delivery, settled=settled)

    def end(self, *, closed: bool, lost: bool) -> Error | None:
        """End the link: routes are closed, an unfinished delivery is forgotten."""
        self._forget_partial()
        if self.producer is not None:
            self.producer.close()
        if self.relay is not None:
            self.relay.close()
        self.routes.close()
        return None
