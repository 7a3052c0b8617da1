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
from typing import Final, Protocol

from gateway.broker.directory.address import Address
from gateway.broker.directory.branches import Branches
from gateway.broker.directory.divert import Divert
from gateway.broker.directory.on_demand import OnDemand
from gateway.broker.ports.store import Store
from gateway.broker.pressure.load import Load
from gateway.broker.routing.way import Way
from gateway.model.address import RoutingType, check_not_ours, parse_destination
from gateway.model.definitions import DivertRouting
from gateway.model.errors import Refusal, RefusedError
from gateway.model.run import MixedRun, Outcome, Run
from gateway.queues.queue import Queue

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

    __slots__ = ("copied", "divert", "leg", "ring", "run", "taps_only")

    def __init__(
        self,
        leg: Way | None,
        run: Run,
        divert: Divert | None,
        *,
        copied: bool = True,
        taps_only: bool = False,
        ring: bool = False,
    ) -> None:
        self.leg = leg
        self.run = run
        self.divert = divert
        self.copied = copied
        self.taps_only = taps_only
        self.ring = ring


class Judge(Protocol):
    """Says before a send whether all addresses would take their part of it."""

    def why_not(self, parts: Sequence[Part]) -> Refusal | None:
        """Return why not all addresses would take their part of one message now, or None."""


class Around(Protocol):
    """What a fan needs of what its routes share."""

    @property
    def branches(self) -> Branches: ...

    @property
    def on_demand(self) -> OnDemand: ...

    @property
    def store(self) -> Store: ...

    @property
    def load(self) -> Load: ...

    @property
    def judge(self) -> Judge: ...


