"""How a query's progress becomes totals, a bar, JSON and metrics; and the pipelines' options."""

from __future__ import annotations

import io
import itertools
import json
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark_sluicegate.options import SluicegateError, parse_options
from pyspark_sluicegate.pipelines import dead_letters, rollup
from pyspark_sluicegate.pipelines.arguments import EX_USAGE, cause_of, first_line
from pyspark_sluicegate.pipelines.progress import Progress, metrics_text
from pyspark_sluicegate.pipelines.running import Interrupts, QueryTotals, wait
from pyspark_sluicegate.sink_options import parse_sink_options

ROLLUP = ["--url", "http://a:1", "--address", "orders", "--to", "totals", "--checkpoint", "/c"]
LETTERS = ["--url", "http://a:1", "--address", "DLQ"]


def trigger(second: int, rows: int, **given: Any) -> dict[str, Any]:
    """Return what Spark tells of one trigger, as `StreamingQueryProgress` has it."""
    offset = {"q": {"orders": [1, 10 * second]}, "s": "rollup", "v": 1}
    return {
        "timestamp": f"2026-03-04T12:00:{second:02}.000Z",
        "durationMs": {"addBatch": 5},
        "sources": [{
            "numInputRows": rows, "endOffset": json.dumps(offset),
            "latestOffset": json.dumps({**offset, "q": {"orders": [1, 100]}}),
        }],
        "stateOperators": [{"numRowsDroppedByWatermark": 2, "numRowsTotal": 7}],
        "observedMetrics": {"read": {"untimed": 1}, "sent": {"results": 4}},
        **given,
    }  # fmt: skip


def test_each_trigger_counts_once() -> None:
    totals = QueryTotals()
    told = [trigger(1, 5), trigger(2, 6)]
    assert [totals.take(one) for one in (*told, *told, trigger(3, 0, durationMs={}))] == [
        True, True, False, False, True,
    ]  # fmt: skip
    assert totals.counters() == {
        "batches": 2, "rows": 11, "results": 12, "late": 6, "untimed": 3,
    }  # fmt: skip
    assert totals.gauges() == {"open_groups": 7}
    assert totals.lags() == {"orders": 70}
    assert totals.share() == pytest.approx(11 / 81)


def test_a_query_without_state_tells_of_none() -> None:
    totals = QueryTotals(stateful=False)
    assert totals.take(trigger(1, 5, stateOperators=[], observedMetrics={}))
    assert totals.counters() == {"batches": 1, "rows": 5}
    assert "late" not in totals.summary(1.0)


@pytest.mark.parametrize("offset", [None, "None", "no offset", "[1]", {}])
def test_an_offset_that_is_none_yet(offset: Any) -> None:
    one = {"numInputRows": 0, "endOffset": offset, "latestOffset": offset}
    totals = QueryTotals()
    assert totals.take(trigger(1, 0, sources=[one]))
    assert totals.lags() == {}
    assert totals.share() == 1.0


def test_json_lines_a_bar_and_metrics_of_each_pipeline(tmp_path: Path) -> None:
    totals, clock = QueryTotals(), itertools.count().__next__
    totals.take(trigger(2, 6))
    out = io.StringIO()
    file = tmp_path / "metrics"
    progress = Progress("json", str(file), lambda: float(clock()), out, pipeline="rollup")
    progress.tell(totals)
    told = json.loads(out.getvalue())
    assert told["late"] == 2
    assert told["open_groups"] == 7
    assert told["lag"] == {"orders": 80}
    text = file.read_text()
    assert "sluicegate_rollup_late_total 2\n" in text
    assert "# TYPE sluicegate_rollup_open_groups gauge\n" in text
    assert 'sluicegate_rollup_lag_offsets{stream="orders"} 80\n' in text
    assert "sluicegate_to_kafka_rows_total 6" in metrics_text(totals, "to-kafka")
    bar = progress.line(totals)
    assert bar.startswith("[##........")
    assert "2 late" in bar


