"""The scenario rows Q by their numbers: AMQP connections over the real broker.

Messages are written and read by Proton. What real clients see is in tests/interop.
"""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message, byte, symbol, timestamp, uint

from gateway.addresses.settings import FullPolicy
from gateway.broker.pressure.load import OVERHEAD_BYTES
from gateway.model.address import RoutingType
from gateway.model.amqp_types import Described, Symbol
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import (
    RELEASED,
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    Source,
)
from tests.broker.core import ANYCAST, MULTICAST, Core, entry
from tests.conformance.clients import Amqp, credit_of, data, plain, took
from tests.protocols.amqp.peer import Frame, condition, fresh, names, of

ACCEPTED = Accepted()
FULL = "amqp:resource-limit-exceeded"
SECOND = 1000  # of the broker's clock


@pytest.fixture
def core() -> Core:
    return Core()


def full_at(messages: int, policy: FullPolicy = FullPolicy.FAIL) -> Core:
    return Core(entry("#", address_full_policy=policy, max_size_messages=messages))


def sending(core: Core, address: str | None = "q", **options: Any) -> Amqp:
    peer = Amqp.at(core, **options)
    assert names(peer.sender(address=address))[0] == "attach"
    return peer


def encoded(**fields: Any) -> bytes:
    made = Message(**fields)
    return made.encode()


def decoded(message: bytes) -> Message:
    made = Message()
    made.decode(message)
    return made


def got(came: list[Frame]) -> list[Message]:
    return [decoded(message) for _, message in took(came)]


def receiving(core: Core, address: str = "q", credit: int = 100, **options: Any) -> Any:
    """Return (peer, what came)."""
    peer = Amqp.at(core, **options)
    came = peer.receiver(address=address, credit=credit) + peer.more()
    return peer, came


def accept_all(peer: Amqp, came: list[Frame]) -> None:
    for number, _ in took(came):
        peer.settle(number, ACCEPTED)


def count(core: Core, name: str = "q") -> int:
    core.check()
    return core.queue(name).message_count


def is_full(outcome: object) -> bool:
    return (
        isinstance(outcome, Rejected)
        and outcome.error is not None
        and (outcome.error.condition == FULL)
    )


# ---- credit


def test_q1_credit_starts_at_1000_and_is_topped_up_at_300(core):
    peer = Amqp.at(core)
    assert credit_of(peer.sender()) == 1000
    came = peer.say(b"".join(peer.transfer(plain("x")) for _ in range(699))) + peer.more()
    assert credit_of(came) is None
    assert credit_of(peer.say(peer.transfer(plain("x"))) + peer.more()) == 1000


def test_p11_q2_credit_of_one_and_an_operators_block(core):
    one = AmqpLimits(amqp_credits=1, amqp_low_credits=1)
    peer = Amqp.at(core, limits=one)
    assert credit_of(peer.sender()) == 1
    core.gateway.block_address("q", blocked=True)
    assert credit_of(peer.sender(handle=1) + peer.more()) in (None, 0)
    core.gateway.block_address("q", blocked=False)
    assert [f.link_credit for f in of(peer.more(), Flow) if f.handle == 1] == [1]
    assert credit_of(peer.sender(handle=2)) == 1


def test_q3_what_was_credited_is_taken_and_the_next_waits_for_the_block(core):
    one = AmqpLimits(amqp_credits=1, amqp_low_credits=0)
    peer = sending(core, limits=one)
    core.gateway.block_address("q", blocked=True)
    came = peer.say(peer.transfer(plain("1", durable=True))) + peer.more()
    assert [d.state for d in of(came, Disposition)] == [ACCEPTED]
    assert credit_of(came) is None
    core.gateway.block_address("q", blocked=False)
    assert credit_of(peer.more()) == 1
    assert peer.give(plain("2")) == [ACCEPTED]
    assert peer.give(plain("3")) == [ACCEPTED]
    assert core.gateway.addresses["q"].messages == 3


