"""Selectors over pages: what is wanted is taken from the middle, and order holds for all others."""

from __future__ import annotations

import random

import pytest

from gateway.addresses.match import SettingsEntry
from gateway.model.message import MAYBE_SEEN
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from tests.broker.core import body_of, flags_of
from tests.paging.node import Node, node

LIMITED = {"max_size_messages": 1, "page_size_bytes": 1024, "max_read_page_messages": 4}


def life_of(tmp_path, **settings) -> Node:
    return node(tmp_path, SettingsEntry(match="#", values={**LIMITED, **settings}))


def send(life: Node, kinds: str) -> list[bytes]:
    """Send one message for each letter; k is the letter."""
    route = life.producer("q")
    bodies = []
    for number, kind in enumerate(kinds):
        body = b"%03d %b" % (number, kind.encode())
        form = pack("q", body, persistent=True, headers=[("k", kind)])
        route.send(Run([form], flags_of()))
        bodies.append(body)
        life.turn()
    life.sync()
    return bodies


def of(bodies: list[bytes], kind: bytes) -> list[bytes]:
    return [body for body in bodies if body.endswith(kind)]


def test_who_takes_all_gets_all_in_order_whatever_selectors_take_ahead(tmp_path):
    life = life_of(tmp_path)
    bodies = send(life, "a" * 20 + "b" + "a" * 20 + "b")
    picky = life.consume("q", 1, selector="k = 'b'")
    life.sync()
    assert picky.bodies() == [bodies[20]]
    plain = life.consume("q", 3)
    life.sync()
    assert plain.bodies() == bodies[:3]
    picky.release(failed=True)
    picky.leave()
    plain.ack()
    life.sync()
    assert life.gateway.queues["q"].message_count == 39
    taken = life.drain("q", step=3, amount=39)
    assert taken == bodies[3:], "what came back waits in its place"
    life.check()


def test_what_was_taken_ahead_and_given_back_comes_marked_over_a_restart(tmp_path):
    life = life_of(tmp_path)
    bodies = send(life, "aaaaaaaaab")
    picky = life.consume("q", 1, selector="k = 'b'")
    life.sync()
    picky.release(failed=True)
    life.sync()
    (again,) = [m for m in life.gateway.queues["q"].browse(0, 20) if body_of(m) == bodies[9]]
    assert again.delivery_count == 1
    life.restart()
    (again,) = [m for m in life.gateway.queues["q"].browse(0, 20) if body_of(m) == bodies[9]]
    assert again.delivery_count == 1
    assert again.flags & MAYBE_SEEN
    assert life.drain("q") == bodies


def test_two_selectors_and_later_messages(tmp_path):
    life = life_of(tmp_path)
    bodies = send(life, "aaaab" * 8)
    first = life.consume("q", 100, selector="k = 'b'")
    second = life.consume("q", 100, selector="k = 'b'")
    third = life.consume("q", 100, selector="k = 'c'")
    taken: list[bytes] = []
    for _ in range(6):
        life.sync()
        taken += first.bodies() + second.bodies()
        first.ack()
        second.ack()
    assert sorted(taken) == of(bodies, b"b")
    assert third.got == []
    late = send(life, "aac")
    assert third.bodies() == [late[2]]
    life.check()


def test_whoever_is_barred_from_it_is_not_asked_again_and_again(tmp_path):
    life = life_of(tmp_path)
    bodies = send(life, "aaaaaaaab")
    picky = life.consume("q", 5, selector="k = 'b'")
    life.sync()
    picky.release(undeliverable_here=True)
    life.sync()
    assert picky.got == []
    other = life.consume("q", 5, selector="k = 'b'")
    life.sync()
    assert other.bodies() == [bodies[8]]


@pytest.mark.parametrize("seed", range(6))
def test_any_mix_of_consumers_gets_each_message_once(tmp_path, seed):
    chance = random.Random(seed)
    life = life_of(tmp_path, max_read_page_messages=chance.choice([2, 5, -1]))
    bodies = send(life, "".join(chance.choice("aaab") for _ in range(60)))
    takers = [life.consume("q", 0, selector=s) for s in ("k = 'a'", "k = 'b'", "", "k = 'b'")]
    taken: list[bytes] = []
    while len(taken) < len(bodies):
        taker = chance.choice(takers)
        taker.take(chance.randint(1, 4))
        life.sync()
        life.check()
        if not taker.got:
            continue
        if chance.random() < 0.2:
            taker.release(failed=chance.random() < 0.3)
            continue
        taken += taker.bodies()
        taker.ack()
    assert sorted(taken) == sorted(bodies)
    life.sync()
    assert life.page_files() == []
