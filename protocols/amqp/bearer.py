r"""OAUTHBEARER and XOAUTH2 for `SaslServer`: a token, and the name of whom it is said to be for.

    OAUTHBEARER    n,a=ann,\x01host=h\x01port=5672\x01auth=Bearer <token>\x01\x01    [RFC 7628]
    XOAUTH2        user=ann\x01auth=Bearer <token>\x01\x01

A token that is refused is told by a challenge, which the client answers before the outcome comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from protocols.amqp.sasl import Challenge, Check, Refused, Step

_SEPARATOR: Final = b"\x01"
_END: Final = b"\x01\x01"
#: What a client is told whose token is refused; why, is for the log alone.
_TOLD: Final = {
    "OAUTHBEARER": b'{"status":"invalid_token"}',
    "XOAUTH2": b'{"status":"401","schemes":"bearer"}',
}
#: More fields than any client sends.
_FIELDS_MAX: Final = 16


class Bearer:
    """One conversation of either mechanism."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def step(self, response: bytes | None) -> Step:
        """See Exchange."""
        if response is None:
            return Challenge(b"")
        try:
            user, token = self._read(response)
        except ValueError as error:
            return Refused(f"{self._name} response {error}")
        return Check(user, token, told=_TOLD[self._name])

    def _read(self, response: bytes) -> tuple[str, str]:
        """Return the user, empty where none is named, and the token; raises ValueError."""
        if not response.endswith(_END):
            raise ValueError("that does not end with two separators")
        first, *fields = response.removesuffix(_END).split(_SEPARATOR)
        if self._name == "OAUTHBEARER":
            user = _user_of_header(_text(first))
        else:
            fields.insert(0, first)
            user = ""
        if len(fields) > _FIELDS_MAX:
            raise ValueError(f"with more than {_FIELDS_MAX} fields")
        said: dict[str, str] = {}
        for field in fields:
            name, equals, value = _text(field).partition("=")
            if not equals or name in said:
                raise ValueError("with a field that has no value, or comes twice")
            said[name] = value
        scheme, _, token = said.get("auth", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise ValueError("without a token (auth=Bearer ...)")
        return user or said.get("user", ""), token.strip()


def _user_of_header(header: str) -> str:
    """Return the name of a GS2 header, empty where it has none [RFC 5801 4]; raises ValueError."""
    parts = header.split(",")
    if len(parts) != 3 or parts[0] not in ("n", "y") or parts[2]:
        raise ValueError("whose header is none of GS2, or asks for channel binding")
    if not parts[1]:
        return ""
    if not parts[1].startswith("a="):
        raise ValueError("whose header is none of GS2")
    # A comma is written =2C there, an equals sign =3D.
    return unquote(parts[1][2:].replace("%", "%25").replace("=", "%"))


def _text(field: bytes) -> str:
    try:
        return field.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("that is not UTF-8") from None


def bearer_exchanges() -> dict[str, Callable[[], Bearer]]:
    """Return what `SaslServer(exchanges=...)` needs to offer both."""
    return {
        "OAUTHBEARER": lambda: Bearer("OAUTHBEARER"),
        "XOAUTH2": lambda: Bearer("XOAUTH2"),
    }
