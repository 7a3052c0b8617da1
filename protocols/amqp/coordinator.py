"""The link that transactions are declared and discharged on [AMQP 4.1-4.3]. Cold.

A message on it has one amqp-value section with a declare or a discharge. A declare is answered
`declared` with the new id; a discharge `accepted` when the commit is durable, or `rejected` with
the reason, which is also why the link is detached where its source does not list `rejected`. When
the link goes, what was declared on it and not discharged is rolled back.
"""

from __future__ import annotations

from typing import Final

from gateway.model.amqp_types import DecodeError, Described
from gateway.model.sections import BodyKind, scan
from protocols.amqp.conditions import (
    DECODE_ERROR,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    LinkFaultError,
    TransactionFaultError,
)
from protocols.amqp.incoming import IncomingLink
from protocols.amqp.performatives import (
    RCV_FIRST,
    ROLE_RECEIVER,
    Attach,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Error,
    FieldError,
    Rejected,
    Transfer,
    from_described,
)
from protocols.amqp.ports import SessionPort
from protocols.amqp.refusing import answers_of
from protocols.amqp.transfers import not_taken

#: What a coordinator here can do: no transactions over several resources, and no promoting to one.
CAPABILITIES: Final = (
    "amqp:local-transactions",
    "amqp:multi-txns-per-ssn",
    "amqp:multi-ssns-per-txn",
)
#: A discharge has less than a hundred bytes; sections that are ignored may stand before it.
MESSAGE_BYTES_MAX: Final = 4096


class CoordinatorLink(IncomingLink):
    """See the module text."""

    __slots__ = ()

    def __init__(self, session: SessionPort, attach: Attach) -> None:
        count = attach.initial_delivery_count or 0
        super().__init__(session, attach.name, attach.handle, delivery_count=count)
        self.answers = answers_of(attach.source, prefers_modified=False)
        self.message_max = MESSAGE_BYTES_MAX

    def receive_whole(self, transfer: Transfer, body: bytes) -> None:
        """Act on a declare or discharge. Raises LinkFaultError."""
        if transfer.settled:
            raise LinkFaultError(
                NOT_ALLOWED, "A declare or discharge came settled: its sender needs the outcome."
            )
        delivery = transfer.delivery_id
        assert delivery is not None, "checked by the session"
        self.count_one()
        try:
            self._perform(_command_of(transfer, body), delivery)
        except TransactionFaultError as fault:
            if not self.answers.rejects:
                detached = LinkFaultError(fault.error.condition, "")
                detached.error = fault.error
                raise detached from fault
            self._session.refuse(delivery, delivery, Rejected(error=fault.error))
        self.grant()

    def _perform(self, command: Declare | Discharge, delivery: int) -> None:
        session = self._session
        if isinstance(command, Declare):
            name = session.transactions.declare(self)
            session.refuse(delivery, delivery, Declared(txn_id=name))
            return
        ticket = session.transactions.discharge(command.txn_id, fail=command.fail)
        if ticket:
            self.unsettled += 1
        session.confirm(ticket, delivery, 1, self)

    def end(self, *, closed: bool, lost: bool) -> Error | None:
        """End the link, and what was declared on it."""
        self._session.transactions.dropped(self)
        return super().end(closed=closed, lost=lost)


def attach_coordinator(session: SessionPort, attach: Attach) -> CoordinatorLink:
    """Open a link to the coordinator, and say what that can do, whatever was asked for."""
    link = CoordinatorLink(session, attach)
    session.write_frame(
        Attach(
            name=attach.name,
            handle=attach.handle,
            role=ROLE_RECEIVER,
            snd_settle_mode=attach.snd_settle_mode,
            rcv_settle_mode=RCV_FIRST,
            source=attach.source,
            target=Coordinator(capabilities=CAPABILITIES),
            max_message_size=link.message_max,
        )
    )
    return link


def _command_of(transfer: Transfer, body: bytes) -> Declare | Discharge:
    """Return what a message asks the coordinator for; raises TransactionFaultError."""
    error = not_taken(transfer)
    if error is None and transfer.state is not None:
        error = Error(
            condition=INVALID_FIELD, description="A transfer to the coordinator has no state."
        )
    if error is not None:
        raise TransactionFaultError(error)
    try:
        sections = scan(body)
        value = sections.value() if sections.body_kind is BodyKind.VALUE else None
        command = from_described(value) if type(value) is Described else None
    except (DecodeError, FieldError) as broken:
        text = f"The message to the coordinator cannot be read: {broken}."
        raise TransactionFaultError(Error(condition=DECODE_ERROR, description=text)) from broken
    if isinstance(command, Declare) and command.global_id is not None:
        text = "A declare names a global-id; transactions over several resources are not offered."
        raise TransactionFaultError(Error(condition=NOT_IMPLEMENTED, description=text))
    if not isinstance(command, Declare | Discharge):
        text = "A coordinator takes a declare or a discharge in one amqp-value section."
        raise TransactionFaultError(Error(condition=INVALID_FIELD, description=text))
    return command
