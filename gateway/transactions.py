"""One transaction for both protocols: sends and settlements that happen together or not at all.

Nothing is done before commit but remembering, so that rollback and a lost connection cost nothing.
At commit all records go into one journal batch, which is durable whole or not at all.
"""

from __future__ import annotations

from typing import Protocol

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import Message
from gateway.model.ports import Producer, Subscription

#: Work of one transaction, from the limits for STOMP transactions: more is refused, not stored.
ITEMS_MAX = 10_000
BYTES_MAX = 64 << 20


class Batches(Protocol):
    """What a transaction needs of the store."""

    def begin_atomic(self) -> None: ...

    def end_atomic(self) -> None: ...


class Work:
    """Implements the Transaction port."""

    __slots__ = ("_acknowledged", "_bytes", "_ended", "_rejected", "_sends", "_store")

    def __init__(self, store: Batches) -> None:
        self._store = store
        self._sends: list[tuple[Producer, bytes, int, int]] = []
        self._acknowledged: list[tuple[Subscription, list[Message]]] = []
        self._rejected: list[tuple[Subscription, list[Message], bool]] = []
        self._bytes = 0
        self._ended = False

    def send(self, producer: Producer, body: bytes, flags: int, expires: int = 0) -> Refusal | None:
        """Remember a send; returns a refusal when the transaction is too large for one more."""
        if len(self._sends) >= ITEMS_MAX or self._bytes + len(body) > BYTES_MAX:
            return Refusal(
                code=Code.TOO_LARGE,
                text=f"A transaction may hold {ITEMS_MAX} sends and {BYTES_MAX} bytes; "
                f"this one holds {len(self._sends)} and {self._bytes}. "
                "Commit more often.",
            )
        self._sends.append((producer, body, flags, expires))
        self._bytes += len(body)
        return None

    def acknowledge(self, subscription: Subscription, messages: list[Message]) -> None:
        """Remember an acknowledgement; the messages stay in delivery until the end."""
        self._acknowledged.append((subscription, messages))

    def reject(
        self, subscription: Subscription, messages: list[Message], *, dead_letter: bool
    ) -> None:
        """Remember a refusal by the consumer."""
        self._rejected.append((subscription, messages, dead_letter))

    def commit(self) -> int:
        """Do all of it; returns the ticket.

        Raises RefusedError when an address is full: then nothing is done.
        """
        assert not self._ended, "a transaction ends once"
        for producer, _, _, _ in self._sends:
            refusal = producer.blocked()
            if refusal is not None:
                raise RefusedError(refusal)
        self._ended = True
        ticket = 0
        self._store.begin_atomic()
        try:
            for producer, body, flags, expires in self._sends:
                ticket = max(ticket, producer.send([body], flags, expires), 0)
            for subscription, messages in self._acknowledged:
                ticket = max(ticket, subscription.acknowledge(messages))
            for subscription, messages, dead_letter in self._rejected:
                done = (
                    subscription.reject(messages)
                    if dead_letter
                    else subscription.release(messages, failed=True)
                )
                ticket = max(ticket, done)
        finally:
            self._store.end_atomic()
        return ticket

    def rollback(self) -> None:
        """Forget the sends; what was settled here goes back with one attempt more."""
        self._ended = True
        for subscription, messages in self._acknowledged:
            subscription.release(messages, failed=True)
        for subscription, messages, _ in self._rejected:
            subscription.release(messages, failed=True)
