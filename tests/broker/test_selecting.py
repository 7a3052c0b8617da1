"""Selectors, filters, no-local and browsers through the whole gateway core."""

from __future__ import annotations

import pytest

from gateway.broker.dispatch import DISPATCH_RUN
from gateway.model.address import parse_destination
from gateway.model.errors import Code, RefusedError
from gateway.model.message import EXPIRES
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from gateway.queues.ready import Ready
from gateway.queues.selecting import TURN_PLACES
from tests.broker.core import ANYCAST, MULTICAST, Core, Owner, Taker, body_of, flags_of


class Watcher(Taker):
    """A consumer that is told when all has been looked at."""

    def __init__(self, room: int) -> None:
        super().__init__(room)
        self.told = 0

    def exhausted(self) -> None:
        self.told += 1


def coloured(colour: str, body: bytes = b"", *, persistent: bool = True) -> bytes:
    headers = [("colour", colour)]
    return pack("a", body or colour.encode(), persistent=persistent, headers=headers)


def send(core: Core, name: str, *colours: str, priority: int = 4, **how) -> None:
    """Send one run of messages, each with its colour as header and body."""
    routing, ttl = how.pop("routing", None), how.pop("ttl", None)
    route = core.gateway.open_producer(parse_destination(name), routing, Owner(), **how)
    expires = 0 if ttl is None else core.now + ttl
    flags = flags_of(priority) | (EXPIRES if expires else 0)
    route.send(Run([coloured(colour) for colour in colours], flags, expires))
    route.close()
    core.sync()


def watch(core: Core, name: str, room: int = 100, **how) -> Watcher:
    watcher = Watcher(room)
    routing = how.pop("routing", None)
    watcher.hold = core.gateway.subscribe(parse_destination(name), routing, watcher, **how)
    core.sync()
    return watcher


def refused(core: Core, name: str, **how) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        watch(core, name, **how)
    return caught.value


# ---- consumers


def test_each_gets_what_its_selector_matches_in_order():
    core = Core()
    red = core.consume("q", selector="colour = 'red'")
    blue = core.consume("q", selector="colour = 'blue'")
    send(core, "q", "red", "green", "blue", "red")
    send(core, "q", "blue", priority=9)
    assert (red.bodies(), blue.bodies()) == ([b"red", b"red"], [b"blue", b"blue"])
    assert core.waiting("q") == [b"green"]
    red.ack()
    blue.ack()
    core.check()


def test_those_with_one_selector_share_what_it_matches():
    core = Core()
    first = core.consume("q", room=2, selector="colour = 'red'")
    second = core.consume("q", room=2, selector="colour = 'red'")
    send(core, "q", *["red", "blue"] * 4)
    assert (len(first.got), len(second.got)) == (2, 2)
    assert core.waiting("q") == [b"blue"] * 4


def test_what_comes_back_is_offered_again_to_those_it_is_for():
    core = Core()
    red = core.consume("q", room=1, selector="colour = 'red'")
    send(core, "q", "red", "red", "blue")
    held = red.got[0]
    red.leave()
    other = core.consume("q", room=5, selector="colour = 'red'")
    assert [m.seq for m in other.got] == [held.seq, held.seq + 1]
    other.release(1, failed=True)
    assert core.queue("q").ready_count == 2
    other.take(5)
    core.turn()
    assert [m.seq for m in other.got] == [held.seq + 1, held.seq]
    core.check()


def test_a_wrong_selector_makes_nothing():
    core = Core()
    error = refused(core, "q", selector="colour = ")
    assert error.refusal.code is Code.BAD_SELECTOR
    assert "column 10" in error.refusal.text
    assert core.gateway.addresses == {}


def test_a_queue_is_cheap_again_when_its_last_selector_has_gone():
    core = Core()
    red = core.consume("q", selector="colour = 'red'")
    send(core, "q", "blue")
    red.leave()
    send(core, "q", "blue")
    assert type(core.queue("q").line.ready) is not Ready
    taker = core.consume("q")
    assert len(taker.got) == 2
    taker.ack()
    assert type(core.queue("q").line.ready) is Ready


