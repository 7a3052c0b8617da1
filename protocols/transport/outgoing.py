"""The output of one connection: straight to its socket, or by way of its transport.

    direct ──the socket takes less than all──> pulling ──all is written──> direct

While nothing waits, bytes go to the socket itself, which saves two system calls and one turn of the
reactor for each answer. What the socket does not take at once waits in `Unsent`, and the transport
pulls it. The session is told in two steps that its peer does not read: above `PRESSURE_BYTES` it
has no room for deliveries, and when its answers behind them are too many (`Output`), it is choked,
and its connection reads nothing more of the peer until all is written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol

from twisted.internet.interfaces import IPullProducer
from zope.interface import implementer

from protocols.transport.unread import Backlogs, Output, Unsent

#: Above this much unsent output a connection gets no more deliveries. What it has itself answered
#: beyond that is bounded by `Output`, which stops reading it.
PRESSURE_BYTES: Final = 1 << 20


class Answering(Protocol):
    """The session whose output this is; see `speaking.Session`."""

    write_room: bool
    choked: bool

    def write_resumed(self) -> None:
        """All is written: there is room for deliveries again."""


class Sender(Protocol):
    """The connection that the output is of."""

    def unchoked(self) -> None:
        """The peer has read its answers: it may be read from again."""

    def stuck(self, why: str) -> None:
        """The peer has read nothing for all the time that it has."""


@implementer(IPullProducer)
class Outgoing:
    """See the module text. To the transport it is a pull producer, to `Backlogs` one that waits.

    Attributes:
        bytes_out: bytes that were sent or wait to be sent, as they are on the wire.
        choked: whether the peer has so much to read that it is not read from.
        pulling: whether something waits for the transport.
        session: the session that is told of pressure, once there is one.
    """

    __slots__ = (
        "_backlogs",
        "_direct",
        "_lost",
        "_send",
        "_sender",
        "_transport",
        "_unsent",
        "bytes_out",
        "choked",
        "pulling",
        "session",
    )

    def __init__(self, sender: Sender, output: Output, backlogs: Backlogs | None) -> None:
        """`output` bounds what is held for a peer that does not read; `backlogs` looks after it."""
        self._sender = sender
        self._backlogs = backlogs
        self._unsent = Unsent(output)
        self._transport: Any = None
        self._send: Callable[[bytes], int] | None = None
        # The same while nothing waits: one look tells the way of what is sent.
        self._direct: Callable[[bytes], int] | None = None
        self._lost = False
        self.bytes_out = 0
        self.choked = False
        self.pulling = False
        self.session: Answering | None = None

    @property
    def size(self) -> int:
        """Bytes that wait for the transport to ask for them."""
        return self._unsent.size

    @property
    def held(self) -> int:
        """Bytes that this process holds for the peer to read."""
        return self._unsent.held

    def attach(self, transport: object, send: Callable[[bytes], int] | None) -> None:
        """Send by this transport; `send` is its socket's, where that may be used."""
        self._transport = transport
        self._send = self._direct = send

    def put(self, data: bytes) -> None:
        """Send these bytes as they are, now or when the socket takes them."""
        direct = self._direct
        size = len(data)
        if direct is None:
            if not self._lost:
                self.bytes_out += size
                self._wait(data)
            return
        self.bytes_out += size
        try:
            sent = direct(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            # The reactor sees the same error at its next read and reports the loss.
            return
        if sent != size:
            self._wait(data[sent:])

    def _wait(self, data: bytes) -> None:
        """Have the transport pull what the socket does not take."""
        self._keep(data)
        if not self.pulling:
            self.pulling = True
            self._direct = None
            if self._backlogs is not None:
                self._backlogs.begin(self)
            self._transport.registerProducer(self, False)

    def _keep(self, data: bytes) -> None:
        """See the module text for what may be too much."""
        unsent = self._unsent
        unsent.keep(data)
        session = self.session
        if session is not None and session.write_room:
            session.write_room = unsent.room(PRESSURE_BYTES)
        elif unsent.answered(len(data)) and not self.choked:
            # A peer that asks on and on, and does not read, is not read from until it does.
            self.choked = True
            if session is not None:
                session.choked = True

    def say_all(self) -> None:
        """Give a transport that is not a plain socket what waits, before it closes.

        Twisted's TLS says that nothing follows before its producer has said all.
        """
        if self.pulling and self._send is None:
            self.resumeProducing()

    def lost(self) -> None:
        """The transport is gone, and with it what waits."""
        self._lost = True
        self._unsent.lost()
        self._drained()

    def _drained(self) -> None:
        """Nothing waits any more."""
        self.pulling = False
        self._direct = None if self._lost else self._send
        if self._backlogs is not None:
            self._backlogs.end(self)

    # ---- what the transport calls

    def resumeProducing(self) -> None:
        """Give the transport what waits: it has sent all that it had."""
        data = self._unsent.following()
        if data:
            self._transport.write(data)
            return
        self._drained()
        self._transport.unregisterProducer()
        session = self.session
        if session is not None and not session.write_room and not self._lost:
            session.write_room = True
            session.write_resumed()
        if self.choked:
            self.choked = False
            self._sender.unchoked()

    def stopProducing(self) -> None:
        """Forget what waits: the transport is closing."""
        self._unsent.forget()

    # ---- what `Backlogs` asks

    @property
    def patience(self) -> float:
        """See `Waiting`."""
        return self._unsent.output.seconds

    def taken(self) -> Hashable:
        """See `Waiting`."""
        return self._unsent.taken(self._transport)

    def stuck(self) -> None:
        """Have a peer cut that does not read; what it held goes back."""
        self._sender.stuck(self._unsent.text)
