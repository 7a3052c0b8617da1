"""Settings that change at any moment: what was taken and not dropped is delivered, in order.

Sends, consumers that give back, changes of policy and limits, and cuts of power follow one another
by chance; a list of what was taken is the model.
"""

from __future__ import annotations

import random

import pytest

from gateway.addresses.match import SettingsTable
from gateway.addresses.settings import Durability, FullPolicy, PageFullPolicy
from gateway.broker import Limits
from gateway.broker.resettle import resettle
from gateway.model.run import Run
from tests.broker.core import Core, entry, flags_of, stomp

POLICIES = list(FullPolicy)


def settings(chance: random.Random):
    """Return settings by chance, none of them impossible."""
    values = {
        "address_full_policy": chance.choice(POLICIES),
        "max_size_messages": chance.choice([-1, 1, 3, 10, 40]),
        "page_size_bytes": chance.choice([1024, 10 << 20]),
        "page_limit_messages": chance.choice([-1, -1, 5, 30]),
        "page_full_policy": chance.choice(list(PageFullPolicy)),
        "max_read_page_messages": chance.choice([-1, 1, 7]),
        "strict_dispatch": chance.random() < 0.3,
        "durability": chance.choice([Durability.FSYNC, Durability.WRITE]),
        "max_delivery_attempts": -1,
        "id_cache_size": chance.choice([0, 5]),
    }
    chosen = chance.sample(sorted(values), chance.randrange(len(values)))
    kept = {name: values[name] for name in chosen} | {"max_delivery_attempts": -1}
    return entry("#", **kept)


class World:
    """A core, one sender, one consumer, and what was taken."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.core = Core(settings(chance))
        self.sent = 0
        self.taken: list[bytes] = []
        self.got: list[bytes] = []
        self.attach()

    def attach(self) -> None:
        self.route, self.owner = self.core.producer("q")

    def send(self) -> None:
        bodies = [b"%06d" % (self.sent + i) for i in range(self.chance.randrange(1, 8))]
        self.sent += len(bodies)
        for body in bodies:
            dropped = self.core.gateway.addresses["q"].dropped
            outcome = self.route.send(Run([stomp(body)], flags_of()))
            if outcome.refusal is None and self.core.gateway.addresses["q"].dropped == dropped:
                self.taken.append(body)
        self.core.turn()

    def consume(self) -> None:
        taker = self.core.consume("q", room=self.chance.randrange(1, 12))
        self.core.sync()
        if self.chance.random() < 0.3:
            taker.release()
        else:
            self.got += taker.bodies()
            taker.ack()
        taker.leave()
        self.core.sync()

    def change(self) -> None:
        core = self.core
        core.entries = (settings(self.chance),)
        core.limits = Limits(global_max_messages=self.chance.choice([-1, -1, 20]))
        for _ in resettle(core.gateway, SettingsTable(core.entries), core.limits):
            core.turn()
        address = core.gateway.addresses["q"]
        if address.blocked is None:
            assert not self.owner.blocked, "nobody holds it back, and it waits"

    def restart(self) -> None:
        self.core.sync()
        self.core.restart()
        self.attach()

    def step(self) -> None:
        weights = {self.send: 6, self.consume: 3, self.change: 3, self.core.sync: 2}
        weights[self.restart] = 1
        self.chance.choices(list(weights), list(weights.values()))[0]()
        self.core.turn()
        self.core.check()


@pytest.mark.parametrize("seed", range(150))
def test_what_was_taken_is_delivered_in_order_whatever_the_settings(seed):
    world = World(random.Random(seed))
    for _ in range(60):
        world.step()
    world.core.sync()
    core = world.core
    for _ in resettle(core.gateway, SettingsTable((entry("#"),)), Limits()):
        core.turn()
    core.sync()
    assert not world.owner.blocked
    while True:
        taker = core.consume("q", room=50)
        core.sync()
        bodies = taker.bodies()
        world.got += bodies
        taker.ack()
        taker.leave()
        core.sync()
        if not bodies:
            break
    assert world.got == world.taken
    assert core.gateway.addresses["q"].paging is None
    core.check()
