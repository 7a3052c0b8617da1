"""Subscriptions by name, over all streams."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.trial.unittest import SynchronousTestCase

from gateway.model.errors import Code, RefusedError
from gateway.streams.subscribers import Holder, Subscribers
from gateway.streams.subscription import ARCHIVE, encode
from gateway.streams.tap import Tap
from tests.storage.power import PowerFiles
from tests.streams.harness import fill, make_registry


class SubscribersTest(SynchronousTestCase):
    def setUp(self) -> None:
        self.registry, _, self.now = make_registry("root", fs=PowerFiles())
        self.tap: Tap = self.successResultOf(self.registry.create("orders", "orders"))
        self.other: Tap = self.successResultOf(self.registry.create("bills", "bills"))
        self.subscribers = Subscribers(2, self.now)

    def attach(self, name: str, tap: Tap) -> Any:
        return self.successResultOf(self.subscribers.attach(name, tap, "latest", None))

    def refused(self, code: Code, function: Any, *args: Any, **words: Any) -> None:
        with pytest.raises(RefusedError) as caught:
            function(*args, **words)
        assert caught.value.refusal.code is code

    def test_a_name_reads_one_stream_until_it_is_removed(self) -> None:
        self.attach("etl", self.tap)
        assert self.subscribers.find("etl") is self.tap
        self.refused(Code.IN_USE, self.subscribers.attach, "etl", self.other, "latest", None)
        self.successResultOf(self.subscribers.remove("etl"))
        assert self.subscribers.find("etl") is None
        self.attach("etl", self.other)
        assert list(self.other.subscriptions) == ["etl"]

    def test_one_stream_has_so_many_and_the_same_again_is_none_more(self) -> None:
        for name in ("a", "b", "a"):
            self.attach(name, self.tap)
        self.refused(Code.TOO_MANY, self.subscribers.attach, "c", self.tap, "latest", None)
        self.attach("c", self.other)

    def test_what_is_stored_is_taken_up_and_goes_with_its_stream(self) -> None:
        self.attach("etl", self.tap)
        stored = encode(self.tap.subscriptions.values())
        again = Subscribers(2, self.now)
        again.take_up(self.other, stored)
        assert again.find("etl") is self.other
        again.forget(self.other)
        assert again.find("etl") is None
        assert self.other.subscriptions == {}

    def test_nobody_commits_or_removes_what_is_not_there(self) -> None:
        self.refused(Code.NOT_FOUND, self.subscribers.commit, "etl", 1, 0, 1)
        self.refused(Code.NOT_FOUND, self.subscribers.remove, "etl")

    # -- several streams

    def hold(self, *taps: Tap, name: str = "all", role: str = "") -> int:
        made = self.subscribers.attach_all(name, taps, "earliest", {}, role=role)
        return int(self.successResultOf(made))

    def test_a_name_of_several_streams_has_one_fence_and_a_floor_in_each(self) -> None:
        assert self.hold(self.tap) == 1
        assert self.hold(self.other, self.tap) == 2
        assert self.subscribers.all("all") == [self.other, self.tap]
        assert {tap.subscriptions["all"].fence for tap in (self.tap, self.other)} == {2}
        for tap in (self.tap, self.other):
            fill(self.registry, tap.stream.name, [b"x"] * 5)
        done = self.subscribers.commit_all("all", {"orders": (1, 3), "gone": (1, 9)}, 2)
        assert self.successResultOf(done) == {"orders": (1, 3), "bills": (1, 0)}
        self.refused(Code.IN_USE, self.subscribers.commit_all, "all", {"orders": (1, 4)}, 1)
        self.refused(Code.NOT_FOUND, self.subscribers.commit_all, "none", {}, 1)
        self.successResultOf(self.subscribers.remove("all"))
        assert self.subscribers.all("all") == []
        assert not self.tap.subscriptions
        assert not self.other.subscriptions

    def test_a_stream_joins_with_the_fence_and_role_of_its_name(self) -> None:
        fence = self.hold(self.tap, role=ARCHIVE)
        fill(self.registry, "bills", [b"x"] * 5)
        joined = self.subscribers.join("all", [self.other], "latest", {}, Holder(fence, ARCHIVE))
        self.successResultOf(joined)
        made = self.other.subscriptions["all"]
        assert (made.fence, made.floor, made.role) == (1, 5, ARCHIVE)
        self.hold(self.tap, self.other)
        late = ("all", [self.other], "latest", {}, Holder(fence, ARCHIVE))
        self.refused(Code.IN_USE, self.subscribers.join, *late)

    def test_a_stream_that_has_gone_leaves_the_others_to_the_name(self) -> None:
        self.hold(self.tap, self.other)
        self.subscribers.forget(self.other)
        assert self.subscribers.all("all") == [self.tap]
        self.subscribers.forget(self.tap)
        assert self.subscribers.find("all") is None

    def test_of_too_many_none_is_held(self) -> None:
        for name in ("a", "b"):
            self.attach(name, self.other)
        self.refused(Code.TOO_MANY, self.hold, self.tap, self.other)
        assert not self.tap.subscriptions

    def test_a_role_that_is_none(self) -> None:
        self.refused(
            Code.BAD_VALUE, self.subscribers.attach, "x", self.tap, "latest", None, role="thief"
        )

    def test_a_floor_is_lifted_by_commits_alone(self) -> None:
        self.attach("etl", self.tap)
        fill(self.registry, "orders", [b"x"] * 5)
        self.attach("etl", self.tap)
        assert not self.tap.subscriptions["etl"].lifted
        self.successResultOf(self.subscribers.commit("etl", 1, 2, 2))
        assert self.tap.subscriptions["etl"].lifted