def test_q4_a_full_address_gives_no_credit_until_some_is_consumed():
    core = full_at(10)
    core.send("q", *[b"x"] * 10)
    peer = Amqp.at(core)
    assert credit_of(peer.sender() + peer.more()) is None
    reader, came = receiving(core, credit=9)
    accept_all(reader, came)
    assert credit_of(peer.more()) == 1000


def test_q5_rejected_when_full_and_taken_when_emptied():
    core = full_at(5)
    peer = sending(core)
    for _ in range(3):
        outcomes = peer.give(*[plain("x" * 10)] * 8)
        assert outcomes[:5] == [ACCEPTED] * 5
        assert [is_full(o) for o in outcomes[5:]] == [True] * 3
        reader, came = receiving(core)
        assert len(took(came)) == 5
        accept_all(reader, came)
        reader.tell(Close())
        peer.more()


@pytest.mark.parametrize(
    ("flag", "listed", "answer"),
    [
        (True, ("accepted", "rejected", "modified"), Modified),
        (True, ("accepted", "rejected"), Rejected),
        (False, ("accepted", "rejected", "modified"), Rejected),
        (False, (), Rejected),
        (False, ("accepted", "released"), Released),
        (False, ("accepted", "modified"), Modified),
        (False, ("accepted",), Rejected),
    ],
)
def test_q6_what_a_full_address_answers(flag, listed, answer):
    core = Core(entry("#", address_full_policy=FullPolicy.FAIL, max_size_bytes=1000))
    peer = Amqp.at(core, limits=AmqpLimits(use_modified=flag))
    outcomes = tuple(Symbol(f"amqp:{name}:list") for name in listed)
    peer.sender(source=Source(outcomes=outcomes))
    told = peer.give(*[plain("x" * 10)] * 20)
    refused = told[told.count(ACCEPTED) :]
    assert 0 < len(refused) < 20
    assert {type(outcome) for outcome in refused} == {answer}
    if answer is Modified:
        assert refused[0] == Modified(delivery_failed=True)
    elif answer is Rejected:
        assert all(is_full(outcome) for outcome in refused)


@pytest.mark.parametrize(
    ("listed", "default", "answer"),
    [
        (("accepted",), RELEASED, RELEASED),
        (("accepted",), Modified(undeliverable_here=True), Modified(undeliverable_here=True)),
        ((), RELEASED, RELEASED),
        (("accepted", "rejected"), RELEASED, None),
        (("accepted",), Rejected(), None),
        ((), ACCEPTED, None),  # it would be lost, and its sender would not know
    ],
)
def test_q6_a_full_address_answers_with_the_default_outcome(listed, default, answer):
    core = Core(entry("#", address_full_policy=FullPolicy.FAIL, max_size_bytes=1000))
    peer = Amqp.at(core)
    outcomes = tuple(Symbol(f"amqp:{name}:list") for name in listed)
    peer.sender(source=Source(outcomes=outcomes, default_outcome=default))
    told = peer.give(*[plain("x" * 10)] * 20)
    refused = told[told.count(ACCEPTED) :]
    assert 0 < len(refused) < 20
    if answer is None:
        assert all(is_full(outcome) for outcome in refused)
    else:
        assert refused == [answer] * len(refused)


def test_q8_what_is_refused_of_large_messages_leaves_nothing():
    core = Core(entry("#", address_full_policy=FullPolicy.FAIL, max_size_bytes=500_000))
    peer = sending(core)
    large = plain(b"x" * 120_000)
    outcomes = [peer.give(large)[0] for _ in range(10)]
    accepted = outcomes.count(ACCEPTED)
    assert 0 < accepted < 10
    assert count(core) == accepted
    address = core.gateway.addresses["q"]
    assert accepted * len(large) <= address.size_bytes < accepted * (len(large) + 500)
    core.queue("q").purge()
    assert address.size_bytes == 0


