"""Limits of addresses, queues, consumers and links: by user and for all, in the configuration."""

from __future__ import annotations

import pytest

from gateway.config.check import HostFacts, build
from gateway.config.errors import ConfigError
from gateway.config.objects import object_limits
from gateway.config.reach import Reach, reach_of
from gateway.config.sources import Layers
from gateway.config.tree import Config
from gateway.model.objects import Kind

HOST = HostFacts(memory_bytes=8 << 30, working_directory="/w", data_directory="/d")
KEYS = [f"{whose}-max-{kind.value}" for whose in ("user", "global") for kind in Kind]


def read(text: str) -> Config:
    layers = Layers()
    layers.add_file(text, "f.toml")
    return build(layers, HOST, "/w/f.toml")


def limit_of(config: Config, key: str) -> int:
    whose, _, kind = key.split("-")
    limits = object_limits(config)
    return (limits.user if whose == "user" else limits.gateway)[Kind(kind)]


@pytest.mark.parametrize("key", KEYS)
def test_each_limit_is_read_has_a_finite_default_and_changes_by_a_reload(key: str) -> None:
    assert limit_of(read(""), key) > 0
    config = read(f"{key} = 7")
    assert limit_of(config, key) == 7
    assert object_limits(config).origins[key] == "f.toml:1"
    assert limit_of(read(f"{key} = -1"), key) == -1
    assert reach_of("", key) is Reach.AT_ONCE


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", ["0", "-2", "'many'"])
def test_what_is_no_limit_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"{key} = {value}")
    (problem,) = caught.value.problems
    assert (problem.where, problem.path) == ("f.toml:1", key)


def test_the_key_of_artemis_for_single_users_is_refused_with_what_stands_instead() -> None:
    with pytest.raises(ConfigError, match="user-max-queues"):
        read("[resource-limit-settings.ann]\nmax-queues = 3")
