"""Requests, answers and refusals of the HTTP API, as plain values.

Pure: knows no socket, no Twisted transport and no queue. `wire` makes the requests and sends the
answers, `router` finds the function in between. Every refusal is a status and a JSON object
`{"code", "message"}` with the same codes as everywhere else (`gateway.model.errors`), plus the few
below that only HTTP has.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.principal import ANYBODY, Principal

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

JSON: Final = "application/json"
#: The largest request body: settings take a few KiB, a plan of Spark's a few hundred.
BODY_BYTES_MAX: Final = 1 << 20
#: More parameters than any call has; what is beyond is not a mistake but an attempt.
QUERY_FIELDS_MAX: Final = 32
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

#: Which status tells which reason. Complete: a test walks over all codes.
STATUS: Final[Mapping[Code, int]] = {
    Code.ADDRESS_FULL: 503,
    Code.PAGE_FULL: 503,
    Code.MEMORY_FULL: 503,
    Code.STORE_BUSY: 503,
    Code.DISK_FULL: 507,
    Code.NOT_FOUND: 404,
    Code.NOT_AUTHORIZED: 403,
    Code.TOKEN_EXPIRED: 401,
    Code.ALREADY_EXISTS: 409,
    Code.DUPLICATE_ID: 409,
    Code.BAD_NAME: 422,
    Code.BAD_VALUE: 422,
    Code.BAD_SELECTOR: 422,
    Code.BAD_HEADER: 422,
    Code.BAD_FRAME: 422,
    Code.BAD_MESSAGE: 422,
    Code.TOO_LARGE: 413,
    Code.TOO_MANY: 429,
    Code.QUOTA_REACHED: 429,
    Code.ROUTING_MISMATCH: 409,
    Code.MAX_CONSUMERS: 409,
    Code.IN_USE: 409,
    Code.NOT_IMPLEMENTED: 501,
    Code.QUEUE_DELETED: 404,
    Code.CONVERSION: 422,
    Code.STORE_FAILED: 503,
    Code.DUPLICATE_ID: 409,
    Code.SLOW_CONSUMER: 409,
    Code.OPERATOR: 409,
    Code.SHUTTING_DOWN: 503,
}

Body: TypeAlias = "bytes | Iterator[bytes]"
Answer: TypeAlias = "Response | Deferred[Response]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, whole.

    Attributes:
        method: upper case, as sent.
        path: still percent-encoded, begins with `/`; the router decodes segment by segment.
        query: decoded names and values; no name came twice.
        headers: names in lower case; values of a repeated header joined by `, `.
        body: at most `BODY_BYTES_MAX` bytes.
        peer: the address of the other end.
        principal: for whom it is asked; ANYBODY when the gateway is open or the path needs nobody.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    principal: Principal = ANYBODY
    peer: str = ""

    @property
    def user(self) -> str | None:
        """The name of who logged in; None when nobody needs to."""
        return self.principal.user


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One answer; an iterator as `body` is pulled as the client reads, and closed when it goes.

    `length` is told of an iterator whose bytes are counted already. `cuttable` is given what ends
    the connection, when the iterator begins to be sent.
    """

    status: int
    body: Body = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    cuttable: Callable[[Callable[[], None]], None] | None = None


class ProblemError(Exception):
    """A refusal that has its own HTTP status; `code` is stable as those of `Code` are."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}


def json_response(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    """Return `value` as a JSON answer."""
    return Response(status=status, body=msgspec.json.encode(value), headers=headers or {})


def problem_response(problem: ProblemError) -> Response:
    """Return the answer that tells a refusal."""
    shown = {"code": problem.code, "message": problem.message}
    return json_response(problem.status, shown, problem.headers)


def refusal_response(refusal: Refusal) -> Response:
    """Return the answer that tells a refusal of the core."""
    shown = {"code": refusal.code.value, "message": refusal.text}
    return json_response(STATUS[refusal.code], shown)


def error_response(error: BaseException) -> Response | None:
    """Return the answer for a refusal that was raised; None when `error` is a fault of ours."""
    if isinstance(error, ProblemError):
        return problem_response(error)
    if isinstance(error, RefusedError):
        return refusal_response(error.refusal)
    return None


def _bad(message: str) -> ProblemError:
    return ProblemError(400, "bad-request", message)


def decode_component(text: str, *, plus_is_space: bool = False) -> str:
    """Percent-decode one path segment or one part of a query; raises ProblemError (400)."""
    if plus_is_space:
        text = text.replace("+", " ")
    for piece in text.split("%")[1:]:
        if len(piece) < 2 or not all(c in "0123456789abcdefABCDEF" for c in piece[:2]):
            raise _bad(f"{shorten(text)} holds a '%' that two hex digits must follow.")
    try:
        decoded = unquote_to_bytes(text).decode("utf-8")
    except UnicodeError:
        raise _bad(f"{shorten(text)} is no UTF-8 once decoded.") from None
    if any(c < " " or c == "\x7f" for c in decoded):
        raise _bad(f"{shorten(text)} holds a control character.")
    return decoded


def parse_query(text: str) -> dict[str, str]:
    """Return the fields of a query (without `?`); raises ProblemError (400) when one is double."""
    fields: dict[str, str] = {}
    parts = [part for part in text.split("&", QUERY_FIELDS_MAX + 1) if part]
    if len(parts) > QUERY_FIELDS_MAX:
        raise _bad(f"The query has more than {QUERY_FIELDS_MAX} fields.")
    for part in parts:
        raw_name, _, raw_value = part.partition("=")
        name = decode_component(raw_name, plus_is_space=True)
        if name in fields:
            raise _bad(f"The query field {shorten(name)} comes twice.")
        fields[name] = decode_component(raw_value, plus_is_space=True)
    return fields


def check_query(request: Request, known: Iterable[str]) -> Mapping[str, str]:
    """Return the query when it has `known` fields only; raises RefusedError (bad-value) else."""
    names = list(known)
    for name in request.query:
        if name not in names:
            raise RefusedError.of(Code.BAD_VALUE, unknown_text("query field", name, names))
    return request.query


def query_int(request: Request, name: str, default: int, *, low: int = 0, high: int) -> int:
    """Return a whole number of the query within bounds; raises RefusedError (bad-value)."""
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and low <= int(text) <= high):
        message = (
            f"The query field {name!r} is {shorten(text)}; "
            f"it must be a whole number from {low} to {high}."
        )
        raise RefusedError.of(Code.BAD_VALUE, message)
    return int(text)


def query_flag(request: Request, name: str) -> bool:
    """Return a `true` or `false` of the query (absent: False); raises RefusedError (bad-value)."""
    text = request.query.get(name, "false")
    if text not in ("true", "false"):
        message = f"The query field {name!r} is {shorten(text)}; it must be 'true' or 'false'."
        raise RefusedError.of(Code.BAD_VALUE, message)
    return text == "true"


def unknown_text(what: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence that refuses an unknown name and offers the nearest known one."""
    names = sorted(known)
    near = difflib.get_close_matches(name[:64], names, n=1, cutoff=0.6)
    if near:
        return f"The {what} {shorten(name)} is unknown; did you mean {near[0]!r}?"
    offered = f"known are: {', '.join(names)}" if names else "there are none here"
    return f"The {what} {shorten(name)} is unknown; {offered}."


def shorten(text: str) -> str:
    """Return client text for a message: quoted, escaped and never longer than a line."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")
