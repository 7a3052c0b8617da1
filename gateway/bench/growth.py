"""What one message costs in the queue core while something else grows: it should not.

    python -m gateway.bench.growth [--json]

The core alone, in this process: no socket, no disk. Each row does the same work beside more and
more of one thing (messages on the queue, consumers, queues, wildcard matches) and tells nanoseconds
of processor time a message, the best of some tries, and their ratio to the first column.
"""

from __future__ import annotations

import gc
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click

from gateway.addresses.match import SettingsEntry, SettingsTable
from gateway.broker import Gateway, Limits
from gateway.model import stomp_form
from gateway.model.address import RoutingType, parse_destination
from gateway.model.message import DURABLE, STOMP, Message
from gateway.model.ports import ConsumerFacts, Producer, Subscription
from gateway.model.run import MixedRun, Run
from gateway.model.turn import Turn

#: Messages in one call, as a connection with some in flight sends them.
RUN: Final = 100
#: Runs that are timed together, and tries of which the best counts.
RUNS: Final = 20
TRIES: Final = 7
#: The ratio above which something grew that should not.
RATIO_MAX: Final = 1.5
_BODY: Final = b"\x00\x53\x75\xa0\x40" + bytes(64)
_FLAGS: Final = 4 | DURABLE


NOTHING: Final[Mapping[str, object]] = {}


class NoStore:
    """A store that remembers nothing; every record is durable at once."""

    congested = False
    ticket = 1
    unsynced = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        return _stored


def _stored(*_: object, **__: object) -> int:
    return 1


class Core:
    """A gateway whose turns end when `turn` is called."""

    def __init__(self, entries: Sequence[SettingsEntry] = ()) -> None:
        self.now_ms = 1_000_000
        self._later: list[Callable[[], None]] = []
        names = itertools.count()
        store: Any = NoStore()
        self.gateway = Gateway(
            turn=Turn(self._later.append),
            settings=SettingsTable(entries),
            store=store,
            limits=Limits(global_max_size=1 << 50),
            now_ms=lambda: self.now_ms,
            make_name=lambda: f"name-{next(names)}",
        )

    def turn(self) -> None:
        """End turns until nothing asks for one."""
        while self._later:
            waiting, self._later[:] = list(self._later), []
            for action in waiting:
                action()

    def queue(
        self, name: str, *, ring_size: int = -1, attributes: Mapping[str, object] = NOTHING
    ) -> Producer:
        """Make a queue on an address of its name; returns a producer there."""
        self.gateway.administration.create_queue(
            name, name, RoutingType.ANYCAST, ring_size=ring_size, attributes=attributes
        )
        return self.gateway.open_producer(parse_destination(name), RoutingType.ANYCAST, _Owner())

    def fill(self, producer: Producer, count: int) -> None:
        """Send `count` messages in large runs."""
        for done in range(0, count, 10_000):
            producer.send(Run([_BODY] * min(10_000, count - done), _FLAGS))
            self.turn()


class _Owner:
    def producer_unblocked(self) -> None:
        """See the port."""

    def producer_blocked(self, refusal: object) -> None:
        """See the port."""

    def producer_refused(self, refusal: object) -> None:
        """See the port."""


