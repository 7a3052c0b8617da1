"""The power fails behind any batch: transactions are whole or not there, nothing is twice."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.broker import Limits
from gateway.broker.pressure.load import OVERHEAD_BYTES
from gateway.model.run import Run
from tests.broker.core import ANYCAST, MULTICAST, Core, body_of, entry, flags_of, stomp


def states(core: Core, *names: str) -> list[tuple[list[bytes], ...]]:
    """Return what each queue holds after a cut behind each batch, without repetition."""
    core.sync()
    seen = []
    for batches in range(len(core.store.batches) + 1):
        definitions, held, _ = core.store.kept(batches)
        ids = {d.name: d.queue_id for key, d in definitions.items() if key[0] == "queue"}
        state = tuple(
            [body_of(Stored(body)) for body, *_ in held.get(ids.get(name), {}).values()]
            for name in names
        )
        if not seen or seen[-1] != state:
            seen.append(state)
    return seen


class Stored:
    def __init__(self, body: bytes) -> None:
        self.body = body


def test_a_commit_is_in_one_batch_with_all_that_follows_from_it():
    core = Core(entry("#", dead_letter_address="dead", max_delivery_attempts=1))
    core.administration.create_queue("dlq", "dead", ANYCAST)
    for name in ("s1", "s2"):
        core.administration.create_queue(name, "t", MULTICAST)
    core.administration.create_queue("ring", "ring", ANYCAST, ring_size=1)
    core.send("q", b"acked", b"nacked", b"rejected")
    core.send("ring", b"old")
    core.sync()
    taker = core.consume("q")
    work = core.gateway.begin()
    work.acknowledge(taker.hold, taker.got[:1])
    work.reject(taker.hold, taker.got[1:2], dead_letter=False)
    work.reject(taker.hold, taker.got[2:], dead_letter=True)
    for name, body in (("t", b"x"), ("q", b"y"), ("t", b"z"), ("ring", b"new")):
        work.send(core.producer(name)[0], Run((stomp(body),), flags_of()))
    ticket = work.commit()
    assert ticket == core.store.ticket
    names = ("q", "s1", "s2", "dlq", "ring")
    assert states(core, *names)[-2:] == [
        ([b"acked", b"nacked", b"rejected"], [], [], [], [b"old"]),
        ([b"y"], [b"x", b"z"], [b"x", b"z"], [b"rejected", b"nacked"], [b"new"]),
    ]
    core.restart()
    assert core.waiting("s2") == [b"x", b"z"]
    core.check()


def test_a_dead_letter_is_in_one_place_at_any_time():
    core = Core(entry("#", dead_letter_address="dead"))
    core.administration.create_queue("dlq", "dead", ANYCAST)
    core.send("q", b"1", b"2")
    core.sync()
    core.consume("q").reject()
    assert states(core, "q", "dlq")[-2:] == [([b"1", b"2"], []), ([], [b"1", b"2"])]


def test_an_expired_message_is_in_one_place_at_any_time():
    core = Core(entry("#", expiry_address="late"))
    core.administration.create_queue("late", "late", ANYCAST)
    core.send("q", b"1", ttl=5)
    core.send("q", b"2")
    core.sync()
    core.now += 5
    core.gateway.expire()
    assert states(core, "q", "late")[-2:] == [([b"1", b"2"], []), ([b"2"], [b"1"])]


def test_what_expired_beside_a_message_does_not_bring_that_back():
    core = Core(entry("#", expiry_address=""))
    core.send("q", b"late", ttl=5)
    core.send("q", b"good", ttl=500)
    core.sync()
    core.now += 10
    taker = core.consume("q")
    assert taker.bodies() == [b"good"]
    assert taker.ack() == core.store.ticket
    core.sync()
    core.restart()
    assert core.waiting("q") == []
    core.check()


@pytest.mark.parametrize("policy", [FullPolicy.BLOCK, FullPolicy.FAIL])
@pytest.mark.parametrize("everywhere", [False, True])
def test_senders_are_told_by_the_byte_that_reaches_the_limit(policy, everywhere):
    size = 3 * (len(stomp(b"x")) + OVERHEAD_BYTES)
    for more in (0, 1):
        limits = {} if everywhere else {"max_size_bytes": size + more}
        core = Core(
            entry("#", address_full_policy=policy, **limits),
            limits=Limits(global_max_size=size + more) if everywhere else None,
        )
        _, owner = core.producer("q")
        assert core.send("q", b"x", b"x", b"x") == [True] * 3
        assert owner.blocked == (not more)
