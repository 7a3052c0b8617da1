"""Subscriptions by name, over all streams."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.trial.unittest import SynchronousTestCase

from gateway.model.errors import Code, RefusedError
from gateway.streams.subscribers import Subscribers
from gateway.streams.subscription import encode
from gateway.streams.tap import Tap
from tests.storage.power import PowerFiles
from tests.streams.harness import make_registry


class SubscribersTest(SynchronousTestCase):
    def setUp(self) -> None:
        self.registry, _, self.now = make_registry("root", fs=PowerFiles())
        self.tap: Tap = self.successResultOf(self.registry.create("orders", "orders"))
        self.other: Tap = self.successResultOf(self.registry.create("bills", "bills"))
        self.subscribers = Subscribers(2, self.now)

    def attach(self, name: str, tap: Tap) -> Any:
        return self.successResultOf(self.subscribers.attach(name, tap, "latest", None))

    def refused(self, code: Code, function: Any, *args: Any) -> None:
        with pytest.raises(RefusedError) as caught:
            function(*args)
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
