"""What the configuration says of issuers of tokens: `[tokens.NAME]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Final
from urllib.parse import urlsplit

from gateway.config import values as v
from gateway.model.bounds import within
from gateway.model.rows import Reach, Unit

AT_ONCE: Final = Reach.AT_ONCE

#: Hosts of which plain http is taken: what is sent there leaves no machine.
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_SPACE: Final = re.compile(r"\s")


class TokenAlgorithm(Enum):
    """A way to sign tokens [RFC 7518 3.1, RFC 8037, RFC 9864]; `none` is none of them."""

    RS256 = "RS256"
    RS384 = "RS384"
    RS512 = "RS512"
    PS256 = "PS256"
    PS384 = "PS384"
    PS512 = "PS512"
    ES256 = "ES256"
    ES384 = "ES384"
    ES512 = "ES512"
    EDDSA = "EdDSA"
    ED25519 = "Ed25519"
    HS256 = "HS256"
    HS384 = "HS384"
    HS512 = "HS512"

    @property
    def symmetric(self) -> bool:
        """Whether who checks a signature could have made it as well."""
        return self.value.startswith("HS")


ASYMMETRIC: Final = frozenset(one for one in TokenAlgorithm if not one.symmetric)
SYMMETRIC: Final = frozenset(TokenAlgorithm) - ASYMMETRIC


def _texts(value: object) -> tuple[str, ...]:
    """Take a text, or an array of texts."""
    items = value if isinstance(value, list) else [value]
    if not items:
        raise ValueError("is empty; name at least one")
    return tuple(v.name_text(item) for item in items)


def _url(value: object) -> str:
    """Take the address of a document: https, or http of this machine."""
    taken = v.name_text(value)
    problem = url_problem(taken)
    if problem is not None:
        raise ValueError(problem)
    return taken


def url_problem(url: str) -> str | None:
    """Say why keys are not fetched from an address; None: they may be."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return f'"{url[:200]}" is no URL'
    if not host or parts.username is not None or parts.fragment or _SPACE.search(url):
        return f'"{url[:200]}" is no URL of a document; write for example "https://id.example/keys"'
    if parts.scheme == "https" or (parts.scheme == "http" and host in _LOCAL):
        return None
    return f'"{url[:200]}" must begin with https://; http:// is taken of this machine only'


def _claims(value: object) -> Mapping[str, tuple[object, ...]]:
    """Take a table: claim -> the value that it must have, or an array of which it has one."""
    if not isinstance(value, Mapping):
        raise ValueError(f"needs a table of claims, not {v.describe(value)}")  # noqa: TRY004
    found: dict[str, tuple[object, ...]] = {}
    for name, wanted in value.items():
        items = wanted if isinstance(wanted, list) else [wanted]
        if not items or not all(isinstance(one, str | int) for one in items):
            raise ValueError(f"needs a text, a whole number or a boolean for the claim {name}")
        found[str(name)] = tuple(items)
    return found


def _roles(value: object) -> Mapping[str, tuple[str, ...]]:
    """Take a table: what a claim says -> the role, or an array of roles, that it stands for."""
    if not isinstance(value, Mapping):
        raise ValueError(f"needs a table of roles, not {v.describe(value)}")  # noqa: TRY004
    return {str(name): _texts(roles) for name, roles in value.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerConfig:
    """One `[tokens.NAME]`: who signs tokens that let clients in, and what they must say.

    Attributes:
        name: the NAME of its table.
        issuer: the `iss` of its tokens, letter by letter.
        audience: tokens must be meant for one of these (`aud`).
        discovery: URL of its description; not written, and no keys either: `issuer` with
            `/.well-known/openid-configuration` behind it.
        jwks_url: URL of its keys, where no description is to be asked.
        jwks_file: path of a file with its keys, a JWK set.
        secret_file: path of a file with the secret that it signs with; then for HS algorithms only.
        ca_file: path of the certificates, in PEM, that vouch for its https; not written: the
            system's.
        algorithms: how its tokens may be signed; not written: every one with a public key, or
            HS256 with `secret-file`.
        clock_skew: ms by which its clock may be ahead of ours (`nbf`, `iat`); a token's end is
            never put off.
        user_claim: the claim that is the user's name.
        role_claims: claims whose texts are roles; `a.b` is the claim b inside of a.
        role_prefix: of those only what begins so is a role, without it.
        role_map: what stands there -> the role or roles that it is; what is not listed is dropped
            where the table is written.
        required_claims: claim -> the value, or array of values, of which it must have one.
        token_types: what `typ` in a token's header may be; one without it is taken.
    """

    name: str
    issuer: Annotated[str, AT_ONCE, Unit.NAME]
    audience: Annotated[tuple[str, ...], AT_ONCE, v.Read(_texts)]
    discovery: Annotated[str | None, AT_ONCE, v.Read(_url)] = None
    jwks_url: Annotated[str | None, AT_ONCE, v.Read(_url)] = None
    jwks_file: Annotated[str | None, AT_ONCE, Unit.NAME] = None
    secret_file: Annotated[str | None, AT_ONCE, Unit.NAME] = None
    ca_file: Annotated[str | None, AT_ONCE, Unit.NAME] = None
    algorithms: Annotated[frozenset[TokenAlgorithm], AT_ONCE, v.Read(v.choices(TokenAlgorithm))] = (
        ASYMMETRIC
    )
    clock_skew: Annotated[int, AT_ONCE, Unit.MS, within(0, 300_000)] = 30_000
    user_claim: Annotated[str, AT_ONCE, Unit.NAME] = "sub"
    role_claims: Annotated[tuple[str, ...], AT_ONCE, v.Read(_texts)] = ()
    role_prefix: Annotated[str, AT_ONCE] = ""
    role_map: Annotated[Mapping[str, tuple[str, ...]], AT_ONCE, v.Read(_roles)] = field(
        default_factory=dict
    )
    required_claims: Annotated[Mapping[str, tuple[object, ...]], AT_ONCE, v.Read(_claims)] = field(
        default_factory=dict
    )
    token_types: Annotated[tuple[str, ...], AT_ONCE, v.Read(_texts)] = ("JWT", "at+jwt")


#: Of these keys at most one says where the keys come from.
SOURCES: Final = ("discovery", "jwks-url", "jwks-file", "secret-file")


def issuer_problem(read: Mapping[str, object]) -> tuple[str, str] | None:
    """Return key and text of what is wrong with an issuer's table as a whole; None: nothing."""
    said = [key for key in SOURCES if key.replace("-", "_") in read]
    if len(said) > 1:
        return said[1], f"stands beside {said[0]}; keys come from one place"
    algorithms = read.get("algorithms")
    if "secret_file" in read:
        if isinstance(algorithms, frozenset) and algorithms & ASYMMETRIC:
            wrong = min(one.value for one in algorithms & ASYMMETRIC)
            return "algorithms", f"{wrong} needs a public key, and secret-file is none"
        return None
    if isinstance(algorithms, frozenset) and algorithms & SYMMETRIC:
        wrong = min(one.value for one in algorithms & SYMMETRIC)
        return "algorithms", f"{wrong} signs with a secret; write secret-file, and no other source"
    if not said:
        issuer = str(read.get("issuer", ""))
        problem = url_problem(issuer)
        if problem is not None:
            return "issuer", f"{problem}, or name jwks-url, jwks-file or secret-file"
    return None
