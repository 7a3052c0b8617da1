"""The subscriptions of all streams, by name: made, committed to, deleted.

A name reads one stream, or all streams that a pattern names, each with a floor of its own; all of
one name have one fence. A subscription is on the device before its reader is answered. A commit
lifts floors, and retention may take all that lies below the floors of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from twisted.internet.defer import Deferred, gatherResults, succeed

from gateway.model.address import check_name
from gateway.model.errors import Code, RefusedError
from gateway.selectors import compile_selector
from gateway.streams import subscription
from gateway.streams.subscription import READER, Subscription
from gateway.streams.tap import Tap

#: (epoch, offset).
Position = tuple[int, int]


class Holder(NamedTuple):
    """A reader as it attaches: see `subscription.attach`."""

    fence: int
    role: str = READER
    selector: str = ""


class Subscribers:
    """See the module text."""

    def __init__(self, of_one_max: int, now_ms: Callable[[], int]) -> None:
        """`of_one_max` is the most that one stream may have."""
        self._of_one_max = of_one_max
        self._now_ms = now_ms
        #: Subscription -> its streams by their names.
        self._taps: dict[str, dict[str, Tap]] = {}

    def find(self, name: str) -> Tap | None:
        """Return the stream that the subscription `name` reads; of several the first by name."""
        return next(iter(self.all(name)), None)

    def all(self, name: str) -> list[Tap]:
        """Return the streams that the subscription `name` reads, in order of their names."""
        return [tap for _, tap in sorted(self._taps.get(name, {}).items())]

    def take_up(self, tap: Tap, stored: bytes) -> None:
        """Know what is stored of a stream's subscriptions."""
        for known in subscription.decode(stored):
            self._put(tap, known)

    def forget(self, tap: Tap) -> None:
        """Forget the subscriptions of a stream that is deleted."""
        for name in list(tap.subscriptions):
            self._take_out(tap, name)

    def attach(
        self,
        name: str,
        tap: Tap,
        starting: str,
        position: Position | None,
        *,
        role: str = READER,
        selector: str = "",
    ) -> Deferred[Subscription]:
        """Attach a reader; `position` is (epoch, offset) of its checkpoint, where it has one.

        Raises RefusedError: bad-name, bad-value, bad-selector, in-use (the name reads another
        stream, or with another selector), not-found (as `subscription.attach`), too-many.
        """
        positions = {} if position is None else {tap.stream.name: position}
        made = self.attach_all(name, [tap], starting, positions, role=role, selector=selector)
        return made.addCallback(lambda _: tap.subscriptions[name])

    def attach_all(
        self, name: str, taps: Sequence[Tap], starting: str, positions: Mapping[str, Position],
        *, role: str = READER, selector: str = "",
    ) -> Deferred[int]:  # fmt: skip
        """Attach a reader of several streams; fires with the fence of all of them.

        Raises RefusedError as `attach`: in-use where the name reads a stream that is not in `taps`.
        """
        check_name(name, "subscription")
        wanted = {tap.stream.name for tap in taps}
        if selector:
            for tap in taps[:1]:
                compile_selector(selector, tap.stream.address)
        others = [tap.stream for tap in self.all(name) if tap.stream.name not in wanted]
        if others:
            raise RefusedError.of(
                Code.IN_USE,
                f"The subscription {name!r} reads the address {others[0].address!r}, "
                f"not {taps[0].stream.address if taps else 'these'!r}. "
                "Give this query a name of its own.",
            )
        fence = self.fence(name) + 1
        held = self._hold(name, taps, starting, positions, Holder(fence, role, selector))
        return held.addCallback(lambda _: fence)

    def join(
        self, name: str, taps: Sequence[Tap], starting: str, positions: Mapping[str, Position],
        holder: Holder,
    ) -> Deferred[None]:  # fmt: skip
        """Take streams that are new into a subscription; `holder` is their reader.

        Raises RefusedError: in-use when a newer attachment has taken over, too-many, bad-value.
        """
        known = self.fence(name)
        if holder.fence < known:
            raise subscription.replaced(name, known, holder.fence)
        return self._hold(name, taps, starting, positions, holder)

    def fence(self, name: str) -> int:
        """Return how often the subscription `name` was attached; 0 when there is none."""
        return max((tap.subscriptions[name].fence for tap in self.all(name)), default=0)

    def _hold(
        self, name: str, taps: Sequence[Tap], starting: str, positions: Mapping[str, Position],
        holder: Holder,
    ) -> Deferred[None]:  # fmt: skip
        made: list[tuple[Tap, Subscription]] = []
        for tap in taps:
            known, place = tap.subscriptions.get(name), tap.place
            if known is None and len(tap.subscriptions) >= self._of_one_max:
                raise RefusedError.of(
                    Code.TOO_MANY,
                    f"The stream {tap.stream.name!r} has {len(tap.subscriptions)} subscriptions; "
                    "that is the limit. Delete those that nobody uses.",
                )
            position = positions.get(tap.stream.name)
            offset = position[1] if position is not None and position[0] == place.epoch else None
            one = subscription.attach(
                name, known, place, starting=starting, position=offset,
                now_ms=self._now_ms(), **holder._asdict(),
            )  # fmt: skip
            made.append((tap, one))
        for tap, one in made:
            self._put(tap, one)
        return _all_saved(taps)

    def commit(self, name: str, epoch: int, offset: int, fence: int) -> Deferred[Subscription]:
        """Lift the floor of a name that reads one stream; see `commit_all`."""
        tap = self.find(name)
        if tap is None:
            raise _unknown(name)
        done = self.commit_all(name, {tap.stream.name: (epoch, offset)}, fence)
        return done.addCallback(lambda _: tap.subscriptions[name])

    def commit_all(
        self, name: str, ends: Mapping[str, Position], fence: int
    ) -> Deferred[dict[str, Position]]:
        """Lift floors; fires with all of the name when they are durable.

        What `ends` has of streams that the name does not read (they were deleted) is passed over.
        Raises as `subscription.commit`; not-found where there is no subscription of the name.
        """
        taps = self.all(name)
        if not taps:
            raise _unknown(name)
        now_ms = self._now_ms()
        lifted = {}
        for tap in taps:
            end = ends.get(tap.stream.name)
            # Of several streams one may have begun another life: its floor begins anew there.
            if end is not None and (len(taps) == 1 or end[0] == tap.stream.epoch):
                known = tap.subscriptions[name]
                lifted[tap] = subscription.commit(
                    known, tap.place, epoch=end[0], offset=end[1], fence=fence, now_ms=now_ms
                )
        changed = [t for t, one in lifted.items() if one.floor != t.subscriptions[name].floor]
        for tap, one in lifted.items():
            tap.subscriptions[name] = one

        def floors(_: object) -> dict[str, Position]:
            known = [(tap, tap.subscriptions.get(name)) for tap in taps]
            return {tap.stream.name: (s.epoch, s.floor) for tap, s in known if s is not None}

        return _all_saved(changed).addCallback(floors)

    def remove(self, name: str) -> Deferred[None]:
        """Delete a subscription. Raises RefusedError (not-found)."""
        taps = self.all(name)
        if not taps:
            raise _unknown(name)
        for tap in taps:
            self._take_out(tap, name)
        return _all_saved(taps)

    def _put(self, tap: Tap, one: Subscription) -> None:
        tap.subscriptions[one.name] = one
        self._taps.setdefault(one.name, {})[tap.stream.name] = tap

    def _take_out(self, tap: Tap, name: str) -> None:
        del tap.subscriptions[name]
        streams = self._taps[name]
        del streams[tap.stream.name]
        if not streams:
            del self._taps[name]


def _unknown(name: str) -> RefusedError:
    return RefusedError.of(Code.NOT_FOUND, f"There is no subscription {name!r}.")


def _all_saved(taps: Iterable[Tap]) -> Deferred[None]:
    saving = [tap.save() for tap in taps]
    if len(saving) == 1:
        return saving[0]
    if not saving:
        return succeed(None)
    return gatherResults(saving, consumeErrors=True).addCallback(lambda _: None)
