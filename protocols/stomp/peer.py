"""A STOMP connection as an operator sees it [gateway.model.peers]. Cold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gateway.model.errors import Refusal
from gateway.model.peers import ConsumerState, Ending, PeerState, SessionState
from gateway.model.principal import Principal
from protocols.stomp.connection import Connection, State
from protocols.stomp.subscriptions import Subscriptions
from protocols.stomp.traffic import Traffic

#: What a client says of itself is shown up to here.
_WORD_CHARS: Final = 200


class StompPeer:
    """Implements the Peer port, by looking at the parts of a connection."""

    __slots__ = ("_connection", "_subscriptions", "_traffic", "on_login")

    def __init__(
        self, connection: Connection, subscriptions: Subscriptions, traffic: Traffic
    ) -> None:
        self.on_login: Callable[[], None] = _nobody
        self._connection = connection
        self._subscriptions = subscriptions
        self._traffic = traffic

    @property
    def ending(self) -> Ending | None:
        """See the Peer port."""
        return self._connection.ending

    @property
    def principal(self) -> Principal:
        """See the Peer port."""
        return self._connection.principal

    def state(self) -> PeerState:
        """See the Peer port."""
        connection = self._connection
        product, _, version = connection.agent[:_WORD_CHARS].partition("/")
        return PeerState(
            protocol="STOMP",
            version="" if connection.version is None else connection.version.text,
            user=connection.principal.user,
            by=connection.principal.by.value,
            client_id=connection.client_id or "",
            product=product,
            product_version=version,
            messages_in=self._traffic.received,
            messages_out=self._subscriptions.delivered,
        )

    def sessions(self) -> list[SessionState]:
        """See the Peer port."""
        if self._connection.state is not State.OPEN:
            return []
        open_now = self._subscriptions.by_id.values()
        return [
            SessionState(
                number=0,
                messages_in=self._traffic.received,
                messages_out=self._subscriptions.delivered,
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
                progress=one.subscription.progress,
            )
            for one in self._subscriptions.by_id.values()
        ]

    def addresses(self) -> Iterator[str]:
        """See the Peer port."""
        yield from self._traffic.addresses()
        for one in self._subscriptions.by_id.values():
            yield one.subscription.address

    def dismiss(self, refusal: Refusal) -> None:
        """See the Peer port."""
        self._connection.expel(refusal)

    def end_consumer(self, number: int, refusal: Refusal) -> bool:
        """See the Peer port: the ERROR that tells it ends a connection of 1.2."""
        for one in self._subscriptions.by_id.values():
            if one.number == number:
                one.removed(refusal)
                return True
        return False


def _nobody() -> None:
    """Stand for whoever wants to know of the login."""
