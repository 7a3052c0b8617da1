"""The request that a connection begins with: bytes to its head, within bounds. Pure.

    MORE ──the head is whole──> a Request
      └──no HTTP, or too large──> a Rejected, with status and text

h11 reads it, and gets no more bytes than a head may have, however they arrive: what a request is
judged to be does not hang on how it was cut. Bytes behind the head are the first frames. Lines that
h11 takes and other readers of HTTP take for something else are refused: folded ones, and those that
end with LF alone.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from gateway.model.errors import Refusal
from gateway.model.retry import retry_after
from protocols.websocket.limits import HEAD_BYTES_MAX, HEADERS_MAX
from protocols.websocket.pages import PAGE_HEADERS, page


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
    """What a request is refused with; `headers` beside those that every answer has.

    Attributes:
        as_page: a browser shows it.
        head_only: HEAD was asked.
        goes_on: more of the request may come.
    """

    status: HTTPStatus
    text: str
    headers: tuple[tuple[str, str], ...] = ()
    as_page: bool = False
    head_only: bool = False
    goes_on: bool = False

    def to(self, request: Request) -> Rejected:
        """Return it as that request is to be answered."""
        as_page = any("text/html" in word.lower() for word in request.values("accept"))
        lengths = request.words("content-length")
        return self._replace(
            as_page=as_page,
            head_only=request.method == "HEAD",
            goes_on=bool(request.values("transfer-encoding")) or lengths not in ([], ["0"]),
        )

    @property
    def told(self) -> str:
        """What the log has of it: its first line."""
        return self.text.partition("\n")[0]

    @property
    def answer(self) -> bytes:
        """The whole answer."""
        text = page(self.status.phrase, self.text) if self.as_page else self.text
        body = f"{text}\n".encode()
        kind = "html" if self.as_page else "plain"
        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: text/{kind}; charset=utf-8",
            f"Content-Length: {len(body)}",
            "X-Content-Type-Options: nosniff",
            "Cache-Control: no-store",
            *(f"{name}: {value}" for name, value in (*PAGE_HEADERS, *self.headers)),
            "Connection: close",
        )
        head = "\r\n".join((*lines, "", "")).encode()
        return head if self.head_only else head + body


def reject_for(status: HTTPStatus, refusal: Refusal) -> Rejected:
    """Return the answer for a refusal, with when to come again where waiting helps [RFC 9110]."""
    seconds = retry_after(refusal)
    headers = () if seconds is None else (("Retry-After", str(seconds)),)
    return Rejected(status, refusal.text, headers)


#: A line that goes on in the next one, or ends without CR [RFC 9112 2.2, 5.2].
_AMBIGUOUS: Final = re.compile(rb"\n[ \t]|(?<!\r)\n")
_AMBIGUOUS_TEXT: Final = "Each line of a request is to end with CR LF, and none may be folded."
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
        self._taken = bytearray()
        self.rest = b""

    def receive(self, data: bytes) -> Request | Rejected | None:
        """Take what came; None while the head is not whole."""
        taken = self._taken
        room = HEAD_BYTES_MAX - len(taken)
        part, self.rest = data[:room], data[room:]
        taken += part
        try:
            if part:
                self._h11.receive_data(part)
            event = self._h11.next_event()
        except h11.RemoteProtocolError as error:
            text = f"This is no request of HTTP/1.1: {error}."
            return Rejected(HTTPStatus.BAD_REQUEST, text, goes_on=True)
        if isinstance(event, h11.Request):
            behind = self._h11.trailing_data[0]
            self.rest = behind + self.rest
            if _AMBIGUOUS.search(taken, 0, len(taken) - len(behind)):
                return Rejected(HTTPStatus.BAD_REQUEST, _AMBIGUOUS_TEXT, goes_on=True)
            return _checked(event)
        return _too_large() if len(taken) == HEAD_BYTES_MAX else None


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
        goes_on=True,
    )
