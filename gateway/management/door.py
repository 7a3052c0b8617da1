"""The door of the management listener: a connection that begins with a WebSocket goes elsewhere.

    unknown ──`GET /stomp` or `GET /amqp`──> WebSocket: what an acceptor has for a connection
       └──anything else──> HTTP, for good

The first bytes tell, before a line of HTTP is whole. Until then the HTTP channel has them as well,
so that its clocks and its number of connections hold for whoever dallies; it acts on whole lines
only and is left without a word. A later request of a connection cannot become a WebSocket: what
came behind it may be the next request, and the API answers it with 426.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from gateway.management.channel import Channel
from gateway.management.http import ProblemError
from protocols.transport.secure import SecureTransport
from protocols.transport.shell import Wire
from protocols.transport.tls import Tls

#: Returns what speaks WebSocket with a peer, or why nothing does.
Adopt = Callable[[IAddress, Tls | None], Wire | str]

_BEGINNINGS: Final = (b"GET /stomp", b"GET /amqp")
_ENDS: Final = (b" ", b"?")


def begins_websocket(first: bytes) -> bool | None:
    """Whether the first bytes ask for one; None: too few have come to tell."""
    for beginning in _BEGINNINGS:
        if first.startswith(beginning):
            behind = first[len(beginning) : len(beginning) + 1]
            return behind in _ENDS if behind else None
        if beginning.startswith(first):
            return None
    return False


class Door(Protocol):
    """One connection; see the module text."""

    def __init__(self, http: Channel, adopt: Adopt) -> None:
        self._above: Any = http
        self._http = http
        self._adopt = adopt
        self._first: bytes | None = b""

    def connectionMade(self) -> None:
        self._above.makeConnection(self.transport)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._above.connectionLost(reason)

    def dataReceived(self, data: bytes) -> None:
        if self._first is not None:
            self._first += data
            told = begins_websocket(self._first)
            if told:
                first, self._first = self._first, None
                self._hand_over(first)
                return
            if told is False:
                self._first = None
        self._above.dataReceived(data)

    def _hand_over(self, first: bytes) -> None:
        """Leave the connection to what speaks WebSocket; `first` is all that has come."""
        transport: Any = self.transport
        secure = transport if isinstance(transport, SecureTransport) else None
        wire = self._adopt(transport.getPeer(), None if secure is None else secure.tls)
        if isinstance(wire, str):
            message = f"No WebSocket can be taken: {wire}."
            self._http.refuse(ProblemError(503, "unavailable", message))
            return
        self._http.leave()
        self._above = wire
        wire.take_over(transport if secure is None else secure.surrender(), first)
