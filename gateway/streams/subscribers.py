"""The subscriptions of all streams, by name: made, committed to, deleted.

A name reads one stream. A subscription is on the device before its reader is answered. A commit
lifts its floor, and retention may take all that lies below the floors of a stream.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed

from gateway.model.address import check_name
from gateway.model.errors import Code, RefusedError
from gateway.selectors import compile_selector
from gateway.streams import subscription
from gateway.streams.subscription import Subscription
from gateway.streams.tap import Tap


class Subscribers:
    """See the module text."""

    def __init__(self, of_one_max: int, now_ms: Callable[[], int]) -> None:
        """`of_one_max` is the most that one stream may have."""
        self._of_one_max = of_one_max
        self._now_ms = now_ms
        self._taps: dict[str, Tap] = {}

    def find(self, name: str) -> Tap | None:
        """Return the stream that the subscription `name` reads."""
        return self._taps.get(name)

    def take_up(self, tap: Tap, stored: bytes) -> None:
        """Know what is stored of a stream's subscriptions."""
        for known in subscription.decode(stored):
            tap.subscriptions[known.name] = known
            self._taps[known.name] = tap

    def forget(self, tap: Tap) -> None:
        """Forget the subscriptions of a stream that is deleted."""
        for known in tap.subscriptions:
            self._taps.pop(known, None)
        tap.subscriptions.clear()

    def attach(
        self,
        name: str,
        tap: Tap,
        starting: str,
        position: tuple[int, int] | None,
        *,
        selector: str = "",
    ) -> Deferred[Subscription]:
        """Attach a reader; `position` is (epoch, offset) of its checkpoint, where it has one.

        Raises RefusedError: bad-name, bad-value, bad-selector, in-use (the name reads another
        stream, or with another selector), not-found (as `subscription.attach`), too-many.
        """
        check_name(name, "subscription")
        if selector:
            compile_selector(selector, tap.stream.address)
        other = self._taps.get(name)
        if other is not None and other is not tap:
            raise RefusedError.of(
                Code.IN_USE,
                f"The subscription {name!r} reads the address {other.stream.address!r}, "
                f"not {tap.stream.address!r}. Give this query a name of its own.",
            )
        known = tap.subscriptions.get(name)
        if known is None and len(tap.subscriptions) >= self._of_one_max:
            raise RefusedError.of(
                Code.TOO_MANY,
                f"The stream {tap.stream.name!r} has {len(tap.subscriptions)} subscriptions; "
                "that is the limit. Delete those that nobody uses.",
            )
        place = tap.place
        offset = position[1] if position is not None and position[0] == place.epoch else None
        made = subscription.attach(
            name,
            known,
            place,
            starting=starting,
            position=offset,
            now_ms=self._now_ms(),
            selector=selector,
        )
        tap.subscriptions[name] = made
        self._taps[name] = tap
        return tap.save().addCallback(lambda _: made)

    def commit(self, name: str, epoch: int, offset: int, fence: int) -> Deferred[Subscription]:
        """Lift a floor; fires when it is durable. Raises as `subscription.commit`."""
        tap, known = self._known(name)
        made = subscription.commit(
            known, tap.place, epoch=epoch, offset=offset, fence=fence, now_ms=self._now_ms()
        )
        tap.subscriptions[name] = made
        if made.floor == known.floor:
            return succeed(made)
        return tap.save().addCallback(lambda _: made)

    def remove(self, name: str) -> Deferred[None]:
        """Delete a subscription. Raises RefusedError (not-found)."""
        tap, _ = self._known(name)
        del tap.subscriptions[name], self._taps[name]
        return tap.save()

    def _known(self, name: str) -> tuple[Tap, Subscription]:
        tap = self._taps.get(name)
        if tap is None:
            raise RefusedError.of(Code.NOT_FOUND, f"There is no subscription {name!r}.")
        return tap, tap.subscriptions[name]