@pytest.mark.parametrize("size", [10 << 10, 100])
def test_u4_a_hundred_senders_overshoot_by_less_than_the_limit(size):
    limit = 1 << 20
    core = Core(entry("#", address_full_policy=FullPolicy.BLOCK, max_size_bytes=limit))
    peers = [Amqp.at(core) for _ in range(10)]
    credit: dict[tuple[Amqp, int], int] = {}

    def granted(peer: Amqp, came: list[Frame]) -> None:
        assert all(d.state == ACCEPTED for d in of(came, Disposition))
        assert of(came, Detach) == []
        told = {f.handle: f.link_credit for f in of(came, Flow) if f.handle is not None}
        credit.update({(peer, handle): amount for handle, amount in told.items()})

    for peer in peers:
        for handle in range(10):
            granted(peer, peer.sender(handle=handle))
    assert len(credit) == 100
    message = plain("x" * size)
    while any(credit.values()):
        for (peer, handle), amount in list(credit.items()):
            credit[peer, handle] = 0
            if amount:
                run = [peer.transfer(message, handle=handle) for _ in range(amount)]
                granted(peer, peer.say(b"".join(run)))
        for peer in peers:
            granted(peer, peer.more())
    address = core.gateway.addresses["q"]
    assert limit <= address.size_bytes <= 2 * limit
    # All are let go again, with as much as there is room for.
    core.queue("q").purge()
    core.turn()
    for peer in peers:
        granted(peer, peer.more())
    assert all(credit.values())
    assert sum(credit.values()) * size <= limit


def test_u4_a_sender_alone_with_small_messages_gets_its_thousand():
    core = Core(entry("#", address_full_policy=FullPolicy.BLOCK, max_size_bytes=1 << 20))
    peer = Amqp.at(core)
    assert credit_of(peer.sender()) == (1 << 20) // ((16 << 10) + OVERHEAD_BYTES)
    came = peer.say(b"".join(peer.transfer(plain("x" * 50)) for _ in range(60))) + peer.more()
    assert credit_of(came) == 1000


def test_m7_m8_an_unblocked_address_gives_its_credit(core):
    peer = sending(core)
    core.gateway.block_address("q", blocked=True)
    assert credit_of(peer.sender(handle=1) + peer.more()) is None
    core.gateway.block_address("q", blocked=False)
    assert credit_of(peer.more()) == 1000


# ---- outcomes


def test_q9_released_it_reaches_the_next_uncounted(core):
    core.send("q", b"m")
    first, came = receiving(core, credit=1)
    ((number, _),) = took(came)
    first.settle(number, RELEASED)
    _, came = receiving(core)
    assert [m.delivery_count for m in got(came)] == [0]


def test_q10_failed_counts(core):
    core.send("q", b"m")
    first, came = receiving(core, credit=1)
    first.settle(took(came)[0][0], Modified(delivery_failed=True))
    _, came = receiving(core)
    assert [m.delivery_count for m in got(came)] == [1]


def test_q10_undeliverable_here_goes_to_another(core):
    core.send("q", b"m")
    first, came = receiving(core, credit=10)
    came = first.settle(took(came)[0][0], Modified(delivery_failed=True, undeliverable_here=True))
    assert took(came) == []
    assert count(core) == 1
    _, came = receiving(core)
    assert [m.delivery_count for m in got(came)] == [1]
    assert took(first.more()) == []


@pytest.mark.parametrize("address", ["q", "a::q"])
def test_q11_rejected_is_a_dead_letter(core, address):
    if address == "a::q":
        core.administration.create_queue("q", "a", ANYCAST)
    core.send(address, b"m")
    reader, came = receiving(core, address, credit=10)
    assert took(reader.settle(took(came)[0][0], Rejected())) == []
    assert took(receiving(core, address)[1]) == []
    assert (count(core), core.queue("q").killed) == (0, 1)
    assert core.waiting("DLQ") == [b"m"]


