"""A peer that controls transactions: it has a coordinator link, and says what belongs to which."""

from __future__ import annotations

from typing import Any

from protocols.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Composite,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Modified,
    Rejected,
    TransactionalState,
    encode_performative,
)
from tests.protocols.amqp.peer import RECEIVER, Frame, Peer, data_message, of

#: The handle of the coordinator link that tests use.
CONTROL = 9


def asked(command: Composite) -> bytes:
    """Return the message that asks a coordinator for something."""
    return b"\x00\x53\x77" + encode_performative(command)


def shown(state: Any) -> str:
    """Return an outcome as a word: `rejected CONDITION` with its cause."""
    match state:
        case Accepted():
            return "accepted"
        case Declared():
            return "declared"
        case Rejected(error=error):
            return "rejected" if error is None else f"rejected {error.condition}"
        case Modified():
            return "modified"
        case TransactionalState(outcome=outcome):
            return f"in transaction {shown(outcome)}"
        case _ if state == RELEASED:
            return "released"
    return repr(state)


def told(came: list[Frame]) -> list[str]:
    """Return what dispositions say, `receiver:`/`sender:`, ids and state."""
    return [
        f"{'receiver' if d.role is RECEIVER else 'sender'}: {d.first}"
        f"{'' if d.last in (None, d.first) else f'-{d.last}'} {shown(d.state)}"
        for d in of(came, Disposition)
    ]


class Controlling:
    """What such a peer does; `peer` has a coordinator link on handle 9 of channel 0."""

    def __init__(self, peer: Peer, **fields: Any) -> None:
        self.peer = peer
        self.attached = self.control(**fields)

    def control(self, handle: int = CONTROL, channel: int = 0, **fields: Any) -> list[Frame]:
        fields.setdefault("target", Coordinator(capabilities=("amqp:local-transactions",)))
        return self.peer.sender(handle, channel=channel, **fields)

    def ask(self, command: Composite, handle: int = CONTROL, **fields: Any) -> list[Frame]:
        return self.peer.say(self.peer.transfer(asked(command), handle, **fields))

    def declare(self, handle: int = CONTROL, **fields: Any) -> bytes:
        (answer,) = of(self.ask(Declare(), handle, **fields), Disposition)
        assert isinstance(answer.state, Declared), answer
        assert answer.settled
        return answer.state.txn_id

    def discharge(self, name: bytes, *, fail: bool = False, **fields: Any) -> list[Frame]:
        return self.ask(Discharge(txn_id=name, fail=fail), **fields)

    def post(self, name: bytes, *bodies: bytes, **fields: Any) -> list[Frame]:
        fields.setdefault("state", TransactionalState(txn_id=name))
        durable = fields.pop("durable", False)
        transfers = [
            self.peer.transfer(data_message(body, durable=durable), **fields) for body in bodies
        ]
        return self.peer.say(b"".join(transfers))

    def retire(
        self, name: bytes, first: int, last: int | None = None, **fields: Any
    ) -> list[Frame]:
        state = TransactionalState(txn_id=name, outcome=fields.pop("outcome", ACCEPTED))
        fields.setdefault("settled", True)
        channel = fields.pop("channel", 0)
        told = Disposition(role=RECEIVER, first=first, last=last, state=state, **fields)
        return self.peer.tell(told, channel)
