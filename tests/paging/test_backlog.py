"""A backlog of a hundred thousand on pages: no object per message, exact figures, strict order."""

from __future__ import annotations

from tests.paging.backlog import run_backlog

MESSAGES = 100_000


def test_a_large_backlog_costs_little_memory_and_loses_nothing(tmp_path):
    measured = run_backlog(tmp_path, MESSAGES, 200)
    # As objects these would be 40 MB and more.
    assert measured.sent_bytes < 12 << 20
    assert measured.disk_bytes > MESSAGES * 200
