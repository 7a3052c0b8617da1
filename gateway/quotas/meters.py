"""All meters, what is bound to them, and the one timer for everybody who is held back.

    a sender, a consumer, a connection ── Use ──> the meters of its user, its remote, its address
                                                     │ nothing left
              refilled <── the one that passed longest ago first ── waiting, until the timer

Without a quota there is no meter, and the ends of links are bound to nothing. The timer runs while
somebody waits, for the first of them, and not more often than TICK_SECONDS. Time and timer are
passed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Protocol

from gateway.addresses.match import matches, precedence
from gateway.model.audit import SILENT, Auditor
from gateway.model.errors import Refusal, RefusedError
from gateway.model.principal import Principal
from gateway.model.quota import NONE, Limits, Quotas, Scope, network_of
from gateway.quotas.meter import Flow, Meter, Waiter

#: How finely time is cut: credit and room come in so many pieces a second at most.
TICK_SECONDS: Final = 0.01
#: No wait is longer before it is looked again: other rates may be in force.
WAIT_MAX_SECONDS: Final = 5.0
#: What is due so soon is not worth a timer of its own.
_AT_ONCE_SECONDS: Final = 0.001
#: What was held back so long ago still counts as held back, for people.
SHOWN_SECONDS: Final = 5.0


class Timer(Protocol):
    """A call that is planned."""

    def cancel(self) -> object: ...


Later = Callable[[float, Callable[[], None]], Timer]
Names = tuple[tuple[Scope, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A limit that was reached, or has room again.

    Attributes:
        row: field of Quota.
        key, limit, origin: its key in the configuration, its value, where it was written.
        text: for people.
    """

    scope: Scope
    name: str
    row: str
    key: str
    limit: int
    origin: str
    text: str


@dataclass(slots=True)
class _Strike:
    """A limit that is in the way, when it was last, and whether that is told."""

    reached: Reached
    at: float
    told: bool = False


class Use:
    """What is open and bound to meters.

    Attributes:
        meters: those that count it; none where nothing is limited.
        names: whose they are.
        row: field of Quota that it counts for; "" none.
        changed: called when other meters, or other limits, are in force.
    """

    __slots__ = ("_all", "changed", "meters", "names", "roles", "row")

    def __init__(self, all_: Meters, names: Names, roles: frozenset[str], row: str = "") -> None:
        self._all = all_
        self.names = names
        self.roles = roles
        self.row = row
        self.meters: tuple[Meter, ...] = ()
        self.changed: Callable[[], None] = _nothing

    def bind(self) -> None:
        """Count for the meters that there are now."""
        before, self.meters = self.meters, self._all.find(self.names, self.roles)
        _count(self.meters, self.row, 1)
        _count(before, self.row, -1)

    def end(self) -> None:
        """It is open no more."""
        self._all.uses.pop(self, None)
        _count(self.meters, self.row, -1)
        self.meters = ()


def _count(meters: Iterable[Meter], row: str, step: int) -> None:
    for meter in meters:
        meter.uses += step
        if row == "connections":
            meter.connections += step
        elif row == "links":
            meter.links += step


