"""One transaction that is not discharged [AMQP 4.4]: what was posted and retired in it.

    open    -- transfer, disposition             -> open; failed when a part of it was refused
    open    -- idle too long with work in it     -> failed, and undone at once
    any     -- commit, give back                 -> over: all of it happens, or nothing does

A failed one can only be rolled back, and a commit is told why. What is sent in a transaction waits
in the broker's transaction. A delivery that is retired keeps its place among its session's
unsettled ones until the receiver settles it; its chunk belongs to an `Enlisted` meanwhile. When a
transaction is undone, what the receiver had settled goes back to its queue, and what it had not
stays with it, as if nothing had been said [AMQP 4.4.3]. An outcome for a delivery that the session
does not hold cannot be kept: it fails the transaction.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final, Protocol

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import Message
from gateway.model.ports import Broker, Producer
from gateway.model.run import Run
from gateway.model.serial import MASK
from protocols.amqp.conditions import (
    ILLEGAL_STATE,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    SessionFaultError,
    error_of,
)
from protocols.amqp.enlisted import Enlisted, alike, bare, size_of
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.outgoing import OutgoingLink, outcome_of
from protocols.amqp.performatives import (
    RELEASED,
    Disposition,
    Error,
    Outcome,
    TransactionalState,
)
from protocols.amqp.unsettled import Chunk, Holder, Unsettled, neighbours

#: What a message that waits for its commit costs beside its bytes.
_POST_BYTES: Final = 256


class DeliveringSession(Protocol):
    """A session, as a transaction sees it that has deliveries of it."""

    channel: int
    unsettled: Unsettled

    def settle_back(self, first: int, end: int, outcome: Outcome, ticket: int) -> None:
        """Settle the peer's unsettled outcome, once it cannot be undone [AMQP 2.6.12]."""


class TransactionOwner(Protocol):
    """A connection, as its transactions see it.

    Attributes:
        now: when the shell called last.
        retick: a transaction asks by it for another look at the time.
    """

    broker: Broker
    limits: AmqpLimits
    now: float
    retick: bool

    def unfinished_in(self, name: bytes) -> bool:
        """Whether a delivery of several frames is under way in this transaction."""


