"""One driver process of the bench: sockets, epoll and the clock around the sans-IO drivers.

    python -m gateway.bench.drive

reads a `Job` as one line of JSON, connects, says `{"ready": true}`, waits for a line, runs, and
prints an `Outcome` as one line of JSON. Clients run in processes of their own so that they never
take turns with one another for one interpreter, and so that the broker's CPU time is the broker's
alone. Imports the standard library and the bench's own modules, nothing else: it starts in some 50
ms.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Protocol

from gateway.bench import amqp, stomp
from gateway.bench.latency import RunTimes, percentiles
from gateway.bench.shapes import TTL_MS, Shape, mixed, uniform
from gateway.bench.tls import TlsSocket
from gateway.bench.websocket import WebSocket

READ_BYTES: Final = 1 << 18
#: What all connections read into: to make so much room for each read costs more than most reads.
_BUFFER: Final = memoryview(bytearray(READ_BYTES))
STALL_SECONDS: Final = 30.0
#: Peers end a connection that is silent for 30 s or so.
BEAT_SECONDS: Final = 10.0
_BEAT: Final = struct.pack("ll", int(BEAT_SECONDS), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one driver process does.

    Attributes:
        protocol: `amqp` or `stomp`.
        role: `send` or `receive`.
        count: messages, over all connections.
        window: messages sent and not yet confirmed, for each connection.
        early: a receiver attaches before it reports ready, for rows where senders follow.
        shape: `uniform` or `mixed`.
        confirmed: each message is confirmed (unsettled, receipt); else only the last.
        stamped: bodies carry the time they were sent, receivers read it.
        ack: STOMP acknowledgement mode.
        settle_every: messages that a receiver lets come before it settles them.
        tls: the connections speak TLS; the broker's certificate is not judged.
        websocket: they speak over WebSocket, within TLS if that is spoken too.
    """

    protocol: str
    role: str
    host: str
    port: int
    address: str
    count: int
    connections: int = 1
    window: int = 2000
    credit: int = 1000
    size: int = 256
    durable: bool = False
    confirmed: bool = True
    early: bool = False
    shape: str = "uniform"
    stamped: bool = False
    ack: str = "auto"
    settle_every: int = 100
    user: str = ""
    password: str = ""
    tls: bool = False
    websocket: bool = False

    def shapes(self) -> list[Shape]:
        """Return what is sent."""
        return mixed() if self.shape == "mixed" else uniform(self.size, durable=self.durable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one driver process saw: nanoseconds of the monotonic clock, percentiles in ms."""

    count: int
    started: int
    ended: int
    latency: list[float]


class Driver(Protocol):
    """The sans-IO side of one connection."""

    times: RunTimes
    finished: bool

    def produce(self, now: int) -> memoryview | bytes: ...

    def feed(self, data: bytes, now: int) -> None: ...

    def stalled(self) -> str: ...


class Layer(Protocol):
    """What stands between the bytes of a driver and the socket: TLS, WebSocket."""

    def recv(self) -> bytes | None: ...

    def send(self, data: bytes | memoryview) -> int: ...

    def flush(self) -> bool: ...

    def sendall(self, data: bytes) -> None: ...

    def end(self) -> None: ...


class Wire:
    """A blocking socket with what was read too far, for the opening of a connection.

    Attributes:
        layer: what encrypts or frames, if anything does.
    """

    def __init__(self, job: Job) -> None:
        self.socket = socket.create_connection((job.host, job.port), timeout=STALL_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = TlsSocket(self.socket, job.host) if job.tls else None
        self.layer: Layer | None = tls
        if job.websocket:
            self.layer = WebSocket(self.socket, tls, job.host, job.protocol)
        self._read = b""

    def write(self, data: bytes) -> None:
        """Write all of `data`."""
        (self.layer or self.socket).sendall(data)

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes."""
        while len(self._read) < size:
            self._more()
        found, self._read = self._read[:size], self._read[size:]
        return found

    def read_until(self, end: bytes) -> bytes:
        """Return all up to and including `end`."""
        while end not in self._read:
            self._more()
        found, _, self._read = self._read.partition(end)
        return found + end

    def _more(self) -> None:
        data = self.socket.recv(READ_BYTES) if self.layer is None else self.layer.recv()
        if data == b"":
            raise amqp.PeerError(f"the peer closed the connection after {self._read[-300:]!r}")
        self._read += data or b""

    def rest(self) -> bytes:
        """Return what was read beyond the opening."""
        found, self._read = self._read, b""
        return found

    def frame(self) -> bytes:
        """Return the content of the next AMQP frame that is not empty."""
        while True:
            (size,) = struct.unpack(">I", self.read(4))
            raw = self.read(size - 4)
            content = raw[4 * raw[0] - 4 :]
            if content:
                return content

    def expect(self, code: int) -> list[object]:
        """Read AMQP frames up to a performative; returns its fields, raises PeerError."""
        while True:
            content = self.frame()
            if content[2] == code:
                return amqp.fields(content)
            if content[2] in (amqp.DETACH, amqp.END, amqp.CLOSE):
                raise amqp.PeerError(f"the peer ended it: {content!r}")


class Connection:
    """One socket with its driver; writes what the driver produces, feeds it what arrives."""

    __slots__ = (
        "_layer",
        "_left",
        "_protocol",
        "_started",
        "_subscribe",
        "driver",
        "socket",
        "waits",
    )

    def __init__(self, wire: Wire, driver: Driver, job: Job, subscribe: bytes = b"") -> None:
        """Take over an open wire; `subscribe` is what a late receiver sends at the start."""
        self.socket = wire.socket
        self._layer = wire.layer
        self.driver = driver
        self._left: memoryview | bytes = b""
        self._protocol = job.protocol
        self._subscribe = subscribe
        self._started = False
        # A read waits in the kernel, no poll before it; writes never wait.
        self.socket.setblocking(True)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _BEAT)
        self.waits = False
        if rest := wire.rest():
            driver.feed(rest, time.perf_counter_ns())

    def start(self) -> None:
        """Send what opens the flow of messages; once, however often it is called."""
        if self._started:
            return
        self._started = True
        if self._subscribe:
            self._left = self._subscribe
        elif isinstance(self.driver, amqp.Receiver):
            self.driver.start(time.perf_counter_ns())

    def write(self) -> None:
        """Write until there is nothing more, or the socket takes no more (then `waits` is set)."""
        if self._layer is not None:
            self._write_layered(self._layer)
            return
        driver, send = self.driver, self.socket.send
        at_once = socket.MSG_DONTWAIT
        while True:
            left = self._left or driver.produce(time.perf_counter_ns())
            if not left:
                self.waits = False
                self._left = b""
                return
            try:
                sent = send(left, at_once)
            except BlockingIOError:
                sent = 0
            self._left = left[sent:]
            if self._left:
                self.waits = True
                return

    def _write_layered(self, layer: Layer) -> None:
        """Do as `write` does, where what is taken is encrypted or framed before it is written."""
        driver = self.driver
        while layer.flush():
            left = self._left or driver.produce(time.perf_counter_ns())
            if not left:
                self.waits = False
                self._left = b""
                return
            self._left = left[layer.send(left) :]
        self.waits = True

    def read(self) -> None:
        """Feed the driver what has arrived; raises PeerError when the peer has closed."""
        if self._layer is not None:
            data = self._layer.recv()
            if data == b"":
                raise amqp.PeerError(f"the peer closed the connection: {self.driver.stalled()}")
            if data is not None:
                self.driver.feed(data, time.perf_counter_ns())
            return
        count = self.socket.recv_into(_BUFFER)
        if not count:
            raise amqp.PeerError(f"the peer closed the connection: {self.driver.stalled()}")
        self.driver.feed(bytes(_BUFFER[:count]), time.perf_counter_ns())

    def beat(self) -> None:
        """Show life on a connection that has nothing to say."""
        if self._protocol == "amqp" and not self._left:
            self._left = amqp.EMPTY_FRAME
            self.write()

    def close(self) -> None:
        """Say goodbye and wait for the answer, so that the peer has dealt with all before it."""
        goodbye = stomp.DISCONNECT
        if self._protocol == "amqp":
            goodbye = amqp.frame(amqp.composite(amqp.CLOSE))
        self.socket.settimeout(5)
        try:
            if self._layer is None:
                self.socket.sendall(goodbye)
            else:
                self._layer.sendall(goodbye)
                self._layer.end()
            self.socket.shutdown(socket.SHUT_WR)
            while self.socket.recv(READ_BYTES):
                pass
        except OSError:
            pass
        self.socket.close()


