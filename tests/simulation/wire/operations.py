"""What happens in a life of the simulated network: one function for each thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.core.steps import STEPS
from tests.simulation.wire.client import Client

if TYPE_CHECKING:
    from tests.simulation.wire.world import WireWorld


# ---- the network


def network(world: WireWorld) -> None:
    """Something arrives somewhere, in pieces."""
    for _ in range(world.chance.choice([1, 3, 10, 40])):
        world.happen()


def cut(world: WireWorld) -> None:
    """A connection breaks; a part of what is on its way still arrives."""
    line = world.some_line()
    if line is not None and not line.was_cut:
        world.log(f"      line {line.number} is cut")
        world.figures["cut"] += 1
        line.end.excused = True
        line.cut(world.chance)


def half_close(world: WireWorld) -> None:
    """A client says that it sends no more, and still reads."""
    line = world.some_line()
    if line is not None:
        world.figures["half closed"] += 1
        line.up.ended = line.end.excused = True


def stall(world: WireWorld) -> None:
    """One direction of a line stands still, or goes on: a peer that does not read, or is slow."""
    line = world.some_line()
    if line is not None:
        pipe = world.chance.choice([line.up, line.down])
        pipe.stalled = not pipe.stalled


# ---- WebSocket


def say_close(world: WireWorld) -> None:
    """A client says Close amid of whatever it does; what it said before still arrives."""
    line = world.some_line()
    if line is None or line.web is None or not line.web.open:
        return
    line.set_out()
    if not line.leaving:
        line.end.excused = True
        line.web.close()
        world.figures["Close said"] += 1


def idle(world: WireWorld) -> None:
    """Nobody does anything for longer than a connection may be silent, beside what keeps it."""
    if any(client.underway for client in world.clients):
        return  # half a message may not wait for so long
    for _ in range(35):
        world.pass_time(2000)
        for _ in range(100):
            if not world.happen():
                break
        world.settle()
    world.figures["idle"] += 1


# ---- clients


def connect(world: WireWorld) -> None:
    """A client comes."""
    if len(world.clients) < world.wire.clients and not world.failed:
        world.connect()


def send(world: WireWorld) -> None:
    """A client sends, one message or some at once."""
    client = _some(world)
    if client is not None:
        count = world.chance.choice([1, 1, 2, 5])
        address = world.chance.choice(world.plan.addresses)
        client.send(address, [client.payload() for _ in range(count)])


def subscribe(world: WireWorld) -> None:
    """A client subscribes."""
    client = _some(world)
    if client is not None and len(client.subscriptions) < 3:
        client.subscribe(world.chance.choice(world.known_queues()))


def demand(world: WireWorld) -> None:
    """A client asks for more."""
    client = _some(world)
    if client is not None:
        client.demand()


def settle(world: WireWorld) -> None:
    """A client says what becomes of some that it has."""
    client = _some(world, holding=True)
    if client is None:
        return
    held = client.held()
    count = world.chance.randint(1, min(6, len(held)))
    if world.chance.random() < 0.3:
        held = world.chance.sample(held, count)
    how = world.chance.choices(["ack", "nack", "release", "reject"], [12, 3, 2, 1])[0]
    client.settle(held[:count], how)


def unsubscribe(world: WireWorld) -> None:
    """A client ends a subscription."""
    client = _some(world)
    if client is not None and client.subscriptions:
        client.unsubscribe(world.chance.choice(client.subscriptions))


def transact(world: WireWorld) -> None:
    """A client begins a transaction, works in one, or ends one."""
    client = _some(world)
    if client is None:
        return
    if not client.parts:
        client.begin()
        return
    part = world.chance.choice(client.parts)
    kind = world.chance.random()
    if kind < 0.4:
        address = world.chance.choice(world.plan.addresses)
        client.send(address, [client.payload() for _ in range(world.chance.randint(1, 2))], part)
    elif kind < 0.7:
        held = client.held()
        if held:
            client.settle(held[: world.chance.randint(1, 3)], "ack", part)
    else:
        client.end(part, commit=world.chance.random() < 0.7)


def leave(world: WireWorld) -> None:
    """A client says good-bye."""
    client = _some(world)
    if client is not None:
        client.leave()


def _some(world: WireWorld, *, holding: bool = False) -> Client | None:
    ready = [c for c in world.clients if c.ready and (not holding or c.held())]
    return world.chance.choice(ready) if ready else None


# ---- time and the disk


def time(world: WireWorld) -> None:
    """Time goes by."""
    world.turn()
    world.pass_time(world.chance.choice([1, 20, 90, 1000, 5000]))


def rest(world: WireWorld) -> None:
    """All that waits goes to the disk."""
    world.settle()


OPERATIONS: dict[str, Callable[[WireWorld], None]] = {
    operation.__name__: operation
    for operation in (
        network,
        cut,
        half_close,
        stall,
        connect,
        send,
        subscribe,
        demand,
        settle,
        unsubscribe,
        transact,
        leave,
        time,
        rest,
    )
} | STEPS
#: Where some of the clients come over WebSocket.
WEB_OPERATIONS = {operation.__name__: operation for operation in (say_close, idle)}
