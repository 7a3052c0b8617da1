"""What clients know: each copy of each message in each queue, from its send to its end.

    sent ──> WAITING <──release── HELD ──acknowledged / killed──> GONE
                └────delivered────┘
    WAITING ──expired / replaced / purged──> GONE       killed, expired ──moved──> another copy

It is written from what clients did and were told, never from what the gateway keeps, and judges:

total     a copy that was confirmed is there, or where it was moved to, or its end has a reason
end       a copy whose end was confirmed never comes back; nothing appears that was not sent
order     within one priority a consumer gets nothing while an older one waits that it could have
stored    what dispatch has to wait for is on disk before a consumer gets it
marks     what a consumer may have had in a life that was cut is marked when it comes again
holder    nothing is delivered that another consumer holds, nor before its time, nor after it
whole     what one transaction sent and acknowledged is there and gone together
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from gateway.broker.directory.origin import origin_of
from gateway.model.message import COUNT_SHIFT, DURABLE, MAYBE_SEEN, SCHEDULED, STOMP, Message
from gateway.model.stomp_form import unpack
from tests.simulation.model import ViolationError

#: An AMQP message of one data section with a length of one byte.
DATA = b"\x00\x53\x75\xa0"
LONG_DATA = b"\x00\x53\x75\xb0"


class State(Enum):
    WAITING = "waiting"
    HELD = "held"
    GONE = "gone"


def payload_of(message: Message) -> bytes:
    """Return what the sender put in, of either protocol's form."""
    if message.flags & STOMP:
        return unpack(message.body)[1]
    body = message.body
    short = body.rfind(DATA)
    if short >= 0 and short + 5 + body[short + 4] == len(body):
        return body[short + 5 :]
    return body[body.rfind(LONG_DATA) + 8 :]


def key_of(message: Message) -> bytes:
    """Return the name of a copy in its queue: its payload, and where it died if it was moved."""
    origin = origin_of(message)
    payload = payload_of(message)
    return payload if origin is None else payload + b"@" + origin[1].encode()


class Copy:
    """One message in one queue.

    Attributes:
        order: of its arrival in the queue; `floating`: it has been scheduled, so that it has none.
        ticket: what its sender waits for, or whoever moved it; -1 it was not told yet.
        gone_ticket: what its end waits for; `end` says why it ended.
        moved: the copy that takes its place elsewhere.
        seen: it was delivered once; `marked`: it must be marked from now on.
        attempts: failed deliveries.
        lasting: it is durable, and so is its queue.
        first: it came while the disk lagged, and is to be stored before anybody gets it.
        transit: its send has not returned.
        part: the transaction that sent it, `parting`: the one that took it; 0: none.
    """

    __slots__ = (
        "attempts",
        "due",
        "durable",
        "end",
        "expires",
        "first",
        "floating",
        "gone_ticket",
        "holder",
        "intent",
        "key",
        "lasting",
        "marked",
        "moved",
        "order",
        "part",
        "parting",
        "priority",
        "queue",
        "seen",
        "state",
        "ticket",
        "transit",
    )

    def __init__(self, queue: str, key: bytes, order: int, priority: int, **more: int) -> None:
        self.queue, self.key, self.order, self.priority = queue, key, order, priority
        self.durable = bool(more.get("durable"))
        self.lasting = bool(more.get("lasting"))
        self.first = self.lasting and bool(more.get("first"))
        self.expires = more.get("expires", 0)
        self.due = more.get("due", 0)
        self.floating = bool(self.due)
        self.transit = bool(more.get("transit"))
        self.part = more.get("part", 0)
        self.parting = 0
        self.ticket = -1
        self.gone_ticket = 0
        self.end = self.intent = ""
        self.state = State.WAITING
        self.moved: Copy | None = None
        self.holder: object = None
        self.seen = self.marked = False
        self.attempts = 0

    def __repr__(self) -> str:
        return (
            f"{self.queue}[{self.order}] {self.key[:12]!r} {self.state.value} {self.end} "
            f"sent {self.ticket} gone {self.gone_ticket}"
        )


