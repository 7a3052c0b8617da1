"""The users file: reading, adding, replacing, and what is wrong with it."""

from __future__ import annotations

import pickle
import tomllib

import pytest

from gateway.security.secret import Secret
from gateway.security.users import User, UsersError, add_user, parse_users, render_users

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


def test_replacing_drops_verifiers_of_the_old_password() -> None:
    text = f'[users.ann]\npassword = "{HASH}"\nscram-sha-256 = "old"\n'
    assert parse_users(text)["ann"].other == {"scram-sha-256": "old"}
    assert "scram" not in add_user(text, user("ann"), replace=True)


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
