"""The bench of pages: what it prints, and that it pages."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from gateway.bench import pages
from gateway.bench.pages import COUNT_MIN, Found, main, middle, show
from gateway.trial.scratch import ScratchGateway


def test_medians():
    rounds = [Found(sent=1, read=9), Found(sent=3, read=7), Found(sent=2, read=8)]
    assert middle(rounds) == Found(sent=2, read=8)


def test_the_ratio_is_that_of_what_is_read_back(capsys):
    show(Found(sent=10, read=30), Found(sent=40, read=20), as_json=False)
    assert "1.50 times" in capsys.readouterr().out
    show(Found(sent=10, read=30), None, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["ratio"], found["peer"]) == (None, None)
    assert found["ours"] == {"sent": 10, "read": 30}


def test_a_backlog_that_memory_has_room_for_is_refused():
    answer = CliRunner().invoke(main, ["--count", str(COUNT_MIN - 1)])
    assert answer.exit_code == 2
    assert str(COUNT_MIN) in answer.output


def test_it_is_run_beside_another_gateway(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "MEMORY_BYTES", 1 << 18)
    with ScratchGateway(tmp_path) as peer:
        place = f"127.0.0.1:{peer.port}"
        options = ["--against", place, "--address", "q.other", "--count", "2048", "--json"]
        answer = CliRunner().invoke(main, options)
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.output[answer.output.index("{") :])
    assert found["ratio"] == pytest.approx(found["ours"]["read"] / found["peer"]["read"])


def test_what_did_not_page_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "MEMORY_BYTES", 1 << 30)
    answer = CliRunner().invoke(main, ["--count", "2048"])
    assert answer.exit_code == 1
    assert "0 bytes of 2048 messages are on pages" in answer.output
