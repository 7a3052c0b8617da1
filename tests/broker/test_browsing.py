"""What a browser is shown of a message in every state that it can be in, each once."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.model.address import parse_destination
from tests.broker.core import Core, Taker, body_of, entry


class Viewer(Taker):
    """A browser that counts how often it was told that it has seen all."""

    def __init__(self, room: int) -> None:
        super().__init__(room)
        self.told = 0

    def exhausted(self) -> None:
        self.told += 1

    def seen(self) -> list[bytes]:
        """Return what came since the last call."""
        bodies = self.bodies()
        self.got.clear()
        return bodies


def browse(core: Core, name: str = "q", room: int = 1000, **how) -> Viewer:
    viewer = Viewer(room)
    viewer.hold = core.gateway.subscribe(parse_destination(name), None, viewer, browse=True, **how)
    core.turn()
    return viewer


def names(*numbers: int) -> list[bytes]:
    return [b"%d" % n for n in numbers]


# ---- on disk first


def test_what_is_not_on_disk_is_not_shown():
    core = Core()
    core.send("q", *names(1, 2))
    viewer = browse(core)
    assert (viewer.seen(), viewer.told) == ([], 0)
    core.sync()
    assert (viewer.seen(), viewer.told) == (names(1, 2), 1)
    core.send("q", *names(3))
    assert viewer.seen() == []
    core.send("q", *names(4), durable=False)
    assert viewer.seen() == []
    core.sync()
    assert viewer.seen() == names(3, 4)
    assert viewer.told == 1


def test_what_needs_no_disk_is_shown_at_once():
    core = Core()
    core.send("q", *names(1, 2), durable=False)
    core.sync()
    viewer = browse(core)
    assert (viewer.seen(), viewer.told) == (names(1, 2), 1)
    core.send("q", *names(3), durable=False)
    assert viewer.seen() == names(3)


def test_each_batch_shows_what_it_holds():
    core = Core()
    core.send("q", *names(1))
    core.sync()
    viewer = browse(core)
    core.send("q", *names(2))
    core.send("q", *names(3))
    first, second = core.store.sync()
    core.store.synced = first
    core.gateway.durable_up_to(first)
    core.turn()
    assert viewer.seen() == names(1, 2)
    core.store.synced = second
    core.gateway.durable_up_to(second)
    core.turn()
    assert viewer.seen() == names(3)


def test_a_drain_waits_for_the_disk():
    core = Core()
    core.send("q", *names(1, 2))
    viewer = browse(core, room=0)
    viewer.left = 5
    viewer.hold.dispatch_now()
    assert viewer.hold.keeps_searching()
    assert (viewer.seen(), viewer.told) == ([], 0)
    core.sync()
    assert (viewer.seen(), viewer.told) == (names(1, 2), 1)
    viewer.hold.dispatch_now()
    assert not viewer.hold.keeps_searching()


def test_nothing_shown_is_taken_back_by_a_power_cut():
    core = Core()
    core.send("q", *names(1))
    core.sync()
    core.send("q", *names(2))
    viewer = browse(core)
    shown = viewer.seen()
    core.restart()
    assert set(shown) <= set(core.waiting("q"))
    core.send("q", *names(3))
    viewer = browse(core)
    core.sync()
    shown = viewer.seen()
    core.restart()
    assert shown == core.waiting("q") == names(1, 3)


def test_a_closed_browser_is_not_remembered():
    core = Core()
    core.send("q", *names(1))
    viewer = browse(core)
    viewer.hold.close()
    core.sync()
    core.send("q", *names(2))
    core.sync()
    assert not core.gateway.visible.waiting
    assert viewer.got == []


# ---- what comes back


@pytest.mark.parametrize("how", ["release", "failed", "leave", "cut"])
def test_what_was_held_when_it_came_by_is_shown_when_it_comes_back(how):
    core = Core()
    core.send("q", *names(1, 2, 3))
    core.sync()
    taker = core.consume("q", room=2)
    viewer = browse(core)
    assert (viewer.seen(), viewer.told) == (names(3), 1)
    if how == "release":
        taker.release(1)
        taker.left = 0
    elif how == "failed":
        taker.release(1, failed=True)
        taker.left = 0
    else:
        taker.leave(failed=how == "cut")
    core.sync()
    assert viewer.seen() == (names(1) if how in ("release", "failed") else names(1, 2))
    core.check()


def test_what_it_has_seen_is_not_shown_again_when_it_comes_back():
    core = Core()
    core.send("q", *names(1, 2, 3))
    core.sync()
    viewer = browse(core)
    assert viewer.seen() == names(1, 2, 3)
    taker = core.consume("q", room=3)
    for failed in (False, True):
        taker.left = 0
        taker.release(failed=failed)
        core.sync()
        taker.take(3)
        core.turn()
    taker.leave()
    core.sync()
    assert viewer.seen() == []


def test_a_scheduled_message_is_shown_when_it_is_due_and_once():
    core = Core(entry("#", redelivery_delay=50))
    core.send("q", *names(1), delay=100)
    core.sync()
    viewer = browse(core)
    assert viewer.seen() == []
    core.pass_time(100)
    assert viewer.seen() == names(1)
    taker = core.consume("q", room=1)
    taker.release(failed=True, delayed=True)
    taker.left = 0
    core.sync()
    core.pass_time(60)
    core.sync()
    assert (viewer.seen(), core.waiting("q")) == ([], names(1))


def test_one_that_is_due_before_it_is_on_disk_waits_for_it():
    core = Core()
    core.send("q", *names(1), delay=10)
    viewer = browse(core)
    core.pass_time(20)
    assert (viewer.seen(), core.waiting("q")) == ([], names(1))
    core.sync()
    assert viewer.seen() == names(1)


def test_what_has_expired_is_not_shown():
    core = Core()
    core.send("q", *names(1), ttl=10)
    core.send("q", *names(2))
    core.sync()
    core.now += 20
    viewer = browse(core)
    assert viewer.seen() == names(2)
    assert core.queue("q").message_count == 2


# ---- pages


def paging(amount: int) -> Core:
    core = Core(entry("#", address_full_policy=FullPolicy.PAGE, max_size_messages=5))
    core.send("q", *names(*range(amount)))
    core.sync()
    assert core.queue("q").paged_count == amount - 5
    return core


def test_what_lies_on_pages_is_shown_behind_the_others():
    core = paging(30)
    viewer = browse(core)
    assert viewer.seen() == names(*range(30))
    assert viewer.told == 1
    assert core.queue("q").paged_count == 25
    core.send("q", *names(30))
    assert viewer.seen() == []
    core.sync()
    assert viewer.seen() == names(30)
    core.check()


def test_pages_with_a_selector_and_little_room():
    core = paging(30)
    viewer = browse(core, room=4, selector="AMQSize > 0")
    shown = []
    while got := viewer.seen():
        shown += got
        viewer.take(4)
        core.turn()
    assert shown == names(*range(30))
    nobody = browse(core, selector="colour = 'red'")
    assert (nobody.seen(), nobody.told) == ([], 1)


def test_what_is_read_back_while_it_browses_is_shown_once():
    core = paging(40)
    viewer = browse(core, room=12)
    shown = viewer.seen()
    taker = core.consume("q", room=20)
    assert taker.bodies() == names(*range(20))
    taker.ack(10)
    taker.leave()  # what it held waits in memory now, though it was on pages
    core.sync()
    while True:
        viewer.take(7)
        core.turn()
        got = viewer.seen()
        if not got:
            break
        shown += got
    assert sorted(shown, key=int) == names(*range(40))
    core.check()


def test_a_long_browse_of_pages_takes_turns():
    core = paging(3000)
    viewer = browse(core, room=100_000)
    assert viewer.seen() == names(*range(3000))


def test_what_could_not_be_written_from_pages_is_shown_again():
    core = paging(20)
    viewer = browse(core, room=0)

    def give_some_back(messages) -> None:
        if viewer.on_deliver is not None and len(viewer.got) > 8:
            viewer.on_deliver = None
            back = messages[-2:]
            del viewer.got[-2:]
            viewer.left += 2
            viewer.hold.release(back)

    viewer.on_deliver = give_some_back
    viewer.take(100)
    core.turn()
    assert sorted((body_of(m) for m in viewer.got), key=int) == names(*range(20))


def test_pages_that_are_not_on_disk_are_waited_for():
    core = Core(entry("#", address_full_policy=FullPolicy.PAGE, max_size_messages=5))
    core.send("q", *names(*range(5)))
    core.sync()
    core.send("q", *names(*range(5, 9)))
    viewer = browse(core)
    viewer.hold.dispatch_now()
    assert viewer.hold.keeps_searching()
    assert viewer.told == 0
    core.sync()
    assert (viewer.seen(), viewer.told) == (names(*range(9)), 1)
