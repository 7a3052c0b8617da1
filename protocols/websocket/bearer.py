"""The token that a request for WebSocket comes with: in `Authorization`, or in a cookie. Pure.

A browser sends cookies with the requests of any page. One counts only where the request names its
page (`Origin`), and that page was found to be one that may connect.
"""

from __future__ import annotations

from gateway.model.token import TOKEN_BYTES_MAX, is_token
from protocols.websocket.limits import WebSocketLimits
from protocols.websocket.requests import Request


def token_of(request: Request, limits: WebSocketLimits) -> str | None:
    """Return the token of a request whose origin was judged; None without one.

    What is in the place of a token and none is returned as well, to be refused.
    """
    for value in request.values("authorization"):
        scheme, _, token = value.partition(" ")
        if scheme.lower() == "bearer":
            return token.strip()
    if not limits.token_cookie or not request.values("origin"):
        return None
    found = [
        value.strip().strip('"')
        for header in request.values("cookie")
        for name, _, value in (pair.partition("=") for pair in header.split(";"))
        if name.strip() == limits.token_cookie
    ]
    # Two of one name: another site's page may have set the second one.
    return None if not found else found[0] if len(found) == 1 else ""


def has_form(token: str) -> bool:
    """Whether it can be a token at all."""
    return len(token) <= TOKEN_BYTES_MAX and is_token(token)
