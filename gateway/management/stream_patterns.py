"""Subscriptions that read all tapped addresses which a pattern fits, also those that come later.

A pattern is written as in address settings: `*` is one word, `#` at the end is the rest. A plan
takes in what is new, and tells only of streams that have something to read, so that a thousand
quiet ones cost little. A batch's caps are shared by what waits: each gets its part, and at least
one block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime

from gateway.addresses.match import match_problem, matches
from gateway.management.http import Response, json_response, shorten
from gateway.model.errors import Code, RefusedError
from gateway.model.principal import Permission, Principal
from gateway.streams.finding import find_offset
from gateway.streams.registry import StreamRegistry
from gateway.streams.subscription import EARLIEST, SUBSCRIPTION
from gateway.streams.tap import Tap

#: A poll is held at most this long, as one of a single stream is.
_WAIT_MS_MAX: Final = 2_000
#: What a plan says of one stream.
Planned = dict[str, Any]
_Position = tuple[int, int]


class AttachBody(Protocol):
    """The body of `:attach`, as far as it is looked at here."""

    address_pattern: str | None
    starting_offsets: str
    starting_timestamp_ms: int | None
    role: str
    selector: str
    position: dict[str, _Position] | None


class PlanBody(Protocol):
    """The body of `:plan`, as far as it is looked at here."""

    start: dict[str, _Position]
    end: dict[str, _Position] | None
    frozen: dict[str, _Position] | None
    max_messages: int | None
    max_bytes: int | None
    wait_ms: int
    address_pattern: str | None
    new_stream_offsets: str
    role: str
    selector: str
    fence: int


#: Plans one stream from a position on.
PlanOne = Callable[[Tap, _Position, Any], Planned]


def find_taps(registry: StreamRegistry, pattern: str) -> list[Tap]:
    """Return the streams whose address `pattern` fits. Raises RefusedError (bad-value)."""
    problem = match_problem(pattern)
    if problem is not None:
        raise RefusedError.of(
            Code.BAD_VALUE, f"The address pattern {shorten(pattern)} is none: {problem}."
        )
    return registry.tapped(partial(matches, pattern))


def check_readable(principal: Principal, taps: Iterable[Tap]) -> None:
    """Raise RefusedError (not-authorized) for the first stream whose messages it may not have."""
    for tap in taps:
        principal.check(Permission.CONSUME, tap.stream.address)


def readable(principal: Principal, taps: Iterable[Tap]) -> list[Tap]:
    """Return those streams whose messages it may have."""
    found = []
    for tap in taps:
        try:
            principal.check(Permission.CONSUME, tap.stream.address)
        except RefusedError:
            continue
        found.append(tap)
    return found


class Patterns:
    """Calls of readers that name a pattern."""

    def __init__(self, clock: IReactorTime, registry: StreamRegistry, plan_one: PlanOne) -> None:
        self._clock = clock
        self._registry = registry
        self._plan_one = plan_one

    def attach(self, name: str, fields: AttachBody, principal: Principal) -> Deferred[Response]:
        """Attach a reader to all streams that fit and that it may read, which may be none yet."""
        check_readable(principal, self._registry.subscribed(name))
        fit = find_taps(self._registry, fields.address_pattern or "")
        taps = readable(principal, fit)
        if not taps:
            check_readable(principal, fit)
        positions = fields.position or {}
        if fields.starting_offsets == SUBSCRIPTION and self._registry.find_subscription(name):
            # Streams that have come since join with the next plan.
            taps = [t for t in taps if name in t.subscriptions or t.stream.name in positions]
        since_ms = fields.starting_timestamp_ms
        new = [tap for tap in taps if name not in tap.subscriptions]
        new = [tap for tap in new if tap.stream.name not in positions]
        if since_ms is None or not new:
            return self._attach(name, fields, taps, positions)
        # A time to start at becomes an offset of each stream once, while it has no subscription.
        found = gatherResults([find_offset(tap, since_ms, self._registry) for tap in new])

        def begin(offsets: Sequence[int]) -> Deferred[Response]:
            begun = {
                tap.stream.name: (tap.place.epoch, at) for tap, at in zip(new, offsets, strict=True)
            }
            return self._attach(name, fields, taps, {**positions, **begun})

        return found.addCallback(begin)

    def _attach(
        self,
        name: str,
        fields: AttachBody,
        taps: Sequence[Tap],
        positions: Mapping[str, _Position],
    ) -> Deferred[Response]:
        starting = EARLIEST if fields.starting_timestamp_ms is not None else fields.starting_offsets
        made = self._registry.attach_all(
            name, taps, starting, positions, role=fields.role, selector=fields.selector
        )

        def answer(fence: int) -> Response:
            known = [(tap.stream.name, tap.subscriptions[name]) for tap in taps]
            shown = {
                "subscription": name,
                "addressPattern": fields.address_pattern,
                "fence": fence,
                "lifted": [stream for stream, one in known if one.lifted],
                "floor": {stream: [one.epoch, one.floor] for stream, one in known},
                "first": {t.stream.name: [t.place.epoch, t.place.first] for t in taps},
                "heads": {t.stream.name: [t.place.epoch, t.place.head] for t in taps},
            }
            return json_response(200, shown)

        return made.addCallback(answer)

    def plan(
        self, name: str, fields: PlanBody, principal: Principal
    ) -> Response | Deferred[Response]:
        """Plan all streams that fit; those that are new and readable join the subscription first.

        Whoever asks may read those that it reads already.
        """
        taps = self._chosen(fields)
        new = readable(principal, [tap for tap in taps if name not in tap.subscriptions])
        if new:
            joined = self._registry.join(
                name,
                new,
                fields.new_stream_offsets,
                fields.start,
                fence=fields.fence,
                role=fields.role,
                selector=fields.selector,
            )
            return joined.addCallback(lambda _: self._wait_and_plan(name, fields))
        return self._wait_and_plan(name, fields)

    def _chosen(self, fields: PlanBody) -> list[Tap]:
        """Return the streams of a plan: what AvailableNow had not frozen waits for the next run."""
        taps = find_taps(self._registry, fields.address_pattern or "")
        if fields.frozen is None:
            return taps
        return [tap for tap in taps if tap.stream.name in fields.frozen]

    def _wait_and_plan(self, name: str, fields: PlanBody) -> Response | Deferred[Response]:
        taps = [tap for tap in self._chosen(fields) if name in tap.subscriptions]
        busy = fields.end is not None or any(self._waiting(name, tap, fields) for tap in taps)
        if busy or fields.wait_ms <= 0:
            return self._plan(name, fields)
        waiter = self._registry.wait_any(taps)
        timer = self._clock.callLater(min(fields.wait_ms, _WAIT_MS_MAX) / 1000, waiter.cancel)

        def over(_: object) -> Response:
            if timer.active():
                timer.cancel()
            return self._plan(name, fields)

        return waiter.addBoth(over)

    @staticmethod
    def _start(name: str, tap: Tap, fields: PlanBody) -> _Position:
        known = tap.subscriptions[name]
        return fields.start.get(tap.stream.name, (known.epoch, known.floor))

    def _waiting(self, name: str, tap: Tap, fields: PlanBody) -> bool:
        place = tap.place
        if tap.stream.name not in fields.start:
            return True
        return self._start(name, tap, fields) != (place.epoch, place.head)

    def _plan(self, name: str, fields: PlanBody) -> Response:
        whole: dict[str, Any] = {
            "end": {}, "start": {}, "first": {}, "heads": {}, "bytes": {}, "losses": []
        }  # fmt: skip
        for tap, asked in self._shares(name, fields):
            one = self._plan_one(tap, self._start(name, tap, fields), asked)
            for key, value in one.items():
                if isinstance(value, dict):
                    whole[key] |= value
                else:
                    whole[key] += value
        return json_response(200, whole)

    def _shares(self, name: str, fields: PlanBody) -> Sequence[tuple[Tap, Any]]:
        """Return the streams that have something, each with the body that asks for its share."""
        taps = [tap for tap in self._chosen(fields) if name in tap.subscriptions]
        if fields.end is not None:
            wanted = fields.end
            return [(tap, fields) for tap in taps if tap.stream.name in wanted]
        waiting = [tap for tap in taps if self._waiting(name, tap, fields)]
        both = {"max_messages": fields.max_messages, "max_bytes": fields.max_bytes}
        caps = {key: value for key, value in both.items() if value is not None}
        if not caps or len(waiting) < 2:
            return [(tap, fields) for tap in waiting]
        weights = self._weights(name, waiting, fields)
        total = max(sum(weights.values()), 1)
        shares = []
        for tap in waiting:
            weight = weights[tap.stream.name]
            mine = {key: max(cap * weight // total, 1) for key, cap in caps.items()}
            shares.append((tap, msgspec.structs.replace(fields, **mine)))  # type: ignore[type-var]
        return shares

    def _weights(self, name: str, taps: Sequence[Tap], fields: PlanBody) -> Mapping[str, int]:
        """Return how much waits in each stream: in bytes, where the cap is one of bytes."""
        unbound: Any = msgspec.structs.replace(  # type: ignore[type-var]
            fields, max_messages=None, max_bytes=None
        )
        found = {}
        for tap in taps:
            stream = tap.stream.name
            one: dict[str, Any] = self._plan_one(tap, self._start(name, tap, fields), unbound)
            rows = one["end"][stream][1] - one["start"][stream][1]
            found[stream] = rows if fields.max_messages is not None else one["bytes"][stream]
        return found
