"""A million messages through a real gateway that is killed: memory, start, order, exact depth.

`make soak` does the same with ten million.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.paging.soak import run_soak

MESSAGES = 1_000_000


@pytest.mark.timeout(600)
def test_a_million_messages_cost_no_memory_and_no_time_to_start(tmp_path: Path) -> None:
    said = io.StringIO()
    assert run_soak(tmp_path, MESSAGES, 200, Console(file=said)), said.getvalue()
