"""Peers that leave while nobody reads from them."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock

from protocols.transport.departures import GRACE_SECONDS, LOOK_SECONDS, Departures, descriptor_of


class Watched:
    """One connection whose server end is watched."""

    def __init__(self, family: str) -> None:
        self.clock = Clock()
        self.departures = Departures(self.clock)
        self.calls: list[str] = []
        if family == "unix":
            self.client, self.server = socket.socketpair()
        else:
            with socket.create_server(("127.0.0.1", 0)) as listening:
                self.client = socket.create_connection(listening.getsockname())
                self.server, _ = listening.accept()
        self.client.sendall(b"never read")
        self.watch("gone")

    def watch(self, name: str) -> None:
        self.departures.watch(self.server.fileno(), lambda: self.calls.append(name))

    def forget(self) -> None:
        self.departures.forget(self.server.fileno())

    def passes(self, seconds: float) -> list[str]:
        for _ in range(round(seconds / LOOK_SECONDS)):
            self.clock.advance(LOOK_SECONDS)
        return self.calls


@pytest.fixture(params=["tcp", "unix"])
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    one = Watched(request.param)
    yield one
    one.client.close()
    one.server.close()


def test_who_is_there_and_silent_is_never_gone(watched: Watched) -> None:
    assert watched.passes(600) == []


@pytest.mark.parametrize("how", ["close", "shutdown", "reset"])
def test_who_left_is_gone_once_after_the_grace(watched: Watched, how: str) -> None:
    watched.passes(60)
    if how == "shutdown":
        watched.client.shutdown(socket.SHUT_WR)
    else:
        if how == "reset":
            linger = struct.pack("ii", 1, 0)
            watched.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        watched.client.close()
    assert watched.passes(GRACE_SECONDS) == []
    assert watched.passes(2 * LOOK_SECONDS) == ["gone"]
    assert watched.passes(60) == ["gone"]
    assert watched.clock.getDelayedCalls() == []


def test_who_is_forgotten_is_not_told_of(watched: Watched) -> None:
    watched.client.close()
    assert watched.passes(GRACE_SECONDS) == []
    watched.forget()
    watched.forget()
    assert watched.passes(60) == []
    assert watched.clock.getDelayedCalls() == [], "nothing is looked at, so nobody looks"


def test_the_grace_begins_again_with_each_stop(watched: Watched) -> None:
    watched.client.close()
    assert watched.passes(GRACE_SECONDS) == []
    watched.forget()
    watched.watch("again")
    assert watched.passes(GRACE_SECONDS) == []
    assert watched.passes(2 * LOOK_SECONDS) == ["again"]


def test_a_number_that_is_anothers_now_starts_anew(watched: Watched) -> None:
    watched.client.close()
    assert watched.passes(GRACE_SECONDS) == []
    watched.forget()
    watched.client, other = socket.socketpair()
    os.dup2(other.fileno(), watched.server.fileno())
    other.close()
    watched.watch("another")
    assert watched.passes(60) == []


def test_a_transport_without_a_socket_is_not_watched() -> None:
    clock = Clock()
    departures = Departures(clock)
    fd = descriptor_of(object())
    departures.watch(fd, lambda: None)
    departures.forget(fd)
    assert fd == -1
    assert clock.getDelayedCalls() == []
