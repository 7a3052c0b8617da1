"""An AMQP client of the simulation: Proton's engine, in memory, as sender, receiver and controller.

Proton judges what comes by its own reading of the specification: a frame that it cannot take is a
violation. Messages are encoded here, so that no library sees both ends of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from cproton import pn_data_clear, pn_disposition_data
from proton import (
    Collector,
    Connection,
    Delivery,
    Described,
    Event,
    Message,
    Terminus,
    Transport,
    symbol,
    ulong,
)

from tests.simulation.model import ViolationError
from tests.simulation.wire.client import Client, Subscription
from tests.simulation.wire.client import Delivery as Held
from tests.simulation.wire.ledger import FAILED, OK, Part, Send

if TYPE_CHECKING:
    from tests.simulation.wire.world import WireWorld

TRANSACTIONAL = 0x34
ACCEPTED = 0x24
DECLARED = 0x33
_FRAMES = (512, 1024, 65536)
_STATES = {
    "ack": Delivery.ACCEPTED,
    "reject": Delivery.REJECTED,
    "release": Delivery.RELEASED,
    "nack": Delivery.MODIFIED,
}


class Receiver(Subscription):
    """`second`: the gateway confirms what it did with an outcome."""

    def __init__(self, client: Client, queue: str, link: Any, *, settled: bool) -> None:
        super().__init__(client, queue, automatic=settled)
        self.link = link
        self.second = False


class AmqpClient(Client):
    """See the module text."""

    protocol = "amqp"

    def __init__(self, world: WireWorld, number: int) -> None:
        super().__init__(world, number)
        self._connection = Connection()
        self._collector = Collector()
        self._connection.collect(self._collector)
        self._connection.container = f"client-{number}"
        self._transport = Transport(Transport.CLIENT)
        self._transport.max_frame_size = self.chance.choice(_FRAMES)
        if self.chance.random() < 0.5:
            self._transport.idle_timeout = 8.0
        if world.wire.users or self.chance.random() < 0.5:
            self._transport.sasl().allowed_mechs("ANONYMOUS")
        self._transport.bind(self._connection)
        self._connection.open()
        self._session = self._connection.session()
        self._session.open()
        self._senders: dict[str, Any] = {}
        self._names: dict[Part, bytes] = {}
        self._control: Any = None
        self._unfinished: dict[str, bytes] = {}
        self._later: dict[str, list[Send]] = {}
        self._tags = 0
        self._roles: dict[str, Any] = {}  # by link: a receiver, or the name of a sender
        self._commands: list[tuple[bytes, Any]] = []

    # ---- bytes

    def pump(self) -> None:
        up, transport = self.line.up, self._transport
        if self.line.client_gone or up.ended:
            return
        while (room := up.room) > 0 and (pending := transport.pending()) > 0:
            data = transport.peek(min(room, pending))
            up.data += data
            transport.pop(len(data))
        if transport.pending() < 0:
            up.ended = True

    def receive(self, data: bytes) -> None:
        transport = self._transport
        while data:
            capacity = transport.capacity()
            if capacity < 0:
                break
            taken = min(len(data), capacity)
            transport.push(data[:taken])
            data = data[taken:]
            self._events()
        self._events()
        self.pump()

    def beat(self) -> None:
        if not self.over and not self.line.client_gone:
            self._transport.tick(self.world.clocks.reactor.rightNow + 1)
            self._events()
            self.pump()

    def closed(self) -> None:
        if not self.over:
            super().closed()
            self._collector.release()

    # ---- what comes

    def _events(self) -> None:
        while (event := self._collector.peek()) is not None:
            kind = event.type
            if kind is Event.CONNECTION_REMOTE_OPEN:
                self.up = True
            elif kind is Event.DELIVERY:
                self._delivery(event.delivery)
            elif kind is Event.LINK_FLOW and event.link.is_sender:
                self._send_waiting(event.link.name)
            elif kind in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
                self._detached(event.link)
            elif kind is Event.CONNECTION_REMOTE_CLOSE:
                self._closing(event.connection)
            elif kind is Event.SESSION_REMOTE_CLOSE and not self.leaving:
                raise ViolationError(f"session ended: {event.session.remote_condition}")
            elif kind is Event.TRANSPORT_ERROR:
                self._broken(event.transport)
            self._collector.pop()

    def _closing(self, connection: Any) -> None:
        condition = connection.remote_condition
        self.log(f"close {condition}")
        if condition is not None:
            self.world.refused(self, f"{condition.name} {condition.description}")
        self.up = False
        self._connection.close()

    def _broken(self, transport: Any) -> None:
        condition = transport.condition
        text = f"{condition.name} {condition.description}"
        self.log(text)
        if "local-idle-timeout" not in text:
            raise ViolationError(f"Proton cannot take what came: {text}")
        self.leaving = True  # it closes the connection, as its own choice
        self.world.figures["gateway too quiet for the network"] += 1

    def _detached(self, link: Any) -> None:
        condition = link.remote_condition
        if condition is None:
            return
        self.log(f"detached {link.name}: {condition.name} {condition.description}")
        self.world.figures["links refused"] += 1
        role = self._roles.get(link.name)
        if isinstance(role, Receiver):
            self.drop(role, seen=False)
        elif isinstance(role, str):
            self._senders.pop(role, None)
            self._unfinished.pop(role, None)
            for send in self._later.pop(role, []):
                self.ledger.answer(send, FAILED)
        self.world.refused(self, f"{condition.name} {condition.description}")
        link.close()

    def _delivery(self, delivery: Any) -> None:
        link = delivery.link
        if link.is_receiver:
            self._incoming(link, delivery)
        elif delivery.updated and delivery.remote_state:
            delivery.told(delivery)
            delivery.settle()

    def _incoming(self, link: Any, delivery: Any) -> None:
        found: Receiver = self._roles[link.name]
        if link.credit - link.queued < 0:
            raise ViolationError(f"{link.name} got more than its credit: {link.credit}")
        if delivery.readable and not delivery.partial:
            self._read(found, link, delivery)
        elif delivery.settled and delivery.updated and found.open:
            self._settled(delivery)

    def _read(self, found: Receiver, link: Any, delivery: Any) -> None:
        data = link.recv(delivery.pending)
        settled = delivery.settled
        if settled is not found.automatic:
            raise ViolationError(f"{link.name}: settled is {settled}")
        link.advance()
        delivery.asked = None
        if found.open:
            message = Message()
            message.decode(data)
            marked = message.delivery_count > 0
            facts = {**(message.annotations or {}), **(message.properties or {})}
            origin = str(facts.get("x-opt-ORIG-QUEUE", facts.get("_AMQ_ORIG_QUEUE", "")))
            first = message.first_acquirer
            self.got(
                found, bytes(message.body), delivery, marked=marked, first=first, origin=origin
            )
        if settled or not found.open:
            delivery.settle()

    def _settled(self, delivery: Any) -> None:
        asked = getattr(delivery, "asked", None)
        if asked is None:
            return
        how, copy = asked
        delivery.asked = None
        if delivery.remote_state and delivery.remote_state != delivery.local_state:
            raise ViolationError(f"asked {delivery.local_state}, {delivery.remote_state} told")
        self.ledger.confirm(copy, how)
        delivery.settle()

    # ---- sending

    @property
    def underway(self) -> bool:
        return bool(self._unfinished)

    def _sender(self, address: str) -> str:
        name = self.world.named(address, self.chance, stomp=False)
        if name not in self._senders:
            link = self._session.sender(f"out-{self.number}-{len(self._roles)}")
            link.target.address = name
            link.open()
            self._senders[name] = link
            self._roles[link.name] = name
            self._later[name] = []
        return name

    def send(self, address: str, payloads: list[bytes], part: Part | None = None) -> None:
        name = self._sender(address)
        link, waiting = self._senders[name], self._later[name]
        if part is not None:
            for payload in payloads:
                if waiting or name in self._unfinished or link.credit <= 0:
                    break  # what waits for credit could come behind the discharge
                send = self.sending(address, payload, part, name)
                delivery = self._next(link, self._posted)
                delivery.local.data = [self._names[part]]
                delivery.update(TRANSACTIONAL)
                link.send(encoded(send))
                link.advance()
            self.pump()
            return
        for payload in payloads:
            send = self.sending(address, payload, None, name)
            self.asked_with.append(send)
            waiting.append(send)
        self._send_waiting(link.name)

    def _next(self, link: Any, told: Any) -> Any:
        self._tags += 1
        delivery = link.delivery(f"{self._tags}")
        delivery.told = told
        return delivery

    def _send_waiting(self, link_name: str) -> None:
        """Send what credit allows; now and then only half of a message."""
        name = self._roles.get(link_name)
        if not isinstance(name, str) or name not in self._senders:
            self._send_commands()
            return
        link, waiting = self._senders[name], self._later[name]
        if name in self._unfinished:
            link.send(self._unfinished.pop(name))
            link.advance()
        while waiting and link.credit > 0 and name not in self._unfinished:
            send = waiting.pop(0)
            body = encoded(send)
            self._next(link, partial(self._answered, send))
            if self.chance.random() < self.world.wire.halves:
                at = self.chance.randint(1, len(body) - 1)
                link.send(body[:at])
                self._unfinished[name] = body[at:]
            else:
                link.send(body)
                link.advance()
        self.pump()

    def _answered(self, send: Send, delivery: Any) -> None:
        accepted = delivery.remote_state == Delivery.ACCEPTED
        self.log(f"{'accepted' if accepted else delivery.remote_state} {send.serial}")
        self.ledger.answer(send, OK if accepted else FAILED)

    def _posted(self, delivery: Any) -> None:
        if delivery.remote_state != TRANSACTIONAL:
            self.log(f"not taken into the transaction: {delivery.remote_state}")

    # ---- taking

    def subscribe(self, queue: str) -> None:
        link = self._session.receiver(f"in-{self.number}-{len(self._roles)}")
        link.source.address = self.world.fqqn(queue)
        settled = self.chance.random() < 0.15
        second = self.chance.random() < 0.4
        link.snd_settle_mode = link.SND_SETTLED if settled else link.SND_UNSETTLED
        link.rcv_settle_mode = link.RCV_SECOND if second else link.RCV_FIRST
        found = Receiver(self, queue, link, settled=settled)
        found.second = second
        if settled:
            self.ledger.automatic.add(queue)
        self._roles[link.name] = found
        self.subscriptions.append(found)
        link.open()
        link.flow(self.chance.choice([1, 2, 10, 100]))
        self.pump()

    def demand(self) -> None:
        for found in self.subscriptions:
            assert isinstance(found, Receiver)
            if found.open and found.link.credit < 50:
                found.link.flow(self.chance.choice([1, 5, 100]))
        self.pump()

    def settle(self, deliveries: list[Held], how: str, part: Part | None = None) -> None:
        self.log(f"{how} {[d.copy.send.serial for d in deliveries]}{' in a part' if part else ''}")
        for one in deliveries:
            found, delivery = one.subscription, one.handle
            assert isinstance(found, Receiver)
            assert isinstance(delivery, Delivery)
            if part is not None:
                one.part = part
                part.settles.append((one.copy, one.returns))
                pn_data_clear(pn_disposition_data(delivery.local._impl))
                delivery.local.data = [self._names[part], Described(ulong(ACCEPTED), [])]
                delivery.update(TRANSACTIONAL)
                delivery.settle()
                continue
            found.held.remove(one)
            if how == "nack":
                delivery.local.failed = True
            delivery.update(_STATES[how])
            self.ledger.settle(one.copy, how)
            if found.second:
                handle: Any = delivery
                handle.asked = how, one.copy
            else:
                delivery.settle()
        self.pump()

    def unsubscribe(self, subscription: Subscription) -> None:
        if self.parts or self.ending:
            return
        assert isinstance(subscription, Receiver)
        self.log(f"leaves {subscription.queue}")
        self.drop(subscription, seen=False)
        subscription.link.close()
        self.pump()

    # ---- transactions

    def begin(self) -> None:
        if self._control is None:
            self._control = self._session.sender(f"control-{self.number}")
            self._control.target.type = Terminus.COORDINATOR
            self._control.target.capabilities.put_object(symbol("amqp:local-transactions"))
            self._control.open()
        part = Part()
        self.ledger.parts.append(part)
        self._command("declare", [None], partial(self._declared, part))

    def _command(self, kind: str, fields: list[Any], told: Any) -> None:
        body = Message(body=Described(symbol(f"amqp:{kind}:list"), fields)).encode()
        self._commands.append((body, told))
        self._send_commands()

    def _send_commands(self) -> None:
        link = self._control
        while self._commands and link.credit > 0:
            body, told = self._commands.pop(0)
            self._next(link, told)
            link.send(body)
            link.advance()
        self.pump()

    def _declared(self, part: Part, delivery: Any) -> None:
        if delivery.remote_state == DECLARED:
            self._names[part] = bytes(delivery.remote.data[0])
            self.parts.append(part)

    def end(self, part: Part, *, commit: bool) -> None:
        self.parts.remove(part)
        self.log("commit" if commit else "roll back")
        name = self._names.pop(part)
        if commit:
            part.commit()
            self.ending.append(part)
        else:
            self.ledger.end_part(part, FAILED)
            self.give_back(part)
        told = partial(self._discharged, part, commit)
        self._command("discharge", [name, not commit], told)

    def _discharged(self, part: Part, commit: bool, delivery: Any) -> None:
        if not commit:
            return
        done = delivery.remote_state == Delivery.ACCEPTED
        self.ending.remove(part)
        if not done:
            self.give_back(part)
        self.forget(part)
        self.ledger.end_part(part, OK if done else FAILED)
        self.world.figures[f"amqp commits {'ok' if done else 'failed'}"] += 1

    # ---- the end

    def leave(self) -> None:
        self.log("says good-bye")
        self.leaving = True
        self._connection.close()
        self.pump()


def encoded(send: Send) -> bytes:
    """Return a message's sections."""
    durable = b"\x41" if send.durable else b"\x42"
    # That nobody had it before is said by the sender: else a second delivery says the same.
    out = b"\x00\x53\x70\xc0\x05\x04" + durable + b"\x40\x40\x41"
    if send.due:
        pair = b"\xa3\x13x-opt-delivery-time\x83" + send.due.to_bytes(8, "big")
        out += b"\x00\x53\x72\xc1" + bytes([len(pair) + 1]) + b"\x02" + pair
    if send.expires:
        fields = b"\x40" * 8 + b"\x83" + send.expires.to_bytes(8, "big")
        out += b"\x00\x53\x73\xc0" + bytes([len(fields) + 1]) + b"\x09" + fields
    size = len(send.payload)
    if size < 256:
        return out + b"\x00\x53\x75\xa0" + bytes([size]) + send.payload
    return out + b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + send.payload