class Ledger:
    """See the module text.

    Attributes:
        live: by queue, what waits or is held.
        reported: the last ticket that clients were told.
        lost: by queue, what the gateway said that it cannot read any more.
        lags: whether the disk lags, so that what comes is to be stored first.
    """

    def __init__(self) -> None:
        self.copies: dict[tuple[str, bytes], Copy] = {}
        self.live: defaultdict[str, dict[bytes, Copy]] = defaultdict(dict)
        self.reported = 0
        self.lost: defaultdict[str, int] = defaultdict(int)
        self.delivered_count = 0
        self.lags: Callable[[], bool] = lambda: False
        self._order = 0

    @property
    def last_order(self) -> int:
        """The order of what came last."""
        return self._order

    def is_stored(self, copy: Copy) -> bool:
        """Whether clients were told that it is on disk."""
        return 0 <= copy.ticket <= self.reported and not copy.transit

    # ---- in

    def arrive(self, queue: str, key: bytes, priority: int, **more: int) -> Copy:
        """A copy is on its way into a queue."""
        if (queue, key) in self.copies and self.copies[queue, key].state is not State.GONE:
            raise ViolationError(f"{key[:12]!r} is in {queue} twice")
        self._order += 1
        copy = Copy(queue, key, self._order, priority, first=self.lags(), **more)
        self.copies[queue, key] = copy
        self.live[queue][key] = copy
        return copy

    def refuse(self, copy: Copy) -> None:
        """It was not taken after all."""
        if copy.seen or copy.state is not State.WAITING:
            raise ViolationError(f"refused and delivered: {copy}")
        del self.live[copy.queue][copy.key], self.copies[copy.queue, copy.key]

    # ---- out

    def find(self, queue: str, message: Message) -> Copy:
        """Return the copy that a message is."""
        key = key_of(message)
        copy = self.live[queue].get(key)
        if copy is None:
            known = self.copies.get((queue, key))
            raise ViolationError(f"{queue}: nobody sent {key[:20]!r}, or it is gone: {known}")
        return copy

    def deliver(
        self,
        queue: str,
        message: Message,
        holder: object,
        *,
        now: int,
        wants: Callable[[bytes], bool],
        barred: Iterable[bytes],
        paged: bool,
        unstored: bool,
        always: bool,
        storing: Iterable[bytes],
        latest: int = 0,
    ) -> Copy:
        """A consumer gets a message.

        `latest`: what the time has been, before it went back; what came due then is due.
        `paged`: priorities hold only for what is in memory, and not for what is still `storing`.
        `unstored`: it is not on disk; `always`: its queue's dispatch waits for that.
        """
        copy = self.find(queue, message)
        if copy.state is not State.WAITING:
            raise ViolationError(f"delivered while it is held: {copy}")
        if message.flags >> COUNT_SHIFT != copy.attempts:
            raise ViolationError(
                f"{message.flags >> COUNT_SHIFT} attempts told, not so many: {copy}"
            )
        if copy.marked and not message.flags & MAYBE_SEEN and not copy.attempts:
            raise ViolationError(f"seen before, and not marked: {copy}")
        if bool(message.flags & DURABLE) != copy.durable or message.priority != copy.priority:
            raise ViolationError(f"durability or priority changed: {copy}")
        if copy.expires and copy.expires <= now:
            raise ViolationError(f"delivered at {now}, expired at {copy.expires}: {copy}")
        if copy.due > max(now, latest):
            raise ViolationError(f"delivered at {now}, due at {copy.due}: {copy}")
        if not wants(copy.key):
            raise ViolationError(f"the selector does not let it pass: {copy}")
        early = unstored and (always or copy.first)
        if early or (copy.part and copy.ticket > self.reported):
            raise ViolationError(f"delivered before it was on disk: {copy}")
        self._check_order(copy, now, wants, set(barred), late=None if paged else set(storing))
        copy.state, copy.holder, copy.seen = State.HELD, holder, True
        self.delivered_count += 1
        return copy

    def _check_order(
        self,
        copy: Copy,
        now: int,
        wants: Callable[[bytes], bool],
        barred: set[bytes],
        *,
        late: set[bytes] | None,
    ) -> None:
        """`late`: what priority does not help yet; None: it helps nobody."""
        if copy.floating:
            return
        for other in self.live[copy.queue].values():
            passed = other.priority > copy.priority and late is not None and other.key not in late
            if other.priority == copy.priority:
                passed = other.order < copy.order
            if not passed or other.state is not State.WAITING:
                continue
            if other.floating or other.transit:
                continue
            if (other.expires and other.expires <= now) or other.key in barred:
                continue
            if wants(other.key):
                raise ViolationError(f"{copy} was delivered before {other}")

    def back(self, copy: Copy, *, failed: bool, due: int = 0) -> None:
        """A consumer gives it back."""
        copy.state, copy.holder = State.WAITING, None
        copy.attempts += int(failed)
        if due:
            copy.due, copy.floating = due, True

    def gone(self, copy: Copy, why: str, moved: Copy | None = None) -> None:
        """It left its queue for good."""
        if copy.state is State.GONE:
            raise ViolationError(f"gone twice: {copy}")
        copy.state, copy.end, copy.moved, copy.holder = State.GONE, why, moved, None
        del self.live[copy.queue][copy.key]

    def bury(self, queue: str, key: bytes) -> None:
        """It is lost, and that was told."""
        copy = self.copies[queue, key]
        copy.lasting = False
        if copy.state is not State.GONE:
            self.gone(copy, "lost")
        copy.gone_ticket = 1 << 62

    # ---- a start

    def restart(
        self, found: dict[str, list[Message]], recovered: int, *, clean: bool, volatile: set[str]
    ) -> None:
        """Compare with what is there after a start that found all up to a ticket, and go on."""
        present: dict[tuple[str, bytes], Message] = {}
        for queue, messages in found.items():
            for message in messages:
                place = queue, key_of(message)
                if place in present:
                    raise ViolationError(f"{place[1][:12]!r} is in {queue} twice after a start")
                if place not in self.copies:
                    raise ViolationError(f"{place[1][:20]!r} in {queue} was never sent")
                present[place] = message
        self._check_transactions(present, recovered)
        for place, copy in list(self.copies.items()):
            self._check_copy(copy, place in present, present, recovered, volatile)
        self.live.clear()
        for place, copy in list(self.copies.items()):
            message = present.get(place)
            if message is None:
                self._forget(copy)
                continue
            copy.state, copy.end, copy.moved, copy.holder = State.WAITING, "", None, None
            copy.ticket = copy.gone_ticket = 0
            copy.intent, copy.part, copy.parting, copy.transit = "", 0, 0, False
            copy.due = message.due if message.flags & SCHEDULED else 0
            copy.marked = copy.marked or (copy.seen and not clean)
            copy.attempts = message.flags >> COUNT_SHIFT
            self.live[copy.queue][copy.key] = copy
        self.lost.clear()

    def _forget(self, copy: Copy) -> None:
        if copy.state is not State.GONE:
            copy.state, copy.end = State.GONE, copy.end or "lost with the process"
        copy.gone_ticket = 0  # whatever comes back now was gone before this start

    def _check_copy(
        self,
        copy: Copy,
        there: bool,
        present: dict[tuple[str, bytes], Message],
        recovered: int,
        volatile: set[str],
    ) -> None:
        if copy.state is State.GONE and there and copy.gone_ticket <= recovered:
            raise ViolationError(f"came back: {copy}, {recovered} was found")
        if copy.state is State.GONE and there:
            last = copy
            while last.moved is not None:
                last = last.moved
            if last is not copy and last.end == "acknowledged" and last.gone_ticket <= recovered:
                raise ViolationError(f"came back: {copy}, which became {last}")
        if there or not copy.lasting or copy.queue in volatile:
            return
        if not 0 <= copy.ticket <= self.reported:
            return  # nobody was told that it is stored
        if copy.state is not State.GONE:
            raise ViolationError(f"confirmed and lost: {copy}")
        moved = copy.moved
        if moved is not None and copy.end not in ("acknowledged", "replaced", "removed"):
            self._check_moved(copy, moved, present)

    def _check_moved(
        self, copy: Copy, moved: Copy, present: dict[tuple[str, bytes], Message]
    ) -> None:
        while moved.moved is not None:
            if (moved.queue, moved.key) in present:
                return
            moved = moved.moved
        if moved.state is not State.GONE and (moved.queue, moved.key) not in present:
            raise ViolationError(f"moved and lost on the way: {copy} to {moved}")

    def _check_transactions(
        self, present: dict[tuple[str, bytes], Message], recovered: int
    ) -> None:
        """Judge those whose commit was not confirmed as well: all of each, or nothing."""
        done: defaultdict[int, list[tuple[bool, Copy]]] = defaultdict(list)
        for place, copy in self.copies.items():
            if not copy.lasting:
                continue
            if copy.part:
                later = copy.state is State.GONE and copy.gone_ticket <= recovered
                if not (later and place not in present):
                    done[copy.part].append((place in present, copy))
            if copy.parting and 0 <= copy.ticket <= recovered:
                done[copy.parting].append((place not in present, copy))
        for part, members in done.items():
            if len({applied for applied, _ in members}) > 1:
                raise ViolationError(f"transaction {part} is there in part: {members}")

    # ---- while it runs

    def check(self, queue: str, memory: Sequence[Message], count: int) -> None:
        """Compare with what a queue holds: `memory` of it, and how many in all."""
        live = self.live[queue]
        if len(live) != count:
            raise ViolationError(f"{queue} counts {count}, {len(live)} should be there")
        keys = [key_of(m) for m in memory]
        wrong = [key for key in keys if key not in live]
        if wrong or len(set(keys)) != len(keys):
            raise ViolationError(f"{queue} holds what is gone or was never sent: {wrong}")