def test_a_search_takes_turns_and_stops_nobody():
    core = Core()
    send(core, "q", *["blue"] * 5 * TURN_PLACES, "red")
    seen = []
    none = core.consume("q", room=5, selector="colour = 'none'")
    red = Watcher(5)
    red.hold = core.gateway.subscribe(parse_destination("q"), None, red, selector="colour = 'red'")
    plain = Taker(3)
    turns = 0
    while not red.got:
        waiting, core.later[:] = list(core.later), []
        assert waiting, "the search has come to a stop"
        for action in waiting:
            action()
        turns += 1
        if turns == 2:
            plain.hold = core.gateway.subscribe(parse_destination("q"), None, plain)
        if turns == 4:
            seen = plain.bodies()
    assert turns > 5
    assert seen == [b"blue"] * 3
    assert none.got == []
    core.turn()
    assert core.queue("q").ready_count == 5 * TURN_PLACES - 3


def test_each_message_is_judged_once_for_all_with_one_selector():
    core = Core()
    judged = []
    one = core.consume("q", selector="colour = 'none'")
    group = one.hold._held.group
    test = group.condition.matches

    class Counting:
        text = ""

        def matches(self, message):
            judged.append(message.seq)
            return test(message)

    group.condition = Counting()
    for _ in range(5):
        send(core, "q", *["blue"] * 10)
    one.hold.ready()
    core.turn()
    assert judged == list(range(1, 51))


def test_nobody_judges_without_room():
    core = Core()
    one = core.consume("q", room=0, selector="colour = 'red'")
    send(core, "q", "red")
    assert one.hold._held.group.cursors[4] < 0
    one.take(1)
    core.turn()
    assert one.bodies() == [b"red"]


def test_a_drain_is_told_when_all_was_looked_at():
    core = Core()
    send(core, "q", *["blue"] * 3 * TURN_PLACES)
    watcher = Watcher(5)
    watcher.hold = core.gateway.subscribe(
        parse_destination("q"), None, watcher, selector="colour = 'red'"
    )
    watcher.hold.dispatch_now()
    assert watcher.hold.keeps_searching()
    assert watcher.told == 0
    core.turn()
    assert watcher.told == 1
    assert not watcher.hold.keeps_searching()


def test_more_searches_than_places_share_a_turn():
    core = Core()
    send(core, "q", *["blue"] * 100, "red")
    takers = [core.consume("q", selector=f"colour = '{n}'") for n in range(40)]
    red = core.consume("q", selector="colour = 'red'")
    assert red.bodies() == [b"red"]
    assert not any(taker.got for taker in takers)


def test_a_selector_of_higher_priority_comes_first():
    core = Core()
    low = core.consume("q")
    high = core.consume("q", selector="colour = 'red'", priority=5)
    send(core, "q", "red", "blue")
    assert (high.bodies(), low.bodies()) == ([b"red"], [b"blue"])


# ---- which queue


def test_the_selectors_of_consumers_choose_among_anycast_queues():
    core = Core()
    for name in ("one", "two"):
        core.administration.create_queue(name, "a", ANYCAST)
    red = core.consume("a::one", selector="colour = 'red'")
    blue = core.consume("a::two", selector="colour = 'blue'")
    send(core, "a", "red", "blue", "red", "red", "blue")
    assert (len(red.got), len(blue.got)) == (3, 2)
    send(core, "a", "green", "green")
    assert [core.queue(name).ready_count for name in ("one", "two")] == [1, 1]
    core.check()


def test_a_filter_lets_in_what_it_matches_and_the_rest_is_unrouted():
    core = Core()
    core.administration.create_queue("q", "a", ANYCAST, selector="colour = 'red'", ring_size=2)
    send(core, "a", "red", "blue", "red", "blue", "red")
    assert core.waiting("q") == [b"red", b"red"]
    address = core.gateway.addresses["a"]
    assert (address.unrouted, address.routed) == (2, 3)
    assert core.figures("q") == (2, 0, 1)
    core.check()


def test_of_several_filtered_queues_the_ones_that_match_get_copies():
    core = Core()
    for name, selector in (("r", "colour = 'red'"), ("b", "colour = 'blue'"), ("all", "")):
        core.administration.create_queue(name, "t", MULTICAST, selector=selector)
    send(core, "t", "red", "red", "blue", "green")
    assert [core.waiting(n) for n in ("r", "b", "all")] == [
        [b"red", b"red"],
        [b"blue"],
        [b"red", b"red", b"blue", b"green"],
    ]
    core.check()
    for name in ("r", "b", "all"):
        core.queue(name).purge()
    core.check()


