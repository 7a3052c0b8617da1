"""Listeners: from an endpoint string to an open port.

One `Listener` for each acceptor and for management: it opens late (after recovery), says where it
really listens, and takes no more connections once it is told so. The open ones are its factory's:
those of an acceptor end by `connections.drain`, those of management by `ApiSite`.

    closed ──open──> opening ──> open ──stop_listening──> closed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import structlog
from twisted.internet import tcp
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IReactorTime
from twisted.python.failure import Failure

from gateway.config.endpoints import Endpoint
from gateway.process.descriptors import ACCEPTS_AT_ONCE

#: Connections that may wait to be accepted: Twisted's 50 overflow when a fleet comes back at once.
BACKLOG: Final = 1024

_log = structlog.get_logger()


class ListenError(Exception):
    """A listener could not be opened; the text names it and why."""


class Listener:
    """One listener; see the module text."""

    def __init__(
        self, reactor: IReactorTime, path: str, endpoint: Endpoint, factory: IProtocolFactory
    ) -> None:
        """Keep what is needed to open; `path` is its key in the configuration.

        Raises ListenError when Twisted cannot make an endpoint of the string.
        """
        self.path = path
        self.endpoint = endpoint
        self.factory = factory
        self._port: IListeningPort | None = None
        try:
            self._server = serverFromString(reactor, description(endpoint))
        except Exception as error:  # OpenSSL's own have no base of their own
            raise ListenError(f"{path}.endpoint: {endpoint.text}: {error}") from error

    def open(self) -> Deferred[None]:
        """Take connections; fails with ListenError."""

        def opened(port: IListeningPort) -> None:
            self._port = port
            accept_few(port)
            _log.info(
                "listener.opened",
                listener=self.path,
                address=self.address,
                tls=self.endpoint.tls,
            )

        def failed(failure: Failure) -> None:
            failure.trap(CannotListenError, OSError)
            cause = getattr(failure.value, "socketError", None) or failure.value
            reason = getattr(cause, "strerror", None) or str(cause)
            raise ListenError(f"{self.path}: {self.endpoint.shown} cannot be opened: {reason}")

        waiting: Deferred[Any] = maybeDeferred(self._server.listen, self.factory)
        return waiting.addCallbacks(opened, failed)

    @property
    def address(self) -> str:
        """Where it listens: host and port as opened, or the endpoint as shown."""
        host = self._port.getHost() if self._port is not None else None
        port = getattr(host, "port", None)
        if port is None:
            return self.endpoint.shown
        shown = self.endpoint.shown.rpartition(":")[0]
        return f"{shown}:{port}"

    def stop_listening(self) -> Deferred[None]:
        """Take no more connections; the open ones stay."""
        port, self._port = self._port, None
        stopped: Deferred[Any] = succeed(None)
        if port is not None:
            stopped = maybeDeferred(port.stopListening)
        return stopped.addCallback(lambda _: None)


def accept_few(port: IListeningPort) -> None:
    """Have a port take so few connections in a turn as there are descriptors kept for.

    Those that make room for them are closed by then.
    """
    if not isinstance(port, tcp.Port):
        return
    read: Callable[[], object] = port.doRead

    def read_few() -> None:
        port.numberAccepts = min(port.numberAccepts, ACCEPTS_AT_ONCE)
        read()

    setattr(port, "doRead", read_few)  # noqa: B010


def description(endpoint: Endpoint) -> str:
    """Return the endpoint string for Twisted, with our backlog where none was written."""
    text = endpoint.string
    if endpoint.kind in ("tcp", "tcp6", "ssl", "tls") and ":backlog=" not in text:
        return f"{text}:backlog={BACKLOG}"
    return text
