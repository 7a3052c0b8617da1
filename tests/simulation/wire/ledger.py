"""What the clients of a network were told, and what may follow from it.

    send     asked ──> ok | failed | unknown (the connection ended before an answer)
    copy     one message in one queue: LIVE, until the core lets it go for a reason
    part     a transaction: open ──> asked ──> ok | failed | unknown

Clients write here what they did and read. The core is listened to in two places only, where the
network leaves clients blind: why a message left its queue, and what went back to its queue. Both
are judged: what leaves as acknowledged must have been acknowledged by a client that had it.

total     what was confirmed is there, or has left for a reason; at the end nothing is anywhere
end       what a client was told is gone does not come again; what was refused never comes
marks     what a client may have had is marked when it comes again
order     from one sender, a consumer gets what never went back in the order in which it was sent
holder    nothing comes to two who can both still settle it
whole     a transaction's messages and acknowledgements happen together, and not before its commit
bytes     a payload is what it was
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gateway.broker.directory.origin import origin_of
from gateway.model.message import Message
from gateway.queues.queue import Gone
from tests.simulation.core.ledger import payload_of
from tests.simulation.model import ViolationError

OPEN, ASKED, OK, FAILED, UNKNOWN = "open", "asked", "ok", "failed", "unknown"
DEAD, EXPIRED = "DLQ", "ExpiryQueue"
#: Queue, number of the payload, and for what died or expired the queue where it did.
Place = tuple[str, int, str]


class Holder:
    """A subscription of a client, as far as the ledger has to know it.

    Attributes:
        automatic: what is sent to it counts as acknowledged.
        last: by producer, the place of the last message that it got.
    """

    def __init__(self, queue: str, *, automatic: bool) -> None:
        self.queue = queue
        self.automatic = automatic
        self.last: dict[object, int] = {}

    def can_settle(self) -> bool:
        """Whether the gateway would still listen to what it says of its deliveries."""
        raise NotImplementedError


class Send:
    """A message, as its sender knows it. `producer` and `place` order what one producer sent."""

    __slots__ = (
        "copies",
        "due",
        "durable",
        "expires",
        "part",
        "payload",
        "place",
        "producer",
        "serial",
        "state",
    )

    def __init__(self, payload: bytes, producer: object, place: int, *, durable: bool) -> None:
        self.payload = payload
        self.serial = serial_of(payload)
        self.producer = producer
        self.place = place
        self.durable = durable
        self.expires = self.due = 0
        self.state = ASKED
        self.part: Part | None = None
        self.copies: list[Copy] = []

    def __repr__(self) -> str:
        lasting = "" if self.durable else ", not durable"
        return f"{self.payload[:12]!r} ({self.state}{lasting})"


class Copy:
    """A message in a queue.

    Attributes:
        there: False once the core has let it go, or a start did not find it; `why` tells.
        came: some client has read it; `must_mark`: it has to be marked when it comes again.
        had: some client has read it since the last start.
        asked: what clients said of it: ack, nack, reject, release; `told`: its end was confirmed.
        returns: how often it went back to its queue since the last start; `tries`: as a failed
            attempt, ever.
        found: some start has found it.
        origin: the copy that it was before it was moved.
    """

    __slots__ = (
        "asked",
        "came",
        "found",
        "had",
        "holder",
        "must_mark",
        "origin",
        "queue",
        "returns",
        "send",
        "there",
        "told",
        "tries",
        "why",
    )

    def __init__(self, queue: str, send: Send) -> None:
        self.queue = queue
        self.send = send
        self.there = True
        self.why = ""
        self.came = self.had = self.must_mark = self.told = self.found = False
        self.asked: set[str] = set()
        self.returns = self.tries = 0
        self.holder: Holder | None = None
        self.origin: Copy | None = None

    def __repr__(self) -> str:
        where = "there" if self.there else f"gone ({self.why})"
        return f"{self.queue} {self.send} {where}, asked {sorted(self.asked)}, told {self.told}"


class Part:
    """A transaction: what it sends, what it settles with how often that had gone back before."""

    def __init__(self) -> None:
        self.state = OPEN
        self.sends: list[Send] = []
        self.settles: list[tuple[Copy, int]] = []

    def commit(self) -> None:
        """Its end is asked for."""
        self.state = ASKED
        for copy, _ in self.settles:
            copy.asked.add("ack")
            copy.holder = None  # if it fails, others have them before its client knows


class Ledger:
    """See the module text."""

    def __init__(self) -> None:
        self.sends: dict[int, Send] = {}
        self.copies: dict[Place, Copy] = {}
        self.parts: list[Part] = []
        self.automatic: set[str] = set()
        self.delays = False  # what comes back waits for a while, and has no place then
        self.came = 0

    # ---- sending

    def ask(self, send: Send, queues: Iterable[str], part: Part | None = None) -> None:
        """A client sends it now."""
        self.sends[send.serial] = send
        send.part = part
        if part is not None:
            part.sends.append(send)
        for queue in queues:
            self._copy(queue, send, "")

    def _copy(self, queue: str, send: Send, origin: str) -> Copy:
        place = queue, send.serial, origin
        before = self.copies.get(place)
        if before is not None and before.there:
            raise ViolationError(f"it is there twice: {before}")
        self.copies[place] = copy = Copy(queue, send)
        send.copies.append(copy)
        return copy

    def answer(self, send: Send, state: str) -> None:
        """A sender was told, or never will be."""
        if send.state != ASKED:
            raise ViolationError(f"{send} is answered twice, now {state}")
        send.state = state
        if state == FAILED and any(copy.came for copy in send.copies):
            raise ViolationError(f"{send} was delivered, and is refused now")

    # ---- taking

    def get(
        self,
        holder: Holder,
        payload: bytes,
        origin: str,
        *,
        marked: bool,
        first: bool = False,
        latest: int,
    ) -> Copy:
        """A client has read a message; returns which. Broker time has been `latest` at most.

        `origin`: the queue where it died or expired, if it did. `first`: it says nobody had it.
        """
        copy = self.copies.get((holder.queue, serial_of(payload), origin))
        if copy is None:
            raise ViolationError(f"nobody sent {payload[:20]!r} to {holder.queue}, from {origin!r}")
        send = copy.send
        if send.payload != payload:
            raise ViolationError(f"{copy} came as {payload[:40]!r}...")
        if send.state == FAILED:
            raise ViolationError(f"refused, and delivered: {copy}")
        if send.part is not None and send.part.state in (OPEN, FAILED):
            raise ViolationError(f"its transaction is {send.part.state}: {copy}")
        if not holder.can_settle():
            return copy  # it was on its way when that ended, and others may have it by now
        if copy.told:
            raise ViolationError(f"its end was confirmed, and it came again: {copy}")
        if copy.must_mark and not marked:
            raise ViolationError(f"it came before, and is not marked: {copy}")
        if first and (marked or copy.had):
            raise ViolationError(f"it came before, and says that it did not: {copy}")
        if copy.holder is not None and copy.holder.can_settle():
            raise ViolationError(f"somebody else holds it: {copy}")
        if send.due > latest + 1 and not origin:
            raise ViolationError(f"delivered at {latest}, due at {send.due}: {copy}")
        self._check_order(holder, copy)
        self.came += 1
        copy.came = copy.had = True
        copy.holder = holder
        if holder.automatic:
            copy.asked.add("ack")
        return copy

    def _check_order(self, holder: Holder, copy: Copy) -> None:
        send = copy.send
        if copy.returns or send.due or copy.queue in (DEAD, EXPIRED):
            return
        last = holder.last.get(send.producer, -1)
        if send.place < last:
            raise ViolationError(f"{copy} came behind a later one of its sender")
        holder.last[send.producer] = send.place

    def settle(self, copy: Copy, how: str) -> None:
        """A client says what becomes of a message: ack, nack, reject or release."""
        copy.asked.add(how)
        copy.holder = None
        if how == "nack":
            copy.must_mark = True

    def confirm(self, copy: Copy, how: str) -> None:
        """A client was told that what it said is done."""
        if how in ("ack", "reject"):
            if copy.there:
                raise ViolationError(f"its end is confirmed, and it is there: {copy}")
            copy.told = True

    def leave(self, copies: Iterable[Copy], *, seen: bool) -> None:
        """A holder is gone; `seen`: not by its own will, so what it had is to be marked."""
        for copy in copies:
            copy.holder = None
            if seen and copy.came:
                copy.must_mark = True

    # ---- transactions

    def end_part(self, part: Part, state: str) -> None:
        """A transaction has ended, or nobody will ever know."""
        part.state = state
        if state == UNKNOWN:
            return
        for send in part.sends:
            if send.state == ASKED:
                self.answer(send, state)
        if state == OK:
            for copy, _ in part.settles:
                self.confirm(copy, "ack")

    def check_parts(self) -> None:
        """Judge those whose end nobody was told: all of each, or nothing."""
        for part in self.parts:
            if part.state != UNKNOWN:
                continue
            done = [_happened(send) for send in part.sends if send.durable]
            done += [
                not copy.there and copy.returns == returns
                for copy, returns in part.settles
                if copy.send.durable and copy.send.state == OK
            ]
            if len(set(done)) > 1:
                raise ViolationError(f"done in part: {part.sends}, {part.settles}, {done}")

    # ---- what the core says

    def gone(self, queue: str, message: Message, why: Gone, *, now: int, attempts: int) -> Copy:
        """A message leaves its queue for good; returns which."""
        copy = self._present(queue, message)
        legal = {
            Gone.ACKNOWLEDGED: "ack" in copy.asked or queue in self.automatic,
            Gone.EXPIRED: 0 < copy.send.expires <= now + 1,
            Gone.KILLED: "reject" in copy.asked or 0 < attempts <= copy.tries,
        }.get(why, False)
        if not legal:
            raise ViolationError(f"gone as {why.value} at {now} without a reason: {copy}")
        copy.there, copy.why = False, why.value
        return copy

    def move(self, copy: Copy, message: Message, queue: str) -> None:
        """What has left goes on to another queue."""
        origin = origin_of(message)
        moved = self._copy(queue, copy.send, copy.queue if origin is None else origin[1])
        moved.origin = copy
        copy.why = "moved"

    def went_back(self, queue: str, messages: Sequence[Message], *, failed: bool) -> list[int]:
        """Messages return to their queue; returns their numbers."""
        numbers = []
        for message in messages:
            copy = self._present(queue, message)
            copy.returns += 1
            copy.tries += failed
            numbers.append(copy.send.serial)
        return numbers

    def _present(self, queue: str, message: Message) -> Copy:
        copy = self.copies.get(place_of(queue, message))
        if copy is None or not copy.there:
            raise ViolationError(f"{queue}: {payload_of(message)[:20]!r} leaves, and is {copy}")
        return copy

    # ---- a start

    def restart(self, found: dict[str, list[Message]], *, clean: bool) -> None:
        """Compare with what a start found, and go on with that."""
        there: set[Place] = set()
        for queue, messages in found.items():
            for message in messages:
                place = place_of(queue, message)
                if place in there or place not in self.copies:
                    raise ViolationError(f"found twice, or sent by nobody: {place}")
                there.add(place)
        for place, copy in self.copies.items():
            self._found(copy, clean=clean, present=place in there)
        for send in self.sends.values():
            self._check_kept(send)
        self.check_parts()
        for part in self.parts:
            if part.state == UNKNOWN:
                part.state = "judged"

    def _found(self, copy: Copy, *, clean: bool, present: bool) -> None:
        if present and copy.told:
            raise ViolationError(f"its end was confirmed, and it came back: {copy}")
        if present and copy.send.state == FAILED:
            raise ViolationError(f"refused, and found: {copy}")
        copy.holder = None
        copy.had = False
        if copy.came and not clean:
            copy.must_mark = True
        elif not copy.send.durable:
            copy.must_mark = False  # what of it a page keeps over a stop has no attempts with it
        if present:
            copy.there, copy.why, copy.found = True, "", True
            # All are where they were; but what waits for a time has no place among the others.
            copy.returns = copy.returns if self.delays else 0
        elif copy.there:
            copy.there, copy.why = False, "lost with the process"

    def _check_kept(self, send: Send) -> None:
        if send.state != OK or not send.durable:
            return
        for copy in send.copies:
            if copy.why == "lost with the process" and "ack" not in copy.asked:
                origin = copy.origin
                while origin is not None and origin.why == "moved":
                    origin = origin.origin  # neither of two moves came to the disk
                if origin is None or not origin.there:
                    raise ViolationError(f"confirmed and lost: {copy}")
                copy.why = "never moved"

    # ---- the end

    def check_end(self) -> None:
        """All was taken, so that what is still there was never anywhere."""
        for send in self.sends.values():
            for copy in send.copies:
                if copy.there and (send.state == OK or copy.came):
                    raise ViolationError(f"it should have come, and did not: {copy}")
        self.check_parts()

    def waiting(self) -> Iterator[Send]:
        """Yield what nobody was answered of yet."""
        return (send for send in self.sends.values() if send.state == ASKED)


def place_of(queue: str, message: Message) -> Place:
    """Return what a message is known by in a queue."""
    origin = origin_of(message)
    return queue, serial_of(payload_of(message)), "" if origin is None else origin[1]


def serial_of(payload: bytes) -> int:
    """Return a payload's number."""
    number = payload.split(b":", 1)[0]
    if not number.isdigit():
        raise ViolationError(f"no payload of ours: {payload[:40]!r}")
    return int(number)


def _happened(send: Send) -> bool:
    """Whether a send that nobody was told of has come about."""
    return any(
        copy.came or copy.found or (not copy.there and copy.why != "lost with the process")
        for copy in send.copies
    )
