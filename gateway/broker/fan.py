"""One send to several addresses: what a producer does where its address has branches.

The plan of a run says which address gets which of its messages: the sender's own address, the
wildcard addresses that fit its name, and by way of diverts others, each with their branches. A
divert is passed once on the way of a message, so that circles end.

Each address admits its part by its own limits. A message is taken by all of them or refused as a
whole; what a run records is in one batch of the store. Where one address holds senders back, the
sender is held back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from gateway.broker.address import Address
from gateway.model.address import RoutingType, check_not_ours, parse_destination
from gateway.model.definitions import DivertRouting
from gateway.model.errors import Refusal, RefusedError
from gateway.queues.queue import Queue

if TYPE_CHECKING:
    from gateway.broker.branches import Divert
    from gateway.broker.producer import Route

#: Diverts that a message may pass one behind the other.
_PASSES_MAX: Final = 16
#: Addresses that one send may reach: a net of diverts could be without end otherwise.
_LEGS_MAX: Final = 256

_ROUTING: Final = {
    DivertRouting.ANYCAST: RoutingType.ANYCAST,
    DivertRouting.MULTICAST: RoutingType.MULTICAST,
}


class Part:
    """What one address gets of a run.

    Attributes:
        leg: the way there; None where there is none: the copies are lost.
        divert: it came by way of this one.
        taps_only: an exclusive divert took it, and the address only keeps it in its streams.
        copied: it is not what the sender sent to this address.
        ring: what is kept for queues to come, whatever the limits say: it is a ring.
    """

    __slots__ = ("bodies", "copied", "divert", "leg", "ring", "taps_only")

    def __init__(
        self,
        leg: Route | None,
        bodies: Sequence[bytes],
        divert: Divert | None,
        *,
        copied: bool = True,
        taps_only: bool = False,
        ring: bool = False,
    ) -> None:
        self.leg = leg
        self.bodies = bodies
        self.divert = divert
        self.copied = copied
        self.taps_only = taps_only
        self.ring = ring


class Fan:
    """See the module text. Implements the ProducerOwner port for its legs."""

    __slots__ = ("_core", "_epoch", "_legs", "_own", "_root")

    def __init__(self, root: Route) -> None:
        self._root = root
        self._core = root.core
        self._own = root.branch_to(root.target, root.routing, None)
        self._epoch = -1
        self._legs: dict[tuple[str, RoutingType | None], Route] = {}
        self._open_all()

    # ---- legs

    def _open_all(self) -> None:
        """Open the way to every address that a message may reach, so that each can hold us back."""
        self.close()
        self._epoch = self._core.branches.epoch
        self._own.resolve()
        self._open_behind(self._own, frozenset())

    def _open_behind(self, route: Route, passed: frozenset[str]) -> None:
        for wild in route.target.wild:
            self._leg_at(wild, route.routing)
        if len(passed) >= _PASSES_MAX:
            return
        for divert in route.target.diverts:
            for name in divert.definition.forwarding if divert.name not in passed else ():
                known = len(self._legs)
                leg = self._leg_to(name, _routing_of(divert, route))
                if leg is not None and len(self._legs) > known:
                    self._open_behind(leg, passed | {divert.name})

    def _leg_at(self, address: Address, routing: RoutingType | None) -> Route | None:
        """Return the way to an address that is there."""
        leg = self._legs.get((address.name, routing))
        if leg is None:
            if len(self._legs) >= _LEGS_MAX:
                return None
            leg = self._root.branch_to(address, routing, self)
            self._legs[address.name, routing] = leg
        return leg if leg.resolve() is None else None

    def _leg_to(self, name: str, routing: RoutingType | None) -> Route | None:
        """Return the way to a name; None where nothing is and nothing may be made."""
        leg = self._legs.get((name, routing))
        if leg is None:
            if len(self._legs) >= _LEGS_MAX:
                return None
            try:
                where = parse_destination(name)
                check_not_ours(where.address)
                address, only = self._core.find_again(where, routing)
            except RefusedError:
                return None
            leg = self._root.branch_to(address, routing, self, only=only)
            self._legs[name, routing] = leg
        return leg if leg.resolve() is None else None

    def close(self) -> None:
        """Leave all addresses but the sender's own."""
        legs, self._legs = self._legs, {}
        for leg in legs.values():
            leg.close()

    # ---- being held back

    def blocked(self) -> Refusal | None:
        """Return why some address on the way holds senders back, or None."""
        for leg in self._legs.values():
            refusal = leg.target.blocked
            if refusal is not None:
                return refusal
        return None

    def addresses(self) -> list[Address]:
        """Return the addresses on the way."""
        return [leg.target for leg in self._legs.values()]

    def credit(self, most: int, size: int) -> int:
        """Return the least that the addresses on the way promise."""
        return min((leg.credit(most, size) for leg in self._legs.values()), default=most)

    def producer_blocked(self, refusal: Refusal) -> None:
        """See the ProducerOwner port."""
        self._root.block(refusal)

    def producer_unblocked(self) -> None:
        """See the ProducerOwner port."""
        if self._root.blocked() is None:
            self._root.unblock()

    def targets(self) -> list[Queue]:
        """Return all queues that could take a copy of a message."""
        if self._epoch != self._core.branches.epoch:
            self._open_all()
        return [queue for leg in self._legs.values() for queue in leg.targets()]

    def _held(self) -> Refusal | None:
        """Return why what comes without credit has to wait with its sender, or None."""
        if self._root.credited:
            return None
        for one in (self._root.target, *self.addresses()):
            if one.blocked is not None and one.holds:
                return one.blocked
        return None

    # ---- the plan

    def plan(self, bodies: Sequence[bytes], flags: int, expires: int) -> list[Part]:
        """Return who gets which of these messages; changes nothing but opens ways."""
        if self._epoch != self._core.branches.epoch:
            self._open_all()
        parts: list[Part] = []
        self._plan(self._own, bodies, (flags, expires), frozenset(), parts)
        return parts

    def _plan(
        self,
        route: Route,
        bodies: Sequence[bytes],
        kind: tuple[int, int],
        passed: frozenset[str],
        parts: list[Part],
        *,
        by: Divert | None = None,
    ) -> None:
        address = route.target
        diverts = [d for d in address.diverts if d.name not in passed]
        if len(passed) >= _PASSES_MAX or route.is_fixed:
            diverts = []
        exclusive = [d for d in diverts if d.definition.exclusive]
        for divert in exclusive:
            self._divert(divert, route, bodies, kind, passed=passed, parts=parts)
        copied = route is not self._own
        rest = bodies
        if exclusive:
            rest = []
            # Neighbours in order: a stream keeps all that the address accepted, wherever it went.
            for leaves, run in groupby(bodies, lambda b: any(d.takes(b, *kind) for d in exclusive)):
                part = list(run)
                parts.append(Part(route, part, by, copied=copied, taps_only=leaves))
                rest += [] if leaves else part
        else:
            # The same list to all: what is stored then is one record with all their queues.
            parts.append(Part(route, bodies, by, copied=copied))
        if not rest or route.is_fixed:
            return
        self._keep(address, route.routing, rest, parts)
        for wild in address.wild:
            parts.append(Part(self._leg_at(wild, route.routing), rest, None))
            self._keep(wild, route.routing, rest, parts)
        for divert in diverts:
            if not divert.definition.exclusive:
                self._divert(divert, route, rest, kind, passed=passed, parts=parts)

    def _keep(
        self,
        address: Address,
        routing: RoutingType | None,
        bodies: Sequence[bytes],
        parts: list[Part],
    ) -> None:
        """Plan what is kept for queues that an address is still to get."""
        if address.retro is not None:
            parts.append(Part(self._leg_at(address.retro, routing), bodies, None, ring=True))

    def _divert(
        self,
        divert: Divert,
        route: Route,
        bodies: Sequence[bytes],
        kind: tuple[int, int],
        *,
        passed: frozenset[str],
        parts: list[Part],
    ) -> None:
        """Plan the copies of those messages that a divert takes."""
        taken = [body for body in bodies if divert.takes(body, *kind)]
        if not taken:
            return
        number = self._core.received
        where = route.target.name
        copies = [
            divert.copy(body, kind[0], where, number + i, route.routing)
            for i, body in enumerate(taken, 1)
        ]
        for name in divert.definition.forwarding:
            leg = self._leg_to(name, _routing_of(divert, route))
            if leg is None:
                parts.append(Part(None, copies, divert))
            else:
                run = leg.stamped(copies, kind[0])
                self._plan(leg, run, kind, passed | {divert.name}, parts, by=divert)

    # ---- sends

    def send(self, bodies: Sequence[bytes], flags: Sequence[int], expires: Sequence[int]) -> int:
        """As `Producer.send_mixed`."""
        root = self._root
        ticket = at = 0
        count = len(bodies)
        while at < count:
            stop = at + 1
            while stop < count and (flags[stop], expires[stop]) == (flags[at], expires[at]):
                stop += 1
            taken, last, refusal = self._send_run(bodies[at:stop], flags[at], expires[at])
            ticket = max(ticket, last)
            at += taken
            root.sent += taken
            if refusal is not None and refusal is self._held():
                # Nothing is refused for good: its sender keeps the others until there is room.
                root.taken, root.ticket, root.refusal = at, ticket, refusal
                return -1
            if refusal is not None:
                return root.refuse(refusal, count - at, at, ticket)
        return ticket

    def _send_run(
        self, bodies: Sequence[bytes], flags: int, expires: int
    ) -> tuple[int, int, Refusal | None]:
        """Send a run that shares flags and expiry; returns (taken, ticket, refusal)."""
        parts = self.plan(bodies, flags, expires)
        legs = [(p.leg, p.bodies) for p in parts if p.leg is not None and not p.ring]
        if all(leg.fits(some, len(legs)) for leg, some in legs):
            return len(bodies), self._store(parts, flags, expires, near=False), None
        ticket = 0
        for at, body in enumerate(bodies):
            refusal = self._held()
            if refusal is not None:
                return at, ticket, refusal
            parts = self.plan((body,), flags, expires)
            refusal = self._core.forecast.why_not(parts, flags, expires, self._root.due)
            if refusal is not None:
                return at, ticket, refusal
            ticket = max(ticket, self._store(parts, flags, expires, near=True))
        return len(bodies), ticket, None

    def send_admitted(self, bodies: Sequence[bytes], flags: int, expires: int) -> int:
        """Send what was admitted as a whole before."""
        self._root.sent += len(bodies)
        ticket = 0
        for body in bodies:
            parts = self.plan((body,), flags, expires)
            ticket = max(ticket, self._store(parts, flags, expires, near=True))
        return ticket

    def _store(self, parts: list[Part], flags: int, expires: int, *, near: bool) -> int:
        """Give each address its part, in one batch; `near`: some limit is."""
        core = self._core
        goes_on = any(p.leg is not None and p.copied and not p.ring for p in parts)
        ticket = 0
        core.store.begin_atomic()
        try:
            for part in parts:
                leg, count = part.leg, len(part.bodies)
                if part.divert is not None:
                    part.divert.diverted += count
                if leg is None:
                    if part.divert is not None:
                        part.divert.lost += count
                    continue
                unrouted, received = leg.target.unrouted, core.received
                last = self._store_part(part, leg, (flags, expires), near=near)
                if part.copied:
                    core.received = received  # by a client it was sent once
                if part.ring or (part.divert is None and (part.copied or goes_on)):
                    missed = leg.target.unrouted - unrouted
                    leg.target.unrouted = unrouted
                    leg.target.routed += 0 if part.copied else missed
                ticket = max(ticket, last)
        finally:
            core.store.end_atomic()
        return ticket

    def _store_part(self, part: Part, leg: Route, kind: tuple[int, int], *, near: bool) -> int:
        if part.taps_only:
            leg.target.routed += len(part.bodies)
            if not part.copied:
                self._core.received += len(part.bodies)
            return leg.record_taps(part.bodies, *kind) if leg.target.taps else 0
        if near and not part.ring:
            return leg.send_admitted(part.bodies, *kind, self._root.due)
        return leg.store_run(part.bodies, *kind, self._root.due)


def _routing_of(divert: Divert, route: Route) -> RoutingType | None:
    """Return how a divert's copies of what came over this route are routed."""
    wanted = divert.definition.routing
    return route.routing if wanted is DivertRouting.PASS else _ROUTING.get(wanted)
