"""Layers merge in order and remember where each value came from."""

from __future__ import annotations

import pytest

from gateway.config.sources import Layers, toml_or_text


def test_tables_merge_and_later_layers_win() -> None:
    layers = Layers()
    layers.tree["acceptors"] = {"all": {"endpoint": "tcp:5672"}}
    layers.add_file('name = "file"\n[logging]\nlevel = "info"\nformat = "json"\n', "f.toml")
    layers.add_environment({"SLUICEGATE__LOGGING__LEVEL": "debug", "OTHER": "x", "SLUICEGATE": "y"})
    layers.add_set('logging.format="human"')
    layers.add_set("acceptors.all.endpoint=tcp:5673:interface=127.0.0.1")
    assert layers.problems == []
    assert layers.tree == {
        "name": "file",
        "logging": {"level": "debug", "format": "human"},
        "acceptors": {"all": {"endpoint": "tcp:5673:interface=127.0.0.1"}},
    }
    assert layers.origin(("name",)) == "f.toml:1"
    assert layers.origin(("logging", "level")) == "environment SLUICEGATE__LOGGING__LEVEL"
    assert layers.origin(("logging", "format")).startswith("--set logging.format")
    assert layers.origin(("logging", "nothing")) == "f.toml:2"
    assert layers.origin(("elsewhere",)) == ""


def test_acceptors_of_a_file_replace_the_default_ones_and_sets_edit_what_is_left() -> None:
    layers = Layers()
    layers.tree["acceptors"] = {"all": {"endpoint": "a"}, "stomp": {"endpoint": "b"}}
    layers.add_file('[acceptors.mine]\nendpoint = "c"\n', "f.toml")
    layers.add_set("acceptors.mine.amqp-credits=5")
    assert layers.tree["acceptors"] == {"mine": {"endpoint": "c", "amqp-credits": 5}}


def test_a_replaced_value_takes_its_origins_with_it() -> None:
    layers = Layers()
    layers.add_file('[addresses.a]\nqueues = [{ name = "q" }]\n', "f.toml")
    layers.add_set("addresses.a=5")
    assert layers.origin(("addresses", "a", "queues")) == "--set addresses.a=5"


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("max-disk-usage=80", ("max-disk-usage",), 80),
        ("name=edge-1", ("name",), "edge-1"),
        ("name=a=b", ("name",), "a=b"),
        ("name=", ("name",), ""),
        ("allow-insecure = true", ("allow-insecure",), True),
        (
            'address-settings."a.#".max-size-bytes="1MiB"',
            ("address-settings", "a.#", "max-size-bytes"),
            "1MiB",
        ),
        ("address-settings.'x=y'.no-expiry=true", ("address-settings", "x=y", "no-expiry"), True),
        (
            "address-settings.#.default-ring-size=5",
            ("address-settings", "#", "default-ring-size"),
            5,
        ),
        (
            'authentication=[{type="file",path="u"}]',
            ("authentication",),
            [{"type": "file", "path": "u"}],
        ),
    ],
)
def test_set(text: str, path: tuple[str, ...], value: object) -> None:
    layers = Layers()
    layers.add_set(text)
    assert layers.problems == []
    found: object = layers.tree
    for part in path:
        assert isinstance(found, dict)
        found = found[part]
    assert found == value


@pytest.mark.parametrize("text", ["name", "=5", "a..b=1", ".a=1", "a.=1", '"a=1'])
def test_what_is_no_assignment_is_a_problem(text: str) -> None:
    layers = Layers()
    layers.add_set(text)
    (problem,) = layers.problems
    assert problem.where == f"--set {text}"
    assert layers.tree == {}


def test_a_key_below_a_value_is_a_problem() -> None:
    layers = Layers()
    layers.add_file('name = "x"\n', "f.toml")
    layers.add_set("name.first=1")
    (problem,) = layers.problems
    assert "name is a value, not a table" in str(problem)


def test_an_empty_part_in_a_variable_is_a_problem() -> None:
    layers = Layers()
    layers.add_environment({"SLUICEGATE__A____B": "1"})
    assert len(layers.problems) == 1


def test_a_broken_file_is_one_problem_with_its_line() -> None:
    layers = Layers()
    layers.add_file("name = \n", "f.toml")
    (problem,) = layers.problems
    assert "f.toml: is not TOML" in str(problem)
    assert "line 1" in str(problem)


def test_values_that_are_no_toml_are_texts() -> None:
    assert toml_or_text("tcp:1") == "tcp:1"
    assert toml_or_text("1\nother = 2") == "1\nother = 2"
    assert toml_or_text("[1, 2]") == [1, 2]
