"""The route of a client to an address that wants to know when its messages came in.

Which kind of route a producer has is chosen when it is opened, so that others pay nothing. Routes
of the gateway's own are never of this kind: what died or was moved keeps the time that it has.
"""

from __future__ import annotations

from gateway.broker.directory.address import Address
from gateway.broker.routing.ingress import stamp, stamp_run
from gateway.broker.routing.route import Route
from gateway.model.message import IDENTIFIED
from gateway.model.run import MixedRun, Outcome, Run


class StampedRoute(Route):
    """See the module text. What a transaction sends has been stamped when it took it."""

    __slots__ = ()

    stamps = True

    def send(self, run: Run) -> Outcome:
        """See the Producer port."""
        if not run.flags & IDENTIFIED:  # those come here again, without those that are known
            run = stamp_run(run, self._shared.clock.now_ms())
        return super().send(run)

    def send_mixed(self, run: MixedRun) -> Outcome:
        """See the Producer port."""
        now_ms = self._shared.clock.now_ms()
        each = zip(run.bodies, run.flags, strict=True)
        return super().send_mixed(run.of([stamp(body, flags, now_ms) for body, flags in each]))


def route_kind(address: Address) -> type[Route]:
    """Return the kind of route that a client's messages to an address take."""
    return StampedRoute if address.settings.enable_ingress_timestamp else Route
