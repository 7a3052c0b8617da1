"""Whether a token is to be believed, and for whom it then speaks. Pure; the time is an argument.

In this order, the cheap first; the signature is checked before anything that was said counts:

    its form and JSON                     gateway.tokens.reading
    its issuer                            one of the configuration, letter by letter
    its header: alg, typ, no crit         alg is pinned, and bound to the type of the key
    a key of that issuer                  by kid; what else a token says of keys is not followed
    the signature                         by joserfc
    exp, nbf, iat, aud, required claims   exp has no grace
    the user, and roles                   by the claims that the issuer's table names
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from joserfc import jws
from joserfc.errors import UnsupportedAlgorithmError
from joserfc.jws import JWSRegistry

from gateway.config.tokens import IssuerConfig
from gateway.security.gate import Why
from gateway.tokens.keys import SigningKey
from gateway.tokens.reading import Parts, TokenError, number_of

KID_BYTES_MAX: Final = 255
AUDIENCES_MAX: Final = 16
USER_BYTES_MAX: Final = 255
ROLES_MAX: Final = 256
ROLE_BYTES_MAX: Final = 255
#: Not followed, and not minded, are `jku`, `x5u`, `jwk` and `x5c`: keys come from the issuer's own
#: place. These change what a signature covers, or how the payload is to be read.
_REFUSED_HEADERS: Final = ("crit", "b64", "enc", "zip", "cty")
_BIDIRECTIONAL: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


class _Registry(JWSRegistry):
    """As the library's; the whole token is bounded already, and headers are judged here."""

    max_header_length = 8192
    max_payload_length = 8192
    max_signature_length = 2048

    def get_alg(self, name: str) -> Any:  # noqa: ANN401 - the library exports no name for it
        """As the library's, without its warning of EdDSA: that is bound to Ed25519 here."""
        if not self.allowed or name not in self.allowed:
            raise UnsupportedAlgorithmError(name)
        return self.algorithms[name]


@dataclass(frozen=True, slots=True)
class Holder:
    """For whom a token speaks, with which roles, and until when (ms since 1970)."""

    user: str
    roles: frozenset[str]
    until_ms: int


class JudgedError(Exception):
    """A token is refused: `why` for the answer, the text for the operator."""

    def __init__(self, why: Why, text: str) -> None:
        super().__init__(text)
        self.why = why


def issuer_of(parts: Parts, issuers: Mapping[str, IssuerConfig]) -> IssuerConfig:
    """Return the issuer that a token names; `issuers` are by `iss`. Raises TokenError."""
    said = parts.claims.get("iss")
    found = issuers.get(said) if isinstance(said, str) else None
    if found is None:
        raise TokenError("its issuer (iss) is none of the configuration")
    return found


def header_of(parts: Parts, issuer: IssuerConfig) -> tuple[str, str | None]:
    """Return algorithm and kid of a header that may be; raises TokenError."""
    header = parts.header
    for name in _REFUSED_HEADERS:
        if name in header:
            raise TokenError(f"its header has {name}, which is not taken")
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if not any(algorithm == one.value for one in issuer.algorithms):
        raise TokenError("its algorithm (alg) is none of those of its issuer")
    if "typ" in header and not _is_type(kind, issuer.token_types):
        raise TokenError("its type (typ) is none of token-types")
    if "kid" in header and not (isinstance(kid, str) and 0 < len(kid) <= KID_BYTES_MAX):
        raise TokenError("its key's name (kid) is no text, or too long")
    return str(algorithm), kid


def _is_type(kind: object, types: Sequence[str]) -> bool:
    """Whether `typ` is one of these, in any case, `application/` in front or not [RFC 7515]."""
    if not isinstance(kind, str):
        return False
    return kind.lower().removeprefix("application/") in {one.lower() for one in types}


def check_signature(text: str, algorithm: str, key: SigningKey) -> None:
    """Raise TokenError unless the token is signed with this key."""
    if not key.fits(algorithm):
        raise TokenError("its key is for another algorithm")
    registry = _Registry(algorithms=[algorithm], strict_check_header=False)
    try:
        jws.deserialize_compact(text, key.key, [algorithm], registry)
    except Exception as error:  # noqa: BLE001 - whatever the library says of it, it lets nobody in
        raise TokenError(f"its signature is not good ({type(error).__name__})") from None


