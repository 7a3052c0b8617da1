"""What a session sees of its connection, as structural types.

A session stands below its connection: it names no class of it, and calls no more of it than
`ConnectionPort` has. The tables that all sessions of a connection share stand below the sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.model.ports import Broker
from gateway.model.principal import Principal
from protocols.amqp.cbs_node import CbsNode
from protocols.amqp.confirmations import Confirmations
from protocols.amqp.dynamic import DynamicNodes
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.open_links import OpenLinks
from protocols.amqp.performatives import Composite, Error
from protocols.amqp.quiescing import Quiescing
from protocols.amqp.shapes import Shapes
from protocols.amqp.transactions import Transactions
from protocols.transport.speaking import PeerFacts


class DueSession(Protocol):
    """A session that has answers to write."""

    def flush_accepted(self) -> None:
        """Write the ranges that are accepted."""


class Witness(Protocol):
    """Counts for an operator what sessions and links do."""

    def next_consumer(self) -> int:
        """Return a number that no other consumer of the connection has had."""

    def mistaken(self, error: Error) -> None:
        """The peer was told an error. Raises ConnectionFaultError when it was one too many."""


class ConnectionPort(Protocol):
    """A connection, as its sessions see it.

    Attributes:
        container: how the peer calls itself.
        principal: for whom it acts.
        remote_frame_max: the largest frame that the peer takes.
        closing: the connection is over: nothing is written any more.
        retick: set by what wants another look at the time.
        sessions_due: those with answers to write.
    """

    broker: Broker
    limits: AmqpLimits
    peer: PeerFacts
    container: str
    principal: Principal
    remote_frame_max: int
    closing: bool
    retick: bool
    wake: Callable[[], None]
    sessions_due: list[DueSession]
    nodes: DynamicNodes
    shapes: Shapes
    open_links: OpenLinks
    confirmations: Confirmations
    quiescing: Quiescing
    transactions: Transactions
    cbs: CbsNode

    @property
    def seen(self) -> Witness: ...

    def room(self, wanted: int, each: int) -> int:
        """Return how many of `wanted` deliveries, of about `each` bytes, may be written now."""

    def write(self, data: bytes) -> None:
        """Write frames."""

    def write_frame(self, channel: int, performative: Composite, payload: bytes = b"") -> None:
        """Write one frame, with a shorter text if it does not fit the peer's frames."""

    def hold(self, size: int) -> None:
        """Count bytes of unfinished deliveries. Raises SessionFaultError at the limit."""

    def steal(self, name: str, *, incoming: bool) -> None:
        """Detach a link that is to be attached, where its container has attached it already."""

    def fail(self, error: Error) -> None:
        """Close with a condition."""
