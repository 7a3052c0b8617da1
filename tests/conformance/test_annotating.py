"""`modified` with message-annotations: they are in the message when it comes again [AMQP 3.4.5]."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.broker.pressure.load import Limits
from gateway.model.amqp_types import Symbol
from gateway.model.message import PAGED
from gateway.model.sections import header_facts, with_annotations, with_property
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import ACCEPTED, Error, Modified, Rejected, Source
from tests.broker.core import ANYCAST, MULTICAST, Core, entry
from tests.conformance.clients import Amqp, Stomp, plain, read, took
from tests.conformance.test_selecting import selecting
from tests.conformance.test_transactions import Client

SENT = with_annotations(plain("m", durable=True), {"x-a": "sent", "x-b": "sent"})
MERGED = {"x-a": "sent", "x-b": "back", "x-c": 1}


def back(failed: bool = False, **named) -> Modified:
    add = {Symbol(k.replace("_", "-")): v for k, v in named.items()}
    return Modified(delivery_failed=failed, message_annotations=add)


BACK = back(x_b="back", x_c=1)
LONG = Error(condition="x:long", description="x" * 3000)


def with_queue(*entries, address: str = "q", **attributes) -> Core:
    core = Core(*entries)
    core.administration.create_queue("q", address, ANYCAST, **attributes)
    return core


def fill(core: Core, *messages: bytes, address: str = "q") -> None:
    peer = Amqp.at(core)
    peer.sender(address=address)
    assert peer.give(*messages or (SENT,)) == [ACCEPTED] * len(messages or (SENT,))
    peer.cut()


def annotations(came) -> list[dict]:
    return [dict(read(message).message_annotations) for _, message in took(came)]


def reading(core: Core, address: str = "q", credit: int = 10, **options):
    peer = Amqp.at(core, **options)
    return peer, peer.receiver(address=address, credit=credit) + peer.more()


def empty(core: Core) -> None:
    """Nothing is left, of whatever size."""
    core.sync()
    core.check()
    assert (core.gateway.load.memory, core.gateway.load.messages) == (0, 0)
    assert {q.size_bytes for q in core.gateway.queues.values()} == {0}


def test_they_are_merged_and_those_of_the_outcome_win():
    core = with_queue()
    fill(core)
    peer, came = reading(core)
    assert annotations(came) == [{"x-a": "sent", "x-b": "sent"}]
    came = peer.settle(took(came)[0][0], BACK)
    core.check()
    assert annotations(came) == [MERGED]
    came = peer.settle(took(came)[0][0], back(failed=True, x_c=2, x_d="two"))
    assert annotations(came) == [{**MERGED, "x-c": 2, "x-d": "two"}]
    ((number, message),) = took(came)
    assert header_facts(message).delivery_count == 1
    assert read(message).data() == b"m"
    peer.settle(number, ACCEPTED)
    empty(core)


def test_a_range_gets_them_all():
    core = with_queue()
    fill(core, plain("a"), plain("b"), plain("c"))
    peer, came = reading(core)
    numbers = [number for number, _ in took(came)]
    came = peer.settle(numbers[0], BACK, last=numbers[-1])
    assert annotations(came) == [{"x-b": "back", "x-c": 1}] * 3
    assert [read(m).data() for _, m in took(came)] == [b"a", b"b", b"c"]
    peer.settle(took(came)[0][0], ACCEPTED, last=took(came)[-1][0])
    empty(core)


@pytest.mark.parametrize("others_first", [False, True])
def test_other_queues_of_the_address_have_what_was_sent(others_first):
    core = Core()
    for name in ("q", "p"):
        core.administration.create_queue(name, "t", MULTICAST)
    fill(core, address="t")
    before = core.gateway.load.memory
    peer, came = reading(core, "t::q")
    other, others = reading(core, "t::p")
    if others_first:
        other.settle(took(others)[0][0], ACCEPTED)
        assert core.gateway.load.messages == 1
    came = peer.settle(took(came)[0][0], BACK)
    core.check()
    assert annotations(came) == [MERGED]
    if not others_first:
        assert core.gateway.load.messages == 2
        assert core.gateway.load.memory > before
        others = other.settle(took(others)[0][0], back(x_p=True))
        assert annotations(others) == [{"x-a": "sent", "x-b": "sent", "x-p": True}]
        other.settle(took(others)[0][0], ACCEPTED)
        core.check()
    peer.settle(took(came)[0][0], ACCEPTED)
    empty(core)


def test_the_dead_letter_has_them_and_keeps_them_over_a_crash():
    core = with_queue(entry("#", dead_letter_address="dead", max_delivery_attempts=1))
    core.administration.create_queue("dead", "dead", ANYCAST)
    fill(core)
    peer, came = reading(core)
    assert took(peer.settle(took(came)[0][0], back(failed=True, x_why="no"))) == []
    assert (core.queue("q").message_count, core.queue("q").size_bytes) == (0, 0)
    peer.cut()
    core.sync()
    core.restart()
    peer, came = reading(core, "dead")
    (found,) = annotations(came)
    assert (found["x-why"], found["x-b"]) == ("no", "sent")
    peer.settle(took(came)[0][0], ACCEPTED)
    empty(core)


def test_after_a_crash_the_message_is_as_it_was_sent():
    core = with_queue()
    fill(core)
    peer, came = reading(core)
    peer.settle(took(came)[0][0], back(failed=True, x_c=1))
    peer.cut()
    core.sync()
    core.restart()
    peer, came = reading(core)
    assert annotations(came) == [{"x-a": "sent", "x-b": "sent"}]
    peer.settle(took(came)[0][0], ACCEPTED)
    empty(core)


@pytest.mark.parametrize("fail", [False, True])
def test_in_a_transaction_the_commit_merges_them(fail):
    core = with_queue()
    fill(core, SENT, SENT)
    one = Client.at(core)
    came = one.peer.receiver(credit=2) + one.peer.more()
    numbers = [number for number, _ in took(came)]
    name = one.declare()
    one.retire(name, numbers[0], outcome=back(x_c=True))
    one.retire(name, numbers[1], outcome=back(x_c=1))
    core.check()
    one.end(name, fail=fail)
    came = one.peer.credit(2) + one.peer.more()
    found = [a.get("x-c") for a in annotations(came)]
    assert found == ([None, None] if fail else [True, 1])
    assert [isinstance(value, bool) for value in found] == [not fail, False]
    one.peer.settle(took(came)[0][0], ACCEPTED, last=took(came)[-1][0])
    empty(core)


def test_stomp_sees_them_as_headers():
    core = with_queue()
    fill(core)
    peer, came = reading(core, credit=1)
    peer.settle(took(came)[0][0], BACK)
    client = Stomp(core, "1.2")
    ((_, headers, body),) = client.subscribe("q", "client-individual")
    assert (headers["JMS_AMQP_MA_x-b"], headers["JMS_AMQP_MA_x-c"], body) == ("back", "1", b"m")


def test_what_came_over_stomp_stays_as_it_is():
    core = with_queue()
    core.send("q", b"s")
    peer, came = reading(core)
    came = peer.settle(took(came)[0][0], BACK)
    ((number, message),) = took(came)
    assert "x-c" not in read(message).message_annotations
    peer.settle(number, ACCEPTED)
    empty(core)


def test_in_a_non_destructive_queue_others_see_what_was_sent():
    core = with_queue(attributes={"non_destructive": True})
    fill(core)
    peer, came = reading(core)
    assert annotations(peer.settle(took(came)[0][0], BACK)) == [{"x-a": "sent", "x-b": "sent"}]
    _, came = reading(core)
    assert annotations(came) == [{"x-a": "sent", "x-b": "sent"}]
    core.check()


@pytest.mark.parametrize("attributes", [{"ring_size": 1}, {"attributes": {"last_value": True}}])
def test_a_ring_and_last_values_have_them_too(attributes):
    core = with_queue(**attributes)
    fill(core)
    peer, came = reading(core)
    came = peer.settle(took(came)[0][0], BACK)
    assert annotations(came) == [MERGED]
    peer.settle(took(came)[0][0], ACCEPTED)
    empty(core)


def test_what_was_read_from_a_page_has_them():
    core = with_queue(entry("#", address_full_policy=FullPolicy.PAGE, max_size_bytes=1500))
    fill(core, *[SENT] * 20)
    core.sync()
    assert core.queue("q").paged_count
    peer, came = reading(core, credit=20)
    while len(took(came)) < 20:
        more = peer.more()
        assert more, "pages were not read"
        came += more
    assert core.queue("q").any_flags & PAGED
    came = peer.settle(took(came)[-1][0], BACK)
    came += peer.credit(1) + peer.more()
    core.check()
    assert annotations(came) == [MERGED]
    peer.settle(0, ACCEPTED, last=took(came)[-1][0])
    empty(core)


def test_what_a_selector_read_ahead_comes_from_its_page_as_it_was_sent():
    core = with_queue(
        entry(
            "#", address_full_policy=FullPolicy.PAGE, max_size_bytes=1500, max_read_page_messages=3
        )
    )
    fill(core, *[with_property(SENT, "n", number) for number in range(20)])
    core.sync()
    peer = Amqp.at(core)
    chosen = Source(address="q", filter=selecting("n = 19"))
    came = peer.receiver(source=chosen, credit=2) + peer.more()
    while not took(came):
        more = peer.more()
        assert more, "pages were not searched"
        came += more
    assert core.queue("q").backlog.ahead
    came = peer.settle(took(came)[0][0], BACK)
    while not took(came):
        more = peer.more()
        assert more, "it did not come again"
        came += more
    core.check()
    assert annotations(came) == [{"x-a": "sent", "x-b": "sent"}]
    peer.settle(took(came)[0][0], ACCEPTED)
    core.check()
    core.queue("q").purge()
    empty(core)


@pytest.mark.parametrize("where", ["message", "receiver", "gateway"])
def test_beyond_a_limit_they_are_ignored(where):
    core = Core(limits=Limits(global_max_size=4000)) if where == "gateway" else Core()
    core.administration.create_queue("q", "q", ANYCAST)
    fill(core)
    options = {"limits": AmqpLimits(max_message_size=2048)} if where == "message" else {}
    peer = Amqp.at(core, **options)
    fields = {"max_message_size": 2048} if where == "receiver" else {}
    came = peer.receiver(credit=10, **fields) + peer.more()
    came = peer.settle(took(came)[0][0], back(x_b="x" * 4000))
    assert annotations(came) == [{"x-a": "sent", "x-b": "sent"}]
    came = peer.settle(took(came)[0][0], BACK)
    assert annotations(came) == [MERGED]
    peer.settle(took(came)[0][0], ACCEPTED)
    empty(core)


@pytest.mark.parametrize("outcome", [back(x_long="x" * 3000), Rejected(error=LONG)])
@pytest.mark.parametrize("settled", [False, True])
def test_what_outcomes_say_in_a_transaction_counts_against_its_limits(outcome, settled):
    core = with_queue()
    fill(core, *[SENT] * 5)
    limits = AmqpLimits(transaction_bytes_max=10_000)
    one = Client.at(core, limits=limits)
    came = one.peer.receiver(credit=5) + one.peer.more()
    numbers = [number for number, _ in took(came)]
    name = one.declare()
    for number in numbers[:3]:
        one.retire(name, number, outcome=outcome, settled=settled)
    held = limits.unfinished.held
    assert 9000 < held < 10_000
    one.retire(name, numbers[0], outcome=outcome, settled=settled)
    assert limits.unfinished.held == held, "told once more, it is held once"
    for number in [*numbers[3:], numbers[3]]:
        one.retire(name, number, outcome=outcome, settled=settled)
    assert limits.unfinished.held == 0, "what has failed holds nothing of what was said"
    said = str(one.end(name))
    assert "the limit is 10000" in said
    assert "amqp:transaction:rollback" in said
    one.peer.cut()
    core.check()
    assert core.queue("q").ready_count == 5
