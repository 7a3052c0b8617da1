"""Clients of both protocols at one real broker in memory, for rows that a client can see.

A STOMP client speaks text and hears frames; an AMQP one is the watched peer of the protocol's own
tests. What one of them does, the others hear with `more()`.
"""

from __future__ import annotations

from typing import Any

from gateway.model.sections import Sections, scan
from protocols.amqp.performatives import (
    Disposition,
    Flow,
    Outcome,
    Source,
    Transfer,
)
from protocols.convert import amqp_to_stomp
from protocols.stomp.limits import StompLimits
from protocols.stomp.session import StompSession
from tests.broker.core import Core
from tests.protocols.amqp.peer import RECEIVER, Frame, Peer, data_message, of, parse
from tests.protocols.scripted_broker import ScriptedAuthenticator
from tests.protocols.stomp.peer import frames

VERSIONS = ["1.0", "1.1", "1.2"]


class Stomp:
    """A STOMP connection to a core; `heard_bytes` is the size of what came last."""

    _names = iter(range(1, 1 << 30))

    def __init__(
        self, core: Core, version: str = "1.2", *, connect: str = "", **limits: Any
    ) -> None:
        self.core = core
        self.version = version
        self.now = 100.0
        self.session = StompSession(
            core.gateway,
            ScriptedAuthenticator(),
            StompLimits(**limits),
            f"c{next(self._names)}",
            amqp_to_stomp,
        )
        accept = "" if version == "1.0" else f"accept-version:{version}\n"
        self.greeting = self.say(f"CONNECT\n{accept}host:h\n{connect}\n\0")
        assert [name for name, _, _ in self.greeting] == ["CONNECTED"], self.greeting

    # ---- frames

    def say(self, text: str | bytes) -> list[tuple[str, dict[str, str], bytes]]:
        """Send, let everything become durable, and return the frames that came."""
        self.session.receive_data(text.encode() if isinstance(text, str) else text, self.now)
        return self.more()

    def more(self) -> list[tuple[str, dict[str, str], bytes]]:
        """Return what came meanwhile."""
        out = b""
        while True:
            data = self.session.data_to_send()
            self.core.sync()
            data += self.session.data_to_send()
            if not data:
                self.heard_bytes = len(out)
                return frames(out)
            out += data

    def do(self, command: str, body: str = "", **headers: str) -> list[Any]:
        """Say one frame with a receipt; returns what else came. It must be confirmed."""
        came = self.ask(command, body, **headers)
        kinds = [name for name, _, _ in came]
        assert kinds.count("RECEIPT") == 1, came
        return [frame for frame in came if frame[0] != "RECEIPT"]

    def ask(self, command: str, body: str = "", **headers: str) -> list[Any]:
        """Say one frame with the receipt `r` and return all that came."""
        lines = "".join(f"{k.replace('_', '-')}:{v}\n" for k, v in headers.items())
        return self.say(f"{command}\nreceipt:r\n{lines}\n{body}\0")

    def refused(self, command: str, body: str = "", **headers: str) -> dict[str, str]:
        """Say one frame that must be an ERROR with the receipt; returns the ERROR's headers."""
        came = self.ask(command, body, **headers)
        assert [name for name, _, _ in came] == ["ERROR"], came
        assert came[0][1]["receipt-id"] == "r"
        return came[0][1] | {"body": came[0][2].decode()}

    # ---- usual ones

    def send(self, destination: str, *bodies: str, **headers: str) -> None:
        for body in bodies:
            assert self.do("SEND", body, destination=destination, **headers) == []

    def subscribe(self, destination: str, ack: str = "auto", **headers: str) -> list[Any]:
        """Return the MESSAGE frames that come at once."""
        return self.do("SUBSCRIBE", destination=destination, ack=ack, **({"id": "s"} | headers))

    def settle(self, message: Any, command: str = "ACK", **more: str) -> list[Any]:
        """ACK a MESSAGE by the rules of the version."""
        headers = message[1]
        named = {"id": headers["ack"]} if self.version == "1.2" else {}
        if self.version != "1.2":
            named = {"message_id": headers["message-id"]}
        if self.version == "1.1":
            named["subscription"] = headers["subscription"]
        return self.do(command, **named, **more)

    def leave(self) -> None:
        """DISCONNECT."""
        assert self.do("DISCONNECT") == []
        assert self.session.closing
        self.session.connection_lost(self.now)
        self.core.turn()

    def cut(self) -> None:
        """The connection is gone."""
        self.session.connection_lost(self.now)
        self.core.sync()


