"""Transactions of AMQP beside a naive model: whatever is done in what order, power cuts as well.

Two connections send, receive, settle, declare, discharge, detach and vanish at random over one
broker. What each queue holds at the end is what the model says, and after a power cut as well.
"""

from __future__ import annotations

import random

import pytest

from gateway.model.sections import scan
from protocols.amqp.performatives import ACCEPTED, RELEASED, Detach, Modified
from tests.broker.core import Core
from tests.conformance.clients import plain, took
from tests.conformance.test_transactions import Client, outcome
from tests.protocols.amqp.controlling import CONTROL, told

STEPS = 150
SEEDS = 40
QUEUES = ("a", "b")


class Actor:
    """One connection, and what it believes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = Client.at(world.core)
        self.peer = self.client.peer
        for handle, name in enumerate(QUEUES):
            self.peer.sender(handle, name)
            self.peer.receiver(handle + 4, name, credit=0)
        self.held: dict[int, tuple[str, bytes]] = {}  # delivery -> queue, body: not settled
        self.open: dict[bytes, dict[str, list[tuple[str, bytes]]]] = {}
        #: by delivery, of what is enlisted and not settled
        self.enlisted: dict[int, bytes] = {}

    def hear(self, came) -> None:
        for number, message in took(came):
            body = scan(message).data()
            self.held[number] = (self.world.place[body], body)

    def receive(self, chance: random.Random) -> None:
        handle = chance.randrange(4, 4 + len(QUEUES))
        if handle not in self.peer.engine.sessions[0].links:
            self.peer.receiver(handle, QUEUES[handle - 4])
            self.peer.watch.sessions[0].links[handle].count = 0
        self.hear(self.peer.credit(chance.randrange(1, 4), handle) + self.peer.more())

    def send(self, chance: random.Random) -> None:
        handle = chance.randrange(len(QUEUES))
        body = self.world.body(QUEUES[handle])
        name = chance.choice([None, *self.open])
        if name is None:
            assert self.peer.give(plain(body, durable=True), handle=handle) == [ACCEPTED]
            self.world.there[QUEUES[handle]].add(body)
        else:
            came = self.client.post(name, body, handle=handle, durable=True)
            assert told(came)[-1].endswith("in transaction accepted")
            self.open[name]["posted"].append((QUEUES[handle], body))

    def settle(self, chance: random.Random) -> None:
        free = [n for n in self.held if n not in self.enlisted]
        if not free:
            return
        number = chance.choice(free)
        name = chance.choice([None, *self.open])
        state = chance.choice([ACCEPTED, ACCEPTED, RELEASED, Modified(delivery_failed=True)])
        if name is None:
            self.hear(self.peer.settle(number, state))
            self._drop(self.held.pop(number), state)
            return
        settled = chance.random() < 0.6
        self.hear(self.client.retire(name, number, settled=settled, outcome=state))
        kind = "accepted" if state is ACCEPTED else "given back"
        self.open[name][kind].append(self.held[number])
        if settled:
            del self.held[number]
        else:
            self.enlisted[number] = name

    def _drop(self, message: tuple[str, bytes], state: object) -> None:
        if state is ACCEPTED:
            self.world.there[message[0]].discard(message[1])

    def declare(self, chance: random.Random) -> None:
        if len(self.open) < 4:
            self.open[self.client.declare()] = {"posted": [], "accepted": [], "given back": []}

    def discharge(self, chance: random.Random) -> None:
        if not self.open:
            return
        name = chance.choice(list(self.open))
        work = self.open.pop(name)
        fail = chance.random() < 0.4
        came = self.client.end(name, fail=fail)
        assert outcome(came) == "accepted"
        for number in [n for n, inside in self.enlisted.items() if inside == name]:
            del self.enlisted[number]
            if not fail:
                del self.held[number]
        if not fail:
            for message in work["accepted"]:
                self._drop(message, ACCEPTED)
            for queue, body in work["posted"]:
                self.world.there[queue].add(body)
        self.hear(came)

    def coordinator_goes(self, chance: random.Random) -> None:
        if chance.random() < 0.9:
            return
        self.hear(self.peer.tell(Detach(handle=CONTROL, closed=True)) + self.peer.more())
        self.client.control()
        self.open.clear()
        self.enlisted.clear()

    def receiver_goes(self, chance: random.Random) -> None:
        handle = chance.randrange(4, 4 + len(QUEUES))
        if chance.random() < 0.9 or handle not in self.peer.engine.sessions[0].links:
            return
        queue = QUEUES[handle - 4]
        self.hear(self.peer.tell(Detach(handle=handle, closed=True)) + self.peer.more())
        for number in [n for n, (where, _) in self.held.items() if where == queue]:
            del self.held[number]
            self.enlisted.pop(number, None)


class World:
    """The broker, and what must be in its queues."""

    def __init__(self) -> None:
        self.core = Core()
        self.there: dict[str, set[bytes]] = {name: set() for name in QUEUES}
        self.place: dict[bytes, str] = {}

    def body(self, queue: str) -> bytes:
        made = b"m%04d" % len(self.place)
        self.place[made] = queue
        return made

    def check(self) -> None:
        self.core.check()
        for name in QUEUES:
            assert self.core.queue(name).message_count == len(self.there[name]), name

    def holds(self, name: str) -> list[bytes]:
        return [scan(m.body).data() for m in self.core.queue(name).holdings()]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_queues_hold_what_the_model_says(seed: int) -> None:
    chance = random.Random(seed)
    world = World()
    actors = [Actor(world), Actor(world)]
    for _ in range(STEPS):
        index = chance.randrange(len(actors))
        if chance.random() < 0.02:
            actors[index].peer.cut()
            actors[index] = Actor(world)
        actor = actors[index]
        step = chance.choice(
            [
                Actor.receive,
                Actor.receive,
                Actor.send,
                Actor.send,
                Actor.settle,
                Actor.settle,
                Actor.settle,
                Actor.declare,
                Actor.discharge,
                Actor.coordinator_goes,
                Actor.receiver_goes,
            ]
        )
        step(actor, chance)
        for other in actors:
            other.hear(other.peer.more())
        world.check()
    if chance.random() < 0.5:
        world.core.sync()
        world.core.restart()
    else:
        for actor in actors:
            actor.peer.cut()
        assert all(actor.peer.engine.links == 0 for actor in actors)
    for name in QUEUES:
        held = world.holds(name)
        assert sorted(held) == sorted(world.there[name])
    world.core.check()
