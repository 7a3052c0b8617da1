"""Rules that say whose a certificate is: what fits, what is refused, and that none is slow."""

from __future__ import annotations

import time

import pytest

from gateway.model.certificates import (
    NAMES_MAX,
    SHOWN_MAX,
    TEXT_MAX,
    CertificateRule,
    Shown,
    checked_pattern,
    escaped,
    facts,
    first_fit,
    rule_problem,
)


def shown(subject: str = "CN=ann,O=Example", **more: object) -> Shown:
    return Shown(subject=subject, issuer="CN=us", serial="1f", from_ms=0, until_ms=1, **more)


@pytest.mark.parametrize(
    ("rule", "user"),
    [
        (CertificateRule(user="a", subject="CN=ann,O=Example"), "a"),
        (CertificateRule(user="a", subject="CN=ann"), None),
        (CertificateRule(user="a", subject="CN=ann,O=Example", issuer="CN=us"), "a"),
        (CertificateRule(user="a", subject="CN=ann,O=Example", issuer="CN=them"), None),
        (CertificateRule(user=r"u-\1", subject_matches="CN=([a-z]+),O=Example"), "u-ann"),
        (CertificateRule(user=r"\1", subject_matches="CN=([a-z]+)"), None),  # all of it
        (CertificateRule(user=r"\1", dns_matches=r"([a-z]+)\.example"), "two"),
        (CertificateRule(user="d", dns="one"), "d"),
        (CertificateRule(user="d", dns="one", uri="urn:x"), "d"),
        (CertificateRule(user="d", dns="one", uri="urn:y"), None),
        (CertificateRule(user="e", email="e@example"), "e"),
        (CertificateRule(user=r"\1\2", dns_matches=r"(two)(x)?\.example"), "two"),
    ],
)
def test_a_rule_fits_when_all_fits_that_it_asks_for(
    rule: CertificateRule, user: str | None
) -> None:
    certificate = shown(dns=("one", "two.example"), uris=("urn:x",), emails=("e@example",))
    assert rule.user_of(certificate) == user


def test_the_first_rule_that_fits_wins() -> None:
    rules = (
        CertificateRule(user="never", subject="CN=x"),
        CertificateRule(user="first", subject_matches=".*", roles=frozenset({"r"})),
        CertificateRule(user="second", subject_matches=".*"),
    )
    assert first_fit(rules, shown()) == ("first", frozenset({"r"}))
    assert first_fit(rules[:1], shown()) is None


def test_patterns_are_tried_within_bounds_only() -> None:
    rule = CertificateRule(user="x", subject_matches="CN=a*", dns_matches="")
    assert rule.user_of(shown("CN=" + "a" * (TEXT_MAX - 3))) == "x"
    assert rule.user_of(shown("CN=" + "a" * (TEXT_MAX - 2))) is None
    rule = CertificateRule(user="x", dns_matches="n")
    assert rule.user_of(shown(dns=("m",) * (NAMES_MAX - 1) + ("n",))) == "x"
    assert rule.user_of(shown(dns=("m",) * NAMES_MAX + ("n",))) is None


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("(", "is no pattern"),
        ("(a*)*", "repeats a group"),
        ("(ab)+", "repeats a group"),
        ("(?:a|b){2}", "repeats a group"),
        (r"(a)\1", "refers to a group"),
        ("(?=a)a", "only"),
        ("(?P<n>a)", "only"),
        (".*.*.*", "too many ways"),
        ("(a|a)" * 30, "too many ways"),
        ("a?" * 30, "too many ways"),
        ("[^,]{1,200}" * 3, "too many ways"),
        (".{,}" * 3, "too many ways"),
        ("a{0,}" * 3, "too many ways"),
    ],
)
def test_a_pattern_that_could_be_slow_is_refused(pattern: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        checked_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"CN=([^,]{1,40}),OU=[^,]{1,40},O=Example",
        r".*a.*",
        r"[]a]*[^]]*",
        r"[\]]*\.+",
        r"a{3}b{2,}c{,4}",
        r"(?:a|b)c",
        "a{b",
        "a+?",
        "a++",
    ],
)
def test_a_pattern_that_is_never_slow_is_taken(pattern: str) -> None:
    assert checked_pattern(pattern) == pattern


@pytest.mark.parametrize(
    "pattern", [".*.*x", "(.*)a(.*)b?x", "a?" * 20 + "x", "(a|a)" * 17 + "[a]{0,8}x"]
)
def test_the_worst_that_is_taken_ends_soon(pattern: str) -> None:
    """On the text that it has the most ways to fail on."""
    rule = CertificateRule(user="x", subject_matches=checked_pattern(pattern))
    began = time.thread_time()
    assert rule.user_of(shown("a" * TEXT_MAX)) is None
    assert time.thread_time() - began < 2.0


@pytest.mark.parametrize(
    ("rule", "key", "word"),
    [
        (CertificateRule(user="x"), "", "would fit every certificate"),
        (CertificateRule(user=r"\1", subject="CN=x"), "user", "one pattern"),
        (CertificateRule(user=r"\2", subject_matches="(x)"), "user", "has 1 groups"),
        (CertificateRule(user=r"\1", subject_matches="(x)", dns_matches="(y)"), "user", "one"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(rule: CertificateRule, key: str, word: str) -> None:
    problem = rule_problem(rule)
    assert problem is not None
    assert problem[0] == key
    assert word in problem[1]


def test_names_are_told_escaped_and_short() -> None:
    assert escaped("M\u00fcller") == "M\u00fcller"
    assert escaped("a\n\x1b[2J\0\u202e\u200b") == "a\\u000a\\u001b[2J\\u0000\\u202e\\u200b"
    assert escaped("\u05d0") == "\\u05d0"  # would turn the rest of the line around
    long = escaped("x" * 5000)
    assert long == "x" * SHOWN_MAX + "... (5000 characters)"
    told = facts(shown("CN=a\n", dns=("d\r",) * 50))
    assert told["subject"] == "CN=a\\u000a"
    assert told["names"] == "d\\u000d d\\u000d d\\u000d"
