"""The other end of an AMQP connection, byte by byte: able to break every rule, and watching ours.

`Peer` feeds an engine and decodes what it answers. `Watch` stands beside it and fails the test when
the engine itself breaks a rule, whatever the peer did: frames after close, on a channel or handle
that is gone, beyond the peer's credit, window or max-frame-size, delivery-ids out of line,
outcomes for deliveries that nobody sent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.model.amqp_types import DecodeError, Described, ULong, encode
from gateway.model.sections import HEADER, header_facts, header_fields
from gateway.model.serial import MASK, distance
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.containers import Containers
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    FieldError,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
    decode_performative,
    encode_performative,
)
from protocols.transport.speaking import PeerFacts
from tests.protocols.scripted_broker import ScriptedAuthenticator, ScriptedBroker

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
FACTS = PeerFacts(address="127.0.0.1", loopback=True, tls=False, name="test-1")
SENDER, RECEIVER = False, True
OWN = ("broker", "limits", "authenticator", "containers")


@dataclass(frozen=True)
class Frame:
    """What came: a frame, or a protocol header (then `performative` is its bytes)."""

    channel: int
    performative: Any
    payload: bytes = b""
    kind: int = 0
    size: int = 0

    @property
    def name(self) -> str:
        if isinstance(self.performative, bytes):
            return "header"
        return "empty" if self.performative is None else type(self.performative).__name__.lower()


def frame(
    performative: Composite | bytes, channel: int = 0, payload: bytes = b"", kind: int = 0
) -> bytes:
    """Return the bytes of a frame; a performative may be raw bytes."""
    body = performative if isinstance(performative, bytes) else encode_performative(performative)
    return raw_frame(body + payload, channel=channel, kind=kind)


def raw_frame(
    body: bytes, *, channel: int = 0, kind: int = 0, doff: int = 2, size: int | None = None
) -> bytes:
    """Return a frame whose every field may lie."""
    extended = b"\xee" * max(0, doff * 4 - 8)
    true_size = 8 + len(extended) + len(body)
    head = struct.pack(">IBBH", true_size if size is None else size, doff, kind, channel)
    return head + extended + body


def parse(data: bytes) -> tuple[list[Frame], bytes]:
    """Split what an engine wrote into frames; returns them and what is not complete."""
    found: list[Frame] = []
    while len(data) >= 8:
        if data[:4] == b"AMQP":
            found.append(Frame(0, data[:8]))
            data = data[8:]
            continue
        size, doff, kind, channel = struct.unpack(">IBBH", data[:8])
        assert size >= 8, data
        assert doff == 2, data
        if len(data) < size:
            break
        body, data = data[8:size], data[size:]
        if not body:
            found.append(Frame(channel, None, b"", kind, size))
            continue
        performative, end = decode_performative(body, 0, len(body))
        found.append(Frame(channel, performative, body[end:], kind, size))
    return found, data


def names(frames: Iterable[Frame]) -> list[str]:
    return [one.name for one in frames]


def of(frames: Iterable[Frame], kind: type[Any]) -> list[Any]:
    return [one.performative for one in frames if isinstance(one.performative, kind)]


def condition(frames: Sequence[Frame]) -> str:
    """Return `close amqp:...`, `end amqp:...` or `detach amqp:...` of the last error, or ""."""
    for one in reversed(frames):
        error = getattr(one.performative, "error", None)
        if error is not None:
            assert error.description, "a condition without a text"
            return f"{one.name} {error.condition}"
    return ""


#: What a fresh delivery shows of a message that has no header: first-acquirer true.
FRESH = b"\x00\x53\x70\xc0\x05\x04\x40\x40\x40\x41"


def fresh(message: bytes) -> bytes:
    """Return a message in sections as its first delivery shows it: only its header says more."""
    return _with_first_acquirer(message, first=True)


def again(message: bytes) -> bytes:
    """Return a message as a delivery shows it when another was given back without an attempt."""
    return _with_first_acquirer(message, first=False)


def _with_first_acquirer(message: bytes, *, first: bool) -> bytes:
    end = header_facts(message).end
    durable, priority, ttl, _, count = header_fields(message[:end]) if end else [None] * 5
    header = [durable, priority, ttl, first] + [count] * (count is not None)
    return encode(Described(ULong(HEADER), header)) + message[end:]


def data_message(body: bytes, *, durable: bool = False) -> bytes:
    """Return an encoded message with one data section."""
    header = b"\x00\x53\x70\xc0\x02\x01\x41" if durable else b""
    if len(body) < 256:
        return header + b"\x00\x53\x75\xa0" + bytes([len(body)]) + body
    return header + b"\x00\x53\x75\xb0" + len(body).to_bytes(4, "big") + body


@dataclass
class _Link:
    sends: bool  # the engine sends on it
    limit: int = 0
    most: int = 0
    count: int = 0


@dataclass
class _Session:
    answered: bool = False
    ended: bool = False
    next_frame: int = 1
    window_end: int = 1
    window_most: int = 1
    next_id: int | None = None
    inside: int | None = None
    links: dict[int, _Link] = field(default_factory=dict)
    attached: set[int] = field(default_factory=set)
    ids: set[int] = field(default_factory=set)


class Watch:
    """See the module text. `lenient`: the peer talks garbage, only structure is watched."""

    def __init__(self) -> None:
        self.sessions: dict[int, _Session] = {}
        self.closed = False
        self.frame_max = 512
        self.lenient = False

    # ---- what the peer said

    def said(self, one: Frame) -> None:
        performative = one.performative
        if isinstance(performative, Open):
            self.frame_max = min(performative.max_frame_size, 131072)
        elif isinstance(performative, Begin):
            self.sessions[one.channel] = _Session(
                window_end=1 + performative.incoming_window,
                window_most=1 + performative.incoming_window,
            )
        session = self.sessions.get(one.channel)
        if session is None:
            return
        if isinstance(performative, Attach):
            session.links[performative.handle] = _Link(sends=performative.role is RECEIVER)
        elif isinstance(performative, Transfer) and performative.delivery_id is not None:
            session.ids.add(performative.delivery_id)
        elif isinstance(performative, Flow):
            self._said_flow(session, performative)

    @staticmethod
    def _said_flow(session: _Session, flow: Flow) -> None:
        seen = 1 if flow.next_incoming_id is None else flow.next_incoming_id
        session.window_end = (seen + flow.incoming_window) & MASK
        if distance(session.window_most, session.window_end) > 0:
            session.window_most = session.window_end
        link = session.links.get(flow.handle) if flow.handle is not None else None
        if link is not None and link.sends:
            link.limit = ((flow.delivery_count or 0) + (flow.link_credit or 0)) & MASK
            if distance(link.most, link.limit) > 0:
                link.most = link.limit

    # ---- what the engine said

    def heard(self, frames: Sequence[Frame]) -> None:
        for one in frames:
            assert not self.closed, f"{one} after close"
            if one.kind == 0 and not isinstance(one.performative, bytes):
                self._heard(one)
        for session in self.sessions.values():
            session.window_most = session.window_end
            for link in session.links.values():
                link.most = link.limit

    def _heard(self, one: Frame) -> None:
        performative = one.performative
        assert one.size <= max(self.frame_max, 512), f"{one.name} of {one.size} bytes"
        if performative is None or isinstance(performative, Open):
            return
        if isinstance(performative, Close):
            self.closed = True
            return
        session = self.sessions.get(one.channel)
        assert session is not None, f"{one} on a channel that the peer did not begin"
        if isinstance(performative, Begin):
            assert not session.answered
            session.answered = True
            return
        assert session.answered, f"{one} before begin"
        assert not session.ended, f"{one} after end"
        match performative:
            case End():
                session.ended = True
            case Attach():
                session.attached.add(performative.handle)
            case Detach():
                assert performative.handle in session.attached, f"{one} without attach"
                session.attached.discard(performative.handle)
            case Flow() if performative.handle is not None:
                assert performative.handle in session.attached, f"{one} on a detached handle"
            case Transfer():
                self._transfer(session, one, performative)
            case Disposition(role=role) if role is RECEIVER and not self.lenient:
                last = performative.first if performative.last is None else performative.last
                count = ((last - performative.first) & MASK) + 1
                assert count <= len(session.ids), f"{one}: more than was sent"
                ids = {(performative.first + i) & MASK for i in range(count)}
                assert ids <= session.ids, f"{one}: never sent"

    def _transfer(self, session: _Session, one: Frame, transfer: Transfer) -> None:
        assert transfer.handle in session.attached, f"{one} on a detached handle"
        link = session.links[transfer.handle]
        if self.lenient:
            return
        assert link.sends, f"{one} on a link of the other direction"
        left = distance(session.next_frame, session.window_most)
        assert left > 0, f"{one} beyond the session window"
        session.next_frame = (session.next_frame + 1) & MASK
        if session.inside is None:
            assert transfer.delivery_id is not None
            assert session.next_id in (None, transfer.delivery_id), f"{one}: id out of line"
            session.next_id = (transfer.delivery_id + 1) & MASK
            assert transfer.delivery_tag
            assert distance(link.count, link.most) > 0, f"{one} beyond the credit of its link"
            link.count = (link.count + 1) & MASK
        else:
            assert session.inside == transfer.handle, "another delivery inside a long one"
        session.inside = transfer.handle if transfer.more else None


class Peer:
    """A client of one engine. Everything it hears is in the lists that the methods return.

    `hurried`: each turn is over after one frame, so that what came with it waits for the next.
    """

    hurried = False

    def __init__(
        self,
        *,
        broker: ScriptedBroker | None = None,
        limits: AmqpLimits | None = None,
        authenticator: ScriptedAuthenticator | None = None,
        containers: Containers | None = None,
    ) -> None:
        self.broker = broker or ScriptedBroker()
        self.authenticator = authenticator or ScriptedAuthenticator()
        self.limits = limits or AmqpLimits()
        self.engine = AmqpConnection(
            self.broker, self.authenticator, self.limits, FACTS, containers=containers
        )
        self.engine.wake = self._wake
        self.engine.spent = lambda: self.hurried
        self.watch = Watch()
        self.now = 100.0
        self.heard: list[Frame] = []
        self._woken = False
        self._rest = b""
        self._spoken = b""
        self._ids: dict[int, int] = {}
        self.engine.tick(self.now)

    def _wake(self) -> None:
        self._woken = True

    # ---- bytes

    def say(self, data: bytes, *, chunks: Iterable[int] = ()) -> list[Frame]:
        """Send bytes, in pieces where `chunks` gives sizes, end the turn, return the answers."""
        self._listen_to_myself(data)
        at = 0
        for size in chunks:
            self.engine.receive_data(data[at : at + size], self.now)
            at += size
            self._read()
            if at >= len(data):
                break
        if at < len(data) or not data:
            self.engine.receive_data(data[at:], self.now)
        self._read()
        return self.hear()

    def _listen_to_myself(self, data: bytes) -> None:
        """Tell the watch what is said, as far as it can be understood."""
        self._spoken += data
        while len(self._spoken) >= 8:
            if self._spoken[:4] == b"AMQP":
                self._spoken = self._spoken[8:]
                continue
            size, doff, kind, channel = struct.unpack(">IBBH", self._spoken[:8])
            if size < 8 or doff < 2 or size > 1 << 20:
                self.watch.lenient = True
                self._spoken = b""
                return
            if len(self._spoken) < size:
                return
            whole, self._spoken = self._spoken[:size], self._spoken[size:]
            if kind == 0 and size > doff * 4:
                try:
                    performative, _ = decode_performative(whole, doff * 4, size)
                except (DecodeError, FieldError):
                    continue
                self.watch.said(Frame(channel, performative))

    def _read(self) -> None:
        data = self.engine.data_to_send()
        if data:
            frames, self._rest = parse(self._rest + data)
            self.heard += frames
            self.watch.heard(frames)

    def hear(self) -> list[Frame]:
        """End the turn as the broker and the shell do, and return what came since the last call."""
        while True:
            self._woken = False
            self.broker.turn()
            while self.engine.behind:
                self.engine.go_on(self.now)
                self._read()
                self.broker.turn()
            before = len(self.heard)
            data = self.engine.data_to_send()
            if data:
                assert self._woken, "something to send and nobody was told"
                frames, self._rest = parse(self._rest + data)
                self.heard += frames
                self.watch.heard(frames)
            if len(self.heard) == before:
                break
        assert not self._rest, "half a frame"
        came, self.heard = self.heard, []
        return came

    def sync(self) -> list[Frame]:
        """The journal has everything."""
        return self.outside(self.broker.sync)

    def outside(self, action: Callable[[], object]) -> list[Frame]:
        """Do what happens on another turn than the peer's own: the engine must ask to be heard."""
        self._woken = False
        action()
        data = self.engine.data_to_send()
        assert not data or self._woken, "something to send and nobody was told"
        frames, self._rest = parse(self._rest + data)
        self.heard += frames
        self.watch.heard(frames)
        return self.hear()

    def tick(self, seconds: float) -> tuple[float | None, list[Frame]]:
        """Let time pass; returns when the engine wants to be asked again, and what it said."""
        self.now += seconds
        following = self.engine.tick(self.now)
        self._read()
        return following, self.hear()

    # ---- frames

    def tell(self, performative: Composite, channel: int = 0, payload: bytes = b"") -> list[Frame]:
        return self.say(frame(performative, channel, payload))

    @property
    def gone(self) -> bool:
        """Whether the engine wants the transport closed."""
        return self.engine.closing

    # ---- usual beginnings

    @classmethod
    def opened(cls, *, container: str = "peer", **fields: Any) -> Peer:
        """Return a peer whose connection is open, without SASL."""
        own = {k: fields.pop(k) for k in OWN if k in fields}
        peer = cls(**own)
        came = peer.say(AMQP_HEADER + frame(Open(container_id=container, **fields)))
        assert names(came) == ["header", "open"], came
        return peer

    @classmethod
    def begun(cls, *, window: int = 2048, next_id: int = 0, **fields: Any) -> Peer:
        """Return a peer with a session on channel 0."""
        peer = cls.opened(**fields)
        peer.begin(window=window, next_id=next_id)
        return peer

    def begin(self, channel: int = 0, *, window: int = 2048, next_id: int = 0) -> list[Frame]:
        begin = Begin(next_outgoing_id=next_id, incoming_window=window, outgoing_window=2048)
        came = self.tell(begin, channel)
        assert names(came) == ["begin"], came
        assert came[0].performative.remote_channel == channel
        return came

    def sender(
        self, handle: int = 0, address: str | None = "q", *, channel: int = 0, **fields: Any
    ) -> list[Frame]:
        """Attach a link on which this peer sends."""
        fields.setdefault("name", f"sender-{channel}-{handle}")
        fields.setdefault("target", Target(address=address))
        fields.setdefault("source", Source())
        fields.setdefault("initial_delivery_count", 0)
        return self.tell(Attach(handle=handle, role=SENDER, **fields), channel)

    def receiver(
        self, handle: int = 1, address: str | None = "q", *, channel: int = 0, **fields: Any
    ) -> list[Frame]:
        """Attach a link on which this peer receives; `credit` is given with it."""
        credit = fields.pop("credit", None)
        fields.setdefault("name", f"receiver-{channel}-{handle}")
        fields.setdefault("source", Source(address=address))
        fields.setdefault("target", Target())
        came = self.tell(Attach(handle=handle, role=RECEIVER, **fields), channel)
        return came if credit is None else came + self.credit(credit, handle, channel=channel)

    def credit(
        self, credit: int, handle: int = 1, *, channel: int = 0, **fields: Any
    ) -> list[Frame]:
        """Give credit; by default counted from all that came, with the window wide open again."""
        session = self.watch.sessions[channel]
        link = session.links[handle]
        fields.setdefault("delivery_count", link.count)
        fields.setdefault("next_incoming_id", session.next_frame)
        fields.setdefault("incoming_window", 2048)
        flow = Flow(
            next_outgoing_id=0, outgoing_window=2048, handle=handle, link_credit=credit, **fields
        )
        return self.tell(flow, channel)

    def transfer(
        self, body: bytes = b"", handle: int = 0, *, channel: int = 0, **fields: Any
    ) -> bytes:
        """Return a transfer frame; ids count up from 0 on each channel."""
        if "delivery_id" not in fields:
            fields["delivery_id"] = self._ids.get(channel, 0)
        if fields["delivery_id"] is not None:
            self._ids[channel] = (fields["delivery_id"] + 1) & MASK
            fields.setdefault("delivery_tag", fields["delivery_id"].to_bytes(4, "big"))
        fields.setdefault("message_format", 0)
        return frame(Transfer(handle=handle, **fields), channel, body)

    def send(self, *bodies: bytes, **fields: Any) -> list[Frame]:
        """Send messages, each in one frame, in one piece."""
        return self.say(b"".join(self.transfer(data_message(b), **fields) for b in bodies))
