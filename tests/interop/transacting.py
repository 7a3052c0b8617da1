"""A blocking Proton connection with transactions, in the steps that Proton's own class takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from cproton import pn_data_clear, pn_disposition_data
from proton import Delivery, Described, Message, Terminus, symbol, ulong
from proton._utils import Fetcher
from proton.reactor import SenderOption
from proton.utils import BlockingConnection, BlockingReceiver

from gateway.trial.scratch import ScratchGateway
from tests.interop.support import connected

TRANSACTIONAL = 0x34
ACCEPTED = 0x24
DECLARED = 0x33


class _ToCoordinator(SenderOption):
    def apply(self, sender: Any) -> None:
        sender.target.type = Terminus.COORDINATOR
        sender.target.capabilities.put_object(symbol("amqp:local-transactions"))


class Transacting:
    """A connection with a coordinator link."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.connection = connection
        self._numbers = count()
        self.control = connection.create_sender(None, name="txn-ctrl", options=_ToCoordinator())

    def _ask(self, kind: str, *fields: Any) -> Delivery:
        body = Described(symbol(f"amqp:{kind}:list"), list(fields))
        return self.control.send(Message(body=body), error_states=[])

    def declare(self) -> bytes:
        """Return the id of a new transaction."""
        delivery = self._ask("declare", None)
        assert delivery.remote_state == DECLARED
        (name,) = delivery.remote.data
        return bytes(name)

    def discharge(self, name: bytes, *, fail: bool = False) -> str:
        """Return "" when it was accepted, else condition and description of the refusal."""
        delivery = self._ask("discharge", name, fail)
        if delivery.remote_state == Delivery.ACCEPTED:
            return ""
        assert delivery.remote_state == Delivery.REJECTED
        condition = delivery.remote.condition
        return f"{condition.name}: {condition.description}"

    def post(self, name: bytes, sender: Any, *bodies: Any, settled: bool = False) -> list[Any]:
        """Send in a transaction; returns the provisional outcomes of what is not sent settled."""
        deliveries = []
        for body in bodies:
            delivery = sender.link.send(
                body if isinstance(body, Message) else Message(body=body, durable=True)
            )
            delivery.local.data = [name]
            delivery.update(TRANSACTIONAL)
            if settled:
                delivery.settle()
            else:
                deliveries.append(delivery)
        self._until(lambda: all(d.settled for d in deliveries), "posting")
        outcomes = []
        for delivery in deliveries:
            assert delivery.remote_state == TRANSACTIONAL
            told, outcome = delivery.remote.data
            assert bytes(told) == name
            outcomes.append(outcome.descriptor)
            delivery.settle()
        return outcomes

    def retire(
        self, name: bytes, deliveries: list[Delivery], *, settled: bool, outcome: int = ACCEPTED
    ) -> None:
        """Give received deliveries an outcome in a transaction."""
        for delivery in deliveries:
            # Proton appends to what an earlier state had, and sends what nobody can read.
            pn_data_clear(pn_disposition_data(delivery.local._impl))
            delivery.local.data = [name, Described(ulong(outcome), [])]
            delivery.update(TRANSACTIONAL)
            if settled:
                delivery.settle()

    def receiver(self, address: str, credit: int) -> BlockingReceiver:
        """Return a receiver with exactly this credit, on a session of its own."""
        session = self.connection.conn.session()
        session.open()
        fetcher = Fetcher(self.connection, 0)
        container = self.connection.container
        name = f"receiver-{next(self._numbers)}"
        link = container.create_receiver(session, address, name=name, handler=fetcher)
        return BlockingReceiver(self.connection, link, fetcher, credit=credit)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        self.connection.wait(condition, msg=what)


def take(receiver: Any, amount: int) -> tuple[list[Any], list[Delivery]]:
    """Receive so many; returns their bodies and their deliveries, which nobody has settled."""
    incoming = receiver.fetcher.incoming
    # Not `receive`: that gives one credit more for each message that is here already.
    receiver.connection.wait(lambda: len(incoming) >= amount, msg="receiving")
    bodies = [receiver.fetcher.pop().body for _ in range(amount)]
    unsettled = receiver.fetcher.unsettled
    return bodies, [unsettled.popleft() for _ in range(amount)]


@contextmanager
def transacting(gateway: ScratchGateway) -> Iterator[Transacting]:
    with connected(gateway) as connection:
        yield Transacting(connection)
