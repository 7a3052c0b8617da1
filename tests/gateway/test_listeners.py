"""Listeners: opening, and what cannot be opened."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from gateway.config.endpoints import read_endpoint
from gateway.listening.listeners import BACKLOG, Listener, ListenError, description


class TestListener(SynchronousTestCase):
    def test_it_opens_with_our_backlog_and_tells_where(self) -> None:
        reactor = MemoryReactorClock()
        endpoint = read_endpoint("tcp:5672:interface=127.0.0.1")
        listener = Listener(reactor, "acceptors.all", endpoint, Factory())
        self.successResultOf(listener.open())
        (opened,) = reactor.tcpServers
        assert (opened[0], opened[2], opened[3]) == (5672, BACKLOG, "127.0.0.1")
        assert listener.address.startswith("127.0.0.1:")
        self.successResultOf(listener.stop_listening())
        self.successResultOf(listener.stop_listening())

    def test_a_port_in_use_is_named(self) -> None:
        reactor = MemoryReactorClock()

        def refuse(*_: Any, **__: Any) -> None:
            raise CannotListenError("127.0.0.1", 5672, OSError(98, "Address already in use"))

        reactor.listenTCP = refuse
        endpoint = read_endpoint("tcp:5672:interface=127.0.0.1")
        listener = Listener(reactor, "acceptors.all", endpoint, Factory())
        failure = self.failureResultOf(listener.open(), ListenError)
        text = failure.getErrorMessage()
        assert text == "acceptors.all: 127.0.0.1:5672 cannot be opened: Address already in use"

    def test_what_twisted_cannot_make_is_an_error_before_anything_opens(self) -> None:
        endpoint = read_endpoint("haproxy:ssl:5671:privateKey=/nowhere/key.pem")
        told = r"acceptors\.all\.endpoint: haproxy:ssl:.*No such file"
        with pytest.raises(ListenError, match=told):
            Listener(MemoryReactorClock(), "acceptors.all", endpoint, Factory())

    def test_a_written_backlog_stays(self) -> None:
        assert description(read_endpoint("tcp:1:backlog=5")) == "tcp:1:backlog=5"
        assert description(read_endpoint("unix:/run/x")) == "unix:/run/x"
