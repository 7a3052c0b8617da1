"""The Twisted shell that every protocol shares: pump bytes, keep time, pass pressure, close once.

A session is sans-IO and decides everything; this file only moves bytes. It writes straight to the
socket while nothing waits, which saves two system calls and one turn of the reactor for each
answer; what the socket does not take at once goes through the transport as a pull producer. It
reads straight from the socket, too (`Reads`); what is not bytes is the transport's.

Over TLS the transport is plain TCP as well, and what passes through here is ciphertext (`Tls`):

    read -> Tls.feed -> session -> Tls.seal -> what is written
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet import main, tcp
from twisted.internet.interfaces import IPullProducer, ITransport
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.python import log
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.model.peers import Cause, Ending
from gateway.model.turn import Turn
from protocols.transport.departures import descriptor_of
from protocols.transport.patience import SHARE_SECONDS, SMALL_BYTES, Patience
from protocols.transport.reads import LEAST_READ_BYTES, READ_BYTES, Reads
from protocols.transport.speaking import Session
from protocols.transport.timers import Timers
from protocols.transport.tls import Tls
from protocols.transport.unread import Output, Unsent

#: Above this much unsent output a connection gets no more deliveries. What it has itself answered
#: beyond that is bounded by `Output`, which stops reading it.
PRESSURE_BYTES: Final = 1 << 20
#: How long a peer may take to read our last words before the socket is cut.
CLOSE_SECONDS: Final = 5.0
#: How long a connection may stay silent before its first bytes tell a protocol; over TLS with its
#: handshake, which has to be done within this also where there is one protocol only.
FIRST_BYTES_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFacts:
    """What is known of the other end before it has said anything."""

    address: str
    loopback: bool
    tls: bool
    name: str
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """What an acceptor needs to speak one protocol; `guess` is what its first bytes are told as."""

    guess: str
    build: Callable[[PeerFacts], Session]


@implementer(IPullProducer)
class Wire(TwistedProtocol):
    """One connection: first bytes, then one session.

    `tell` says what the first bytes are: `more` are needed, or the name of a protocol. `decline`
    has a name and an answer for what no speaker takes, or None while more is needed. `tls` is this
    connection's TLS; without it the transport's bytes are what is meant. `output` bounds what is
    held for a peer that does not read: deliveries end at `PRESSURE_BYTES`, reading at its number of
    bytes of answers behind them, and who takes nothing for its time is cut.
    """

    __slots__ = (
        "_choked",
        "_deadline",
        "_decline",
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
        "_patience",
        "_pulling",
        "_reads",
        "_recv_into",
        "_send",
        "_session",
        "_speakers",
        "_stopped_reading",
        "_tell",
        "_timers",
        "_tls",
        "_turn",
        "_unsent",
        "_watched",
        "bytes_in",
        "bytes_out",
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
        tell: Callable[[bytes], str],
        decline: Callable[[str, bytes], tuple[str, bytes] | None],
        reads: Reads,
        tls: Tls | None = None,
        output: Output | None = None,
    ) -> None:
        self._turn = turn
        self._timers = timers
        self._number = timers.join(self)
        self._now: Callable[[], float] = timers.clock.seconds
        self._speakers = speakers
        self._name = name
        self._tell = tell
        self._decline = decline
        self._reads = reads
        self._patience = reads.patience
        self._tls = tls
        self._unsent = Unsent(Output() if output is None else output)
        self._choked = False
        self._session: Session | None = None
        self.was: Session | None = None  # what it had, once it is lost
        self._first = b""
        self._pulling = False
        self._flushing = False
        self._goes_on = False
        self._lost = False
        self._leaving = False
        self._deadline = 0.0
        self._stopped_reading = False
        self._send: Callable[[bytes], int] | None = None
        self._recv_into: Callable[[memoryview, int], int] | None = None
        self._most = READ_BYTES
        self._fd = -1
        self._watched = -1
        self.since = self.last_in = timers.now()
        self.bytes_in = self.bytes_out = 0  # as they are on the wire
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
        if len(self._speakers) == 1 and self._tls is None:
            self._start(self._speakers[0])
        else:
            self._schedule(self._now() + FIRST_BYTES_SECONDS)

    def _use(self, transport: tcp.Connection) -> None:
        """Read and write on the socket itself."""
        handle = transport.getHandle()
        self._send = handle.send
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
        return PeerFacts(address=host, loopback=loopback, tls=secure, name=self._name, port=port)

    def _start(self, speaker: Speaker) -> None:
        session = speaker.build(self.peer())
        session.wake = self.wake
        if self._patience is not None:
            session.spent = self._patience.spent
        self._session = session
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
        if tls.ready and not was_ready and len(self._speakers) == 1:
            self._start(self._speakers[0])
        if plain:
            self._hear(plain)
        if tls.failure:
            self._tls_failed(tls.failure)
        if tls.failure or tls.ended:
            self._leave()
            self._end_session()
        elif self._choked:
            self._reading(wanted=False)

    def _tls_failed(self, why: str) -> None:
        self._ends(Cause.TLS_FAILED, why)
        if self.on_tls_failed is not None and not self._leaving:
            self.on_tls_failed(self, why)

    def _hear(self, data: bytes) -> None:
        session = self._session
        if session is None:
            if self._leaving:
                return
            session = self._choose(data)
            if session is None:
                return
            data = self._first
            self._first = b""
        self.last_in = now = self._now()
        session.receive_data(data, now)
        self._pump(session)

    def _choose(self, data: bytes) -> Session | None:
        self._first += data
        guess = self._tell(self._first)
        if guess == "more":
            return None
        for speaker in self._speakers:
            if speaker.guess == guess:
                self._start(speaker)
                return self._session
        stranger = self._decline(guess, self._first)
        if stranger is None:
            return None
        name, answer = stranger
        if answer and not (self._tls is not None and guess == "TLS"):
            self._write(answer)
        if self.on_stranger is not None:
            self.on_stranger(self, name)
        self._ends(Cause.PROTOCOL_ERROR, f"its first bytes are {name}")
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
        if (session.paused_reading or session.behind or self._choked) is not self._stopped_reading:
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
        if self._tls is not None:
            data = self._tls.seal(data)
        self._put(data)

    def _put(self, data: bytes) -> None:
        """Send these bytes as they are, now or when the socket takes them."""
        if self._lost:
            return
        self.bytes_out += len(data)
        if self._send is not None and not self._pulling:
            try:
                sent = self._send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                # The reactor sees the same error at its next read and reports the loss.
                return
            if sent == len(data):
                return
            data = data[sent:]
        self._keep(data)
        if not self._pulling:
            self._pulling = True
            if self._reads.backlogs is not None:
                self._reads.backlogs.begin(self)
            transport: Any = self.transport
            transport.registerProducer(self, False)

    def _keep(self, data: bytes) -> None:
        """Keep what the socket does not take; see the class text for what may be too much."""
        unsent = self._unsent
        unsent.keep(data)
        session = self._session
        if session is not None and session.write_room:
            session.write_room = unsent.room(PRESSURE_BYTES)
        elif unsent.answered(len(data)) and not self._choked:
            # A peer that asks on and on, and does not read, is not read from until it does.
            self._choked = True
            if session is not None:
                session.choked = True

    def resumeProducing(self) -> None:
        """Give the transport what waits: it has sent all that it had."""
        transport: Any = self.transport
        data = self._unsent.following()
        if data:
            transport.write(data)
            return
        self._drained()
        transport.unregisterProducer()
        session = self._session
        if session is not None and not session.write_room and not self._lost:
            session.write_room = True
            session.write_resumed()
        if self._choked:
            self._choked = False
            self._reading(wanted=session is None or not (session.paused_reading or session.behind))

    def _drained(self) -> None:
        """Nothing waits any more."""
        self._pulling = False
        if self._reads.backlogs is not None:
            self._reads.backlogs.end(self)

    def stopProducing(self) -> None:
        """Forget what waits: the transport is closing."""
        self._unsent.forget()

    @property
    def patience(self) -> float:
        """See `Waiting`."""
        return self._unsent.output.seconds

    def taken(self) -> Hashable:
        """See `Waiting`."""
        return self._unsent.taken(self.transport)

    def stuck(self) -> None:
        """Cut a peer that does not read; what it held goes back."""
        self.cut(Cause.TIMED_OUT, self._unsent.text)

    def _leave(self) -> None:
        if self._leaving or self._lost:
            return
        self._leaving = True
        transport: ITransport | None = self.transport
        if transport is not None:
            if self._tls is not None:
                if ending := self._tls.close():
                    self._put(ending)
            elif self._pulling and self._send is None:
                # Twisted's TLS says that nothing follows before its producer has said all.
                self.resumeProducing()
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
        self._unsent.lost()
        self._drained()
        self._end_session()
        if self.on_lost is not None:
            self.on_lost(self)
        # OpenSSL's part is large, and this connection may wait long for the collector of cycles.
        self._tls = None

    def _end_session(self) -> None:
        """Nothing is heard from the peer any more."""
        session, self._session = self._session, None
        if session is not None:
            session.connection_lost(self._now())
            self.was = session

    def _ends(self, cause: Cause, text: str) -> None:
        if self.ending is None:
            self.ending = Ending(cause=cause, text=text)
