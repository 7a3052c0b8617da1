"""One STOMP connection as its parts see it: its peer, its state, its answers and its end.

    state     input        next
    LOGIN     LET_IN       OPEN
    LOGIN     END          ENDED     nothing more is read, what was delivered goes back
    OPEN      END          ENDED
    ENDED     LAST_WORD    CLOSED    all that is to be confirmed has gone, and the ERROR behind it

In ENDED no input counts; confirmations that wait for the disk still go out, in order. A connection
that is lost says no last word: it stays ENDED. The connection ends once; a second end changes
nothing. A refusal is an ERROR, behind which 1.0 and 1.1 go on and 1.2 ends.

It knows no bytes and no clock, and of its session only the port below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol

from gateway.model.errors import Code, Refusal
from gateway.model.peers import Cause, Ending, ending_of
from gateway.model.ports import ConsumerFacts
from gateway.model.principal import ANYBODY, Principal
from protocols.mistakes import Mistakes
from protocols.stomp import frame
from protocols.stomp.greeting import Greeting
from protocols.stomp.intake import Intake, Pause
from protocols.stomp.limits import StompLimits
from protocols.stomp.outbox import Outbox
from protocols.stomp.versions import Version

#: Refusals after which a connection ends in every version.
_FATAL: Final = (Code.DISK_FULL, Code.STORE_FAILED, Code.SHUTTING_DOWN)


class State(Enum):
    """Where a connection stands; see the module text."""

    LOGIN = "login"
    OPEN = "open"
    ENDED = "ended"
    CLOSED = "closed"


class Input(Enum):
    """What can happen to it."""

    LET_IN = "let-in"
    END = "end"
    LAST_WORD = "last-word"


_NEXT: Final[Mapping[tuple[State, Input], State]] = {
    (State.LOGIN, Input.LET_IN): State.OPEN,
    (State.LOGIN, Input.END): State.ENDED,
    (State.OPEN, Input.END): State.ENDED,
    (State.ENDED, Input.LAST_WORD): State.CLOSED,
}


class SessionPort(Protocol):
    """What a connection needs of the session that it belongs to."""

    wake: Callable[[], None]
    spent: Callable[[], bool]

    def settle(self) -> None:
        """Ask for the journal's word if something waits for it, and get what may go sent."""

    def give_back(self) -> None:
        """The connection has ended: give back what it held."""


