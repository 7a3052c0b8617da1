"""A small client of the management API for commands: standard library only."""

from __future__ import annotations

import http.client
import json
import ssl
from base64 import b64encode
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.cli.errors import EX_UNAVAILABLE, EX_USAGE, CliError
from gateway.cli.tls_trust import no_handshake, refused, trusted

DEFAULT_URL: Final = "http://127.0.0.1:8161"
_SECONDS: Final = 10.0
_MANAGEMENT: Final = "the URL that `sluicegate run` prints beside `management`"
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
    url = url if "//" in url else f"http://{url}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        text = f"{url} is no HTTP URL; this command asks the management listener"
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
    except TimeoutError as error:
        if secure and "handshake" in str(error):
            raise no_handshake(url) from None
        raise _not_connected(url, f"no answer within {seconds:g} s") from None
    except http.client.RemoteDisconnected:
        # Ours closes so on whoever speaks no TLS.
        attempt = None if secure else f"--url {url.replace('http:', 'https:')} if TLS is there"
        raise _not_connected(url, "it closed the connection without an answer", attempt) from None
    except http.client.HTTPException:
        raise _not_connected(url, "what answers there is no HTTP", _MANAGEMENT) from None
    except OSError as error:
        raise _not_connected(url, error.strerror or str(error) or repr(error)) from None
    finally:
        connection.close()
    return _read(url, answer.status, content, user)


def _not_connected(url: str, why: str, attempt: str | None = None) -> CliError:
    attempt = attempt or f"sluicegate run, or --url {url.partition(':')[0]}://HOST:PORT"
    return CliError("not-connected", f"{url}: {why}", attempt=attempt, status=EX_UNAVAILABLE)


def _read(url: str, status: int, content: bytes, user: str | None) -> Json:
    try:
        value = json.loads(content)
    except ValueError:
        text = f"it answers {status} without JSON, as no management listener does"
        raise _not_connected(url, text, _MANAGEMENT) from None
    if status not in (http.client.OK, http.client.ACCEPTED):
        attempt = login_hint(user) if status == http.client.UNAUTHORIZED else None
        raise CliError(
            str(value.get("code", "refused")), str(value.get("message", status)), attempt=attempt
        )
    return value
