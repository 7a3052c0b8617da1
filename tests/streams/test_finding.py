"""From a time to an offset, wherever the message is."""

from __future__ import annotations

import pytest
from twisted.trial.unittest import SynchronousTestCase

from gateway.model.message import STOMP
from gateway.model.run import Run
from gateway.streams.finding import find_offset
from gateway.streams.retention import Limits
from gateway.streams.settings import StreamSettings
from gateway.streams.tap import Tap
from storage.errors import DamageError
from tests.storage.power import PowerFiles
from tests.streams.harness import Inline, Later, fill, make_registry, stomp_message


class FindingTest(SynchronousTestCase):
    """Five runs of four messages, 100 ms apart, of which the first so many are sealed."""

    def open(self, sealed: int, bytes_max: int = 0) -> Tap:
        settings = StreamSettings(retention=Limits(bytes_max=bytes_max))
        self.files = PowerFiles()
        self.registry, _, self.now = make_registry(
            "root", fs=self.files, settings=settings, segment_bytes=1
        )
        self.registry.create("orders", "orders")
        self.start = self.now.ms
        for index in range(5):
            if index == sealed:
                self.registry.flush()
            self.now.ms = self.start + index * 100
            fill(self.registry, "orders", [stomp_message(b"x")] * 4)
            if index < sealed:
                self.registry.flush()
        return self.registry.get("orders")

    def find(self, tap: Tap, after_ms: int) -> int:
        return self.successResultOf(find_offset(tap, self.start + after_ms, Inline()))

    def test_in_the_log_in_the_tail_and_in_both(self) -> None:
        for sealed in range(6):
            tap = self.open(sealed)
            assert tap.stream.sealed_offset == sealed * 4
            for after_ms, offset in (
                (-5000, 0), (0, 0), (1, 4), (99, 4), (100, 4), (101, 8), (399, 16), (400, 16),
                (401, 20), (10**15, 20),
            ):  # fmt: skip
                assert self.find(tap, after_ms) == offset, (sealed, after_ms)

    def test_inside_of_a_block(self) -> None:
        tap = self.open(0)
        self.registry.flush()
        assert len(tap.log.blocks(0, 20)) == 1
        assert [self.find(tap, after_ms) for after_ms in (0, 150, 400, 500)] == [0, 8, 16, 20]

    def test_an_empty_stream_begins_at_its_head(self) -> None:
        registry, _, _ = make_registry("root", fs=PowerFiles())
        registry.create("orders", "orders")
        found = find_offset(registry.get("orders"), 0, Inline())
        assert self.successResultOf(found) == 0

    def test_what_is_not_advertised_is_not_found(self) -> None:
        tap = self.open(2)
        stream = tap.stream
        base = stream.record(Run([stomp_message(b"y")], STOMP), self.start + 900)
        stream.recorded(base, 1, 2)
        assert self.find(tap, 900) == 20
        self.registry.durable_up_to(2)
        assert stream.durable_offset == 21
        assert self.find(tap, 900) == 20
        assert self.find(tap, 901) == 21

    def test_a_clock_that_was_put_back(self) -> None:
        """The lowest offset whose own time is late enough, also before earlier times."""
        tap = self.open(5)
        self.now.ms = self.start + 50
        fill(self.registry, "orders", [stomp_message(b"x")] * 4)
        self.registry.flush()
        assert self.find(tap, 350) == 16
        assert self.find(tap, 20) == 4
        assert self.find(tap, 401) == 24

    def test_what_retention_dropped_is_passed_over(self) -> None:
        tap = self.open(5)
        later = Later()
        found = find_offset(tap, self.start, later)
        tap.stream.first_offset = 8
        tap.log.drop(2)
        later.step()
        assert self.successResultOf(found) == 8
        assert self.find(tap, 0) == 8

    def test_dropped_while_its_block_is_read(self) -> None:
        tap = self.open(5)
        refs = tap.log.blocks(0, 20)
        tap.log.drop(2)
        with pytest.raises(LookupError):
            tap.log.read(refs[0])
        tap.log.blocks = lambda *_: refs  # type: ignore[method-assign]
        assert self.find(tap, 0) == 8

    def test_sealed_while_it_is_looked_for(self) -> None:
        tap = self.open(2)
        later = Later()
        found = find_offset(tap, self.start + 250, later)
        self.registry.flush()
        assert tap.stream.sealed_offset == 20
        later.step()
        self.assertNoResult(found)
        later.step()
        assert self.successResultOf(found) == 12

    def test_a_damaged_block_is_told(self) -> None:
        tap = self.open(5)
        ref = tap.log.blocks(0, 1)[0]
        self.files.pwrite(self.files.open(ref.path), b"\0" * ref.size, ref.position)
        self.failureResultOf(find_offset(tap, self.start, Inline()), DamageError)
