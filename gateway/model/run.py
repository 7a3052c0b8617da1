"""Messages that travel together, from a link or a SEND to the journal, and what became of them.

    Run         share flags, expiry and due time: the common case, one object for all of them
    MixedRun    differ in flags, expiry or due time: one entry for each body
    Outcome     what a producer answers: the ticket to wait for, or why not all were taken

A run is a value: it is never changed, what differs is another run. `bodies` are kept by queues,
streams and the store, and must not change either. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from gateway.model.errors import Refusal
from gateway.model.message import DURABLE, EXPIRES, SCHEDULED, Message


class StoredRun(Protocol):
    """A run as the store takes it and gives it back.

    `flags` and `expires` are one value for all, or one for each body. A body of None is a place
    without a record. `due` is one time for all, 0: at once. Times are ms of broker time.
    """

    @property
    def bodies(self) -> Sequence[bytes | None]: ...

    @property
    def flags(self) -> int | Sequence[int]: ...

    @property
    def expires(self) -> int | Sequence[int]: ...

    @property
    def due(self) -> int: ...


class Run:
    """Messages that share flags, expiry and due time. Hot: one is made for each send.

    Attributes:
        bodies: see `gateway.model.message`.
        flags: the same; SCHEDULED is set exactly where `due` is.
        expires: ms of broker time; 0 never.
        due: ms of broker time before which they are not delivered; 0 at once.
        count, size: how many, and bytes of all bodies.
    """

    __slots__ = ("bodies", "count", "due", "expires", "flags", "size")

    def __init__(self, bodies: Sequence[bytes], flags: int, expires: int = 0, due: int = 0) -> None:
        self.bodies = bodies
        self.flags = flags | SCHEDULED if due else flags
        self.expires = expires
        self.due = due
        self.count = count = len(bodies)
        # With a window of 1 each message is a run, and the sum would be half of what one costs.
        self.size = len(bodies[0]) if count == 1 else sum(map(len, bodies))

    def of(self, bodies: Sequence[bytes]) -> Run:
        """Return other bodies that share what these do."""
        return Run(bodies, self.flags, self.expires, self.due)

    def part(self, first: int, end: int) -> Run:
        """Return neighbours."""
        if not first and end >= self.count:
            return self
        return Run(self.bodies[first:end], self.flags, self.expires, self.due)

    def dealt(self, way: int, ways: int) -> Run:
        """Return what the `way`-th of so many gets when they are dealt out in turn."""
        return Run(self.bodies[way::ways], self.flags, self.expires, self.due)

    def marked(self, flags: int, expires: int) -> Run:
        """Return the same bodies with other flags and expiry, due as before."""
        if flags == self.flags and expires == self.expires:
            return self
        return Run(self.bodies, flags, expires, self.due)

    def as_of(self, now_ms: int) -> Run:
        """Return them as they are now: what is due already waits no more."""
        if not self.due or self.due > now_ms:
            return self
        return Run(self.bodies, self.flags & ~SCHEDULED, self.expires)

    def alike(self, other: Run) -> bool:
        """Whether both could be one run."""
        return self.flags == other.flags and self.expires == other.expires and self.due == other.due

    def runs(self) -> Sequence[Run]:
        """Return neighbours that are alike: all of them."""
        return (self,)

    def singles(self) -> Iterator[Run]:
        """Go through them one by one."""
        if self.count == 1:
            yield self
            return
        for body in self.bodies:
            yield Run((body,), self.flags, self.expires, self.due)

    def flags_each(self) -> Sequence[int]:
        """Return the flags of each message."""
        return [self.flags] * self.count

    def messages(self) -> Iterator[Message]:
        """Go through them as a filter sees them: without a place in a queue."""
        for body in self.bodies:
            message = Message(body, 0, self.flags)
            if self.flags & EXPIRES:
                message.expires = self.expires
            yield message


class MixedRun:
    """Messages that differ: `flags` and `expires` have an entry for each body.

    `dues` as well, or it is empty: then all are for now.
    """

    __slots__ = ("bodies", "count", "dues", "expires", "flags", "size")

    def __init__(
        self,
        bodies: Sequence[bytes],
        flags: Sequence[int],
        expires: Sequence[int],
        dues: Sequence[int] = (),
    ) -> None:
        self.bodies = bodies
        self.flags = flags
        self.expires = expires
        self.dues = dues if any(dues) else ()
        self.count = len(bodies)
        self.size = sum(map(len, bodies))

    def of(self, bodies: Sequence[bytes]) -> MixedRun:
        """Return other bodies, as many, with the same flags and times."""
        return MixedRun(bodies, self.flags, self.expires, self.dues)

    def runs(self) -> Iterator[Run]:
        """Go through neighbours that are alike."""
        flags, expires, dues = self.flags, self.expires, self.dues or [0] * self.count
        first = 0
        for end in range(1, self.count + 1):
            if (
                end == self.count
                or flags[end] != flags[first]
                or expires[end] != expires[first]
                or dues[end] != dues[first]
            ):
                yield Run(self.bodies[first:end], flags[first], expires[first], dues[first])
                first = end

    def singles(self) -> Iterator[Run]:
        """Go through them one by one."""
        for run in self.runs():
            yield from run.singles()

    def flags_each(self) -> Sequence[int]:
        """Return the flags of each message."""
        return self.flags

    def durable_part(self) -> StoredRun | None:
        """Return what the store keeps of it, each at its place; None where it keeps nothing."""
        kept = [
            body if each & DURABLE else None
            for body, each in zip(self.bodies, self.flags, strict=True)
        ]
        if kept.count(None) == self.count:
            return None
        return GappedRun(kept, self.flags, self.expires)


class GappedRun:
    """A mixed run as it is stored; None stands for a message that is not."""

    __slots__ = ("bodies", "due", "expires", "flags")

    def __init__(
        self, bodies: Sequence[bytes | None], flags: Sequence[int], expires: Sequence[int]
    ) -> None:
        self.bodies = bodies
        self.flags = flags
        self.expires = expires
        self.due = 0


class Outcome:
    """What became of a send.

    Attributes:
        ticket: of the journal batch that the confirmation waits for; 0: nothing to wait for. With a
            refusal it is that of the messages before it.
        refusal: why not all were taken; None where they were.
        taken: the first so many were, where there is a refusal.
    """

    __slots__ = ("refusal", "taken", "ticket")

    def __init__(self, ticket: int, refusal: Refusal | None = None, taken: int = 0) -> None:
        self.ticket = ticket
        self.refusal = refusal
        self.taken = taken


#: Taken, and nothing to wait for.
TAKEN: Final = Outcome(0)


def joined(runs: Sequence[Run]) -> Run:
    """Return runs that are alike as one."""
    if len(runs) == 1:
        return runs[0]
    return runs[0].of([body for run in runs for body in run.bodies])
