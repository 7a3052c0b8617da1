"""What the transfers of one delivery must say [AMQP 2.7.5]: the first, and those that go on. Pure.

A sender that breaks these rules does not know what its link agreed on: the link ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from protocols.amqp.conditions import INVALID_FIELD, NOT_IMPLEMENTED, LinkFaultError
from protocols.amqp.performatives import RCV_SECOND, Error, TransactionalState, Transfer

#: The message format of AMQP 1.0 itself [AMQP 3.2.16]; a first transfer without one means it.
FORMAT: Final = 0


def check_first(transfer: Transfer) -> None:
    """Raise LinkFaultError when a delivery cannot begin like this."""
    if transfer.delivery_tag is None:
        raise LinkFaultError(
            INVALID_FIELD,
            "The first transfer of a delivery must have a delivery-tag [AMQP 2.7.5].",
        )
    _check_mode(transfer)


def continued(first: Transfer, transfer: Transfer) -> Transfer:
    """Return the first frame of a delivery as a further one changes it; raises LinkFaultError."""
    state = transfer.state
    if isinstance(state, TransactionalState) and (
        not isinstance(first.state, TransactionalState) or first.state.txn_id != state.txn_id
    ):
        raise LinkFaultError(
            INVALID_FIELD,
            f"A frame of a delivery names transaction {state.txn_id[:32].hex()!r}, and its first "
            "frame did not [AMQP 4.4.4].",
        )
    if transfer.delivery_tag not in (None, first.delivery_tag):
        raise _differs("delivery-tag")
    if transfer.message_format not in (None, first.message_format or FORMAT):
        raise _differs("message-format")
    _check_mode(transfer)
    if transfer.settled and not first.settled:
        # Once one frame said so, the whole delivery is settled [AMQP 2.7.5].
        return replace(first, settled=True)
    return first


def _differs(field: str) -> LinkFaultError:
    return LinkFaultError(
        INVALID_FIELD,
        f"A further frame of a delivery has another {field} than its first one [AMQP 2.7.5].",
    )


def _check_mode(transfer: Transfer) -> None:
    if transfer.rcv_settle_mode == RCV_SECOND:
        raise LinkFaultError(
            INVALID_FIELD,
            "A transfer has rcv-settle-mode second, and its link was attached with first "
            "[AMQP 2.7.5].",
        )


def not_taken(transfer: Transfer) -> Error | None:
    """Return why a delivery is refused for what its transfer says, or None."""
    if transfer.message_format:
        return Error(
            condition=NOT_IMPLEMENTED,
            description=f"message-format {transfer.message_format} is not known here; "
            f"{FORMAT} is [AMQP 3.2.16].",
        )
    return None
