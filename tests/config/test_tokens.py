"""Issuers of tokens in the configuration: what is read, what contradicts itself, what changes."""

from __future__ import annotations

import pytest

from gateway.config.check import HostFacts
from gateway.config.diff import changes, in_force
from gateway.config.errors import ConfigError
from gateway.config.load import load
from gateway.config.tokens import ASYMMETRIC, TokenAlgorithm
from gateway.config.tree import Config
from gateway.model.rows import Reach

HOST = HostFacts(memory_bytes=1 << 30, working_directory="/w", data_directory="/d")
LEAST = ("tokens.a.issuer='https://id.example'", "tokens.a.audience='gate'")


def config(*sets: str) -> Config:
    return load(None, sets, environment={}, host=HOST)


def problem(*sets: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(*sets)
    return str(caught.value)


def test_the_least_that_an_issuer_needs() -> None:
    (one,) = config(*LEAST).tokens
    assert (one.name, one.issuer, one.audience) == ("a", "https://id.example", ("gate",))
    assert (one.algorithms, one.clock_skew, one.user_claim) == (ASYMMETRIC, 30_000, "sub")
    assert config().tokens == ()


def test_all_that_may_be_written() -> None:
    (one,) = config(
        *LEAST[:1],
        "tokens.a.audience=['gate','other']",
        "tokens.a.secret-file='s.txt'",
        "tokens.a.algorithms=['HS512']",
        "tokens.a.clock-skew='5s'",
        "tokens.a.role-claims=['realm_access.roles','scope']",
        "tokens.a.role-prefix='gate.'",
        "tokens.a.role-map={boss='admin', clerk=['view','edit']}",
        "tokens.a.required-claims={azp=['x','y'], verified=true, level=3}",
        "tokens.a.token-types='at+jwt'",
    ).tokens
    assert one.audience == ("gate", "other")
    assert (one.secret_file, one.algorithms) == ("/w/s.txt", frozenset({TokenAlgorithm.HS512}))
    assert one.role_map == {"boss": ("admin",), "clerk": ("view", "edit")}
    assert one.required_claims == {"azp": ("x", "y"), "verified": (True,), "level": (3,)}
    assert (one.clock_skew, one.token_types) == (5_000, ("at+jwt",))
    (one,) = config(*LEAST, "tokens.a.secret-file='/s'").tokens
    assert one.algorithms == frozenset({TokenAlgorithm.HS256})


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (("tokens.a.issuer='https://x'",), "tokens.a: needs the key audience"),
        (("tokens.a.audience='x'",), "needs the key issuer"),
        ((*LEAST, "tokens.a.audience=[]"), "is empty; name at least one"),
        ((*LEAST, "tokens.a.clock-skew='6m'"), "tokens.a.clock-skew"),
        ((*LEAST, "tokens.a.clock-skew=-1"), "tokens.a.clock-skew"),
        ((*LEAST, "tokens.a.algorithms=['none']"), "is not one of RS256"),
        ((*LEAST, "tokens.a.algorithms=['RS256','HS256']"), "HS256 signs with a secret"),
        (
            (*LEAST, "tokens.a.secret-file='s'", "tokens.a.algorithms=['HS256','RS256']"),
            "RS256 needs a public key",
        ),
        (
            (*LEAST, "tokens.a.secret-file='s'", "tokens.a.jwks-url='https://x/k'"),
            "keys come from one place",
        ),
        ((*LEAST, "tokens.a.jwks-url='http://id.example/k'"), "must begin with https://"),
        ((*LEAST, "tokens.a.jwks-url='file:///etc/passwd'"), "is no URL"),
        ((*LEAST, "tokens.a.jwks-url='https://u:p@x/k'"), "is no URL of a document"),
        ((*LEAST, "tokens.a.discovery='https://'"), "is no URL of a document"),
        (("tokens.a.issuer='shop'", "tokens.a.audience='x'"), "or name jwks-url, jwks-file"),
        ((*LEAST, "tokens.a.role-map=['x']"), "needs a table of roles"),
        ((*LEAST, "tokens.a.required-claims={x=1.5}"), "needs a text, a whole number"),
        ((*LEAST, "tokens.a.audiences='x'"), "did you mean audience?"),
        (
            (*LEAST, "tokens.b.issuer='https://id.example'", "tokens.b.audience='x'"),
            "is the issuer of tokens.a as well",
        ),
        (("management.ws-token-cookie='a b'",), "is no name of a cookie"),
    ],
)
def test_what_is_wrong_is_named(sets: tuple[str, ...], text: str) -> None:
    assert text in problem(*sets)


def test_changes_reach_at_once() -> None:
    old, new = config(*LEAST), config(*LEAST, "tokens.a.audience='other'")
    (change,) = changes(old, new)
    assert (change.key, change.old, change.new) == ("tokens.a.audience", ["gate"], ["other"])
    assert change.reach is Reach.AT_ONCE
    assert in_force(old, new).tokens == new.tokens
    for one, other in ((config(), old), (old, config())):
        (change,) = changes(one, other)
        assert (change.key, change.reach) == ("tokens.a", Reach.AT_ONCE)
        assert in_force(one, other).tokens == other.tokens