@dataclass(slots=True)
class Taker:
    """A consumer: takes `left` messages more and keeps them until `settle`."""

    left: int = 0
    held: list[Message] = field(default_factory=list)
    hold: Subscription | None = None
    told: Callable[[Taker], None] | None = None

    @classmethod
    def on(cls, core: Core, name: str) -> Taker:
        """Attach to a queue."""
        taker = cls()
        taker.hold = core.gateway.subscribe(parse_destination(name), RoutingType.ANYCAST, taker)
        return taker

    def room(self) -> int:
        return self.left

    def deliver(self, messages: list[Message], any_flags: int) -> None:
        del any_flags
        self.left -= len(messages)
        self.held += messages
        if self.told is not None:
            self.told(self)

    def removed(self, refusal: object) -> None:
        """See the port."""

    def facts(self) -> ConsumerFacts:
        """See the port."""
        return ConsumerFacts(protocol="none", connection="", remote="", user=None, name="")

    def expelled(self, refusal: object) -> None:
        """See the port."""

    def exhausted(self) -> None:
        """See the port."""

    def take(self, count: int) -> None:
        """Give credit for `count` more."""
        assert self.hold is not None
        self.left += count
        self.hold.ready()

    def settle(self) -> None:
        """Acknowledge all that is held."""
        assert self.hold is not None
        if self.held:
            messages, self.held = self.held, []
            self.hold.acknowledge(messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """One row: `prepare(n)` returns what is timed, a call that moves RUN messages."""

    title: str
    sizes: tuple[int, ...]
    prepare: Callable[[int], Callable[[], None]]


def deep_through(depth: int) -> Callable[[], None]:
    """Send, hand out and acknowledge on a queue that holds `depth` messages all the time."""
    core = Core()
    producer = core.queue("q")
    core.fill(producer, depth)
    taker = Taker.on(core, "q")
    bodies = [_BODY] * RUN

    def work() -> None:
        producer.send(Run(bodies, _FLAGS))
        taker.take(RUN)
        core.turn()
        taker.settle()
        core.turn()

    return work


def deep_return(depth: int) -> Callable[[], None]:
    """Hand out and release, so that messages return to their old places."""
    core = Core()
    producer = core.queue("q")
    core.fill(producer, depth)
    taker = Taker.on(core, "q")

    def work() -> None:
        taker.take(RUN)
        core.turn()
        assert taker.hold is not None
        messages, taker.held = taker.held, []
        taker.hold.release(messages)
        taker.left = 0
        core.turn()

    return work


def deep_ring(depth: int) -> Callable[[], None]:
    """Send to a full ring: each message evicts the oldest."""
    core = Core()
    producer = core.queue("q", ring_size=depth)
    core.fill(producer, depth)
    bodies = [_BODY] * RUN

    def work() -> None:
        producer.send(Run(bodies, _FLAGS))
        core.turn()

    return work


def deep_ring_of_priorities(depth: int) -> Callable[[], None]:
    """As `deep_ring` with all priorities: the oldest is among the heads of ten levels."""
    core = Core()
    producer = core.queue("q", ring_size=depth)
    bodies = [_BODY] * RUN
    priorities = [place % 10 for place in range(RUN)]
    flags = [priority | DURABLE for priority in priorities]
    never = [0] * RUN
    for _ in range(0, depth, RUN):
        producer.send_mixed(MixedRun(bodies, flags, never))
        core.turn()

    def work() -> None:
        producer.send_mixed(MixedRun(bodies, flags, never))
        core.turn()

    return work


def deep_schedule(depth: int) -> Callable[[], None]:
    """Send for a bit later than now, let it come due, hand out; `depth` wait for a later time."""
    core = Core()
    producer = core.queue("q")
    for done in range(0, depth, RUN):
        producer.send(Run([_BODY] * RUN, _FLAGS, 0, core.now_ms + 10_000_000_000 - done))
        core.turn()
    taker = Taker.on(core, "q")
    bodies = [_BODY] * RUN

    def work() -> None:
        producer.send(Run(bodies, _FLAGS, 0, core.now_ms + 10))
        core.turn()
        core.now_ms += 10
        taker.take(RUN)
        core.gateway.on_time()
        core.turn()
        taker.settle()
        core.turn()

    return work


def deep_settle(depth: int) -> Callable[[], None]:
    """Settle one by one, here and there among `depth` unsettled ones, and take as many again."""
    core = Core()
    producer = core.queue("q")
    taker = Taker.on(core, "q")
    taker.take(1 << 30)
    core.fill(producer, max(depth, RUN))
    bodies = [_BODY] * RUN
    place = 0

    def work() -> None:
        nonlocal place
        held = taker.held
        assert taker.hold is not None
        for _ in range(RUN):
            # Far from the one before; the last one takes its place.
            place = (place + 7919) % len(held)
            held[place], held[-1] = held[-1], held[place]
            taker.hold.acknowledge([held.pop()])
        producer.send(Run(bodies, _FLAGS))
        core.turn()

    return work


def deep_values(keys: int) -> Callable[[], None]:
    """Send to a queue that keeps the last value of `keys` keys: each message replaces one."""
    core = Core()
    producer = core.queue("q", attributes={"last_value": True, "last_value_key": "key"})
    runs = [
        [
            stomp_form.pack("q", b"x", persistent=True, headers=[("key", str(first + place))])
            for place in range(min(RUN, keys - first))
        ]
        for first in range(0, keys, RUN)
    ]
    for run in runs:
        producer.send(Run(run, _FLAGS | STOMP))
        core.turn()
    whole = [run * (RUN // len(run)) for run in runs]
    turn = itertools.cycle([whole[number * 7919 % len(whole)] for number in range(len(whole))])

    def work() -> None:
        producer.send(Run(next(turn), _FLAGS | STOMP))
        core.turn()

    return work


def many_consumers(count: int) -> Callable[[], None]:
    """Send one by one to a queue with `count` consumers; whoever gets it acknowledges."""
    core = Core()
    producer = core.queue("q")
    got: list[Taker] = []
    for _ in range(count):
        taker = Taker.on(core, "q")
        taker.take(1 << 30)
        taker.told = got.append
    core.turn()
    bodies = [_BODY]

    def work() -> None:
        for _ in range(RUN):
            producer.send(Run(bodies, _FLAGS))
            core.turn()
            got.pop().settle()
            core.turn()

    return work


def many_queues(count: int) -> Callable[[], None]:
    """Send, hand out and acknowledge on one of `count` queues, each time another."""
    core = Core()
    names = [f"q.{number}" for number in range(count)]
    pairs = [(core.queue(name), Taker.on(core, name)) for name in names]
    # Steps through all of them, far from the one before.
    turn = itertools.cycle([pairs[(number * 7919) % count] for number in range(count)])
    bodies = [_BODY] * RUN

    def work() -> None:
        producer, taker = next(turn)
        producer.send(Run(bodies, _FLAGS))
        taker.take(RUN)
        core.turn()
        taker.settle()
        core.turn()

    return work


def many_matches(count: int) -> Callable[[], None]:
    """Open a producer on a known address, send, hand out, acknowledge; `count` matches are set."""
    entries = [
        SettingsEntry(match=f"area{number}.#", values={"max_delivery_attempts": number % 9 + 1})
        for number in range(count)
    ]
    core = Core(entries)
    core.queue("area0.q").close()
    taker = Taker.on(core, "area0.q")
    bodies = [_BODY] * RUN
    where = parse_destination("area0.q")

    def work() -> None:
        producer = core.gateway.open_producer(where, RoutingType.ANYCAST, _Owner())
        producer.send(Run(bodies, _FLAGS))
        producer.close()
        taker.take(RUN)
        core.turn()
        taker.settle()
        core.turn()

    return work


DEPTHS: Final = (1_000, 100_000, 1_000_000)
KEYS: Final = (1_000, 100_000)
ROWS: Final = (
    Growth(title="in and out, messages on the queue", sizes=DEPTHS, prepare=deep_through),
    Growth(title="returned to old places, messages", sizes=DEPTHS, prepare=deep_return),
    Growth(title="ring evicts, ring size", sizes=DEPTHS, prepare=deep_ring),
    Growth(title="ring of priorities evicts", sizes=DEPTHS, prepare=deep_ring_of_priorities),
    Growth(title="scheduled and due, scheduled", sizes=DEPTHS, prepare=deep_schedule),
    Growth(title="settled here and there, unsettled", sizes=DEPTHS, prepare=deep_settle),
    Growth(title="last values replace, keys", sizes=KEYS, prepare=deep_values),
    Growth(title="in and out one by one, consumers", sizes=(1, 1_000), prepare=many_consumers),
    Growth(title="in and out, queues", sizes=(1, 10_000), prepare=many_queues),
    Growth(title="in and out, wildcard matches", sizes=(1, 1_000), prepare=many_matches),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Nanoseconds a message, for each size of a row; `ratio` is the worst to the first."""

    title: str
    nanoseconds: dict[int, float]

    @property
    def ratio(self) -> float:
        costs = list(self.nanoseconds.values())
        return max(costs) / costs[0]


def measure(row: Growth, *, shrink: int = 1) -> Cost:
    """Measure one row; `shrink` divides its sizes, for a quick try."""
    costs = {}
    for size in row.sizes:
        work = row.prepare(max(1, size // shrink))
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            costs[size] = min(_timed(work) for _ in range(TRIES))
        finally:
            gc.enable()
            gc.unfreeze()
    return Cost(title=row.title, nanoseconds=costs)


def _timed(work: Callable[[], None]) -> float:
    started = time.process_time_ns()
    for _ in range(RUNS):
        work()
    return (time.process_time_ns() - started) / (RUNS * RUN)


def lines(costs: Sequence[Cost]) -> Iterator[str]:
    """Return the table."""
    yield f"{'ns a message':<36}{'':>54}{'ratio':>7}"
    for cost in costs:
        cells = "".join(
            f"{size:>10,}{nanoseconds:>8.0f}" for size, nanoseconds in cost.nanoseconds.items()
        )
        mark = "  grows" if cost.ratio > RATIO_MAX else ""
        yield f"{cost.title:<36}{cells:<54}{cost.ratio:>7.2f}{mark}"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("--shrink", default=1, show_default=True, help="Divides the sizes, for a quick try.")
def main(*, as_json: bool, shrink: int) -> None:
    """Measure what a message costs in the core while other things grow."""
    costs = []
    for number, row in enumerate(ROWS, 1):
        click.echo(f"[{number}/{len(ROWS)}] {row.title}", err=True)
        costs.append(measure(row, shrink=shrink))
    if as_json:
        found = [
            {"title": c.title, "nanoseconds": c.nanoseconds, "ratio": round(c.ratio, 2)}
            for c in costs
        ]
        click.echo(json.dumps(found, indent=2))
        return
    for line in lines(costs):
        click.echo(line)


if __name__ == "__main__":
    main()