def judge_claims(parts: Parts, issuer: IssuerConfig, now_ms: int) -> Holder:
    """Return for whom a token speaks whose signature is good; raises JudgedError."""
    try:
        return _judge_claims(parts.claims, issuer, now_ms)
    except TokenError as error:
        raise JudgedError(Why.UNTRUSTED, str(error)) from None


def _judge_claims(claims: Mapping[str, Any], issuer: IssuerConfig, now_ms: int) -> Holder:
    ends = number_of(claims, "exp")
    if ends is None:
        raise TokenError("it has no end (exp)")
    until_ms = int(ends * 1000)
    if until_ms <= now_ms:
        raise JudgedError(Why.EXPIRED, f"it has ended {(now_ms - until_ms) / 1000:g} s ago")
    for name in ("nbf", "iat"):
        begins = number_of(claims, name)
        if begins is not None and begins * 1000 > now_ms + issuer.clock_skew:
            raise TokenError(
                f"its {name} lies more than clock-skew, {issuer.clock_skew} ms, ahead of our clock"
            )
    _check_audience(claims.get("aud"), issuer.audience)
    for name, wanted in issuer.required_claims.items():
        if not _has(claims, name, wanted):
            raise TokenError(f"its claim {name} is none of what required-claims asks for")
    return Holder(_user_of(claims, issuer.user_claim), _roles_of(claims, issuer), until_ms)


def _check_audience(said: object, ours: Sequence[str]) -> None:
    listed = [said] if isinstance(said, str) else said
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise TokenError("its audience (aud) is neither a text nor an array of texts")
    if len(listed) > AUDIENCES_MAX:
        raise TokenError(f"it is meant for {len(listed)} audiences; {AUDIENCES_MAX} are the most")
    if not set(listed) & set(ours):
        raise TokenError("it is meant for another audience (aud)")


def _has(claims: Mapping[str, Any], name: str, wanted: Sequence[object]) -> bool:
    """Whether a claim is one of these values, or a list that has one. True is not 1."""
    said = claims.get(name)
    listed = said if isinstance(said, list) else [said]
    return any(type(one) is type(value) and one == value for one in listed for value in wanted)


def _user_of(claims: Mapping[str, Any], name: str) -> str:
    user = claims.get(name)
    if not isinstance(user, str):
        raise TokenError(f"its user (claim {name}) is no text")
    if not user.strip() or user != user.strip():
        raise TokenError(f"its user (claim {name}) is empty, or has blanks around it")
    if len(user.encode("utf-8", "surrogatepass")) > USER_BYTES_MAX:
        raise TokenError(f"its user (claim {name}) is longer than {USER_BYTES_MAX} bytes")
    if not user.isprintable() or not _BIDIRECTIONAL.isdisjoint(user):
        raise TokenError(f"its user (claim {name}) holds a character that does not show")
    return user


# ---- roles


def _roles_of(claims: Mapping[str, Any], issuer: IssuerConfig) -> frozenset[str]:
    """Return the roles of the claims that are named, by prefix and map."""
    found: set[str] = set()
    prefix, mapped = issuer.role_prefix, issuer.role_map
    for path in issuer.role_claims:
        for word in _words_at(claims, path):
            if not word.startswith(prefix):
                continue
            role = word[len(prefix) :]
            roles = mapped.get(role, ()) if mapped else (role,)
            found.update(one for one in roles if one and len(one.encode()) <= ROLE_BYTES_MAX)
            if len(found) > ROLES_MAX:
                raise TokenError(f"it has more than {ROLES_MAX} roles")
    return frozenset(found)


def _words_at(claims: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the texts of a claim: of an array, or of a text with blanks between them."""
    value = _at(claims, path)
    if isinstance(value, str):
        yield from (word for word in value.split() if word.isprintable())
    elif isinstance(value, list):
        yield from (one for one in value if isinstance(one, str) and one.isprintable())


def _at(claims: Mapping[str, Any], path: str) -> object:
    """Return what stands at a path; a name that has dots itself comes first."""
    if path in claims:
        return claims[path]
    value: object = claims
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
