"""Answers of one connection that wait for the disk: step 6 of the durable order.

Accepted ranges and settled-back outcomes are kept in the order of their tickets, which only grow;
what one batch of the journal made durable leaves together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from gateway.model.ports import Broker, DurableListener
from protocols.amqp.performatives import Composite
from protocols.amqp.ports import SendersLink


class AnsweringSession(Protocol):
    """A session, as its answers see it that wait."""

    @property
    def ended(self) -> bool:
        """Whether we said end: nothing is answered any more."""

    def accept(self, first: int, count: int) -> None:
        """Add a range to what is accepted with the next write."""

    def write_frame(self, performative: Composite, payload: bytes = b"") -> None:
        """Write a frame."""

    def wake(self) -> None:
        """Have written what there is to write."""


class Confirmations:
    """See the module text. `listener` is told by the broker, and hands the ticket on to here."""

    __slots__ = ("_accepts", "_answers", "_broker", "_listener")

    def __init__(self, broker: Broker, listener: DurableListener) -> None:
        self._broker = broker
        self._listener = listener
        self._accepts: deque[tuple[int, AnsweringSession, int, int, SendersLink]] = deque()
        self._answers: deque[tuple[int, AnsweringSession, Composite]] = deque()

    def accept_later(
        self, ticket: int, session: AnsweringSession, first: int, count: int, *, link: SendersLink
    ) -> None:
        """Accept deliveries when the ticket is durable."""
        accepts = self._accepts
        if accepts:
            last = accepts[-1]
            if last[0] == ticket and last[4] is link and last[2] + last[3] == first:
                accepts[-1] = (ticket, session, last[2], last[3] + count, link)
                return
        elif not self._answers:
            self._broker.await_durable(self._listener)
        accepts.append((ticket, session, first, count, link))

    def answer_later(self, ticket: int, session: AnsweringSession, answer: Composite) -> None:
        """Write a frame when the ticket is durable; at once when it is 0."""
        if not ticket:
            session.write_frame(answer)
            return
        if not self._accepts and not self._answers:
            self._broker.await_durable(self._listener)
        self._answers.append((ticket, session, answer))

    def durable_up_to(self, ticket: int) -> None:
        """Let go what this ticket, or an earlier one, has made durable."""
        accepts, answers = self._accepts, self._answers
        while accepts and accepts[0][0] <= ticket:
            _, session, first, count, link = accepts.popleft()
            if not session.ended:
                session.accept(first, count)
                link.confirmed(count)
        while answers and answers[0][0] <= ticket:
            _, session, answer = answers.popleft()
            if not session.ended:
                session.write_frame(answer)
        if accepts or answers:
            self._broker.await_durable(self._listener)

    def consumed(self, tickets: Sequence[int]) -> None:
        """Accept what has one of these tickets, wherever it stands.

        Other answers stay: theirs is more than what was sent.
        """
        accepts = self._accepts
        if not any(each[0] in tickets for each in accepts):
            return
        self._accepts = deque(each for each in accepts if each[0] not in tickets)
        for ticket, session, first, count, link in accepts:
            if ticket in tickets and not session.ended:
                session.accept(first, count)
                link.confirmed(count)
                session.wake()

    def clear(self) -> None:
        """Confirm nothing any more: the peer is told nothing, and knows nothing [AMQP 2.6.12]."""
        self._accepts.clear()
        self._answers.clear()