class OpenTransaction:
    """See the module text."""

    __slots__ = (
        "_owner",
        "_places",
        "_size",
        "_touched",
        "_work",
        "coordinator",
        "error",
        "held",
        "items",
        "name",
        "sessions",
    )

    def __init__(self, name: bytes, coordinator: object, owner: TransactionOwner) -> None:
        self.name = name
        self.coordinator = coordinator
        self._owner = owner
        self._work = owner.broker.begin()
        self._touched = owner.now
        self.items = 0
        self._size = 0  # of what was posted, as the shared budget counts it
        self.error: Error | None = None
        self.held: list[Enlisted] = []
        #: where the receiver has not settled all of it
        self.sessions: dict[int, DeliveringSession] = {}
        #: by channel, the places of all that was enlisted: (position, behind the last)
        self._places: dict[int, list[tuple[int, int]]] = {}

    # ---- work in it

    def post(self, route: Producer, run: Run) -> Error | None:
        """Add a message that was sent; returns why not, and then all of it has failed."""
        if self.error is not None:
            return self.error
        refusal = self._too_much(1, run.size)
        if refusal is None:
            refusal = self._work.send(route, run)
        if refusal is not None:
            return self.fail(refusal)
        self._count_work(1)
        self._hold(run.size + _POST_BYTES)
        return None

    def retire(
        self,
        session: DeliveringSession,
        disposition: Disposition,
        state: TransactionalState,
        last: int,
    ) -> None:
        """Take the outcome of deliveries in [AMQP 4.4.3].

        Raises SessionFaultError when another transaction has them.
        """
        outcome = outcome_of(state.outcome)
        if outcome is None and not disposition.settled:
            return
        first = disposition.first
        for chunk in session.unsettled.between(first, last):
            self._check(chunk, outcome)
        found = session.unsettled.pop_range(first, last)
        if self.error is None:
            self._check_held(session, first, last, found)
        said = 0
        if self.error is not None:
            outcome = bare(outcome)
        for chunk in found:
            owner = chunk.link
            if isinstance(owner, OutgoingLink) and owner.subscription is not None:
                said = said or size_of(outcome)
                default = outcome or owner.default_outcome or RELEASED
                chunk.link = self._enlist(owner, chunk.messages, default)
                self._note(session.channel, chunk.first, chunk.first + len(chunk.messages))
                self._count_work(len(chunk.messages))
            if not disposition.settled:
                session.unsettled.put(chunk)
                self.sessions[session.channel] = session
        if self.error is None and found:
            refusal = self._too_much(0, said)
            if refusal is not None:
                self.fail(refusal)
            else:
                self._hold(said)

    def _check(self, chunk: Chunk, wanted: Outcome | None) -> None:
        """Raise SessionFaultError when a delivery has another fate already."""
        owner = chunk.link
        if not isinstance(owner, Enlisted) or (
            owner.transaction is self
            and (self.error is not None or wanted in (None, owner.outcome))
        ):
            return  # in one that has failed no outcome will happen, whatever it says
        text = (
            f"A delivery is in transaction {owner.transaction.name.hex()!r} with the outcome "
            f"{owner.outcome.layout.name}; a second one came before it was discharged."
        )
        raise SessionFaultError(ILLEGAL_STATE, text)

    def _check_held(
        self, session: DeliveringSession, first: int, last: int, found: list[Chunk]
    ) -> None:
        """Fail when it is to have a delivery that is not there any more, or never was.

        What it has already may be told once more: settled, or by a link that is gone.
        """
        place = self._stranger(session.channel, session.unsettled.holes(first, last, found))
        if place is not None:
            text = (
                f"An outcome in the transaction is for delivery {place & MASK}, which this session "
                "does not hold: it was settled, was given back when its link was detached, or "
                "was never sent."
            )
            self.fail(Refusal(code=Code.NOT_FOUND, text=text))

    def _note(self, channel: int, first: int, end: int) -> None:
        """Remember that these deliveries are enlisted, also when they are settled."""
        places = self._places.setdefault(channel, [])
        if places and places[-1][1] == first:
            first = places.pop()[0]
        places.append((first, end))

    def _stranger(self, channel: int, holes: list[tuple[int, int]]) -> int | None:
        """Return the first place in `holes` that is not enlisted here; None when all are."""
        places = sorted(self._places.get(channel, ())) if holes else []
        for hole, end in holes:
            at = hole
            for first, behind in places:
                if first <= at < behind:
                    at = behind
            if at < end:
                return at
        return None

    def owns(self, owner: Holder) -> bool:
        """Return whether a chunk with this owner is enlisted here."""
        return type(owner) is Enlisted and owner.transaction is self

    def _enlist(self, link: OutgoingLink, messages: list[Message], outcome: Outcome) -> Enlisted:
        """Take deliveries in; neighbours with the same fate are one entry."""
        last = self.held[-1] if self.held else None
        if last is None or last.link is not link or not alike(last.outcome, outcome):
            last = Enlisted(link, link.enter(), outcome, self)
            self.held.append(last)
        last.messages += messages
        return last

    def fail(self, refusal: Refusal) -> Error:
        """A part was refused: what was sent is forgotten, what is retired waits for the end."""
        self.error = _rolled_back(refusal)
        self._work.rollback()
        self._work = self._owner.broker.begin()
        self._free()
        for held in self.held:
            held.outcome = bare(held.outcome) or held.outcome
        return self.error

    def _hold(self, size: int) -> None:
        """Count bytes that wait for its end."""
        self._size += size
        self._owner.limits.unfinished.held += size

    def _free(self) -> None:
        self._owner.limits.unfinished.held -= self._size
        self._size = 0

    def _count_work(self, items: int) -> None:
        if not self.items:
            self._owner.retick = True  # from now on it can be idle for too long
        self.items += items
        self._touched = self._owner.now

    def _too_much(self, items: int, size: int) -> Refusal | None:
        limits = self._owner.limits
        if self.items + items > limits.transaction_items_max:
            text = (
                f"The transaction has {self.items} messages and outcomes; the limit is "
                f"{limits.transaction_items_max}. Commit more often."
            )
            return Refusal(code=Code.TOO_MANY, text=text)
        if size and self._size + size > limits.transaction_bytes_max:
            text = (
                f"The transaction would hold {self._size + size} bytes; the limit is "
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

    # ---- its end

    def prepare(self) -> Error | None:
        """Return why it cannot be committed; None when it can."""
        if self.error is None:
            try:
                self._work.prepare()
            except RefusedError as refused:
                self.error = _rolled_back(refused.refusal)
        return self.error

    def commit(self) -> int:
        """Have all of it happen; returns the ticket after which it cannot be undone."""
        for held in self.held:
            held.apply(self._work)
        ticket = self._work.commit()
        self._free()
        for session in self.sessions.values():
            _settle_back(session, session.unsettled.drop(self.owns), ticket)
        for held in self.held:
            held.link.leave()
        return ticket

    def expire(self, now: float, seconds: float) -> float | None:
        """Undo it when it was idle for too long; returns when to look again.

        What holds nothing may stay open: clients declare the next one ahead of its first message.
        """
        if not self._size and not self.held:
            return None
        if now < self._touched + seconds:
            return self._touched + seconds
        text = f"The transaction was idle for {seconds:g} s and was rolled back."
        self._undo(Error(condition=TRANSACTION_TIMEOUT, description=text))
        return None

    def robbed(self, link: OutgoingLink) -> None:
        """A link is stolen: what the transaction holds of it is the thief's, so it is undone."""
        if any(held.link is link for held in self.held):
            text = f"Link {link.name!r}, whose deliveries the transaction held, was stolen; "
            self._undo(
                Error(condition=TRANSACTION_ROLLBACK, description=text + "it was rolled back.")
            )

    def _undo(self, error: Error) -> None:
        """Undo everything in it, and have it fail."""
        self.give_back()
        self._work = self._owner.broker.begin()
        self.error = error

    def give_back(self) -> None:
        """Undo everything in it."""
        kept: set[tuple[int, int]] = set()
        for session in self.sessions.values():
            for chunk in session.unsettled.of(self.owns):
                owner = chunk.link
                assert isinstance(owner, Enlisted), "asked for these"
                chunk.link = owner.link
                owner.link.attempted.update([m.seq for m in chunk.messages])
                kept.update((id(owner), m.seq) for m in chunk.messages)
        for held in self.held:
            back = [m for m in held.messages if (id(held), m.seq) not in kept]
            held.link.forget_attempts(back)
            if back:
                self._work.acknowledge(held.subscription, back)
        self._work.rollback()
        self._free()
        held_before, self.held = self.held, []
        self.sessions = {}
        self._places = {}
        self.items = 0
        for held in held_before:
            held.link.leave()


def _settle_back(session: DeliveringSession, found: list[Chunk], ticket: int) -> None:
    """Settle what the receiver left for the commit to settle."""
    for _, _, chunks in neighbours(found):
        for outcome, run in groupby(chunks, key=_outcome):
            part = list(run)
            end = part[-1].first + len(part[-1].messages)
            session.settle_back(part[0].first, end, outcome, ticket)


def _outcome(chunk: Chunk) -> Outcome:
    assert isinstance(chunk.link, Enlisted), "enlisted ones only"
    return chunk.link.outcome


def _rolled_back(refusal: Refusal) -> Error:
    """Return what a commit is told when a part of it is refused: the cause, with its code."""
    return Error(
        condition=TRANSACTION_ROLLBACK,
        description=f"{refusal.text} The transaction was rolled back.",
        info=error_of(refusal).info,
    )