def test_q42_receivers_that_say_nothing_leave_everything(core):
    core.send("q", b"1", b"2", b"3", b"4")
    readers = [receiving(core, credit=2)[0] for _ in range(2)]
    assert core.figures("q")[:2] == (4, 4)
    for reader in readers:
        reader.tell(Close())
    core.turn()
    assert core.figures("q")[:2] == (4, 0)
    assert core.queue("q").acknowledged == 0
    assert core.waiting("q") == [b"1", b"2", b"3", b"4"]


def test_q43_receivers_with_one_credit_take_turns(core):
    core.send("q", *[b"%d" % i for i in range(20)])
    both = [Amqp.at(core) for _ in range(2)]
    for reader in both:
        reader.receiver()
    seen = []
    for _ in range(2):
        for reader in both:
            came = reader.credit(1) + reader.more()
            seen += data(came)
            ((number, _),) = took(came)
            assert took(reader.settle(number, ACCEPTED)) == []
    assert seen == [b"0", b"1", b"2", b"3"]
    rest = [body for reader in both for body in data(reader.credit(8) + reader.more())]
    assert rest == [b"%d" % i for i in range(4, 20)]


def test_q44_settling_brings_nothing_without_credit(core):
    core.send("q", *[b"x"] * 50)
    reader = Amqp.at(core)
    reader.receiver()
    numbers = [took(reader.credit(1) + reader.more())[0][0] for _ in range(50)]
    core.send("q", b"one more")
    assert took(reader.settle(numbers[0], ACCEPTED, last=numbers[-1]) + reader.more()) == []
    assert core.figures("q")[:2] == (1, 0)


# ---- priorities


def test_q12_a_priority_of_99_is_9_in_order_and_99_on_the_wire(core):
    peer = sending(core)
    header = b"\x00\x53\x70\xc0\x04\x02\x41\x50%c"
    for priority in (9, 99, 8, 99):
        peer.give(header % priority + plain(str(priority)))
    core.restart(clean=True)
    _, came = receiving(core)
    assert data(came) == [b"9", b"99", b"99", b"8"]
    assert [m.priority for m in got(came)] == [9, 99, 99, 8]


@pytest.mark.parametrize("size", [1, 200_000])
@pytest.mark.parametrize("again", [False, True])
def test_q13_the_highest_priority_comes_first(core, size, again):
    peer = sending(core, limits=AmqpLimits(max_frame_size=1 << 20))
    for priority in range(10):
        body = str(priority) * size
        assert peer.give(encoded(body=body, priority=priority, durable=True)) == [ACCEPTED]
    if again:
        core.restart()
    _, came = receiving(core)
    assert [m.body for m in got(came)] == [str(p) * size for p in range(9, -1, -1)]


# ---- expiry


def expired(core: Core, message: bytes, after: int = 0) -> int:
    """Send, let time pass, attach; returns how many came. The others must have expired."""
    assert sending(core).give(message) == [ACCEPTED]
    assert count(core) + core.queue("q").expired == 1
    core.now += after
    came = len(took(receiving(core)[1]))
    assert core.queue("q").expired == 1 - came
    return came


def at(core: Core, seconds: float) -> float:
    """Return an expiry time so many seconds from now, as Proton takes it."""
    return core.now / 1000 + seconds


def test_q17_an_expiry_time_in_the_past(core):
    assert expired(core, encoded(expiry_time=at(core, -5))) == 0


def test_q18_a_time_to_live_where_there_is_no_expiry_time(core):
    assert expired(core, encoded(ttl=0.1), after=99) == 1
    assert expired(Core(), encoded(ttl=0.1), after=101) == 0


def test_q19_an_expiry_time_wins_over_a_shorter_time_to_live(core):
    assert expired(core, encoded(ttl=0.01, expiry_time=at(core, 5)), after=4 * SECOND) == 1


def test_q20_an_expiry_time_in_the_past_wins_over_a_time_to_live(core):
    assert expired(core, encoded(ttl=60, expiry_time=at(core, -5))) == 0


