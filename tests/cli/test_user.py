"""`sluicegate user`: every command of it, in text and JSON, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.errors import CliError
from gateway.cli.user import user
from gateway.security.passwords import verify_password
from gateway.security.users import Users, parse_users
from gateway.trial.scratch import importing_environment


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ask(*arguments: str, text: str = "") -> Result:
    where = () if "-c" in arguments else ("--data", "d")
    return CliRunner().invoke(user, [*arguments, *where], input=text, standalone_mode=False)


def refused(*arguments: str, text: str = "") -> CliError:
    error = ask(*arguments, text=text).exception
    assert isinstance(error, CliError)
    return error


def good(*arguments: str, text: str = "") -> str:
    done = ask(*arguments, text=text)
    assert done.exit_code == 0, done.output
    return done.stdout


def add(name: str, *options: str, password: str = "pw") -> str:
    return good("add", name, "--password-stdin", *options, text=password + "\n")


def users() -> Users:
    return parse_users(Path("d/users.toml").read_text())


def test_a_user_from_its_first_day_to_its_last() -> None:
    said = add("ann", "--role", "view", "--role", "shop")
    assert "roles: shop, view; logs in by PLAIN" in said
    add("bob", "--scram")
    assert users()["ann"].roles == {"shop", "view"}
    listed = good("list")
    assert listed.splitlines() == [
        "user  roles       logs in by",
        "ann   shop, view  PLAIN",
        "bob   -           PLAIN, SCRAM-SHA-256",
    ]
    good("roles", "ann", "--add", "edit", "--remove", "shop")
    assert users()["ann"].roles == {"edit", "view"}
    good("roles", "ann", "manage", "shop")
    assert users()["ann"].roles == {"manage", "shop"}
    assert "roles: manage, shop" in good("roles", "ann")
    good("roles", "ann", "--none")
    assert users()["ann"].roles == frozenset()
    good("passwd", "ann", "--password-stdin", text="new\n")
    assert verify_password(users()["ann"].password, "new")
    assert "is removed" in good("remove", "ann")
    assert set(users()) == {"bob"}
    assert Path("d/users.toml").stat().st_mode & 0o777 == 0o600


def test_json_has_no_secret() -> None:
    made = add("ann", "--role", "view", "--scram", "--json")
    assert json.loads(made) == {
        "user": "ann",
        "roles": ["view"],
        "mechanisms": ["PLAIN", "SCRAM-SHA-256"],
    }
    for said in (good("list", "--json"), good("roles", "ann", "--json")):
        assert json.loads(said) == json.loads(made)
    assert json.loads(good("passwd", "ann", "--password-stdin", "--json", text="x\n"))["roles"]
    add("bob")
    assert json.loads(good("remove", "ann", "--json")) == {"user": "ann", "removed": True}


def test_another_password_goes_for_all_ways_to_log_in() -> None:
    add("ann", "--scram", "--role", "view")
    before = users()["ann"]
    good("passwd", "ann", "--password-stdin", text="new\n")
    after = users()["ann"]
    assert after.roles == before.roles
    assert after.verifiers.keys() == before.verifiers.keys()
    assert after.verifiers != before.verifiers
    add("bob")
    good("passwd", "bob", "--password-stdin", "--scram", text="new\n")
    assert set(users()["bob"].verifiers) == {"SCRAM-SHA-256"}


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("passwd", "anne", "--password-stdin"), 1, "no user anne; did you mean ann?"),
        (("roles", "eve", "view"), 1, "no user eve"),
        (("remove", "eve"), 1, "no user eve"),
        (("add", "ann", "--password-stdin"), 64, "exists already"),
        (("roles", "ann", "view", "--add", "edit"), 64, "give the roles"),
        (("roles", "ann", "--none", "--remove", "view"), 64, "give the roles"),
        (("roles", "ann", "--remove", "edit"), 64, "does not have the role edit"),
        (("roles", "ann", " view"), 64, "is no role"),
        (("roles", "ann", "a\nb"), 64, "is no role"),
        (("add", "bob", "--password-stdin", "--role", ""), 64, "is no role"),
        (("remove", "ann"), 64, "is the last user"),
    ],
)
def test_what_cannot_be_changes_nothing(arguments: tuple[str, ...], status: int, told: str) -> None:
    add("ann", "--role", "view")
    before = Path("d/users.toml").read_text()
    error = refused(*arguments, text="pw\n")
    assert (error.status, Path("d/users.toml").read_text()) == (status, before)
    assert told in str(error)


def test_a_role_of_which_nothing_is_asked_is_told() -> None:
    done = ask("add", "ann", "--role", "view", "--password-stdin", text="pw\n")
    assert "without [security-settings] whoever logs in may do all" in done.stderr


def test_the_last_one_may_go_where_a_directory_knows_users() -> None:
    add("ann")
    Path("f.toml").write_text(
        'data-directory = "d"\n[ldap]\nurl = "ldaps://x"\nsearch-base = "o"\n'
    )
    good("remove", "ann", "-c", "f.toml")
    assert users() == {}


def test_a_file_of_nonsense_is_left_alone() -> None:
    Path("d").mkdir()
    Path("d/users.toml").write_text("[users.ann\n")
    for arguments in (("list",), ("roles", "ann", "view"), ("remove", "ann")):
        error = refused(*arguments)
        assert error.status == 64
        assert "users.toml: is not TOML" in str(error)
    assert Path("d/users.toml").read_text() == "[users.ann\n"


def test_commands_at_the_same_time_lose_nothing() -> None:
    running = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "gateway", "user", "add", f"u{number}"),
                *("--password-stdin", "--data", "d"),
            ],
            stdin=subprocess.PIPE,
            text=True,
            env=importing_environment(),
        )
        for number in range(4)
    ]
    for one in running:
        one.communicate("pw\n", timeout=60)
    assert [one.returncode for one in running] == [0] * 4
    assert set(users()) == {"u0", "u1", "u2", "u3"}


def test_the_last_administrator_keeps_the_role() -> None:
    Path("f.toml").write_text('data-directory = "d"\n[security-settings."#"]\nsend = ["shop"]\n')
    where = ("-c", "f.toml")
    add("bob", "--role", "shop", *where)
    assert "[security-settings]" not in add("ann", "--role", "admin", *where)
    for arguments in (("remove", "ann"), ("roles", "ann", "shop"), ("roles", "ann", "--none")):
        before = Path("d/users.toml").read_text()
        error = refused(*arguments, *where)
        assert (error.code, error.status) == ("locks-out", 64)
        assert Path("d/users.toml").read_text() == before
    good("roles", "bob", "--add", "admin", *where)
    good("remove", "ann", *where)
