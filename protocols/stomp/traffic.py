"""The traffic of an open connection: runs of SENDs, single commands, and waiting for room.

    flowing    SENDs go to their producers as they come
    stalled    an address is full (BLOCK, PAGE), or the disk is and `disk_full_pause` is set:
               nothing is read, or, while the peer holds
               deliveries whose ACKs could make room, all but ACK and NACK waits here in order

A producer that `holds` keeps a full address from taking anything (BLOCK, an operator's block): the
SEND waits here, the first of a connection as well as one in a transaction, and of a run that meets
the limit what is beyond it. Another one that is full may take or refuse what comes: so the next
SEND is offered alone, and its fate decides whether the connection waits or is told. What waits is
bounded (`spool`); only a full spool is an ERROR. Confirmations stand in frame order whether frames
waited or not.
"""

from __future__ import annotations

from typing import Final

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.ports import Broker
from gateway.model.principal import Principal
from gateway.model.run import Outcome
from protocols.stomp import frame
from protocols.stomp.commands import Commands
from protocols.stomp.connection import Connection
from protocols.stomp.frame import SEND, Head
from protocols.stomp.heads import FrameError
from protocols.stomp.intake import Pause
from protocols.stomp.parser import ACKS, Parser
from protocols.stomp.renewing import Renewing
from protocols.stomp.sending import DiskWait, Route, Sender, Sending, is_single
from protocols.stomp.spool import Spool, Waiting, WaitingFrame, WaitingSends

_LATE_RECEIPT: Final = "RECEIPT"


