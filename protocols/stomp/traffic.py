"""The traffic of an open connection: runs of SENDs, single commands, and waiting for room.

    flowing    SENDs go to their producers as they come
    stalled    an address is full (BLOCK, PAGE), or the disk is and `disk_full_pause` is set:
               nothing is read, or, while the peer holds
               deliveries whose ACKs could make room, all but ACK and NACK waits here in order

ACK and NACK pass what waits, but not each other: those of a transaction pass with the others, and
with the BEGIN that they need. Else a later ACK could take what an earlier one in a transaction had,
which would then fail. Where that BEGIN has to wait, as its name's last use has, they all do.

A producer that `holds` keeps a full address from taking anything (BLOCK, an operator's block): the
SEND waits here, the first of a connection as well as one in a transaction, and of a run that meets
the limit what is beyond it. Another one that is full may take or refuse what comes: so the next
SEND is offered alone, and its fate decides whether the connection waits or is told. What waits is
bounded; only a full spool is an ERROR. Confirmations stand in frame order whether frames waited or
not.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, Protocol

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.ports import Broker
from gateway.model.run import Outcome
from protocols.stomp import frame
from protocols.stomp.commands import Commands
from protocols.stomp.frame import SEND, Head
from protocols.stomp.outbox import Outbox
from protocols.stomp.parser import ACKS, Parser
from protocols.stomp.sending import DELAY_HEADER, DiskWait, Route, Sender, Sending

#: What a waiting frame costs beside its body, receipt and headers.
_FRAME_BYTES: Final = 512
#: What a header costs in its frame, beside its name and value.
_HEADER_BYTES: Final = 64
_LATE_RECEIPT: Final = "RECEIPT"
_SETTLING: Final = ("ACK", "NACK")
_BEGIN: Final = "BEGIN"
#: What gives a transaction's name a meaning, and takes it.
_BORDERS: Final = (_BEGIN, "COMMIT", "ABORT")


class Connection(Protocol):
    """What traffic does to its connection."""

    held_up: bool
    behind: bool
    outbox: Outbox

    @property
    def ended(self) -> bool: ...

    def refuse(self, refusal: Refusal, receipt: bytes | None) -> None:
        """Answer with ERROR; this may end the connection."""

    def finish(self, answer: bytes, ticket: int) -> None:
        """End the connection with `answer` after `ticket`."""

    def look_again(self) -> None:
        """Call `go_on` before the next output."""


class _Waiting:
    """SENDs of one route that wait, or are on their way."""

    __slots__ = ("bodies", "receipts", "route")

    def __init__(self, route: Route, bodies: list[bytes], receipts: list[bytes]) -> None:
        self.route = route
        self.bodies = bodies
        self.receipts = receipts

    def cost(self) -> int:
        """Return what keeping it costs, in bytes."""
        return _FRAME_BYTES + _cost_of(self.bodies) + _cost_of(self.receipts)

    def cut(self, count: int) -> _Waiting:
        """Take the first `count` off and return them."""
        first = _Waiting(self.route, self.bodies[:count], self.receipts[:count])
        self.bodies = self.bodies[count:]
        self.receipts = self.receipts[count:]
        return first


class Traffic:
    """See the module text.

    Attributes:
        connected: the CONNECTED frame, for a peer that asks again.
        spool_bytes: how many bytes wait here.
    """

    __slots__ = (
        "_broker",
        "_commands",
        "_connection",
        "_disk",
        "_limits",
        "_parser",
        "_sending",
        "_spool",
        "_stalled",
        "_waiting_acks",
        "_waiting_names",
        "connected",
        "spool_bytes",
    )

    def __init__(
        self, broker: Broker, connection: Connection, parser: Parser, commands: Commands
    ) -> None:
        self.connected = b""
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
            origin=commands.subscriptions.origin,
        )
        self._stalled: Sender | DiskWait | None = None
        # With what each costs, as it was counted.
        self._spool: deque[tuple[int, _Waiting | tuple[Head, bytes]]] = deque()
        self.spool_bytes = 0
        self._waiting_acks = 0  # ACK and NACK in the spool
        self._waiting_names: Counter[str | None] = Counter()  # of what begins and ends there

    @property
    def stalled(self) -> bool:
        """Whether something waits for room at an address."""
        return self._stalled is not None

    def opened(self, connected: bytes, user: str) -> None:
        """The client was let in: `user` is who it has proved to be."""
        self.connected = connected
        self._sending.user = user

    # ---- flowing

    def addresses(self) -> list[str]:
        """Return where the client sends to."""
        return self._sending.addresses()

    def run(self, route: object, bodies: list[bytes], receipts: list[bytes]) -> None:
        """Take SENDs of one route, or ACKs that are only ids [protocols.stomp.parser.Sink]. Hot."""
        if route is ACKS:
            if self._waiting_acks:
                for name in bodies:
                    self._wait(Head("ACK", {"id": name.decode()}, -1), b"")
                return
            refused = self._commands.subscriptions.acknowledge_all(bodies)
            if refused is not None:
                self._connection.refuse(refused.refusal, None)
            return
        assert isinstance(route, Route)
        sender = route.sender
        if self._stalled is not None or sender.full:
            self._run_into_full(_Waiting(route, bodies, receipts))
            return
        outcome = route.send(bodies)
        if outcome.refusal is not None:
            self._partly_taken(_Waiting(route, bodies, receipts), outcome)
            return
        ticket = outcome.ticket
        outbox = self._connection.outbox
        if receipts:
            answer = frame.receipts(receipts)
            outbox.confirm(ticket, answer, sent=True)
        elif ticket > outbox.needed:
            outbox.needed = ticket

    def lead(self, head: Head) -> None:
        """Lead a SEND to its route [protocols.stomp.parser.Sink].

        What is to be refused is left alone: it is refused in its turn, as a frame. So is what would
        close senders, since the parser may hold a run for one of them.
        """
        if (
            "transaction" in head.headers
            or DELAY_HEADER in head.headers
            or self._wait_for_disk().full
            or self._sending.crowded(head.headers)
        ):
            return
        try:
            self._sending.prepare(head)
        except RefusedError:
            head.route = None

    def frame(self, head: Head, body: bytes) -> None:
        """Take one frame [protocols.stomp.parser.Sink]."""
        if self._stalled is None:
            self._act(head, body)
        elif self._passes(head):
            self._settle_while_stalled(head)
        else:
            self._wait(head, body)

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
                self._connection.outbox.write(self.connected)
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
            self._keep(route.sender, head, body)
            return
        head.restamp(self._parser.stamp)
        stored = (head.stored if head.length >= 0 else head.stored_for(len(body))) + body
        if transaction is not None or DELAY_HEADER in head.headers:
            # Looked at each time: a transaction may be over, and a delay counts from each message.
            head.route = None
        if transaction is None:
            self.run(route, [stored], [] if head.receipt is None else [head.receipt])
            return
        self._commands.send_in(transaction, route, stored)
        self._commands.confirm(0, head.receipt)

    def _disk_stops(self, disk: DiskWait, head: Head, body: bytes) -> bool:
        """Keep a SEND until there is room, or raise RefusedError: before anything is made for it.

        Returns False when there is room after all.
        """
        if self._limits.disk_full_pause:
            self._keep(disk, head, body)
            return True
        refusal = disk.producer.refuse(1)
        if refusal is not None:
            raise RefusedError(refusal)
        return False

    def _keep(self, wait: Sender | DiskWait, head: Head, body: bytes) -> None:
        """Wait for room; this frame is what comes first then."""
        self._stalled = wait
        cost = _cost(head, body)
        self._spool.appendleft((cost, (head, body)))
        self.spool_bytes += cost
        self.pause_if_idle()

    def _confirm(self, run: _Waiting, ticket: int) -> None:
        outbox = self._connection.outbox
        if run.receipts:
            answer = frame.receipts(run.receipts)
            outbox.confirm(ticket, answer, sent=True)
        else:
            outbox.note(ticket)

    def _partly_taken(self, run: _Waiting, outcome: Outcome) -> None:
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

    def _run_into_full(self, run: _Waiting) -> None:
        if self._stalled is not None:
            self._wait_run(run)
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

    def _stall(self, wait: Sender | DiskWait, run: _Waiting) -> None:
        """Wait for room; `run` is what comes first then."""
        self._stalled = wait
        if run.bodies:
            cost = run.cost()
            self._spool.appendleft((cost, run))
            self.spool_bytes += cost
        self.pause_if_idle()

    def pause_if_idle(self) -> None:
        """Stop reading while stalled, unless an ACK could make room."""
        if self._stalled is not None and not self._commands.subscriptions.unacked:
            self._parser.halted = self._connection.held_up = True

    def must_hear_acks(self) -> None:
        """A delivery went out whose ACK must be read, stalled or not."""
        if self._stalled is not None and self._parser.halted:
            self._connection.look_again()

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
        if self._parser.halted and (self._stalled is None or self._commands.subscriptions.unacked):
            self._connection.held_up = False
            if not self._connection.behind:
                self._parser.resume()
        self.pause_if_idle()

    def _replay(self) -> None:
        spool = self._spool
        while spool and self._stalled is None and not self._connection.ended:
            cost, waiting = spool.popleft()
            self.spool_bytes -= cost
            if isinstance(waiting, _Waiting):
                self.run(waiting.route, waiting.bodies, waiting.receipts)
            else:
                head, body = waiting
                self._note(head, -1)
                self._act(head, body)

    def _passes(self, head: Head) -> bool:
        """Return whether a frame acts at once although others wait."""
        if head.command not in _SETTLING and head.command != _BEGIN:
            return False
        name = head.headers.get("transaction")
        return not self._waiting_acks and (name is None or not self._waiting_names[name])

    def _note(self, head: Head, count: int) -> None:
        """Count what comes into the spool, or leaves it."""
        if head.command in _SETTLING:
            self._waiting_acks += count
        elif head.command in _BORDERS:
            name = head.headers.get("transaction")
            self._waiting_names[name] += count
            if not self._waiting_names[name]:
                del self._waiting_names[name]

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
            self._wait(late, b"")

    def _wait(self, head: Head, body: bytes) -> None:
        cost = _cost(head, body)
        if self._fits(cost, head.receipt):
            self._spool.append((cost, (head, body)))
            self._note(head, 1)

    def _wait_run(self, run: _Waiting) -> None:
        cost = run.cost()
        if self._fits(cost, run.receipts[-1] if run.receipts else None):
            self._spool.append((cost, run))

    def _fits(self, cost: int, receipt: bytes | None) -> bool:
        limit = self._limits.spool_bytes_max
        if self.spool_bytes + cost <= limit:
            self.spool_bytes += cost
            return True
        assert self._stalled is not None
        refusal = self._stalled.producer.blocked()
        why = "" if refusal is None else f" {refusal.text}"
        self._connection.refuse(
            Refusal(
                code=Code.ADDRESS_FULL if refusal is None else refusal.code,
                text=f"{self.spool_bytes} bytes of this connection wait for room and {limit} is "
                f"the limit. Acknowledge what was delivered before sending more.{why}",
                transient=True,
            ),
            receipt,
        )
        return False

    def leave(self) -> None:
        """The connection ends: forget what waits, which was never confirmed."""
        self._stalled = None
        self._spool.clear()
        self.spool_bytes = 0
        self._waiting_acks = 0
        self._waiting_names.clear()
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


def _cost(head: Head, body: bytes) -> int:
    """Return what keeping a frame costs: text may take four times its bytes, empty text fifty."""
    size = _FRAME_BYTES + len(body) + len(head.receipt or b"") + len(head.stored)
    for name, value in head.headers.items():
        size += _HEADER_BYTES + sys.getsizeof(name) + sys.getsizeof(value)
    return size


def _cost_of(parts: Sequence[bytes]) -> int:
    # An object costs as much as many a receipt.
    return sum(map(sys.getsizeof, parts)) + 8 * len(parts)
