"""Latency, CPU time, rows and the table of the bench."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from statistics import quantiles

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gateway.bench import report
from gateway.bench.command import bench, is_flat
from gateway.bench.cpu import cpu_seconds, file_system, listener
from gateway.bench.latency import RunTimes, percentiles
from gateway.bench.report import Line
from gateway.bench.rows import ROWS, select
from gateway.bench.run import Measured


def figures(rate: float, **more: float | None) -> Measured:
    known = {"p50": 1.0, "p99": 2.0, "worst": 3.0, "cpu": 1.5}
    return Measured(rate=rate, **{**known, **more})


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 50)), min_size=1, max_size=40))
def test_percentiles_are_those_of_the_messages_one_by_one(samples: list[tuple[int, int]]) -> None:
    each = sorted(value for value, weight in samples for _ in range(weight))
    p50, p99, worst = percentiles(samples)
    assert worst == each[-1] / 1e6
    if len(each) > 1:
        cuts = quantiles(each, n=100, method="inclusive")
        below = [value / 1e6 for value in each if value <= cuts[49] + 1]
        assert p50 <= p99 <= worst
        assert p50 == below[-1] or abs(below.index(p50) - len(each) / 2) <= len(each)
    exact = each[max(0, -(-len(each) // 2) - 1)] / 1e6
    assert p50 == exact


def test_no_samples_no_percentiles() -> None:
    assert percentiles([]) == []


def test_a_run_shares_its_time_and_answers_may_come_in_any_order() -> None:
    times = RunTimes()
    times.add(10, 100)
    times.add(15, 200)
    times.arrived(12, 15, 1000)
    times.arrived(0, 12, 2000)
    assert times.samples == [(800, 3), (1900, 10), (1800, 2)]


def test_an_answer_to_nothing_sent_is_not_a_sample() -> None:
    times = RunTimes()
    times.add(3, 100)
    times.arrived(3, 9, 1000)
    assert times.samples == []


def test_cpu_time_of_this_process_grows_with_work() -> None:
    before = cpu_seconds(os.getpid())
    spent = time.process_time()
    while time.process_time() - spent < 0.1:
        pass
    after = cpu_seconds(os.getpid())
    assert before is not None
    assert after is not None
    assert 0.05 <= after - before <= 2


def test_cpu_time_of_no_process_is_unknown() -> None:
    assert cpu_seconds(2**30) is None


def test_the_listener_on_a_port_is_found() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        assert listener(port) is None
        listening.listen()
        assert listener(port) == os.getpid()


def test_the_file_system_of_a_path_is_named() -> None:
    assert file_system(Path("/proc/self")) == "proc"


def test_rows_are_selected_by_pattern() -> None:
    assert select("") == list(ROWS)
    assert next(row.key for row in select("amqp-in,stomp-b*")) == "amqp-in"
    assert {row.protocol for row in select("stomp-*")} == {"stomp"}
    with pytest.raises(ValueError, match=r"No row is called 'nothing'.*amqp-in"):
        select("stomp-*,nothing")


def test_keys_are_unique_and_scaled_counts_fit_the_connections() -> None:
    assert len({row.key for row in ROWS}) == len(ROWS)
    for row in ROWS:
        for scale in (0.001, 0.3, 1.0):
            assert row.scaled(scale) % row.connections == 0
            assert row.scaled(scale) >= row.connections
        assert row.scaled(1.0) == row.count


def test_medians_leave_out_what_was_not_measured() -> None:
    found = report.middle([figures(10, p50=None), figures(30, p50=5.0), figures(20, p50=7.0)])
    assert found.rate == 20
    assert found.p50 == 6.0
    assert report.middle([figures(1, cpu=None)]).cpu is None


def test_the_table_has_a_ratio_where_there_is_a_peer() -> None:
    line = report.Line(ROWS[0], 100, [figures(300_000)], [figures(100_000, p50=None)])
    heads = report.columns(peer="peer")
    texts = report.plain(heads, [report.cells(line, peer="peer")])
    assert texts[0].split()[-1] == "ratio"
    assert texts[1].split() == (
        ["AMQP", "in", "300,000", "1.00", "2.00", "1.50", "100,000", "-", "2.00", "1.50", "3.00"]
    )
    alone = report.cells(report.Line(ROWS[0], 100, [figures(5)]), peer="peer")
    assert alone[-1] == "-"
    assert len(report.cells(line, peer=None)) == len(report.columns(peer=None)) == 5


def test_json_holds_every_round() -> None:
    line = report.Line(ROWS[0], 100, [figures(1), figures(3)], [figures(2)])
    found = json.loads(json.dumps(report.as_json([line], {"processor": "x"}, 256)))
    assert found["rows"][0]["key"] == ROWS[0].key
    assert [one["rate"] for one in found["rows"][0]["rounds"]] == [1, 3]
    assert found["rows"][0]["ratio"] == 1.0
    assert (
        report.as_json([report.Line(ROWS[0], 1, [figures(1)])], {}, 1)["rows"][0]["ratio"] is None
    )


def test_a_peer_is_warm_when_three_runs_agree() -> None:
    assert not is_flat([100, 100])
    assert not is_flat([100, 100, 90])
    assert is_flat([10, 100, 97, 99])


def test_the_rows_can_be_listed() -> None:
    result = CliRunner().invoke(bench, ["--list", "--rows", "amqp-*w1"])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == [
        "amqp-in-w1",
        "amqp-in-durable-w1",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--rows", "nothing"], "No row is called 'nothing'"),
        (["--against", "localhost"], "is not HOST:PORT"),
        (["--target", "a:1", "--target-stomp", "b:2"], "must be on one host"),
    ],
)
def test_what_cannot_be_measured_is_named(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(bench, arguments)
    assert result.exit_code == 2
    assert text in result.output


def test_beside_a_peer_a_narrow_terminal_gets_every_figure_within_80_columns() -> None:
    lines = [Line(row, 1) for row in ROWS]
    for line in lines:
        line.ours.append(figures(12_345_678.9, p50=1234.5, p99=12345.6, cpu=1234.5))
        line.peer.append(figures(12_345.6))
    shown = report.stacked(lines, peer="peer")
    assert len(shown) == 3 * len(ROWS)
    assert max(map(len, shown)) <= 80
    assert "ratio 1000.01" in shown[0]
    assert "12,345,679 msg/s" in shown[1]
    assert "peer" in shown[2]
