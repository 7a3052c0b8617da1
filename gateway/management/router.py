"""From a request to the function that answers it.

A route is a method and a template such as `/api/v1/queues/{name}` or `/streams/{name}:attach`. A
parameter is one segment, percent-decoded *after* the path is split, so that a name may hold `/`
(`%2F`), `..` or `?` and still be one name. A template with more literal text wins over one with
less; among equals the one that was added first.

Each route says what it needs (`gateway.model.roles`): `allow` is asked before anything else is
looked at, so that whoever may not do something learns nothing of it.

What changes something is told to `on_change` with its answer, once for each request.

Pure: it calls the function and maps what it raises; sending is `wire`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.management.http import (
    BODY_BYTES_MAX,
    JSON,
    SAFE_METHODS,
    Answer,
    Body,
    ProblemError,
    Request,
    Response,
    decode_component,
    error_response,
    json_response,
    problem_response,
    shorten,
)
from gateway.model.roles import Need

__all__ = ["Answer", "Body", "ProblemError", "Request", "Response", "Router", "json_response"]

Function = Callable[..., Answer]
#: Told of a request that may change something, its template, its parameters, and its answer.
OnChange = Callable[["Change"], None]
#: Raises RefusedError (not-authorized) unless whoever asks has what the route of a template needs.
Allow = Callable[[Request, str, Need], None]

_PARAMETER: Final = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """One piece of a template: literal text, with at most one parameter in it."""

    prefix: str
    parameter: str | None = None
    suffix: str = ""

    def take(self, raw: str) -> str | None:
        """Return the parameter's raw text (empty for a literal) when `raw` fits, else None."""
        if self.parameter is None:
            return "" if raw == self.prefix else None
        value = raw[len(self.prefix) : len(raw) - len(self.suffix)]
        fits = raw.startswith(self.prefix) and raw.endswith(self.suffix) and value
        return value if fits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    """A function, what it needs, the bodies that it takes, and whether it is told as a change."""

    function: Function
    need: Need
    content_types: frozenset[str]
    audited: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A request that may have changed something.

    Attributes:
        request: as it came.
        template: of its route, such as `/api/v1/queues/{name}`.
        parameters: of the path, decoded.
        answer: None when there is none: a fault of ours.
    """

    request: Request
    template: str
    parameters: Mapping[str, str]
    answer: Response | None


class _Template:
    """A path with its functions by method."""

    __slots__ = ("functions", "literal_count", "segments", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.segments = [_segment(part) for part in text.split("/")[1:]]
        self.literal_count = sum(len(s.prefix) + len(s.suffix) for s in self.segments)
        self.functions: dict[str, _Route] = {}

    def match(self, raws: list[str]) -> dict[str, str] | None:
        """Return the raw parameters when all segments fit."""
        found: dict[str, str] = {}
        for segment, raw in zip(self.segments, raws, strict=True):
            value = segment.take(raw)
            if value is None:
                return None
            if segment.parameter is not None:
                found[segment.parameter] = value
        return found


class Router:
    """The table of routes."""

    def __init__(self) -> None:
        self._by_length: dict[int, list[_Template]] = {}
        self.on_change: OnChange = _tell_nobody
        self.allow: Allow = _allow_all

    def add(
        self,
        method: str,
        template: str,
        function: Function,
        *,
        need: Need,
        content_types: tuple[str, ...] = (JSON,),
        audited: bool = True,
    ) -> None:
        """Answer `method` on `template` by `function(request, **parameters)`.

        It is called for whoever has what is needed; with ADDRESS the function judges the rest.
        A body is taken only with one of `content_types`. HEAD follows GET by itself. What is not
        `audited` changes nothing, or as little as an acknowledgement does.
        """
        entry = _Template(template)
        same_length = self._by_length.setdefault(len(entry.segments), [])
        for other in same_length:
            if other.text == template:
                entry = other
                break
        else:
            same_length.append(entry)
            same_length.sort(key=lambda t: -t.literal_count)
        if method in entry.functions:
            raise ValueError(f"{method} {template} has a function already")
        entry.functions[method] = _Route(
            function=function,
            need=need,
            content_types=frozenset(content_types),
            audited=audited and method not in SAFE_METHODS,
        )

    def routes(self) -> list[tuple[str, str]]:
        """Return (method, template) of every route, sorted by template."""
        every = (t for templates in self._by_length.values() for t in templates)
        return sorted(((m, t.text) for t in every for m in t.functions), key=lambda r: (r[1], r[0]))

    def needs(self) -> list[tuple[str, str, Need]]:
        """Return (method, template, need) of every route, sorted by template."""
        every = (t for templates in self._by_length.values() for t in templates)
        found = ((m, t.text, route.need) for t in every for m, route in t.functions.items())
        return sorted(found, key=lambda r: (r[1], r[0]))

    def dispatch(self, request: Request) -> Answer:
        """Answer a request. Refusals become answers; a fault of ours is raised.

        A Deferred that is returned may still fail with a refusal: see `http.error_response`.
        """
        try:
            template, route, parameters = self._resolve(request)
        except ProblemError as problem:
            return problem_response(problem)
        if not route.audited:
            return self._answered(template, route, request, parameters)

        def changed(answer: Response | None) -> None:
            self.on_change(
                Change(request=request, template=template, parameters=parameters, answer=answer)
            )

        try:
            answer = self._answered(template, route, request, parameters)
        except Exception:
            changed(None)
            raise
        if isinstance(answer, Response):
            changed(answer)
            return answer

        def failed(failure: Any) -> Any:  # noqa: ANN401 - Twisted's, which is not known here
            changed(error_response(failure.value))
            return failure

        def done(response: Response) -> Response:
            changed(response)
            return response

        return answer.addCallbacks(done, failed)

    def _answered(
        self, template: str, route: _Route, request: Request, parameters: dict[str, str]
    ) -> Answer:
        """Call a function; a refusal becomes an answer, a fault of ours is raised."""
        try:
            self.allow(request, template, route.need)
            _check_body(request, route.content_types)
            return route.function(request, **parameters)
        except Exception as error:
            answer = error_response(error)
            if answer is None:
                raise
            return answer

    def _resolve(self, request: Request) -> tuple[str, _Route, dict[str, str]]:
        method = "GET" if request.method == "HEAD" else request.method
        raws = request.path.split("/")[1:]
        allowed: set[str] = set()
        for template in self._by_length.get(len(raws), ()):
            raw_parameters = template.match(raws)
            if raw_parameters is None:
                continue
            route = template.functions.get(method)
            if route is None:
                allowed.update(template.functions)
                continue
            parameters = {k: decode_component(v) for k, v in raw_parameters.items()}
            return template.text, route, parameters
        if allowed:
            raise _not_allowed(request.method, allowed)
        raise ProblemError(404, "not-found", f"There is nothing at {shorten(request.path)}.")


def _tell_nobody(change: Change) -> None:
    """Stand for whoever wants to know of changes."""


def _allow_all(request: Request, template: str, need: Need) -> None:
    """Stand for the judge of a gateway that lets everybody do everything."""


def _segment(text: str) -> _Segment:
    found = _PARAMETER.search(text)
    if found is None:
        return _Segment(prefix=text)
    return _Segment(
        prefix=text[: found.start()], parameter=found.group(1), suffix=text[found.end() :]
    )


def _not_allowed(method: str, allowed: set[str]) -> ProblemError:
    names = sorted(allowed | ({"HEAD"} if "GET" in allowed else set()))
    message = f"{shorten(method)} is not possible here; possible: {', '.join(names)}."
    return ProblemError(405, "method-not-allowed", message, {"Allow": ", ".join(names)})


def _check_body(request: Request, content_types: frozenset[str]) -> None:
    """Refuse what could be taken for another body than it is.

    A browser sends a cross-site form without asking, but never with a JSON content type: so an
    unsafe method may not name another one even when its body is empty.
    """
    headers = request.headers
    if len(request.body) > BODY_BYTES_MAX:
        message = f"The body has {len(request.body)} bytes; the limit is {BODY_BYTES_MAX}."
        raise ProblemError(413, "too-large", message)
    if headers.get("content-encoding", "identity").lower() != "identity":
        message = "A body with Content-Encoding is not taken; send it plain."
        raise ProblemError(415, "unsupported-media-type", message)
    if request.method in SAFE_METHODS:
        if request.body:
            raise ProblemError(400, "bad-request", f"A {request.method} takes no body.")
        return
    content_type = headers.get("content-type")
    if content_type is None and not request.body:
        return
    if _media_type(content_type or "") not in content_types:
        message = f"The body must be {' or '.join(sorted(content_types))} (Content-Type)."
        raise ProblemError(415, "unsupported-media-type", message)


def _media_type(value: str) -> str:
    """Return `type/subtype` in lower case; empty when a charset other than UTF-8 is named."""
    media, _, parameters = value.partition(";")
    charset = parameters.replace('"', "").replace(" ", "").lower()
    return media.strip().lower() if charset in ("", "charset=utf-8") else ""
