"""Deliveries whose outcome is part of a transaction, and such outcomes [AMQP 4.4.3]. Cold."""

from __future__ import annotations

from dataclasses import replace

from gateway.model.message import Message
from gateway.model.ports import Subscription, Transaction
from protocols.amqp.outgoing import OutgoingLink
from protocols.amqp.performatives import (
    Accepted,
    Modified,
    Outcome,
    Rejected,
    encode_performative,
)
from protocols.amqp.ports import TransactionPort


class Enlisted:
    """Deliveries of one link that will have one outcome if their transaction is committed."""

    __slots__ = ("link", "messages", "outcome", "subscription", "transaction")

    def __init__(
        self, link: OutgoingLink, subscription: Subscription, outcome: Outcome, one: TransactionPort
    ) -> None:
        self.link = link
        self.subscription = subscription
        self.outcome = outcome
        self.transaction = one
        self.messages: list[Message] = []

    def settle(self, outcome: Outcome | None, messages: list[Message]) -> int:
        """The receiver settles them outside: it forgets them, the transaction has them still."""
        return 0

    def delivered_on(self, link: object) -> bool:
        """See the Holder port."""
        return link is self.link

    def apply(self, work: Transaction) -> None:
        """Tell the broker's transaction what is to happen to them."""
        match self.outcome:
            case Accepted():
                self.link.forget_attempts(self.messages)
                work.acknowledge(self.subscription, self.messages)
            case Rejected():
                self.link.forget_attempts(self.messages)
                work.reject(self.subscription, self.messages, dead_letter=True)
            case Modified(delivery_failed=failed, undeliverable_here=here, message_annotations=add):
                if add:
                    limit = self.link.annotated_max
                    work.annotate(self.subscription, self.messages, add, limit)
                self._release(work, failed=failed, here=here)
            case _:
                self._release(work, failed=False, here=False)

    def _release(self, work: Transaction, *, failed: bool, here: bool) -> None:
        for messages, tried in self.link.by_attempt(self.messages, failed=failed):
            work.release(self.subscription, messages, failed=tried, undeliverable_here=here)


def alike(one: Outcome, other: Outcome) -> bool:
    """Whether outcomes do the same; annotations that Python calls equal may differ in type."""
    if isinstance(one, Modified) and one.message_annotations:
        return one is other
    return one == other


def size_of(outcome: Outcome | None) -> int:
    """Return how many bytes an outcome holds beside its name: annotations, or an error."""
    match outcome:
        case Modified(message_annotations=said) | Rejected(error=said) if said:
            return len(encode_performative(outcome))
        case _:
            return 0


def bare(outcome: Outcome | None) -> Outcome | None:
    """Return an outcome without what it says beside: it will not happen."""
    match outcome:
        case Modified():
            return replace(outcome, message_annotations=None)
        case Rejected():
            return Rejected()
        case _:
            return outcome
