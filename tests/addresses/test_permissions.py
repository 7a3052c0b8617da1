"""Permissions by address against an evaluation that knows nothing but the rules, word by word."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.addresses import permissions
from gateway.addresses.permissions import (
    UNMATCHED,
    PermissionEntry,
    PermissionTable,
    permission_match_problem,
)
from gateway.addresses.wildcards import covers, fits, overlap
from gateway.model.principal import Permission

WORDS = ["a", "b", "c"]
NAMES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(".".join)
QUEUES = st.sampled_from(["a", "q", "a.b"])


@st.composite
def matches(draw: st.DrawFn) -> str:
    """A match: words, `*`, and `#` last."""
    words = draw(st.lists(st.sampled_from([*WORDS, "*"]), min_size=0, max_size=3))
    if draw(st.booleans()) or not words:
        words.append("#")
    return ".".join(words)


PATTERNS = st.lists(st.sampled_from([*WORDS, "*", "#"]), min_size=1, max_size=3).map(".".join)
ROLES = st.frozensets(st.sampled_from(["x", "y", "z"]), max_size=2)
TABLES = st.dictionaries(
    st.one_of(matches(), st.builds("{}::{}".format, NAMES, QUEUES)),
    st.dictionaries(st.sampled_from(Permission), ROLES, max_size=4),
    max_size=6,
)


def table_of(written: dict[str, dict[Permission, frozenset[str]]]) -> PermissionTable:
    return PermissionTable([PermissionEntry(match=m, roles=r) for m, r in written.items()])


def specificity(match: str) -> tuple[object, ...]:
    """Sort as Artemis does: no wildcard, then `*`, then `#`, the longer text of these first."""
    if "#" in match:
        return (2, -len(match), [word == "*" for word in match.split(".")])
    if "*" in match:
        return (1, 0, [word == "*" for word in match.split(".")])
    return (0, 0, [])


def naive(
    written: dict[str, dict[Permission, frozenset[str]]],
    permission: Permission,
    address: str,
    queue: str | None,
) -> frozenset[str]:
    exact = None if queue is None else written.get(f"{address}::{queue}")
    if exact is None:
        fitting = [m for m in written if "::" not in m and fits(m, address)]
        exact = written[min(fitting, key=specificity)] if fitting else {}
    return exact.get(permission, frozenset())


@settings(max_examples=400)
@given(TABLES, st.lists(st.tuples(NAMES, st.none() | QUEUES), min_size=1, max_size=8))
def test_the_best_match_has_the_whole_say(written, places) -> None:
    table = table_of(written)
    for address, queue in places * 2:  # from what is remembered the second time
        (entry,) = table.entries_for(address, queue)
        for permission in Permission:
            assert entry.roles_for(permission) == naive(written, permission, address, queue)
        assert table.entries_for(address, queue, reads=True) == (entry,)


@settings(max_examples=300)
@given(TABLES, PATTERNS, NAMES)
def test_who_may_read_a_wildcard_address_may_read_all_that_fits_it(written, pattern, name) -> None:
    """Nothing reaches a reader by a pattern that it could not have by the name."""
    if not fits(pattern, name):
        return
    plain = {match: roles for match, roles in written.items() if "::" not in match}
    table = table_of(plain)
    for role in "xyz":
        entries = table.entries_for(pattern, None, reads=True)
        if all(role in entry.roles_for(Permission.CONSUME) for entry in entries):
            assert role in naive(plain, Permission.CONSUME, name, None)


@settings(max_examples=300)
@given(PATTERNS, PATTERNS, NAMES)
def test_patterns_overlap_where_a_name_fits_both(one, other, name) -> None:
    assert overlap(one, other) == overlap(other, one)
    if fits(one, name) and fits(other, name):
        assert overlap(one, other)


@settings(max_examples=300)
@given(matches(), PATTERNS, NAMES)
def test_a_match_that_covers_a_pattern_has_all_its_names(match, pattern, name) -> None:
    if covers(match, pattern):
        assert overlap(match, pattern)
        if fits(pattern, name):
            assert fits(match, name)


def test_what_is_between_markers_is_one_name() -> None:
    entry = PermissionEntry(match="(a.#)", roles={Permission.SEND: frozenset({"x"})})
    wide = PermissionEntry(match="#", roles={})
    table = PermissionTable([entry, wide], markers="()")
    assert table.entries_for("a.#", None) == (entry,)
    assert table.entries_for("a.b", None) == (wide,)


def test_where_nothing_fits_nobody_may() -> None:
    table = table_of({"a": {}})
    assert table.entries_for("b", None) == (UNMATCHED,)
    assert UNMATCHED.roles_for(Permission.SEND) == frozenset()


def test_no_more_places_are_remembered_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "CACHE_MAX", 10)
    table = table_of({"#": {}})
    for number in range(100):
        table.entries_for(f"a.{number}", f"q.{number}")
        assert len(table._cache) <= 10


@pytest.mark.parametrize(
    ("match", "problem"),
    [("a::q", None), ("a.#", None), ("a::*", "wildcard"), ("#::q", "wildcard"), ("::q", "no queue"),
     ("a::", "no queue"), ("a::b::c", "no queue"), ("", "empty")],
)  # fmt: skip
def test_a_match_is_a_pattern_or_one_queue(match: str, problem: str | None) -> None:
    found = permission_match_problem(match)
    assert found is None if problem is None else problem in (found or "")
