"""Transactions of one AMQP connection, by their ids [AMQP 4]: what was posted and retired in them.

    declare                                      -> open
    open    -- transfer, disposition             -> open; failed when a part of it was refused
    open    -- idle too long with work in it     -> failed, and undone at once
    any     -- discharge                         -> ended: all of it happens, or nothing does
    any     -- its coordinator or connection end -> ended, nothing happens [AMQP 4.3]

A failed one can only be rolled back, and a commit is told why. What is sent in a transaction waits
in the broker's transaction. A delivery that is retired keeps its place among its session's
unsettled ones until the receiver settles it; its chunk belongs to an `Enlisted` meanwhile. When a
transaction is undone, what the receiver had settled goes back to its queue, and what it had not
stays with it, as if nothing had been said [AMQP 4.4.3]. An outcome for a delivery that the session
does not hold cannot be kept: it fails the transaction.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import Message
from gateway.model.ports import Producer, Subscription, Transaction
from gateway.model.run import Run
from gateway.model.serial import MASK
from protocols.amqp.conditions import (
    ILLEGAL_STATE,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    UNKNOWN_TRANSACTION,
    LinkFaultError,
    SessionFaultError,
    TransactionFaultError,
    error_of,
)
from protocols.amqp.outgoing import OutgoingLink, outcome_of
from protocols.amqp.performatives import (
    RELEASED,
    Accepted,
    Disposition,
    Error,
    Modified,
    Outcome,
    Rejected,
    TransactionalState,
    encode_performative,
)
from protocols.amqp.unsettled import Chunk, neighbours

if TYPE_CHECKING:
    from protocols.amqp.connection import AmqpConnection
    from protocols.amqp.session import AmqpSession

#: What a message that waits for its commit costs beside its bytes.
_POST_BYTES: Final = 256


class Enlisted:
    """Deliveries of one link that will have one outcome if their transaction is committed."""

    __slots__ = ("link", "messages", "outcome", "subscription", "transaction")

    def __init__(
        self, link: OutgoingLink, subscription: Subscription, outcome: Outcome, one: OpenTransaction
    ) -> None:
        self.link = link
        self.subscription = subscription
        self.outcome = outcome
        self.transaction = one
        self.messages: list[Message] = []

    def settle(self, outcome: Outcome | None, messages: list[Message]) -> int:
        """The receiver settles them outside: it forgets them, the transaction has them still."""
        return 0

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


def _alike(one: Outcome, other: Outcome) -> bool:
    """Whether outcomes do the same; annotations that Python calls equal may differ in type."""
    if isinstance(one, Modified) and one.message_annotations:
        return one is other
    return one == other


class OpenTransaction:
    """One transaction that is not discharged."""

    __slots__ = (
        "coordinator",
        "error",
        "held",
        "items",
        "name",
        "places",
        "sessions",
        "size",
        "touched",
        "work",
    )

    def __init__(self, name: bytes, coordinator: object, work: Transaction, now: float) -> None:
        self.name = name
        self.coordinator = coordinator
        self.work = work
        self.touched = now
        self.items = 0
        self.size = 0  # of what was posted, as the shared budget counts it
        self.error: Error | None = None
        self.held: list[Enlisted] = []
        #: where the receiver has not settled all of it
        self.sessions: dict[int, AmqpSession] = {}
        #: by channel, the places of all that was enlisted: (position, behind the last)
        self.places: dict[int, list[tuple[int, int]]] = {}

    def note(self, channel: int, first: int, end: int) -> None:
        """Remember that these deliveries are enlisted, also when they are settled."""
        places = self.places.setdefault(channel, [])
        if places and places[-1][1] == first:
            first = places.pop()[0]
        places.append((first, end))

    def stranger(self, channel: int, holes: list[tuple[int, int]]) -> int | None:
        """Return the first place in `holes` that is not enlisted here; None when all are."""
        places = sorted(self.places.get(channel, ())) if holes else []
        for hole, end in holes:
            at = hole
            for first, behind in places:
                if first <= at < behind:
                    at = behind
            if at < end:
                return at
        return None

    def owns(self, owner: object) -> bool:
        """Return whether a chunk with this owner is enlisted here."""
        return type(owner) is Enlisted and owner.transaction is self

    def enlist(self, link: OutgoingLink, messages: list[Message], outcome: Outcome) -> Enlisted:
        """Take deliveries in; neighbours with the same fate are one entry."""
        last = self.held[-1] if self.held else None
        if last is None or last.link is not link or not _alike(last.outcome, outcome):
            last = Enlisted(link, link.enter(), outcome, self)
            self.held.append(last)
        last.messages += messages
        return last


class Transactions:
    """See the module text."""

    __slots__ = ("_connection", "_count", "_limits", "_open")

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._limits = connection.limits
        self._open: dict[bytes, OpenTransaction] = {}
        self._count = 0

    # ---- declared and discharged

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
        work = self._connection.broker.begin()
        self._open[name] = OpenTransaction(name, coordinator, work, self._connection.now)
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

    def discharge(self, name: bytes, *, fail: bool) -> int:
        """End one; returns the ticket after which it cannot be undone.

        Raises TransactionFaultError when it is unknown, or was rolled back instead of committed;
        LinkFaultError when a delivery that belongs to it has not come whole [AMQP 4.4.4].
        """
        one = self.get(name)
        if self._incomplete(name):
            self._undo(one)
            text = "A transaction was discharged while a message in it had not come whole"
            raise LinkFaultError(TRANSACTION_ROLLBACK, f"{text}; it was rolled back.")
        if fail:
            self._undo(one)
            return 0
        if one.error is None:
            try:
                one.work.prepare()
            except RefusedError as refused:
                one.error = _rolled_back(refused.refusal)
        if one.error is not None:
            self._undo(one)
            raise TransactionFaultError(one.error)
        return self._commit(one)

    def _commit(self, one: OpenTransaction) -> int:
        del self._open[one.name]
        for held in one.held:
            held.apply(one.work)
        ticket = one.work.commit()
        self._free(one)
        for session in one.sessions.values():
            _settle_back(session, session.unsettled.drop(one.owns), ticket)
        for held in one.held:
            held.link.leave()
        return ticket

    def _undo(self, one: OpenTransaction) -> None:
        del self._open[one.name]
        self._give_back(one)

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

    def _incomplete(self, name: bytes) -> bool:
        """Return whether a delivery of several frames is under way in this transaction."""
        return any(
            link.posting_in == name
            for session in self._connection.sessions.values()
            for link in session.links.values()
            if not isinstance(link, OutgoingLink)
        )

    # ---- work in one

    def post(
        self,
        one: OpenTransaction,
        route: Producer,
        run: Run,
    ) -> Error | None:
        """Add a message that was sent; returns why not, and then all of it has failed."""
        if one.error is not None:
            return one.error
        refusal = self._too_much(one, 1, run.size)
        if refusal is None:
            refusal = one.work.send(route, run)
        if refusal is not None:
            return self.fail(one, refusal)
        self._count_work(one, 1)
        self._hold(one, run.size + _POST_BYTES)
        return None

    def retire(
        self, session: AmqpSession, disposition: Disposition, state: TransactionalState, last: int
    ) -> None:
        """Take the outcome of deliveries into a transaction [AMQP 4.4.3].

        Raises SessionFaultError when there is no such transaction, or another one has them.
        """
        try:
            one = self.get(state.txn_id)
        except TransactionFaultError as fault:
            text = fault.error.description or ""
            raise SessionFaultError(UNKNOWN_TRANSACTION, text) from fault
        outcome = outcome_of(state.outcome)
        if outcome is None and not disposition.settled:
            return
        first = disposition.first
        for chunk in session.unsettled.between(first, last):
            _check(chunk, one, outcome)
        found = session.unsettled.pop_range(first, last)
        if one.error is None:
            self._check_held(session, one, first, last, found)
        said = 0
        if one.error is not None:
            outcome = _bare(outcome)
        for chunk in found:
            owner = chunk.link
            if isinstance(owner, OutgoingLink) and owner.subscription is not None:
                said = said or _size_of(outcome)
                default = outcome or owner.default_outcome or RELEASED
                chunk.link = one.enlist(owner, chunk.messages, default)
                one.note(session.channel, chunk.first, chunk.first + len(chunk.messages))
                self._count_work(one, len(chunk.messages))
            if not disposition.settled:
                session.unsettled.put(chunk)
                one.sessions[session.channel] = session
        if one.error is None and found:
            refusal = self._too_much(one, 0, said)
            if refusal is not None:
                self.fail(one, refusal)
            else:
                self._hold(one, said)

    def _check_held(
        self,
        session: AmqpSession,
        one: OpenTransaction,
        first: int,
        last: int,
        found: list[Chunk[OutgoingLink | Enlisted]],
    ) -> None:
        """Fail a transaction that is to have a delivery which is not there any more, or never was.

        What the transaction has already may be told once more: settled, or by a link that is gone.
        """
        place = one.stranger(session.channel, session.unsettled.holes(first, last, found))
        if place is not None:
            text = (
                f"An outcome in the transaction is for delivery {place & MASK}, which this session "
                "does not hold: it was settled, was given back when its link was detached, or "
                "was never sent."
            )
            self.fail(one, Refusal(code=Code.NOT_FOUND, text=text))

    def fail(self, one: OpenTransaction, refusal: Refusal) -> Error:
        """A part was refused: what was sent is forgotten, what is retired waits for the end."""
        one.error = _rolled_back(refusal)
        self._forget_posts(one)
        for held in one.held:
            held.outcome = _bare(held.outcome) or held.outcome
        return one.error

    def _hold(self, one: OpenTransaction, size: int) -> None:
        """Count bytes that wait for its end."""
        one.size += size
        self._limits.unfinished.held += size

    def _count_work(self, one: OpenTransaction, items: int) -> None:
        if not one.items:
            self._connection.retick = True  # from now on it can be idle for too long
        one.items += items
        one.touched = self._connection.now

    def _too_much(self, one: OpenTransaction, items: int, size: int) -> Refusal | None:
        limits = self._limits
        if one.items + items > limits.transaction_items_max:
            text = (
                f"The transaction has {one.items} messages and outcomes; the limit is "
                f"{limits.transaction_items_max}. Commit more often."
            )
            return Refusal(code=Code.TOO_MANY, text=text)
        if size and one.size + size > limits.transaction_bytes_max:
            text = (
                f"The transaction would hold {one.size + size} bytes; the limit is "
                f"{limits.transaction_bytes_max}. Commit more often."
            )
            return Refusal(code=Code.TOO_LARGE, text=text)
        shared = limits.unfinished
        if size and shared.held + size + _POST_BYTES > shared.maximum:
            text = (
                "Unfinished deliveries and transactions of all connections would hold more than "
                f"{shared.maximum} bytes, a quarter of global-max-size; commit more often, or try "
                "again later."
            )
            return Refusal(code=Code.MEMORY_FULL, text=text, transient=True)
        return None

    # ---- undone

    def expire(self, now: float) -> float | None:
        """Undo what was idle for too long; returns when to look again.

        What holds nothing may stay open: clients declare the next one ahead of its first message.
        """
        seconds = self._limits.transaction_seconds
        deadlines = []
        for one in self._open.values():
            if not one.size and not one.held:
                continue
            if now < one.touched + seconds:
                deadlines.append(one.touched + seconds)
                continue
            text = f"The transaction was idle for {seconds:g} s and was rolled back."
            self._give_back(one)
            one.work = self._connection.broker.begin()
            one.error = Error(condition=TRANSACTION_TIMEOUT, description=text)
        return min(deadlines, default=None)

    def robbed(self, link: OutgoingLink) -> None:
        """A link is stolen: what transactions hold of it is the thief's, so they are undone."""
        for one in self._open.values():
            if any(held.link is link for held in one.held):
                self._give_back(one)
                one.work = self._connection.broker.begin()
                text = f"Link {link.name!r}, whose deliveries the transaction held, was stolen; "
                one.error = Error(
                    condition=TRANSACTION_ROLLBACK, description=text + "it was rolled back."
                )

    def _give_back(self, one: OpenTransaction) -> None:
        """Undo everything in it."""
        kept: set[tuple[int, int]] = set()
        for session in one.sessions.values():
            for chunk in session.unsettled.of(one.owns):
                owner = chunk.link
                assert isinstance(owner, Enlisted), "asked for these"
                chunk.link = owner.link
                owner.link.attempted.update([m.seq for m in chunk.messages])
                kept.update((id(owner), m.seq) for m in chunk.messages)
        for held in one.held:
            back = [m for m in held.messages if (id(held), m.seq) not in kept]
            held.link.forget_attempts(back)
            if back:
                one.work.acknowledge(held.subscription, back)
        one.work.rollback()
        self._free(one)
        held_before, one.held = one.held, []
        one.sessions = {}
        one.places = {}
        one.items = 0
        for held in held_before:
            held.link.leave()

    def _forget_posts(self, one: OpenTransaction) -> None:
        one.work.rollback()
        one.work = self._connection.broker.begin()
        self._free(one)

    def _free(self, one: OpenTransaction) -> None:
        self._limits.unfinished.held -= one.size
        one.size = 0