class Connection:
    """Implements the Host of its subscriptions.

    Attributes:
        state: see the module text.
        intake: whether it is read.
        outbox: what goes out.
        look_due: what waits for room is to be looked at before the next output.
        now: seconds of the session's clock, as it told them last.
        name, remote: its own name, and the network address of the peer.
        version, client_id, agent: as CONNECT agreed on them or told them; none before.
        principal: for whom it acts, and for whose account what it opens counts.
        ending: why it has ended; None while it has not.
    """

    __slots__ = (
        "_mistakes",
        "_removed",
        "_session",
        "agent",
        "client_id",
        "ending",
        "intake",
        "limits",
        "look_due",
        "name",
        "now",
        "outbox",
        "principal",
        "remote",
        "state",
        "version",
    )

    def __init__(
        self, session: SessionPort, limits: StompLimits, intake: Intake, name: str, remote: str
    ) -> None:
        self._session = session
        self.limits = limits
        self.intake = intake
        self.name = name
        self.remote = remote
        self.outbox = Outbox(apart=limits.frames_apart)
        self.state = State.LOGIN
        self.now = 0.0
        self.version: Version | None = None
        self.client_id: str | None = None
        self.agent = ""
        self.principal = ANYBODY
        self.ending: Ending | None = None
        self.look_due = False
        self._removed: list[Refusal] = []
        self._mistakes = Mistakes(limits.errors_per_minute)

    @property
    def ended(self) -> bool:
        """Whether no input counts any more."""
        return self.state is State.ENDED or self.state is State.CLOSED

    def opened(self, greeting: Greeting, principal: Principal) -> None:
        """The peer was let in, and acts for `principal`."""
        self._step(Input.LET_IN)
        self.version = greeting.version
        self.client_id = greeting.client_id
        self.agent = greeting.agent
        self.principal = principal
        principal.remote = self.remote

    # ---- answers

    def refuse(self, refusal: Refusal, receipt: bytes | None) -> None:
        """Answer with ERROR behind earlier confirmations; 1.2 ends with it [STOMP 1.2 ERROR]."""
        if self.version is Version.V1_2 or refusal.code in _FATAL:
            self.fail(refusal, receipt)
        elif self._mistakes.too_many(self.now):
            text = self._mistakes.text(refusal.text)
            self.fail(Refusal(code=Code.TOO_MANY, text=text), receipt)
        else:
            self.outbox.confirm(0, self._error(refusal, receipt))

    def fail(
        self, refusal: Refusal, receipt: bytes | None = None, *, ending: Ending | None = None
    ) -> None:
        """End with ERROR; `ending` is for the log, where the refusal does not say it all."""
        if ending is None:
            ending = ending_of(refusal)
        self.end(ending, self._error(refusal, receipt))

    def finish(self, answer: bytes, ticket: int) -> None:
        """End since the peer asked for it, with `answer` after `ticket`."""
        self.end(Ending(cause=Cause.CLIENT), answer, ticket)

    def end(self, ending: Ending, answer: bytes, ticket: int = 0) -> None:
        """End: `answer` goes out after `ticket` and all that is to be confirmed, then we close."""
        if not self.ended:
            self._leave(ending)
            self.outbox.confirm(ticket, answer, self._last_word)

    def cut_off(self) -> None:
        """The peer is gone: nobody is told anything any more."""
        if not self.ended:
            self._leave(Ending(cause=Cause.CUT))
        self.outbox.forget_waiting()

    def store_failed(self, refusal: Refusal) -> None:
        """End without an outcome for what is unconfirmed."""
        self.outbox.failed()
        self.fail(refusal)
        # Where it had ended before, the last word was among what waited, and is forgotten.
        if self.state is State.ENDED:
            self._last_word()

    # ---- what traffic asks for

    def answer_later(self, refusal: Refusal | None, receipt: bytes | None) -> None:
        """Answer outside of a read what had to wait for somebody else, if we are still there."""
        if self.ended:
            return
        if refusal is not None:
            self.refuse(refusal, receipt)
        elif receipt is not None:
            self.outbox.confirm(0, frame.receipts((receipt,)))
        self._session.settle()

    def look_again(self) -> None:
        """Have what waits for room looked at before the next output."""
        self.look_due = True
        self._session.wake()

    def let_others(self) -> None:
        """Go on with what has come in another turn, when this one has taken its time."""
        if not self.ended and self._session.spent():
            self.intake.pause(Pause.TURN)

    def take_removed(self) -> list[Refusal]:
        """Return why subscriptions were ended that the peer was not told of, and forget it."""
        removed, self._removed = self._removed, []
        return removed

    # ---- what subscriptions ask for [protocols.stomp.subscription.Host]

    def must_hear_acks(self) -> None:
        """A delivery went out whose ACK must be read, whatever waits for room."""
        if self.intake.held_up:
            self.look_again()

    def flush_soon(self) -> None:
        """There is something to send."""
        self._session.wake()

    def facts(self, subscription: str) -> ConsumerFacts:
        """Say who has a subscription."""
        return ConsumerFacts(
            protocol="STOMP",
            connection=self.name,
            remote=self.remote,
            user=self.principal.user,
            name=subscription,
        )

    def expel(self, refusal: Refusal) -> None:
        """Answer with ERROR and end."""
        if not self.ended:
            self.fail(refusal)
            self._session.settle()

    def subscription_removed(self, refusal: Refusal) -> None:
        """The queue side has ended a subscription.

        The broker is in the middle of removing the queue: what follows is done before the next
        output.
        """
        self._removed.append(refusal)
        self.look_again()

    # ---- ending

    def _error(self, refusal: Refusal, receipt: bytes | None) -> bytes:
        return frame.error(refusal, receipt, version=self.version or Version.V1_0)

    def _leave(self, ending: Ending) -> None:
        """Give everything back; no input counts from here on."""
        self._step(Input.END)
        self.ending = ending
        self.intake.end()
        self.outbox.starved.clear()
        self._session.give_back()

    def _last_word(self) -> None:
        self._step(Input.LAST_WORD)

    def _step(self, what: Input) -> None:
        following = _NEXT.get((self.state, what))
        assert following is not None, f"{what.value} in state {self.state.value}"
        self.state = following
