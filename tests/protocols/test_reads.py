"""Reading past the reactor: one buffer, what ends, what is stopped, and a fault of one session.

Each of it over plain TCP and over TLS, whose records are opened where the bytes are read.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from twisted.internet import tcp
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from gateway.model.turn import Turn
from protocols.transport import outgoing
from protocols.transport.patience import Patience
from protocols.transport.reads import LEAST_READ_BYTES, READ_BYTES, Reads
from protocols.transport.shell import FIRST_BYTES_SECONDS, Wire
from protocols.transport.speaking import Speaker
from protocols.transport.timers import Timers
from protocols.transport.tls import Tls
from protocols.transport.unread import Output
from tests.certificates import Authority
from tests.protocols.key_updates import KeyUpdates


class Echo:
    """A session that says what it heard."""

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None
        self.spent: Callable[[], bool] = lambda: False
        self.closing = self.paused_reading = self.behind = self.retick = self.broken = False
        self.choked = False
        self.write_room = True
        self.lost = 0
        self.heard: list[bytes] = []
        self.out: list[bytes] = []

    def receive_data(self, data: bytes, now: float) -> None:
        del now
        if self.broken:
            raise ZeroDivisionError("a fault of its own")
        self.heard.append(data)

    def go_on(self, now: float) -> None: ...

    def data_to_send(self) -> bytes:
        said, self.out = b"".join(self.out), []
        return said

    def tick(self, now: float) -> float | None:
        del now
        return None

    def connection_lost(self, now: float) -> None:
        del now
        self.lost += 1

    def write_resumed(self) -> None: ...

    def stop(self, now: float) -> None: ...


@dataclass
class Line:
    """A connected pair of sockets with a wire at one end."""

    reads: Reads
    contexts: Contexts | None = None
    session: Echo = field(default_factory=Echo)
    speakers: int = 1
    output: Output = field(default_factory=Output)

    def __post_init__(self) -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            self.client = socket.create_connection(listening.getsockname())
            self.server, _ = listening.accept()
        # What is said is there at once, also behind what has not been acknowledged yet.
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.setblocking(False)
        clock = self.clock = Clock()
        speaker = Speaker(guess="AMQP", build=lambda _: self.session)
        self.failures: list[str] = []
        self.tls: Tls | None = None
        ours = None
        if self.contexts is not None:
            ours = Tls(self.contexts.server)
            self.tls = Tls(self.contexts.client, server=False, name="localhost")
        self.wire = Wire(
            Turn(lambda action: clock.callLater(0, action)),
            Timers(clock),
            (speaker,) * self.speakers,
            "w",
            tell=lambda _: "AMQP",
            decline=lambda _guess, _first: None,
            reads=self.reads,
            tls=ours,
            output=self.output,
        )
        self.wire.on_tls_failed = lambda _, why: self.failures.append(why)
        self.fd = self.server.fileno()
        self.transport = _Transport(self.server, self.wire)
        self.wire.makeConnection(self.transport)

    def read(self) -> bool:
        return self.reads.direct[self.fd]()

    def say(self, data: bytes) -> None:
        self.client.sendall(data if self.tls is None else self.tls.seal(data))

    def shake(self) -> Line:
        """Have the handshake done, where there is one."""
        if self.tls is not None:
            self.tls.shake()
            while not self.tls.ready:
                self.client.sendall(self.tls.take())
                assert self.read()
                self.tls.feed(self.client.recv(65536))
            self.client.sendall(self.tls.take())
            assert self.read()
        return self

    def close(self) -> None:
        self.client.close()
        self.server.close()


class _Transport(tcp.Connection):
    def __init__(self, skt: socket.socket, wire: Wire) -> None:
        super().__init__(skt, wire, reactor=MemoryReactorClock())
        self.connected = 1
        self.startReading()

    def getPeer(self) -> object:
        return None

    def getHost(self) -> object:
        return None


@dataclass
class Contexts:
    """What both ends of TLS speak with; the client writes its secrets to `key_log`."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    key_log: Path

    @classmethod
    def made(cls, folder: Path) -> Contexts:
        authority = Authority(folder)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(*authority.issue())
        server.num_tickets = 0
        server.options |= ssl.OP_NO_RENEGOTIATION
        client = authority.client()
        client.keylog_filename = str(folder / "keys")
        return cls(server, client, folder / "keys")


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return Contexts.made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["tcp", "tls"])
def line(request: pytest.FixtureRequest, contexts: Contexts) -> Iterator[Line]:
    one = Line(Reads(), contexts if request.param == "tls" else None).shake()
    yield one
    one.close()


