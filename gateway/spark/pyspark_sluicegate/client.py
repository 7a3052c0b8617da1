"""Calls to a gateway over HTTP: kept-alive connections, retries until a deadline.

Every call can be repeated without harm, so a gateway that is killed and started again costs
waiting only. It knows no offset and no row.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark_sluicegate.options import Options, SluicegateError
from pyspark_sluicegate.pacing import PacedResponse

_BUSY: Final = frozenset({429, 502, 503, 504})
_PAUSE_MAX: Final = 2.0
#: Of an answer that is no Arrow stream: a plan of ten thousand streams has a tenth of it.
_ANSWER_BYTES_MAX: Final = 64 << 20
_JSON: Final = "application/json"


class Fields(dict[str, Any]):
    """A JSON object that a gateway answered; a field that it left out is an error that says so."""

    def __init__(self, fields: Mapping[str, Any], what: str) -> None:
        super().__init__(fields)
        self._what = what

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - never returns
        raise SluicegateError(
            f"{self._what}: the answer has no {name!r}. What answers there is no Sluicegate "
            "gateway, or one of another version than pyspark-sluicegate."
        )


class RetryError(Exception):
    """The gateway cannot be reached, or is busy, or an answer was cut: worth another try.

    `answer` is what a gateway that is busy says beside the reason.
    """

    def __init__(self, text: str, answer: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.answer = answer or {}


class StatusError(SluicegateError):
    """The gateway refused a call."""

    def __init__(self, status: int, answer: Mapping[str, Any], what: str) -> None:
        unsaid = f"HTTP status {status}; does the management listener of a gateway answer there?"
        text = answer.get("message") or unsaid
        hint = " Give `token`, or `username` and `password`." if status == 401 else ""
        super().__init__(f"{what}: {text}{hint}")
        self.status = status
        self.losses: Sequence[Mapping[str, Any]] = answer.get("losses", ())


#: Kept-alive connections of this process, by gateway and login; a task's worker is used again.
_idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = {}


class Patience:
    """Pauses between tries, longer each time, until a deadline since the last success."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.reset()

    def reset(self) -> None:
        self._end = time.monotonic() + self._seconds
        self._pause = 0.05

    def wait(self, error: Exception, what: str) -> None:
        """Sleep, or raise SluicegateError when the deadline has passed."""
        if time.monotonic() + self._pause > self._end:
            text = f"{what}: {error}; gave up after {self._seconds:g} s (retryDeadline)"
            raise SluicegateError(text) from error
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _PAUSE_MAX)


class Gateway:
    """Calls to one gateway. Holds no connection itself, so that it can be pickled."""

    def __init__(self, url: str, options: Options) -> None:
        self.url = url
        self._options = options
        login = f"{options['username']}:{options['password']}"
        self._login = f"Basic {base64.b64encode(login.encode()).decode()}" if login != ":" else ""
        if options["token"]:
            self._login = f"Bearer {options['token']}"

    def call(self, path: str, body: Mapping[str, Any], seconds: float | None = None) -> Fields:
        """POST and return the JSON object that is answered, retried until the deadline."""
        what = f"{self.url} {path}"
        patience = Patience(self._options["retryDeadline"] if seconds is None else seconds)
        while True:
            try:
                connection, response = self.post(path, body)
                data = self.drain(connection, response)
                fields = json.loads(data)
                return Fields(fields if isinstance(fields, dict) else {}, what)
            except (RetryError, ValueError) as error:
                patience.wait(error, what)

    def post(
        self, path: str, body: Mapping[str, Any]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send one request; returns a good answer's head. Raises RetryError, StatusError."""
        return self.send("POST", "/api/v1/streams" + path, json.dumps(body).encode(), _JSON)

    def send(
        self, method: str, path: str, data: bytes, content_type: str
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """As `post`, of any method, path below the root, and body."""
        headers = {"Content-Type": content_type, "Accept": "*/*"}
        authorization = self._authorization()
        if authorization:
            headers["Authorization"] = authorization
        connection = self._connection()
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            if response.status < 300:
                return connection, response
            answer = self._whole(response)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise RetryError(f"{type(error).__name__} {error}".strip()) from error
        connection.close()
        fields = _json_object(answer)
        if response.status in _BUSY:
            raise RetryError(fields.get("message") or f"HTTP status {response.status}", fields)
        raise StatusError(response.status, fields, f"{self.url} {path}")

    def drain(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> bytes:
        """Read what is left of an answer and keep the connection for the next call."""
        try:
            data = self._whole(response)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise RetryError(f"{type(error).__name__} {error}".strip()) from error
        if response.will_close:
            connection.close()
        else:
            _idle.setdefault(self._key, []).append(connection)
        return data

    def _whole(self, response: http.client.HTTPResponse) -> bytes:
        """Return what is left of an answer. Raises SluicegateError where that has no end."""
        data = response.read(_ANSWER_BYTES_MAX + 1)
        if len(data) > _ANSWER_BYTES_MAX:
            response.close()
            raise SluicegateError(
                f"{self.url}: an answer is longer than {_ANSWER_BYTES_MAX} bytes. What answers "
                "there is no Sluicegate gateway."
            )
        if response.length:
            raise http.client.IncompleteRead(data, response.length)
        return data

    @property
    def _key(self) -> tuple[str, str]:
        # Certificates that one query trusts are not those that another one does.
        return self.url, "\n".join(
            [self._login, *(self._options[n] for n in ("tokenFile", "tlsCaFile"))]
        )

    def _connection(self) -> http.client.HTTPConnection:
        idle = _idle.get(self._key)
        if idle:
            return idle.pop()
        parts, options = urlsplit(self.url), self._options
        host, seconds = parts.hostname or "", options["connectTimeout"]
        made = http.client.HTTPConnection(host, parts.port, timeout=seconds)
        if parts.scheme == "https":
            made = http.client.HTTPSConnection(
                host, parts.port, timeout=seconds, context=_trust(options["tlsCaFile"])
            )
        try:
            made.connect()
        except ssl.SSLCertVerificationError as error:
            raise SluicegateError(
                f"{self.url}: its certificate is not trusted ({error.verify_message}). Give the "
                "certificate of its authority as 'tlsCaFile'."
            ) from error
        except OSError as error:
            raise RetryError(f"cannot connect: {error}") from error
        made.sock.settimeout(options["readTimeout"])
        paced: Any = partial(PacedResponse, seconds=options["readTimeout"])
        made.response_class = paced
        return made

    def _authorization(self) -> str:
        if not self._options["tokenFile"]:
            return self._login
        try:
            token = Path(self._options["tokenFile"]).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable("tokenFile", self._options["tokenFile"], error) from None
        return f"Bearer {token}"


def _trust(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise _unreadable("tlsCaFile", ca_file, error) from None


def _unreadable(option: str, path: str, error: Exception) -> SluicegateError:
    reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
    return SluicegateError(
        f"The option {option!r} names {path!r}, which cannot be read here: {reason}. The driver "
        "and each executor need it."
    )


def _json_object(data: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
