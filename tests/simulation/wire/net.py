"""A network without sockets: Twisted's own transport over pipes that the seed has in its hands.

    client ──up──> FakeSocket.recv_into   Twisted's tcp.Server, the shell's Wire, the session
    client <─down── FakeSocket.send

Each pipe holds so many bytes, as a socket's buffers do; who does not read has the other side wait.
What is read at a time is the seed's choice, and so is what of a cut connection still arrives.

Over TLS the client's end of a line seals and opens; what it says is sealed when it sets out, and
what the pipes lose or delay are records:

    client ──up──> Tls ──sealed──> FakeSocket        client <── Tls <──down── FakeSocket

Over WebSocket what it says becomes frames in the same way, and these are sealed where TLS is
spoken.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet import error, tcp
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from protocols.transport.reads import Reads
from protocols.transport.tls import Tls
from protocols.websocket.session import WebSocketSession
from tests.simulation.wire.secure import NAME, contexts

if TYPE_CHECKING:
    from tests.simulation.wire.websocket import WebSocket


class End(Protocol):
    """A client's side of a line; `excused`: the gateway may end it, for a reason that is known."""

    excused: bool

    def receive(self, data: bytes) -> None: ...

    def closed(self) -> None:
        """Nothing more comes, and nothing that is sent arrives."""


class Pipe:
    """Bytes on their way in one direction; `ended`: behind them comes the end."""

    __slots__ = ("capacity", "data", "ended", "stalled")

    def __init__(self, capacity: int) -> None:
        self.data = bytearray()
        self.capacity = capacity
        self.ended = False
        self.stalled = False

    @property
    def room(self) -> int:
        return max(0, self.capacity - len(self.data))

    def take(self, most: int) -> bytes:
        """Return what arrives next, at most so many bytes."""
        part = bytes(self.data[:most])
        del self.data[:most]
        return part

    def cut(self, chance: random.Random) -> None:
        """Lose all but some of the first bytes."""
        del self.data[chance.randint(0, len(self.data)) :]
        self.ended = True
        self.stalled = False


class FakeSocket:
    """What `tcp.Server` asks of a socket."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def fileno(self) -> int:
        return self._line.number

    def setsockopt(self, *args: object) -> None:
        """There is nothing to set."""

    def getsockopt(self, *args: object) -> int:
        return 0

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", self._line.number

    getsockname = getpeername

    def recv_into(self, buffer: memoryview, size: int = 0) -> int:
        line = self._line
        if part := line.arriving(min(size or len(buffer), line.next_read)):
            buffer[: len(part)] = part
            return len(part)
        if line.was_cut:
            raise ConnectionResetError(errno.ECONNRESET, "simulated: cut")
        if line.ended:
            return 0
        raise BlockingIOError(errno.EWOULDBLOCK, "nothing is there")

    def send(self, data: bytes) -> int:
        line = self._line
        if line.was_cut:
            raise ConnectionResetError(errno.ECONNRESET, "simulated: cut")
        if line.client_gone:
            return len(data)  # it goes into the void
        count = min(line.down.room, len(data))
        if not count:
            raise BlockingIOError(errno.EWOULDBLOCK, "no room")
        line.down.data += data[:count]
        return count

    def shutdown(self, how: int) -> None:
        """The rest is said by `close`."""

    def close(self) -> None:
        self._line.server_gone = True
        self._line.down.ended = True


class Line:
    """One connection; `next_read` is how much of what came the server reads at once."""

    def __init__(self, number: int, end: End, capacity: int, *, secure: bool = False) -> None:
        self.number = number
        self.end = end
        self.up = Pipe(capacity)
        self.down = Pipe(capacity)
        self.next_read = 1
        self.waited = 0  # ms for which something was on its way up
        self.was_cut = self.client_gone = self.server_gone = False
        self.transport: Any = None
        self.wire: Any = None
        self.sealed = bytearray()  # records on their way up
        self.web: WebSocket | None = None
        self.tls: Tls | None = None
        if secure:
            self.tls = Tls(contexts().client, server=False, name=NAME)
            self.tls.shake()
            self.sealed += self.tls.take()

    def set_out(self) -> None:
        """Seal what the client has said; every other client says its end in TLS's words, too."""
        if self.was_cut or (self.tls is not None and not self.tls.ready):
            return
        if self.web is not None:
            self._put(self.web.say(self.up))
        elif self.tls is not None and self.up.data:
            self._put(self.up.take(len(self.up.data)))
        if self.tls is not None and self.ended and self.number % 2:
            self.sealed += self.tls.close()

    def _put(self, data: bytes) -> None:
        if data:
            self.sealed += data if self.tls is None else self.tls.seal(data)

    @property
    def ended(self) -> bool:
        """Whether the socket's end comes behind what the client has said."""
        return self.up.ended and not (self.web is not None and self.web.waits)

    @property
    def leaving(self) -> bool:
        """Whether one side has said Close."""
        return self.web is not None and (self.web.said or self.web.heard)

    @property
    def readable(self) -> bool:
        """Whether the gateway can read something, or the end."""
        if self.was_cut:
            return True
        if self.up.stalled:
            return False
        shaken = self.tls is None or self.tls.ready
        if self.web is None:
            said = bool(self.up.data)
        else:
            said = self.web.owes or (self.web.open and bool(self.up.data))
        return bool(self.sealed) or self.ended or (shaken and said)

    def arriving(self, most: int) -> bytes:
        """Return what the gateway reads next, at most so many bytes."""
        if self.tls is None and self.web is None:
            return self.up.take(most)
        self.set_out()
        part = bytes(self.sealed[:most])
        del self.sealed[:most]
        return part

    def hear(self, data: bytes) -> None:
        """Give the client what came down."""
        if self.tls is not None:
            data = self.tls.feed(data)
            self.sealed += self.tls.take()
        if self.web is not None and data:
            data = self.web.feed(data)
        if data:
            self.end.receive(data)

    def cut(self, chance: random.Random) -> None:
        """Break: a part of what is on its way still arrives, in both directions."""
        self.set_out()
        self.was_cut = True
        if self.tls is not None or self.web is not None:
            del self.sealed[chance.randint(0, len(self.sealed)) :]
            self.up.data.clear()
        self.up.cut(chance)
        self.down.cut(chance)

    @property
    def waiting(self) -> bool:
        """Whether something is on its way up."""
        return bool(self.up.data or self.sealed or (self.web is not None and self.web.owes))

    @property
    def over(self) -> bool:
        """Whether neither side will say or hear anything any more."""
        return self.client_gone and (self.server_gone or self.transport is None)

    @property
    def served(self) -> bool:
        """Whether the gateway still acts for this client."""
        if self.server_gone or self.wire is None or self.wire.session is None:
            return False
        session = self.wire.session
        if isinstance(session, WebSocketSession):
            session = session.inner
            if session is None:
                return False
        # Sessions have states of their own; both call the last ones by these names.
        ended = session.state.name in ("ENDED", "CLOSED")
        return not (self.wire._leaving or session.closing or ended)