def test_a_transaction_sends_through_filters():
    core = Core()
    core.administration.create_queue("q", "a", ANYCAST, selector="colour = 'red'", ring_size=1)
    route, _ = core.producer("a")
    work = core.gateway.begin()
    for colour in ("red", "blue", "red"):
        work.send(route, Run((coloured(colour),), flags_of()))
    work.commit()
    core.sync()
    assert core.waiting("q") == [b"red"]
    assert core.figures("q") == (1, 0, 1)
    core.check()


def test_a_filter_outlives_a_restart_and_can_be_changed():
    core = Core()
    core.administration.create_queue("q", "a", ANYCAST, selector="colour = 'red'")
    send(core, "a", "red", "blue")
    core.restart(clean=True)
    send(core, "a", "blue", "red")
    assert core.waiting("q") == [b"red", b"red"]
    core.administration.update_queue("q", selector="colour = 'blue'")
    send(core, "a", "blue", "red")
    assert core.waiting("q") == [b"red", b"red", b"blue"]
    core.administration.update_queue("q", selector="")
    send(core, "a", "green")
    core.restart(clean=True)
    assert core.waiting("q") == [b"red", b"red", b"blue", b"green"]
    assert core.queue("q").filter is None


# ---- subscriptions


def test_a_subscription_keeps_what_the_new_selector_matches():
    core = Core()
    how = {"routing": MULTICAST, "durable_name": "me.sub"}
    core.consume("t", **how, selector="colour <> 'blue'").leave()
    send(core, "t", "red", "green", "blue", "red")
    core.consume("t", room=0, **how, selector="colour = 'red'").leave()
    assert core.waiting("me.sub") == [b"red", b"red"]
    assert core.queue("me.sub").killed == 1
    core.restart(clean=True)
    send(core, "t", "green", "red")
    assert core.waiting("me.sub") == [b"red"] * 3
    core.consume("t", room=0, **how).leave()
    send(core, "t", "green")
    assert core.waiting("me.sub") == [b"red"] * 3 + [b"green"]
    core.check()


def test_a_subscription_in_use_cannot_get_another_selector():
    core = Core()
    how = {"routing": MULTICAST, "durable_name": "me.sub", "shared": True}
    first = core.consume("t", **how, selector="colour = 'red'")
    second = core.consume("t", **how, selector="colour = 'red'")
    error = refused(core, "t", **how, selector="colour = 'blue'")
    assert error.refusal.code is Code.IN_USE
    assert "colour = 'red'" in error.refusal.text
    send(core, "t", "red", "blue", "red")
    assert first.bodies() + second.bodies() == [b"red", b"red"]


def test_a_temporary_subscription_takes_only_what_it_is_for():
    core = Core()
    red = core.consume("t", routing=MULTICAST, selector="colour = 'red'")
    send(core, "t", "red", "blue")
    assert red.bodies() == [b"red"]
    assert core.gateway.addresses["t"].unrouted == 1
    red.leave()
    core.check()


# ---- no-local


@pytest.mark.parametrize("durable", [None, "me.sub"])
def test_a_subscription_without_what_its_own_connection_sends(durable):
    core = Core()
    mine = core.consume("t", routing=MULTICAST, durable_name=durable, no_local="me")
    other = core.consume("t", routing=MULTICAST)
    send(core, "t", "red", origin="me")
    send(core, "t", "blue", origin="you")
    send(core, "t", "green")
    assert mine.bodies() == [b"blue", b"green"]
    assert other.bodies() == [b"red", b"blue", b"green"]
    core.check()


def test_a_durable_one_stays_so_over_a_restart():
    core = Core()
    how = {"routing": MULTICAST, "durable_name": "me.sub"}
    core.consume("t", **how, no_local="me").leave()
    core.restart(clean=True)
    send(core, "t", "red", origin="me")
    send(core, "t", "blue", origin="you")
    assert core.waiting("me.sub") == [b"blue"]


def test_on_a_queue_others_get_what_the_own_connection_sends():
    core = Core()
    mine = core.consume("q", no_local="me", selector="colour <> 'grey'")
    send(core, "q", "red", "red", origin="me")
    send(core, "q", "blue", "grey", origin="you")
    assert mine.bodies() == [b"blue"]
    assert core.waiting("q") == [b"red", b"red", b"grey"]
    mine.leave()
    again = core.consume("q")
    assert len(again.got) == 4
    again.ack()
    core.check()
    assert core.queue("q").told_apart == 0


# ---- browsers


