"""Who may speak to the HTTP API, judged from headers alone.

Three questions, each asked before any route is looked up:

* Is the request meant for us? A page of another site can make a browser resolve its own name to
  127.0.0.1 (DNS rebinding); the `Host` header still names that site, so only known names pass.
* Does a page of another site send it? An unsafe request with a foreign `Origin` is refused, also
  when the gateway is open and no password protects it. Programs send no `Origin`.
* Who is the user? Basic credentials for the Authenticator; never over plain TCP from afar.

Pure: knows no transport; the peer's address comes as text.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping
from typing import Final

from gateway.management.http import SAFE_METHODS, ProblemError, shorten
from gateway.model.token import TOKEN_BYTES_MAX, is_token, tells_token

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="sluicegate", charset="UTF-8"'}
#: Longer than any user and password that can be stored, shorter than what would cost to decode.
CREDENTIALS_MAX: Final = 1024

_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_SAME_SITE: Final = frozenset({"same-origin", "none"})


def host_name(host: str) -> str | None:
    """Return the name in a `Host` value, lower case and without port; None when it is malformed."""
    found = _HOST.fullmatch(host)
    return found.group(1).lower().removesuffix(".") if found else None


def check_host(host: str, allowed: frozenset[str]) -> None:
    """Raise ProblemError unless `host` names this gateway: 400 malformed, 421 somebody else."""
    name = host_name(host)
    if name is None:
        raise ProblemError(400, "bad-request", f"The Host header {shorten(host)} is malformed.")
    if name not in LOOPBACK_NAMES and name not in allowed:
        message = (
            f"The host {shorten(name)} is not served here; name it in [management] allowed-hosts."
        )
        raise ProblemError(421, "misdirected-request", message)


def check_origin(method: str, host: str, headers: Mapping[str, str]) -> None:
    """Raise ProblemError (403) for an unsafe request that a page of another site sends."""
    if method in SAFE_METHODS:
        return
    origin = headers.get("origin")
    ours = (f"http://{host}".lower(), f"https://{host}".lower())
    if origin is not None and origin.lower() not in ours:
        raise _cross_site(f"The Origin {shorten(origin)} is not this gateway.")
    site = headers.get("sec-fetch-site", "none")
    if site not in _SAME_SITE:
        raise _cross_site(f"Sec-Fetch-Site is {shorten(site)}.")


def _cross_site(reason: str) -> ProblemError:
    message = f"{reason} Requests that change something are not taken from pages of other sites."
    return ProblemError(403, "cross-site", message)


def is_loopback(address: str) -> bool:
    """Return whether a peer's address is of this machine; what is no IP address is not."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def basic_credentials(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return (user, password) of the `Authorization` header; raises ProblemError (401) without."""
    scheme, _, encoded = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic" or len(encoded) > CREDENTIALS_MAX:
        raise unauthorized()
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeError, ValueError):
        raise unauthorized() from None
    user, colon, password = text.partition(":")
    if not colon or not user:
        raise unauthorized()
    return user, password


def credentials(headers: Mapping[str, str], cookie: str = "") -> tuple[str, str]:
    """Return (user, password), or ("", token) of `Authorization: Bearer`; ProblemError (401).

    A `cookie` of that name may hold the token where there is no such header.
    """
    said = headers.get("authorization", "")
    scheme, _, token = said.partition(" ")
    if not said and cookie:
        pairs = (pair.partition("=") for pair in headers.get("cookie", "").split(";"))
        found = [value.strip().strip('"') for name, _, value in pairs if name.strip() == cookie]
        if len(found) == 1:
            scheme, token = "bearer", found[0]
    if scheme.lower() != "bearer":
        return basic_credentials(headers)
    token = token.strip()
    if len(token) > TOKEN_BYTES_MAX or not is_token(token):
        raise not_let_in()
    return "", token


def check_no_token(query: Mapping[str, str]) -> None:
    """Raise ProblemError (400) for a token in the URL."""
    if any(tells_token(name, value) for name, value in query.items()):
        message = (
            "A token came in the URL, which proxies and logs keep; send it as Authorization: "
            "Bearer."
        )
        raise ProblemError(400, "token-in-url", message)


def not_let_in() -> ProblemError:
    """Return the answer to a token that lets nobody in."""
    message = "The token of this request is not taken; the gateway's log says why."
    challenge = {"WWW-Authenticate": 'Bearer realm="sluicegate", error="invalid_token"'}
    return ProblemError(401, "not-authorized", message, challenge)


def unauthorized() -> ProblemError:
    """Return the one answer to missing, malformed and wrong credentials alike."""
    message = "This gateway has users: send a valid user and password (Basic)."
    return ProblemError(401, "not-authorized", message, CHALLENGE)


def insecure() -> ProblemError:
    """Return the refusal of a password that would cross the network in clear text."""
    message = "Passwords are taken over TLS or from this machine only; use a tls: or ssl: endpoint."
    return ProblemError(403, "not-authorized", message)