@pytest.mark.parametrize("ttl_ms", [(1 << 32) - 1, (1 << 31) - 1])
def test_q21_the_longest_times_to_live(core, ttl_ms):
    header = b"\x00\x53\x70\xc0\x08\x03\x40\x40\x70" + ttl_ms.to_bytes(4, "big")
    assert expired(core, header + plain("x"), after=SECOND) == 1
    assert expired(Core(), header + plain("x"), after=ttl_ms + 1) == 0


def test_q22_what_expired_is_in_its_queue_after_a_restart():
    core = Core(entry("#", expiry_address="DLQ"))
    sent = encoded(body="m", ttl=0.05, durable=True, properties={"mine": 1})
    assert sending(core).give(sent) == [ACCEPTED]
    core.now += 51
    core.gateway.expire()
    core.sync()
    core.restart()
    _, came = receiving(core, "DLQ")
    (message,) = got(came)
    assert (message.body, message.properties) == ("m", {"mine": 1})
    assert message.annotations[symbol("x-opt-ORIG-ADDRESS")] == "q"
    assert message.annotations[symbol("x-opt-ORIG-QUEUE")] == "q"
    assert message.ttl == 0


# ---- delivery times


@pytest.mark.parametrize("name", ["x-opt-delivery-time", "x-opt-delivery-delay"])
def test_q15_q16_it_comes_when_it_is_due_as_it_was_sent(core, name):
    reader, _ = receiving(core)
    due = 6000 + (core.now if name.endswith("time") else 0)
    sent = encoded(body="m", annotations={symbol(name): timestamp(due)})
    assert sending(core).give(sent) == [ACCEPTED]
    address = core.gateway.addresses["q"]
    assert (address.size_bytes > 0, core.queue("q").scheduled_count) == (True, 1)
    core.pass_time(5999)
    assert took(reader.more()) == []
    core.pass_time(1)
    came = reader.more()
    assert [message for _, message in took(came)] == [fresh(sent)]
    accept_all(reader, came)
    assert address.size_bytes == 0


# ---- drain


def ended(came: list[Frame]) -> bool:
    return credit_of(came) == 0


def test_q23_a_drain_of_as_much_as_there_is(core):
    core.send("q", *[b"x"] * 20)
    reader = Amqp.at(core)
    reader.receiver()
    came = reader.credit(20, drain=True) + reader.more()
    assert len(took(came)) == 20
    core.send("q", b"later")
    assert took(reader.more()) == []


def test_q24_a_drain_of_nothing_ends_the_credit_each_time(core):
    core.send("q", b"x")
    core.queue("q").purge()
    reader = Amqp.at(core)
    reader.receiver()
    for pull in range(3):
        came = reader.credit(10, drain=True, delivery_count=10 * pull) + reader.more()
        assert took(came) == []
        assert ended(came)
        assert of(came, Flow)[-1].delivery_count == 10 * pull + 10


def test_q25_a_drain_of_one_gives_one(core):
    core.send("q", *[b"x"] * 20)
    reader = Amqp.at(core)
    reader.receiver()
    assert len(took(reader.credit(1, drain=True) + reader.more())) == 1
    assert core.figures("q")[:2] == (20, 1)


# ---- subscriptions, filters, addresses


def subscribe(peer: Amqp, **fields: Any) -> list[Frame]:
    durable = Source(address="t", durable=2, expiry_policy="never", capabilities=("topic",))
    return peer.receiver(name="sub", source=durable, **fields)


@pytest.mark.parametrize("end", ["close", "cut", "detach", "closing detach"])
def test_q31_a_durable_subscription_outlives_all_but_a_closing_detach(core, end):
    peer = Amqp.at(core)
    assert names(subscribe(peer)) == ["attach"]
    assert core.queue("peer.sub").consumers
    if end == "close":
        peer.tell(Close())
    elif end == "cut":
        peer.cut()
    else:
        peer.tell(Detach(handle=1, closed=end == "closing detach"))
    core.send("t", b"m", routing=RoutingType.MULTICAST)
    if end == "closing detach":
        assert "peer.sub" not in core.gateway.queues
        return
    assert core.queue("peer.sub").message_count == 1
    again = peer if end == "detach" else Amqp.at(core)
    came = subscribe(again, credit=5) + again.more()
    assert data(came) == [b"m"]


