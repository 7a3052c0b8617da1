"""The bench of the store: what its figures come to, and that slow syncs are slow."""

from __future__ import annotations

import time

import pytest

from gateway.bench import store
from gateway.bench.slow_disk import slow_down
from gateway.bench.store import Asked, Found, Pair, asked_of, middle, table
from storage.files import RealFiles


def found(rate: float, written: float = 1.0, p50: float | None = 1.0) -> Found:
    return Found(rate=rate, p50=p50, written=written, bytes_written=900.0, syncs=0.5)


def test_medians_leave_out_what_was_not_measured():
    three = [found(1), found(5, 0.5, None), found(3, 0.1, 3.0)]
    assert middle(three) == Found(rate=3, p50=2.0, written=0.5, bytes_written=900.0, syncs=0.5)
    assert middle([found(1, 1, None)]).p50 is None


def test_what_is_asked_of_the_pairs():
    slow = Pair(title="AMQP, 32 waiting, sync 2 ms", on=found(50, 0.4), off=found(100))
    fast = Pair(title="AMQP, 32 waiting, disk as it is", on=found(100), off=found(100))
    goals = list(asked_of([slow, fast]))
    assert [goal.met for goal in goals] == [False, True, True]
    assert goals[1].figure == pytest.approx(0.6)


def test_the_table_says_what_was_missed():
    lines = list(
        table([], [Asked(title="a", figure=1, least=2), Asked(title="b", figure=2, least=2)])
    )
    assert lines[1].endswith("MISSED")
    assert not lines[2].endswith("MISSED")


def test_rows_wait_one_by_one_for_a_fast_consumer():
    rows = list(store.rows())
    assert {row.connections for row in rows} == {1, 8, 32}
    assert {(row.window, row.kind, row.durable) for row in rows} == {(1, "both", True)}


def test_a_slow_disk_takes_its_time(monkeypatch, tmp_path):
    monkeypatch.setattr(RealFiles, "fdatasync", RealFiles.fdatasync)
    slow_down(0.05)
    files = RealFiles()
    fd = files.open(str(tmp_path / "f"), create=True)
    started = time.perf_counter()
    files.fdatasync(fd)
    files.close(fd)
    assert time.perf_counter() - started >= 0.05
