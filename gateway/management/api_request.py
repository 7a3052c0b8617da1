"""One request of twisted.web: its body bounded, its head read strictly, its answer written.

Everything that the exchange needs of Twisted's request is here, in our types, so that what is
ambiguous on the wire (a doubled header, a target that names another host) ends here too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final, Protocol, cast

from twisted.web.server import Request as TwistedRequest

from gateway.management.http import BODY_BYTES_MAX, ProblemError, Request, parse_query
from protocols.transport.secure import SecureTransport

#: On every answer. The API has no page, so nothing may be framed, run or guessed from its bytes.
SECURITY_HEADERS: Final = {
    "Server": "sluicegate",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
#: A second one of these would let two readers of a request see two different ones.
_SINGLE: Final = ("host", "authorization", "content-type", "content-encoding", "origin")
_ABSOLUTE: Final = re.compile(r"https?://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_PATH_SHOWN: Final = 200
#: Phrases that Twisted does not know [RFC 9110 15.5].
_REASONS: Final = {
    421: b"Misdirected Request",
    422: b"Unprocessable Content",
    426: b"Upgrade Required",
}


class Connection(Protocol):
    """What a request needs of the connection that it came on; `channel.Channel` is one.

    Attributes:
        site: Twisted's `Site`; the resource of ours that answers is on it.
    """

    site: Any

    def refuse(self, problem: ProblemError) -> None:
        """Answer a request that is not whole, once, and take nothing more from this peer."""

    def abort(self) -> None:
        """Cut the connection, so that an answer that could not be finished is seen as cut."""


class ApiRequest(TwistedRequest):
    """A request whose body stays in memory, under `BODY_BYTES_MAX`."""

    # ---- what Twisted calls

    def gotLength(self, length: int | None) -> None:
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        content = cast("BytesIO", self.content)
        if content.tell() + len(data) > BODY_BYTES_MAX:
            self.connection.refuse(too_large())
            return
        content.write(data)

    def parseCookies(self) -> None:
        """Cookies mean nothing here: nobody is recognised by one."""

    def process(self) -> None:
        self.connection.site.resource.render(self)

    # ---- what the exchange asks

    @property
    def connection(self) -> Connection:
        return cast("Connection", self.channel)

    @property
    def peer(self) -> str:
        """The client's address as text; empty where it has none."""
        return str(getattr(self.client, "host", ""))

    @property
    def own_name(self) -> str:
        """The address at which the client reached us, as a Host header would write it."""
        host = str(getattr(self.host, "host", ""))
        return f"[{host}]" if ":" in host else host

    @property
    def secure(self) -> bool:
        return bool(self.isSecure())  # type: ignore[no-untyped-call]

    @property
    def certificate(self) -> bytes | None:
        """The certificate that the client has proved to TLS to have, in DER; None without one."""
        transport = getattr(self.channel, "transport", None)
        return transport.certificate if isinstance(transport, SecureTransport) else None

    @property
    def verb(self) -> str:
        return self.method.decode("latin-1")

    @property
    def shown_path(self) -> str:
        """The path for a log line: still percent-encoded, without the query, never long."""
        return self.uri.partition(b"?")[0][:_PATH_SHOWN].decode("latin-1")

    def read(self) -> Request:
        """Return this request as a value; raises ProblemError (400) for what is ambiguous."""
        headers: dict[str, str] = {}
        for raw_name, values in self.requestHeaders.getAllRawHeaders():
            name = raw_name.decode("latin-1").lower()
            if len(values) > 1 and name in _SINGLE:
                message = f"The header {name} comes {len(values)} times."
                raise ProblemError(400, "bad-request", message)
            headers[name] = ", ".join(value.decode("latin-1") for value in values)
        host, path, query = split_target(self.uri.decode("latin-1"), headers.get("host"))
        headers["host"] = host
        content = cast("BytesIO", self.content)
        return Request(
            method=self.verb,
            path=path,
            query=parse_query(query),
            headers=headers,
            body=content.getvalue(),
        )

    # ---- what the exchange says

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Set status and headers; they leave with the first byte of the body, or at the end."""
        self.setResponseCode(status, _REASONS.get(status))
        for name, value in {**SECURITY_HEADERS, **headers}.items():
            self.setHeader(name, value)  # type: ignore[no-untyped-call]

    def say(self, data: bytes) -> None:
        """Send a piece of the body."""
        self.write(data)  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """The answer is whole."""
        self.finish()  # type: ignore[no-untyped-call]


def split_target(target: str, host: str | None) -> tuple[str, str, str]:
    """Return host, path and query of a request target [RFC 9112 3.2]; raises ProblemError (400)."""
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is not None:
        # The same name in both, or whoever stands between us would judge by the other one.
        if host is not None and host.lower() != absolute.group(1).lower():
            raise ProblemError(400, "bad-request", "The target's host and the Host header differ.")
        host, target = absolute.group(1), absolute.group(2) or "/"
    if host is None:
        raise ProblemError(400, "bad-request", "The Host header is missing.")
    if not target.startswith("/") or "#" in target or not target.isascii():
        raise ProblemError(400, "bad-request", "The request target must be a path.")
    path, _, query = target.partition("?")
    return host, path, query


def too_large() -> ProblemError:
    """Return the refusal of a body over the limit."""
    return ProblemError(413, "too-large", f"The body is larger than {BODY_BYTES_MAX} bytes.")
