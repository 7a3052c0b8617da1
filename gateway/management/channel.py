"""Our limits on a twisted.web connection, before a request is whole.

Twisted parses HTTP/1.1; here is what it lets pass or answers too tersely: folded header lines, a
Transfer-Encoding of `identity`, bodies without limit (kept in temporary files), a peer that sends
one byte a while for ever, and a peer that never reads its answer.

    reading ──whole request──> answering ──all is given──> answered ──it is written──> reading
       │ malformed, too large, too slow
       └──> refused: one answer, then input is read and dropped until the peer closes

A pipelined request begins in a turn of its own, when what was answered before it is written, up to
the buffer of the transport: who asks and does not read is answered once. Meanwhile no more than
`WAITING_BYTES_MAX` and one read of what follows are kept.

A refused connection parses nothing more, whatever else arrives: what follows a malformed request
may be the second half of a smuggled one. It lingers, because closing with unread input would reset
the connection and destroy the answer on its way.

Knows no route and no user.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from twisted.internet.interfaces import IDelayedCall, ITransport
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel, _ChunkedTransferDecoder
from twisted.web.server import Request as TwistedRequest

from gateway.management.api_request import SECURITY_HEADERS, ApiRequest, too_large
from gateway.management.http import BODY_BYTES_MAX, ProblemError, problem_response

HEADERS_MAX: Final = 100
#: Request line and headers together, and the longest line: twenty times what our calls need.
HEAD_BYTES_MAX: Final = 16384
#: How long a refused peer is listened to, and how much of it.
LINGER_SECONDS: Final = 5.0
LINGER_BYTES_MAX: Final = 16 << 20
#: Of requests that wait for an answer before them; then nothing is read.
WAITING_BYTES_MAX: Final = 16384
#: A reader gets this long, and a second more for each 8 KiB it has to take.
STALL_SECONDS: Final = 30.0
STALL_BYTES_A_SECOND: Final = 8192

#: Handed to the system at once; each time costs a turn of the reactor. With Twisted's own 128 KiB
#: a row of a stream cost 0.22 to 0.24 us of CPU, and costs 0.18 to 0.21 (measured, 256 B bodies).
SEND_BYTES: Final = 1 << 20

_REASONS: Final = {
    400: "Bad Request",
    408: "Request Timeout",
    413: "Content Too Large",
    414: "URI Too Long",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Channel(HTTPChannel):
    """One connection; see the module text."""

    maxHeaders = HEADERS_MAX
    totalHeadersSize = HEAD_BYTES_MAX
    MAX_LENGTH = HEAD_BYTES_MAX
    requestFactory = ApiRequest
    site: Any
    factory: Any

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._refused = False
        self._dropped = 0
        self._receiving = False
        self._head_lines = 0
        self._unsent = 0
        self._stall: IDelayedCall | None = None
        self._parsing = False
        self._full = False  # the transport has more than it takes
        self._answering = False
        self._answered: TwistedRequest | None = None  # whose answer is not written
        self._behind = 0  # bytes that came while a request was answered
        self._held = b""  # what came behind one that is over
        self._next: IDelayedCall | None = None

    # ---- the connection

    def connectionMade(self) -> None:
        self.factory.channels[self] = None
        cast("Any", self.transport).SEND_LIMIT = SEND_BYTES
        super().connectionMade()  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.factory.channels.pop(self, None)
        self._end_stall()
        self._end_next()
        super().connectionLost(reason)  # type: ignore[no-untyped-call]

    def loseConnection(self) -> None:
        """Close once everything is sent; a peer that does not read is cut after a while."""
        super().loseConnection()  # type: ignore[no-untyped-call]
        self._begin_stall()

    def abort(self) -> None:
        """Cut the connection, so that an answer that could not be finished is seen as cut."""
        cast("Any", self.transport).abortConnection()

    def leave(self) -> None:
        """Let go of a connection that goes on as something else, before a line of it was whole."""
        self.factory.channels.pop(self, None)
        self.setTimeout(None)  # type: ignore[no-untyped-call]
        cast("Any", self.transport).unregisterProducer()

    @property
    def idle(self) -> bool:
        """Whether no request is being received or answered."""
        return not self.requests and not self._receiving and not self._held

    @property
    def asking(self) -> bool:
        """Whether a request is on its way, and none is being answered."""
        return self._receiving and not self._answering

    @property
    def stalled(self) -> bool:
        """Whether an answer waits for a peer that does not read it."""
        return self._stall is not None

    # ---- in

    def dataReceived(self, data: bytes) -> None:
        if self._refused:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES_MAX:
                self.loseConnection()
            return
        if self._held:
            self._held += data
            self._bound_held()
            return
        self._parsing = True
        try:
            super().dataReceived(data)  # type: ignore[no-untyped-call]
        finally:
            self._parsing = False
        self._go_on()

    def resetTimeout(self) -> None:
        """Start the clock at a request's first byte and at no later one: a drip gains nothing."""
        if not self._receiving:
            self._receiving = True
            super().resetTimeout()  # type: ignore[no-untyped-call]

    def timeoutConnection(self) -> None:
        if self._receiving and not self._refused:
            message = f"The request did not arrive whole within {self.timeOut:g} s."
            self.refuse(ProblemError(408, "request-timeout", message))
        else:
            self.loseConnection()

    def lineReceived(self, line: bytes) -> None:
        if self._refused:
            return
        if line[:1] in (b" ", b"\t"):
            # [RFC 9112 5.2]: an obs-fold in a request must be rejected or replaced.
            self.refuse(_malformed("a line of its head begins with white space"))
            return
        self._head_lines += 1
        super().lineReceived(line)  # type: ignore[no-untyped-call]

    def lineLengthExceeded(self, line: bytes) -> None:
        message = f"A line has more than {HEAD_BYTES_MAX} bytes."
        if self._head_lines:
            self.refuse(ProblemError(431, "too-large", message))
        else:
            self.refuse(ProblemError(414, "too-large", message))

    def allHeadersReceived(self) -> None:
        problem = self._head_problem()
        if problem is not None:
            self.refuse(problem)
            return
        super().allHeadersReceived()  # type: ignore[no-untyped-call]

    def _head_problem(self) -> ProblemError | None:
        """Say what the head of the newest request has that its body must not be waited for."""
        headers = self.requests[-1].requestHeaders
        codings = headers.getRawHeaders(b"transfer-encoding", [])
        if codings and (len(codings) > 1 or codings[0].lower() != b"chunked"):
            return _malformed("Transfer-Encoding can only be 'chunked', once")
        if codings and self._version != b"HTTP/1.1":
            return _malformed("Transfer-Encoding needs HTTP/1.1")
        if self.length is not None and self.length > BODY_BYTES_MAX:
            return too_large()
        expected = headers.getRawHeaders(b"expect", [])
        if expected and [e.lower() for e in expected] != [b"100-continue"]:
            return ProblemError(417, "bad-request", "Expect can only be '100-continue'.")
        return None

    def rawDataReceived(self, data: bytes) -> None:
        if self._refused:
            return
        if self._answering:
            self._behind += len(data)
        super().rawDataReceived(data)
        # A chunk says first how large it is: more than a body may have is not waited for.
        decoder = self._transferDecoder
        if (
            isinstance(decoder, _ChunkedTransferDecoder)
            and getattr(decoder, "length", 0) > BODY_BYTES_MAX
        ):
            self.refuse(too_large())
        if self._behind > WAITING_BYTES_MAX:
            cast("Any", self.transport).pauseProducing()

    def allContentReceived(self) -> None:
        if self._refused:
            return
        self._receiving = False
        self._head_lines = 0
        self.factory.used(self)
        self._answering = True
        super().allContentReceived()  # type: ignore[no-untyped-call]

    # ---- refusals

    def refuse(self, problem: ProblemError) -> None:
        """Answer a request that is not whole, once, and take nothing more from this peer."""
        if self._refused:
            return
        self._refused = True
        body = cast("bytes", problem_response(problem).body)
        lines = [
            f"HTTP/1.1 {problem.status} {_REASONS[problem.status]}",
            *(f"{name}: {value}" for name, value in SECURITY_HEADERS.items()),
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        transport = cast("ITransport", self.transport)
        transport.write("\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body)
        self.setTimeout(LINGER_SECONDS)  # type: ignore[no-untyped-call]
        self.factory.refused(self, problem)

    def _respondToBadRequestAndDisconnect(self) -> None:
        """Say more than Twisted's empty 400, and linger."""
        rule = f"its head breaks HTTP/1.1, or has over {HEADERS_MAX} headers or {HEAD_BYTES_MAX} B"
        self.refuse(_malformed(rule))

    # ---- out

    def write(self, data: bytes) -> None:
        self._unsent += len(data)
        super().write(data)  # type: ignore[no-untyped-call]

    def writeSequence(self, iovec: Sequence[bytes]) -> None:
        self._unsent += sum(map(len, iovec))
        super().writeSequence(iovec)  # type: ignore[no-untyped-call]

    # ---- one after the other

    def requestDone(self, request: TwistedRequest) -> None:
        self._unsent = 0 if self._stall is None else self._unsent
        self._answered = request
        if not self._parsing:
            self._go_on()

    def _go_on(self) -> None:
        """Be done with a request whose answer is written."""
        request = self._answered
        if request is None or (self._full and self.persistent):
            return
        self._answered = None
        self._answering = False
        self._behind = 0
        # This has the transport read on, and says what came meanwhile to `setLineMode`.
        super().requestDone(request)  # type: ignore[no-untyped-call]
        self._bound_held()

    def setLineMode(self, extra: bytes = b"") -> None:
        """Keep the next requests for another turn: others have theirs before."""
        super().setLineMode()  # type: ignore[no-untyped-call]
        if extra:
            self._held = extra
            self._next = self.callLater(0, self._take_next)  # type: ignore[no-untyped-call]

    def _bound_held(self) -> None:
        if len(self._held) > WAITING_BYTES_MAX:
            cast("Any", self.transport).pauseProducing()

    def _take_next(self) -> None:
        self._next = None
        held, self._held = self._held, b""
        self.dataReceived(held)

    def _end_next(self) -> None:
        self._held = b""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    # ---- a peer that does not read

    def pauseProducing(self) -> None:
        self._full = True
        self._begin_stall()
        super().pauseProducing()  # type: ignore[no-untyped-call]

    def resumeProducing(self) -> None:
        self._full = False
        self._end_stall()
        self._unsent = 0
        super().resumeProducing()  # type: ignore[no-untyped-call]
        self._go_on()

    def _begin_stall(self) -> None:
        if self._stall is not None:
            return
        patience = STALL_SECONDS + self._unsent / STALL_BYTES_A_SECOND
        self._stall = self.callLater(patience, self._stalled)  # type: ignore[no-untyped-call]

    def _end_stall(self) -> None:
        if self._stall is not None and self._stall.active():
            self._stall.cancel()
        self._stall = None

    def _stalled(self) -> None:
        self._stall = None
        self.abort()


def _malformed(rule: str) -> ProblemError:
    return ProblemError(400, "bad-request", f"The request is malformed: {rule}.")
