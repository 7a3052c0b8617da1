"""What each command of an open connection does, one method a command, on the broker port.

A method raises RefusedError when the command is refused; then nothing has happened. Confirmations
go to the outbox with the ticket that they wait for. SENDs outside of transactions are `traffic`'s;
it knows nothing of states, of bytes, or of what a refusal does to the connection.
"""

from __future__ import annotations

from typing import Final

from gateway.model.errors import Code, RefusedError
from gateway.model.ports import Broker
from protocols.stomp import frame
from protocols.stomp.destinations import required
from protocols.stomp.frame import Head
from protocols.stomp.heads import shown
from protocols.stomp.message_frames import Convert
from protocols.stomp.sending import Route
from protocols.stomp.subscription import Host
from protocols.stomp.subscriptions import Subscriptions
from protocols.stomp.transactions import Transactions
from protocols.stomp.versions import Version

_REQUEUE_WORDS: Final = {"true": False, "false": True}


class Commands:
    """The cold commands of one connection.

    Attributes:
        version: as agreed.
        client_id: of CONNECT, None when it gave none.
    """

    __slots__ = (
        "_host",
        "_outbox",
        "client_id",
        "subscriptions",
        "transactions",
        "version",
    )

    def __init__(self, broker: Broker, host: Host, convert: Convert, name: str) -> None:
        self.version = Version.V1_0
        self.client_id: str | None = None
        self._host = host  # for its time
        self.subscriptions = Subscriptions(broker, host, convert, name)
        self.transactions = Transactions(broker, host.limits)
        self._outbox = host.outbox

    def act(self, head: Head) -> int:
        """Do what `head` says and confirm it; returns the ticket. Raises RefusedError."""
        match head.command:
            case "ACK":
                ticket = self._ack(head)
            case "NACK":
                ticket = self._nack(head)
            case "SUBSCRIBE":
                self._subscribe(head)
                return 0
            case "UNSUBSCRIBE":
                self.subscriptions.unsubscribe(head.headers, self.version, self.client_id)
                ticket = 0
            case "BEGIN":
                name = required(head.headers, "transaction", "BEGIN")
                self.transactions.begin(name, self._host.now)
                ticket = 0
            case "COMMIT":
                ticket = self.transactions.commit(required(head.headers, "transaction", "COMMIT"))
                self._outbox.note(ticket)
            case _:
                self.transactions.abort(required(head.headers, "transaction", "ABORT"))
                ticket = 0
        self.confirm(ticket, head.receipt)
        return ticket

    def confirm(self, ticket: int, receipt: bytes | None) -> None:
        """Send the RECEIPT that was asked for, if one was, after `ticket`."""
        if receipt is not None:
            self._outbox.confirm(ticket, frame.receipts((receipt,)))

    def send_in(self, transaction: str, route: Route, stored: bytes) -> None:
        """Add a SEND to a transaction; raises RefusedError."""
        if route.sender.lost:
            self.transactions.check(transaction, self._host.now)
        else:
            self.transactions.send(transaction, route, stored, self._host.now)

    def reply_to(self, text: str) -> str:
        """Return the reply-to of a SEND as others answer to it; raises RefusedError."""
        return self.subscriptions.reply_to(text, self.version)

    def leave(self) -> None:
        """The connection ends: nothing in transactions happens, deliveries go back."""
        self.transactions.abort_all()
        self.subscriptions.leave_all()

    def _subscribe(self, head: Head) -> None:
        consumer = self.subscriptions.subscribe(head.headers, self.version, self.client_id)
        if head.receipt is None:
            consumer.start()
        else:
            # The RECEIPT comes before the first MESSAGE, also when it waits for earlier SENDs.
            receipt = frame.receipts((head.receipt,))
            self._outbox.confirm(0, receipt, consumer.start)

    def _ack(self, head: Head) -> int:
        transaction = self._transaction_of(head)
        consumer, messages = self.subscriptions.named(head.headers, "ACK", self.version)
        ticket = 0
        if transaction is None:
            ticket = consumer.subscription.acknowledge(messages)
        else:
            self.transactions.acknowledge(transaction, consumer, messages, self._host.now)
        consumer.again()
        return ticket

    def _nack(self, head: Head) -> int:
        dead = _goes_to_dead_letters(head)
        transaction = self._transaction_of(head)
        consumer, messages = self.subscriptions.named(head.headers, "NACK", self.version)
        ticket = 0
        if transaction is not None:
            self.transactions.reject(transaction, consumer, messages, now=self._host.now, dead=dead)
        elif dead:
            ticket = consumer.subscription.reject(messages)
        else:
            ticket = consumer.subscription.release(messages, failed=True, delayed=True)
        consumer.again()
        return ticket

    def _transaction_of(self, head: Head) -> str | None:
        """Return the transaction of an ACK or NACK, which takes it; raises RefusedError."""
        transaction = head.headers.get("transaction")
        if transaction is not None:
            self.transactions.check(transaction, self._host.now)
        return transaction


def _goes_to_dead_letters(head: Head) -> bool:
    text = head.headers.get("requeue", "true")
    dead = _REQUEUE_WORDS.get(text.lower())
    if dead is None:
        raise RefusedError.of(Code.BAD_VALUE, f"requeue '{shown(text)}' is neither true nor false.")
    return dead
