"""Error conditions of the specification, and which of them says what we refuse [AMQP 2.8.15-18]."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway.model.amqp_types import Symbol
from gateway.model.errors import Code, Refusal
from gateway.model.retry import retry_after
from protocols.amqp.performatives import Close, Composite, Detach, Disposition, End, Error, Rejected

INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
DECODE_ERROR: Final = "amqp:decode-error"
RESOURCE_LIMIT: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
ILLEGAL_STATE: Final = "amqp:illegal-state"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"
CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
WINDOW_VIOLATION: Final = "amqp:session:window-violation"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE: Final = "amqp:link:message-size-exceeded"
STOLEN: Final = "amqp:link:stolen"
DETACH_FORCED: Final = "amqp:link:detach-forced"
UNKNOWN_TRANSACTION: Final = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK: Final = "amqp:transaction:rollback"
TRANSACTION_TIMEOUT: Final = "amqp:transaction:timeout"

#: Keys of the `info` of an error: our stable code, and the seconds after which it is worth trying
#: again, where waiting helps.
REASON: Final = Symbol("x-reason")
RETRY_AFTER: Final = Symbol("x-retry-after")

_CONDITIONS: Final = {
    Code.ADDRESS_FULL: RESOURCE_LIMIT,
    Code.PAGE_FULL: RESOURCE_LIMIT,
    Code.MEMORY_FULL: RESOURCE_LIMIT,
    Code.STORE_BUSY: RESOURCE_LIMIT,
    Code.DISK_FULL: RESOURCE_LIMIT,
    Code.QUOTA_REACHED: RESOURCE_LIMIT,
    Code.TOO_MANY: RESOURCE_LIMIT,
    Code.MAX_CONSUMERS: RESOURCE_LIMIT,
    Code.TOO_LARGE: MESSAGE_SIZE,
    Code.NOT_FOUND: NOT_FOUND,
    Code.NOT_AUTHORIZED: UNAUTHORIZED,
    Code.TOKEN_EXPIRED: UNAUTHORIZED,
    Code.ALREADY_EXISTS: NOT_ALLOWED,
    Code.DUPLICATE_ID: NOT_ALLOWED,
    Code.BAD_NAME: INVALID_FIELD,
    Code.BAD_VALUE: INVALID_FIELD,
    Code.BAD_SELECTOR: INVALID_FIELD,
    Code.BAD_MESSAGE: DECODE_ERROR,
    Code.ROUTING_MISMATCH: ILLEGAL_STATE,
    Code.IN_USE: ILLEGAL_STATE,
    Code.NOT_IMPLEMENTED: NOT_IMPLEMENTED,
    Code.QUEUE_DELETED: RESOURCE_DELETED,
    Code.STORE_FAILED: ILLEGAL_STATE,
    Code.SHUTTING_DOWN: CONNECTION_FORCED,
    Code.SLOW_CONSUMER: CONNECTION_FORCED,
    Code.OPERATOR: CONNECTION_FORCED,
}


class ConnectionFaultError(Exception):
    """The peer broke a rule of the connection: it is closed with this condition."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self.error = Error(condition=condition, description=text)


class SessionFaultError(ConnectionFaultError):
    """The peer broke a rule of a session: the session is ended."""


class LinkFaultError(ConnectionFaultError):
    """The peer broke a rule of a link: the link is detached."""


class TransactionFaultError(Exception):
    """A coordinator cannot do what it was asked for, or a transaction is not there."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.description)
        self.error = error


def error_of(refusal: Refusal) -> Error:
    """Return the wire's form of a refusal; `info` has our stable code, and how long to wait."""
    info: dict[str, object] = {REASON: refusal.code.value}
    seconds = retry_after(refusal)
    if seconds is not None:
        info[RETRY_AFTER] = seconds
    return Error(
        condition=_CONDITIONS.get(refusal.code, INTERNAL_ERROR),
        description=refusal.text,
        info=info,
    )


def too_long(size: int, most: int) -> Error:
    """Return why the connection ends: the peer takes no frame of a size that it is to have."""
    text = f"A frame of {size} bytes does not fit your max-frame-size of {most}."
    return Error(condition=FRAME_SIZE_TOO_SMALL, description=text)


def shortened(performative: Composite, excess: int) -> Composite | None:
    """Return a frame with `excess` bytes less of what its error says to people; None without one.

    A peer may take no more than 512 bytes in a frame, and texts quote names that it made up.
    """
    match performative:
        case Close(error=Error() as error) | End(error=Error() as error):
            return replace(performative, error=_cut_short(error, excess))
        case Detach(error=Error() as error):
            return replace(performative, error=_cut_short(error, excess))
        case Disposition(state=Rejected(error=Error() as error)):
            return replace(performative, state=Rejected(error=_cut_short(error, excess)))
    return None


def _cut_short(error: Error, excess: int) -> Error:
    text = (error.description or "").encode()
    kept = text[: max(0, len(text) - excess)].decode("utf-8", "ignore")
    return replace(error, description=kept or None)
