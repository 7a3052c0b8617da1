"""Every limit and setting of a STOMP connection, with its default."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.model.budget import Budget
from gateway.model.objects import Objects

_KIB = 1024
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StompLimits:
    """What one STOMP connection may do. Sizes are bytes, times seconds unless the name says `_ms`.

    Attributes:
        command_bytes_max: longest command word; the longest real one has 11.
        header_line_bytes_max: one `name:value` line.
        headers_max: header lines of one frame (RabbitMQ's number).
        header_bytes_max: all header lines of one frame.
        body_bytes_max: body of one frame (RabbitMQ's message size).
        unfinished: bytes of incomplete frames, of what waits for room at an address or for the
            journal, and of SENDs that wait for a COMMIT, of all connections, shared with other
            protocols.
        unfinished_free_bytes: what a connection may hold of that though it is used up.
        login_headers_max: header lines of CONNECT.
        login_frame_bytes_max: CONNECT as a whole.
        login_bytes_max: all that a peer may send before it is logged in.
        login_seconds: how long logging in may take.
        login_eols_max: line ends before CONNECT; more is noise of another protocol.
        subscriptions_max: open subscriptions.
        objects: how many subscriptions all connections have, by user.
        transactions_max: open transactions.
        transaction_frames_max: frames in one transaction.
        transaction_bytes_max: bodies in one transaction.
        transaction_seconds: a transaction idle for longer is rolled back.
        destinations_max: destinations that a connection keeps open for sending.
        spool_bytes_max: what is held in memory, headers and receipts with it, while an address is
            full and ACKs must be heard.
        unconfirmed_bytes_max: RECEIPTs that wait for the journal; above it nothing is read.
        frame_seconds: a frame must be complete after this, plus its bytes at the pace below.
        frame_bytes_per_second: the slowest pace of a frame that is under way.
        errors_per_minute: ERRORs that a connection is sent before it is closed.
        stuck_seconds: a connection ends when a subscription of its holds deliveries and nothing of
            them is acknowledged for so long; 0 never.
        output_bytes_max: unsent output above which no more messages are taken from queues.
        beat_min_ms: the gateway never beats faster.
        ttl_ms: silence after which a peer that promised no heart-beats is gone; -1 never.
        ttl_min_ms: the shortest such time, whatever the peer promises.
        ttl_max_ms: the longest; 0 no limit.
        ttl_modifier: how many of the promised intervals may pass in silence.
        window_bytes: unacknowledged bytes of a subscription that acknowledges; -1 no limit.
        default_persistent: what a SEND without `persistent` is.
        server_name: value of the `server` header of CONNECTED; None sends none.
        durability: value of the `x-durability` header of CONNECTED; None sends none.
        anycast_prefixes: destinations that start so name an anycast address.
        multicast_prefixes: destinations that start so name a multicast address.
        disk_full_pause: a full disk stops reading instead of an ERROR.
        frames_apart: each frame goes out in a message of its own, since messages carry the output.
    """

    command_bytes_max: int = 32
    header_line_bytes_max: int = 8 * _KIB
    headers_max: int = 100
    header_bytes_max: int = 64 * _KIB
    body_bytes_max: int = 16 * _MIB
    unfinished: Budget = field(default_factory=lambda: Budget(128 * _MIB))
    unfinished_free_bytes: int = 16 * _KIB
    login_headers_max: int = 16
    login_frame_bytes_max: int = 16 * _KIB
    login_bytes_max: int = 64 * _KIB
    login_seconds: float = 10.0
    login_eols_max: int = 16
    subscriptions_max: int = 256
    objects: Objects = field(default_factory=Objects)
    transactions_max: int = 32
    transaction_frames_max: int = 10_000
    transaction_bytes_max: int = 64 * _MIB
    transaction_seconds: float = 300.0
    destinations_max: int = 256
    spool_bytes_max: int = 16 * _MIB
    unconfirmed_bytes_max: int = 1 * _MIB
    frame_seconds: float = 30.0
    frame_bytes_per_second: int = 8 * _KIB
    errors_per_minute: int = 1000
    stuck_seconds: float = 1800.0
    output_bytes_max: int = 512 * _KIB
    beat_min_ms: int = 500
    ttl_ms: int = 60_000
    ttl_min_ms: int = 1_000
    ttl_max_ms: int = 0
    ttl_modifier: float = 2.0
    window_bytes: int = 10_240
    default_persistent: bool = True
    server_name: str | None = "Sluicegate"
    durability: str | None = None
    anycast_prefixes: tuple[str, ...] = ("/queue/",)
    multicast_prefixes: tuple[str, ...] = ("/topic/",)
    disk_full_pause: bool = False
    frames_apart: bool = False
