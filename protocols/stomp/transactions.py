"""Open transactions of a connection by their names, with limits and a time-out.

    BEGIN    -> open
    open     -- SEND, ACK, NACK -->  open, or failed when one was refused
    open     -- COMMIT          -->  ended (all of it happens, with one ticket)
    open     -- idle too long   -->  expired: rolled back, the name stays so that COMMIT is told why
    failed   -- idle too long   -->  failed, rolled back: it holds nothing that others could have
    any      -- ABORT, loss     -->  ended (nothing happens)

COMMIT of a failed or expired transaction is refused and rolls back: all or nothing.
"""

from __future__ import annotations

from gateway.model.budget import Budget
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import Message
from gateway.model.ports import Broker, Transaction
from protocols.stomp.heads import shown
from protocols.stomp.limits import StompLimits
from protocols.stomp.sending import Route
from protocols.stomp.subscription import StompConsumer


class _Open:
    """One transaction."""

    __slots__ = ("_budget", "_over", "consumers", "failed", "frames", "size", "touched", "work")

    def __init__(self, work: Transaction, now: float, budget: Budget) -> None:
        self._budget = budget
        self.work = work
        self.frames = 0
        self.size = 0
        self.touched = now
        self.failed: Refusal | None = None
        self.consumers: set[StompConsumer] = set()
        self._over = False

    def grow(self, size: int) -> None:
        """Count a SEND of so many bytes, here and among all connections."""
        self.frames += 1
        self.size += size
        self._budget.held += size

    def rollback(self) -> None:
        """Undo it; once is enough."""
        if not self._over:
            self._over = True
            self.work.rollback()
            self.free()

    def free(self) -> None:
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
        self._open: dict[str, _Open] = {}

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
        self._open[name] = _Open(self._broker.begin(), now, self._limits.unfinished)

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
        one = self._pop(name)
        if one.failed is not None:
            one.rollback()
            raise RefusedError(one.failed)
        try:
            ticket = one.work.commit()
        except RefusedError:
            one.rollback()
            raise
        one.free()
        return ticket

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
            if now - one.touched < limit:
                continue
            one.rollback()
            if one.failed is None:
                one.failed = Refusal(
                    code=Code.NOT_FOUND,
                    text=f"The transaction was idle for {limit:g} s and was rolled back.",
                )

    def _get(self, name: str) -> _Open:
        one = self._open.get(name)
        if one is None:
            raise RefusedError.of(
                Code.NOT_FOUND, f"No transaction '{shown(name)}' is started; BEGIN it first."
            )
        return one

    def _pop(self, name: str) -> _Open:
        one = self._get(name)
        del self._open[name]
        return one

    def _enter(self, name: str, consumer: StompConsumer, now: float) -> _Open:
        one = self._get(name)
        if consumer not in one.consumers:
            one.consumers.add(consumer)
            consumer.enter_transaction()
        one.frames += 1
        one.touched = now
        return one

    def _count(self, one: _Open, size: int, now: float) -> None:
        """Raise RefusedError when it has failed or would pass a limit with `size` more."""
        if one.failed is not None:
            raise RefusedError(one.failed)
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
    def _fail(one: _Open, refusal: Refusal) -> None:
        """A part was refused, so that the whole can only be rolled back."""
        one.failed = refusal
        raise RefusedError(refusal)
