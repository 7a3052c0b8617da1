"""Users, exposure and certificates, as they are read before any listener opens."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.task import Clock

from gateway.assembly.access import Logins, make_gate, read_certificates
from gateway.config.check import HostFacts
from gateway.config.errors import ConfigError
from gateway.config.load import load
from gateway.config.tree import Config
from gateway.reload.reading import read_again
from gateway.security.around import ReactorSurroundings
from gateway.security.gate import Why
from gateway.tokens.issuing import Issuing
from tests.certificates import Authority

KEY = b"k" * 32


def config(folder: Path, *sets: str) -> Config:
    host = HostFacts(memory_bytes=1 << 30, working_directory="/w", data_directory=str(folder))
    return load(None, (f"data-directory={folder}", *sets), environment={}, host=host)


def around() -> ReactorSurroundings:
    return ReactorSurroundings(Clock())


def read(settings: Config) -> list[str]:
    """Return the listeners that have a certificate."""
    found = read_certificates(settings, seconds=lambda: 0.0, now_ms=lambda: 0)
    return list(found)


def test_without_a_users_file_the_gate_is_open_on_this_machine(tmp_path: Path) -> None:
    gate = make_gate(config(tmp_path), around(), KEY)
    assert gate.open


def test_an_open_gate_for_other_machines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="acceptors"):
        make_gate(config(tmp_path, "acceptors.all.endpoint=tcp:5672"), around(), KEY)


def test_a_users_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    (tmp_path / "users.toml").write_text("[", "utf-8")
    with pytest.raises(ConfigError, match=r"users\.toml.* is not TOML"):
        make_gate(config(tmp_path), around(), KEY)


def test_listeners_over_tls_have_their_contexts_by_path(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "made").issue()
    sets = [
        f"acceptors.all.tls.{name}={path}"
        for name, path in (("certificate", pair.certificate), ("key", pair.key))
    ]
    assert read(config(tmp_path)) == []
    assert read(config(tmp_path, *sets)) == ["acceptors.all"]


def test_all_certificates_that_cannot_be_read_are_told_at_once(tmp_path: Path) -> None:
    sets = [
        f"{path}.tls.{name}=/nowhere/{path}.pem"
        for path in ("acceptors.all", "management")
        for name in ("certificate", "key")
    ]
    with pytest.raises(ConfigError) as caught:
        read(config(tmp_path, *sets))
    told = [problem.path for problem in caught.value.problems]
    assert told == ["acceptors.all.tls.certificate", "management.tls.certificate"]


def test_logins_count_both_ends(tmp_path: Path) -> None:
    surroundings = around()
    gate = make_gate(config(tmp_path), surroundings, KEY)
    logins = Logins(gate, surroundings)
    gate.accepted += 2
    surroundings.refused("ann", "192.0.2.1", next(iter(Why)))
    assert logins.accepted == 2
    assert sum(logins.refusals.values()) == 1


RULE = "certificate-users=[{user='ann', subject='CN=ann'}]"


def test_rules_of_certificates_close_the_gate_as_users_do(tmp_path: Path) -> None:
    assert not make_gate(config(tmp_path, RULE), around(), KEY, lambda: 0).open
    pair = Authority(tmp_path / "made").issue()
    sets = [
        "acceptors.all.endpoint=tcp:5672",
        f"acceptors.all.tls.certificate={pair.certificate}",
        f"acceptors.all.tls.key={pair.key}",
    ]
    with pytest.raises(ConfigError, match="no user is configured"):
        make_gate(config(tmp_path, *sets), around(), KEY)
    assert not make_gate(config(tmp_path, *sets, RULE), around(), KEY, lambda: 0).open


def test_a_reload_does_not_open_the_gate_by_taking_the_last_rule_away(tmp_path: Path) -> None:
    ruled, issuing = config(tmp_path, RULE), Issuing(Clock(), lambda: 0)
    with pytest.raises(ConfigError, match="has no users any more"):
        read_again(lambda: config(tmp_path), ruled, {}, issuing)
    assert read_again(lambda: ruled, config(tmp_path), {}, issuing).held.certificate_users
