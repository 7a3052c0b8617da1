"""TLS below a protocol of Twisted's: what stands between `twisted.web` and its socket.

Our own protocols have `Wire`; this is for those that write to a transport whenever they like. They
see a transport that encrypts. All they wrote leaves before the close_notify does, and a producer
of theirs is the socket's: it is paused and resumed by what really waits there.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet import tcp
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IProtocolFactory,
    IPushProducer,
    IReactorTime,
    ISSLTransport,
    ITransport,
)
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone
from twisted.python.failure import Failure
from zope.interface import alsoProvides, implementer

from protocols.transport.outgoing import PRESSURE_BYTES
from protocols.transport.shell import FIRST_BYTES_SECONDS
from protocols.transport.tls import Tls

#: Told of each connection that failed: the peer's address and why.
OnFailed = Callable[[str, str], None]


class SecureFactory(ServerFactory):
    """Puts `SecureTransport` before each protocol of another factory."""

    noisy = False

    def __init__(
        self,
        clock: IReactorTime,
        below: IProtocolFactory,
        contexts: Callable[[], ssl.SSLContext],
        failed: OnFailed,
    ) -> None:
        self.clock = clock
        self.below = below
        self.contexts = contexts
        self.failed = failed

    def doStart(self) -> None:
        super().doStart()  # type: ignore[no-untyped-call]
        self.below.doStart()

    def doStop(self) -> None:
        super().doStop()  # type: ignore[no-untyped-call]
        self.below.doStop()

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        protocol = self.below.buildProtocol(addr)  # type: ignore[arg-type]
        if protocol is None:
            return None
        return SecureTransport(self.clock, protocol, Tls(self.contexts()), self.failed)


@implementer(IPushProducer)
class SecureTransport(Protocol):
    """One connection; see the module text.

    That it can be paused has to be said: `twisted.web` asks for the interface, and without it goes
    on, both ways, however much waits.
    """

    def __init__(
        self,
        clock: IReactorTime,
        above: Any,  # noqa: ANN401 - Twisted's proxy type
        tls: Tls,
        failed: OnFailed,
    ) -> None:
        self._clock = clock
        self._above = above
        self._tls = tls
        self._failed = failed
        self._deadline: IDelayedCall | None = None
        self._producer: Any = None
        self._leaving = self._closed = self._lost = self._surrendered = False
        self._owed = 0
        self.disconnecting = False
        # What a request is asked that wants to know whether it came over TLS.
        alsoProvides(self, ISSLTransport)

    # ---- from the socket

    def connectionMade(self) -> None:
        transport: Any = self.transport
        if isinstance(transport, tcp.Connection):
            transport.setTcpNoDelay(True)
        self._deadline = self._clock.callLater(FIRST_BYTES_SECONDS, self._too_slow)
        self._above.makeConnection(self)

    def dataReceived(self, data: bytes) -> None:
        if self._surrendered:
            self._above.dataReceived(data)
            return
        if self._closed:
            return
        tls = self._tls
        plain = tls.feed(data)
        owed = tls.take()
        transport: Any = self.transport
        if owed:
            self._owed += len(owed)
            transport.write(owed)
        if tls.ready:
            self._end_deadline()
        if plain:
            self._above.dataReceived(plain)
        if self._surrendered:
            return
        if tls.failure:
            self._failed(self._peer(), tls.failure)
        if tls.failure or tls.ended:
            self._close()
        elif self._owed > PRESSURE_BYTES:
            # It asks TLS itself for answers, on and on; no request takes so many.
            self._failed(self._peer(), "too-many-key-updates")
            transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._lost = True
        self._end_deadline()
        self._above.connectionLost(reason)
        # What stays of a connection waits for the collector of cycles; this is most of it.
        del self._tls

    @property
    def tls(self) -> Tls:
        """What the connection is encrypted with."""
        return self._tls

    @property
    def certificate(self) -> bytes | None:
        """The certificate that the client has proved to have, in DER; None without one."""
        return None if self._lost else self._tls.certificate

    def surrender(self) -> ITransport:
        """Leave socket and TLS to the protocol above, which is passed ciphertext from now on."""
        transport = self.transport
        assert transport is not None, "who has read has a transport"
        self._end_deadline()
        self._surrendered = True
        return transport

    def _too_slow(self) -> None:
        self._deadline = None
        transport: Any = self.transport
        if not self._closed:
            self._failed(self._peer(), "too-slow")
        transport.abortConnection()

    def _peer(self) -> str:
        transport: Any = self.transport
        return str(getattr(transport.getPeer(), "host", "-"))

    def _end_deadline(self) -> None:
        if self._deadline is not None and not self._closed:
            self._deadline.cancel()
            self._deadline = None

    # ---- from the protocol above

    def write(self, data: bytes) -> None:
        if data and not self._closed and not self._lost:
            transport: Any = self.transport
            transport.write(self._tls.seal(data))

    def writeSequence(self, data: Iterable[bytes]) -> None:
        self.write(b"".join(data))

    def registerProducer(
        self,
        producer: Any,  # noqa: ANN401 - a push or a pull producer
        streaming: bool,  # noqa: FBT001 - the interface's
    ) -> None:
        self._producer = producer
        transport: Any = self.transport
        transport.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self._producer = None
        transport: Any = self.transport
        transport.unregisterProducer()
        if self._leaving:
            self._close()

    def loseConnection(self) -> None:
        """Close once the producer has said all."""
        self._leaving = self.disconnecting = True
        if self._producer is None:
            self._close()

    def _close(self) -> None:
        if self._closed or self._lost:
            return
        ending = self._tls.close()
        transport: Any = self.transport
        if ending:
            transport.write(ending)
        self._end_deadline()
        self._closed = self.disconnecting = True
        self._deadline = None
        transport.loseConnection()

    def pauseProducing(self) -> None:
        transport: Any = self.transport
        if not self._lost:
            transport.pauseProducing()

    def resumeProducing(self) -> None:
        transport: Any = self.transport
        if not self._lost:
            transport.resumeProducing()

    def stopProducing(self) -> None:
        self.loseConnection()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the socket's transport has
        return getattr(self.transport, name)

    def getPeerCertificate(self) -> None:
        """Return none, which is Twisted's own kind; see `certificate`."""
