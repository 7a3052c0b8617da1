"""Duplicate ids: rows A27, A28 and K16, and what else an address remembers and forgets."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.model.address import RoutingType
from gateway.model.amqp_encode import encode
from gateway.model.errors import Code, RefusedError
from gateway.model.message import DURABLE, IDENTIFIED
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import Accepted
from tests.broker.core import ANYCAST, MULTICAST, Core, entry, flags_of
from tests.conformance.clients import VERSIONS, Amqp, Stomp, plain

FLAGS = flags_of() | IDENTIFIED


def known(name: str, body: str = "x") -> bytes:
    return pack("q", body.encode(), persistent=True, headers=[("_AMQ_DUPL_ID", name)])


def core_with(*entries, **queue) -> Core:
    core = Core(*entries)
    core.administration.create_queue("q", "q", ANYCAST, **queue)
    return core


def give(core: Core, *names: str, together: bool = False, flags: int = FLAGS) -> list[int]:
    """Send messages with these ids; returns the tickets. All are taken."""
    route, _ = core.producer("q")
    runs = [[known(n) for n in names]] if together else [[known(n)] for n in names]
    answers = []
    for run in runs:
        outcome = route.send(Run(run, flags))
        assert outcome.refusal is None
        answers.append(outcome.ticket)
        core.turn()
    route.close()
    core.check()
    return answers


def tell(client: Stomp, body: str, name: str, more: str = "") -> None:
    """Send with an id and a receipt, which must come."""
    head = f"SEND\nreceipt:r\ndestination:q\n_AMQ_DUPL_ID:{name}\n{more}"
    assert [frame[0] for frame in client.say(f"{head}\n{body}\0")] == ["RECEIPT"]


def amqp_known(name: object, *, durable: bool = True) -> bytes:
    """An AMQP message with a duplicate id behind its header."""
    header = b"\x00\x53\x70\xc0\x02\x01" + (b"\x41" if durable else b"\x42")
    return header + b"\x00\x53\x74" + encode({"_AMQ_DUPL_ID": name}) + b"\x00\x53\x75\xa0\x01x"


# ---- A27


@pytest.mark.parametrize("together", [False, True])
def test_a27_one_id_five_times_is_one_message(together):
    core = core_with()
    give(core, *["123"] * 5, together=together)
    queue = core.queue("q")
    assert (queue.message_count, queue.added) == (1, 1)
    assert core.gateway.addresses["q"].duplicates == 4
    assert core.gateway.load.received == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a27_a_stomp_sender_gets_five_receipts(version):
    core = core_with()
    client = Stomp(core, version)
    for body in "abcde":
        tell(client, body, "123")
    assert core.waiting("q") == [b"a"]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_a27_an_amqp_sender_gets_five_accepted(durable, at_once):
    core = core_with()
    peer = Amqp.at(core)
    peer.sender()
    message = amqp_known("123", durable=durable)
    if at_once:
        assert peer.give(*[message] * 5) == [Accepted()] * 5
    else:
        assert [peer.give(message) for _ in range(5)] == [[Accepted()]] * 5
    assert core.queue("q").message_count == 1


def test_a27_both_protocols_share_an_id():
    core = core_with()
    tell(Stomp(core), "x", "one")
    peer = Amqp.at(core)
    peer.sender()
    assert peer.give(amqp_known("one"), amqp_known(b"one"), amqp_known(7)) == [Accepted()] * 3
    assert core.queue("q").message_count == 3  # bytes are another id than text, a number is none
    assert peer.give(amqp_known(b"one"), amqp_known(7)) == [Accepted()] * 2
    assert core.queue("q").message_count == 4


@pytest.mark.parametrize("at_once", [False, True])
def test_an_acceptor_may_leave_ids_alone(at_once):
    core = core_with()
    peer = Amqp.at(core, limits=AmqpLimits(duplicate_detection=False))
    peer.sender()
    message = amqp_known("123")
    runs = [[message] * 3] if at_once else [[message]] * 3
    assert [o for run in runs for o in peer.give(*run)] == [Accepted()] * 3
    assert core.queue("q").message_count == 3


def test_messages_between_those_with_ids_keep_their_order():
    core = core_with()
    peer = Amqp.at(core)
    peer.sender()
    run = [plain("a", durable=True), amqp_known("1"), plain("b"), amqp_known("1"), plain("c")]
    assert peer.give(*run) == [Accepted()] * 5
    bodies = [m.body[-1:] for m in core.queue("q").browse(0, 9)]
    assert bodies == [b"a", b"x", b"b", b"c"]


def test_the_name_alone_is_no_id():
    core = core_with()
    peer = Amqp.at(core)
    peer.sender()
    message = b"\x00\x53\x74" + encode({"k": "_AMQ_DUPL_ID"}) + b"\x00\x53\x75\xa0\x01x"
    assert peer.give(message, message) == [Accepted()] * 2
    assert peer.give(plain("_AMQ_DUPL_ID"), plain("_AMQ_DUPL_ID")) == [Accepted()] * 2
    assert core.queue("q").message_count == 4


def test_each_address_has_ids_of_its_own():
    core = core_with()
    give(core, "1")
    route, _ = core.producer("r")
    route.send(Run([known("1")], FLAGS))
    core.turn()
    assert core.queue("r").message_count == 1


# ---- A28


def commit(core: Core, *names: str) -> None:
    work = core.gateway.begin()
    for name in names:
        work.send(core.producer("q")[0], Run((known(name),), FLAGS))
    work.commit()
    core.turn()
    core.check()


def test_a28_rolled_back_it_is_free_and_committed_it_is_known():
    core = core_with()
    work = core.gateway.begin()
    work.send(core.producer("q")[0], Run((known("1"),), FLAGS))
    work.rollback()
    commit(core, "1")
    assert core.queue("q").message_count == 1
    with pytest.raises(RefusedError) as refused:
        commit(core, "2", "1")
    assert refused.value.refusal.code is Code.DUPLICATE_ID
    assert core.queue("q").message_count == 1
    commit(core, "2")
    assert core.queue("q").message_count == 2


def test_a28_twice_in_one_transaction_is_refused():
    core = core_with()
    with pytest.raises(RefusedError):
        commit(core, "1", "1")
    assert give(core, "1") == [core.store.ticket]


def test_a28_over_stomp():
    core = core_with()
    client = Stomp(core)
    for _ in range(2):
        client.do("BEGIN", transaction="t")
        tell(client, "x", "1", "transaction:t\n")
        client.do("ABORT", transaction="t")
    client.do("BEGIN", transaction="t")
    tell(client, "x", "1", "transaction:t\n")
    client.do("COMMIT", transaction="t")
    client.do("BEGIN", transaction="t")
    client.send("q", "y", transaction="t")
    tell(client, "x", "1", "transaction:t\n")
    told = client.refused("COMMIT", transaction="t")
    assert told["error-code"] == "duplicate-id"
    assert core.queue("q").message_count == 1


def test_an_id_and_its_message_are_durable_together():
    core = core_with()
    give(core, "1")
    commit(core, "2", "3")
    core.sync()
    for batches in range(len(core.store.batches) + 1):
        _, held, _ = core.store.kept(batches)
        by_queue = held.get(core.queue("q").queue_id, {})
        (ids,) = list(core.gateway.routing.duplicates.definitions())
        assert len(held.get(ids.ids_id, {})) == len(by_queue)


# ---- K16


@pytest.mark.parametrize("clean", [False, True])
def test_k16_what_was_acknowledged_before_it_was_stored_is_remembered(clean):
    core = core_with()
    taker = core.consume("q")
    route, _ = core.producer("q")
    ticket = route.send(Run([known("1")], FLAGS)).ticket
    core.turn()
    taker.ack()
    core.sync()
    assert core.store.synced >= ticket > 0
    core.restart(clean=clean)
    assert give(core, "1") == [0]  # what is on disk needs no waiting for it
    assert core.queue("q").message_count == 0
    give(core, "2")
    assert core.queue("q").message_count == 1


def test_a_duplicate_waits_for_the_disk_with_the_first_one():
    core = core_with()
    first, again = give(core, "1", "1")
    assert again == first > core.gateway.durable
    core.sync()
    assert give(core, "1") == [0]


# ---- what is remembered, and how long


@pytest.mark.parametrize("restarted", [False, True])
def test_a_full_cache_forgets_the_oldest(restarted):
    core = core_with(entry(id_cache_size=3))
    give(core, "1", "2", "3", "4", together=True)
    core.sync()
    if restarted:
        core.restart()
    assert core.gateway.routing.duplicates.count("q") == 3
    give(core, "2", "3", "4")
    assert core.queue("q").message_count == 4
    give(core, "1")
    assert core.queue("q").message_count == 5
    give(core, "2")
    assert core.queue("q").message_count == 6
    core.sync()
    core.restart()
    give(core, "4", "1", "2")
    assert core.queue("q").message_count == 6


def test_a_smaller_cache_counts_from_the_next_start_on():
    core = core_with()
    give(core, "1", "2", "3")
    core.sync()
    core.entries = (entry(id_cache_size=1),)
    core.restart()
    core.gateway.routing.duplicates.trim(core.gateway.settings.for_address)
    assert core.gateway.routing.duplicates.count("q") == 1
    give(core, "3", "2")
    assert core.queue("q").message_count == 4


def test_without_places_nothing_is_looked_for():
    core = core_with(entry(id_cache_size=0))
    give(core, "1", "1")
    commit(core, "1", "1")
    assert core.queue("q").message_count == 4
    assert core.gateway.routing.duplicates.definitions() == []


def test_ids_that_are_not_to_be_kept_are_gone_with_the_process():
    core = core_with()
    core.gateway.routing.duplicates.persists = False
    assert give(core, "1", "1")[1] == 0
    assert core.queue("q").message_count == 1
    core.sync()
    core.restart()
    give(core, "1")
    assert core.queue("q").message_count == 2


def test_what_a_salvage_left_is_known_and_goes_on():
    core = core_with(entry(id_cache_size=4))
    give(core, "1", "2", "3", "4")
    core.sync()
    (ids,) = core.gateway.routing.duplicates.definitions()
    core.store.remove(ids.ids_id, 2, 2, 1)  # as if it had been lost
    core.sync()
    core.restart()
    core.sync()
    give(core, "1", "3", "4")
    assert core.queue("q").message_count == 4
    give(core, "5", "6")
    core.sync()
    core.restart()
    assert core.gateway.routing.duplicates.count("q") == 4
    give(core, "3", "4", "5", "6")
    assert core.queue("q").message_count == 6
    give(core, "1")
    assert core.queue("q").message_count == 7


def test_an_address_that_is_deleted_forgets():
    core = core_with()
    give(core, "1")
    core.administration.delete_address("q", force=True)
    core.sync()
    core.restart()
    core.administration.create_queue("q", "q", ANYCAST)
    give(core, "1")
    assert core.queue("q").message_count == 1


@pytest.mark.parametrize("policy", [FullPolicy.FAIL, FullPolicy.DROP])
@pytest.mark.parametrize("together", [False, True])
def test_what_was_not_taken_is_not_known(policy, together):
    core = core_with(entry(max_size_messages=2, address_full_policy=policy))
    route, _ = core.producer("q")
    names = ("1", "1", "2", "3", "3", "4")
    if together:
        outcome = route.send(Run([known(n) for n in names], FLAGS))
        if policy is FullPolicy.FAIL:
            assert outcome.refusal is not None
            assert outcome.taken == 3
    else:
        taken = [route.send(Run([known(n)], FLAGS)).refusal is None for n in names]
        assert taken == [True] * 3 + [policy is FullPolicy.DROP] * 3
    core.turn()
    core.check()
    assert core.queue("q").message_count == 2
    assert core.gateway.routing.duplicates.count("q") == 2
    taker = core.consume("q")
    taker.ack()
    give(core, "3", "3", "4", "1")
    assert core.queue("q").added == 4


def test_with_pages_ids_are_known_as_well():
    core = core_with(entry(max_size_messages=2, address_full_policy=FullPolicy.PAGE))
    give(core, "1", "2", "3", "4", "3", together=True)
    assert core.queue("q").message_count == 4
    core.sync()
    core.restart()
    give(core, "3", "4", "5")
    assert core.queue("q").message_count == 5


def test_a_scheduled_message_is_known_while_it_waits():
    core = core_with()
    route, _ = core.producer("q")
    for _ in range(2):
        route.send(Run([known("1")], FLAGS, 0, core.now + 50))
        core.turn()
    assert core.queue("q").scheduled_count == 1
    core.pass_time(50)
    assert core.waiting("q") == [b"x"]


def test_many_queues_get_one_copy_each_of_a_known_message():
    core = Core()
    for name in ("s1", "s2"):
        core.administration.create_queue(name, "q", MULTICAST)
    give(core, "1", "1")
    assert [core.queue(n).message_count for n in ("s1", "s2")] == [1, 1]


def test_a_long_id_costs_no_more_than_another():
    core = core_with()
    give(core, "1" * 100_000, "1" * 100_000, "1" * 99_999)
    assert core.queue("q").message_count == 2
    core.sync()
    (ids,) = core.gateway.routing.duplicates.definitions()
    _, held, _ = core.store.kept(core.store.synced)
    assert all(len(stored[0]) < 100 for stored in held[ids.ids_id].values())


def test_flags_of_stored_messages_say_nothing_of_ids():
    core = core_with()
    give(core, "1")
    (message,) = core.queue("q").browse(0, 1)
    assert message.flags == flags_of()
    assert message.flags & DURABLE


def test_a_transaction_over_a_topic_knows_ids_too():
    core = Core()
    core.administration.create_queue("s", "q", RoutingType.MULTICAST)
    commit(core, "1", "2")
    with pytest.raises(RefusedError):
        commit(core, "2")
    assert core.queue("s").message_count == 2
