"""Frames that do not come to their end: nothing is made for them, and they share a budget."""

from __future__ import annotations

import pytest

from gateway.model.budget import Budget
from tests.broker.core import Core
from tests.conformance.clients import Stomp

KIB = 1024


def queues(core: Core) -> list[str]:
    return sorted(core.gateway.queues)


@pytest.mark.parametrize("length", ["content-length:3000\n", ""])
def test_an_oversized_send_leaves_no_queue_behind(length):
    core = Core()
    client = Stomp(core, body_bytes_max=2000)
    head = f"SEND\ndestination:new\n{length}\n"
    came = client.say(head + "x" * 1500)
    if not length:
        assert came == []
        came = client.say("x" * 1500)
    assert [name for name, _, _ in came] == ["ERROR"]
    assert came[0][1]["error-code"] == "too-large"
    assert (queues(core), list(core.gateway.addresses)) == ([], [])


@pytest.mark.parametrize("length", ["content-length:5\n", ""])
def test_a_send_that_never_ends_leaves_no_queue_behind(length):
    core = Core()
    client = Stomp(core)
    client.say(f"SEND\ndestination:new\n{length}\nhel")
    assert queues(core) == []
    client.cut()
    assert queues(core) == []
    whole = Stomp(core)
    for part in (f"SEND\ndestination:new\n{length}\nhel", "lo", "\0"):
        assert whole.say(part) == []
    assert core.waiting("new") == [b"hello"]
    # Another of that shape finds its route.
    assert whole.say(f"SEND\ndestination:new\n{length}\nagain\0") == []
    assert core.waiting("new") == [b"hello", b"again"]


def held(core: Core, budget: Budget, size: int, *, free: int = KIB) -> tuple[Stomp, list]:
    client = Stomp(core, unfinished=budget, unfinished_free_bytes=free)
    return client, client.say("SEND\ndestination:q\n\n" + "x" * size)


def test_unfinished_frames_of_all_connections_share_a_budget():
    core = Core()
    budget = Budget(100 * KIB)
    first, came = held(core, budget, 60 * KIB)
    assert came == []
    assert 60 * KIB < budget.held < 61 * KIB
    second, came = held(core, budget, 60 * KIB)
    ((name, headers, body),) = came
    assert (name, headers["error-code"]) == ("ERROR", "memory-full")
    assert b"102400 bytes" in body
    assert second.session.closing
    # What it held is free again; the first goes on, and what is small enough always does.
    assert 60 * KIB < budget.held < 61 * KIB
    third, came = held(core, budget, 30 * KIB)
    assert came == []
    assert first.say("x" * 5 * KIB + "\0") == []
    assert third.say("\0") == []
    assert budget.held == 0
    assert [len(body) for body in core.waiting("q")] == [65 * KIB, 30 * KIB]


def test_small_ones_pass_though_the_budget_is_used_up():
    core = Core()
    budget = Budget(10 * KIB)
    first, came = held(core, budget, 900, free=20 * KIB)
    budget.held += 50 * KIB
    assert came == first.say("x" * 900) == []
    assert first.say("\0") == []
    assert budget.held == 50 * KIB


@pytest.mark.parametrize("how", ["cut", "broken", "leave"])
def test_who_goes_gives_its_part_back(how):
    core = Core()
    budget = Budget(100 * KIB)
    client, _ = held(core, budget, 5 * KIB)
    assert budget.held > 5 * KIB
    if how == "cut":
        client.cut()
    elif how == "broken":
        client.say("\0" + "nonsense\n\n\0")
    else:
        client.say("\0")
        client.leave()
    assert budget.held == 0


def test_a_disconnect_is_confirmed_though_all_is_on_disk_already():
    core = Core()
    client = Stomp(core)
    assert client.say("SEND\ndestination:q\n\nx\0") == []
    assert core.store.unsynced == 0
    client.leave()
    assert core.waiting("q") == [b"x"]


def test_it_is_counted_as_it_grows_and_shrinks():
    core = Core()
    budget = Budget(100 * KIB)
    client, _ = held(core, budget, 10)
    sizes = []
    for part in ("x" * 100, "x" * 100, "\0SEND\ndestination:q\n\nabc", "\0"):
        client.say(part)
        sizes.append(budget.held)
    assert sizes[1] - sizes[0] == 100
    assert (sizes[2], sizes[3]) == (len("SEND\ndestination:q\n\nabc"), 0)
