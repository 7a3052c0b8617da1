"""The demo: its arithmetic, its screen, and once the whole of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.demo import command as demo_module
from gateway.demo.orders import (
    PRICES,
    SCHEMA,
    Total,
    differences,
    encoded,
    expected,
    order,
    read_total,
)
from gateway.demo.screen import LineScreen, table
from gateway.demo.senders import RUN, Orders, Sender


def test_an_order_is_json_with_the_columns_of_the_schema() -> None:
    one = json.loads(encoded(12))
    assert one == order(12)
    assert list(one) == [column.split(" ")[0] for column in SCHEMA.split(", ")]
    assert one["cents"] == one["pieces"] * PRICES[one["product"]]


@given(st.integers(1, 400))
def test_totals_are_those_of_both_halves_together(count: int) -> None:
    whole = expected(range(count))
    assert sum(total.orders for total in whole.values()) == count
    even, odd = expected(range(0, count, 2)), expected(range(1, count, 2))
    for name, total in whole.items():
        parts = [half[name] for half in (even, odd) if name in half]
        assert total.cents == sum(part.cents for part in parts)
        assert total.pieces == sum(part.pieces for part in parts)


def test_every_product_is_ordered() -> None:
    assert set(expected(range(100))) == set(PRICES)


def test_a_difference_is_named_and_agreement_is_silent() -> None:
    wanted = expected(range(50))
    assert differences(wanted, dict(wanted)) == []
    twice = {**wanted, "tea": Total(orders=99, pieces=1, cents=100)}
    (line,) = differences(wanted, twice)
    assert line.startswith("tea: sent ")
    assert "Spark has 99 orders, 1 pieces, 1.00" in line
    lost = {name: total for name, total in wanted.items() if name != "mate"}
    assert [text.split(":")[0] for text in differences(wanted, lost)] == ["mate"]
    unknown = {**wanted, "None": Total(orders=1, pieces=0, cents=0)}
    assert [text.split(":")[0] for text in differences(wanted, unknown)] == ["None"]


def test_a_total_is_read_from_what_spark_sends() -> None:
    sent = '{"product":"tea","orders":3,"pieces":7,"cents":3150}'
    assert read_total(sent) == ("tea", Total(orders=3, pieces=7, cents=3150))


def test_the_table_adds_up() -> None:
    lines = table(expected(range(100)))
    assert lines[0].split() == ["product", "orders", "pieces", "amount"]
    assert [line.split()[0] for line in lines[1:]] == [*PRICES, "all"]
    assert lines[-1].split()[1] == "100"
    assert len({len(line) for line in lines}) == 1


def test_lines_come_at_most_once_a_second_but_the_last_one_always(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = LineScreen()
    total = {"AMQP": 10, "Spark": 20}
    screen.counts({"AMQP": 1, "Spark": 0}, total, 100.0)
    screen.counts({"AMQP": 5, "Spark": 1}, total, 100.5)
    screen.counts({"AMQP": 6, "Spark": 1}, total, 101.0)
    screen.counts({"AMQP": 6, "Spark": 1}, total, 105.0)
    screen.counts({"AMQP": 10, "Spark": 20}, total, 105.1)
    out = capsys.readouterr().out.splitlines()
    assert [line.split() for line in out] == [
        ["AMQP", "1/10", "Spark", "0/20"],
        ["AMQP", "6/10", "Spark", "1/20"],
        ["AMQP", "10/10", "Spark", "20/20"],
    ]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stomp", None)
    with pytest.raises(click.ClickException, match=r"needs stomp.py: pip install"):
        demo_module.require_libraries()


def test_a_sender_hands_its_port_and_its_orders_to_its_client() -> None:
    orders = Orders(range(3), seconds=0)
    asked = []

    def send_all(port: int, given: Orders) -> None:
        asked.append(port)
        given.confirmed = len(given.numbers)

    sender = Sender("a client", send_all, 5672, orders)
    sender.run()
    assert asked == [5672]
    assert orders.confirmed == 3
    assert sender.failure is None


def test_a_sender_keeps_the_failure_of_its_client() -> None:
    fault = RuntimeError("2 receipts did not come")

    def send_all(port: int, given: Orders) -> None:
        raise fault

    sender = Sender("a client", send_all, 5672, Orders(range(3), seconds=0))
    sender.run()
    assert sender.failure is fault


def test_orders_pause_between_runs_and_end_there_once_they_are_cancelled() -> None:
    orders = Orders(range(2 * RUN), seconds=0)
    assert [sent for sent in range(1, 2 * RUN + 1) if orders.pause(sent)] == []
    orders.cancel()
    assert [sent for sent in range(1, 2 * RUN + 1) if orders.pause(sent)] == [RUN, 2 * RUN]


@pytest.mark.spark
@pytest.mark.interop
def test_the_demo_counts_every_order_once(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "gateway", "demo", "--orders", "600", "--seconds", "1"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=200,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "Each of 600 orders was counted once." in answer.stdout
    assert re.search(r"all +600 ", answer.stdout)
    assert answer.stderr == ""
    assert list(tmp_path.glob("sluicegate-*")) == []
