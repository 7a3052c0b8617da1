"""A STOMP connection, sans-IO: bytes in, calls on the broker port, bytes out.

    state             input                       next
    OPENING           CONNECT, open gateway       OPEN       CONNECTED
    OPENING           CONNECT, users configured   CHECKING   input is kept until the answer
    OPENING           anything else               ENDED      ERROR that names the rule
    CHECKING          right / wrong               OPEN / ENDED
    OPEN              frames                      OPEN       see `_ACTIONS`
    OPEN              DISCONNECT                  ENDED      RECEIPT when all SENDs are durable
    OPEN              a refusal                   OPEN in 1.0 and 1.1, ENDED in 1.2
    OPEN              bytes that are no frame     ENDED
    any               loss                        ENDED      what was delivered goes back

In ENDED no input counts; confirmations that wait for the disk still go out, in order, the ERROR
behind them, then `closing` is set. It knows no socket, clock or thread: `now` is seconds of the
caller's clock.

A full address (BLOCK) stops reading. A peer that holds unacknowledged deliveries is still read, so
that its ACKs can make room: what else it sends waits in memory, in order, up to `spool_bytes_max`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.objects import NOBODY
from gateway.model.peers import Cause
from gateway.model.ports import Authenticator, Broker, ConsumerFacts
from protocols.mistakes import Mistakes
from protocols.stomp import frame
from protocols.stomp.commands import Commands
from protocols.stomp.frame import SEND, Head
from protocols.stomp.greeting import (
    Greeting,
    greet,
    login_too_late,
    no_common_version,
    too_much_before_login,
    wrong_login,
)
from protocols.stomp.heads import FrameError
from protocols.stomp.heartbeat import Pulse
from protocols.stomp.limits import StompLimits
from protocols.stomp.message_frames import Convert
from protocols.stomp.outbox import Outbox
from protocols.stomp.parser import ACKS, Parser
from protocols.stomp.peer import StompPeer
from protocols.stomp.subscription import StompConsumer
from protocols.stomp.traffic import Traffic
from protocols.stomp.versions import Version
from protocols.stuck import Stuck
from protocols.transport.patience import never

#: How often a connection is looked at when nothing is due sooner, in seconds.
_LOOK_SECONDS: Final = 30.0
_BEAT: Final = b"\n"
_GREETINGS: Final = ("CONNECT", "STOMP")
#: Refusals after which a connection ends in every version.
_FATAL: Final = (Code.DISK_FULL, Code.STORE_FAILED, Code.SHUTTING_DOWN)


class State(Enum):
    """See the table in the module text."""

    OPENING = "opening"
    CHECKING = "checking"
    OPEN = "open"
    ENDED = "ended"


def _nothing() -> None:
    """Stand for `wake` until the shell sets it."""


class StompSession:
    """One connection; see the module text.

    Attributes:
        wake: called when there is something to send outside of `receive_data`; set by the shell.
        closing: the transport is to be closed once `data_to_send()` is written.
        held_up: the socket is not to be read now, for what the peer has sent.
        behind: what has come waits for another turn, since `spent()` said so.
        write_room: set by the shell; False while much output waits.
        choked: set by the shell; the peer is not read from because it does not read.
        retick: ask for a new deadline: `tick` is to be called.
        state: see the table.
        version: as agreed; None before.
        user: login of the peer, None when it gave none.
        account: the user who it has proved to be, and for whom what it opens counts.
        remote: the network address of the peer.
    """

    __slots__ = (
        "_authenticator",
        "_awaiting",
        "_broker",
        "_commands",
        "_held",
        "_look_again",
        "_mistakes",
        "_opened_at",
        "_parser",
        "_partial_since",
        "_pulse",
        "_removed",
        "_starved",
        "_stuck",
        "_traffic",
        "_was_unread",
        "account",
        "behind",
        "choked",
        "closing",
        "held_up",
        "limits",
        "name",
        "outbox",
        "remote",
        "retick",
        "seen",
        "spent",
        "state",
        "user",
        "version",
        "wake",
        "write_room",
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
    ) -> None:
        """Start the connection `name`; `convert` gives other protocols' messages a STOMP form.

        `remote` is the peer's address.
        """
        self.wake: Callable[[], None] = _nothing
        self.closing = self.held_up = self.behind = self.choked = self.retick = False
        self.spent: Callable[[], bool] = never
        self.write_room = True
        self.state = State.OPENING
        self.version: Version | None = None
        self.user: str | None = None
        self.account = NOBODY
        self.name = name
        self.remote = remote
        self.limits = limits
        self.outbox = Outbox()
        self._broker = broker
        self._authenticator = authenticator
        self._parser = Parser(self, limits)
        self._parser.now_ms = broker.now_ms
        self._commands = Commands(broker, self, convert, name)
        self._traffic = Traffic(broker, self, self._parser, self._commands)
        self.seen = StompPeer(self, self._commands, self._traffic)
        self._stuck = Stuck(limits.stuck_seconds)
        self._pulse: Pulse | None = None
        self._opened_at: float | None = None
        self._partial_since: float | None = None
        self._held = 0  # bytes that are kept of the peer's, as counted in the shared budget
        self._awaiting = False
        self._starved: list[StompConsumer] = []
        self._look_again = False
        self._was_unread = False  # since the last tick, until reading went on
        self._removed: list[Refusal] = []
        self._mistakes = Mistakes(limits.errors_per_minute)

    # ---- the shell's side

    @property
    def paused_reading(self) -> bool:
        """Whether the socket is not to be read now."""
        return self.held_up or self.outbox.waiting_bytes > self.limits.unconfirmed_bytes_max

    def receive_data(self, data: bytes, now: float) -> None:
        """Take bytes from the peer and act on every whole frame in them."""
        self._commands.now = now
        if self._opened_at is None:
            self._opened_at = now
        if self.state is State.ENDED:
            return
        if self._pulse is not None:
            self._pulse.heard(now)
        parser = self._parser
        before = parser.partial
        parser.receive(data)
        left = parser.partial
        if not left:
            self._partial_since = None
        elif self._partial_since is None or left != before + len(data):
            self._partial_since = now
        self._taken(left)

    def go_on(self, now: float) -> None:
        """Go on with what had to wait for another turn."""
        self._commands.now = now
        self.behind = False
        if self.state is not State.OPEN or self.held_up:
            return  # what stopped it since goes on with it
        self._parser.resume()
        left = self._parser.partial
        self._partial_since = now if left else None
        self._taken(left)

    def _taken(self, left: int) -> None:
        """Count what is left, in bytes, and see to what what came asks for. Hot."""
        traffic = self._traffic
        held = left + traffic.spool_bytes
        if self.outbox.waiting_bytes > self.limits.unfinished_free_bytes:
            held += self.outbox.waiting_bytes  # what is less comes and goes with each turn
        if held != self._held:
            self._hold(held)
        if self.version is None and self._parser.received_total > self.limits.login_bytes_max:
            self._too_much_before_login(self._parser.received_total)
        if traffic.stalled:
            traffic.pause_if_idle()
        if self.outbox.waiting and not self._awaiting:
            self._await()

    def data_to_send(self) -> bytes:
        """Return all that is to be written now."""
        if self._look_again:
            self._look_again = False
            self._after_broker()
        data = self.outbox.take()
        if self._starved and self.write_room:
            starved, self._starved = self._starved, []
            for consumer in starved:
                consumer.again()
        return data

    def _count_held(self) -> None:
        """Count what is kept of the peer's: an unfinished frame, what waits for room or disk."""
        held = self._parser.partial + self._traffic.spool_bytes + self.outbox.waiting_bytes
        if held != self._held:
            self._hold(held)

    def _hold(self, size: int) -> None:
        """Count bytes that are kept; end where all connections hold too much together."""
        budget = self.limits.unfinished
        budget.held += size - self._held
        grew = size > self._held
        self._held = size
        if grew and budget.held > budget.maximum and size > self.limits.unfinished_free_bytes:
            text = (
                f"Unfinished frames of all connections, and those that wait for room, with their "
                f"headers and receipts, hold more than {budget.maximum} bytes, a quarter of "
                f"global-max-size, {size} of them this one's; try again later."
            )
            refusal = Refusal(code=Code.MEMORY_FULL, text=text, transient=True)
            self.finish(self._error(refusal, None))

    def _after_broker(self) -> None:
        """Act on what the broker told us while it was busy."""
        removed, self._removed = self._removed, []
        for refusal in removed:
            if self.state is State.OPEN:
                self.refuse(refusal, None)
        if self.state is State.OPEN:
            paused = self.paused_reading
            self._traffic.go_on()
            self._was_unread |= paused and not self.paused_reading
            if self._held:
                self._count_held()
        self._await()

    def write_resumed(self) -> None:
        """The transport has taken what waited."""
        self._was_unread |= self.choked
        self.choked = False
        starved, self._starved = self._starved, []
        for consumer in starved:
            consumer.again()

    def tick(self, now: float) -> float | None:
        """Do what is due; return when to be called again."""
        self._commands.now = now
        if self._opened_at is None:
            self._opened_at = now
        if self.state is State.ENDED:
            return None
        if self._pulse is None:
            deadline = self._opened_at + self.limits.login_seconds
            if self.state is State.OPENING and now >= deadline:
                self._login_too_late()
                return None
            return max(deadline, now + 1.0)
        return self._tick_open(now, self._pulse)

    def connection_lost(self, now: float) -> None:
        """The peer is gone: everything it held goes back."""
        self._commands.now = now
        self.seen.end(Cause.CUT)
        self._leave()
        self.outbox.forget_waiting()

    def receive_eof(self, now: float) -> None:
        """The peer sends no more: end, but confirm what is still under way."""
        self._commands.now = now
        self.seen.end(Cause.CUT)
        if self.state is not State.ENDED:
            self.finish(b"")
            self._settle()

    def stop(self, now: float) -> None:
        """Say that the gateway is going down, and end."""
        self._commands.now = now
        if self.state is not State.ENDED:
            text = "The gateway is shutting down; connect again later."
            refusal = Refusal(code=Code.SHUTTING_DOWN, text=text, transient=True)
            self.finish(self._error(refusal, None))
            self._settle()

    # ---- time

    def _tick_open(self, now: float, pulse: Pulse) -> float | None:
        if self.paused_reading or self.behind or self.choked or self._was_unread:
            # Silence that we caused is not held against the peer; once it is read from again, its
            # time begins anew.
            self._was_unread = False
            pulse.heard(now)
            if self._partial_since is not None:
                self._partial_since = now
        elif pulse.silent(now):
            self.seen.end(Cause.TIMED_OUT)
            text = f"Nothing was received for {pulse.ttl_ms} ms, which is this connection's limit."
            self.finish(self._error(Refusal(code=Code.BAD_FRAME, text=text), None))
            self._settle()
            return None
        elif self._frame_too_slow(now) or self._consumer_stuck(now):
            return None
        if pulse.beat_due(now) and self.write_room:
            self.outbox.write(_BEAT)
        self._commands.transactions.expire(now)
        look = min(_LOOK_SECONDS, self.limits.frame_seconds, self._stuck.step or _LOOK_SECONDS)
        return min(pulse.deadline(), now + look)

    def _frame_too_slow(self, now: float) -> bool:
        """End a connection whose frame is under way for too long [T16]."""
        if self._partial_since is None or self._parser.halted:
            return False
        size = self._parser.partial
        limits = self.limits
        allowed = limits.frame_seconds + size / limits.frame_bytes_per_second
        if now - self._partial_since < allowed:
            return False
        text = (
            f"A frame of {size} bytes so far is not complete after {allowed:.0f} s; the limit is "
            f"{limits.frame_seconds:g} s (unfinished-timeout) and 1 s for every "
            f"{limits.frame_bytes_per_second} bytes (unfinished-min-rate)."
        )
        self.seen.end(Cause.TIMED_OUT, text)
        self.finish(self._error(Refusal(code=Code.BAD_FRAME, text=text), None))
        self._settle()
        return True

    def _consumer_stuck(self, now: float) -> bool:
        """End a connection with a subscription that holds deliveries and acknowledges none."""
        stuck = self._stuck
        found = [] if stuck.step is None else stuck.look(self.seen.consumers(), now)
        for one in found[:1]:
            self.expel(stuck.refusal(one))
        return bool(found)

    # ---- confirmations

    def durable_up_to(self, ticket: int) -> None:
        """Let go what waited for the journal [gateway.model.ports.DurableListener]."""
        self._awaiting = False
        paused = self.paused_reading
        self.outbox.durable_up_to(ticket)
        self._was_unread |= paused
        if self._held:
            self._count_held()
        self._settle()

    def consumed(self, tickets: Sequence[int]) -> None:
        """Let go what need not wait any more [gateway.model.ports.DurableListener]."""
        paused = self.paused_reading
        if self.outbox.consumed(tickets):
            self._was_unread |= paused
            self.wake()

    def store_failed(self, refusal: Refusal) -> None:
        """End without an outcome for what is unconfirmed [gateway.model.ports.DurableListener]."""
        self._awaiting = False
        self.outbox.forget_waiting()
        if self.state is not State.ENDED:
            self.finish(self._error(refusal, None))
        self.closing = True
        self.wake()

    def _settle(self) -> None:
        """Ask for the journal's word if something waits for it, and get what may go sent."""
        self._await()
        self.wake()

    def _await(self) -> None:
        if self.outbox.waiting and not self._awaiting:
            self._awaiting = True
            self._broker.await_durable(self)

    # ---- the parser's side

    def run(self, route: object, bodies: list[bytes], receipts: list[bytes]) -> None:
        """Take SENDs of one route, or ACKs [protocols.stomp.parser.Sink]."""
        if self.state is State.OPEN:
            if route is not ACKS:
                self.seen.received += len(bodies)
            self._traffic.run(route, bodies, receipts)

    def amid(self) -> None:
        """Let the others have a turn when it is time [protocols.stomp.parser.Sink]."""
        if self.state is State.OPEN and self.spent():
            self._parser.halted = self.behind = True

    def lead(self, head: Head) -> None:
        """Lead a SEND to its route [protocols.stomp.parser.Sink]."""
        if self.state is State.OPEN:
            self._traffic.lead(head)

    def frame(self, head: Head, body: bytes) -> None:
        """Take one frame [protocols.stomp.parser.Sink]."""
        if self.state is State.OPENING:
            self._greet(head)
        elif self.state is State.OPEN:
            if head.command == SEND:
                self.seen.received += 1
            self._traffic.frame(head, body)
            self.amid()

    def broken(self, error: FrameError) -> None:
        """The bytes are no frames: end [protocols.stomp.parser.Sink]."""
        if self.state is State.ENDED:
            return
        if error.silent:
            self.seen.end(Cause.PROTOCOL_ERROR, error.refusal.text)
        self.finish(b"" if error.silent else self._error(error.refusal, error.receipt))

    # ---- login

    def _greet(self, head: Head) -> None:
        if head.command not in _GREETINGS:
            text = f"The first frame must be CONNECT or STOMP, not {head.command}."
            self.finish(self._error(Refusal(code=Code.BAD_FRAME, text=text), head.receipt))
            return
        try:
            greeting = greet(head.headers, self.limits, self.name)
        except RefusedError as error:
            self.finish(self._error(error.refusal, None))
            return
        if greeting is None:
            self.seen.end(Cause.PROTOCOL_ERROR, "No version of STOMP is spoken by both.")
            self.finish(no_common_version(self.limits))
        elif self._authenticator.open and not self._authenticator.proves(greeting.user or ""):
            self._open(greeting)
        elif greeting.user is None:
            self.finish(self._error(wrong_login(None), None))
        else:
            self.state = State.CHECKING
            self._parser.halted = self.held_up = True
            self._authenticator.check(
                greeting.user, greeting.password, lambda good: self._checked(greeting, good=good)
            )

    def _checked(self, greeting: Greeting, *, good: bool) -> None:
        if self.state is not State.CHECKING:
            return
        if not good:
            self.finish(self._error(wrong_login(greeting.user), None))
            self._settle()
            return
        self.held_up = False
        self.account = greeting.user or NOBODY
        self._open(greeting)
        self._parser.resume()
        self._traffic.pause_if_idle()
        self._settle()

    def _open(self, greeting: Greeting) -> None:
        self.state = State.OPEN
        self.version = self._parser.version = greeting.version
        self.user = greeting.user
        self._commands.version = greeting.version
        self._commands.client_id = greeting.client_id
        self._traffic.opened(greeting.connected, self.account)
        self._pulse = Pulse(greeting.beats, self._commands.now)
        self.retick = True
        self.outbox.write(greeting.connected)
        self.seen.opened(greeting)

    def _login_too_late(self) -> None:
        self.seen.end(Cause.TIMED_OUT)
        self.finish(self._error(login_too_late(self.limits), None))
        self._settle()

    def _too_much_before_login(self, size: int) -> None:
        if self.state is not State.ENDED:
            self.finish(self._error(too_much_before_login(size, self.limits), None))

    # ---- what traffic and subscriptions ask for

    @property
    def ended(self) -> bool:
        """Whether no input counts any more."""
        return self.state is State.ENDED

    def refuse(self, refusal: Refusal, receipt: bytes | None) -> None:
        """Answer with ERROR behind earlier confirmations; 1.2 ends with it [STOMP 1.2 ERROR]."""
        answer = self._error(refusal, receipt)
        if self.version is Version.V1_2 or refusal.code in _FATAL:
            self.finish(answer)
        elif self._mistakes.too_many(self._commands.now):
            text = self._mistakes.text(refusal.text)
            self.finish(self._error(Refusal(code=Code.TOO_MANY, text=text), receipt))
        else:
            self.seen.refused = None
            self.outbox.confirm(0, answer)

    def finish(self, answer: bytes, ticket: int = 0) -> None:
        """End: `answer` goes out after `ticket` and all that is to be confirmed, then we close."""
        if self.state is not State.ENDED:
            self.seen.finished()
            self._leave()
            self.outbox.confirm(ticket, answer, self._close)

    def look_again(self) -> None:
        """Call `Traffic.go_on` before the next output."""
        self._look_again = True
        self.wake()

    def must_hear_acks(self) -> None:
        """A delivery waits for an ACK [protocols.stomp.subscription.Host]."""
        self._traffic.must_hear_acks()

    def starved(self, consumer: StompConsumer) -> None:
        """The output is full [protocols.stomp.subscription.Host]."""
        self._starved.append(consumer)

    def flush_soon(self) -> None:
        """There is something to send [protocols.stomp.subscription.Host]."""
        self.wake()

    def facts(self, subscription: str) -> ConsumerFacts:
        """Say who has a subscription [protocols.stomp.subscription.Host]."""
        return ConsumerFacts(
            protocol="STOMP",
            connection=self.name,
            remote=self.remote,
            user=self.user,
            name=subscription,
        )

    def expel(self, refusal: Refusal) -> None:
        """Answer with ERROR and end [protocols.stomp.subscription.Host]."""
        if self.state is not State.ENDED:
            self.finish(self._error(refusal, None))
            self._settle()

    def subscription_removed(self, consumer: StompConsumer, refusal: Refusal) -> None:
        """The queue side has ended it [protocols.stomp.subscription.Host].

        The broker is in the middle of removing the queue: what follows is done before the next
        output.
        """
        self._commands.subscriptions.drop(consumer)
        self._removed.append(refusal)
        self.look_again()

    # ---- ending

    def _error(self, refusal: Refusal, receipt: bytes | None) -> bytes:
        self.seen.refused = refusal
        version = self.version or Version.V1_0
        return frame.error(refusal, receipt, version=version)

    def _leave(self) -> None:
        """Give everything back; no input counts from here on."""
        if self.state is State.ENDED:
            return
        self.state = State.ENDED
        self.held_up = False
        self._parser.drop()
        if self._held:
            self._hold(0)
        self._starved.clear()
        self._commands.leave()
        self._traffic.leave()

    def _close(self) -> None:
        self.closing = True
