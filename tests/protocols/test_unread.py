"""Peers that do not read: when nothing more is read of them, and when they are cut."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock

from gateway.model.budget import Budget
from gateway.model.peers import Cause
from protocols.transport import outgoing
from protocols.transport.reads import Reads
from protocols.transport.unread import LOOK_SECONDS, Backlogs, Output
from tests.protocols.test_reads import Contexts, Line

KIB = 1 << 10
ANSWER = b"a" * (64 * KIB)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return Contexts.made(tmp_path_factory.mktemp("certificates"))


class Unread:
    """A line whose client asks and reads nothing."""

    def __init__(self, contexts: Contexts | None, **output: object) -> None:
        self.clock = Clock()
        self.shared = Budget(1 << 30)
        bounds = {"bytes_max": 256 * KIB, "seconds": 60.0, "shared": self.shared, **output}
        reads = Reads(backlogs=Backlogs(self.clock))
        self.line = Line(reads, contexts, output=Output(**bounds)).shake()
        self.line.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.resumed = 0
        self.line.session.write_resumed = self._write_resumed

    def _write_resumed(self) -> None:
        self.resumed += 1
        self.line.session.choked = False

    def ask(self) -> bool:
        """Have an answer written; returns whether the request was read."""
        self.line.say(b"?")
        self.line.session.out.append(ANSWER)
        heard = len(self.line.session.heard)
        return self.line.read() and len(self.line.session.heard) > heard

    def asked_until_it_is_not_read(self) -> int:
        for count in range(1000):
            if self.line.wire._stopped_reading:
                return count
            assert self.ask()
        raise AssertionError("it is read from for ever")

    def take(self, count: int = 1 << 30) -> None:
        """Have the client read so much, or all that there is, and the transport write."""
        line = self.line
        ends = time.monotonic() + 20
        while count > 0 and line.wire._out.pulling:
            assert time.monotonic() < ends
            select.select([line.client], [], [], 0.01)
            line.transport.doWrite()
            with contextlib.suppress(BlockingIOError):
                count -= len(line.client.recv(min(count, 1 << 20), socket.MSG_DONTWAIT))


@pytest.fixture(params=["tcp", "tls"])
def unread(request: pytest.FixtureRequest, contexts: Contexts) -> Iterator[Unread]:
    one = Unread(contexts if request.param == "tls" else None)
    yield one
    one.line.close()


def test_a_peer_that_does_not_read_its_answers_is_read_no_more_until_it_does(
    unread: Unread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "PRESSURE_BYTES", 256 * KIB)
    unread.asked_until_it_is_not_read()
    session = unread.line.session
    assert session.choked
    assert not session.write_room
    assert 512 * KIB < unread.shared.held < 700 * KIB
    assert not unread.line.read(), "the reactor does not read either"
    unread.take()
    assert (session.choked, session.write_room, unread.resumed) == (False, True, 1)
    assert not unread.line.wire._stopped_reading
    assert unread.shared.held == 0
    assert unread.ask()


def test_answers_to_who_reads_them_are_not_bounded(unread: Unread) -> None:
    for _ in range(20):
        assert unread.ask()
        unread.take()
    assert not unread.line.session.choked
    assert unread.shared.held == 0


def test_what_is_not_read_of_all_connections_shares_a_budget(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "PRESSURE_BYTES", 256 * KIB)
    shared = Budget(300 * KIB)
    first = Unread(None, shared=shared)
    second = Unread(contexts, shared=shared)
    many = first.asked_until_it_is_not_read()
    few = second.asked_until_it_is_not_read()
    assert few < many
    assert shared.held > shared.maximum
    first.take()
    assert not first.line.session.choked
    for one in (first, second):
        one.line.wire.connectionLost()
        one.line.close()
    assert shared.held == 0


def test_who_reads_nothing_for_a_minute_is_cut(unread: Unread) -> None:
    while not unread.line.wire._out.pulling:
        assert unread.ask()
    for _ in range(59):
        unread.clock.advance(LOOK_SECONDS)
        assert unread.line.wire.ending is None
    unread.clock.advance(2 * LOOK_SECONDS)
    unread.clock.advance(LOOK_SECONDS)
    ending = unread.line.wire.ending
    assert ending is not None
    assert ending.cause is Cause.TIMED_OUT
    assert "has read nothing for 60 s (unread-timeout)" in ending.text


def test_who_reads_slowly_is_not_cut(unread: Unread) -> None:
    unread.asked_until_it_is_not_read()
    steps = 0
    while unread.line.wire._out.pulling:
        for _ in range(50):
            unread.clock.advance(LOOK_SECONDS)
        unread.take(count=128 * KIB)
        steps += 1
    assert unread.line.wire.ending is None
    assert steps > 2


def test_nobody_is_looked_after_whose_output_is_written(unread: Unread) -> None:
    while not unread.line.wire._out.pulling:
        assert unread.ask()
    unread.take()
    unread.clock.advance(LOOK_SECONDS)
    assert not unread.clock.getDelayedCalls()


def test_a_process_that_stood_still_cuts_nobody_for_it(unread: Unread) -> None:
    while not unread.line.wire._out.pulling:
        assert unread.ask()
    for _ in range(10):
        unread.clock.advance(LOOK_SECONDS)
    unread.clock.advance(86_400)
    assert unread.line.wire.ending is None
    for _ in range(60):
        unread.clock.advance(LOOK_SECONDS)
    assert unread.line.wire.ending is not None