@pytest.mark.parametrize("closed", [True, False])
def test_q32_a_subscription_is_looked_up_by_its_name(core, closed):
    peer = Amqp.at(core)
    subscribe(peer)
    peer.tell(Detach(handle=1, closed=False))
    came = peer.receiver(name="sub", source=None)
    (answer,) = of(came, Attach)
    assert of(came, Detach) == []
    found = answer.source
    assert (found.address, found.durable, found.expiry_policy) == ("peer.sub", 2, "never")
    assert (found.distribution_mode, tuple(found.capabilities)) == ("copy", ("topic",))
    # Nothing is delivered on such a link, whatever credit it gets.
    core.send("t", b"m", routing=RoutingType.MULTICAST)
    assert took(peer.credit(5) + peer.more()) == []
    assert core.queue("peer.sub").consumers == []
    assert condition(peer.tell(Detach(handle=1, closed=closed))) == ""
    assert ("peer.sub" in core.gateway.queues) is not closed


def test_q32_a_subscription_is_found_with_its_filters(core):
    peer = Amqp.at(core)
    no_local = Symbol("apache.org:no-local-filter:list")
    wanted = {Symbol("jms-selector"): select("a > 5").popitem()[1]}
    wanted |= {Symbol("no-local"): Described(no_local, [])}
    durable = Source(
        address="t", durable=2, expiry_policy="never", capabilities=("topic",), filter=wanted
    )
    peer.receiver(name="sub", source=durable)
    peer.tell(Detach(handle=1, closed=False))
    (answer,) = of(peer.receiver(name="sub", source=None), Attach)
    found = answer.source.filter
    assert {str(key): value.value for key, value in found.items()} == {
        "apache.org:selector-filter:string": "a > 5",
        "apache.org:no-local-filter:list": [],
    }
    assert all(str(value.descriptor) == str(key) for key, value in found.items())


@pytest.mark.parametrize("name", ["nobody", "queue"])
def test_q32_an_unknown_subscription_is_not_found(core, name):
    core.administration.create_queue("peer.queue", "t", ANYCAST)
    peer = Amqp.at(core)
    came = peer.receiver(name=name, source=None)
    assert condition(came) == "detach amqp:not-found"
    assert of(came, Detach)[0].error.description == f"Unknown subscription link: {name}."
    assert of(came, Attach)[0].source is None


def test_q34_an_unknown_filter_is_not_echoed(core):
    peer = Amqp.at(core)
    unknown = {Symbol("my:own"): Described(Symbol("my:own"), "x")}
    came = peer.receiver(source=Source(address="q", filter=unknown))
    (answer,) = of(came, Attach)
    assert answer.source is not None
    assert not answer.source.filter
    assert of(came, Detach) == []


def test_q34_a_bad_selector_is_an_error(core):
    peer = Amqp.at(core)
    name = Symbol("apache.org:selector-filter:string")
    wrong = {name: Described(name, "a = = b")}
    came = peer.receiver(source=Source(address="q", filter=wrong))
    assert condition(came) == "detach amqp:invalid-field"
    assert all(not queue.consumers for queue in core.gateway.queues.values())


def select(text: str) -> dict[Any, Any]:
    """Return the filter of a source that a JMS selector is."""
    name = Symbol("apache.org:selector-filter:string")
    return {name: Described(name, text)}


def test_q33_a_selector_over_an_unsigned_property(core):
    peer = sending(core)
    for number in range(101):
        peer.give(encoded(body=number, properties={"myNewID": uint(number)}))
    reader = Amqp.at(core)
    chosen = Source(address="q", filter=select("myNewID < 50"))
    came = reader.receiver(source=chosen, credit=1000) + reader.more()
    assert [m.body for m in got(came)] == list(range(50))
    (answer,) = of(came, Attach)
    assert answer.source.filter
    rest = [m.body for m in got(receiving(core, credit=1000)[1])]
    assert rest == list(range(50, 101))


