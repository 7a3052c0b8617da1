"""The Twisted shell that every protocol shares: pump bytes, keep time, pass pressure, close once.

A session is sans-IO and decides everything; this file only moves bytes. It reads straight from the
socket (`Reads`) and writes straight to it while nothing waits (`Outgoing`); what is not bytes is
the transport's. Which protocol is spoken is told by the first bytes (`FirstBytes`).

Over TLS the transport is plain TCP as well, and what passes through here is ciphertext (`Tls`):

    read -> Tls.feed -> session -> Tls.seal -> what is written
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from twisted.internet import main, tcp
from twisted.internet.interfaces import ITransport
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.python import log
from twisted.python.failure import Failure

from gateway.model.peers import Cause, Ending
from gateway.model.turn import Turn
from protocols.transport.departures import descriptor_of
from protocols.transport.first_bytes import Decline, FirstBytes, Tell
from protocols.transport.outgoing import Outgoing
from protocols.transport.patience import SHARE_SECONDS, SMALL_BYTES, Patience
from protocols.transport.reads import LEAST_READ_BYTES, READ_BYTES, Reads
from protocols.transport.speaking import PeerFacts, Session, Speaker
from protocols.transport.timers import Timers
from protocols.transport.tls import Tls
from protocols.transport.unread import Output

#: How long a peer may take to read our last words before the socket is cut.
CLOSE_SECONDS: Final = 5.0
#: How long a connection may stay silent before its first bytes tell a protocol; over TLS with its
#: handshake, which has to be done within this also where there is one protocol only.
FIRST_BYTES_SECONDS: Final = 10.0


class Wire(TwistedProtocol):
    """One connection: first bytes, then one session.

    `tell` says what the first bytes are: `more` are needed, or the name of a protocol. `decline`
    has a name and an answer for what no speaker takes, or None while more is needed. `tls` is this
    connection's TLS; without it the transport's bytes are what is meant. `output` bounds what is
    held for a peer that does not read; one that takes nothing for its time is cut.
    """

    __slots__ = (
        "_deadline",
        "_fd",
        "_first",
        "_flushing",
        "_goes_on",
        "_leaving",
        "_lost",
        "_most",
        "_name",
        "_now",
        "_number",
        "_out",
        "_patience",
        "_put",
        "_reads",
        "_recv_into",
        "_session",
        "_stopped_reading",
        "_timers",
        "_tls",
        "_turn",
        "_watched",
        "bytes_in",
        "ending",
        "last_in",
        "on_lost",
        "on_session",
        "on_stranger",
        "on_tls_failed",
        "since",
        "was",
    )

    def __init__(
        self,
        turn: Turn,
        timers: Timers,
        speakers: tuple[Speaker, ...],
        name: str,
        *,
        tell: Tell,
        decline: Decline,
        reads: Reads,
        tls: Tls | None = None,
        output: Output | None = None,
    ) -> None:
        self._turn = turn
        self._timers = timers
        self._number = timers.join(self)
        self._now: Callable[[], float] = timers.clock.seconds
        self._name = name
        self._reads = reads
        self._patience = reads.patience
        self._tls = tls
        self._out = Outgoing(self, Output() if output is None else output, reads.backlogs)
        self._put = self._out.put
        self._session: Session | None = None
        self.was: Session | None = None  # what it had, once it is lost
        # None once there is a session.
        self._first: FirstBytes | None = FirstBytes(speakers, tell, decline, secure=tls is not None)
        self._flushing = False
        self._goes_on = False
        self._lost = False
        self._leaving = False
        self._deadline = 0.0
        self._stopped_reading = False
        self._recv_into: Callable[[memoryview, int], int] | None = None
        self._most = READ_BYTES
        self._fd = -1
        self._watched = -1
        self.since = self.last_in = timers.now()
        self.bytes_in = 0  # as they are on the wire
        self.ending: Ending | None = None
        self.on_session: Callable[[Wire], None] | None = None
        self.on_lost: Callable[[Wire], None] | None = None
        self.on_tls_failed: Callable[[Wire, str], None] | None = None
        self.on_stranger: Callable[[Wire, str], None] | None = None

    def connectionMade(self) -> None:
        transport: Any = self.transport
        if hasattr(transport, "setTcpNoDelay"):
            # Also what Twisted has put before its socket: a proxy's greeting, a TLS of its own.
            transport.setTcpNoDelay(True)
            transport.setTcpKeepAlive(True)
        if isinstance(transport, tcp.Connection) and not transport.TLS:
            self._use(transport)
        else:
            self._out.attach(transport, None)
        only = self._only
        if only is not None and self._tls is None:
            self._start(only)
        else:
            self._schedule(self._now() + FIRST_BYTES_SECONDS)

    def take_over(self, transport: ITransport, data: bytes) -> None:
        """Go on with a connection of which somebody else has read the first bytes: `data`.

        TLS is ready then, and `data` is what came out of it.
        """
        self.makeConnection(transport)  # type: ignore[no-untyped-call]
        self.bytes_in += len(data)
        self._hear(data)
        if self._tls is not None:
            self._end_tls(self._tls)

    def _use(self, transport: tcp.Connection) -> None:
        """Read and write on the socket itself."""
        handle = transport.getHandle()
        self._out.attach(transport, handle.send)
        self._recv_into = handle.recv_into
        self._fd = handle.fileno()
        setattr(transport, "doRead", self._do_read)  # noqa: B010
        self._reads.direct[self._fd] = self._read

    def _do_read(self) -> Exception | None:
        """Read once: see `IReadDescriptor.doRead`; returns why the connection is lost, if it is."""
        buffer, most = self._reads.buffer, self._most
        if self._patience is not None and self._patience.crowded:
            most = LEAST_READ_BYTES
        assert self._recv_into is not None
        try:
            count = self._recv_into(buffer, most)
        except BlockingIOError:
            return None
        except OSError:
            return main.CONNECTION_LOST
        if not count:
            return main.CONNECTION_DONE
        self.bytes_in += count
        session = self._session
        if count >= SMALL_BYTES and self._patience is not None:
            self._hear_timed(self._patience, buffer[:count])
        elif self._tls is not None:
            self._decrypt(self._tls, buffer[:count])
        elif session is None:
            self._hear(bytes(buffer[:count]))
        else:
            self.last_in = now = self._now()
            session.receive_data(bytes(buffer[:count]), now)
            self._pump(session)
        return None

    def _hear_timed(self, patience: Patience, data: memoryview) -> None:
        """Hear within the time that a connection has; read less at once of one that needs more."""
        patience.begin()
        if self._tls is None:
            self._hear(bytes(data))
        else:
            self._decrypt(self._tls, data)
        took = patience.end()
        if took > SHARE_SECONDS:
            self._most = max(LEAST_READ_BYTES, self._most // 4)
        elif took < SHARE_SECONDS / 4 and self._most < READ_BYTES and not self._goes_on:
            self._most *= 2

    def _read(self) -> bool:
        """Read without the reactor; False: that it can be read is for the reactor to look at.

        What has ended says so again when the reactor reads.
        """
        if self._stopped_reading or self._leaving or self._lost:
            return False
        try:
            return self._do_read() is None
        except Exception:  # noqa: BLE001 - as the reactor does: one connection ends, others do not
            self._broke()
            return True

    def _broke(self) -> None:
        log.err()
        transport: Any = self.transport
        transport.connectionLost(Failure())

    @property
    def bytes_out(self) -> int:
        """Bytes that were sent or wait to be sent, as they are on the wire."""
        return self._out.bytes_out

    @property
    def unread(self) -> int:
        """Bytes that the gateway holds since the peer does not read them."""
        return self._out.held

    @property
    def session(self) -> Session | None:
        """The protocol's session, once the first bytes told which."""
        return self._session

    @property
    def tls(self) -> tuple[str, str] | None:
        """Version and cipher; empty during the handshake. None without TLS of ours."""
        return None if self._tls is None else (self._tls.version, self._tls.cipher)

    def peer(self) -> PeerFacts:
        transport: Any = self.transport
        end = transport.getPeer()
        host, port = str(getattr(end, "host", "local")), getattr(end, "port", 0)
        secure = self._tls is not None or hasattr(transport, "getPeerCertificate")
        loopback = host.startswith("127.") or host in ("::1", "local")
        facts = PeerFacts(address=host, loopback=loopback, tls=secure, name=self._name, port=port)
        return facts if self._tls is None else replace(facts, certificate=self._tls.certificate)

    @property
    def _only(self) -> Speaker | None:
        """The speaker whatever the first bytes are; None when they choose it."""
        return None if self._first is None else self._first.only

    def _start(self, speaker: Speaker) -> None:
        transport: Any = self.transport  # the socket itself is asked, and has to be open
        own = str(getattr(transport.getHost(), "host", ""))
        session = speaker.build(replace(self.peer(), own=own))
        session.wake = self.wake
        if self._patience is not None:
            session.spent = self._patience.spent
        self._session = self._out.session = session
        self._first = None
        if self.on_session is not None:
            self.on_session(self)
        self.tick(self._deadline)

    def dataReceived(self, data: bytes) -> None:
        """Take what a transport has read that is not ours to read from."""
        self.bytes_in += len(data)
        if self._tls is None:
            self._hear(data)
        else:
            self._decrypt(self._tls, data)

    def _decrypt(self, tls: Tls, data: bytes | memoryview) -> None:
        """Pass on what a read brought: all of it at once, however many records it was."""
        if self._leaving or self._lost:
            return
        was_ready = tls.ready
        plain = tls.feed(data)
        owed = tls.take()
        if owed:
            # A peer that is not told waits.
            self._put(owed)
        if tls.ready and not was_ready and (only := self._only) is not None:
            self._start(only)
        if plain:
            self._hear(plain)
        self._end_tls(tls)

    def _end_tls(self, tls: Tls) -> None:
        """See to what TLS has come to."""
        if tls.failure:
            self._tls_failed(tls.failure)
        if tls.failure or tls.ended:
            self._leave()
            self._end_session()
        elif self._out.choked:
            self._reading(wanted=False)

    def _tls_failed(self, why: str) -> None:
        self._ends(Cause.TLS_FAILED, why)
        if self.on_tls_failed is not None and not self._leaving:
            self.on_tls_failed(self, why)

    def _hear(self, data: bytes) -> None:
        session = self._session
        if session is None:
            first = self._first
            if self._leaving or first is None:
                return
            session = self._choose(first, data)
            if session is None:
                return
            data = first.data
        self.last_in = now = self._now()
        session.receive_data(data, now)
        self._pump(session)

    def _choose(self, first: FirstBytes, data: bytes) -> Session | None:
        found = first.take(data)
        if found is None:
            return None
        if isinstance(found, Speaker):
            self._start(found)
            return self._session
        if found.answer:
            self._write(found.answer)
        if self.on_stranger is not None:
            self.on_stranger(self, found.name)
        self._ends(Cause.PROTOCOL_ERROR, f"its first bytes are {found.name}")
        self._leave()
        return None

    def wake(self) -> None:
        """The session has something to send; it is asked at the end of this turn."""
        if not self._flushing:
            self._flushing = True
            self._turn.flush_at_end(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        try:
            if self._session is not None and not self._lost:
                self._pump(self._session)
        except Exception:  # noqa: BLE001 - as in `_read`
            self._broke()

    def _pump(self, session: Session) -> None:
        data = session.data_to_send()
        if data:
            if self._tls is not None:
                data = self._tls.seal(data)
            self._put(data)
        if session.retick:
            session.retick = False
            self.tick(self._deadline)
        if session.closing:
            self._leave()
            return
        if session.behind and not self._goes_on and self._patience is not None:
            self._goes_on = True
            self._patience.later(self._go_on)
        held = session.paused_reading or session.behind or self._out.choked
        if held is not self._stopped_reading:
            self._reading(wanted=self._stopped_reading)

    def _go_on(self) -> None:
        """It is this connection's turn again."""
        self._goes_on = False
        session, patience = self._session, self._patience
        if session is None or patience is None or self._leaving:
            return
        self.last_in = now = self._now()
        patience.begin()
        try:
            session.go_on(now)
            self._pump(session)
        except Exception:  # noqa: BLE001 - as in `_read`
            self._broke()
        patience.end()

    def _reading(self, *, wanted: bool) -> None:
        transport: Any = self.transport
        if self._lost or wanted is not self._stopped_reading:
            return
        self._stopped_reading = not wanted
        if wanted:
            self._forget()
            transport.resumeProducing()
            return
        transport.pauseProducing()
        if self._reads.departures is not None:
            self._watched = descriptor_of(transport)
            self._reads.departures.watch(self._watched, self._departed)

    def _forget(self) -> None:
        if self._reads.departures is not None and self._watched >= 0:
            self._reads.departures.forget(self._watched)
            self._watched = -1

    def _departed(self) -> None:
        """The peer left while nobody read; nothing that it sent is read any more."""
        self._watched = -1
        self.cut(Cause.CUT, "it left while it was not read from")

    def _write(self, data: bytes) -> None:
        self._put(data if self._tls is None else self._tls.seal(data))

    def unchoked(self) -> None:
        """See `Sender`."""
        session = self._session
        self._reading(wanted=session is None or not (session.paused_reading or session.behind))

    def stuck(self, why: str) -> None:
        """See `Sender`."""
        self.cut(Cause.TIMED_OUT, why)

    def _leave(self) -> None:
        if self._leaving or self._lost:
            return
        self._leaving = True
        transport: ITransport | None = self.transport
        if transport is not None:
            if self._tls is not None:
                if ending := self._tls.close():
                    self._put(ending)
            else:
                self._out.say_all()
            transport.loseConnection()
            self._schedule(self._now() + CLOSE_SECONDS)

    def _schedule(self, deadline: float) -> None:
        self._deadline = deadline
        self._timers.add(deadline, self._number)

    def tick(self, deadline: float) -> None:
        """Called at a deadline; an entry that a sooner one replaced is stale and does nothing."""
        if self._lost or deadline != self._deadline:
            return
        now = self._now()
        if self._leaving or self._session is None:
            if self._deadline and now >= self._deadline:
                if self._tls is not None and not self._tls.ready:
                    self._tls_failed("too-slow")
                self.cut(Cause.TIMED_OUT, "it said nothing that tells a protocol")
            return
        following = self._session.tick(now)
        self._deadline = 0.0
        if following is not None:
            self._schedule(max(following, now + 0.001))
        self._pump(self._session)

    def cut(self, cause: Cause, text: str) -> None:
        """Close without a word."""
        if not self._leaving:
            self._ends(cause, text)
        transport: Any = self.transport
        transport.abortConnection()

    def stop(self) -> None:
        """Say good-bye in the protocol's words and close."""
        if self._session is None:
            self._ends(Cause.STOPPING, "")
            self._leave()
        else:
            self._session.stop(self._now())
            self._pump(self._session)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._lost = True
        self._timers.leave(self._number)
        self._reads.direct.pop(self._fd, None)
        self._forget()
        self._out.lost()
        self._end_session()
        if self.on_lost is not None:
            self.on_lost(self)
        # OpenSSL's part is large, and this connection may wait long for the collector of cycles.
        self._tls = None

    def _end_session(self) -> None:
        """Nothing is heard from the peer any more."""
        session, self._session = self._session, None
        self._out.session = None
        if session is not None:
            session.connection_lost(self._now())
            self.was = session

    def _ends(self, cause: Cause, text: str) -> None:
        if self.ending is None:
            self.ending = Ending(cause=cause, text=text)
