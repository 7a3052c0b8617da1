"""An AMQP connection as an operator sees it [gateway.model.peers]. Cold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from gateway.model.errors import Code, Refusal
from gateway.model.peers import Cause, ConsumerState, Ending, PeerState, SessionState, cause_of
from gateway.model.principal import Principal
from protocols.amqp.conditions import (
    DETACH_FORCED,
    REASON,
    RESOURCE_LIMIT,
    RETRY_AFTER,
    ConnectionFaultError,
    error_of,
)
from protocols.amqp.incoming import IncomingLink
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.outgoing import OutgoingLink
from protocols.amqp.performatives import Close, Error, Open
from protocols.amqp.session import AmqpSession
from protocols.mistakes import Mistakes

#: What a client says of itself is shown up to here.
_WORD_CHARS: Final = 200


class SeenConnection(Protocol):
    """A connection, as far as an operator sees it."""

    now: float

    @property
    def limits(self) -> AmqpLimits:
        """What it may ask for."""

    @property
    def principal(self) -> Principal:
        """For whom it acts."""

    @property
    def container(self) -> str:
        """How its peer calls itself."""

    @property
    def sessions(self) -> Mapping[int, AmqpSession]:
        """Those that are begun, by channel."""

    def fail(self, error: Error) -> None:
        """Close it with a condition."""

    @property
    def wake(self) -> Callable[[], None]:
        """Has written what there is to write."""


class AmqpPeer:
    """Implements the Peer port; the connection tells it what begins and ends."""

    __slots__ = (
        "_connection",
        "_consumers",
        "_delivered",
        "_mistakes",
        "_product",
        "_product_version",
        "_received",
        "ending",
        "on_login",
    )

    def __init__(self, connection: SeenConnection) -> None:
        self.on_login: Callable[[], None] = _nobody
        self.ending: Ending | None = None
        self._connection = connection
        self._mistakes = Mistakes(connection.limits.errors_per_minute)
        self._product = self._product_version = ""
        self._received = self._delivered = 0  # by sessions that are over
        self._consumers = 0

    # ---- what the connection tells

    def opened(self, opened: Open) -> None:
        """The peer's open was taken."""
        told = opened.properties or {}
        self._product = _word(told.get("product"))
        self._product_version = _word(told.get("version"))
        self.on_login()

    def next_consumer(self) -> int:
        """Return a number that no other consumer of the connection has had."""
        self._consumers += 1
        return self._consumers

    def session_over(self, session: AmqpSession) -> None:
        """Keep the counts of a session that is gone."""
        self._received += session.received
        self._delivered += session.delivered

    def mistaken(self, error: Error) -> None:
        """It was told an error. Raises ConnectionFaultError when that was one too many."""
        if self._mistakes.too_many(self._connection.now):
            text = self._mistakes.text(error.description or str(error.condition))
            raise ConnectionFaultError(RESOURCE_LIMIT, text)

    def end(self, cause: Cause, text: str = "") -> None:
        """Note why the connection ends; only the first cause counts."""
        if self.ending is None:
            self.ending = Ending(cause=cause, text=text)

    def failed(self, error: Error) -> None:
        """We close with this error."""
        info = error.info or {}
        known = {code.value: code for code in Code}.get(str(info.get(REASON)))
        cause = Cause.PROTOCOL_ERROR if known is None else cause_of(known)
        seconds = info.get(RETRY_AFTER)
        if self.ending is None:
            self.ending = Ending(
                cause=cause,
                text=f"{error.condition}: {error.description or ''}",
                code=known,
                retry_after=seconds if isinstance(seconds, int) else None,
            )

    def closed(self, close: Close) -> None:
        """The peer said close."""
        error = close.error
        text = "" if error is None else f"{error.condition}: {error.description or ''}"
        self.end(Cause.CLIENT, text[:_WORD_CHARS])

    # ---- the Peer port

    @property
    def principal(self) -> Principal:
        """See the Peer port."""
        return self._connection.principal

    def state(self) -> PeerState:
        """See the Peer port."""
        connection = self._connection
        sessions = connection.sessions.values()
        return PeerState(
            protocol="AMQP",
            version="1.0",
            user=connection.principal.user,
            by=connection.principal.by.value,
            client_id=connection.container,
            product=self._product,
            product_version=self._product_version,
            messages_in=self._received + sum(s.received for s in sessions),
            messages_out=self._delivered + sum(s.delivered for s in sessions),
        )

    def sessions(self) -> list[SessionState]:
        """See the Peer port."""
        found = []
        for channel, session in self._connection.sessions.items():
            kinds = [isinstance(link, IncomingLink) for link in session.links.values()]
            found.append(
                SessionState(
                    number=channel,
                    messages_in=session.received,
                    messages_out=session.delivered,
                    in_flight=len(session.unsettled),
                    producers=kinds.count(True),
                    consumers=len(list(_outgoing(session))),
                )
            )
        return found

    def consumers(self) -> list[ConsumerState]:
        """See the Peer port."""
        found = []
        for channel, session in self._connection.sessions.items():
            for link in _outgoing(session):
                held = link.subscription
                if held is not None:
                    found.append(
                        ConsumerState(
                            number=link.number,
                            session=channel,
                            name=link.name,
                            queue=held.queue_name,
                            address=held.address,
                            credit=link.credit,
                            in_flight=held.in_flight,
                            delivered=link.delivered,
                            browser=held.browses,
                            progress=held.progress,
                        )
                    )
        return found

    def addresses(self) -> Iterator[str]:
        """See the Peer port."""
        for session in self._connection.sessions.values():
            for link in session.links.values():
                if isinstance(link, IncomingLink):
                    yield from link.routes.addresses()
                    if link.producer is not None:
                        yield link.producer.address
                elif link.subscription is not None:
                    yield link.subscription.address

    def dismiss(self, refusal: Refusal) -> None:
        """See the Peer port."""
        self._connection.fail(error_of(refusal))
        self._connection.wake()

    def end_consumer(self, number: int, refusal: Refusal) -> bool:
        """See the Peer port."""
        for session in self._connection.sessions.values():
            for link in _outgoing(session):
                if link.number == number:
                    told = error_of(refusal)
                    session.detach(
                        link,
                        Error(
                            condition=DETACH_FORCED, description=told.description, info=told.info
                        ),
                    )
                    return True
        return False


def _outgoing(session: AmqpSession) -> Iterator[OutgoingLink]:
    """Return the links on which the peer receives."""
    for link in session.links.values():
        if isinstance(link, OutgoingLink) and link.subscription is not None:
            yield link


def _word(told: object) -> str:
    """Return what a client says of itself, shortened; empty for what is no text."""
    return told[:_WORD_CHARS] if isinstance(told, str) else ""


def _nobody() -> None:
    """Stand for whoever wants to know of the login."""
