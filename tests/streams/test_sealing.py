"""From a tail to its log, and out of it: what is told of each step, and in which order."""

from __future__ import annotations

import errno
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from gateway.streams.retention import Limits
from gateway.streams.sealing import Sealing
from gateway.streams.settings import StreamSettings
from gateway.streams.tap import Tap
from tests.storage.power import PowerFiles
from tests.streams.harness import Later, Owner, fill, make_registry


class SealingTest(SynchronousTestCase):
    def setUp(self) -> None:
        self.registry, _, self.now = make_registry("root", fs=PowerFiles(), segment_bytes=500)
        self.tap: Tap = self.successResultOf(self.registry.create("orders", "orders"))
        self.blocking, self.owner = Later(), Owner()

    def sealing(self, **settings: Any) -> Sealing:
        return Sealing(self.blocking, self.owner, StreamSettings(**settings), self.now)

    def work(self) -> None:
        while self.blocking.waiting:
            self.blocking.step()

    def test_the_journal_lets_go_of_what_is_in_the_log(self) -> None:
        sealing = self.sealing()
        self.successResultOf(sealing.seal(self.tap))
        assert self.blocking.waiting == [], "there is nothing to seal"
        fill(self.registry, "orders", [b"x"] * 9)
        done = sealing.seal(self.tap)
        assert self.owner.said == []
        self.work()
        self.successResultOf(done)
        assert self.tap.log.next_offset == 9
        assert self.owner.said == [("release", 1, 0, 8)]

    def test_a_tail_that_cannot_be_written_stays(self) -> None:
        def full(_: object) -> None:
            raise OSError(errno.ENOSPC, "full")

        fill(self.registry, "orders", [b"x"] * 9)
        self.tap.log.append = full
        done = self.sealing().seal(self.tap)
        self.work()
        self.successResultOf(done)
        assert self.owner.said == [("failed", 1, "[Errno 28] full")]
        assert self.tap.stream.sealed_offset == 0

    def test_nothing_is_written_of_a_deleted_stream(self) -> None:
        fill(self.registry, "orders", [b"x"] * 9)
        done = self.sealing().seal(self.tap)
        self.tap.deleted = True
        self.work()
        self.successResultOf(done)
        assert self.tap.log.next_offset == 0
        assert self.owner.said == []

    def test_what_changes_a_log_goes_one_at_a_time(self) -> None:
        sealing, order = self.sealing(), []
        for name in ("first", "second"):
            sealing.on_log(self.tap, order.append, name)
        assert len(self.blocking.waiting) == 1
        self.work()
        assert order == ["first", "second"]

    def test_an_old_tail_is_sealed_and_a_young_one_is_not(self) -> None:
        sealing = self.sealing(seal_after_ms=1000)
        sealing.look_after(self.tap, self.now.ms)
        fill(self.registry, "orders", [b"x"])
        sealing.look_after(self.tap, self.now.ms + 999)
        assert self.tap.stream.sealed_offset == 0
        sealing.look_after(self.tap, self.now.ms + 1000)
        assert self.tap.stream.sealed_offset == 1, "the stream has asked its own registry"

    def test_retention_tells_what_was_wanted_before_it_is_unlinked(self) -> None:
        sealing = self.sealing(retention=Limits(bytes_max=600))
        self.tap.pin("batch", 0, 1 << 60)
        for _ in range(3):
            fill(self.registry, "orders", [b"x" * 100] * 9)
            sealing.seal(self.tap)
            self.work()
        lost = [said for said in self.owner.said if said[0] == "lost"]
        assert lost[0][2] == 0
        assert lost[0][4] == "expired_by_retention"
        assert self.tap.stream.first_offset == self.tap.log.first_offset > 0
        assert not self.tap.dropping

    def test_an_archive_that_lags_is_told_once_and_its_end_too(self) -> None:
        sealing = self.sealing(
            named={"orders": Limits(bytes_max=20_000, local_bytes=500)}, seal_after_ms=10**9
        )
        for _ in range(60):
            fill(self.registry, "orders", [b"x" * 50] * 9)
            sealing.seal(self.tap)
            self.work()
            sealing.look_after(self.tap, self.now.ms)
            self.work()
        told = [said for said in self.owner.said if said[0] == "lags"]
        assert told[0][:3] == ("lags", "orders", True)
        assert len(told) == 1
        assert "retention-bytes is 20000" in (self.tap.lagging or "")
        head = self.tap.stream.durable_offset
        attached = self.registry.attach("a", self.tap, "earliest", None, role="archive")
        fence = self.successResultOf(attached).fence
        self.successResultOf(self.registry.commit("a", 1, head, fence))
        sealing.look_after(self.tap, self.now.ms)
        self.work()
        sealing.look_after(self.tap, self.now.ms)
        assert [said[2] for said in self.owner.said if said[0] == "lags"] == [True, False]
        assert self.tap.lagging is None
        size = sum(one.size_bytes for one in self.tap.log.segments())
        assert size <= 500 + max(one.size_bytes for one in self.tap.log.segments())
