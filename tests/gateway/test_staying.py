"""Which connections stay when there are other users."""

from __future__ import annotations

import pytest

from gateway.model.principal import By, Principal
from gateway.model.verifier import Verifier
from gateway.reload.staying import CHANGED, GONE, why_to_end
from gateway.security.secret import Secret
from gateway.security.users import User

ONE = Verifier(salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096)
OTHER = Verifier(salt=b"t", stored_key=b"k", server_key=b"k", iterations=4096)


def user(password: str = "a", roles: str = "", verifier: Verifier | None = None) -> User:
    verifiers = {} if verifier is None else {"SCRAM-SHA-256": verifier}
    return User(
        name="ann", password=Secret(password), roles=frozenset(roles.split()), verifiers=verifiers
    )


def told(by: By, before: User | None, after: User | None, *, name: str | None = "ann") -> object:
    principal = Principal(name, by=by)
    old, new = ({} if one is None else {"ann": one} for one in (before, after))
    return why_to_end(principal, old, new, was_open=False, anonymous=False)


@pytest.mark.parametrize("by", [By.PASSWORD, By.SCRAM, By.CERTIFICATE])
def test_a_removed_user_goes_however_it_came(by: By) -> None:
    assert told(by, user(), None) == GONE
    assert told(by, user(), user()) is None


@pytest.mark.parametrize("by", [By.TOKEN, By.DIRECTORY])
def test_the_file_says_nothing_of_users_from_elsewhere(by: By) -> None:
    assert told(by, user(), None) is None
    assert told(by, user("a"), user("b")) is None


def test_a_certificate_of_a_user_whom_the_file_never_had_stays() -> None:
    assert told(By.CERTIFICATE, None, None) is None
    assert told(By.CERTIFICATE, user("a"), user("b")) is None


def test_another_password_ends_what_came_in_with_the_old_one() -> None:
    for by in (By.PASSWORD, By.SCRAM):
        assert told(by, user("a"), user("b")) == CHANGED
    # A verifier that is added, or another one, is no other password.
    assert told(By.PASSWORD, user(), user(verifier=ONE)) is None
    assert told(By.SCRAM, user(verifier=ONE), user(verifier=OTHER)) == CHANGED


def test_who_came_while_nobody_had_to_log_in() -> None:
    def said(name: str | None, *, was_open: bool, anonymous: bool) -> object:
        new = {"ann": user()}
        one = Principal(name)
        return why_to_end(one, {}, new, was_open=was_open, anonymous=anonymous)

    assert said(None, was_open=True, anonymous=False) == GONE
    assert said(None, was_open=True, anonymous=True) is None
    assert said("ann", was_open=True, anonymous=True) == GONE
    assert said(None, was_open=False, anonymous=False) is None