class Reactor:
    """The part of a reactor that transports use; what is ready is asked of it, not awaited."""

    def __init__(self, clock: Clock) -> None:
        self.reads = Reads()
        self.readers: dict[Any, Line] = {}
        self.writers: dict[Any, Line] = {}
        self.lines: dict[int, Line] = {}
        self.callLater = clock.callLater
        self.seconds = clock.seconds

    def addReader(self, one: Any) -> None:
        self.readers[one] = self.lines[one.fileno()]

    def addWriter(self, one: Any) -> None:
        self.writers[one] = self.lines[one.fileno()]

    def removeReader(self, one: Any) -> None:
        self.readers.pop(one, None)

    def removeWriter(self, one: Any) -> None:
        self.writers.pop(one, None)

    def drop(self, one: Any, why: BaseException, *, reading: bool) -> None:
        """A transport has ended: as `posixbase` tells it."""
        self.removeReader(one)
        if reading and isinstance(why, error.ConnectionDone):
            self.removeWriter(one)
            one.readConnectionLost(Failure(why))
            return
        self.removeWriter(one)
        one.connectionLost(Failure(why))

    # ---- what may happen next

    def ready(self) -> list[tuple[str, Line]]:
        """Return all that could happen on the network now."""
        found = [("read", line) for line in self.readers.values() if line.readable]
        found += [("write", line) for line in self.writers.values() if _can_write(line)]
        found += [("hear", line) for line in self.lines.values() if _can_hear(line)]
        return found

    def act(self, what: str, line: Line, size: int) -> None:
        """Have one of these happen, over at most `size` bytes."""
        if what == "hear":
            data = line.down.take(size)
            if data:
                line.hear(data)
            elif line.down.ended:
                line.client_gone = True
                line.up.ended = True
                line.end.closed()
            return
        line.next_read = size
        one = line.transport
        direct = self.reads.direct.get(line.number) if what == "read" and size % 2 else None
        # As a short wait does that finds nothing else to do; what is not bytes is left to us.
        if direct is not None and direct():
            return
        why = one.doRead() if what == "read" else one.doWrite()
        if why:
            self.drop(one, why, reading=what == "read")

    def connect(self, line: Line, build: Callable[[Any], Any]) -> None:
        """Accept a connection."""
        self.lines[line.number] = line
        peer = IPv4Address("TCP", "127.0.0.1", 40_000 + line.number)
        line.wire = build(peer)
        socket: Any = FakeSocket(line)
        reactor: Any = self
        port: Any = None
        line.transport = tcp.Server(socket, line.wire, ("127.0.0.1", 1), port, line.number, reactor)
        line.wire.makeConnection(line.transport)

    def forget(self) -> None:
        """Drop the lines that are over."""
        for number in [n for n, line in self.lines.items() if line.over]:
            del self.lines[number]


def _can_write(line: Line) -> bool:
    return line.was_cut or line.client_gone or bool(line.down.room)


def _can_hear(line: Line) -> bool:
    down = line.down
    return not (line.client_gone or down.stalled) and (bool(down.data) or down.ended)
