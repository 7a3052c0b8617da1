"""With very many addresses what concerns one costs what it costs with few."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from gateway.broker.directory import reaper
from gateway.model.message import STOMP
from gateway.model.run import Run
from gateway.time.slices import Slices
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
    producer.send(Run([stomp(b"y")], STOMP | 4, 0))
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
    begun = [level for level in queue.line.ready._levels if level.maxlen is None]
    assert len(begun) == 1  # of its ten priorities the one that had a message


def test_a_sweep_looks_at_so_many_and_then_others_have_their_turn(many, monkeypatch):
    monkeypatch.setattr(reaper, "SLICE", 100)
    judged: list[str] = []
    kind = type(many.gateway.reaper)
    queue_is_idle, address_is_idle = kind._queue_is_idle, kind._address_is_idle
    monkeypatch.setattr(
        kind, "_queue_is_idle", lambda *of: judged.append("queue") or queue_is_idle(*of)
    )
    monkeypatch.setattr(
        kind, "_address_is_idle", lambda *of: judged.append("address") or address_is_idle(*of)
    )
    turns: list[Callable[[], None]] = []
    sweep = Slices(many.gateway.reaper.sweep_in_slices, turns.append)
    sweep.start()
    counts = [len(judged)]
    sweep.start()  # passed over: the first is on its way
    many.gateway.administration.delete_queue(f"mk.{MANY - 1}")
    many.gateway.administration.delete_address(f"mk.{MANY - 1}")
    while turns:
        turns.pop()()
        counts.append(len(judged))
    assert max(after - before for before, after in pairwise([0, *counts])) == 100
    assert (judged.count("queue"), judged.count("address")) == (MANY - 1, MANY - 1)
    sweep.start()
    assert len(turns) == 1
