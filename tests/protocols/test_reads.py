"""Reading past the reactor: one buffer, what ends, what is stopped, and a fault of one session."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from twisted.internet import tcp
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from gateway.model.turn import Turn
from protocols.shell import READ_BYTES, Reads, Speaker, Timers, Wire


class Echo:
    """A session that says what it heard."""

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None
        self.closing = self.paused_reading = self.retick = self.broken = False
        self.write_room = True
        self.lost = 0
        self.heard: list[bytes] = []

    def receive_data(self, data: bytes, now: float) -> None:
        del now
        if self.broken:
            raise ZeroDivisionError("a fault of its own")
        self.heard.append(data)

    def data_to_send(self) -> bytes:
        return b""

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
    session: Echo = field(default_factory=Echo)

    def __post_init__(self) -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            self.client = socket.create_connection(listening.getsockname())
            self.server, _ = listening.accept()
        self.server.setblocking(False)
        clock = Clock()
        speaker = Speaker(guess="AMQP", build=lambda _: self.session)
        self.wire = Wire(
            Turn(lambda action: clock.callLater(0, action)),
            Timers(clock),
            (speaker,),
            "w",
            tell=lambda _: "AMQP",
            decline=lambda _guess, _first: None,
            reads=self.reads,
        )
        self.fd = self.server.fileno()
        self.transport = _Transport(self.server, self.wire)
        self.wire.makeConnection(self.transport)

    def read(self) -> bool:
        return self.reads.direct[self.fd]()

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


@pytest.fixture
def line() -> Iterator[Line]:
    one = Line(Reads())
    yield one
    one.close()


def test_what_is_there_is_read_and_nothing_is_no_end(line: Line) -> None:
    assert line.read()
    line.client.sendall(b"one")
    assert line.read()
    line.client.sendall(b"two")
    assert line.transport.doRead() is None
    assert line.session.heard == [b"one", b"two"]


def test_what_was_read_is_the_session_s_own(line: Line) -> None:
    other = Line(line.reads)
    line.client.sendall(b"first")
    other.client.sendall(b"later")
    assert line.read()
    assert other.read()
    assert (line.session.heard, other.session.heard) == ([b"first"], [b"later"])
    other.close()


def test_more_than_the_buffer_comes_in_pieces(line: Line) -> None:
    wanted = bytes(range(256)) * (2 * READ_BYTES // 256 + 3)
    at = 0
    line.client.setblocking(False)
    while len(b"".join(line.session.heard)) < len(wanted):
        with contextlib.suppress(BlockingIOError):
            at += line.client.send(wanted[at:])
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
    line.client.sendall(b"one")
    assert line.read()
    line.client.sendall(b"two")
    assert not line.read()
    assert line.session.heard == [b"one"]


def test_a_lost_connection_is_forgotten(line: Line) -> None:
    line.wire.connectionLost()
    assert line.fd not in line.reads.direct


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