class Fan:
    """See the module text. Implements the ProducerOwner port for its legs."""

    __slots__ = ("_epoch", "_legs", "_own", "_root", "_shared")

    def __init__(self, root: Way, shared: Around) -> None:
        self._root = root
        self._shared = shared
        self._own = root.branch_to(root.target, root.routing, None)
        self._epoch = -1
        self._legs: dict[tuple[str, RoutingType | None], Way] = {}
        self._open_all()

    # ---- legs

    def _open_all(self) -> None:
        """Open the way to every address that a message may reach, so that each can hold us back."""
        self.close()
        self._epoch = self._shared.branches.epoch
        self._own.resolve()
        self._open_behind(self._own, frozenset())

    def _open_behind(self, route: Way, passed: frozenset[str]) -> None:
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

    def _leg_at(self, address: Address, routing: RoutingType | None) -> Way | None:
        """Return the way to an address that is there."""
        leg = self._legs.get((address.name, routing))
        if leg is None:
            if len(self._legs) >= _LEGS_MAX:
                return None
            leg = self._root.branch_to(address, routing, self)
            self._legs[address.name, routing] = leg
        return leg if leg.resolve() is None else None

    def _leg_to(self, name: str, routing: RoutingType | None) -> Way | None:
        """Return the way to a name; None where nothing is and nothing may be made."""
        leg = self._legs.get((name, routing))
        if leg is None:
            if len(self._legs) >= _LEGS_MAX:
                return None
            try:
                where = parse_destination(name)
                check_not_ours(where.address)
                address, only = self._shared.on_demand.for_sending(where, routing)
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

    def producer_refused(self, refusal: Refusal) -> None:
        """See the ProducerOwner port: copies go as the gateway's own, and nobody judges them."""

    def targets(self) -> list[Queue]:
        """Return all queues that could take a copy of a message."""
        if self._epoch != self._shared.branches.epoch:
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

    def plan(self, run: Run) -> list[Part]:
        """Return which address gets which of these messages; changes nothing but opens ways."""
        if self._epoch != self._shared.branches.epoch:
            self._open_all()
        parts: list[Part] = []
        self._plan(self._own, run, frozenset(), parts)
        return parts

    def _plan(
        self,
        route: Way,
        run: Run,
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
            self._divert(divert, route, run, passed, parts)
        rest = run
        if exclusive:
            rest = self._split(
                exclusive, Part(route, run, by, copied=route is not self._own), parts
            )
        else:
            # The same list to all: what is stored then is one record with all their queues.
            parts.append(Part(route, run, by, copied=route is not self._own))
        if not rest.count or route.is_fixed:
            return
        self._keep(address, route.routing, rest, parts)
        for wild in address.wild:
            parts.append(Part(self._leg_at(wild, route.routing), rest, None))
            self._keep(wild, route.routing, rest, parts)
        for divert in diverts:
            if not divert.definition.exclusive:
                self._divert(divert, route, rest, passed, parts)

    @staticmethod
    def _split(exclusive: list[Divert], whole: Part, parts: list[Part]) -> Run:
        """Plan what exclusive diverts take and what they leave, in order; returns the latter.

        A stream keeps all that the address accepted, wherever it went.
        """
        run = whole.run
        leaves = [any(divert.takes(message) for divert in exclusive) for message in run.messages()]
        at = 0
        for gone, group in groupby(leaves):
            end = at + len(list(group))
            part = run.part(at, end)
            parts.append(Part(whole.leg, part, whole.divert, copied=whole.copied, taps_only=gone))
            at = end
        stays = [body for body, gone in zip(run.bodies, leaves, strict=True) if not gone]
        return run.of(stays)

    def _keep(
        self, address: Address, routing: RoutingType | None, run: Run, parts: list[Part]
    ) -> None:
        """Plan what is kept for queues that an address is still to get."""
        if address.retro is not None:
            parts.append(Part(self._leg_at(address.retro, routing), run, None, ring=True))

    def _divert(
        self, divert: Divert, route: Way, run: Run, passed: frozenset[str], parts: list[Part]
    ) -> None:
        """Plan the copies of those messages that a divert takes."""
        taken = [message for message in run.messages() if divert.takes(message)]
        if not taken:
            return
        number = self._shared.load.received
        where = route.target.name
        copies = run.of(
            [
                divert.copy(message, where, number + i, route.routing)
                for i, message in enumerate(taken, 1)
            ]
        )
        for name in divert.definition.forwarding:
            leg = self._leg_to(name, _routing_of(divert, route))
            if leg is None:
                parts.append(Part(None, copies, divert))
            else:
                self._plan(leg, leg.stamped(copies), passed | {divert.name}, parts, by=divert)

    # ---- sends

    def send(self, run: Run | MixedRun) -> Outcome:
        """As `Producer.send` and `send_mixed`."""
        root = self._root
        ticket = at = 0
        for one in run.runs():
            outcome = self._send_run(one)
            refusal = outcome.refusal
            taken = one.count if refusal is None else outcome.taken
            ticket = max(ticket, outcome.ticket)
            at += taken
            root.sent += taken
            if refusal is not None and refusal is self._held():
                # Nothing is refused for good: its sender keeps the others until there is room.
                return Outcome(ticket, refusal, at)
            if refusal is not None:
                return root.refuse(refusal, run.count - at, at, ticket)
        return Outcome(ticket)

    def _send_run(self, run: Run) -> Outcome:
        parts = self.plan(run)
        legs = [(p.leg, p.run) for p in parts if p.leg is not None and not p.ring]
        if all(leg.fits(some, len(legs)) for leg, some in legs):
            return Outcome(self._store(parts, near=False))
        ticket = 0
        for at, one in enumerate(run.singles()):
            refusal = self._held()
            if refusal is None:
                parts = self.plan(one)
                refusal = self._shared.judge.why_not(parts)
            if refusal is not None:
                return Outcome(ticket, refusal, at)
            ticket = max(ticket, self._store(parts, near=True))
        return Outcome(ticket)

    def send_admitted(self, run: Run) -> int:
        """Send what was admitted as a whole before."""
        self._root.sent += run.count
        ticket = 0
        for one in run.singles():
            ticket = max(ticket, self._store(self.plan(one), near=True))
        return ticket

    def _store(self, parts: list[Part], *, near: bool) -> int:
        """Give each address its part, in one batch; `near`: some limit is."""
        store, load = self._shared.store, self._shared.load
        goes_on = any(p.leg is not None and p.copied and not p.ring for p in parts)
        ticket = 0
        store.begin_atomic()
        try:
            for part in parts:
                leg, count = part.leg, part.run.count
                if part.divert is not None:
                    part.divert.diverted += count
                if leg is None:
                    if part.divert is not None:
                        part.divert.lost += count
                    continue
                unrouted, received = leg.target.unrouted, load.received
                last = self._store_part(part, leg, near=near)
                if part.copied:
                    load.received = received  # by a client it was sent once
                if part.ring or (part.divert is None and (part.copied or goes_on)):
                    missed = leg.target.unrouted - unrouted
                    leg.target.unrouted = unrouted
                    leg.target.routed += 0 if part.copied else missed
                ticket = max(ticket, last)
        finally:
            store.end_atomic()
        return ticket

    def _store_part(self, part: Part, leg: Way, *, near: bool) -> int:
        run = part.run
        if part.taps_only:
            leg.target.routed += run.count
            if not part.copied:
                self._shared.load.received += run.count
            return leg.record_taps(run) if leg.target.taps else 0
        return leg.send_admitted(run) if near and not part.ring else leg.store_run(run)


def _routing_of(divert: Divert, route: Way) -> RoutingType | None:
    """Return how a divert's copies of what came over this route are routed."""
    wanted = divert.definition.routing
    return route.routing if wanted is DivertRouting.PASS else _ROUTING.get(wanted)
