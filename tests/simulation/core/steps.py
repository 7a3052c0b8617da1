"""What happens in a life of any world of a whole core: turns end, and the disk goes on a step."""

from __future__ import annotations

from tests.simulation.core.life import Life


def expire(world: Life) -> None:
    """The expiry scan runs."""
    world.gateway.expire()


def turn(world: Life) -> None:
    """A turn of the reactor ends."""
    world.turn()


def step(world: Life) -> None:
    """The writer does its next job."""
    world.writer.step()


def answer(world: Life) -> None:
    """The writer's answer arrives."""
    world.writer.answer()


def fetch(world: Life) -> None:
    """A block of a page is read, or arrives."""
    if world.chance.random() < 0.5:
        world.fetches.step()
    else:
        world.fetches.answer()


STEPS = {operation.__name__: operation for operation in (expire, turn, step, answer, fetch)}