def test_what_is_there_is_read_and_nothing_is_no_end(line: Line) -> None:
    assert line.read()
    line.say(b"one")
    assert line.read()
    line.say(b"two")
    assert line.transport.doRead() is None
    assert line.session.heard == [b"one", b"two"]


def test_what_was_read_is_the_session_s_own(line: Line) -> None:
    other = Line(line.reads, line.contexts).shake()
    line.say(b"first")
    other.say(b"later")
    assert line.read()
    assert other.read()
    assert (line.session.heard, other.session.heard) == ([b"first"], [b"later"])
    other.close()


def test_more_than_the_buffer_comes_in_pieces(line: Line) -> None:
    wanted = bytes(range(256)) * (2 * READ_BYTES // 256 + 3)
    said = wanted if line.tls is None else line.tls.seal(wanted)
    at = 0
    line.client.setblocking(False)
    while len(b"".join(line.session.heard)) < len(wanted):
        with contextlib.suppress(BlockingIOError):
            at += line.client.send(said[at:])
        assert line.read()
    assert b"".join(line.session.heard) == wanted
    assert max(map(len, line.session.heard)) <= READ_BYTES


def test_the_end_is_left_to_the_reactor_which_finds_it_again(line: Line) -> None:
    line.client.shutdown(socket.SHUT_WR)
    assert not line.read()
    assert line.transport.doRead() is CONNECTION_DONE


def test_a_reset_is_left_to_the_reactor(line: Line) -> None:
    line.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    line.client.close()
    assert not line.read()
    assert line.transport.doRead() in (CONNECTION_DONE, CONNECTION_LOST)


def test_who_is_stopped_reads_nothing(line: Line) -> None:
    line.session.paused_reading = True
    line.say(b"one")
    assert line.read()
    line.say(b"two")
    assert not line.read()
    assert line.session.heard == [b"one"]


def test_a_lost_connection_is_forgotten(line: Line) -> None:
    line.wire.connectionLost()
    assert line.fd not in line.reads.direct


def test_many_records_of_one_read_are_heard_at_once(contexts: Contexts) -> None:
    line = Line(Reads(), contexts).shake()
    assert line.tls is not None
    line.client.sendall(b"".join(line.tls.seal(b"%d," % number) for number in range(100)))
    assert line.read()
    assert line.session.heard == [b"".join(b"%d," % number for number in range(100))]
    line.close()


# ---- the end over TLS


def close_notify(line: Line) -> bytes:
    assert line.tls is not None
    return line.tls.close()


def written(line: Line) -> bytes:
    """Return the plain text of all that was sent; the reactor writes what waits."""
    assert line.tls is not None
    line.client.setblocking(False)
    came = b""
    for _ in range(1000):
        line.transport.doWrite()
        with contextlib.suppress(BlockingIOError):
            came += line.tls.feed(line.client.recv(1 << 20))
        if line.tls.ended:
            return came
    raise AssertionError("no close_notify came")


def test_what_waits_is_sent_before_the_close_notify(contexts: Contexts) -> None:
    line = Line(Reads(), contexts).shake()
    wanted = b"x" * 4_000_000
    line.session.out += [wanted]
    line.session.closing = True
    line.say(b"go")
    assert line.read()
    assert line.transport.disconnecting
    assert written(line) == wanted
    line.close()


def test_data_with_a_close_notify_is_heard_and_answered_before_ours(contexts: Contexts) -> None:
    line = Line(Reads(), contexts).shake()
    assert line.tls is not None
    line.session.out += [b"answer"]
    line.client.sendall(line.tls.seal(b"last") + close_notify(line))
    assert line.read()
    assert line.session.heard == [b"last"]
    assert written(line) == b"answer"
    assert line.session.lost == 1, "it hears nothing more, so it is given nothing more"
    assert line.failures == []
    line.wire.connectionLost()
    assert line.session.lost == 1
    line.close()


def test_a_failure_closes_through_the_transport_with_an_alert(contexts: Contexts) -> None:
    """What a direct reader returns is dropped; the connection must end all the same."""
    line = Line(Reads(), contexts).shake()
    assert line.tls is not None
    record = bytearray(line.tls.seal(b"changed"))
    record[-1] ^= 1
    line.client.sendall(record)
    assert line.read()
    assert line.transport.disconnecting
    assert "bad-record-mac" in line.failures[0]
    line.tls.feed(line.client.recv(65536))
    assert "bad-record-mac" in line.tls.failure
    assert (line.session.heard, line.session.lost) == ([], 1)
    line.close()


@pytest.mark.parametrize("speakers", [1, 2])
@pytest.mark.parametrize("said", [b"", b"\x16\x03"])
def test_a_handshake_must_be_done_in_time_however_many_protocols_there_are(
    contexts: Contexts, speakers: int, said: bytes
) -> None:
    line = Line(Reads(), contexts, speakers=speakers)
    line.client.sendall(said)
    line.read()
    line.clock.advance(FIRST_BYTES_SECONDS - 0.1)
    assert not line.failures
    assert line.wire.session is None
    line.clock.advance(0.2)
    assert line.failures == ["too-slow"]
    assert line.transport._aborting
    line.close()


def test_a_session_begins_when_the_handshake_is_done(contexts: Contexts) -> None:
    line = Line(Reads(), contexts)
    assert line.wire.session is None
    line.shake()
    assert line.wire.session is line.session
    assert line.wire.peer().tls
    line.clock.advance(2 * FIRST_BYTES_SECONDS)
    assert not line.failures
    line.close()


# ---- new keys


def test_who_asks_for_new_keys_is_answered(contexts: Contexts) -> None:
    line = Line(Reads(), contexts).shake()
    assert line.tls is not None
    client = KeyUpdates(contexts.key_log)
    for number in range(10):
        line.session.out += [b"yes"]
        line.client.sendall(client.ask() + client.seal(b"%d" % number))
        assert line.read()
        answer = line.client.recv(65536)
        assert len(answer) > 3 + 22, "a KeyUpdate goes before what is said next [RFC 8446 4.6.3]"
        assert line.tls.feed(answer) == b"yes"
    assert b"".join(line.session.heard) == b"0123456789"
    line.close()


def test_who_asks_on_and_on_and_reads_nothing_is_not_read_from(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "PRESSURE_BYTES", 25_000)
    line = Line(Reads(), contexts, output=Output(bytes_max=25_000)).shake()
    assert line.tls is not None
    line.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    line.client.setblocking(False)
    client = KeyUpdates(contexts.key_log)
    flood, most = b"", 0
    for _ in range(200_000):
        if len(flood) < 4096:
            flood += b"".join(client.ask() for _ in range(100))
        with contextlib.suppress(BlockingIOError):
            flood = flood[line.client.send(flood) :]
        line.read()
        most = max(most, line.wire._out.size)
        if line.wire._stopped_reading:
            break
    else:
        raise AssertionError("it is read from for ever")
    assert 50_000 < most < 2 * 50_000
    assert not line.read()
    # Who reads its answers is read from again, and understood.
    flood += client.seal(b"done")
    ends = time.monotonic() + 60
    while b"done" not in line.session.heard:
        assert time.monotonic() < ends
        line.transport.doWrite()
        with contextlib.suppress(BlockingIOError):
            flood = flood[line.client.send(flood) :]
        with contextlib.suppress(BlockingIOError):
            line.tls.feed(line.client.recv(1 << 20))
        if not line.wire._stopped_reading:
            line.read()
    assert not line.tls.failure
    line.close()


class TestFaults(SynchronousTestCase):
    def test_a_fault_of_a_session_ends_its_connection_alone(self) -> None:
        reads = Reads()
        broken, sound = Line(reads), Line(reads)
        broken.session.broken = True
        for line in (broken, sound):
            line.client.sendall(b"x")
            assert line.read()
        assert broken.client.recv(10) == b""
        assert (broken.session.lost, sound.session.lost) == (1, 0)
        assert sound.session.heard == [b"x"]
        assert broken.fd not in reads.direct
        assert len(self.flushLoggedErrors(ZeroDivisionError)) == 1
        broken.close()
        sound.close()


def test_in_a_crowd_little_is_read_of_each() -> None:
    """What was read of those that wait for their turn is in memory, 256 KiB of each otherwise."""
    patience = Patience(lambda action: action)
    line = Line(Reads(patience=patience))
    patience.crowded = True
    line.say(bytes(3 * LEAST_READ_BYTES))
    assert line.read()
    assert len(line.session.heard[0]) == LEAST_READ_BYTES
    patience.crowded = False
    assert line.read()
    assert len(line.session.heard[1]) == 2 * LEAST_READ_BYTES
    line.close()