class Traffic:
    """See the module text. Implements the parser's Sink.

    Attributes:
        received: SENDs that came.
        renewing: what takes tokens.
        spool: what waits for room.
    """

    __slots__ = (
        "_broker",
        "_commands",
        "_connected",
        "_connection",
        "_disk",
        "_limits",
        "_parser",
        "_sending",
        "_stalled",
        "received",
        "renewing",
        "spool",
    )

    def __init__(
        self, broker: Broker, connection: Connection, parser: Parser, commands: Commands
    ) -> None:
        self._connected = b""
        self._broker = broker
        self._disk: DiskWait | None = None  # from the first SEND on
        self._connection = connection
        self._parser = parser
        self._commands = commands
        self._limits = parser.limits
        self._sending = Sending(
            broker,
            self._limits,
            self._unblocked,
            parser.forget,
            places=commands.subscriptions.places,
            reply_to=commands.reply_to,
            origin=commands.subscriptions.origin,
        )
        self._stalled: Sender | DiskWait | None = None
        self.renewing = Renewing(connection, None)
        self.received = 0
        self.spool = Spool(self._limits.spool_bytes_max)

    @property
    def stalled(self) -> bool:
        """Whether something waits for room at an address."""
        return self._stalled is not None

    def opened(self, connected: bytes, principal: Principal) -> None:
        """The client was let in, and told `connected`; it acts for `principal`."""
        self._connected = connected
        self._sending.principal = principal

    def addresses(self) -> list[str]:
        """Return where the client sends to."""
        return self._sending.addresses()

    # ---- the parser's sink

    def run(self, route: object, bodies: list[bytes], receipts: list[bytes]) -> None:
        """Take SENDs of one route, or ACKs that are only ids [protocols.stomp.parser.Sink]. Hot."""
        if route is ACKS:
            self._run_of_acks(bodies)
            return
        assert isinstance(route, Route)
        self.received += len(bodies)
        self._send_run(route, bodies, receipts)

    def amid(self) -> None:
        """Let the others have a turn when it is time [protocols.stomp.parser.Sink]."""
        self._connection.let_others()

    def lead(self, head: Head) -> None:
        """Lead a SEND to its route [protocols.stomp.parser.Sink].

        What is to be refused is left alone: it is refused in its turn, as a frame. So is what would
        close senders, since the parser may hold a run for one of them.
        """
        if (
            is_single(head.headers)
            or self._wait_for_disk().full
            or self._sending.crowded(head.headers)
        ):
            return
        try:
            if self._sending.prepare(head).sender.lost:
                head.route = None
        except RefusedError:
            head.route = None

    def frame(self, head: Head, body: bytes) -> None:
        """Take one frame [protocols.stomp.parser.Sink]."""
        if head.command == SEND:
            if self.renewing.takes(head):
                self._renew(head, body)
                return
            self.received += 1
        if self._stalled is None:
            self._act(head, body)
        elif self.spool.lets_pass(head):
            self._settle_while_stalled(head)
        else:
            self._wait(WaitingFrame(head, body))
        self._connection.let_others()

    def _renew(self, head: Head, body: bytes) -> None:
        """Take a token at once: it waits behind no SEND that waits for room."""
        head.route = None
        try:
            self.renewing.take(head, body)
        except RefusedError as error:
            self._connection.refuse(error.refusal, head.receipt)

    def broken(self, error: FrameError) -> None:
        """The bytes are no frames: end [protocols.stomp.parser.Sink]."""
        # A run before them may have ended it.
        if not self._connection.ended:
            self._connection.fail(error.refusal, error.receipt)

    # ---- flowing

    def _run_of_acks(self, ids: list[bytes]) -> None:
        if self.spool.keeps_acks:
            for name in ids:
                if self._connection.ended:
                    return  # there was no room for the one before
                self._wait(WaitingFrame(Head("ACK", {"id": name.decode()}, -1), b""))
            return
        refused = self._commands.subscriptions.acknowledge_all(ids)
        if refused is not None:
            self._connection.refuse(refused.refusal, None)

    def _send_run(self, route: Route, bodies: list[bytes], receipts: list[bytes]) -> None:
        """Send a run, or what is left of it after a wait. Hot."""
        if self._stalled is not None or route.sender.full:
            self._run_into_full(WaitingSends(route, bodies, receipts))
            return
        outcome = route.send(bodies)
        if outcome.refusal is not None:
            self._partly_taken(WaitingSends(route, bodies, receipts), outcome)
            return
        ticket = outcome.ticket
        outbox = self._connection.outbox
        if receipts:
            answer = frame.receipts(receipts)
            outbox.confirm(ticket, answer, sent=True)
        elif ticket > outbox.needed:
            outbox.needed = ticket

    def _act(self, head: Head, body: bytes) -> None:
        try:
            if head.command == SEND:
                self._send(head, body)
            elif head.command == "DISCONNECT":
                answer = b""
                if head.receipt is not None:
                    answer = frame.receipts((head.receipt,))
                self._connection.finish(answer, self._connection.outbox.needed)
            elif head.command in ("CONNECT", "STOMP"):
                # Nothing is negotiated twice [Artemis answers so].
                self._connection.outbox.write(self._connected)
            elif head.command == _LATE_RECEIPT:
                self._commands.confirm(head.length, head.receipt)
            else:
                self._commands.act(head)
        except RefusedError as error:
            self._connection.refuse(error.refusal, head.receipt)

    def _wait_for_disk(self) -> DiskWait:
        if self._disk is None:
            self._disk = DiskWait(self._broker, self._unblocked)
        return self._disk

    def _send(self, head: Head, body: bytes) -> None:
        disk = self._wait_for_disk()
        if disk.full and self._disk_stops(disk, head, body):
            return
        route = self._sending.prepare(head)
        transaction = head.headers.get("transaction")
        if (
            transaction is not None
            and route.sender.full
            and _is_held(route.sender)
            # The room that it waits for could be what this transaction has acknowledged.
            and not self._commands.transactions.settles(transaction)
        ):
            head.route = None
            self._stall(route.sender, WaitingFrame(head, body))
            return
        head.restamp(self._parser.stamp)
        stored = (head.stored if head.length >= 0 else head.stored_for(len(body))) + body
        if is_single(head.headers) or route.sender.lost:
            head.route = None  # the next one is looked at again
        if transaction is None:
            self._send_run(route, [stored], [] if head.receipt is None else [head.receipt])
            return
        self._commands.send_in(transaction, route, stored)
        self._commands.confirm(0, head.receipt)

    def _disk_stops(self, disk: DiskWait, head: Head, body: bytes) -> bool:
        """Keep a SEND until there is room, or raise RefusedError: before anything is made for it.

        Returns False when there is room after all.
        """
        if self._limits.disk_full_pause:
            self._stall(disk, WaitingFrame(head, body))
            return True
        refusal = disk.producer.refuse(1)
        if refusal is not None:
            raise RefusedError(refusal)
        return False

    def _confirm(self, run: WaitingSends, ticket: int) -> None:
        outbox = self._connection.outbox
        if run.receipts:
            answer = frame.receipts(run.receipts)
            outbox.confirm(ticket, answer, sent=True)
        else:
            outbox.note(ticket)

    def _partly_taken(self, run: WaitingSends, outcome: Outcome) -> None:
        """Go on behind a send that was refused somewhere in `run`."""
        sender = run.route.sender
        while outcome.refusal is not None:
            refusal = outcome.refusal
            taken = run.cut(outcome.taken)
            if taken.bodies:
                self._confirm(taken, outcome.ticket)
            if refusal.code is Code.DISK_FULL and self._limits.disk_full_pause:
                # Not the sender: an address that drops is not told of a full disk.
                self._stall(self._wait_for_disk(), run)
                return
            if _is_held(sender):
                self._stall(sender, run)
                return
            refused = run.cut(1)
            self._connection.refuse(refusal, refused.receipts[0] if refused.receipts else None)
            if self._connection.ended or not run.bodies:
                return
            outcome = run.route.send(run.bodies)
        self._confirm(run, outcome.ticket)

    # ---- stalled

    def _run_into_full(self, run: WaitingSends) -> None:
        if self._stalled is not None:
            self._wait(run)
            return
        sender = run.route.sender
        blocked = sender.producer.blocked()
        sender.full = blocked is not None
        if _is_held(sender):
            self._stall(sender, run)
            return
        waits = blocked is not None and blocked.transient and blocked.code is not Code.DISK_FULL
        offered = run.cut(1) if waits else run
        outcome = run.route.send(offered.bodies)
        if outcome.refusal is not None:
            offered.bodies += run.bodies if waits else []
            offered.receipts += run.receipts if waits else []
            self._partly_taken(offered, outcome)
            return
        self._confirm(offered, outcome.ticket)
        if waits:
            self._stall(sender, run)

    def _stall(self, wait: Sender | DiskWait, first: Waiting) -> None:
        """Wait for room; `first` is what comes first then, before all that waits already."""
        self._stalled = wait
        if isinstance(first, WaitingFrame) or first.bodies:
            self.spool.add_first(first)
        self.pause_if_idle()

    def pause_if_idle(self) -> None:
        """Stop reading while stalled, unless an ACK could make room, or is worth hearing."""
        if self._stalled is not None and not (
            self._commands.subscriptions.unacked and self._hears_on()
        ):
            self._connection.intake.pause(Pause.ROOM)

    def _hears_on(self) -> bool:
        """Whether more may come while ACKs are to be heard.

        A quota is not for ACKs to make room in, and time does without them: so a peer that floods
        is not read for a while, before there is no place for what it sends.
        """
        if self._stalled is None or self.spool.size < self._limits.spool_bytes_max // 2:
            return True
        refusal = self._stalled.producer.blocked()
        return refusal is None or refusal.code is not Code.QUOTA_REACHED

    def _unblocked(self, wait: Sender | DiskWait) -> None:
        if self._stalled is wait:
            self._connection.look_again()

    def go_on(self) -> None:
        """Send what waited if there is room now, and read again if there is reason to."""
        if self._stalled is not None and not self._stalled.full:
            self._stalled = None
            self._replay()
        if self._connection.ended:
            return
        if self._stalled is None or (self._commands.subscriptions.unacked and self._hears_on()):
            self._connection.intake.resume(Pause.ROOM)
        self.pause_if_idle()

    def _replay(self) -> None:
        spool = self.spool
        while spool and self._stalled is None and not self._connection.ended:
            waiting = spool.take()
            if isinstance(waiting, WaitingSends):
                self._send_run(waiting.route, waiting.bodies, waiting.receipts)
            else:
                self._act(waiting.head, waiting.body)

    def _settle_while_stalled(self, head: Head) -> None:
        """Settle at once, confirm in frame order: behind the SENDs that wait."""
        receipt, head.receipt = head.receipt, None
        try:
            ticket = self._commands.act(head)
        except RefusedError as error:
            self._connection.refuse(error.refusal, receipt)
            return
        if receipt is not None:
            late = Head(_LATE_RECEIPT, {}, ticket)
            late.receipt = receipt
            self._wait(WaitingFrame(late, b""))

    def _wait(self, waiting: Waiting) -> None:
        """Keep what comes behind what waits; where it does not fit, its peer is told."""
        if self.spool.add(waiting):
            return
        assert self._stalled is not None, "nothing waits where there is room"
        refusal = self._stalled.producer.blocked()
        why = "" if refusal is None else f" {refusal.text}"
        self._connection.refuse(
            Refusal(
                code=Code.ADDRESS_FULL if refusal is None else refusal.code,
                text=f"{self.spool.size} bytes of this connection wait for room and "
                f"{self._limits.spool_bytes_max} is the limit. Acknowledge what was delivered "
                f"before sending more.{why}",
                transient=True,
            ),
            waiting.receipt,
        )

    def leave(self) -> None:
        """The connection ends: forget what waits, which was never confirmed."""
        self._stalled = None
        self.spool.clear()
        self._sending.close_all()
        if self._disk is not None:
            self._disk.producer.close()
            self._disk = None


def _is_held(sender: Sender) -> bool:
    """Whether a full address takes nothing now, and what is sent to it waits here."""
    blocked = sender.producer.blocked()
    return (
        blocked is not None
        and blocked.transient
        and blocked.code is not Code.DISK_FULL
        and sender.producer.holds
    )