def bodies(came: list[Any]) -> list[str]:
    """Return the bodies of MESSAGE frames; there must be no others."""
    assert all(name == "MESSAGE" for name, _, _ in came), came
    return [body.decode() for _, _, body in came]


class CoreBroker:
    """The real broker with the turns that a peer ends, as the scripted one has them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.turn = core.turn
        self.sync = core.sync

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core.gateway, name)


class Amqp(Peer):
    """An AMQP connection to a core; transfers are kept by link until they are settled."""

    @classmethod
    def at(cls, core: Core, **options: Any) -> Amqp:
        peer = cls.begun(broker=CoreBroker(core), **options)
        assert isinstance(peer, Amqp)
        return peer

    def more(self) -> list[Frame]:
        """Return what came because of others; the engine must have asked to be heard."""
        self.broker.sync()
        data = self.engine.data_to_send()
        assert not data or self._woken, "something to send and nobody was told"
        came, self._rest = parse(self._rest + data)
        self.heard += came
        self.watch.heard(came)
        return self.hear()

    def give(self, *messages: bytes, **fields: Any) -> list[Outcome | None]:
        """Send encoded messages on a link; returns the outcomes, once all is durable."""
        came = self.say(b"".join(self.transfer(m, **fields) for m in messages)) + self.more()
        outcomes: dict[int, Outcome | None] = {}
        for told in of(came, Disposition):
            for number in range(told.first, (told.first if told.last is None else told.last) + 1):
                outcomes[number] = told.state
        return [outcomes[number] for number in sorted(outcomes)]

    def settle(self, delivery: int, state: Outcome | None, last: int | None = None) -> list[Frame]:
        told = Disposition(role=RECEIVER, first=delivery, last=last, settled=True, state=state)
        return self.tell(told) + self.more()

    def cut(self) -> None:
        self.engine.connection_lost(self.now)
        self.broker.sync()


def took(came: list[Frame]) -> list[tuple[int, bytes]]:
    """Return (delivery id, message) of the transfers; a delivery of several frames is one."""
    found: list[tuple[int, bytes]] = []
    open_one: list[Any] = []
    for one in came:
        if not isinstance(one.performative, Transfer):
            continue
        if not open_one:
            open_one = [one.performative.delivery_id, b""]
        open_one[1] += one.payload
        if not one.performative.more:
            found.append((open_one[0], open_one[1]))
            open_one = []
    return found


def data(came: list[Frame]) -> list[bytes]:
    """Return the data bodies of the transfers."""
    return [scan(message).data() for _, message in took(came)]


def read(message: bytes) -> Sections:
    """Return a message's sections."""
    found = scan(message)
    found.read_properties()
    return found


def credit_of(came: list[Frame]) -> int | None:
    """Return the credit that the last flow of a link gives; None when there was none."""
    flows = [f.link_credit for f in of(came, Flow) if f.handle is not None]
    return flows[-1] if flows else None


def source(address: str, **fields: Any) -> dict[str, Any]:
    """Return the source of a receiver as a keyword."""
    return {"source": Source(address=address, **fields)}


def plain(body: str | bytes, *, durable: bool = False) -> bytes:
    """Return a message with one data section."""
    return data_message(body.encode() if isinstance(body, str) else body, durable=durable)
