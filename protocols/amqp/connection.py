"""An AMQP 1.0 connection, sans-IO [AMQP 2.4]: open, close, channels, idle time-outs.

    state      what comes next                          on it
    ENTERING   headers, SASL, the peer's open           see `protocols.amqp.handshake`
    OPENED     everything else                          channels, sessions
    CLOSED     nothing                                  we said close, or cut: what comes is ignored

Frames are checked before anything reads them: size, doff, type. `protocols.amqp.stream` has the hot
loop over transfers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, assert_never

from gateway.model.errors import STOPPING, Refusal
from gateway.model.peers import Cause
from gateway.model.ports import Authenticator, Broker, Renewer
from gateway.model.principal import ANYBODY, Principal, end_of
from protocols.amqp.cbs_node import CbsNode
from protocols.amqp.channels import Channels
from protocols.amqp.conditions import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    ConnectionFaultError,
    error_of,
    shortened,
    too_long,
)
from protocols.amqp.confirmations import Confirmations
from protocols.amqp.connection_port import DueSession
from protocols.amqp.containers import Containers
from protocols.amqp.dynamic import DynamicNodes
from protocols.amqp.frames import (
    AMQP_FRAME,
    EMPTY_FRAME,
    HEAD_BYTES,
    decode_frame,
    frame,
    frame_size,
)
from protocols.amqp.handshake import FRAME_MIN, Handshake, Stage
from protocols.amqp.limits import AmqpLimits, check_unfinished
from protocols.amqp.open_links import OpenLinks
from protocols.amqp.opening import our_open
from protocols.amqp.peer import AmqpPeer
from protocols.amqp.performatives import Begin, Close, Composite, Error, Open
from protocols.amqp.pulse import Pulse
from protocols.amqp.quiescing import Quiescing
from protocols.amqp.sasl import BUILT_IN, Exchanges
from protocols.amqp.shapes import Shapes
from protocols.amqp.stream import receive_transfers
from protocols.amqp.transactions import Transactions
from protocols.amqp.watch import Watch
from protocols.transport.patience import never
from protocols.transport.speaking import PeerFacts, in_pieces

#: Unsent bytes above which no deliveries are taken from queues: they stay there, where others can
#: have them.
OUT_BYTES_MAX: Final = 1 << 20


class State(Enum):
    """Where a connection stands; see the module text."""

    ENTERING = "entering"
    OPENED = "opened"
    CLOSED = "closed"


class AmqpConnection:
    """Implements the shell's Session and the DurableListener port."""

    # A dict of so many would be one of its own for each connection, and twice as slow.
    __slots__ = (
        "_channels",
        "_handshake",
        "_have",
        "_need",
        "_out",
        "_out_bytes",
        "_parts",
        "_pulse",
        "_stalled",
        "_started",
        "_unfinished",
        "_was_unread",
        "_watch",
        "behind",
        "broker",
        "cbs",
        "channel_max",
        "choked",
        "closing",
        "confirmations",
        "container",
        "containers",
        "fault",
        "limits",
        "nodes",
        "now",
        "open_links",
        "paused_reading",
        "peer",
        "principal",
        "quiescing",
        "remote_frame_max",
        "retick",
        "seen",
        "sessions",
        "sessions_due",
        "shapes",
        "spent",
        "state",
        "transactions",
        "wake",
        "write_room",
    )

    def __init__(
        self,
        broker: Broker,
        authenticator: Authenticator,
        limits: AmqpLimits,
        peer: PeerFacts,
        exchanges: Exchanges = BUILT_IN,
        *,
        containers: Containers | None = None,
        renewer: Renewer | None = None,
    ) -> None:
        self.broker = broker
        self.limits = limits
        self.peer = peer
        self.state = State.ENTERING
        self.container = ""
        self.principal = ANYBODY
        self.seen = AmqpPeer(self)
        self.nodes = DynamicNodes(broker, limits.links_max)
        self.remote_frame_max = FRAME_MIN
        self._channels = Channels(self)
        self.sessions = self._channels.sessions  # looked up for every run
        self.sessions_due: list[DueSession] = []
        self.shapes = Shapes()
        self.open_links = OpenLinks(limits)
        self.confirmations = Confirmations(broker, self)
        self.quiescing = Quiescing(limits)
        self.transactions = Transactions(self)
        self.cbs = CbsNode(renewer)
        self._watch = Watch(self)
        self.channel_max = limits.channel_max
        self.containers = Containers() if containers is None else containers
        self.closing = self.paused_reading = self.behind = False
        self.write_room = True
        self.choked = self.retick = False
        self.wake: Callable[[], None] = lambda: None
        self.spent: Callable[[], bool] = never
        self.fault: Error | None = None
        #: forgotten once the connection is open
        self._handshake: Handshake | None = Handshake(
            authenticator, limits, exchanges, self._login_answered
        )
        self._parts: list[bytes] = []
        self._out: list[bytes] = []
        self._have = self._need = self._out_bytes = self._unfinished = 0
        self._stalled = self._was_unread = False  # not read from since the last tick
        self._started: float | None = None
        self._pulse = Pulse(limits.idle_ms)
        self.now = 0.0  # when the shell called last

    # ---- bytes in

    def receive_data(self, data: bytes, now: float) -> None:
        """Take what the peer sent; the answers are in `data_to_send`."""
        self.now = self._pulse.last_in = now
        if self.state is State.CLOSED:
            return
        if self.principal.ended:
            self.fail(error_of(end_of(self.principal)))
            return
        if self._parts:
            self._parts.append(data)
            self._have += len(data)
            data = b""
            if self._have >= self._need:
                data = b"".join(self._parts)
                self._parts = []
        try:
            if data:
                self._consume(data)
            if self._parts or self._watch.held:
                self._watch.count(self._have, len(self._parts))
        except ConnectionFaultError as fault:
            self.fail(fault.error)

    def go_on(self, now: float) -> None:
        """Go on with what came: it had to wait for a turn, or for the login."""
        self.behind = False
        if self._parts:
            self._need = 0
            self.receive_data(b"", now)

    def _consume(self, data: bytes) -> None:
        """Read frames from the start of `data`; keep what is not complete."""
        at = 0
        end = len(data)
        self._need = HEAD_BYTES
        while end - at >= HEAD_BYTES and self.state is not State.CLOSED:
            if self.state is State.OPENED:
                if self.shapes.known:
                    at = receive_transfers(self, data, at, end)
                    if end - at < HEAD_BYTES or self.behind:
                        break
                size = frame_size(data, at, self.limits.max_frame_size)
                if end - at < size:
                    self._need = size
                    break
                self._take_frame(data, at, at + size)
                at += size
                if end - at >= HEAD_BYTES and self.spent():
                    self.behind = True
                    break
                continue
            handshake = self._handshake
            assert handshake is not None, "entering"
            if not (step := handshake.take(data, at, end)):
                self._need = handshake.need
                break
            at += step
            self._follow(handshake)
        if at < end and self.state is not State.CLOSED:
            self._parts = [data[at:] if at else data]
            self._have = end - at
            if at or self._watch.since is None:
                self._watch.begin(self.now)
        else:
            self._watch.since = None

    # ---- the handshake

    def _follow(self, handshake: Handshake) -> None:
        """Do what the handshake has come to. Raises ConnectionFaultError."""
        for said in handshake.data_to_send():
            self.write(said)
        match handshake.stage:
            case Stage.LOGGED_IN:
                self.principal = handshake.principal
            case Stage.OPENED:
                assert handshake.opened is not None, "that is what opened it"
                self._open(handshake.opened, handshake.principal)
            case Stage.LOGIN_FAILED | Stage.REFUSED:
                self.cut(handshake.reason, handshake.cause)
            case Stage.HEADER | Stage.SASL | Stage.OPEN:
                pass
            case _:
                assert_never(handshake.stage)

    def _login_answered(self) -> None:
        """A password was checked, on a later turn: go on with what came meanwhile."""
        assert self._handshake is not None, "the login is a part of it"
        self._follow(self._handshake)
        self.go_on(self.now)
        self.wake()

    def _open(self, opened: Open, principal: Principal) -> None:
        self.containers.enter(self, opened)
        self._handshake = None
        self.container = opened.container_id
        self.principal = principal
        principal.remote = self.peer.address
        self.open_links.account = principal.account
        self.channel_max = min(opened.channel_max, self.limits.channel_max)
        self.remote_frame_max = min(opened.max_frame_size, self.limits.max_frame_size)
        self._pulse.remote_idle = (opened.idle_time_out or 0) / 1000
        self.state = State.OPENED
        self.retick = True
        self.write_frame(0, our_open(self.limits))
        self.seen.opened(opened)

    # ---- frames

    def _take_frame(self, data: bytes, at: int, end: int) -> None:
        """Take one frame by the general codec. Raises ConnectionFaultError."""
        channel = int.from_bytes(data[at + 6 : at + 8], "big")
        if at + 4 * data[at + 4] == end and data[at + 5] == AMQP_FRAME:
            return  # an empty frame: the peer is alive
        performative, payload = decode_frame(data, at, end)
        match performative:
            case Open():
                raise ConnectionFaultError(
                    ILLEGAL_STATE, "A second open came; a connection is opened once."
                )
            case Close():
                self.seen.closed(performative)
                self._close_received()
            case Begin():
                self._channels.begin(channel, performative)
            case _:
                self._channels.take(channel, performative, data, at=at, payload=payload, end=end)

    # ---- what sessions use

    @property
    def links(self) -> int:
        return self.open_links.count

    def write(self, data: bytes) -> None:
        if self.closing:
            return  # close was the last word [AMQP 2.4.3]
        self._out.append(data)
        self._out_bytes += len(data)

    def pieces(self, data: bytes, most: int) -> Sequence[bytes]:
        """See the shell's Session: Qpid JMS takes no larger message of WebSocket than a frame."""
        return in_pieces(data, min(most, self.remote_frame_max))

    def write_frame(self, channel: int, performative: Composite, payload: bytes = b"") -> None:
        data = frame(performative, channel, AMQP_FRAME, payload)
        if len(data) <= self.remote_frame_max:
            self.write(data)
            return
        shorter = shortened(performative, len(data) - self.remote_frame_max)
        if shorter is not None:
            self.write(frame(shorter, channel))
        elif not self.closing:
            self.fail(too_long(len(data), self.remote_frame_max))

    def room(self, wanted: int, each: int) -> int:
        """Return how many of `wanted` deliveries, of about `each` bytes, may be written now."""
        if self.write_room and self._out_bytes < OUT_BYTES_MAX:
            if wanted > 0:
                self.wake()
            # Bytes are only guessed: the queue holds what is held back, not this connection.
            fit = (OUT_BYTES_MAX - self._out_bytes) // each + 1
            return min(fit, wanted)
        self._stalled = True
        return 0

    def unfinished_in(self, name: bytes) -> bool:
        """See the TransactionOwner port."""
        return self._channels.unfinished_in(name)

    def steal(self, name: str, *, incoming: bool) -> None:
        """Detach a link that is to be attached, where its container has attached it already."""
        self.containers.steal(self, name, incoming=incoming)

    def hold(self, size: int) -> None:
        """Count bytes of unfinished deliveries. Raises SessionFaultError at the limit."""
        self._watch.arm()
        self._unfinished += size
        self.limits.unfinished.held += size
        check_unfinished(self.limits, self._unfinished, size)

    def durable_up_to(self, ticket: int) -> None:
        """See the DurableListener port."""
        self.confirmations.durable_up_to(ticket)
        self.wake()

    def consumed(self, tickets: Sequence[int]) -> None:
        """See the DurableListener port."""
        self.confirmations.consumed(tickets)

    def store_failed(self, refusal: Refusal) -> None:
        """See the DurableListener port."""
        self.fail(error_of(refusal))
        self.wake()

    # ---- bytes out

    def data_to_send(self) -> bytes:
        """Return all that is to be written now, and forget it."""
        self._channels.flush_accepted()
        for session in self.sessions.values():
            session.flush_flows()
        if not self._out:
            return b""
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        self._pulse.last_out = self.now
        if self._stalled and self.write_room:
            self._stalled = False
            self._resume()
        return data

    def write_resumed(self) -> None:
        """The transport has room again."""
        self._stalled = False
        self._was_unread |= self.choked
        self.choked = False
        self._resume()

    def _resume(self) -> None:
        self._channels.resume()
        if self._out:
            self.wake()

    # ---- time

    def tick(self, now: float) -> float | None:
        """Keep the peer alive, give a silent one up [AMQP 2.4.5]; returns when to come again."""
        self.now = now
        pulse = self._pulse
        if self._started is None:
            self._started = pulse.last_in = pulse.last_out = now
        if self.state is State.CLOSED:
            return None
        if self.state is not State.OPENED:
            deadline = self._started + self.limits.login_seconds
            if now >= deadline:
                self.cut(f"not open after {self.limits.login_seconds} s", Cause.TIMED_OUT)
                return None
            return deadline
        if self.choked or self._was_unread:
            # Silence that we caused is not held against the peer.
            self._was_unread = False
            pulse.last_in = now
            self._watch.begin_anew(now)
        elif not self._watch.look(now, self._have):
            return None
        deadlines = self.quiescing.tick(now) + self._watch.deadlines(now)
        if pulse.is_dead(now):
            self.cut(f"silent for {self.limits.idle_ms} ms", Cause.TIMED_OUT)
            return None
        if pulse.is_due(now):
            self.write(EMPTY_FRAME)
        deadlines += pulse.deadlines(now)
        idle = self.transactions.expire(now)
        if idle is not None:
            deadlines.append(idle)
        return min(deadlines, default=None)

    # ---- the end

    def fail(self, error: Error) -> None:
        """Close with a condition; what the peer still says, even what it settles, is ignored."""
        if self.state is State.CLOSED:
            return
        self.fault = error
        self.seen.failed(error)
        handshake = self._handshake
        spoken = handshake is None or handshake.speaks_amqp
        if handshake is not None and spoken:
            self.write_frame(0, our_open(self.limits, failed=True))
        self._channels.flush_accepted()
        if spoken:
            self.write_frame(0, Close(error=error))
        self._closed()
        self._release(lost=True)

    def cut(self, reason: str, cause: Cause = Cause.PROTOCOL_ERROR) -> None:
        """Close without a word: the peer speaks no AMQP yet, or not any more."""
        self.seen.end(cause, reason)
        condition = FRAMING_ERROR if self._handshake is None else self._handshake.condition
        self.fault = Error(condition=condition, description=reason)
        self._release(lost=True)
        self._closed()

    def _close_received(self) -> None:
        self._channels.flush_accepted()
        self.write_frame(0, Close())
        self._closed()  # the last word: that links end with their nodes tells the peer nothing
        self._release(lost=False)

    def _closed(self) -> None:
        self.state = State.CLOSED
        self.closing = True
        self._parts = []
        self._watch.count(0, 0)
        self.retick = False

    def _release(self, *, lost: bool) -> None:
        self.containers.leave(self)
        self.transactions.end()
        self._channels.close(lost=lost)
        self.nodes.end()
        if self._handshake is not None:
            self._handshake.abandon()
        self.confirmations.clear()

    def connection_lost(self, now: float) -> None:
        """The socket is gone: what the peer held goes back as an attempt, it may have been seen."""
        self.now = now
        self.seen.end(Cause.CUT)
        if self.state is not State.CLOSED:
            self._release(lost=True)
            self._closed()
        self._channels.forget()
        self.limits.unfinished.held -= self._unfinished
        self._unfinished = 0

    def stop(self, now: float) -> None:
        """See the shell's Session."""
        self.now = now
        if self.state is State.OPENED:
            self.fail(error_of(STOPPING))
        else:
            self.seen.end(Cause.STOPPING)
            self.cut("the gateway is stopping")
