"""The route of a client to an address that wants to know when its messages came in.

Which kind of route a producer has is chosen when it is opened, so that others pay nothing. Routes
of the gateway's own are never of this kind: what died or was moved keeps the time that it has.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.broker.address import Address
from gateway.broker.ingress import stamp, stamp_all
from gateway.broker.producer import Route
from gateway.model.message import IDENTIFIED


class StampedRoute(Route):
    """See the module text. What a transaction sends has been stamped when it took it."""

    __slots__ = ()

    stamps = True

    def send(self, bodies: Sequence[bytes], flags: int, expires: int = 0) -> int:
        """See the Producer port."""
        if not flags & IDENTIFIED:  # those come here again, without those that are known
            bodies = stamp_all(bodies, flags, self._core.now_ms())
        return super().send(bodies, flags, expires)

    def send_mixed(
        self, bodies: Sequence[bytes], flags: Sequence[int], expires: Sequence[int]
    ) -> int:
        """See the Producer port."""
        now_ms = self._core.now_ms()
        run = [stamp(body, each, now_ms) for body, each in zip(bodies, flags, strict=True)]
        return super().send_mixed(run, flags, expires)


def route_kind(address: Address) -> type[Route]:
    """Return the kind of route that a client's messages to an address take."""
    return StampedRoute if address.settings.enable_ingress_timestamp else Route
