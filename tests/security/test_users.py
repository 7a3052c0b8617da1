"""The users file: reading, adding, replacing, and what is wrong with it."""

from __future__ import annotations

import json
import pickle
import re
import tomllib

import pytest

from gateway.security.secret import Secret
from gateway.security.users import User, UsersError, add_user, parse_users, render_users
from gateway.security.verifiers import make_verifier

HASH = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaA"


def user(name: str, *roles: str) -> User:
    return User(name=name, password=Secret(HASH), roles=frozenset(roles))


def test_what_is_rendered_is_read_back() -> None:
    users = [user("ann", "admin", "ops"), user('o\'brien "x" ü'), user("a.b")]
    assert parse_users(render_users(users)) == {u.name: u for u in users}


def test_a_new_user_is_appended_and_comments_stay() -> None:
    text = "# ours\n" + add_user("", user("ann"))
    longer = add_user(text.rstrip("\n"), user("bob", "ops"))
    assert longer.startswith(text)
    assert set(parse_users(longer)) == {"ann", "bob"}


def test_replacing_needs_to_be_said_and_keeps_roles_unless_given() -> None:
    text = add_user("", user("ann", "admin"))
    with pytest.raises(UsersError, match="exists already"):
        add_user(text, user("ann"))
    changed = User(name="ann", password=Secret(HASH + "2"))
    again = parse_users(add_user(text, changed, replace=True))["ann"]
    assert again.password == Secret(HASH + "2")
    assert again.roles == {"admin"}


def test_verifiers_are_written_and_read_and_go_with_the_password() -> None:
    made = make_verifier("SCRAM-SHA-256", "se:cret ü")
    ann = User(name="ann", password=Secret(HASH), verifiers={"SCRAM-SHA-256": made})
    text = add_user("", ann)
    assert "se:cret" not in text
    assert parse_users(text)["ann"] == ann
    assert re.search(
        r"^scram-sha-256 = \"SCRAM-SHA-256\$100000:\S+\$\S+:\S+\"$", text, re.MULTILINE
    )
    assert "SCRAM" not in repr(parse_users(text)).replace("'SCRAM-SHA-256'", "")
    assert "scram" not in add_user(text, user("ann"), replace=True)


KEY = "A" * 43 + "="


@pytest.mark.parametrize(
    "value",
    [
        5,
        "",
        "old",
        f"SCRAM-SHA-512$4096:c2FsdHNhbHQ=${KEY}:{KEY}",
        f"SCRAM-SHA-256$4095:c2FsdHNhbHQ=${KEY}:{KEY}",
        f"SCRAM-SHA-256$99999999:c2FsdHNhbHQ=${KEY}:{KEY}",
        f"SCRAM-SHA-256$4096:c2Fs${KEY}:{KEY}",
        f"SCRAM-SHA-256$4096:c2FsdHNhbHQ=${KEY}:AAAA",
        f"SCRAM-SHA-256$4096:c2FsdHNhbHQ=${KEY}:*{KEY}",
        f"SCRAM-SHA-256$4096:c2FsdHNhbHQ=${KEY}",
    ],
)
def test_a_verifier_that_cannot_be_used_is_named_and_not_shown(value: object) -> None:
    text = f'[users.ann]\npassword = "{HASH}"\nscram-sha-256 = {json.dumps(value)}\n'
    with pytest.raises(UsersError, match=r"^users.ann: scram-sha-256 ") as told:
        parse_users(text)
    assert KEY not in str(told.value)


def test_the_least_verifier_that_can_be_used() -> None:
    text = f'[users.ann]\npassword = "{HASH}"\n'
    text += f'scram-sha-256 = "SCRAM-SHA-256$4096:c2FsdHNhbHQ=${KEY}:{KEY}"\n'
    verifier = parse_users(text)["ann"].verifiers["SCRAM-SHA-256"]
    assert (verifier.salt, verifier.iterations) == (b"saltsalt", 4096)


def test_a_password_that_scram_cannot_take() -> None:
    with pytest.raises(ValueError, match="control characters"):
        make_verifier("SCRAM-SHA-256", "bell \u0007")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("users = 5", "needs tables"),
        ("x =", "not TOML"),
        ("other = 1", "other: unknown key"),
        ("[users.ann]", "password must be"),
        ("users.ann = 5", "needs a table"),
        ("[users.ann]\npassword = 'secret'", "password must be an argon2 hash"),
        (f"[users.ann]\npassword = '{HASH}'\nroles = 'x'", "roles must be"),
        (f"[users.ann]\npassword = '{HASH}'\nrole = ['x']", "unknown key role"),
        (f"[users.'a:b']\npassword = '{HASH}'", "colon"),
        (f"[users.'']\npassword = '{HASH}'", "empty"),
        (f"[users.'{'x' * 256}']\npassword = '{HASH}'", "longer than 255"),
    ],
)
def test_what_is_wrong_is_named(text: str, word: str) -> None:
    with pytest.raises(UsersError, match=word):
        parse_users(text)


def test_a_plain_password_in_the_file_is_not_shown() -> None:
    with pytest.raises(UsersError) as caught:
        parse_users("[users.ann]\npassword = 'hunter2'")
    assert "hunter2" not in str(caught.value)


def test_all_that_is_wrong_comes_at_once() -> None:
    with pytest.raises(UsersError, match=r"users.a: .*; users.b: "):
        parse_users("[users.a]\n[users.b]\n")


def test_the_file_is_plain_toml() -> None:
    tree = tomllib.loads(add_user("", user("ann", "admin")))
    assert tree == {"users": {"ann": {"password": HASH, "roles": ["admin"]}}}


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret("hunter2")
    assert [repr(secret), str(secret), f"{secret}", f"{secret!s:>5}"] == [
        "***",
        "***",
        "***",
        "  ***",
    ]
    assert "hunter2" not in repr(User(name="ann", password=secret))
    assert secret.reveal() == "hunter2"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