def open_amqp(job: Job, name: str) -> Connection:
    """Connect, log in, open a session and a link."""
    wire = Wire(job)
    wire.write(amqp.SASL_HEADER)
    if wire.read(8) != amqp.SASL_HEADER:
        raise amqp.PeerError("the peer does not speak AMQP 1.0 with SASL")
    wire.frame()  # its mechanisms
    wire.write(amqp.login(job.user, job.password))
    if amqp.number(amqp.fields(wire.frame()), 0) != 0:
        raise amqp.PeerError(f"the login as {job.user or 'anonymous'} was refused")
    wire.write(amqp.opening(name))
    wire.read(8)
    wire.expect(amqp.OPEN)
    began = wire.expect(amqp.BEGIN)
    receiver = job.role == "receive"
    wire.write(amqp.attach(name, job.address, receiver=receiver))
    attached = wire.expect(amqp.ATTACH)
    if receiver:
        taking = amqp.Receiver(
            job.count, credit=job.credit, stamped=job.stamped, settle_every=job.settle_every
        )
        taking.began(amqp.number(began, 1) or 0)
        taking.attached(amqp.number(attached, 9) or 0)
        return Connection(wire, taking, job)
    giving = amqp.Sender(
        job.shapes(),
        job.count // job.connections,
        window=job.window,
        settled=not job.confirmed,
        stamped=job.stamped,
    )
    giving.began(amqp.number(began, 2) or 0)
    return Connection(wire, giving, job)


