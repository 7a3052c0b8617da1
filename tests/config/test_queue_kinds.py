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
    # A reload looks for what is new in a set.
    assert frozenset(config.addresses) == frozenset(read(tmp_path, FILE).addresses)
    settings = config.address_settings.for_address("prices.x")
    assert settings.default_last_value_key == "share"
    assert settings.default_non_destructive
    assert not config.address_settings.for_address("x").default_non_destructive


def test_a_key_that_names_no_property_is_a_problem(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, FILE.replace("share", "x" * 300))
    assert "default-last-value-key" in problem
    assert "no name of a property" in problem


GROUPS = """
[address-settings."#"]
default-group-buckets = 16
default-group-rebalance = true
default-group-rebalance-pause-dispatch = true
default-group-first-key = "first"

[addresses.a]
queues = [{ name = "q", group-buckets = 0, group-first-key = "f", consumer-priority = -2 }]
"""


def test_the_file_says_how_groups_are_shared_out(tmp_path: Path) -> None:
    config = read(tmp_path, GROUPS)
    settings = config.address_settings.for_address("a")
    assert settings.default_group_buckets == 16
    assert settings.default_group_rebalance
    assert settings.default_group_rebalance_pause_dispatch
    assert settings.default_group_first_key == "first"
    assert config.addresses[0].queues[0].attributes == {
        "group_buckets": 0,
        "group_first_key": "f",
        "consumer_priority": -2,
    }
    (problem,) = problems(tmp_path, GROUPS.replace("= 16", "= -2"))
    assert "default-group-buckets" in problem


def test_the_file_says_which_queues_go_by_themselves(tmp_path: Path) -> None:
    text = """[addresses.a]
[[addresses.a.queues]]
name = "q"
auto-delete = true
auto-delete-delay = "2s"
auto-delete-message-count = -1
"""
    config = read(tmp_path, text)
    assert config.addresses[0].queues[0].attributes == {
        "auto_delete": True,
        "auto_delete_delay": 2000,
        "auto_delete_message_count": -1,
    }
    (problem,) = problems(tmp_path, text.replace("count = -1", "count = -2"))
    assert "auto-delete-message-count: -2 is out of range" in problem
    (problem,) = problems(tmp_path, text.replace('"2s"', "-1"))
    assert "auto-delete-delay: -1 is out of range" in problem
