"""STOMP senders whose messages go on to other addresses: one of these that is full holds them."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.model.address import RoutingType
from tests.broker.core import Core, entry
from tests.conformance.clients import VERSIONS, Stomp, bodies
from tests.conformance.test_branches import divert

LIMIT = 5
SENT = [str(n) for n in range(20)]


def diverting(*, exclusive: bool) -> Core:
    """A core whose `q` has no limit, and goes on to `few`, which has."""
    core = Core(
        entry("few", address_full_policy=FullPolicy.BLOCK, max_size_messages=LIMIT),
    )
    for name in ("q", "few"):
        core.administration.create_queue(name, name, RoutingType.ANYCAST)
    divert(core, "d", "q", "few", exclusive=exclusive)
    return core


def run(destination: str) -> str:
    return "".join(f"SEND\ndestination:{destination}\nreceipt:{body}\n\n{body}\0" for body in SENT)


def receipts(came: list) -> list[str]:
    assert {name for name, _, _ in came} <= {"RECEIPT"}, came
    return [headers["receipt-id"] for _, headers, _ in came]


def held(core: Core, name: str) -> int:
    core.turn()
    core.check()
    return core.queue(name).message_count


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_through_a_divert_stops_at_the_full_address_behind_it(version, exclusive):
    core = diverting(exclusive=exclusive)
    one = Stomp(core, version)
    told = receipts(one.say(run("q")))
    assert told == SENT[:LIMIT]
    assert held(core, "few") == LIMIT
    assert held(core, "q") == (0 if exclusive else LIMIT)
    reader = Stomp(core, version)
    came = bodies(reader.subscribe("few"))
    while more := receipts(one.more()):
        told += more
        came += bodies(reader.more())
    assert told == SENT
    assert came == SENT
    assert held(core, "few") == 0
    assert held(core, "q") == (0 if exclusive else len(SENT))


@pytest.mark.parametrize("version", VERSIONS)
def test_those_that_come_and_go_store_nothing_behind_a_divert_to_a_full_address(version):
    core = diverting(exclusive=False)
    for _ in range(20):
        one = Stomp(core, version)
        one.say(run("q"))
        one.cut()
    assert held(core, "few") == LIMIT
    assert held(core, "q") == LIMIT


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_stops_at_a_full_wildcard_address(version):
    core = Core(
        entry("a.#", address_full_policy=FullPolicy.BLOCK, max_size_messages=LIMIT),
    )
    core.administration.create_queue("all", "a.#", RoutingType.MULTICAST)
    core.administration.create_queue("one", "a.b", RoutingType.MULTICAST)
    one = Stomp(core, version)
    told = receipts(one.say(run("a.b")))
    assert told == SENT[:LIMIT]
    assert held(core, "all") == LIMIT
    assert held(core, "one") == LIMIT


@pytest.mark.parametrize("version", VERSIONS)
def test_what_an_operator_blocks_behind_a_divert_takes_nothing(version):
    core = diverting(exclusive=False)
    core.gateway.block_address("few", blocked=True)
    one = Stomp(core, version)
    assert receipts(one.say(run("q"))) == []
    assert held(core, "q") == held(core, "few") == 0
    core.gateway.block_address("few", blocked=False)
    assert receipts(one.more()) == SENT[:LIMIT]