def open_stomp(job: Job) -> Connection:
    """Connect and log in; a receiver that is to be early also subscribes."""
    wire = Wire(job)
    wire.write(stomp.connect(job.user, job.password))
    answer = wire.read_until(stomp.NUL)
    if not answer.lstrip(b"\n").startswith(b"CONNECTED"):
        raise amqp.PeerError(f"CONNECT was refused: {answer.decode(errors='replace')}")
    if job.role == "receive":
        subscribe = stomp.subscribe(job.address, job.ack)
        if job.early:
            wire.write(subscribe)
            wire.read_until(b"receipt-id:subscribed")
            wire.read_until(stomp.NUL)
            subscribe = b""
        taking = stomp.Receiver(
            job.count // job.connections,
            ack=job.ack,
            stamped=job.stamped,
            settle_every=job.settle_every,
        )
        return Connection(wire, taking, job, subscribe)
    shapes, each = job.shapes(), job.count // job.connections
    # The wall clock, since STOMP's `expires` is a date.
    expires = time.time_ns() // 1_000_000 + TTL_MS
    over = isinstance(wire.layer, WebSocket)
    frames = stomp.Frames(
        job.address, shapes, receipts=job.confirmed, expires=expires, websocket=over
    )
    last = None
    if not job.confirmed:
        last = stomp.Frames(job.address, shapes[:1], receipts=True, websocket=over)
    if isinstance(wire.layer, WebSocket):
        wire.layer.raw = True
    return Connection(
        wire,
        stomp.Sender(frames, last, each, window=job.window, stamped=job.stamped),
        job,
    )


