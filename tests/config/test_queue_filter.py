"""The filter of a queue in the configuration file."""

from __future__ import annotations

from pathlib import Path

from tests.config.test_load import problems, read

FILE = """
[addresses.orders]
queues = [{ name = "red", filter = "colour = 'red'" }, { name = "all" }]
"""


def test_the_file_gives_a_queue_its_filter(tmp_path: Path) -> None:
    config = read(tmp_path, FILE)
    assert [q.filter for q in config.addresses[0].queues] == ["colour = 'red'", None]


def test_a_wrong_filter_is_named_with_its_line_and_column(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, FILE.replace("colour = 'red'", "colour = "))
    assert "f.toml:3" in problem
    assert "filter" in problem
    assert "column 10" in problem
