"""The keys that tokens are signed with: a JWK set to keys that may be used [RFC 7517]. Pure.

A key is taken for what it says itself, and for nothing else: a public one of RSA with 2048 bits at
least, of a curve that is known, for signatures. What a set has beside that is passed over, as the
standard asks. A secret comes from a file of its own, never from a set.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from gateway.config.tokens import TokenAlgorithm
from gateway.tokens.reading import TokenError, read_object

#: Issuers have two or three; some a dozen.
KEYS_MAX: Final = 64
SET_BYTES_MAX: Final = 256 << 10
RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192
_EXPONENT_MAX: Final = 1 << 32
#: As many bytes as the hash has [RFC 7518 3.2].
SECRET_BYTES_MIN: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
#: Algorithm -> the type of its keys, and their curve.
_FITS: Final[Mapping[str, tuple[str, str | None]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
    **dict.fromkeys(("HS256", "HS384", "HS512"), ("oct", None)),
}
_TYPES: Final[Mapping[str, type[RSAKey | ECKey | OKPKey]]] = {
    "RSA": RSAKey,
    "EC": ECKey,
    "OKP": OKPKey,
}
_PRIVATE: Final = ("d", "p", "q", "dp", "dq", "qi", "k")

AnyKey = RSAKey | ECKey | OKPKey | OctKey


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """A key, and what it is for; `algorithm` where it is for one only."""

    key: AnyKey
    kind: str
    curve: str | None = None
    kid: str | None = None
    algorithm: str | None = None

    def fits(self, algorithm: str) -> bool:
        """Whether tokens may be signed so with it."""
        return _FITS.get(algorithm) == (self.kind, self.curve) and self.algorithm in (
            None,
            algorithm,
        )


def find_key(keys: Sequence[SigningKey], kid: str | None, algorithm: str) -> SigningKey | None:
    """Return the key of a token; one that names none gets the only one that fits it."""
    fitting = [one for one in keys if one.fits(algorithm) and kid in (None, one.kid)]
    return fitting[0] if len(fitting) == 1 else None


def read_keys(data: bytes) -> tuple[SigningKey, ...]:
    """Return the keys of a JWK set that may be used; raises TokenError where there are none."""
    if len(data) > SET_BYTES_MAX:
        raise TokenError(f"the key set has more than {SET_BYTES_MAX} bytes")
    try:
        listed = read_object(data).get("keys")
    except TokenError:
        raise TokenError("the key set is no JSON object that has each name once") from None
    if not isinstance(listed, list):
        raise TokenError("the key set has no list of keys")
    if len(listed) > KEYS_MAX:
        raise TokenError(f"the key set has {len(listed)} keys; the limit is {KEYS_MAX}")
    found = [key for one in listed if isinstance(one, dict) and (key := _read_key(one)) is not None]
    if not found:
        raise TokenError("the key set has no key that may be used")
    return tuple(found)


def secret_key(data: bytes, algorithms: frozenset[TokenAlgorithm]) -> SigningKey:
    """Return the key of a secret file, whose last line end is none of it; raises TokenError."""
    secret = data.removesuffix(b"\n").removesuffix(b"\r")
    least = max(SECRET_BYTES_MIN[one.value] for one in algorithms)
    if len(secret) < least:
        raise TokenError(f"the secret has {len(secret)} bytes; its algorithms need {least}")
    return SigningKey(OctKey.import_key(secret), "oct")


def _read_key(said: Mapping[str, Any]) -> SigningKey | None:
    """Return a key of a set, None where it is none for us."""
    kind, curve, kid, algorithm = (said.get(name) for name in ("kty", "crv", "kid", "alg"))
    operations = said.get("key_ops", ["verify"])
    make = _TYPES.get(kind) if isinstance(kind, str) else None
    if (
        make is None
        or said.get("use", "sig") != "sig"
        or not isinstance(operations, list)
        or "verify" not in operations
        or any(name in said for name in _PRIVATE)
        or not isinstance(kid, str | None)
        or not isinstance(algorithm, str | None)
    ):
        return None
    if kind == "RSA":
        curve = None
        if not _rsa_is_sound(said):
            return None
    names = ("kty", "n", "e") if kind == "RSA" else ("kty", "crv", "x", "y")
    public = {name: said[name] for name in names if name in said}
    if not all(isinstance(value, str) for value in public.values()):
        return None
    if not any(fits == (kind, curve) for fits in _FITS.values()):
        return None
    try:
        key = make.import_key(public)
        key.get_op_key("verify")  # the library reads a point of a curve no earlier
    except (JoseError, ValueError, TypeError, KeyError, ArithmeticError):
        return None
    return SigningKey(key, str(kind), curve, kid, algorithm)


def _rsa_is_sound(said: Mapping[str, Any]) -> bool:
    try:
        modulus, exponent = (
            int.from_bytes(base64.urlsafe_b64decode(said[name] + "==="), "big")
            for name in ("n", "e")
        )
    except (KeyError, TypeError, ValueError):
        return False
    sound = RSA_BITS_MIN <= modulus.bit_length() <= RSA_BITS_MAX
    return sound and modulus % 2 == 1 and 3 <= exponent < _EXPONENT_MAX and exponent % 2 == 1
