"""Last-value and non-destructive queues in the configuration file."""

from __future__ import annotations

from pathlib import Path

from tests.config.test_load import problems, read

FILE = """
[address-settings."prices.#"]
default-last-value-key = "share"
default-non-destructive = true

[addresses.orders]
queues = [{ name = "last", last-value = true }, { name = "all", non-destructive = true }]
"""


def test_the_file_says_what_kind_a_queue_is(tmp_path: Path) -> None:
    config = read(tmp_path, FILE)
    assert [q.attributes for q in config.addresses[0].queues] == [
        {"last_value": True},
        {"non_destructive": True},
    ]
    settings = config.address_settings.for_address("prices.x")
    assert settings.default_last_value_key == "share"
    assert settings.default_non_destructive
    assert not config.address_settings.for_address("x").default_non_destructive


def test_a_key_that_names_no_property_is_a_problem(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, FILE.replace("share", "x" * 300))
    assert "default-last-value-key" in problem
    assert "no name of a property" in problem
