"""Dead letters and expired messages: a copy, told where it comes from, goes to another address.

Copy and removal are in one journal batch. A copy has no expiry and no delivery count. Where there
is nowhere to go, the message is lost, and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.model import stomp_form
from gateway.model.address import RoutingType
from gateway.model.amqp_types import DecodeError, Value
from gateway.model.errors import RefusedError
from gateway.model.message import DURABLE, EXPIRES, PRIORITY_MASK, STOMP, TEXT, Message
from gateway.model.sections import with_annotations, without_expiry
from gateway.queues.queue import Gone, Queue

if TYPE_CHECKING:
    from gateway.broker.gateway import Gateway

_KEPT = PRIORITY_MASK | DURABLE | STOMP | TEXT


class Mover:
    """Moves what died or expired."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._moving = False

    def move(self, queue: Queue, messages: list[Message], why: Gone) -> None:
        """Send copies of messages that just left `queue` to its dead-letter or expiry address."""
        gateway = self._gateway
        settings = gateway.settings.for_address(queue.address)
        target = settings.dead_letter_address if why is Gone.KILLED else settings.expiry_address
        if not target or target == queue.address:
            gateway.figures.lost_dead_letters += len(messages)
            return
        try:
            route = gateway.internal_route(target)
        except RefusedError:
            gateway.figures.lost_dead_letters += len(messages)
            return
        gateway.store.begin_atomic()
        try:
            for message in messages:
                if not route.send_copy(self._copy(queue, message), message.flags & _KEPT):
                    gateway.figures.lost_dead_letters += 1
        finally:
            gateway.store.end_atomic()

    @staticmethod
    def _copy(queue: Queue, message: Message) -> bytes:
        expired_at = message.expires if message.flags & EXPIRES else 0
        if message.flags & STOMP:
            facts = [
                ("_AMQ_ORIG_ADDRESS", queue.address),
                ("_AMQ_ORIG_QUEUE", queue.name),
                ("_AMQ_ORIG_MESSAGE_ID", str(message.seq)),
                ("_AMQ_ORIG_ROUTING_TYPE", "0" if queue.routing is RoutingType.MULTICAST else "1"),
            ]
            if expired_at:
                facts.append(("_AMQ_ACTUAL_EXPIRY", str(expired_at)))
            return stomp_form.with_headers(message.body, facts)
        origin: dict[str, Value] = {
            "x-opt-ORIG-ADDRESS": queue.address,
            "x-opt-ORIG-QUEUE": queue.name,
            "x-opt-ORIG-MESSAGE-ID": message.seq,
        }
        if expired_at:
            origin["x-opt-ACTUAL-EXPIRY"] = expired_at
        try:
            return with_annotations(without_expiry(message.body), origin)
        except DecodeError:
            # A body whose sections cannot be read was accepted as opaque bytes; it moves as it is.
            return message.body