def _check(
    chunk: Chunk[OutgoingLink | Enlisted], one: OpenTransaction, wanted: Outcome | None
) -> None:
    """Raise SessionFaultError when a delivery has another fate already."""
    owner = chunk.link
    if not isinstance(owner, Enlisted) or (
        owner.transaction is one and (one.error is not None or wanted in (None, owner.outcome))
    ):
        return  # in one that has failed no outcome will happen, whatever it says
    text = (
        f"A delivery is in transaction {owner.transaction.name.hex()!r} with the outcome "
        f"{owner.outcome.layout.name}; a second one came before it was discharged."
    )
    raise SessionFaultError(ILLEGAL_STATE, text)


def _size_of(outcome: Outcome | None) -> int:
    """Return how many bytes an outcome holds beside its name: annotations, or an error."""
    match outcome:
        case Modified(message_annotations=said) | Rejected(error=said) if said:
            return len(encode_performative(outcome))
        case _:
            return 0


def _bare(outcome: Outcome | None) -> Outcome | None:
    """Return an outcome without what it says beside: it will not happen."""
    match outcome:
        case Modified():
            return replace(outcome, message_annotations=None)
        case Rejected():
            return Rejected()
        case _:
            return outcome


def _settle_back(
    session: AmqpSession, found: list[Chunk[OutgoingLink | Enlisted]], ticket: int
) -> None:
    """Settle what the receiver left for the commit to settle."""
    for _, _, chunks in neighbours(found):
        for outcome, run in groupby(chunks, key=_outcome):
            part = list(run)
            end = part[-1].first + len(part[-1].messages)
            session.settle_back(part[0].first, end, outcome, ticket)


def _outcome(chunk: Chunk[OutgoingLink | Enlisted]) -> Outcome:
    assert isinstance(chunk.link, Enlisted), "enlisted ones only"
    return chunk.link.outcome


def _rolled_back(refusal: Refusal) -> Error:
    """Return what a commit is told when a part of it is refused: the cause, with its code."""
    return Error(
        condition=TRANSACTION_ROLLBACK,
        description=f"{refusal.text} The transaction was rolled back.",
        info=error_of(refusal).info,
    )
