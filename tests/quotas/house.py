"""Clients of both protocols at one broker in memory, each with a user and a remote, and time."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from gateway.model.principal import By, Principal
from gateway.model.quota import Quotas, QuotaTable
from gateway.quotas.broker import QuotaBroker
from gateway.quotas.meters import Meters
from tests.broker.core import Core
from tests.conformance.clients import Amqp, CoreBroker, Stomp


def table(name: str = "*", **limits: int) -> dict[str, QuotaTable]:
    """Return one table of a group."""
    return {
        name: QuotaTable(name=name, values=limits, origins=dict.fromkeys(limits, "gate.toml:7"))
    }


class As:
    """The broker as one connection of a user meets it."""

    def __init__(self, broker: QuotaBroker, principal: Principal) -> None:
        self._broker = broker
        self.principal = principal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def open_producer(self, *args: Any, **named: Any) -> Any:
        return self._broker.open_producer(*args, **{**named, "principal": self.principal})

    def open_relay(self, owner: Any, principal: Principal | None = None) -> Any:
        return self._broker.open_relay(owner, principal and self.principal)

    def subscribe(self, *args: Any, **named: Any) -> Any:
        return self._broker.subscribe(*args, **{**named, "principal": self.principal})


class Turns(CoreBroker):
    """A core whose broker is another one."""

    def __init__(self, core: Core, broker: As) -> None:
        super().__init__(core)
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_broker"], name)


class _CoreAs:
    """A core as STOMP clients of the tests take it."""

    def __init__(self, core: Core, broker: As) -> None:
        self._core = core
        self.gateway = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)


class House:
    """A broker, its meters, and a clock that stands still until it is told."""

    def __init__(self, *entries: Any, **groups: dict[str, QuotaTable]) -> None:
        self.core = Core(*entries)
        self.clock = Clock()
        self.meters = Meters(self.clock.seconds, self.clock.callLater)
        self.meters.use(Quotas(**groups))
        self._names = iter(range(1 << 30))

    def broker(
        self, user: str | None, remote: str, roles: frozenset[str] = frozenset(), *, senders: bool
    ) -> As:
        by = By.NOTHING if user is None else By.PASSWORD
        broker = QuotaBroker(
            self.core.gateway, self.meters, remote, f"c{next(self._names)}", counts_senders=senders
        )
        return As(broker, Principal(user, by=by, roles=roles))

    def amqp(self, user: str | None = "ann", remote: str = "10.0.0.1", **options: Any) -> Amqp:
        broker = self.broker(user, remote, senders=True)
        peer = Amqp.begun(broker=Turns(self.core, broker), **options)
        assert isinstance(peer, Amqp)
        return peer

    def stomp(self, user: str | None = "ann", remote: str = "10.0.0.1", **options: Any) -> Stomp:
        return Stomp(_CoreAs(self.core, self.broker(user, remote, senders=False)), **options)

    def wait(self, seconds: float, *clients: Any, step: float = 0.01) -> list[Any]:
        """Let time go by, and the clients do what they do; returns what came, by client."""
        came: list[list[Any]] = [[] for _ in clients]
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.core.sync()
            for client, heard in zip(clients, came, strict=True):
                heard.extend(client.more())
        return came

    def count(self, queue: str) -> int:
        """Return how many messages wait in a queue."""
        queues = self.core.gateway.queues
        return queues[queue].message_count if queue in queues else 0

    @property
    def nothing_held(self) -> bool:
        """Whether nothing is bound to any meter, and nobody waits."""
        self.clock.advance(3600)
        self.meters.look()
        self.clock.advance(3600)
        self.meters.look()
        return not (self.meters.meters or self.meters.uses or self.clock.getDelayedCalls())
