"""A STOMP connection as an operator sees it [gateway.model.peers]. Cold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from gateway.model.errors import Code, Refusal
from gateway.model.peers import Cause, ConsumerState, Ending, PeerState, SessionState, cause_of

if TYPE_CHECKING:
    from protocols.stomp.commands import Commands
    from protocols.stomp.greeting import Greeting
    from protocols.stomp.session import StompSession
    from protocols.stomp.traffic import Traffic

#: What a client says of itself is shown up to here.
_WORD_CHARS: Final = 200


class StompPeer:
    """Implements the Peer port; the session tells it what begins and ends."""

    __slots__ = (
        "_agent",
        "_client_id",
        "_commands",
        "_session",
        "_traffic",
        "ending",
        "on_login",
        "received",
        "refused",
    )

    def __init__(self, session: StompSession, commands: Commands, traffic: Traffic) -> None:
        self.on_login: Callable[[], None] = _nobody
        self.ending: Ending | None = None
        self.received = 0
        self.refused: Refusal | None = None  # what the ERROR says that is written now
        self._session = session
        self._commands = commands
        self._traffic = traffic
        self._agent = self._client_id = ""

    # ---- what the session tells

    def opened(self, greeting: Greeting) -> None:
        """The peer was let in."""
        self._client_id = greeting.client_id or ""
        self._agent = greeting.agent[:_WORD_CHARS]
        self.on_login()

    def end(self, cause: Cause, text: str = "") -> None:
        """Note why the connection ends; only the first cause counts."""
        if self.ending is None:
            self.ending = Ending(cause=cause, text=text)

    def finished(self) -> None:
        """The session ends: for what the last ERROR says, or because the client said DISCONNECT."""
        refusal = self.refused
        if refusal is None:
            self.end(Cause.CLIENT)
        elif refusal.code is Code.NOT_AUTHORIZED and self._session.version is None:
            self.end(Cause.LOGIN_REFUSED, refusal.text)
        else:
            self.end(cause_of(refusal.code), refusal.text)

    # ---- the Peer port

    def state(self) -> PeerState:
        """See the Peer port."""
        session = self._session
        product, _, version = self._agent.partition("/")
        return PeerState(
            protocol="STOMP",
            version="" if session.version is None else session.version.text,
            user=session.user,
            client_id=self._client_id,
            product=product,
            product_version=version,
            messages_in=self.received,
            messages_out=self._commands.subscriptions.delivered,
        )

    def sessions(self) -> list[SessionState]:
        """See the Peer port."""
        if self._session.version is None or self._session.ended:
            return []
        open_now = self._commands.subscriptions.by_id.values()
        return [
            SessionState(
                number=0,
                messages_in=self.received,
                messages_out=self._commands.subscriptions.delivered,
                in_flight=sum(one.subscription.in_flight for one in open_now),
                producers=len(list(self._traffic.addresses())),
                consumers=len(open_now),
            )
        ]

    def consumers(self) -> list[ConsumerState]:
        """See the Peer port."""
        return [
            ConsumerState(
                number=one.number,
                session=0,
                name=one.id,
                queue=one.subscription.queue_name,
                address=one.subscription.address,
                credit=one.credit,
                in_flight=one.subscription.in_flight,
                delivered=one.delivered,
                browser=one.subscription.browses,
            )
            for one in self._commands.subscriptions.by_id.values()
        ]

    def addresses(self) -> Iterator[str]:
        """See the Peer port."""
        yield from self._traffic.addresses()
        for one in self._commands.subscriptions.by_id.values():
            yield one.subscription.address

    def dismiss(self, refusal: Refusal) -> None:
        """See the Peer port."""
        self._session.expel(refusal)

    def end_consumer(self, number: int, refusal: Refusal) -> bool:
        """See the Peer port: the ERROR that tells it ends a connection of 1.2."""
        for one in self._commands.subscriptions.by_id.values():
            if one.number == number:
                one.removed(refusal)
                return True
        return False


def _nobody() -> None:
    """Stand for whoever wants to know of the login."""