def test_q45_expired_letters_are_found_by_their_origin():
    core = Core(entry("#", expiry_address="DLQ"))
    core.send("DLQ", b"another")
    sent = encoded(body="m", ttl=0.001, durable=True, properties={"mine": 1})
    assert sending(core).give(sent) == [ACCEPTED]
    core.now += 2
    core.gateway.expire()
    core.sync()
    core.restart()
    for text in ("\"m.x-opt-ORIG-ADDRESS\"='q'", "_AMQ_ORIG_ADDRESS='q'"):
        reader = Amqp.at(core)
        chosen = Source(address="DLQ", filter=select(text))
        (message,) = got(reader.receiver(source=chosen, credit=10) + reader.more())
        assert (message.body, message.ttl, message.properties) == ("m", 0, {"mine": 1})
        assert message.annotations[symbol("x-opt-ORIG-ADDRESS")] == "q"
        reader.tell(Close())
        core.turn()


def test_q35_a_deleted_queue_detaches_its_receiver(core):
    core.send("q", b"m")
    reader, _ = receiving(core)
    core.administration.delete_queue("q", remove_consumers=True)
    assert condition(reader.more()) == "detach amqp:resource-deleted"


def test_q36_an_anonymous_send_makes_its_queue(core):
    peer = sending(core, None)
    assert peer.give(encoded(body="m", address="new")) == [ACCEPTED]
    assert [m.body for m in got(receiving(core, "new")[1])] == ["m"]


def test_q36_an_anonymous_send_where_nothing_is_made():
    core = Core(entry("#", auto_create_queues=False, auto_create_addresses=False))
    peer = sending(core, None)
    (outcome,) = peer.give(encoded(body="m", address="new"), delivery_tag=b"mine")
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:not-found"
    assert outcome.error.info is not None
    assert outcome.error.info["delivery-tag"] == b"mine"
    # A settled one has no outcome, so that its link ends.
    came = peer.say(peer.transfer(encoded(body="m", address="new"), settled=True))
    assert condition(came) == "detach amqp:not-found"
    assert "new" not in core.gateway.addresses


@pytest.mark.parametrize("settled", [False, True])
def test_q36_an_anonymous_send_where_its_address_is_not_any_more(settled):
    core = Core(entry("#", auto_create_queues=False, auto_create_addresses=False))
    core.administration.create_queue("old", "old", ANYCAST)
    peer = sending(core, None)
    assert peer.give(encoded(body="m", address="old")) == [ACCEPTED]
    core.administration.delete_address("old", force=True)
    said = peer.transfer(encoded(body="m", address="old"), settled=settled, delivery_tag=b"mine")
    came = peer.say(said) + peer.more()
    if settled:
        assert condition(came) == "detach amqp:not-found"
        error = of(came, Detach)[0].error
    else:
        (told,) = of(came, Disposition)
        assert isinstance(told.state, Rejected)
        error = told.state.error
    assert error.condition == "amqp:not-found"
    assert error.info["delivery-tag"] == b"mine"


@pytest.mark.parametrize(("kind", "routing"), [(0, ANYCAST), (1, MULTICAST)])
def test_q37_an_annotation_says_what_is_made(core, kind, routing):
    annotations = {symbol("x-opt-jms-dest"): byte(kind)}
    peer = sending(core, None)
    assert peer.give(encoded(body="m", address="new", annotations=annotations)) == [ACCEPTED]
    assert core.gateway.addresses["new"].routing_types == {routing}
    assert ("new" in core.gateway.queues) == (routing is ANYCAST)


