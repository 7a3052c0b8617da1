"""Consumers that do not keep up: found by what they acknowledge in a period, told of or cut off.

    the queue has less to do than its consumers should manage      nobody is slow
    the consumer holds nothing and has room                        it is not: nothing was for it
    it acknowledged less than the threshold                        it is slow

A queue is looked at every slow-consumer-check-period of its address, and only while a threshold is
set. Then each of its consumers gets a tally that counts what it acknowledges, by the call; others
pay nothing. It knows no clock, protocol or logger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.addresses.settings import SlowPolicy
from gateway.broker.directory.directory import Directory
from gateway.broker.ports.turns import Clock
from gateway.model.errors import Code, Refusal
from gateway.model.message import Message
from gateway.model.ports import Consumer, ConsumerFacts
from gateway.queues.queue import Held, Queue

_FIELD: Final = "slow_consumer_threshold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a queue had to do in a period, and one consumer's part of it.

    Attributes:
        seconds: how long the period was.
        added: messages that came to the queue in it.
        held: messages that the queue holds.
        consumers: of the queue.
        acknowledged: messages, by this consumer, in the period.
        idle: it holds no message and has room for one.
    """

    seconds: float
    added: int
    held: int
    consumers: int
    acknowledged: int
    idle: bool


def is_slow(work: Work, per_second: float) -> bool:
    """Decide whether a consumer that should do so many messages a second is slow."""
    wanted = per_second * work.consumers
    starved = work.added / work.seconds < wanted and work.held < wanted
    return not starved and not work.idle and work.acknowledged / work.seconds < per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowConsumer:
    """One that was found; `rate` and `threshold` are messages a second."""

    queue: str
    address: str
    consumers: int
    rate: float
    threshold: float
    policy: SlowPolicy
    who: ConsumerFacts


class _Tally:
    """Counts what one consumer acknowledges."""

    __slots__ = ("_pass_on", "before", "count")

    def __init__(self, queue: Queue) -> None:
        self._pass_on = queue.acknowledge
        self.count = self.before = 0

    def acknowledge(self, held: Held, messages: list[Message]) -> int:
        """Stand for the queue's own."""
        self.count += len(messages)
        return self._pass_on(held, messages)


class _Watch:
    """What is remembered of a queue between two looks."""

    __slots__ = ("added", "queue", "since_ms", "tallies")

    def __init__(self, queue: Queue, now_ms: int) -> None:
        self.queue = queue
        self.since_ms = now_ms
        self.added = queue.added
        self.tallies: dict[Held, _Tally] = {}

    def begin(self, now_ms: int) -> None:
        """Start the next period; who has come meanwhile is counted from now on."""
        self.since_ms = now_ms
        self.added = self.queue.added
        before, self.tallies = self.tallies, {}
        for held in self.queue.consumers:
            tally = self.tallies[held] = before.get(held) or _Tally(self.queue)
            tally.before = tally.count
            held.acknowledge = tally.acknowledge

    def end(self) -> None:
        """Count no more."""
        for held in self.tallies:
            held.acknowledge = self.queue.acknowledge


class SlowConsumers:
    """See the module text.

    Attributes:
        found: consumers found slow since the start, once for each period.
        killed: those of them whose connection was closed for it.
        announce: told of each one that is found, for clients that listen.
        tell: called with each one that is found, for the log.
        spares: whether the gateway itself held a consumer back in the period.
    """

    __slots__ = (
        "_clock",
        "_directory",
        "_watches",
        "announce",
        "found",
        "killed",
        "spares",
        "tell",
    )

    def __init__(self, directory: Directory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self.announce: Callable[[SlowConsumer], None] = _tell_nobody
        self.spares: Callable[[Consumer], bool] = _spare_nobody
        self._watches: dict[int, _Watch] = {}
        self.found = self.killed = 0
        self.tell: Callable[[SlowConsumer], None] = _tell_nobody

    def look(self) -> None:
        """Judge the queues whose period is over; called about every second."""
        watches, self._watches = self._watches, {}
        if any(entry.values.get(_FIELD, -1) != -1 for entry in self._directory.settings.entries):
            now_ms = self._clock.now_ms()
            for queue in list(self._directory.queues.values()):
                # A consumer that was cut off may have taken its queue with it.
                if queue.deleted or not queue.consumer_count:
                    continue
                settings = self._directory.addresses[queue.address].settings
                if settings.slow_consumer_threshold < 0:
                    continue
                watch = watches.pop(queue.queue_id, None)
                if watch is None or watch.queue is not queue:
                    watch = _Watch(queue, now_ms)
                    watch.begin(now_ms)
                elif now_ms - watch.since_ms >= settings.slow_consumer_check_period * 1000:
                    self._judge(watch, now_ms)
                self._watches[queue.queue_id] = watch
        for watch in watches.values():
            watch.end()

    def _judge(self, watch: _Watch, now_ms: int) -> None:
        queue = watch.queue
        settings = self._directory.addresses[queue.address].settings
        per_second = settings.slow_consumer_rate
        consumers = queue.consumer_count
        seconds = (now_ms - watch.since_ms) / 1000
        slow: list[tuple[Held, SlowConsumer]] = []
        for held, tally in watch.tallies.items():
            if not held.attached or self.spares(held.consumer):
                continue
            work = Work(
                seconds=seconds,
                added=queue.added - watch.added,
                held=queue.message_count,
                consumers=consumers,
                acknowledged=tally.count - tally.before,
                idle=not held.count and held.consumer.room() > 0,
            )
            if is_slow(work, per_second):
                found = SlowConsumer(
                    queue=queue.name,
                    address=queue.address,
                    consumers=consumers,
                    rate=work.acknowledged / seconds,
                    threshold=per_second,
                    policy=settings.slow_consumer_policy,
                    who=held.consumer.facts(),
                )
                slow.append((held, found))
        watch.begin(now_ms)
        for held, found in slow:
            self._act(held, found)

    def _act(self, held: Held, found: SlowConsumer) -> None:
        if not held.attached:
            return  # its connection was closed for another one
        self.found += 1
        self.tell(found)
        self.announce(found)
        if found.policy is SlowPolicy.KILL:
            self.killed += 1
            held.consumer.expelled(_refusal(found))


def _refusal(found: SlowConsumer) -> Refusal:
    return Refusal(
        code=Code.SLOW_CONSUMER,
        transient=True,
        text=f"A consumer of queue {found.queue!r} acknowledged {found.rate:.3g} messages a second "
        f"while more waited; slow-consumer-threshold of address {found.address!r} is "
        f"{found.threshold:.3g} a second and its slow-consumer-policy is KILL. Acknowledge faster, "
        "or take less at once.",
    )


def _spare_nobody(consumer: Consumer) -> bool:
    """Stand for whoever holds consumers back."""
    return False


def _tell_nobody(found: SlowConsumer) -> None:
    """Stand for a listener that is not there yet."""
