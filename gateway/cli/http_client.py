"""A small client of the management API for commands: standard library only."""

from __future__ import annotations

import http.client
import json
import ssl
from base64 import b64encode
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.cli.errors import EX_UNAVAILABLE, EX_USAGE, CliError
from gateway.cli.tls_trust import refused, trusted

DEFAULT_URL: Final = "http://127.0.0.1:8161"
_SECONDS: Final = 10.0
#: Whatever JSON can hold.
Json = Any


def login_hint(user: str | None) -> str:
    """Return what to try when a login was refused."""
    if user is None:
        return "--user NAME"
    return "--user NAME, or another password (SLUICEGATE_PASSWORD, --password-stdin)"


def get(url: str, path: str, *, user: str | None = None, password: str | None = None) -> Json:
    """Return the JSON at `path`; raises CliError with the gateway's own code and text."""
    return _ask("GET", url, path, None, (user, password))


def post(
    url: str,
    path: str,
    body: Json,
    *,
    user: str | None = None,
    password: str | None = None,
    seconds: float = _SECONDS,
) -> Json:
    """Return the JSON that answers a POST of `body`; raises CliError as `get` does.

    `seconds`: how long nothing may come.
    """
    return _ask("POST", url, path, json.dumps(body), (user, password), seconds=seconds)


def delete(url: str, path: str, *, user: str | None = None, password: str | None = None) -> Json:
    """Return the JSON that answers a DELETE; raises CliError as `get` does."""
    return _ask("DELETE", url, path, None, (user, password))


def _ask(
    method: str,
    url: str,
    path: str,
    body: str | None,
    login: tuple[str | None, str | None],
    *,
    seconds: float = _SECONDS,
) -> Json:
    user, password = login
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        text = f"{url} is no HTTP URL"
        raise CliError("bad-url", text, attempt=f"--url {DEFAULT_URL}", status=EX_USAGE)
    secure = parts.scheme == "https"
    connection = (
        http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=seconds, context=trusted().context()
        )
        if secure
        else http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
    )
    headers = {"Accept": "application/json"}
    if user is not None:
        encoded = b64encode(f"{user}:{password or ''}".encode()).decode()
        headers["Authorization"] = f"Basic {encoded}"
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
    except ssl.SSLError as error:
        raise refused(error, url) from None
    except (OSError, http.client.HTTPException) as error:
        text = f"{url}: {getattr(error, 'strerror', None) or repr(error)}"
        attempt = f"sluicegate run, or --url {parts.scheme}://HOST:PORT"
        raise CliError("not-connected", text, attempt=attempt, status=EX_UNAVAILABLE) from None
    finally:
        connection.close()
    return _read(url, answer.status, content, user)


def _read(url: str, status: int, content: bytes, user: str | None) -> Json:
    try:
        value = json.loads(content)
    except ValueError:
        text = f"{url} answers {status} without JSON; it is no Sluicegate"
        raise CliError("not-connected", text, status=EX_UNAVAILABLE) from None
    if status not in (http.client.OK, http.client.ACCEPTED):
        attempt = login_hint(user) if status == http.client.UNAUTHORIZED else None
        raise CliError(
            str(value.get("code", "refused")), str(value.get("message", status)), attempt=attempt
        )
    return value
