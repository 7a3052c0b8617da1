"""Replays under chance: whatever happens in whatever order, each sees all that is kept, once.

A seed decides what is sent, sealed, dropped and read, when worker threads answer, how much credit
each consumer gives, what does not fit and what it settles. In the end all credit is given, and each
replay has seen every offset from its place on, but for those that a jump named.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from gateway.model.message import STOMP
from gateway.model.run import MixedRun, Run
from gateway.model.stream_start import At, StreamStart
from gateway.model.turn import Turn
from gateway.streams import blocks, replays
from gateway.streams.blocks import Blocks
from gateway.streams.replays import Jump, Replays
from gateway.streams.retention import Limits
from gateway.streams.settings import StreamSettings
from tests.storage.power import PowerFiles
from tests.streams.harness import Later, make_registry, stomp_message
from tests.streams.test_replays import Taker

STEPS = 300
PARITY = b"02468"


class World:
    """One stream, its replays, and what each should see."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.later = Later()
        bytes_max = self.chance.choice([0, 0, 4000, 20_000])
        self.registry, _, self.now = make_registry(
            "root",
            fs=PowerFiles(),
            blocking=self.later,
            settings=StreamSettings(retention=Limits(bytes_max=bytes_max)),
            segment_bytes=self.chance.choice([1, 2000]),
        )
        self.registry.create("orders", "orders")
        self.tap = self.registry.get("orders")
        self.stream = self.tap.stream
        self.deferred: list[Callable[[], None]] = []
        self.jumps: list[Jump] = []
        turn = Turn(self.deferred.append)
        self.replays = Replays(
            self.registry, turn, seconds=self.chance.random, on_jump=self.jumps.append
        )
        self.replays.blocks = Blocks(self.later, bytes_max=self.chance.choice([500, 1 << 20]))
        self.ticket = 1
        self.takers: list[tuple[Taker, StreamStart, int, bool]] = []
        self.jumped: dict[int, list[tuple[int, int]]] = {}
        self.times: list[int] = []

    def step(self) -> None:
        acts = [self.send, self.send, self.sync, self.seal, self.work, self.work, self.turn]
        acts += [self.turn, self.attach, self.grant, self.grant, self.settle, self.leave]
        self.chance.choice(acts)()

    def send(self) -> None:
        count = self.chance.randint(1, 5)
        self.now.ms += self.chance.randint(0, 3)
        bodies = [stomp_message(b"%d" % n) for n in range(len(self.times), len(self.times) + count)]
        self.times += [self.now.ms] * count
        run: Any = Run(bodies, STOMP)
        if self.chance.random() < 0.3:
            run = MixedRun(bodies, [STOMP | n % 10 for n in range(count)], [0] * count)
        base = self.stream.record(run, self.now.ms)
        # Some are in memory only: they become durable when they are sealed.
        self.stream.recorded(base, count, 0 if self.chance.random() < 0.1 else self.ticket)

    def sync(self) -> None:
        self.registry.durable_up_to(self.ticket)
        self.ticket += 1

    def seal(self) -> None:
        self.registry.flush()

    def work(self) -> None:
        if self.later.waiting:
            at = self.chance.randrange(len(self.later.waiting))
            self.later.waiting.insert(0, self.later.waiting.pop(at))
            self.later.step()

    def turn(self) -> None:
        deferred, self.deferred[:] = list(self.deferred), []
        for action in deferred:
            action()

    def attach(self) -> None:
        if len(self.takers) >= 8:
            return
        stream = self.stream
        start = StreamStart(at=self.chance.choice(list(At)))
        if start.at is At.OFFSET:
            start = StreamStart(at=At.OFFSET, value=self.chance.randint(0, stream.next_offset))
        elif start.at is At.TIME:
            start = StreamStart(at=At.TIME, value=self.now.ms + self.chance.randint(-9, 9))
        taker = Taker(self.chance.randint(0, 4), holds=self.chance.random() < 0.5)
        taker.most = self.chance.choice([1, 2, 10**9])
        picky = self.chance.random() < 0.3
        first = self.place(start)
        matches = (lambda m: m.body[-1:] in PARITY) if picky else None
        taker.subscription = self.replays.open("orders", taker, start, matches)
        self.takers.append((taker, start, first, picky))

    def place(self, start: StreamStart) -> int:
        stream = self.stream
        return {
            At.FIRST: stream.first_offset,
            At.LAST: max(stream.first_offset, stream.durable_offset - 1),
            At.NEXT: stream.next_offset,
            At.OFFSET: max(stream.first_offset, start.value),
            At.TIME: stream.first_offset,
        }[start.at]

    def grant(self) -> None:
        if self.takers:
            self.chance.choice(self.takers)[0].grant(self.chance.randint(1, 9))

    def settle(self) -> None:
        if self.takers:
            taker = self.chance.choice(self.takers)[0]
            taker.settle(self.chance.randint(1, 5))

    def leave(self) -> None:
        if self.takers and self.chance.random() < 0.1:
            taker, *_ = self.takers.pop(self.chance.randrange(len(self.takers)))
            taker.subscription.close()
            taker.settle()

    def finish(self) -> None:
        """Have everything become durable and be read."""
        for _ in range(2000):
            self.sync()
            self.seal()
            for taker, *_ in self.takers:
                taker.most = 10**9
                if taker.credit < 100:
                    taker.grant(100)
                taker.settle()
            while self.later.waiting:
                self.work()
            self.turn()
            if not (self.deferred or self.later.waiting) and all(
                t.subscription.asleep for t, *_ in self.takers
            ):
                return
        raise AssertionError("it never comes to rest")

    def check(self) -> None:
        """Compare what each has seen with what there was to see."""
        dropped = {n for jump in self.jumps for n in range(jump.first, jump.end)}
        for taker, start, first, picky in self.takers:
            taker.settle()
            seen = taker.offsets
            assert seen == sorted(set(seen)), "out of order, or twice"
            wanted = [
                n
                for n in range(first, len(self.times))
                if (start.at is not At.TIME or self.times[n] >= start.value)
                and (not picky or str(n)[-1].encode() in PARITY)
            ]
            missing = set(wanted) - set(seen)
            gone = dropped if start.at is not At.TIME else set(range(self.stream.first_offset))
            assert not set(seen) - set(wanted), (start, "what is not for it")
            assert missing <= gone, (start, sorted(missing - gone))
            for message in taker.got:
                assert message.body == stomp_message(b"%d" % message.seq)
        assert self.replays.unsettled == 0
        assert self.tap.replays == len(self.takers)
        if not self.takers:
            assert self.replays.blocks._size == 0


@pytest.mark.parametrize("batch", range(4))
def test_each_sees_all_that_is_kept_once(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "RUN_MESSAGES", 7)
    monkeypatch.setattr(replays, "TURN_MESSAGES", 20)
    monkeypatch.setattr(blocks, "READS_MAX", 2)
    seen = 0
    for seed in range(batch * 50, batch * 50 + 50):
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step()
            world.finish()
            world.check()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        seen += sum(len(taker.got) for taker, *_ in world.takers)
    assert seen > 1000
