"""`enable-ingress-timestamp`: messages tell when they came in, over both protocols."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.broker.routing.ingress import stamp
from gateway.broker.routing.route import Route
from gateway.broker.routing.stamped import StampedRoute
from gateway.model.amqp_encode import encode
from gateway.model.amqp_types import Described, Symbol, ULong
from gateway.model.definitions import DivertDefinition
from gateway.model.message import DURABLE, IDENTIFIED, STOMP
from gateway.model.run import MixedRun, Run
from gateway.model.sections import MESSAGE_ANNOTATIONS, peek, with_annotations
from gateway.model.stomp_form import pack, unpack
from gateway.selectors import compile_selector
from protocols.convert import amqp_to_stomp, stomp_to_amqp
from tests.broker.core import ANYCAST, Core, body_of, entry, flags_of, stomp
from tests.conformance.clients import Amqp, Stomp, plain, read, took

KEY = "x-opt-ingress-time"
ON = {"enable_ingress_timestamp": True}
AMQP = 4 | DURABLE


def notes(body: bytes) -> dict[str, object]:
    return {str(k): v for k, v in peek(body).message_annotations.items()}


def held(core: Core, name: str = "q") -> list[object]:
    """When each message says that it came in; None for those that do not."""
    core.turn()
    core.check()
    found: list[object] = []
    for message in core.queue(name).browse(0, 99):
        if message.flags & STOMP:
            found.append(dict(unpack(message.body)[0]).get("ingress-timestamp"))
        else:
            found.append(notes(message.body).get(KEY))
    return found


def test_only_where_it_is_asked_for_and_by_its_own_kind_of_route():
    core = Core(entry("q", **ON))
    for name, kind in (("q", StampedRoute), ("other", Route)):
        route, _ = core.producer(name)
        assert type(route) is kind
        route.send(Run([plain("x")], AMQP))
        route.send(Run([stomp(b"x")], flags_of()))
    assert held(core) == [core.now, str(core.now)]
    assert held(core, "other") == [None, None]
    assert core.queue("other").browse(0, 1)[0].body == plain("x")


def test_everything_else_of_the_message_stays():
    sent = with_annotations(plain("x", durable=True), {"x-mine": "y", KEY: 1})
    found = stamp(sent, AMQP, 77)
    assert notes(found) == {"x-mine": "y", KEY: 77}
    assert with_annotations(found, {}, drop=(KEY,)) == with_annotations(sent, {}, drop=(KEY,))
    form = pack("q", b"b", headers=[("ingress-timestamp", "1"), ("a", "b")])
    headers, body = unpack(stamp(form, STOMP, 77))
    assert (headers.count(("ingress-timestamp", "77")), body) == (1, b"b")
    assert [n for n, _ in headers].count("ingress-timestamp") == 1
    assert ("a", "b") in headers
    broken = encode(Described(ULong(MESSAGE_ANNOTATIONS), [1]))
    for opaque in (b"\x00\x53\x99 no message", broken):
        assert stamp(opaque, AMQP, 77) == opaque


def test_each_way_of_sending():
    core = Core(entry("q", **ON, id_cache_size=9))
    route, _ = core.producer("q")
    route.send(Run([plain("1"), plain("2")], AMQP))
    core.turn()  # broker time is read once a turn
    core.now += 5
    route.send_mixed(MixedRun([plain("3"), stomp(b"4")], [AMQP, flags_of()], [0, 0]))
    core.turn()
    core.now += 5
    named = pack("q", b"5", headers=[("_AMQ_DUPL_ID", "a")])
    for _ in range(2):
        route.send(Run([named], flags_of() | IDENTIFIED))
    route.send(Run([plain("6")], AMQP, 0, core.now + 50))
    begun = core.now - 10
    assert held(core) == [begun, begun, begun + 5, str(begun + 5), str(begun + 10)]
    core.pass_time(50)
    assert (len(held(core)), held(core)[0]) == (6, begun + 10)  # what came due goes first
    assert core.gateway.addresses["q"].duplicates == 1


def test_a_transaction_says_when_each_message_came_and_a_rollback_nothing():
    core = Core(entry("q", **ON), entry("p"))
    stamped, plain_route = core.producer("q")[0], core.producer("p")[0]
    for keeps in (True, False):
        work = core.gateway.begin()
        begun = core.now
        for _ in range(2):
            assert work.send(stamped, Run((plain("x"),), AMQP)) is None
            assert work.send(plain_route, Run((plain("x"),), AMQP)) is None
            core.now += 7
        if keeps:
            work.commit()
            core.sync()
            assert held(core) == [begun, begun + 7]
            assert held(core, "p") == [None, None]
        else:
            work.rollback()
    assert len(held(core)) == 2


@pytest.mark.parametrize("settings", ["q", "b", "#"])
def test_diverts_take_the_time_along_and_give_it_where_they_lead(settings):
    core = Core(entry(settings, **ON))
    for name in ("q", "b", "c"):
        core.administration.create_queue(name, name, ANYCAST)
    definition = DivertDefinition(name="d", address="q", forwarding=("b", "c"))
    core.gateway.branches.create(definition)
    route, _ = core.producer("q")
    route.send(Run([plain("x")], AMQP))
    route.send(Run([stomp(b"y")], flags_of()))
    work = core.gateway.begin()
    assert work.send(route, Run((plain("z"),), AMQP)) is None
    work.commit()
    core.sync()
    told = [core.now, str(core.now), core.now]
    nothing = [None] * 3
    assert held(core, "q") == (nothing if settings == "b" else told)
    assert held(core, "b") == told
    assert held(core, "c") == (nothing if settings == "b" else told)
    assert core.queue("b").browse(0, 1)[0].body.count(KEY.encode()) == 1


def test_dead_letters_keep_their_time_and_power_cuts_too():
    core = Core(entry("#", **ON, max_delivery_attempts=1, dead_letter_address="dead"))
    core.administration.create_queue("dead", "dead", ANYCAST)
    sent = core.now
    core.producer("q")[0].send(Run([plain("x")], AMQP))
    core.sync()
    core.restart()
    core.now += 1000
    taker = core.consume("q")
    taker.release(failed=True)
    taker.leave()
    assert held(core, "dead") == [sent]


def test_a_selector_sees_it():
    core = Core(entry("q", **ON))
    route, _ = core.producer("q")
    route.send(Run([plain("x")], AMQP))
    route.send(Run([stomp(b"x")], flags_of()))
    core.turn()
    waiting = core.queue("q").browse(0, 9)
    for name in (f'"m.{KEY}"', f'"JMS_AMQP_MA_{KEY}"', '"ingress-timestamp"'):
        for word, expected in (("=", True), ("<", False)):
            selector = compile_selector(f"{name} {word} {core.now}", "q")
            assert [selector.matches(m) for m in waiting] == [expected, expected], name


def test_it_is_a_header_here_and_an_annotation_there():
    form = stamp(pack("q", b"b"), STOMP, 77)
    found = notes(stomp_to_amqp(form, STOMP | 4, "q"))
    assert (found[KEY], type(found[KEY])) == (77, int)
    back = dict(unpack(amqp_to_stomp(stamp(plain("x"), AMQP, 77), AMQP, "q"))[0])
    assert back["ingress-timestamp"] == "77"
    assert not [name for name in back if name.startswith("JMS_AMQP_MA_")]
    claimed = stomp_to_amqp(pack("q", b"b", headers=[("ingress-timestamp", "soon")]), STOMP, "q")
    assert KEY not in notes(claimed)


@pytest.mark.parametrize("sender", ["amqp", "stomp"])
def test_clients_of_both_protocols_see_it(sender):
    core = Core(entry("q", **ON))
    for name in ("q1", "q2"):
        core.administration.create_queue(name, "q", ANYCAST)
    taker = Stomp(core)
    taker.subscribe("q::q1")
    other = Amqp.at(core)
    other.receiver(address="q::q2", credit=9)
    if sender == "stomp":
        Stomp(core).send("q", "1", "2")
    else:
        one = Amqp.at(core)
        one.sender(address="q")
        one.give(plain("1"), plain("2"))
    core.turn()
    ((_, headers, _),) = [m for m in taker.more() if m[0] == "MESSAGE"]
    assert headers["ingress-timestamp"] == str(core.now)
    ((_, message),) = took(other.more())
    assert read(message).message_annotations[Symbol(KEY)] == core.now


def test_full_addresses_refuse_by_what_is_stored():
    core = Core(entry("q", **ON, max_size_messages=2, address_full_policy=FullPolicy.FAIL))
    taken = core.send("q", b"1", b"2", b"3")
    assert taken[:2] == [True, True]
    assert [body_of(m) for m in core.queue("q").browse(0, 9)][:2] == [b"1", b"2"]
    core.check()


def test_what_goes_to_pages_has_its_time_there():
    core = Core(entry("q", **ON, max_size_messages=1))
    route, _ = core.producer("q")
    for n in range(3):
        route.send(Run([plain(f"{n}", durable=True)], AMQP))
        core.sync()
        core.now += 10
    assert core.gateway.addresses["q"].paging is not None
    begun = core.now - 30
    taker = core.consume("q")
    core.sync()
    assert [notes(m.body)[KEY] for m in taker.got] == [begun, begun + 10, begun + 20]