def test_a_browser_sees_all_in_order_and_changes_nothing():
    core = Core()
    send(core, "q", "a", "b", "c")
    send(core, "q", "z", priority=9)
    viewer = watch(core, "q", browse=True)
    assert viewer.bodies() == [b"z", b"a", b"b", b"c"]
    assert viewer.told == 1
    before = core.figures("q")
    for settle in (viewer.ack, viewer.reject, viewer.release):
        assert settle(1) == 0
    assert core.figures("q") == before == (4, 0, 0)
    assert core.queue("q").consumer_count == 0
    assert core.queue("q").acknowledged == 0
    viewer.leave(failed=True)
    assert [m.delivery_count for m in core.queue("q").browse(0, 9)] == [0] * 4
    core.check()


def test_a_browser_with_credit_sees_what_comes_later():
    core = Core()
    viewer = watch(core, "q", room=3, browse=True)
    send(core, "q", "a")
    send(core, "q", "z", priority=9)
    send(core, "q", "b", "c")
    assert viewer.bodies() == [b"a", b"z", b"b"]
    viewer.take(5)
    core.turn()
    assert viewer.bodies() == [b"a", b"z", b"b", b"c"]
    assert viewer.told == 1


def test_a_browser_has_a_selector_and_passes_over_what_has_expired():
    core = Core()
    send(core, "q", "red", "blue", ttl=10)
    core.now += 10
    send(core, "q", "red", "blue")
    viewer = watch(core, "q", browse=True, selector="colour = 'red'")
    assert [m.seq for m in viewer.got] == [3]
    assert viewer.told == 1
    assert core.queue("q").expired == 0


def test_a_browser_does_not_see_what_is_in_delivery():
    core = Core()
    send(core, "q", "a", "b")
    taker = core.consume("q", room=1)
    viewer = watch(core, "q", browse=True)
    assert viewer.bodies() == [b"b"]
    taker.leave()
    assert core.waiting("q") == [b"a", b"b"]


def test_browsers_take_no_place_of_consumers_and_see_a_paused_queue():
    core = Core()
    core.administration.create_queue("q", "q", ANYCAST, max_consumers=1)
    core.consume("q", room=0)
    core.administration.update_queue("q", paused=True)
    send(core, "q", "a")
    assert [watch(core, "q", browse=True).bodies() for _ in range(2)] == [[b"a"]] * 2


def test_a_subscription_is_browsed_by_its_queue():
    core = Core()
    core.consume("t", routing=MULTICAST, durable_name="me.sub").leave()
    send(core, "t", "a")
    viewer = watch(core, "t::me.sub", browse=True)
    assert viewer.bodies() == [b"a"]
    core.administration.delete_subscription("me.sub")
    assert [r.code for r in viewer.refusals] == [Code.QUEUE_DELETED]


def test_a_long_browse_takes_turns():
    core = Core()
    send(core, "q", *["a"] * 3 * TURN_PLACES)
    viewer = Watcher(DISPATCH_RUN)
    viewer.hold = core.gateway.subscribe(parse_destination("q"), None, viewer, browse=True)
    viewer.hold.dispatch_now()
    assert len(viewer.got) == TURN_PLACES
    assert viewer.hold.keeps_searching()
    core.turn()
    assert len(viewer.got) == 3 * TURN_PLACES
    assert viewer.told == 1


def test_what_could_not_be_written_is_shown_again():
    core = Core()
    send(core, "q", "a", "b", "c")
    viewer = Watcher(3)
    given_back = []

    def one_at_a_time(messages) -> None:
        if len(messages) > 1:
            given_back.extend(messages[1:])
            del viewer.got[1 - len(messages) :]
            viewer.hold.release(messages[1:])

    viewer.on_deliver = one_at_a_time
    viewer.hold = core.gateway.subscribe(parse_destination("q"), None, viewer, browse=True)
    core.turn()
    viewer.take(5)
    core.turn()
    assert [body_of(m) for m in given_back] == [b"b", b"c", b"c"]
    assert viewer.bodies() == [b"a", b"b", b"c"]
    assert core.figures("q") == (3, 0, 0)


def test_a_browser_sees_what_waits_for_consumers():
    core = Core()
    core.administration.create_queue("q", "q", ANYCAST, attributes={"consumers_before_dispatch": 2})
    first = core.consume("q")
    send(core, "q", "a")
    viewer = watch(core, "q", browse=True)
    assert (viewer.bodies(), first.got) == ([b"a"], [])
    assert not core.queue("q").searching
