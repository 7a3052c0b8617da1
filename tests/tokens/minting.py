"""Tokens as an issuer makes them, and as somebody who is none would like to."""

from __future__ import annotations

import base64
import hmac
import json
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from gateway.config.tokens import IssuerConfig
from gateway.tokens.keys import AnyKey

ISSUER = "https://id.example/realms/shop"
AUDIENCE = "sluicegate"
#: The date of all tests that make one up, in seconds since 1970.
NOW = 1_800_000_000


class _All(JWSRegistry):
    """Signs whatever it is given."""

    max_header_length = 1 << 20
    max_payload_length = 1 << 20


def rsa(name: str = "one", bits: int = 2048) -> RSAKey:
    """Return the RSA key of that name."""
    return _rsa(name, bits)


@cache
def _rsa(name: str, bits: int) -> RSAKey:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # of keys that are to be refused
        return RSAKey.generate_key(bits, {"kid": name}, private=True, auto_kid=False)


@cache
def ec(name: str = "curve", curve: str = "P-256") -> ECKey:
    """Return the key of a curve of that name."""
    return ECKey.generate_key(curve, {"kid": name}, private=True, auto_kid=False)


@cache
def ed(name: str = "edwards") -> OKPKey:
    """Return the Ed25519 key of that name."""
    return OKPKey.generate_key("Ed25519", {"kid": name}, private=True, auto_kid=False)


def jwk(key: AnyKey, **more: object) -> dict[str, Any]:
    """Return the public part of a key, as it stands in a set."""
    return {**key.as_dict(private=False), **more}


def jwks(*keys: Mapping[str, Any]) -> bytes:
    """Return a key set."""
    return json.dumps({"keys": list(keys)}).encode()


def encoded(value: object) -> str:
    """Return bytes, a text or JSON in base64url without padding."""
    data = value if isinstance(value, bytes) else None
    if data is None:
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def claims(**changes: object) -> dict[str, Any]:
    """Return good claims with some of them changed; None takes one away."""
    said: dict[str, Any] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "iat": NOW - 10,
        "nbf": NOW - 10,
        "exp": NOW + 300,
        **changes,
    }
    return {name: value for name, value in said.items() if value is not None}


def signed(
    header: Mapping[str, Any] | bytes, payload: object, key: AnyKey | bytes, alg: str
) -> str:
    """Return a token that is signed by `alg`, whatever its header says; bytes are a secret.

    With bytes no library is asked: it would not take a public key for a secret.
    """
    head = encoded(header if isinstance(header, bytes) else dict(header))
    body = encoded(payload)
    if isinstance(key, bytes):
        made = hmac.digest(key, f"{head}.{body}".encode(), f"sha{alg[2:]}")
        return f"{head}.{body}.{encoded(made)}"
    model = JWSRegistry.algorithms[alg]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)
        signature = model.sign(f"{head}.{body}".encode(), key)
    return f"{head}.{body}.{encoded(signature)}"


def token(
    key: AnyKey | None = None, alg: str = "RS256", *, header: object = None, **changes: object
) -> str:
    """Return a token that is good but for what is changed."""
    key = rsa() if key is None else key
    said: dict[str, Any] = {"alg": alg, "typ": "JWT", "kid": key.kid}
    if isinstance(header, dict):
        said.update(header)
    said = {name: value for name, value in said.items() if value is not None}
    return signed(said, claims(**changes), key, alg)


def issuer(**changes: Any) -> IssuerConfig:
    """Return the issuer of these tokens."""
    said: dict[str, Any] = {
        "name": "shop",
        "issuer": ISSUER,
        "audience": (AUDIENCE,),
        "role_claims": ("realm_access.roles", "scope"),
        **changes,
    }
    return IssuerConfig(**said)
