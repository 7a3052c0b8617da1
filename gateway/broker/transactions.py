"""One transaction for both protocols: sends and settlements that happen together or not at all.

Nothing is done before commit but remembering, so that rollback and a lost connection cost nothing.
At commit all records go into one journal batch, which is durable whole or not at all; nobody is
given what was sent before it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Protocol

from gateway.model.amqp_types import Value
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import Message
from gateway.model.ports import Producer, Send, Subscription
from gateway.model.run import Run

#: Work of one transaction, from the limits for STOMP transactions: more is refused, not stored.
ITEMS_MAX = 10_000
BYTES_MAX = 64 << 20

#: messages that leave their queue, and by whom
Settled = tuple[Subscription, list[Message]]
#: messages that go back: by whom, whether that counts as an attempt, whether never to them again
Return = tuple[Subscription, list[Message], bool, bool]
#: messages that go back with annotations, and how many bytes one may have then
Annotated = tuple[Subscription, list[Message], Mapping[str, Value], int]


class Core(Protocol):
    """What a transaction needs of the gateway."""

    def begin_atomic(self) -> None: ...

    def end_atomic(self, ticket: int) -> None: ...

    def full_disk(self, producer: Producer, flags: int) -> Refusal | None:
        """Return why a full disk takes no further message, or None."""

    def refusal(self, sends: Sequence[Send], leaving: Sequence[Settled]) -> Refusal | None:
        """Return why not all of these would be taken now, or None; `leaving` makes room."""

    def send_all(self, sends: Sequence[Send]) -> int:
        """Send what `refusal` had nothing against; returns the ticket."""


class Work:
    """Implements the Transaction port."""

    __slots__ = (
        "_acknowledged",
        "_annotated",
        "_bytes",
        "_core",
        "_ended",
        "_prepared",
        "_rejected",
        "_returned",
        "_sends",
    )

    def __init__(self, core: Core) -> None:
        self._core = core
        self._sends: list[Send] = []
        self._acknowledged: list[Settled] = []
        self._rejected: list[Settled] = []
        self._returned: list[Return] = []
        self._annotated: list[Annotated] = []
        self._bytes = 0
        self._prepared = False
        self._ended = False

    def send(self, producer: Producer, run: Run) -> Refusal | None:
        """Remember a send; returns a refusal when the transaction is too large for one more.

        A full disk refuses it too, but not the commit of what was sent before.
        """
        refusal = self._core.full_disk(producer, run.flags)
        if refusal is not None:
            return refusal
        if len(self._sends) >= ITEMS_MAX or self._bytes + run.size > BYTES_MAX:
            return Refusal(
                code=Code.TOO_LARGE,
                text=f"A transaction may hold {ITEMS_MAX} sends and {BYTES_MAX} bytes; "
                f"this one holds {len(self._sends)} and {self._bytes}. "
                "Commit more often.",
            )
        if producer.stamps:
            run = producer.stamped(run)
        self._sends.append((producer, run))
        self._bytes += run.size
        return None

    def acknowledge(self, subscription: Subscription, messages: list[Message]) -> None:
        """Remember an acknowledgement; the messages stay in delivery until the end."""
        self._acknowledged.append((subscription, messages))

    def reject(
        self, subscription: Subscription, messages: list[Message], *, dead_letter: bool
    ) -> None:
        """Remember a refusal by the consumer."""
        if dead_letter:
            self._rejected.append((subscription, messages))
        else:
            self._returned.append((subscription, messages, True, False))

    def release(
        self,
        subscription: Subscription,
        messages: list[Message],
        *,
        failed: bool = False,
        undeliverable_here: bool = False,
    ) -> None:
        """Remember that the consumer gives them back."""
        self._returned.append((subscription, messages, failed, undeliverable_here))

    def annotate(
        self,
        subscription: Subscription,
        messages: list[Message],
        annotations: Mapping[str, Value],
        size_max: int,
    ) -> None:
        """Remember what the consumer adds to those that it gives back."""
        self._annotated.append((subscription, messages, annotations, size_max))

    def prepare(self) -> None:
        """See the Transaction port."""
        refusal = self._core.refusal(self._sends, self._acknowledged + self._rejected)
        if refusal is not None:
            raise RefusedError(refusal)
        self._prepared = True

    def commit(self) -> int:
        """Do all of it; returns the ticket.

        Raises RefusedError when one of its sends would be refused: then nothing is done.
        """
        assert not self._ended, "a transaction ends once"
        if not self._prepared:
            self.prepare()
        self._ended = True
        ticket = 0
        self._core.begin_atomic()
        try:
            ticket = self._core.send_all(self._sends)
            for subscription, messages in self._acknowledged:
                ticket = max(ticket, subscription.acknowledge(messages))
            for subscription, messages in self._rejected:
                ticket = max(ticket, subscription.reject(messages))
            for subscription, messages, annotations, size_max in self._annotated:
                subscription.annotate(messages, annotations, size_max)
            ticket = max(ticket, _give_back(self._returned))
        finally:
            self._core.end_atomic(ticket)
        return ticket

    def rollback(self) -> None:
        """Forget the sends; what was settled here goes back with one attempt more."""
        assert not self._ended, "a transaction ends once"
        self._ended = True
        held = self._acknowledged + self._rejected + [one[:2] for one in self._returned]
        _give_back([(subscription, messages, True, False) for subscription, messages in held])


def _give_back(held: list[Return]) -> int:
    """Release messages; returns the ticket.

    Newest first in each queue, however they were settled: a full ring keeps the newest.
    """
    queues: defaultdict[str, list[tuple[int, Return, Message]]] = defaultdict(list)
    for entry in held:
        queues[entry[0].queue_name] += [(m.seq, entry, m) for m in entry[1]]
    ticket = 0
    for entries in queues.values():
        entries.sort(key=lambda entry: entry[0], reverse=True)
        for _, run in groupby(entries, key=lambda entry: _alike(entry[1])):
            part = list(run)
            subscription, _, failed, here = part[0][1]
            messages = [m for _, _, m in part]
            ticket = max(
                ticket,
                subscription.release(
                    messages, failed=failed, undeliverable_here=here, delayed=True
                ),
            )
    return ticket


def _alike(entry: Return) -> tuple[int, bool, bool]:
    """Return what neighbours must have in common to go back in one call."""
    return id(entry[0]), entry[2], entry[3]
