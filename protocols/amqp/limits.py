"""What one AMQP connection may ask for; each default says where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.model.address import RoutingType
from gateway.model.budget import Budget
from gateway.model.objects import Objects
from protocols.amqp.conditions import RESOURCE_LIMIT, SessionFaultError


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpLimits:
    """Settings of an acceptor for AMQP.

    Attributes:
        max_frame_size: what the peer may send in one frame; bytes (Artemis' default).
        max_message_size: of one message, over all its frames; bytes.
        unfinished_max: bytes of incomplete messages of a connection, beyond one message.
        unfinished: bytes of incomplete frames and messages, and of sends that wait for a commit, of
            all connections.
        unfinished_free_bytes: what a connection may hold of a frame though that is used up.
        unfinished_seconds: a frame or a delivery must be complete after this, plus its bytes so far
            at the pace below.
        unfinished_bytes_per_second: the slowest pace of what is under way.
        stuck_seconds: a consumer that holds deliveries and settles none for so long is detached; 0
            never.
        channel_max: the largest channel number, so sessions less one.
        links_max: links over all sessions.
        objects: how many links and consumers all connections have, by user.
        amqp_credits: credit that a sender gets.
        amqp_low_credits: credit at which it is topped up.
        use_modified: a full address answers `modified` to senders that list it as an outcome.
        duplicate_detection: whether `_AMQ_DUPL_ID` has a meaning.
        drain_on_refusal: a full address asks senders to give their credit back.
        quiesce_ms: how long they may take; -1 as long as they like.
        idle_ms: silence after which the peer is dead; it is told half [AMQP 2.4.5]. 0: never.
        login_seconds: time to get through SASL and open.
        prelogin_bytes: bytes that an unknown peer may send.
        prefixes: address prefixes that name a routing type.
        anonymous: whether ANONYMOUS is offered, and an AMQP header without SASL taken.
        sasl: mechanisms that need a user, best first.
        sasl_frame_max: bytes of a frame of SASL: passwords are short, tokens are not.
        transactions_max: open transactions of a connection.
        transaction_items_max: messages sent and outcomes told in one transaction.
        transaction_bytes_max: of messages sent in one transaction, and of what outcomes say in it.
        transaction_seconds: a transaction with work in it, idle for longer, is rolled back.
        errors_per_minute: errors that a connection is told before it is closed.
        container_id: how the gateway calls itself.
        durability: what the open says of it; a link says what its address has.
    """

    max_frame_size: int = 131072
    max_message_size: int = 16 << 20
    unfinished_max: int = 8 << 20
    unfinished: Budget = field(default_factory=lambda: Budget(128 << 20))
    unfinished_free_bytes: int = 16 << 10
    unfinished_seconds: float = 30.0
    unfinished_bytes_per_second: int = 8192
    stuck_seconds: float = 0.0
    channel_max: int = 255
    links_max: int = 1024
    objects: Objects = field(default_factory=Objects)
    amqp_credits: int = 1000
    amqp_low_credits: int = 300
    use_modified: bool = False
    duplicate_detection: bool = True
    drain_on_refusal: bool = True
    quiesce_ms: int = 600_000
    idle_ms: int = 60000
    login_seconds: float = 10.0
    prelogin_bytes: int = 65536
    prefixes: tuple[tuple[str, RoutingType], ...] = ()
    anonymous: bool = True
    sasl: tuple[str, ...] = ("PLAIN",)
    sasl_frame_max: int = 4096
    transactions_max: int = 32
    transaction_items_max: int = 10_000
    transaction_bytes_max: int = 64 << 20
    transaction_seconds: float = 300.0
    errors_per_minute: int = 1000
    container_id: str = "sluicegate"
    version: str = ""
    durability: str = "fsync"


def check_unfinished(limits: AmqpLimits, held: int, size: int) -> None:
    """Raise SessionFaultError when `size` bytes more of unfinished deliveries are too much.

    `held` by the connection, with them; what all connections hold has them as well.
    """
    shared = limits.unfinished
    if size > 0 and shared.held > shared.maximum:
        raise SessionFaultError(
            RESOURCE_LIMIT,
            f"Unfinished deliveries of all connections hold more than {shared.maximum} bytes, "
            "a quarter of global-max-size; finish or abort some, or try again later.",
        )
    if held > limits.unfinished_max + limits.max_message_size:
        raise SessionFaultError(
            RESOURCE_LIMIT,
            "Unfinished deliveries of this connection hold more than "
            f"{limits.unfinished_max} bytes beyond one message.",
        )