def run(connections: Sequence[Connection]) -> tuple[int, int]:
    """Drive all connections until each is finished; returns when it started and ended (ns)."""
    if len(connections) == 1:
        return _run_one(connections[0])
    by_fd = {connection.socket.fileno(): connection for connection in connections}
    epoll = select.epoll()
    watched: dict[int, int] = {}
    unfinished = set(by_fd)

    def watch(fd: int, connection: Connection) -> None:
        wanted = select.EPOLLIN | (select.EPOLLOUT if connection.waits else 0)
        if watched.get(fd) != wanted:
            (epoll.modify if fd in watched else epoll.register)(fd, wanted)
            watched[fd] = wanted
        if connection.driver.finished and not connection.waits:
            unfinished.discard(fd)

    started = time.perf_counter_ns()
    for fd, connection in by_fd.items():
        connection.start()
        connection.write()
        watch(fd, connection)
    heard = time.monotonic()
    while unfinished:
        events = epoll.poll(BEAT_SECONDS)
        if events:
            heard = time.monotonic()
        elif time.monotonic() - heard >= STALL_SECONDS:
            where = "; ".join(by_fd[fd].driver.stalled() for fd in sorted(unfinished)[:5])
            raise amqp.PeerError(f"nothing moved for {STALL_SECONDS:.0f} s: {where}")
        else:
            for connection in connections:
                connection.beat()
        for fd, event in events:
            connection = by_fd[fd]
            if event & ~select.EPOLLOUT:
                connection.read()
            connection.write()
            watch(fd, connection)
    ended = time.perf_counter_ns()
    epoll.close()
    return started, ended


def _run_one(connection: Connection) -> tuple[int, int]:
    """Drive the only connection: what a round trip costs here is one send and one read."""
    driver = connection.driver
    silent = 0.0
    either = select.poll()
    either.register(connection.socket, select.POLLIN | select.POLLOUT)
    started = time.perf_counter_ns()
    connection.start()
    connection.write()
    while not driver.finished or connection.waits:
        try:
            if not connection.waits or either.poll(BEAT_SECONDS * 1000)[0][1] & ~select.POLLOUT:
                connection.read()
        except (BlockingIOError, IndexError):
            silent += BEAT_SECONDS
            if silent >= STALL_SECONDS:
                text = f"nothing moved for {STALL_SECONDS:.0f} s: {driver.stalled()}"
                raise amqp.PeerError(text) from None
            connection.beat()
            continue
        silent = 0.0
        connection.write()
    return started, time.perf_counter_ns()


def open_all(job: Job) -> list[Connection]:
    """Open the connections of a job."""
    if job.protocol == "stomp":
        return [open_stomp(job) for _ in range(job.connections)]
    names = (f"bench-{os.getpid()}-{number}" for number in range(job.connections))
    return [open_amqp(job, name) for name in names]


def perform(job: Job) -> Outcome:
    """Do a job; the two sides of the hand-shake on standard input and output are here."""
    connections = open_all(job)
    early = [one for one in connections if job.early and job.role == "receive"]
    for one in early:
        one.start()
        one.write()
    gc.collect()
    gc.freeze()
    gc.disable()
    _say({"ready": True})
    sys.stdin.readline()
    started, ended = run(connections)
    gc.enable()
    for one in connections:
        one.close()
    samples = [sample for one in connections for sample in one.driver.times.samples]
    return Outcome(
        count=(job.count // job.connections) * job.connections,
        started=started,
        ended=ended,
        latency=percentiles(samples),
    )


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Read a job, do it, print its outcome; status 1 and `{"error": text}` if it fails."""
    job = Job(**json.loads(sys.stdin.readline()))
    try:
        outcome = perform(job)
    except (amqp.PeerError, OSError) as error:
        text = f"{job.protocol} {job.role} at {job.host}:{job.port}: {error}"
        _say({"error": text, "unreachable": isinstance(error, ConnectionRefusedError)})
        return 1
    _say(asdict(outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main())