@pytest.mark.parametrize("address", ["activemq.management", "activemq.management::q", None])
def test_management_messages_are_refused_by_name(core, address):
    peer = Amqp.at(core)
    came = peer.sender(address=address)
    if address is not None:
        assert condition(came) == "detach amqp:not-implemented"
        assert "HTTP" in of(came, Detach)[0].error.description
    else:
        (outcome,) = peer.give(encoded(body="m", address="activemq.management"))
        assert isinstance(outcome, Rejected)
        assert outcome.error.condition == "amqp:not-implemented"
    assert core.gateway.addresses == {}


# ---- sizes, restarts


@pytest.mark.parametrize("frame_max", [1024, 262_144])
@pytest.mark.parametrize("sizes", [[262_149] * 8, [128, 262_149]])
def test_q38_frames_of_the_peers_size_carry_everything(core, frame_max, sizes):
    peer = Amqp.opened(broker=Amqp.at(core).broker, max_frame_size=frame_max)
    peer.begin(window=100_000)
    peer.sender()
    bodies = [bytes([i]) * size for i, size in enumerate(sizes)]
    # Ours is what both may send: a peer that takes more gets no more, and may send no more.
    most = min(frame_max, 131_072)
    for body in bodies:
        message = plain(body)
        room = most - 100
        parts = [message[i : i + room] for i in range(0, len(message), room)]
        number = bodies.index(body)
        came = peer.say(
            b"".join(
                peer.transfer(part, delivery_id=number, more=part is not parts[-1])
                for part in parts
            )
        )
        assert [d.state for d in of(came + peer.more(), Disposition)] == [ACCEPTED]
    peer.receiver()
    came = peer.credit(20, incoming_window=10_000) + peer.more()
    assert most - 100 < max(one.size for one in came) <= most
    assert data(came) == bodies


def test_q38_what_we_advertise(core):
    peer = Amqp(broker=Amqp.at(core).broker)
    came = peer.say(b"AMQP\x00\x01\x00\x00") + peer.tell(Open(container_id="p"))
    (opened,) = of(came, Open)
    assert opened.max_frame_size == 131_072


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        (plain("no header"), 0),
        (encoded(body="false", durable=False, priority=5), 0),
        (plain("true", durable=True), 1),
    ],
)
def test_q40_only_what_is_durable_is_there_after_a_restart(core, message, kept):
    assert sending(core).give(message) == [ACCEPTED]
    core.restart()
    assert count(core) == kept
    assert len(took(receiving(core)[1])) == kept


def test_q14_two_minutes_from_now_it_is_scheduled_and_does_not_come(core):
    reader, _ = receiving(core)
    due = timestamp(core.now + 120_000)
    sent = encoded(body="m", annotations={symbol("x-opt-delivery-time"): due})
    assert sending(core).give(sent) == [ACCEPTED]
    assert core.queue("q").scheduled_count == 1
    core.pass_time(5000)
    assert took(reader.more()) == []
    core.pass_time(114_999)
    assert took(reader.more()) == []
    assert (core.queue("q").scheduled_count, count(core)) == (1, 1)
    core.pass_time(1)
    assert [message for _, message in took(reader.more())] == [fresh(sent)]


def test_q45_dead_letters_are_found_by_their_origin():
    core = Core(entry("#", dead_letter_address="DLQ"))
    core.send("DLQ", b"another")
    sent = encoded(body="m", durable=True, properties={"mine": 1})
    assert sending(core).give(sent) == [ACCEPTED]
    reader, came = receiving(core)
    reader.settle(took(came)[0][0], Rejected())
    core.sync()
    core.restart()
    for text in ("\"m.x-opt-ORIG-ADDRESS\"='q'", "_AMQ_ORIG_ADDRESS='q'"):
        reader = Amqp.at(core)
        chosen = Source(address="DLQ", filter=select(text))
        (message,) = got(reader.receiver(source=chosen, credit=10) + reader.more())
        assert (message.body, message.properties) == ("m", {"mine": 1})
        assert message.annotations[symbol("x-opt-ORIG-ADDRESS")] == "q"
        reader.tell(Close())
        core.turn()
    assert count(core, "DLQ") == 2
