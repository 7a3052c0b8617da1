"""The other end of a STOMP session: what a client says, and what it hears, in frames.

The broker behind the session is the scripted one. It does not hand out again what is given back:
the tests look at what was given back, and how.
"""

from __future__ import annotations

from gateway.model import stomp_form
from gateway.model.message import DURABLE, ONE_DELIVERY, STOMP, Message
from protocols.stomp.limits import StompLimits
from protocols.stomp.session import StompSession
from tests.protocols.scripted_broker import ScriptedAuthenticator, ScriptedBroker


def convert(body: bytes, flags: int, address: str, *, expires: int | None = None) -> bytes:
    """Stand in for protocols.convert."""
    return stomp_form.pack(address, b"converted " + body, headers=[("from", "amqp")])


class Peer:
    """A client at the other end of a session, with a clock.

    `hurried`: each turn is over after one frame, so that what came with it waits for the next.
    """

    hurried = False

    def __init__(
        self,
        version: str | None = "1.2",
        *,
        limits: StompLimits | None = None,
        authenticator: ScriptedAuthenticator | None = None,
        connect: str = "",
    ) -> None:
        self.broker = ScriptedBroker()
        self.broker.redelivers = False
        self.authenticator = authenticator or ScriptedAuthenticator()
        self.limits = limits or StompLimits()
        self.session = StompSession(self.broker, self.authenticator, self.limits, "c1", convert)
        self.wakes = 0
        self.session.wake = self._wake
        self.session.spent = lambda: self.hurried
        self.now = 100.0
        if version is not None:
            accept = "" if version == "1.0" else f"accept-version:{version}\n"
            self.greeting = self.say(f"CONNECT\n{accept}host:h\n{connect}\n\0".encode())

    def _wake(self) -> None:
        self.wakes += 1

    def say(self, data: bytes) -> bytes:
        """Send bytes, end the turn, and return what comes back."""
        self.session.receive_data(data, self.now)
        return self.hear()

    def hear(self) -> bytes:
        """End the turn and return what the session wants to send."""
        out = self.session.data_to_send()
        while True:
            self.broker.turn()
            waited = self.session.behind
            if waited:
                self.session.go_on(self.now)
            more = self.session.data_to_send()
            if not more and not waited:
                return out
            out += more

    def sync(self, ticket: int | None = None) -> bytes:
        self.broker.sync(ticket)
        return self.hear()

    def offer(self, address: str, *messages: Message) -> bytes:
        """Have messages wait for the subscription of an address; returns what comes."""
        subscription = self.broker.subscription(address)
        assert subscription is not None, "nobody subscribes to it"
        self.broker.put(subscription.queue_name, messages)
        return self.hear()

    def bodies(self) -> list[bytes]:
        """Return the bodies of all messages that were sent, without their stored headers."""
        return [stomp_form.unpack(stored)[1] for stored in self.broker.bodies()]


def frames(data: bytes) -> list[tuple[str, dict[str, str], bytes]]:
    """Parse what the gateway sent, in the plainest way: no escapes, first header wins."""
    found = []
    while data:
        data = data.lstrip(b"\r\n")
        if not data:
            break
        head, blank, rest = data.partition(b"\n\n")
        assert blank, data
        command, *lines = head.decode().split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(name, value)
        if "content-length" in headers:
            size = int(headers["content-length"])
            body, end, data = rest[:size], rest[size : size + 2], rest[size + 2 :]
        else:
            body, nul, data = rest.partition(b"\0")
            end, data = nul + data[:1], data[1:]
        assert end == b"\0\n", (head, end)
        found.append((command, headers, body))
    return found


def message(body: bytes, seq: int, *, flags: int = STOMP | DURABLE | 4, count: int = 0) -> Message:
    """Return a stored STOMP message to `q`."""
    return Message(stomp_form.pack("q", body), seq, flags | count * ONE_DELIVERY)
