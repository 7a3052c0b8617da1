"""With very many addresses what concerns one costs what it costs with few."""

from __future__ import annotations

import pytest

from gateway.model.message import STOMP
from tests.broker.core import MULTICAST, Core, stomp

MANY = 2000


@pytest.fixture
def many() -> Core:
    core = Core()
    for number in range(MANY):
        core.send(f"mk.{number}", b"x")
    return core


def looks(core: Core, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the addresses whose branches are worked out from now on."""
    seen: list[str] = []
    branch = type(core.gateway.addresses["mk.0"]).branch

    def spied(address, diverts, wild):
        seen.append(address.name)
        branch(address, diverts, wild)

    monkeypatch.setattr(type(core.gateway.addresses["mk.0"]), "branch", spied)
    return seen


def test_a_wildcard_subscriber_costs_as_much_as_there_are_senders(many, monkeypatch):
    producer, _ = many.producer("mk.7")
    seen = looks(many, monkeypatch)
    taker = many.consume("mk.#", routing=MULTICAST)
    assert seen == ["mk.7"]
    producer.send([stomp(b"y")], STOMP | 4, 0)
    many.send("mk.8", b"z")
    many.turn()
    assert taker.bodies() == [b"y", b"z"]
    assert seen == ["mk.7", "mk.8"]
    taker.leave()
    many.turn()
    assert "mk.9" not in seen
    assert seen[2:] == ["mk.7"]
    many.send("mk.8", b"late")
    assert seen[3:] == ["mk.8"]


def test_an_empty_queue_has_no_room_for_messages_yet(many):
    queue = many.queue("mk.0")
    begun = [level for level in queue._ready._levels if level.maxlen is None]
    assert len(begun) == 1  # of its ten priorities the one that had a message
