"""What one user, remote or address has used: its buckets, and what it has open.

    Meter     connections and links that are open, and a flow in and a flow out where a rate is set
    Flow      messages and bytes of one direction; who waits until there is something left

A meter is kept while something of it is open, and until its buckets are full again: else whoever
comes back at once would have a burst each time. It knows no clock: `now` is passed in.
"""

from __future__ import annotations

from typing import Final, Protocol

from gateway.model.errors import Code, Refusal
from gateway.model.objects import NOBODY
from gateway.model.quota import NONE, Limit, Limits, Scope, burst_seconds
from gateway.quotas.bucket import Bucket

#: As many as anybody may have where no rate of messages is set.
UNBOUNDED: Final = 1 << 30
#: What is worth letting go: below that it would be a timer for each message.
_SLICE_SECONDS: Final = 0.01


class Waiter(Protocol):
    """A sender or a consumer that is held back.

    Attributes:
        served: a number that grows: when something of it last passed.
    """

    served: int

    def refilled(self) -> None:
        """There is something left again: go on, or wait once more."""


class Flow:
    """One direction of a meter. Hot: asked once for each run.

    Attributes:
        senders: links that were given credit by it, and share what is left.
        waiting: who is held back by it.
        passed, passed_bytes: what went through while it has been counted.
        size: bytes of a message lately.
        due: when it is looked at next, while somebody waits.
    """

    __slots__ = (
        "bytes",
        "due",
        "inward",
        "messages",
        "meter",
        "passed",
        "passed_bytes",
        "senders",
        "size",
        "waiting",
    )

    def __init__(self, meter: Meter, *, inward: bool) -> None:
        self.meter = meter
        self.inward = inward
        self.messages: Bucket | None = None
        self.bytes: Bucket | None = None
        self.senders = 0
        self.waiting: dict[Waiter, None] = {}
        self.passed = self.passed_bytes = 0
        self.size = 1
        self.due = 0.0

    @property
    def limited(self) -> bool:
        """Whether it has a rate."""
        return self.messages is not None or self.bytes is not None

    def allowed(self, size: int, now: float) -> int:
        """Return how many messages of about `size` bytes may pass now; 0: none."""
        most = UNBOUNDED
        if self.messages is not None:
            most = int(self.messages.level(now))
        if self.bytes is not None and most > 0:
            left = self.bytes.level(now)
            # One that is larger than all that the bucket holds has to pass as well.
            most = min(most, max(1, int(left / (size or 1)))) if left > 0 else 0
        return max(0, most)

    def take(self, count: int, size: int, now: float) -> bool:
        """So many messages have passed, of `size` bytes together; returns whether more may. Hot."""
        self.passed += count
        self.passed_bytes += size
        self.size = size // (count or 1)
        messages, of_bytes = self.messages, self.bytes
        more = messages is None or messages.take(count, now) >= 1
        if of_bytes is not None:
            more = of_bytes.take(size, now) > 0 and more
        return more

    def wait(self, now: float) -> float:
        """Return the seconds until it is worth asking again."""
        seconds = 0.0
        if self.messages is not None:
            wanted = max(1.0, self.messages.rate * _SLICE_SECONDS)
            seconds = self.messages.wait(wanted, now)
        if self.bytes is not None:
            seconds = max(seconds, self.bytes.wait(self.bytes.rate * _SLICE_SECONDS, now))
        return seconds

    def row_in_force(self, now: float) -> str:
        """Return the field of the limit that holds back for longest now."""
        both = ((self.messages, self._row("messages")), (self.bytes, self._row("bytes")))
        waits = {row: bucket.wait(1.0, now) for bucket, row in both if bucket is not None}
        return max(waits, key=lambda row: waits[row])

    def refusal(self, now: float) -> Refusal:
        """Say that nothing is left now, and when there will be."""
        limit = self.meter.limits[self.row_in_force(now)]
        what = "sent" if self.inward else "been given"
        return Refusal(
            code=Code.QUOTA_REACHED,
            text=f"{self.meter.whose} {what} all that it may for now: {limit.key} is "
            f"{limit.value} a second ({limit.origin}). Wait, or raise the limit.",
            transient=True,
            wait=self.wait(now),
        )

    def use(self, limits: Limits, now: float) -> None:
        """Have the rates that are in force now."""
        burst = burst_seconds(limits)
        self.messages = _bucket(self.messages, limits.get(self._row("messages")), burst, now)
        self.bytes = _bucket(self.bytes, limits.get(self._row("bytes")), burst, now)

    def full(self, now: float) -> bool:
        """Whether nothing of it is used."""
        return all(
            one is None or one.level(now) >= one.capacity for one in (self.messages, self.bytes)
        )

    def _row(self, what: str) -> str:
        return f"{what}_in" if self.inward else f"{what}_out"


class Meter:
    """See the module text.

    Attributes:
        roles: of a user, as its last connection has them.
        limits: in force.
        uses: connections and ends of links that are bound to it.
        connections, links: that are open.
    """

    __slots__ = (
        "connections",
        "inward",
        "limits",
        "links",
        "name",
        "outward",
        "roles",
        "scope",
        "uses",
    )

    def __init__(self, scope: Scope, name: str) -> None:
        self.scope = scope
        self.name = name
        self.roles: frozenset[str] = frozenset()
        self.limits: Limits = NONE
        self.inward = Flow(self, inward=True)
        self.outward = Flow(self, inward=False)
        self.uses = self.connections = self.links = 0

    @property
    def flows(self) -> tuple[Flow, Flow]:
        """Both directions."""
        return self.inward, self.outward

    @property
    def whose(self) -> str:
        """Begin a sentence about it."""
        if self.scope is Scope.USER and self.name == NOBODY:
            return "Clients that proved no login count as one user, which has"
        return f"{self.scope.value.capitalize()} {self.name!r} has"

    def use(self, limits: Limits, now: float) -> None:
        """Have the limits that are in force now."""
        self.limits = limits
        for flow in self.flows:
            flow.use(limits, now)

    def full(self, row: str) -> Refusal | None:
        """Return why there may be no more connections, or links; None when there may."""
        limit = self.limits.get(row)
        held = self.connections if row == "connections" else self.links
        if limit is None or held < limit.value:
            return None
        return Refusal(
            code=Code.TOO_MANY,
            text=f"{self.whose} {held} {_NAMES[row]}, and {limit.key} is {limit.value} "
            f"({limit.origin}). Close some, or raise the limit.",
            transient=True,
        )

    def idle(self, now: float) -> bool:
        """Whether it can be forgotten."""
        return not self.uses and all(flow.full(now) and not flow.waiting for flow in self.flows)


_NAMES: Final = {"connections": "connections", "links": "links and subscriptions"}


def _bucket(old: Bucket | None, limit: Limit | None, burst: float, now: float) -> Bucket | None:
    if limit is None:
        return None
    if old is None:
        return Bucket(limit.value, limit.value * burst, now)
    old.change(limit.value, limit.value * burst, now)
    return old
