"""Waiting for the journal, as a Deferred."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred, succeed

from gateway.broker import Gateway
from gateway.model.errors import Refusal, RefusedError


class _Waiter:
    """A DurableListener for one ticket; asks again while an earlier batch is reported."""

    __slots__ = ("_gateway", "_ticket", "done")

    def __init__(self, gateway: Gateway, ticket: int) -> None:
        self._gateway = gateway
        self._ticket = ticket
        self.done: Deferred[None] = Deferred()

    def durable_up_to(self, ticket: int) -> None:
        if ticket >= self._ticket:
            self.done.callback(None)
        else:
            self._gateway.await_durable(self)

    def consumed(self, tickets: Sequence[int]) -> None:
        """What it waits for is more than messages."""

    def store_failed(self, refusal: Refusal) -> None:
        self.done.errback(RefusedError(refusal))


def when_durable(gateway: Gateway, ticket: int) -> Deferred[None]:
    """Return a Deferred that fires once all up to `ticket` is on disk (0: at once).

    Fails with RefusedError (store-failed) when the disk refuses.
    """
    if ticket == 0:
        return succeed(None)
    waiter = _Waiter(gateway, ticket)
    gateway.await_durable(waiter)
    gateway.turn.need_end()
    return waiter.done
