"""Transactions of one AMQP connection, by their ids [AMQP 4].

    declare                                      -> open
    open    -- discharge                         -> over: all of it happens, or nothing does
    open    -- its coordinator or connection end -> over, nothing happens [AMQP 4.3]

What happens to one while it is open: see `protocols.amqp.open_transaction`.
"""

from __future__ import annotations

from gateway.model.errors import Code, Refusal
from protocols.amqp.conditions import (
    TRANSACTION_ROLLBACK,
    UNKNOWN_TRANSACTION,
    LinkFaultError,
    SessionFaultError,
    TransactionFaultError,
    error_of,
)
from protocols.amqp.open_transaction import DeliveringSession, OpenTransaction, TransactionOwner
from protocols.amqp.outgoing import OutgoingLink
from protocols.amqp.performatives import Disposition, Error, TransactionalState


class Transactions:
    """See the module text."""

    __slots__ = ("_count", "_limits", "_open", "_owner")

    def __init__(self, owner: TransactionOwner) -> None:
        self._owner = owner
        self._limits = owner.limits
        self._open: dict[bytes, OpenTransaction] = {}
        self._count = 0

    def declare(self, coordinator: object) -> bytes:
        """Open one; returns its id. Raises TransactionFaultError when there are too many."""
        if len(self._open) >= self._limits.transactions_max:
            text = (
                f"This connection has {len(self._open)} open transactions, which is the limit; "
                "discharge one first."
            )
            raise TransactionFaultError(error_of(Refusal(code=Code.TOO_MANY, text=text)))
        self._count += 1
        name = self._count.to_bytes(8, "big")
        self._open[name] = OpenTransaction(name, coordinator, self._owner)
        return name

    def get(self, name: bytes) -> OpenTransaction:
        """Return an open transaction; raises TransactionFaultError (unknown-id)."""
        one = self._open.get(name)
        if one is None:
            text = (
                f"There is no transaction {name[:32].hex()!r}: it was not declared on this "
                "connection, or is over."
            )
            raise TransactionFaultError(Error(condition=UNKNOWN_TRANSACTION, description=text))
        return one

    def retire(
        self,
        session: DeliveringSession,
        disposition: Disposition,
        state: TransactionalState,
        last: int,
    ) -> None:
        """Take the outcome of deliveries into a transaction [AMQP 4.4.3].

        Raises SessionFaultError when there is no such transaction, or another one has them.
        """
        try:
            one = self.get(state.txn_id)
        except TransactionFaultError as fault:
            text = fault.error.description or ""
            raise SessionFaultError(UNKNOWN_TRANSACTION, text) from fault
        one.retire(session, disposition, state, last)

    def discharge(self, name: bytes, *, fail: bool) -> int:
        """End one; returns the ticket after which it cannot be undone.

        Raises TransactionFaultError when it is unknown, or was rolled back instead of committed;
        LinkFaultError when a delivery that belongs to it has not come whole [AMQP 4.4.4].
        """
        one = self.get(name)
        if self._owner.unfinished_in(name):
            self._undo(one)
            text = "A transaction was discharged while a message in it had not come whole"
            raise LinkFaultError(TRANSACTION_ROLLBACK, f"{text}; it was rolled back.")
        if fail:
            self._undo(one)
            return 0
        error = one.prepare()
        if error is not None:
            self._undo(one)
            raise TransactionFaultError(error)
        del self._open[name]
        return one.commit()

    def _undo(self, one: OpenTransaction) -> None:
        del self._open[one.name]
        one.give_back()

    def dropped(self, coordinator: object) -> None:
        """A coordinator link is gone: what it declared is rolled back [AMQP 4.3]."""
        for one in [one for one in self._open.values() if one.coordinator is coordinator]:
            self._undo(one)

    def end(self) -> None:
        """Roll back everything: the connection ends, and its receivers keep nothing."""
        for one in list(self._open.values()):
            for session in one.sessions.values():
                session.unsettled.drop(one.owns)
            self._undo(one)

    def expire(self, now: float) -> float | None:
        """Undo what was idle for too long; returns when to look again."""
        seconds = self._limits.transaction_seconds
        deadlines = [one.expire(now, seconds) for one in self._open.values()]
        return min([each for each in deadlines if each is not None], default=None)

    def robbed(self, link: OutgoingLink) -> None:
        """A link is stolen: what transactions hold of it is the thief's, so they are undone."""
        for one in self._open.values():
            one.robbed(link)
