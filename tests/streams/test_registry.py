"""All streams of a gateway: made, found again after a start, removed."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.run import Run
from gateway.streams.adoption import Ended, encode_adopted
from gateway.streams.registry import StreamRegistry
from gateway.streams.retention import Limits
from gateway.streams.settings import StreamSettings
from gateway.streams.stream import Accepted
from storage.errors import DamageError
from tests.storage.power import PowerFiles
from tests.streams.harness import Inline, Later, Owner, fill, make_registry


class RegistryTest(SynchronousTestCase):
    def setUp(self) -> None:
        self.files = PowerFiles()
        self.open()

    def open(self, **options: Any) -> StreamRegistry:
        options = {"fs": self.files} | options
        self.registry, self.owner, self.now = make_registry("root", **options)
        return self.registry

    def refused(self, code: Code, function: Any, *args: Any) -> str:
        with pytest.raises(RefusedError) as caught:
            function(*args)
        assert caught.value.refusal.code is code
        return caught.value.refusal.text

    def make(self, name: str = "orders") -> Any:
        return self.successResultOf(self.registry.create(name, name))

    # -- definitions

    def test_a_new_stream_is_tapped_and_comes_back(self) -> None:
        tap = self.successResultOf(self.registry.create("all orders", "orders"))
        assert self.owner.said == [("address", "orders"), ("taps", "orders")]
        assert self.registry.taps("orders") == (tap.stream,)
        fill(self.registry, "all orders", [b"a", b"b"])
        self.successResultOf(self.registry.stop())
        again = self.open().get("all orders").stream
        assert (again.stream_id, again.name, again.address, again.epoch) == (
            1, "all orders", "orders", 1,
        )  # fmt: skip
        assert (again.first_offset, again.durable_offset) == (0, 2)
        assert self.registry.taps("orders") == (again,)
        assert self.registry.taps("other") == ()

    def test_the_same_again_is_no_error_and_another_address_is(self) -> None:
        tap = self.make()
        assert self.make() is tap
        text = self.refused(Code.ALREADY_EXISTS, self.registry.create, "orders", "bills")
        assert "'orders' taps the address 'orders', not 'bills'" in text

    def test_impossible_names_and_too_many(self) -> None:
        self.refused(Code.BAD_NAME, self.registry.create, "", "orders")
        self.refused(Code.BAD_NAME, self.registry.create, "orders", "$sys")
        self.open(settings=StreamSettings(streams_max=1))
        self.make()
        self.refused(Code.TOO_MANY, self.registry.create, "more", "more")

    def test_the_stream_of_an_address(self) -> None:
        first = self.successResultOf(self.registry.create("x", "orders"))
        assert self.registry.find_address("orders") is first
        named = self.make("orders")
        assert self.registry.find_address("orders") is named
        self.successResultOf(self.registry.create("bills", "elsewhere"))
        assert self.registry.find_address("bills") is None

    def test_a_deleted_stream_is_gone_and_its_name_gets_another_life(self) -> None:
        tap = self.make()
        fill(self.registry, "orders", [b"a"] * 3)
        self.successResultOf(self.registry.flush())
        self.successResultOf(self.registry.attach("etl", tap, "earliest", None))
        waiter = self.registry.wait(tap)
        self.owner.said.clear()
        self.successResultOf(self.registry.delete("orders"))
        self.successResultOf(waiter)
        assert self.owner.said == [("taps", "orders"), ("release", 1, 0, 2)]
        assert self.registry.taps("orders") == ()
        assert self.registry.find_subscription("etl") is None
        assert [name for name in self.files.names if name.startswith("root/1/")] == []
        self.refused(Code.NOT_FOUND, self.registry.delete, "orders")
        self.open()
        assert self.registry.all() == []
        stream = self.make().stream
        assert (stream.stream_id, stream.epoch) == (2, 2)

    def test_another_version_of_the_file_is_refused(self) -> None:
        self.make()
        node = self.files.names["root/streams.json"]
        self.files.now[node] = bytearray(b'{"version": 2}')
        with pytest.raises(ValueError, match="version 2; this program knows 1"):
            self.open()

    def test_a_failed_write_is_told(self) -> None:
        self.files.fail_at, self.files.error = self.files.changes, OSError(errno.ENOSPC, "full")
        self.failureResultOf(self.registry.create("orders", "orders"), OSError)

    # -- sealing

    def test_sealing_writes_the_log_then_releases_the_journal(self) -> None:
        blocking = Later()
        self.open(blocking=blocking)
        self.registry.create("orders", "orders")
        blocking.step()
        fill(self.registry, "orders", [b"x"] * 4096)
        self.owner.said.clear()
        stream = self.registry.get("orders").stream
        assert (stream.durable_offset, stream.sealed_offset) == (4096, 0)
        blocking.step()
        assert stream.sealed_offset == 4096
        assert self.owner.said == [("release", 1, 0, 4095)]

    def test_a_failed_sealing_is_told_and_tried_again(self) -> None:
        stream = self.make().stream
        fill(self.registry, "orders", [b"x"] * 10)
        self.files.fail_at, self.files.error = self.files.changes, OSError(errno.ENOSPC, "full")
        self.owner.said.clear()
        self.now.ms += 10_000
        self.registry.tick()
        assert self.owner.said == [("failed", 1, "[Errno 28] full")]
        assert stream.sealed_offset == 0
        self.registry.tick()
        assert stream.sealed_offset == 10

    def test_old_tails_are_sealed_and_volatile_ones_sooner(self) -> None:
        stream = self.make().stream
        fill(self.registry, "orders", [b"x"])
        self.now.ms += 9_999
        self.registry.tick()
        assert stream.sealed_offset == 0
        self.now.ms += 1
        self.registry.tick()
        assert stream.sealed_offset == 1
        stream.recorded(stream.record(Run([b"v"], 0), self.now.ms), 1, 0)
        self.now.ms += 199
        self.registry.tick()
        assert stream.durable_offset == 1
        self.now.ms += 1
        self.registry.tick()
        assert stream.durable_offset == 2

    def test_the_stream_may_be_deleted_while_it_is_sealed(self) -> None:
        blocking = Later()
        self.open(blocking=blocking)
        self.registry.create("orders", "orders")
        blocking.step()
        fill(self.registry, "orders", [b"x"] * 4096)
        gone = self.registry.delete("orders")
        while blocking.waiting:
            blocking.step()
        self.successResultOf(gone)
        assert [name for name in self.files.names if name.startswith("root/1/")] == []

    def test_a_stopped_journal_stops_advertising(self) -> None:
        stream = self.make().stream
        stream.recorded(stream.record(Run([b"x"], 0), 1), 1, 1)
        refusal = Refusal(code=Code.STORE_FAILED, text="gone")
        self.registry.store_failed(refusal)
        self.registry.durable_up_to(5)
        assert (stream.durable_offset, stream.failed) == (0, refusal)

    # -- start

    def test_recovery_takes_up_tails_and_releases_what_is_safe(self) -> None:
        self.make()
        fill(self.registry, "orders", [b"a"] * 4)
        self.successResultOf(self.registry.flush())
        self.open()
        self.owner.said.clear()
        tail = [
            Accepted(2, [b"a"] * 2, 4, 5, 2),
            Accepted(4, [b"b"] * 2, 4, 5, 2),
            Accepted(9, [b"c"], 4, 5, 1),
        ]
        holes = self.registry.recover({1: tail, 7: [Accepted(3, [b"x"] * 2, 4, 5, 2)]})
        assert holes == {"orders": [(6, 9)]}
        assert self.owner.said == [("release", 1, 2, 3), ("release", 7, 3, 4)]
        stream = self.registry.get("orders").stream
        assert (stream.durable_offset, stream.next_offset) == (10, 10)
        assert self.make("next").stream.stream_id == 8, "a number is never given twice"

    def test_damage_is_refused_at_the_start(self) -> None:
        self.make()
        fill(self.registry, "orders", [b"a"] * 4)
        self.successResultOf(self.registry.stop())
        name = next(n for n in self.files.names if n.endswith(".arrows"))
        self.files.unlink(name)
        with pytest.raises(DamageError):
            self.open()

    # -- waiting

    def test_who_waits_is_woken_by_a_higher_head_only(self) -> None:
        tap = self.make()
        waiter = self.registry.wait(tap)
        self.registry.durable_up_to(1)
        self.assertNoResult(waiter)
        fill(self.registry, "orders", [b"x"])
        self.successResultOf(waiter)
        given_up = self.registry.wait(tap)
        given_up.cancel()
        self.failureResultOf(given_up, CancelledError)
        assert tap.waiters == []

    # -- retention

    def fill_blocks(self, count: int) -> None:
        for _ in range(count):
            fill(self.registry, "orders", [b"x" * 100] * 10)
            self.successResultOf(self.registry.flush())

    def test_the_byte_limit_drops_the_oldest_and_names_what_was_wanted(self) -> None:
        limits = Limits(bytes_max=9_000)
        self.open(settings=StreamSettings(retention=limits), segment_bytes=1500)
        tap = self.make()
        self.fill_blocks(3)
        known = self.successResultOf(self.registry.attach("etl", tap, "15", None))
        assert known.floor == 15
        self.owner.said.clear()
        self.fill_blocks(7)
        first = tap.stream.first_offset
        assert first > 15
        assert tap.log.first_offset == first
        assert tap.stream.lost_messages == first - 15
        lost = [said[2:4] for said in self.owner.said if said[0] == "lost"]
        assert lost[0][0] == 15
        assert lost[-1][1] == first - 1
        assert sum(s.size_bytes for s in tap.log.segments()) <= 9_000

    def test_age_stops_at_the_floor_and_at_a_pin(self) -> None:
        limits = Limits(bytes_max=0, age_ms_max=1000)
        self.open(settings=StreamSettings(retention=limits), segment_bytes=1500)
        tap = self.make()
        self.fill_blocks(6)
        self.successResultOf(self.registry.attach("etl", tap, "30", None))
        self.registry.pin(tap, "batch", 10, self.now.ms + 5000)
        self.registry.pin(tap, "batch", 20, self.now.ms + 6000)
        self.now.ms += 2000
        self.registry.tick()
        assert tap.stream.first_offset == 10
        self.now.ms += 4000
        self.registry.tick()
        assert tap.stream.first_offset == 30
        assert tap.pins == {}
        self.successResultOf(self.registry.commit("etl", 1, 50, 1))
        self.registry.tick()
        assert tap.stream.first_offset == 50
        assert not [said for said in self.owner.said if said[0] == "lost"]

    def test_a_drop_is_decided_once_while_it_is_under_way(self) -> None:
        blocking = Later()
        limits = Limits(bytes_max=0, age_ms_max=1000)
        self.open(settings=StreamSettings(retention=limits), segment_bytes=500, blocking=blocking)
        self.registry.create("orders", "orders")
        for _ in range(4):
            fill(self.registry, "orders", [b"x" * 100] * 10)
            self.registry.flush()
            while blocking.waiting:
                blocking.step()
        self.now.ms += 2000
        self.registry.tick()
        self.registry.tick()
        assert len(blocking.waiting) == 1
        blocking.step()
        assert self.registry.get("orders").log.first_offset == 30

    # -- subscriptions

    def test_a_subscription_is_durable_before_it_is_answered(self) -> None:
        tap = self.make()
        fill(self.registry, "orders", [b"x"] * 9)
        blocking = Later()
        self.open(blocking=blocking)
        self.registry.recover({1: [Accepted(0, [b"x"] * 9, 4, 5, 9)]})
        tap = self.registry.get("orders")
        attached = self.registry.attach("etl", tap, "latest", None)
        self.assertNoResult(attached)
        blocking.step()
        assert self.successResultOf(attached).floor == 9
        self.open()
        known = self.registry.find_subscription("etl")
        assert known is not None
        assert known.subscriptions["etl"].floor == 9

    def test_the_floor_is_pinned_at_the_first_attach_and_rises_with_commits(self) -> None:
        tap = self.make()
        first = self.successResultOf(self.registry.attach("etl", tap, "latest", None))
        fill(self.registry, "orders", [b"x"] * 9)
        second = self.successResultOf(self.registry.attach("etl", tap, "latest", (1, 5)))
        assert (first.floor, second.floor, second.fence) == (0, 0, 2)
        self.refused(Code.IN_USE, self.registry.commit, "etl", 1, 3, 1)
        assert self.successResultOf(self.registry.commit("etl", 1, 7, 2)).floor == 7
        changes = self.files.changes
        assert self.successResultOf(self.registry.commit("etl", 1, 5, 2)).floor == 7
        assert self.files.changes == changes, "nothing to write"
        assert self.open().get("orders").subscriptions["etl"].floor == 7

    def test_a_checkpoint_of_this_life_makes_a_lost_subscription_again(self) -> None:
        tap = self.make()
        fill(self.registry, "orders", [b"x"] * 9)
        made = self.successResultOf(self.registry.attach("etl", tap, "latest", (1, 4)))
        assert made.floor == 4
        other = self.successResultOf(self.registry.attach("old", tap, "latest", (7, 4)))
        assert other.floor == 9

    def test_one_name_reads_one_stream(self) -> None:
        self.successResultOf(self.registry.attach("etl", self.make(), "latest", None))
        text = self.refused(
            Code.IN_USE, self.registry.attach, "etl", self.make("bills"), "latest", None
        )
        assert "reads the address 'orders', not 'bills'" in text

    def test_limits_names_and_deleting(self) -> None:
        self.open(settings=StreamSettings(subscriptions_max=1))
        tap = self.make()
        self.refused(Code.BAD_NAME, self.registry.attach, "", tap, "latest", None)
        self.successResultOf(self.registry.attach("etl", tap, "latest", None))
        self.refused(Code.TOO_MANY, self.registry.attach, "more", tap, "latest", None)
        self.successResultOf(self.registry.unsubscribe("etl"))
        self.refused(Code.NOT_FOUND, self.registry.unsubscribe, "etl")
        self.refused(Code.NOT_FOUND, self.registry.commit, "etl", 1, 0, 1)
        assert self.open().get("orders").subscriptions == {}


def test_the_real_file_system(tmp_path: Path) -> None:
    registry, _, _ = make_registry(str(tmp_path), blocking=Inline())
    registry.create("orders", "orders")
    fill(registry, "orders", [b"x"] * 5)
    registry.stop()
    again, owner, _ = make_registry(str(tmp_path))
    assert again.get("orders").stream.durable_offset == 5
    assert isinstance(owner, Owner)

    # -- an id, and a history taken over

    def test_an_id_is_told_once_it_is_on_the_device_and_stays(self) -> None:
        self.registry = StreamRegistry(
            self.registry._store, Inline(), self.owner, StreamSettings(), self.now
        )
        self.registry.load(lambda: "made")
        assert self.registry.identity is None
        self.make()
        assert self.registry.identity == "made"
        again = StreamRegistry(
            self.registry._store, Inline(), self.owner, StreamSettings(), self.now
        )
        again.load(lambda: "another")
        assert again.identity == "made"

    def test_streams_that_are_taken_over_go_on_where_the_history_ends(self) -> None:
        state = encode_adopted("theirs", {"orders": Ended("orders.eu", 3, 700)})
        self.registry._store.save("streams.json", state)
        self.open()
        tap = self.registry.get("orders")
        assert (tap.stream.address, self.registry.identity) == ("orders.eu", "theirs")
        assert (tap.place.epoch, tap.place.first, tap.place.head) == (3, 700, 700)
        for end in (702, 704):
            fill(self.registry, "orders", [b"a", b"b"])
            self.successResultOf(self.registry.stop())
            self.open()
            place = self.registry.get("orders").place
            assert (place.epoch, place.first, place.head) == (3, 700, end)
        self.successResultOf(self.registry.delete("orders"))
        assert self.make("orders").stream.epoch == 4

    def test_streams_by_what_their_addresses_fit(self) -> None:
        for name in ("b", "a", "c"):
            self.make(name)
        self.successResultOf(self.registry.create("second", "a"))
        found = self.registry.tapped(lambda address: address != "c")
        assert [tap.stream.name for tap in found] == ["a", "b"]

    def test_other_limits_hold_for_what_is_there(self) -> None:
        self.make()
        named = {"orders": Limits(bytes_max=7)}
        self.registry.use(StreamSettings(named=named))
        assert self.registry.settings.limits("orders").bytes_max == 7
        assert self.registry.settings.limits("other").bytes_max == 5 << 30
        assert self.registry.lagging() == []
