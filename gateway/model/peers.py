"""What an operator sees of a connection and of what is open on it, and how it came to its end.

A protocol's session answers through `Peer`. It is asked for one connection at a time, when somebody
looks: nothing here is kept up message by message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gateway.model.errors import Code, Refusal
from gateway.model.ports import Progress
from gateway.model.principal import Principal
from gateway.model.retry import retry_after


class Cause(Enum):
    """Why a connection ended; the value is what the log shows."""

    CLIENT = "client-closed"
    CUT = "cut"
    TIMED_OUT = "timed-out"
    LOGIN_REFUSED = "login-refused"
    LOGIN_ENDED = "login-ended"
    REFUSED = "refused"
    PROTOCOL_ERROR = "protocol-error"
    OPERATOR = "operator"
    SLOW_CONSUMER = "slow-consumer"
    STOPPING = "gateway-stopping"
    STORE_FAILED = "store-failed"
    TLS_FAILED = "tls-failed"
    DISMISSED = "made-room"
    FULL = "full"


_OF_CODE = {
    Code.OPERATOR: Cause.OPERATOR,
    Code.SLOW_CONSUMER: Cause.SLOW_CONSUMER,
    Code.SHUTTING_DOWN: Cause.STOPPING,
    Code.STORE_FAILED: Cause.STORE_FAILED,
    Code.TOKEN_EXPIRED: Cause.LOGIN_ENDED,
    Code.BAD_FRAME: Cause.PROTOCOL_ERROR,
    Code.ADDRESS_FULL: Cause.FULL,
    Code.PAGE_FULL: Cause.FULL,
    Code.MEMORY_FULL: Cause.FULL,
    Code.DISK_FULL: Cause.FULL,
    Code.STORE_BUSY: Cause.FULL,
    Code.QUOTA_REACHED: Cause.FULL,
}


def cause_of(code: Code) -> Cause:
    """Return why a connection ends that is closed for a refusal."""
    return _OF_CODE.get(code, Cause.REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why a connection ended.

    Attributes:
        text: for people; empty where the cause says it all.
        code: what the peer was refused with; None where it was not.
        retry_after: seconds after which it may come again; None where waiting does not help.
    """

    cause: Cause
    text: str = ""
    code: Code | None = None
    retry_after: int | None = None


def ending_of(refusal: Refusal, cause: Cause | None = None) -> Ending:
    """Return the end of a connection for a refusal; for `cause` where its code does not tell."""
    return Ending(
        cause=cause_of(refusal.code) if cause is None else cause,
        text=refusal.text,
        code=refusal.code,
        retry_after=retry_after(refusal),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerState:
    """Who a connection is, and what went over it since it was opened.

    Attributes:
        protocol: AMQP or STOMP.
        version: as agreed; empty before.
        user: its login; None without one.
        client_id: container-id or client-id; empty where none was told.
        product, product_version: the client's library, where it tells; empty else.
        messages_in, messages_out: deliveries that came, and that went out.
        by: how it was proved who it is (`gateway.model.principal.By`).
    """

    protocol: str
    version: str
    user: str | None
    client_id: str
    product: str
    product_version: str
    messages_in: int
    messages_out: int
    by: str = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """A session; STOMP has one a connection, with number 0. `number` is AMQP's channel."""

    number: int
    messages_in: int
    messages_out: int
    in_flight: int
    producers: int
    consumers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState:
    """A consumer.

    Attributes:
        number: of its connection; never used again there.
        session: number of its session.
        name: the link's or the subscription's at the client.
        credit: how many messages it takes now by its own word; None: as many as the output takes.
        in_flight: messages that it holds and has not settled.
        delivered: messages that went to it.
        queue: that it reads, or the stream that it replays.
        browser: it looks, and takes nothing.
        progress: how far its replay of a stream is; None on a queue.
    """

    number: int
    session: int
    name: str
    queue: str
    address: str
    credit: int | None
    in_flight: int
    delivered: int
    browser: bool
    progress: Progress | None = None


class Peer(Protocol):
    """A connection as an operator sees it.

    Attributes:
        on_login: called once, when the peer is let in and has said who it is.
    """

    on_login: Callable[[], None]

    @property
    def ending(self) -> Ending | None:
        """Why it ended; None while it has not."""

    @property
    def principal(self) -> Principal:
        """For whom it acts; ANYBODY before it is let in."""

    def state(self) -> PeerState: ...

    def sessions(self) -> list[SessionState]: ...

    def consumers(self) -> list[ConsumerState]: ...

    def addresses(self) -> Iterable[str]:
        """Return where it sends to and takes from; some may come more than once."""

    def dismiss(self, refusal: Refusal) -> None:
        """Say so in the protocol's words and close; what it holds goes back to its queues."""

    def end_consumer(self, number: int, refusal: Refusal) -> bool:
        """End a consumer, telling the client; False when there is none of that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptorFigures:
    """An acceptor: what it took and refused since the start, and what is open by protocol."""

    name: str
    opened: int
    refused: int
    protocols: Mapping[str, int]
