"""One stream with what belongs to it: its floor, its pins, and readers that wait."""

from __future__ import annotations

from dataclasses import replace

from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from gateway.streams.subscription import (
    ARCHIVE,
    ARCHIVED,
    EARLIEST,
    Place,
    Subscription,
    attach,
)
from gateway.streams.tap import Tap
from tests.storage.power import PowerFiles
from tests.streams.harness import make_registry


def subscribed(name: str, epoch: int, floor: int) -> Subscription:
    place = Place(epoch=epoch, first=floor, head=floor)
    return attach(name, None, place, starting=EARLIEST, position=None, now_ms=0)


class TapTest(SynchronousTestCase):
    def setUp(self) -> None:
        self.registry, _, _ = make_registry("root", fs=PowerFiles())
        self.tap: Tap = self.successResultOf(self.registry.create("orders", "orders"))

    def test_its_floor_is_the_lowest_of_this_life(self) -> None:
        assert self.tap.floor() is None
        self.tap.subscriptions["b"] = subscribed("b", 1, 20)
        self.tap.subscriptions["old"] = subscribed("old", 9, 3)
        assert self.tap.floor() == 20
        self.tap.pin("batch", 10, 500)
        assert self.tap.floor() == 10

    def test_a_pin_is_prolonged_and_never_lifted_until_its_time_is_over(self) -> None:
        self.tap.pin("batch", 10, 500)
        self.tap.pin("batch", 30, 900)
        assert self.tap.pins == {"batch": (10, 900)}
        self.tap.end_pins(899)
        assert self.tap.pins == {"batch": (10, 900)}
        self.tap.end_pins(900)
        assert self.tap.pins == {}

    def test_readers_are_woken_once_and_one_that_gave_up_is_not(self) -> None:
        first, second = self.tap.wait(), self.tap.wait()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.tap.wake()
        self.successResultOf(second)
        assert self.tap.waiters == []
        self.tap.wake()

    def test_its_subscriptions_are_saved(self) -> None:
        self.tap.subscriptions["etl"] = subscribed("etl", 1, 0)
        self.successResultOf(self.tap.save())
        assert self.tap.place == Place(epoch=1, first=0, head=0)

    def test_a_reader_of_the_table_holds_nothing_that_an_archive_has(self) -> None:
        self.tap.subscriptions["reader"] = replace(subscribed("reader", 1, 5), role=ARCHIVED)
        assert (self.tap.floor(), self.tap.archived()) == (5, None)
        self.tap.subscriptions["archive"] = replace(subscribed("archive", 1, 20), role=ARCHIVE)
        assert (self.tap.floor(), self.tap.archived()) == (20, 20)
        self.tap.subscriptions["plain"] = subscribed("plain", 1, 7)
        assert self.tap.floor() == 7
        self.tap.subscriptions["archive"] = replace(subscribed("archive", 2, 20), role=ARCHIVE)
        assert self.tap.archived() is None, "of another life"

    def test_one_waits_for_several_and_is_woken_once(self) -> None:
        other: Tap = self.successResultOf(self.registry.create("bills", "bills"))
        waiting = self.registry.wait_any([self.tap, other])
        other.wake()
        self.successResultOf(waiting)
        assert (self.tap.waiters, other.waiters) == ([], [])
        self.tap.wake()
        waiting = self.registry.wait_any([self.tap, other])
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        assert (self.tap.waiters, other.waiters) == ([], [])
