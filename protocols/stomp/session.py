"""A STOMP connection as the shell drives it, sans-IO: bytes in, calls on a port, bytes out.

Bytes go to the parser. Its frames go to the login, and from CONNECTED on to the traffic. The
connection has the state, the answers and the end; the watch has the times that a peer must keep.
The session builds these parts, asks them in time, counts the memory that they keep, and passes on
the journal's word. It knows no socket, clock or thread: `now` is seconds of the caller's clock.

A full address (BLOCK) stops reading. A peer that holds unacknowledged deliveries is still read, so
that its ACKs can make room: what else it sends waits in memory, in order, up to `spool_bytes_max`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, assert_never

from gateway.model.errors import STOPPING, Refusal
from gateway.model.peers import Cause, Ending
from gateway.model.ports import Authenticator, Broker, Renewer
from gateway.model.principal import Principal, end_of
from protocols.stomp.commands import Commands
from protocols.stomp.connection import Connection, State
from protocols.stomp.greeting import Greeting
from protocols.stomp.intake import Intake, Pause
from protocols.stomp.kept import Kept
from protocols.stomp.limits import StompLimits
from protocols.stomp.login import Login, Stage
from protocols.stomp.message_frames import Convert
from protocols.stomp.parser import Parser
from protocols.stomp.peer import StompPeer
from protocols.stomp.renewing import Renewing
from protocols.stomp.traffic import Traffic
from protocols.stomp.watch import Watch
from protocols.transport.patience import never

_BEAT: Final = b"\n"


def _nothing() -> None:
    """Stand for `wake` until the shell sets it."""


class StompSession:
    """Implements the shell's Session and the DurableListener port.

    Attributes:
        wake: called when there is something to send outside of `receive_data`; set by the shell.
        spent: whether a turn has taken its time; set by the shell.
        choked: set by the shell; the peer is not read from because it does not read.
        retick: ask for a new deadline: `tick` is to be called.
        connection: its state, its answers and its end.
        seen: the connection as an operator sees it.
    """

    __slots__ = (
        "_broker",
        "_commands",
        "_intake",
        "_kept",
        "_login",
        "_outbox",
        "_parser",
        "_traffic",
        "_watch",
        "choked",
        "connection",
        "limits",
        "retick",
        "seen",
        "spent",
        "wake",
    )

    def __init__(
        self,
        broker: Broker,
        authenticator: Authenticator,
        limits: StompLimits,
        name: str,
        convert: Convert,
        *,
        remote: str = "",
        renewer: Renewer | None = None,
    ) -> None:
        """Start the connection `name`; `convert` gives other protocols' messages a STOMP form.

        `remote` is the peer's address. Without a `renewer` no token is taken by `$token`.
        """
        self.wake: Callable[[], None] = _nothing
        self.spent: Callable[[], bool] = never
        self.choked = self.retick = False
        self.limits = limits
        self._broker = broker
        login = Login(authenticator, limits, name, self._login_moved)
        self._login: Login | None = login  # until it is through
        self._parser = Parser(login, limits)
        self._parser.now_ms = broker.now_ms
        self._intake = Intake(self._parser)
        self.connection = Connection(self, limits, self._intake, name, remote)
        self._outbox = self.connection.outbox
        self._commands = Commands(broker, self.connection, convert, name)
        self._traffic = Traffic(broker, self.connection, self._parser, self._commands)
        self._traffic.renewing = Renewing(self.connection, renewer)
        self._watch = Watch(limits)
        self._kept = Kept(limits)
        self.seen = StompPeer(self.connection, self._commands.subscriptions, self._traffic)

    def own(self, admit: Callable[[], Principal], user: str | None) -> None:
        """Let the peer in as `user`, if it leaves that to the certificate it has shown to TLS."""
        if self._login is not None:
            self._login.own(admit, user)

    # ---- the shell's side

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return self.connection.state

    @property
    def closing(self) -> bool:
        """Whether the transport is to be closed once `data_to_send()` is written."""
        return self.connection.state is State.CLOSED

    @property
    def behind(self) -> bool:
        """Whether what has come waits for another turn."""
        return self._intake.behind

    @property
    def paused_reading(self) -> bool:
        """Whether the socket is not to be read now."""
        return self._intake.held_up or (
            self._outbox.waiting_bytes > self.limits.unconfirmed_bytes_max
        )

    @property
    def write_room(self) -> bool:
        """Set by the shell; False while much output waits."""
        return self._outbox.write_room

    @write_room.setter
    def write_room(self, room: bool) -> None:
        self._outbox.write_room = room

    def receive_data(self, data: bytes, now: float) -> None:
        """Take bytes from the peer and act on every whole frame in them."""
        connection = self.connection
        connection.now = now
        if connection.ended:
            return
        if connection.principal.ended:
            connection.expel(end_of(connection.principal))
            return
        login = self._login
        if login is not None:
            login.begin(now)
            login.count(len(data))
        parser = self._parser
        most = parser.partial + len(data)
        parser.receive(data)
        left = parser.partial
        self._watch.came(now, left, most)
        self._taken(left)

    def go_on(self, now: float) -> None:
        """Go on with what had to wait for another turn."""
        self.connection.now = now
        # What else holds it up has it go on later.
        goes_on = self.connection.state is State.OPEN and not self._intake.held_up
        self._intake.resume(Pause.TURN)
        if goes_on:
            left = self._parser.partial
            self._watch.went_on(now, left)
            self._taken(left)

    def _taken(self, left: int) -> None:
        """Count what is left, in bytes, and see to what what came asks for. Hot."""
        traffic = self._traffic
        held = left + traffic.spool.size
        waiting = self._outbox.waiting_bytes
        if waiting > self.limits.unfinished_free_bytes:
            held += waiting  # what is less comes and goes with each turn
        if held != self._kept.size:
            self._count(held)
        if self._login is not None:
            self._login.look_at_size()
        if traffic.stalled:
            traffic.pause_if_idle()
        if waiting:
            self._await()

    def data_to_send(self) -> bytes:
        """Return all that is to be written now."""
        if self.connection.look_due:
            self.connection.look_due = False
            self._after_broker()
        outbox = self._outbox
        data = outbox.take()
        if outbox.starved and outbox.write_room:
            outbox.feed()
        return data

    def pieces(self, data: bytes, most: int) -> Sequence[bytes]:
        """See the shell's Session: a frame each; clients read one of a message, or a small one."""
        return self._outbox.apart(data)

    def _after_broker(self) -> None:
        """Act on what the broker told us while it was busy."""
        connection = self.connection
        for refusal in connection.take_removed():
            if connection.state is State.OPEN:
                connection.refuse(refusal, None)
        if connection.state is State.OPEN:
            paused = self.paused_reading
            self._traffic.go_on()
            if paused and not self.paused_reading:
                self._watch.excuse()
            self._count_kept()
        self._await()

    def write_resumed(self) -> None:
        """The transport has taken what waited."""
        if self.choked:
            self.choked = False
            self._watch.excuse()
        self._outbox.feed()

    def connection_lost(self, now: float) -> None:
        """The peer is gone: everything it held goes back."""
        self.connection.now = now
        self.connection.cut_off()
        self._kept.count(0)

    def receive_eof(self, now: float) -> None:
        """The peer sends no more: end, but confirm what is still under way."""
        self.connection.now = now
        if not self.connection.ended:
            self.connection.end(Ending(cause=Cause.CUT), b"")
            self.settle()

    def stop(self, now: float) -> None:
        """Say that the gateway is going down, and end."""
        self.connection.now = now
        self.connection.expel(STOPPING)

    # ---- memory

    def _count_kept(self) -> None:
        """Count what is kept of the peer's: an unfinished frame, what waits for room or disk."""
        if self._kept.size:
            held = self._parser.partial + self._traffic.spool.size + self._outbox.waiting_bytes
            self._count(held)

    def _count(self, size: int) -> None:
        """Count bytes that are kept; end where all connections hold too much together."""
        refusal = self._kept.count(size)
        if refusal is not None:
            self.connection.fail(refusal)

    # ---- time

    def tick(self, now: float) -> float | None:
        """Do what is due; return when to be called again."""
        self.connection.now = now
        match self.connection.state:
            case State.LOGIN:
                assert self._login is not None, "in state LOGIN"
                return self._login.look_at_time(now)
            case State.OPEN:
                return self._tick_open(now)
            case State.ENDED | State.CLOSED:
                return None
            case _:
                assert_never(self.connection.state)

    def _tick_open(self, now: float) -> float | None:
        watch = self._watch
        if self.paused_reading or self.behind or self.choked:
            watch.excuse()
        overdue = watch.look(now, self._parser.partial, self.seen.consumers)
        if overdue is not None:
            self.connection.fail(overdue.refusal, ending=overdue.ending)
            self.settle()
            return None
        if watch.beat_due(now) and self._outbox.write_room:
            self._outbox.write(_BEAT)
        self._commands.transactions.expire(now)
        return watch.deadline(now)

    # ---- confirmations

    def durable_up_to(self, ticket: int) -> None:
        """Let go what waited for the journal [gateway.model.ports.DurableListener]."""
        if self.paused_reading:
            self._watch.excuse()
        self._outbox.durable_up_to(ticket)
        self._count_kept()
        self.settle()

    def consumed(self, tickets: Sequence[int]) -> None:
        """Let go what need not wait any more [gateway.model.ports.DurableListener]."""
        paused = self.paused_reading
        if self._outbox.consumed(tickets):
            if paused:
                self._watch.excuse()
            self.wake()

    def store_failed(self, refusal: Refusal) -> None:
        """End without an outcome for what is unconfirmed [gateway.model.ports.DurableListener]."""
        self.connection.store_failed(refusal)
        self.wake()

    def settle(self) -> None:
        """Ask for the journal's word if something waits for it, and get what may go sent."""
        self._await()
        self.wake()

    def _await(self) -> None:
        if self._outbox.asks():
            self._broker.await_durable(self)

    # ---- login

    def _login_moved(self) -> None:
        """The login is a step further [protocols.stomp.login]."""
        login = self._login
        assert login is not None, "nobody logs in twice"
        match login.stage:
            case Stage.CHECKING:
                self._intake.pause(Pause.LOGIN)
            case Stage.LET_IN:
                assert login.greeting is not None, "in stage LET_IN"
                self._open(login.greeting, login.principal)
                self._intake.resume(Pause.LOGIN)
                self._traffic.pause_if_idle()
            case Stage.REFUSED:
                assert login.ending is not None, "in stage REFUSED"
                self.connection.end(login.ending, login.last_word)
            case Stage.CONNECT | Stage.LEFT:
                raise AssertionError("the session is told of no such step")
            case _:
                assert_never(login.stage)
        self.settle()

    def _open(self, greeting: Greeting, principal: Principal) -> None:
        connection = self.connection
        connection.opened(greeting, principal)
        self._login = None
        self._parser.opened(greeting.version, self._traffic)
        self._commands.version = greeting.version
        self._commands.client_id = greeting.client_id
        self._traffic.opened(greeting.connected, principal)
        self._watch.opened(greeting.beats, connection.now)
        self.retick = True
        self._outbox.write(greeting.connected)
        self.seen.on_login()

    # ---- ending

    def give_back(self) -> None:
        """The connection has ended [protocols.stomp.connection.SessionPort]."""
        if self._login is not None:
            self._login.leave()
        self._kept.count(0)
        self._commands.leave()
        self._traffic.leave()
