"""A token's text to its parts, strictly: what two readers could take for two things is refused.

Nothing here is believed yet. Pure.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from gateway.model.token import TOKEN_BYTES_MAX

#: Levels of JSON inside one another; claims have three.
DEPTH_MAX: Final = 16
NUMBER_MAX: Final = 1 << 53
_CHARS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


class TokenError(Exception):
    """A token is not to be believed; the text says why, and shows nothing of it but names."""


@dataclass(frozen=True, slots=True, repr=False)
class Parts:
    """A token's header and claims, as it says itself."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]


def read_parts(text: str) -> Parts:
    """Return the parts of a signed token; raises TokenError."""
    size = len(text)
    if size > TOKEN_BYTES_MAX:
        raise TokenError(f"it has {size} characters; the limit is {TOKEN_BYTES_MAX}")
    parts = text.split(".")
    if len(parts) == 5:
        raise TokenError("it is encrypted (JWE), and only signed ones are read")
    if len(parts) != 3:
        raise TokenError("it does not have three parts")
    if not parts[2]:
        raise TokenError("it is not signed")
    decode_part(parts[2])
    return Parts(read_object(decode_part(parts[0])), read_object(decode_part(parts[1])))


def decode_part(part: str) -> bytes:
    """Return the bytes of base64url without padding [RFC 7515 2]; raises TokenError."""
    if not part.isascii() or not _CHARS.issuperset(part.encode("ascii")):
        raise TokenError("a part of it is no base64url")
    try:
        data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        raise TokenError("a part of it is no base64url") from None
    # Bits behind the last byte would give one token many texts.
    if base64.urlsafe_b64encode(data).rstrip(b"=") != part.encode("ascii"):
        raise TokenError("a part of it has bits left over behind its last byte")
    return data


def read_object(data: bytes) -> dict[str, Any]:
    """Return a JSON object, in which no name comes twice; raises TokenError."""
    try:
        text = data.decode("utf-8")
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except RecursionError:
        raise TokenError("its JSON is nested too deep") from None
    except ValueError:  # also what is no UTF-8, and a number of too many digits
        raise TokenError("a part of it is no JSON") from None
    if not isinstance(found, dict):
        raise TokenError("a part of it is no JSON object")
    if _depth(found) > DEPTH_MAX:
        raise TokenError("its JSON is nested too deep")
    return found


def number_of(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a date of the claims, in seconds since 1970, or None; raises TokenError."""
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenError(f"its {name} is no number")
    if not math.isfinite(value) or not 0 <= value < NUMBER_MAX:
        raise TokenError(f"its {name} is no date")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise TokenError("a name comes twice in it")
    return found


def _no_number(_text: str) -> NoReturn:
    raise TokenError("it holds a number that is none")


def _depth(value: object) -> int:
    """Return how many levels a value has; goes one deeper than the limit at most."""
    level, depth = [value], 0
    while level and depth <= DEPTH_MAX:
        depth += 1
        level = [
            below
            for one in level
            if isinstance(one, dict | list)
            for below in (one.values() if isinstance(one, dict) else one)
        ]
    return depth
