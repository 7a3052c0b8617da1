"""Open transactions of a connection by their names, with limits and a time-out.

    state     input            next
    OPEN      SEND, ACK, NACK  OPEN
    OPEN      FAIL             FAILED     one of these was refused
    OPEN      COMMIT           OVER       all of it happens, with one ticket
    OPEN      EXPIRE           EXPIRED    idle too long: rolled back, COMMIT will be told why
    FAILED    EXPIRE           EXPIRED    it holds nothing that others could have
    the three ROLLBACK         OVER       nothing happens: ABORT, loss, or a COMMIT that is refused

COMMIT of a failed or expired transaction is refused and rolls back: all or nothing. The name of one
stays until COMMIT or ABORT.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from gateway.model.budget import Budget
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import Message
from gateway.model.ports import Broker, Transaction
from protocols.stomp.heads import shown
from protocols.stomp.limits import StompLimits
from protocols.stomp.sending import Route
from protocols.stomp.subscription import StompConsumer


class State(Enum):
    """Where a transaction stands; see the module text."""

    OPEN = "open"
    FAILED = "failed"
    EXPIRED = "expired"
    OVER = "over"


class Input(Enum):
    """What ends it, or spoils it."""

    FAIL = "fail"
    EXPIRE = "expire"
    COMMIT = "commit"
    ROLLBACK = "rollback"


_NEXT: Final[Mapping[tuple[State, Input], State]] = {
    (State.OPEN, Input.FAIL): State.FAILED,
    (State.OPEN, Input.EXPIRE): State.EXPIRED,
    (State.OPEN, Input.COMMIT): State.OVER,
    (State.OPEN, Input.ROLLBACK): State.OVER,
    (State.FAILED, Input.EXPIRE): State.EXPIRED,
    (State.FAILED, Input.ROLLBACK): State.OVER,
    (State.EXPIRED, Input.ROLLBACK): State.OVER,
}


class NamedTransaction:
    """One transaction.

    Attributes:
        state: see the module text.
        work: the broker's side.
        frames, size: what is in it, and the bytes of its SENDs.
        touched: when a frame came for it last.
        refusal: why its COMMIT will be refused; None while it is OPEN.
        consumers: the subscriptions whose deliveries it settles.
    """

    __slots__ = (
        "_budget",
        "consumers",
        "frames",
        "refusal",
        "size",
        "state",
        "touched",
        "work",
    )

    def __init__(self, work: Transaction, now: float, budget: Budget) -> None:
        self._budget = budget
        self.state = State.OPEN
        self.work = work
        self.frames = 0
        self.size = 0
        self.touched = now
        self.refusal: Refusal | None = None
        self.consumers: set[StompConsumer] = set()

    def grow(self, size: int) -> None:
        """Count a SEND of so many bytes, here and among all connections."""
        self.frames += 1
        self.size += size
        self._budget.held += size

    def fail(self, refusal: Refusal) -> None:
        """A part was refused, so that the whole can only be rolled back."""
        self._step(Input.FAIL)
        self.refusal = refusal

    def expire(self, limit: float) -> None:
        """It was idle for too long: undo it; what failed before keeps its reason."""
        self._step(Input.EXPIRE)
        self._undo()
        if self.refusal is None:
            text = f"The transaction was idle for {limit:g} s and was rolled back."
            self.refusal = Refusal(code=Code.NOT_FOUND, text=text)

    def commit(self) -> int:
        """Do all of it; returns the ticket. Raises RefusedError, then none of it has happened."""
        if self.refusal is not None:
            self.rollback()
            raise RefusedError(self.refusal)
        try:
            ticket = self.work.commit()
        except RefusedError:
            self.rollback()
            raise
        self._step(Input.COMMIT)
        self._free()
        return ticket

    def rollback(self) -> None:
        """End it; none of it has happened."""
        undone = self.state is State.EXPIRED
        self._step(Input.ROLLBACK)
        if not undone:
            self._undo()

    def _step(self, what: Input) -> None:
        following = _NEXT.get((self.state, what))
        assert following is not None, f"{what.value} in state {self.state.value}"
        self.state = following

    def _undo(self) -> None:
        self.work.rollback()
        self._free()

    def _free(self) -> None:
        """Give its bytes back, and let subscriptions end that were kept for it."""
        self._budget.held -= self.size
        self.size = 0
        consumers, self.consumers = self.consumers, set()
        for consumer in consumers:
            consumer.leave_transaction()


class Transactions:
    """The transactions of one connection."""

    __slots__ = ("_broker", "_limits", "_open")

    def __init__(self, broker: Broker, limits: StompLimits) -> None:
        self._broker = broker
        self._limits = limits
        self._open: dict[str, NamedTransaction] = {}

    def begin(self, name: str, now: float) -> None:
        """Start one; raises RefusedError (already-exists, too-many)."""
        if name in self._open:
            raise RefusedError.of(
                Code.ALREADY_EXISTS,
                f"Transaction '{shown(name)}' is already started; COMMIT or ABORT it first.",
            )
        if len(self._open) >= self._limits.transactions_max:
            raise RefusedError.of(
                Code.TOO_MANY,
                f"This connection has {len(self._open)} open transactions, which is the limit; "
                "COMMIT or ABORT one first.",
            )
        self._open[name] = NamedTransaction(self._broker.begin(), now, self._limits.unfinished)

    def send(self, name: str, route: Route, stored: bytes, now: float) -> None:
        """Add a SEND; raises RefusedError, after which the transaction can only be rolled back."""
        one = self._get(name)
        self._count(one, len(stored), now)
        refusal = one.work.send(route.sender.producer, route.run((stored,)))
        if refusal is not None:
            self._fail(one, refusal)

    def acknowledge(
        self, name: str, consumer: StompConsumer, messages: list[Message], now: float
    ) -> None:
        """Add an ACK; raises RefusedError as `send`."""
        one = self._enter(name, consumer, now)
        one.work.acknowledge(consumer.subscription, messages)

    def reject(
        self, name: str, consumer: StompConsumer, messages: list[Message], *, now: float, dead: bool
    ) -> None:
        """Add a NACK; `dead` sends the messages to the dead-letter address at commit."""
        one = self._enter(name, consumer, now)
        one.work.reject(consumer.subscription, messages, dead_letter=dead)

    def settles(self, name: str) -> bool:
        """Whether a transaction holds ACKs or NACKs, which its COMMIT carries out."""
        one = self._open.get(name)
        return one is not None and bool(one.consumers)

    def check(self, name: str, now: float) -> None:
        """Raise RefusedError when an ACK or NACK in this transaction would not be taken."""
        one = self._get(name)
        self._count(one, 0, now)

    def commit(self, name: str) -> int:
        """Do all of it; returns the ticket. Raises RefusedError, then none of it has happened."""
        return self._pop(name).commit()

    def abort(self, name: str) -> None:
        """Forget all of it; raises RefusedError (not-found)."""
        self._pop(name).rollback()

    def abort_all(self) -> None:
        """Forget everything: the connection ends."""
        for name in list(self._open):
            self.abort(name)

    def expire(self, now: float) -> None:
        """Roll back what has been idle for too long; what failed before keeps its reason."""
        limit = self._limits.transaction_seconds
        for one in self._open.values():
            if one.state is not State.EXPIRED and now - one.touched >= limit:
                one.expire(limit)

    def _get(self, name: str) -> NamedTransaction:
        one = self._open.get(name)
        if one is None:
            raise RefusedError.of(
                Code.NOT_FOUND, f"No transaction '{shown(name)}' is started; BEGIN it first."
            )
        return one

    def _pop(self, name: str) -> NamedTransaction:
        one = self._get(name)
        del self._open[name]
        return one

    def _enter(self, name: str, consumer: StompConsumer, now: float) -> NamedTransaction:
        one = self._get(name)
        assert one.state is State.OPEN, "`check` has said so before anything was taken"
        if consumer not in one.consumers:
            one.consumers.add(consumer)
            consumer.enter_transaction()
        one.frames += 1
        one.touched = now
        return one

    def _count(self, one: NamedTransaction, size: int, now: float) -> None:
        """Raise RefusedError when it has failed or would pass a limit with `size` more."""
        if one.refusal is not None:
            raise RefusedError(one.refusal)
        limits = self._limits
        one.touched = now
        if one.frames >= limits.transaction_frames_max:
            text = (
                f"The transaction has {one.frames} frames, which is the limit. Commit more often."
            )
            self._fail(one, Refusal(code=Code.TOO_MANY, text=text))
        if one.size + size > limits.transaction_bytes_max:
            text = (
                f"The transaction would hold {one.size + size} bytes; the limit is "
                f"{limits.transaction_bytes_max}. Commit more often."
            )
            self._fail(one, Refusal(code=Code.TOO_LARGE, text=text))
        shared = limits.unfinished
        if size and shared.held + size > shared.maximum:
            text = (
                "Unfinished frames and transactions of all connections would hold more than "
                f"{shared.maximum} bytes, a quarter of global-max-size; commit more often, or try "
                "again later."
            )
            self._fail(one, Refusal(code=Code.MEMORY_FULL, text=text, transient=True))
        if size:
            one.grow(size)

    @staticmethod
    def _fail(one: NamedTransaction, refusal: Refusal) -> None:
        one.fail(refusal)
        raise RefusedError(refusal)