def test_without_a_terminal_one_line_at_the_end_says_what_was_done() -> None:
    totals, out = QueryTotals(), io.StringIO()
    progress = Progress("auto", "", lambda: 1.0, out, pipeline="rollup")
    progress.end()
    assert out.getvalue() == "", "nothing was done"
    for batch in (1, 2):
        totals.take(trigger(batch, 6))
        progress.tell(totals)
    assert out.getvalue() == ""
    progress.end()
    (line,) = out.getvalue().splitlines()
    assert line.startswith("rollup: 12 rows")


def test_the_cause_of_an_error_is_one_line_without_codes() -> None:
    assert first_line("\n[A.B] It is wrong. SQLSTATE: 42703; line 1\nmore") == "It is wrong."
    assert cause_of(ValueError("\nplain\n")) == "plain"
    wrapped = "Job aborted\npyspark_sluicegate.options.SluicegateError: the reason\n at x"
    assert cause_of(RuntimeError(wrapped)) == "the reason"


def test_options_of_the_rollup_fit_source_and_sink() -> None:
    given = rollup.make_parser().parse_args([*ROLLUP, "--key", "headers.n", "--sum", "body.a"])
    plan = rollup.make_plan(given)
    source = rollup.source_options(given, plan)
    assert parse_options(source)["columns"] == ["timestamp", "body", "headers"]
    assert parse_sink_options(rollup.sink_options(given))["address"] == "totals"
    pattern = rollup.make_parser().parse_args([*ROLLUP, "--address", "orders.#"])
    assert "addressPattern" in rollup.source_options(pattern, rollup.make_plan(pattern))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (["--to", "orders"], "would be counted, too"),
        (["--address", "#"], "would be counted, too"),
        (["--url", "http://b:1"], "--to-url"),
        (["--window", "1m"], "--window is '1m'"),
        (["--key", "count"], "would stand twice"),
        (["--sum", "body.a * 2"], "without a name"),
    ],
)
def test_what_a_rollup_refuses(wrong: list[str], text: str) -> None:
    given = rollup.make_parser().parse_args([*ROLLUP, *wrong])
    with pytest.raises(SluicegateError, match=text):
        rollup.RollupJob(None, given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (["--url", "http://b:1"], "one at a time"),
        (["--address", "dead.#"], "one address at a time"),
        (["--to", "a"], "--to is for --redrive"),
        (["--to-queue"], "--to-queue is for --redrive"),
        (["--redrive", "--to", "DLQ"], "would double"),
        (["--redrive", "--to", "a", "--to-queue"], "say two places"),
        (["--batch", "many"], "--batch"),
    ],
)
def test_what_dead_letters_refuses(wrong: list[str], text: str) -> None:
    given = dead_letters.make_parser().parse_args([*LETTERS, *wrong])
    with pytest.raises(SluicegateError, match=text):
        dead_letters.DeadLetterJob(None, given)  # type: ignore[arg-type]


def test_a_wrong_command_line_has_the_status_of_our_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        rollup.main(["--nonsense"])
    assert ended.value.code == EX_USAGE
    assert "try: rollup --help" in capsys.readouterr().err


class Query:
    """A streaming query whose batch `ends` after so many looks at it."""

    isActive = True

    def __init__(self, ends: int) -> None:
        self.looks = 0
        self.ends = ends
        self.waited: list[int] = []

    @property
    def status(self) -> dict[str, bool]:
        self.looks += 1
        return {"isTriggerActive": self.looks <= self.ends}

    lastProgress = None

    def awaitTermination(self, seconds: int) -> bool:
        self.waited.append(seconds)
        return False


def test_an_interrupt_lets_the_batch_that_runs_end_and_the_second_waits_for_nothing() -> None:
    interrupts, query = Interrupts(), Query(ends=3)
    assert not wait(query, interrupts)  # type: ignore[arg-type]
    assert (query.waited, query.looks) == ([1], 0)
    interrupts.check()
    interrupts.note()
    assert wait(query, interrupts)  # type: ignore[arg-type]
    assert (query.waited, query.looks) == ([1], 4)
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()
    with pytest.raises(KeyboardInterrupt):
        interrupts.note()


def test_signals_are_heard_inside_and_go_back_to_whose_they_were() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    interrupts = Interrupts()
    with interrupts.heard():
        signal.raise_signal(signal.SIGTERM)
        assert interrupts
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
