"""Somebody who may administer is left, where permissions are judged."""

from __future__ import annotations

from gateway.config.lockout import lockout_problem, other_realms
from tests.config.test_access import read

JUDGED = '[security-settings."#"]\nsend = ["shop"]\n'
NOBODY: list[frozenset[str]] = []
SHOP, ADMIN = [frozenset({"shop"})], [frozenset({"shop"}), frozenset({"admin", "x"})]


def test_without_permissions_nobody_is_locked_out() -> None:
    assert lockout_problem(read(""), NOBODY) is None


def test_one_administrator_is_enough() -> None:
    config = read(JUDGED)
    assert lockout_problem(config, ADMIN) is None
    problem = lockout_problem(config, SHOP)
    assert problem is not None
    assert (problem.path, "the role admin" in problem.text) == ("api-roles.admin", True)
    assert lockout_problem(config, NOBODY) is not None


def test_administrators_have_the_roles_that_are_written() -> None:
    config = read(JUDGED + '[api-roles]\nadmin = ["shop"]\n')
    assert lockout_problem(config, SHOP) is None
    assert lockout_problem(read(JUDGED + "[api-roles]\nadmin = []\n"), ADMIN) is not None


def test_a_group_of_the_directory_may_have_the_role() -> None:
    ldap = '[ldap]\nurl = "ldaps://x"\nsearch-base = "o"\n{}'
    groups = 'group-base = "g"\nroles = { ops = ["admin"] }\n'
    assert lockout_problem(read(JUDGED + ldap.format(groups)), NOBODY) is None
    assert lockout_problem(read(JUDGED + ldap.format("")), NOBODY) is not None
    assert other_realms(read(ldap.format("")))
    assert not other_realms(read(""))


def test_what_is_lost_already_is_not_lost_by_a_change() -> None:
    before, after = read(""), read(JUDGED)
    assert lockout_problem(after, SHOP, before=(before, SHOP)) is not None
    assert lockout_problem(after, SHOP, before=(after, ADMIN)) is not None
    assert lockout_problem(after, SHOP, before=(after, NOBODY)) is None
