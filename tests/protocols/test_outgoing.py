"""What a connection sends: on its socket, by way of its transport, and what pressure is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.task import Clock

from gateway.model.budget import Budget
from protocols.transport import outgoing
from protocols.transport.outgoing import Outgoing
from protocols.transport.unread import LOOK_SECONDS, Backlogs, Output

PRESSURE = 100


class Line:
    """A socket, a transport, a session and a connection, all of which write to one list."""

    def __init__(self, *, takes: int = 0, direct: bool = True, **bounds: object) -> None:
        self.log: list[object] = []
        self.takes = takes
        self.shared = Budget(1 << 20)
        self.clock = Clock()
        self.write_room = True
        self.choked = False
        output = Output(**{"bytes_max": PRESSURE, "shared": self.shared, **bounds})
        self.out = Outgoing(self, output, Backlogs(self.clock))
        self.out.session = self
        send: Callable[[bytes], int] | None = self.send if direct else None
        self.out.attach(self, send)

    # the socket
    def send(self, data: bytes) -> int:
        if self.takes < 0:
            raise ConnectionResetError
        if not self.takes:
            raise BlockingIOError
        taken, self.takes = min(self.takes, len(data)), self.takes - min(self.takes, len(data))
        self.log.append(data[:taken])
        return taken

    # the transport
    def registerProducer(self, producer: object, streaming: bool) -> None:
        assert producer is self.out
        assert not streaming
        self.log.append("pull")

    def unregisterProducer(self) -> None:
        self.log.append("pulled")

    def write(self, data: bytes) -> None:
        self.log.append(data)

    # the session
    def write_resumed(self) -> None:
        self.log.append("room")

    # the connection
    def unchoked(self) -> None:
        self.log.append("unchoked")

    def stuck(self, why: str) -> None:
        self.log.append(why)


@pytest.fixture(autouse=True)
def _low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "PRESSURE_BYTES", PRESSURE)


def test_what_the_socket_takes_is_gone() -> None:
    line = Line(takes=100)
    line.out.put(b"one")
    line.out.put(b"two")
    assert line.log == [b"one", b"two"]
    assert (line.out.bytes_out, line.out.pulling, line.out.size) == (6, False, 0)


def test_what_it_does_not_take_is_pulled_in_order() -> None:
    line = Line(takes=2)
    line.out.put(b"one")
    line.out.put(b"two")
    assert line.log == [b"on", "pull"]
    assert line.shared.held == line.out.size == 4
    line.out.resumeProducing()
    line.out.put(b"three")
    line.out.resumeProducing()
    line.out.resumeProducing()
    assert line.log == [b"on", "pull", b"etwo", b"three", "pulled"]
    assert (line.out.bytes_out, line.out.pulling, line.shared.held) == (11, False, 0)


def test_a_transport_without_a_socket_of_ours_has_all_by_pulling() -> None:
    line = Line(takes=100, direct=False)
    line.out.put(b"one")
    assert line.log == ["pull"]
    line.out.say_all()
    assert line.log == ["pull", b"one"]


def test_a_plain_socket_says_the_rest_by_itself_when_it_closes() -> None:
    line = Line()
    line.out.put(b"one")
    line.out.say_all()
    assert line.log == ["pull"]


def test_deliveries_end_first_and_then_reading_until_all_is_written() -> None:
    line = Line()
    line.out.put(b"d" * PRESSURE)
    assert line.write_room
    line.out.put(b"d")
    assert not line.write_room
    line.out.put(b"a" * PRESSURE)
    assert not line.choked
    line.out.put(b"a")
    assert line.choked
    assert line.out.choked
    line.out.resumeProducing()
    assert not line.write_room
    line.out.resumeProducing()
    assert line.write_room
    assert not line.out.choked
    assert line.log[-3:] == ["pulled", "room", "unchoked"]


def test_without_a_session_answers_count_from_the_first_byte() -> None:
    line = Line()
    line.out.session = None
    line.out.put(b"a" * (PRESSURE + 1))
    assert line.out.choked
    assert not line.choked


def test_a_socket_that_fails_is_left_to_the_reactor() -> None:
    line = Line(takes=-1)
    line.out.put(b"one")
    assert line.log == []
    assert not line.out.pulling


def test_nothing_is_sent_or_held_once_the_connection_is_lost() -> None:
    line = Line()
    line.out.put(b"one")
    line.out.lost()
    assert line.shared.held == 0
    line.takes = 100
    line.out.put(b"two")
    assert line.log == ["pull"]
    line.clock.advance(LOOK_SECONDS)
    assert line.clock.getDelayedCalls() == []


def test_a_transport_that_closes_has_what_waits_forgotten() -> None:
    line = Line()
    line.out.put(b"one")
    line.out.stopProducing()
    assert (line.out.size, line.shared.held) == (0, 0)


def test_a_peer_that_takes_nothing_for_its_time_is_stuck() -> None:
    line = Line(seconds=3.0)
    line.out.put(b"one")
    for _ in range(5):
        line.clock.advance(LOOK_SECONDS)
    assert line.log[-1] == (
        "it has read nothing for 3 s (unread-timeout), while up to 3 bytes waited for it"
    )
