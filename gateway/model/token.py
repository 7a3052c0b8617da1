"""What tells a token from a password, and where one is renewed. Pure.

A token is a JWT in its compact form [RFC 7519 3, RFC 7515 7.1]: three parts in base64url with dots
between them, of which the first is a JSON object, so that its text begins with `eyJ`.
"""

from __future__ import annotations

import re
from typing import Final

#: A longer one is refused unread: none needs more, and whoever sends it is not known yet.
TOKEN_BYTES_MAX: Final = 8192
#: STOMP clients send a new token there, before the one that they came in with has ended.
TOKEN_DESTINATION: Final = "$token"  # noqa: S105 - a name, no token
#: AMQP clients put a new token there [AMQP-CBS 2].
CBS_NODE: Final = "$cbs"

_FORM: Final = re.compile(r"eyJ[A-Za-z0-9_-]*(\.[A-Za-z0-9_-]*){2,4}\Z")


#: Names that a token has in the query of a URL.
_IN_QUERY: Final = frozenset({"access_token", "token", "jwt", "id_token", "bearer"})


def tells_token(name: str, value: str) -> bool:
    """Whether a field of a URL's query is a token, by its name or by its form."""
    return name.lower() in _IN_QUERY or is_token(value)


def is_token(secret: str) -> bool:
    """Whether a secret has the form of a token, encrypted ones included, which none reads here."""
    return _FORM.match(secret) is not None
