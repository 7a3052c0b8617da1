"""A small client of the management API for commands: standard library only."""

from __future__ import annotations

import http.client
import json
import ssl
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, Final
from urllib.parse import urlsplit

import click

from gateway.cli.asking import read_password
from gateway.cli.errors import EX_UNAVAILABLE, EX_USAGE, CliError
from gateway.cli.tls_trust import Trust, no_handshake, refused, trust_options

DEFAULT_URL: Final = "http://127.0.0.1:8161"
_SECONDS: Final = 10.0
_MANAGEMENT: Final = "the URL that `sluicegate run` prints beside `management`"
#: Whatever JSON can hold.
Json = Any
Command = Callable[..., Any]


def login_hint(user: str | None) -> str:
    """Return what to try when a login was refused."""
    if user is None:
        return "--user NAME"
    return "--user NAME, or another password (SLUICEGATE_PASSWORD, --password-stdin)"


@dataclass
class Api:
    """The management API of one gateway, and as whom it is asked.

    The password of `user` is asked for when the first request needs it.
    """

    url: str
    user: str | None = None
    from_stdin: bool = False
    trust: Trust = field(default_factory=Trust)

    @cached_property
    def password(self) -> str | None:
        """The password of the login; None without one."""
        return read_password(self.user, from_stdin=self.from_stdin)

    def get(self, path: str) -> Json:
        """Return the JSON at `path`; raises CliError with the gateway's own code and text."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: Json, *, seconds: float = _SECONDS) -> Json:
        """Return the JSON that answers a POST of `body`; raises CliError as `get` does.

        `seconds`: how long nothing may come.
        """
        return self._ask("POST", path, json.dumps(body), seconds=seconds)

    def delete(self, path: str) -> Json:
        """Return the JSON that answers a DELETE; raises CliError as `get` does."""
        return self._ask("DELETE", path, None)

    def _ask(self, method: str, path: str, body: str | None, *, seconds: float = _SECONDS) -> Json:
        url = self.url if "//" in self.url else f"http://{self.url}"
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            text = f"{url} is no HTTP URL; this command asks the management listener"
            raise CliError("bad-url", text, attempt=f"--url {DEFAULT_URL}", status=EX_USAGE)
        secure = parts.scheme == "https"
        connection = (
            http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=seconds, context=self.trust.context()
            )
            if secure
            else http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
        )
        headers = {"Accept": "application/json"}
        if self.user is not None:
            encoded = b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
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
            raise _not_connected(
                url, "it closed the connection without an answer", attempt
            ) from None
        except http.client.HTTPException:
            raise _not_connected(url, "what answers there is no HTTP", _MANAGEMENT) from None
        except OSError as error:
            raise _not_connected(url, error.strerror or str(error) or repr(error)) from None
        finally:
            connection.close()
        return _read(url, answer.status, content, self.user)


def api_options(command: Command) -> Command:
    """Add the options that say which gateway is asked, and as whom; the command gets an `Api`."""

    @wraps(command)
    def asking(
        *arguments: object,
        url: str,
        user: str | None,
        password_stdin: bool,
        trust: Trust,
        **options: object,
    ) -> object:
        api = Api(url, user, password_stdin, trust)
        return command(*arguments, api=api, **options)

    options: list[Callable[[Command], Command]] = [
        click.option(
            "--url", default=DEFAULT_URL, show_default=True, help="The management listener."
        ),
        click.option("--user", help="Login; none when left out."),
        click.option(
            "--password-stdin", is_flag=True, help="Read the password from standard input."
        ),
    ]
    made = trust_options(asking, over="https")
    for option in reversed(options):
        made = option(made)
    return made


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
