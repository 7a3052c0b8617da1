"""Dead letters and expired messages: a copy, told where it comes from, goes to another address.

Copy and removal are in one journal batch. A copy has no expiry and no delivery count. Where there
is nowhere to go, the message is lost, and counted.

What was moved before keeps its first origin. A retry sends it back there, and takes the origin off;
what cannot go back stays.
"""

from __future__ import annotations

from gateway.addresses.settings import AddressSettings
from gateway.broker.directory.directory import Directory
from gateway.broker.directory.origin import origin_of, without_origin
from gateway.broker.pressure.figures import Figures
from gateway.broker.routing.route import Route
from gateway.broker.routing.routing import Routing
from gateway.model import stomp_form
from gateway.model.address import RoutingType, is_internal
from gateway.model.amqp_types import DecodeError, Value
from gateway.model.errors import RefusedError
from gateway.model.message import DURABLE, EXPIRES, GROUPED, PRIORITY_MASK, STOMP, TEXT, Message
from gateway.model.run import Run
from gateway.model.sections import with_annotations, without_expiry
from gateway.queues.queue import Gone, Queue

_KEPT = PRIORITY_MASK | DURABLE | STOMP | TEXT | GROUPED


def _unrouted_copy(body: bytes, flags: int, address: str) -> bytes:
    """Return a message that was in no queue, told where it was sent to."""
    if flags & STOMP:
        return stomp_form.with_headers(body, [("_AMQ_ORIG_ADDRESS", address)])
    try:
        return with_annotations(without_expiry(body), {"x-opt-ORIG-ADDRESS": address})
    except DecodeError:
        return body


class Mover:
    """Moves what died or expired."""

    __slots__ = ("_directory", "_figures", "_moving", "_routing", "_store")

    def __init__(self, directory: Directory, routing: Routing, figures: Figures) -> None:
        self._directory = directory
        self._store = directory.store
        self._routing = routing
        self._figures = figures
        self._moving = False

    def move(self, queue: Queue, messages: list[Message], why: Gone) -> None:
        """Send copies of messages that just left `queue` to its dead-letter or expiry address."""
        if is_internal(queue.address):
            return  # copies, of which nobody expects to hear
        settings = self._directory.settings.for_address(queue.address)
        target = settings.dead_letter_address if why is Gone.KILLED else settings.expiry_address
        if not target or target == queue.address:
            self._figures.lost_dead_letters += len(messages)
            return
        try:
            self._make_queue(queue.address, target, settings, why)
            route = self._routing.internal(target)
        except RefusedError:
            self._figures.lost_dead_letters += len(messages)
            return
        self._store.begin_atomic()
        try:
            for message in messages:
                if not route.send_copy(self._copy(queue, message), message.flags & _KEPT):
                    self._figures.lost_dead_letters += 1
        finally:
            self._store.end_atomic()

    def unrouted(self, address: str, run: Run) -> int:
        """Send copies of what no queue of an address wants to its dead-letter address."""
        settings = self._directory.settings.for_address(address)
        target = settings.dead_letter_address
        # A dead letter that a divert takes where nobody wants it is none again, or there is no end.
        if not target or target == address or self._moving:
            self._figures.lost_dead_letters += run.count
            return 0
        ticket, flags = 0, run.flags
        self._store.begin_atomic()
        self._moving = True
        try:
            self._make_queue(address, target, settings, Gone.KILLED)
            route = self._routing.internal(target)
            for body in run.bodies:
                if not route.send_copy(_unrouted_copy(body, flags, address), flags & _KEPT):
                    self._figures.lost_dead_letters += 1
                elif flags & DURABLE:
                    ticket = self._store.ticket  # an atomic part is one batch
        except RefusedError:
            self._figures.lost_dead_letters += run.count
        finally:
            self._moving = False
            self._store.end_atomic()
        return ticket

    def _make_queue(self, address: str, target: str, settings: AddressSettings, why: Gone) -> None:
        """Make the queue for what comes from one address, where settings say so.

        Raises RefusedError.
        """
        if why is Gone.KILLED:
            wanted = settings.auto_create_dead_letter_resources
            ends = settings.dead_letter_queue_prefix, settings.dead_letter_queue_suffix
        else:
            wanted = settings.auto_create_expiry_resources
            ends = settings.expiry_queue_prefix, settings.expiry_queue_suffix
        name = address.join(ends)
        if wanted and name not in self._directory.queues:
            self._directory.make_letter_queue(name, target, address)

    def retry(self, queue: Queue, messages: list[Message]) -> list[Message]:
        """Send copies back to where messages were first; returns those that are there again."""
        routes: dict[tuple[str, str], Route | None] = {}
        back: list[Message] = []
        self._store.begin_atomic()
        try:
            for message in messages:
                origin = self._origin(message)
                if origin is None or origin[1] == queue.name:
                    continue
                if origin not in routes:
                    routes[origin] = self._way_back(*origin)
                route = routes[origin]
                if route is not None and route.send_copy(
                    without_origin(message), message.flags & _KEPT
                ):
                    back.append(message)
            queue.take_out({m.seq for m in back}, Gone.ACKNOWLEDGED)
        finally:
            self._store.end_atomic()
        return back

    def _way_back(self, address: str, queue: str) -> Route | None:
        try:
            return self._routing.internal(address, queue)
        except RefusedError:
            return None

    def _origin(self, message: Message) -> tuple[str, str] | None:
        """Return where it was first; a divert is no place to go back to."""
        origin = origin_of(message)
        return None if origin and self._routing.shared.branches.is_origin(*origin) else origin

    def _copy(self, queue: Queue, message: Message) -> bytes:
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
            if self._origin(message) is not None:
                facts = facts[4:]
            return stomp_form.with_expires(stomp_form.with_headers(message.body, facts), 0)
        origin: dict[str, Value] = {
            "x-opt-ORIG-ADDRESS": queue.address,
            "x-opt-ORIG-QUEUE": queue.name,
            "x-opt-ORIG-MESSAGE-ID": message.seq,
        }
        if expired_at:
            origin["x-opt-ACTUAL-EXPIRY"] = expired_at
        if self._origin(message) is not None:
            origin = {k: v for k, v in origin.items() if k == "x-opt-ACTUAL-EXPIRY"}
        try:
            return with_annotations(without_expiry(message.body), origin)
        except DecodeError:
            # A body whose sections cannot be read was accepted as opaque bytes; it moves as it is.
            return message.body
