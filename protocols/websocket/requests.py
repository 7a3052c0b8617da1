"""The request that a connection begins with: bytes to its head, within bounds. Pure.

    MORE ──the head is whole──> a Request
      └──no HTTP, or too large──> a Rejected, with status and text

h11 reads it, and gets no more bytes than a head may have, however they arrive: what a request is
judged to be does not hang on how it was cut. Bytes behind the head are the first frames.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from gateway.model.errors import Refusal
from gateway.model.retry import retry_after
from protocols.websocket.limits import HEAD_BYTES_MAX, HEADERS_MAX


class Request(NamedTuple):
    """The head of a request; names of headers are in lower case, each with all its values."""

    method: str
    target: str
    version: str
    headers: dict[str, list[str]]

    def values(self, name: str) -> list[str]:
        """Return what the headers of a name say, one after the other."""
        return self.headers.get(name, [])

    def words(self, name: str) -> list[str]:
        """Return the words of headers that are lists with commas, as they were written."""
        words = (word.strip() for value in self.values(name) for word in value.split(","))
        return [word for word in words if word]


class Rejected(NamedTuple):
    """What a request is refused with; `headers` beside those that every answer has."""

    status: HTTPStatus
    text: str
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def answer(self) -> bytes:
        """The whole answer."""
        body = f"{self.text}\n".encode()
        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "X-Content-Type-Options: nosniff",
            "Cache-Control: no-store",
            *(f"{name}: {value}" for name, value in self.headers),
            "Connection: close",
        )
        return "\r\n".join((*lines, "", "")).encode() + body


def reject_for(status: HTTPStatus, refusal: Refusal) -> Rejected:
    """Return the answer for a refusal, with when to come again where waiting helps [RFC 9110]."""
    seconds = retry_after(refusal)
    headers = () if seconds is None else (("Retry-After", str(seconds)),)
    return Rejected(status, refusal.text, headers)


#: A larger head is refused by us, in our words: h11 never holds as much.
_NEVER: Final = 1 << 30


class Head:
    """That of one connection.

    Attributes:
        rest: what came behind it.
    """

    __slots__ = ("_h11", "_taken", "rest")

    def __init__(self) -> None:
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=_NEVER)
        self._taken = 0
        self.rest = b""

    def receive(self, data: bytes) -> Request | Rejected | None:
        """Take what came; None while the head is not whole."""
        room = HEAD_BYTES_MAX - self._taken
        part, self.rest = data[:room], data[room:]
        self._taken += len(part)
        try:
            if part:
                self._h11.receive_data(part)
            event = self._h11.next_event()
        except h11.RemoteProtocolError as error:
            text = f"This is no request of HTTP/1.1: {error}."
            return Rejected(HTTPStatus.BAD_REQUEST, text)
        if isinstance(event, h11.Request):
            self.rest = self._h11.trailing_data[0] + self.rest
            return _checked(event)
        return _too_large() if self._taken == HEAD_BYTES_MAX else None


def _checked(event: h11.Request) -> Request | Rejected:
    """Return the request, or why it has more than it may have."""
    headers: dict[str, list[str]] = {}
    for count, (name, value) in enumerate(event.headers, 1):
        if count > HEADERS_MAX:
            return _too_large()
        headers.setdefault(name.decode("ascii"), []).append(value.decode("latin-1"))
    return Request(
        method=event.method.decode("ascii"),
        target=event.target.decode("latin-1"),
        version=event.http_version.decode("ascii"),
        headers=headers,
    )


def _too_large() -> Rejected:
    return Rejected(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        f"The head of the request is larger than {HEAD_BYTES_MAX} bytes or has more than "
        f"{HEADERS_MAX} headers.",
    )
