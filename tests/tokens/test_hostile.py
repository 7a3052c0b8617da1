"""Hostile tokens against the judge as it is: none lets anybody in, and each has its reason."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gateway.model.principal import By, Principal
from gateway.security.gate import Why
from gateway.tokens.keys import AnyKey, read_keys
from gateway.tokens.realm import TokenRealm
from gateway.tokens.rolling import FixedKeys
from tests.tokens.hostile import KEY_SET, cases
from tests.tokens.minting import NOW, claims, ec, ed, issuer, rsa, signed, token
from tests.tokens.surroundings import Around

CASES = cases()


def judged(text: str, user: str = "", **changes: Any) -> Principal | Why:
    """Return what the realm says of a token."""
    around = Around(NOW)
    realm = TokenRealm(around)
    one = issuer(**changes)
    realm.use({one.name: (one, FixedKeys(read_keys(KEY_SET)))})
    answers: list[Principal | Why] = []
    realm.check(user, text, answers.append)
    assert answers == [], "an answer inside of the call"
    around.turn()
    (answer,) = answers
    assert isinstance(answer, Principal) or around.told, "refused, and the log does not know why"
    return answer


def test_there_are_five_hundred_and_no_two_are_the_same() -> None:
    assert len(CASES) >= 500
    names = Counter(name for name, _ in CASES)
    assert [name for name, count in names.items() if count > 1] == []
    texts = Counter(text for _, text in CASES)
    assert [text[:40] for text, count in texts.items() if count > 1] == []


@pytest.mark.parametrize(("name", "text"), CASES, ids=[f"{n}" for n in range(len(CASES))])
def test_none_lets_anybody_in(name: str, text: str) -> None:
    answer = judged(text)
    assert answer in (Why.UNTRUSTED, Why.EXPIRED), name


@pytest.mark.parametrize(
    ("key", "alg"),
    [
        *((rsa("one"), alg) for alg in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        (rsa("two"), "RS256"),
        (ec("curve"), "ES256"),
        (ec("wide", "P-384"), "ES384"),
        (ec("widest", "P-521"), "ES512"),
        (ed(), "EdDSA"),
        (ed(), "Ed25519"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_what_they_were_made_of_does(key: AnyKey, alg: str) -> None:
    answer = judged(token(key, alg))
    assert isinstance(answer, Principal)
    assert (answer.user, answer.by, answer.issuer) == ("ann", By.TOKEN, "shop")
    assert answer.until_ms == (NOW + 300) * 1000


@pytest.mark.parametrize(
    "text",
    [
        token(aud=["other", "sluicegate"]),
        token(header={"typ": "at+jwt"}),
        token(header={"typ": "application/at+JWT"}),
        token(header={"typ": None}),
        token(header={"jku": "https://elsewhere.example", "x5t": "AA"}),
        signed({"alg": "ES256"}, claims(), ec("curve"), "ES256"),
        token(nbf=None, iat=None),
        token(nbf=NOW + 29, iat=NOW + 29),
        token(exp=NOW + 0.5),
    ],
)
def test_what_is_a_little_unlike_is_taken(text: str) -> None:
    assert isinstance(judged(text), Principal)


def test_a_name_that_is_given_is_the_tokens() -> None:
    assert isinstance(judged(token(), "ann"), Principal)
    for other in ("bob", "Ann", "ann ", "an", "admin"):
        assert judged(token(), other) is Why.UNTRUSTED


def test_its_end_has_no_grace_and_says_so() -> None:
    assert judged(token(exp=NOW - 1), clock_skew=300_000) is Why.EXPIRED
    assert judged(token(exp=NOW), clock_skew=300_000) is Why.EXPIRED


def test_claims_that_are_required() -> None:
    wanted: dict[str, Any] = {"required_claims": {"azp": ("shop", "till"), "verified": (True,)}}
    assert isinstance(judged(token(azp="till", verified=True), **wanted), Principal)
    for azp, verified in (("x", True), (None, True), ("shop", 1), ("shop", "true"), ("shop", None)):
        assert judged(token(azp=azp, verified=verified), **wanted) is Why.UNTRUSTED


@pytest.mark.parametrize(
    ("said", "settings", "roles"),
    [
        ({"scope": "a b"}, {}, {"a", "b"}),
        ({"realm_access": {"roles": ["x", 1, None, "y z"]}}, {}, {"x", "y z"}),
        ({"realm_access": ["roles"]}, {}, set()),
        ({"scope": 7}, {}, set()),
        ({"scope": "sg.a sg.b c"}, {"role_prefix": "sg."}, {"a", "b"}),
        ({"scope": "A B"}, {"role_map": {"A": ("admin", "view"), "Z": ("z",)}}, {"admin", "view"}),
        ({"https://x.example/r": ["q"]}, {"role_claims": ("https://x.example/r",)}, {"q"}),
        ({"scope": "a\x00b ok"}, {}, {"ok"}),
    ],
)
def test_roles_by_rules(said: dict[str, object], settings: dict[str, Any], roles: set[str]) -> None:
    answer = judged(token(**said), **settings)
    assert isinstance(answer, Principal)
    assert answer.roles == roles


def test_too_many_roles_are_refused() -> None:
    assert judged(token(scope=" ".join(f"r{n}" for n in range(300)))) is Why.UNTRUSTED