class Meters:
    """See the module text.

    Attributes:
        quotas: in force.
        uses: everything that is open.
        meters: by whose they are.
        seconds: the clock.
        auditor: told of each limit that is reached, once.
        counts: scope and field of Quota -> how often something was held back or refused for it.
        serial: goes up with everything that passes.
    """

    def __init__(self, seconds: Callable[[], float], later: Later) -> None:
        self.quotas = Quotas()
        self.seconds = seconds
        self.uses: dict[Use, None] = {}
        self.meters: dict[tuple[Scope, str], Meter] = {}
        self.auditor: Auditor = SILENT
        self.serial = 0
        self._later = later
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._thirsty: dict[Flow, None] = {}
        self._due: list[tuple[float, int, Flow]] = []  # a heap: when to look at which again
        self.counts: Counter[tuple[Scope, str]] = Counter()
        self._struck: dict[tuple[Scope, str, str], _Strike] = {}
        self._held: dict[str, tuple[float, Flow]] = {}  # by connection: until when, and why

    # ---- what is in force

    def use(self, quotas: Quotas) -> None:
        """Have other quotas at once, also for what is open."""
        if quotas == self.quotas:
            return
        self.quotas = quotas
        now = self.seconds()
        for meter in self.meters.values():
            meter.use(self._limits(meter.scope, meter.name, meter.roles), now)
        for use in list(self.uses):
            use.bind()
        for use in list(self.uses):
            use.changed()
        self._wake_all()

    def opened(self, names: Names, roles: frozenset[str], row: str = "") -> Use:
        """Bind what was opened. Raises RefusedError (too-many)."""
        refusal = self.room(names, roles, row) if row else None
        if refusal is not None:
            raise RefusedError(refusal)
        use = Use(self, names, roles, row)
        use.bind()
        self.uses[use] = None
        return use

    def room(self, names: Names, roles: frozenset[str], row: str) -> Refusal | None:
        """Return why there may be no more of a kind, which counts as in the way; or None."""
        for meter in self.find(names, roles):
            refusal = meter.full(row)
            if refusal is not None:
                self.strike(meter, row, refusal)
                return refusal
        return None

    def find(self, names: Names, roles: frozenset[str]) -> tuple[Meter, ...]:
        """Return the meters of these that have limits, made where they are not there."""
        if not self.quotas:
            return ()
        found = (self._meter(scope, name, roles) for scope, name in names)
        return tuple(meter for meter in found if meter is not None)

    def _meter(self, scope: Scope, name: str, roles: frozenset[str]) -> Meter | None:
        meter = self.meters.get((scope, name))
        if meter is None:
            limits = self._limits(scope, name, roles)
            if limits is NONE:
                return None
            meter = self.meters[scope, name] = Meter(scope, name)
            meter.roles = roles
            meter.use(limits, self.seconds())
        elif scope is Scope.USER and meter.roles != roles:
            meter.roles = roles
            self._limits_changed(meter)
        return None if meter.limits is NONE else meter

    def _limits(self, scope: Scope, name: str, roles: Iterable[str]) -> Limits:
        match scope:
            case Scope.USER:
                return self.quotas.for_user(name, roles)
            case Scope.REMOTE:
                return self.quotas.for_remote(name)
            case Scope.ADDRESS:
                return self.quotas.for_address(name, fitting)

    def _limits_changed(self, meter: Meter) -> None:
        """A user has other roles: what is open of it is held to other limits."""
        limits = self._limits(meter.scope, meter.name, meter.roles)
        if limits == meter.limits:
            return
        meter.use(limits, self.seconds())
        for use in list(self.uses):
            if meter in use.meters:
                use.changed()
        for flow in meter.flows:
            self._wake(flow)

    # ---- who is held back

    def hold(self, flow: Flow, waiter: Waiter, connection: str, now: float) -> None:
        """Tell a waiter when it is worth going on."""
        seconds = flow.wait(now)
        if waiter not in flow.waiting:
            if not flow.waiting:
                self._thirsty[flow] = None
                self._expect(flow, seconds, now)
            flow.waiting[waiter] = None
            self.strike(flow.meter, flow.row_in_force(now), flow.refusal(now))
        self._held[connection] = (now + max(seconds, 1.0), flow)

    def _expect(self, flow: Flow, seconds: float, now: float) -> None:
        """Look at a flow again when something is left of it."""
        at = flow.due = now + min(max(seconds, TICK_SECONDS), WAIT_MAX_SECONDS)
        self.serial += 1
        heappush(self._due, (at, self.serial, flow))
        self._plan(at, now)

    def _plan(self, at: float, now: float) -> None:
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._later(at - now, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self.seconds()
        due = self._due
        while due and due[0][0] <= now + _AT_ONCE_SECONDS:
            at, _, flow = heappop(due)
            if flow in self._thirsty and flow.due == at:
                self._feed(flow, now)
        while due and (due[0][2] not in self._thirsty or due[0][2].due != due[0][0]):
            heappop(due)  # nobody waits for it any more
        if due:
            self._plan(due[0][0], now)

    def _feed(self, flow: Flow, now: float) -> None:
        """Let those go who passed longest ago, as many as there is something for."""
        many = flow.allowed(flow.size, now)
        if many > 0:
            first = sorted(flow.waiting, key=lambda one: one.served)[:many]
            for waiter in first:
                del flow.waiting[waiter]
            self._no_longer(flow)
            for waiter in first:
                waiter.refilled()
        if flow.waiting and flow.due <= now + _AT_ONCE_SECONDS:
            self._expect(flow, flow.wait(now), now)

    def _wake_all(self) -> None:
        """Let everybody look again: other limits are in force."""
        for flow in list(self._thirsty):
            self._wake(flow)

    def _wake(self, flow: Flow) -> None:
        waiting, flow.waiting = list(flow.waiting), {}
        self._no_longer(flow)
        for waiter in waiting:
            waiter.refilled()

    def leave(self, flow: Flow, waiter: Waiter) -> None:
        """A waiter is gone."""
        flow.waiting.pop(waiter, None)
        self._no_longer(flow)

    def _no_longer(self, flow: Flow) -> None:
        if not flow.waiting:
            self._thirsty.pop(flow, None)

    def why(self, connection: str) -> Flow | None:
        """Return what holds a connection back, or did a moment ago; None: nothing."""
        until, flow = self._held.get(connection, (0.0, None))
        return flow if until > self.seconds() else None

    # ---- programs that ask over HTTP

    def refusal(self, principal: Principal, remote: str, *, inward: bool) -> Refusal | None:
        """Return why a program may not send, or read, now; with the seconds to wait."""
        now = self.seconds()
        for flow in self._flows_of(principal, remote, inward=inward):
            if flow.limited and flow.allowed(flow.size, now) < 1:
                refusal = flow.refusal(now)
                self.strike(flow.meter, flow.row_in_force(now), refusal)
                return refusal
        return None

    def passed(
        self, principal: Principal, remote: str, count: int, size: int, *, inward: bool
    ) -> None:
        """Count what a program has sent, or read."""
        now = self.seconds()
        for flow in self._flows_of(principal, remote, inward=inward):
            flow.take(count, size, now)

    def _flows_of(self, principal: Principal, remote: str, *, inward: bool) -> list[Flow]:
        found = self.find(names_of(principal, remote), principal.roles)
        return [meter.inward if inward else meter.outward for meter in found]

    # ---- what people are told

    def strike(self, meter: Meter, row: str, refusal: Refusal) -> None:
        """A limit was in the way."""
        self.counts[meter.scope, row] += 1
        which = (meter.scope, meter.name, row)
        known = self._struck.get(which)
        if known is not None:
            known.at = self.seconds()
            return
        limit = meter.limits[row]
        reached = Reached(
            scope=meter.scope,
            name=meter.name,
            row=row,
            key=limit.key,
            limit=limit.value,
            origin=limit.origin,
            text=refusal.text,
        )
        self._struck[which] = _Strike(reached, self.seconds())

    def look(self) -> list[tuple[Reached, bool]]:
        """Return (what, whether it began) for each edge since the last look, once a second.

        A limit that is in the way time and again is told of once, and once more when it has not
        been for SHOWN_SECONDS. Meters that nobody needs are forgotten.
        """
        now = self.seconds()
        edges: list[tuple[Reached, bool]] = []
        waited_for = {(f.meter.scope, f.meter.name) for f in self._thirsty}
        for which, strike in list(self._struck.items()):
            if not strike.told:
                strike.told = True
                edges.append((strike.reached, True))
                self._note(strike.reached)
            elif now - strike.at >= SHOWN_SECONDS and which[:2] not in waited_for:
                del self._struck[which]
                edges.append((strike.reached, False))
        self._held = {name: one for name, one in self._held.items() if one[0] > now}
        for key in [key for key, meter in self.meters.items() if meter.idle(now)]:
            del self.meters[key]
        return edges

    def _note(self, reached: Reached) -> None:
        whose = {"user": reached.name} if reached.scope is Scope.USER else {}
        if reached.scope is Scope.REMOTE:
            whose = {"remote": reached.name}
        elif reached.scope is Scope.ADDRESS:
            whose = {"address": reached.name}
        self.auditor.note("quota.reached", limit=reached.limit, key=reached.key, **whose)

    def reached(self) -> list[Reached]:
        """Return the limits that are in the way now."""
        return [strike.reached for strike in self._struck.values()]


def fitting(patterns: Iterable[str], address: str) -> list[str]:
    """Return those that fit an address, the one that counts first in front."""
    found = [pattern for pattern in patterns if matches(pattern, address)]
    return sorted(found, key=lambda pattern: precedence(pattern, address))


def names_of(principal: Principal, remote: str, address: str | None = None) -> Names:
    """Return whose meters count what a client does."""
    who = ((Scope.USER, principal.account), (Scope.REMOTE, network_of(remote)))
    return who if address is None else (*who, (Scope.ADDRESS, address))


def _nothing() -> None:
    """Stand for whoever does not want to know."""
