"""Proton's engine as a server in memory: it judges the bench's frames and answers them."""

from __future__ import annotations

from proton import SASL, Collector, Connection, Delivery, Endpoint, Event, Link, Transport


class ProtonPeer:
    """Opens what the other side opens, keeps what arrives, sends what it is told to."""

    def __init__(self, *, credit: int = 1000) -> None:
        self.transport = Transport(Transport.SERVER)
        self.connection = Connection()
        self.collector = Collector()
        self.connection.collect(self.collector)
        sasl = self.transport.sasl()
        sasl.allowed_mechs("ANONYMOUS")
        sasl.done(SASL.OK)
        self.transport.bind(self.connection)
        self.credit = credit
        self.received: list[bytes] = []
        self.settled: list[Delivery] = []
        self.link: Link | None = None
        self.address = ""
        self.closed = False
        self.accept = True

    def push(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            room = self.transport.capacity()
            self.transport.push(bytes(view[:room]))
            view = view[room:]
            self._turn()

    def pull(self) -> bytes:
        self._turn()
        parts = []
        while (pending := self.transport.pending()) > 0:
            parts.append(self.transport.peek(pending))
            self.transport.pop(pending)
        return b"".join(parts)

    def send(self, bodies: list[bytes]) -> None:
        assert self.link is not None
        for number, body in enumerate(bodies):
            self.link.delivery(b"%d" % number)
            self.link.send(body)
            self.link.advance()

    def _turn(self) -> None:
        while (event := self.collector.peek()) is not None:
            self._event(event)
            self.collector.pop()

    def _event(self, event: Event) -> None:
        kind = event.type
        if kind in (Event.CONNECTION_REMOTE_OPEN, Event.SESSION_REMOTE_OPEN):
            (event.session or event.connection).open()
        elif kind == Event.LINK_REMOTE_OPEN:
            self.link = event.link
            self.link.source.copy(self.link.remote_source)
            self.link.target.copy(self.link.remote_target)
            ends = self.link.remote_source if self.link.is_sender else self.link.remote_target
            self.address = ends.address
            self.link.open()
            if self.link.is_receiver:
                self.link.flow(self.credit)
        elif kind == Event.DELIVERY:
            self._delivery(event.delivery)
        elif kind == Event.CONNECTION_REMOTE_CLOSE:
            self.closed = True
            event.connection.close()

    def _delivery(self, delivery: Delivery) -> None:
        link = delivery.link
        if link.is_sender:
            if delivery.settled:
                self.settled.append(delivery)
                assert delivery.remote_state == Delivery.ACCEPTED
                delivery.settle()
            return
        if delivery.readable and not delivery.partial:
            self.received.append(bytes(link.recv(delivery.pending)))
            link.advance()
            if not delivery.settled:
                delivery.update(Delivery.ACCEPTED if self.accept else Delivery.REJECTED)
            delivery.settle()
            if link.credit < self.credit // 2 and link.state & Endpoint.LOCAL_ACTIVE:
                link.flow(self.credit - link.credit)
