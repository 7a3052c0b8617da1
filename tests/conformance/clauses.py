"""Conversations by which the clauses of AMQP 1.0 are checked, frame by frame.

A `Talk` says bytes and hears frames: over the engine with the real broker in memory, where a
`Watch` judges everything that the engine says, or over a socket of a gateway process. What is heard
is written as words, one for each frame or delivery:

    header AMQP | header SASL       open, begin, end, close     attach, attach null
    detach CONDITION                transfer ID, transfer ID more
    accepted ID, rejected ID CONDITION, released ID, modified ID, declared ID    of our deliveries
    settled ID accepted             what a receiver told is settled, and how
    cut                             the gateway closed the transport

Flows are left out, unless they are asked for. At the end of a case the connection must either be
gone, or answer a close with a close and nothing else.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from gateway.trial.scratch import HOST
from protocols.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Declared,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Rejected,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode_performative,
)
from tests.broker.core import Core
from tests.conformance.clients import Amqp, CoreBroker
from tests.protocols.amqp.peer import (
    AMQP_HEADER,
    RECEIVER,
    SENDER,
    Frame,
    data_message,
    frame,
    parse,
)

#: What a process may take for an answer.
PATIENCE: Final = 10.0
#: The data message that most cases send.
BODY: Final = data_message(b"x")


class Wire(Protocol):
    """What carries the bytes of one connection."""

    def send(self, data: bytes) -> None: ...

    def read(self) -> tuple[list[Frame], bool]:
        """Return what came, and whether the gateway closed; waits where it has to."""

    def close(self) -> None: ...


class Engine:
    """The protocol's engine, on a broker in memory that it may share with others."""

    def __init__(self, core: Core) -> None:
        self.peer = Amqp(broker=CoreBroker(core))  # type: ignore[arg-type]
        self._came: list[Frame] = []

    def send(self, data: bytes) -> None:
        self._came += self.peer.say(data)

    def read(self) -> tuple[list[Frame], bool]:
        came, self._came = self._came, []
        return came + self.peer.more(), self.peer.gone

    def close(self) -> None:
        self.peer.cut()
        assert self.peer.engine._unfinished == 0
        assert self.peer.engine.links == 0


class Socket:
    """A connection to a process."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._over = False

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            self._over = True

    def read(self) -> tuple[list[Frame], bool]:
        ready, _, _ = select.select([self._socket], [], [], 0 if self._over else PATIENCE)
        if ready:
            try:
                data = self._socket.recv(1 << 20)
            except OSError:
                data = b""
            self._over = not data
            frames, self._rest = parse(self._rest + data)
            return frames, self._over
        return [], self._over

    def close(self) -> None:
        self._socket.close()


def state_of(state: Any) -> str:
    match state:
        case Rejected(error=error):
            return "rejected" if error is None else f"rejected {error.condition}"
        case TransactionalState(outcome=outcome):
            return f"in transaction {state_of(outcome)}"
        case Modified():
            return "modified"
        case Declared():
            return "declared"
        case None:
            return "nothing"
    return str(state.layout.name)


def words(one: Frame) -> list[str]:
    """Return how a frame is written; see the module text."""
    performative = one.performative
    match performative:
        case bytes():
            return [f"header {'SASL' if performative[4] == 3 else 'AMQP'}"]
        case None:
            return []  # empty: the gateway is alive
        case Attach(role=role, target=target, source=source):
            return ["attach null" if (target if role is RECEIVER else source) is None else "attach"]
        case Transfer():
            number = "" if performative.delivery_id is None else f" {performative.delivery_id}"
            return [f"transfer{number}{' more' if performative.more else ''}"]
        case Disposition(first=first, last=last, role=role):
            ids = range(first, (first if last is None else last) + 1)
            state = state_of(performative.state)
            told = "settled" if performative.settled else "unsettled"
            if role is RECEIVER:
                assert performative.settled, "this gateway settles first"
                word, _, condition = state.partition(" amqp:")
                tail = f" amqp:{condition}" if condition else ""
                return [f"{word} {number}{tail}" for number in ids]
            return [f"{told} {number} {state}" for number in ids]
        case SaslMechanisms():
            return ["mechanisms"]
        case SaslOutcome(code=code):
            return [f"outcome {code}"]
    error = getattr(performative, "error", None)
    if error is not None:
        assert error.description, "a condition without a text"
        return [f"{one.name} {error.condition}"]
    return [one.name]


class Talk:
    """One connection, said and heard; see the module text."""

    def __init__(self, wire: Wire, address: str) -> None:
        self.wire = wire
        self.address = address
        self.frames: list[Frame] = []  # all that was heard
        self._heard: list[str] = []
        self._gone = False
        self._next: dict[int, int] = {}
        self._seen = 0

    # ---- bytes

    def says(self, *said: bytes | Composite) -> Talk:
        """Send in one piece; a performative goes out on channel 0."""
        self.wire.send(b"".join(s if isinstance(s, bytes) else frame(s) for s in said))
        return self

    def hears(self, *expected: str, flows: bool = False) -> list[Frame]:
        """Wait until as much was heard, and compare; returns the frames that were."""
        start = len(self.frames)
        deadline = time.monotonic() + PATIENCE
        ends = bool(expected) and expected[-1].split()[0] in ("close", "cut")
        self._until(
            lambda: len(self._heard) >= len(expected) and (self._gone or not ends),
            deadline,
            flows=flows,
        )
        assert self._heard == list(expected), f"{self._heard}, not {list(expected)}"
        self._heard = []
        return self.frames[start:]

    def _until(self, done: Callable[[], bool], deadline: float, *, flows: bool) -> None:
        while not done() and not self._gone and time.monotonic() < deadline:
            came, gone = self.wire.read()
            self.frames += came
            for one in came:
                if flows or not isinstance(one.performative, Flow):
                    self._heard += words(one)
            if gone and not self._gone:
                self._gone = True
                if not any(isinstance(one.performative, Close) for one in self.frames):
                    self._heard.append("cut")
            if not came and isinstance(self.wire, Engine):
                return  # nothing else will come

    def finish(self) -> None:
        """End the case: nothing may be left unsaid."""
        try:
            if not self._gone:
                self.says(frame(Close()))
                self.hears("close")
            assert self._heard == [], f"{self._heard} behind all"
        finally:
            self.wire.close()

    @property
    def gone(self) -> bool:
        return self._gone

    # ---- usual beginnings

    def opened(self, **fields: Any) -> Talk:
        fields.setdefault("container_id", "clauses")
        self.says(AMQP_HEADER, Open(**fields))
        self.hears("header AMQP", "open")
        return self

    def begun(self, **fields: Any) -> Talk:
        self.opened(**fields)
        self.says(begin())
        self.hears("begin")
        return self

    def sender(self, handle: int = 0, **fields: Any) -> Attach:
        """Attach a link on which this peer sends; returns the answer."""
        self.says(self.sending(handle, **fields))
        return self._attached()

    def sending(self, handle: int = 0, **fields: Any) -> Attach:
        fields.setdefault("name", f"sender-{handle}")
        fields.setdefault("target", Target(address=self.address))
        fields.setdefault("source", Source())
        fields.setdefault("initial_delivery_count", 0)
        return Attach(handle=handle, role=SENDER, **fields)

    def receiver(self, handle: int = 1, credit: int = 0, **fields: Any) -> Attach:
        """Attach a link on which this peer receives; returns the answer."""
        self.says(self.receiving(handle, **fields))
        answer = self._attached()
        if credit:
            self.says(flow(handle, credit, seen=self._seen))
        return answer

    def receiving(self, handle: int = 1, **fields: Any) -> Attach:
        fields.setdefault("name", f"receiver-{handle}")
        fields.setdefault("source", Source(address=self.address))
        fields.setdefault("target", Target())
        return Attach(handle=handle, role=RECEIVER, **fields)

    def coordinator(self, handle: int = 9, **fields: Any) -> Attach:
        return self.sender(handle, target=Coordinator(), **fields)

    def _attached(self) -> Attach:
        came = [one.performative for one in self.hears("attach")]
        return next(one for one in came if isinstance(one, Attach))

    def transfer(self, body: bytes = BODY, handle: int = 0, **fields: Any) -> bytes:
        """Return a transfer frame; ids count up from 0."""
        channel = fields.pop("channel", 0)
        if "delivery_id" not in fields:
            fields["delivery_id"] = self._next.get(channel, 0)
        if fields["delivery_id"] is not None:
            self._next[channel] = fields["delivery_id"] + 1
            fields.setdefault("delivery_tag", fields["delivery_id"].to_bytes(4, "big"))
        fields.setdefault("message_format", 0)
        return frame(Transfer(handle=handle, **fields), channel, body)

    def further(self, body: bytes = b"", handle: int = 0, **fields: Any) -> bytes:
        """Return a transfer that goes on with a delivery."""
        return frame(Transfer(handle=handle, **fields), 0, body)


def begin(channel: int = 0, **fields: Any) -> bytes:
    fields.setdefault("next_outgoing_id", 0)
    fields.setdefault("incoming_window", 2048)
    fields.setdefault("outgoing_window", 2048)
    return frame(Begin(**fields), channel)


def flow(handle: int | None, credit: int | None = None, *, seen: int = 0, **fields: Any) -> Flow:
    """Return a flow; `seen` transfer frames came on this session."""
    fields.setdefault("delivery_count", 0 if handle is not None else None)
    fields.setdefault("next_incoming_id", 1 + seen)
    fields.setdefault("incoming_window", 2048)
    return Flow(
        next_outgoing_id=0, outgoing_window=2048, handle=handle, link_credit=credit, **fields
    )


def settle(first: int, state: Any, last: int | None = None, *, settled: bool = True) -> Disposition:
    return Disposition(role=RECEIVER, first=first, last=last, settled=settled, state=state)


def detach(handle: int, *, closed: bool = True) -> Detach:
    return Detach(handle=handle, closed=closed)


def end(channel: int = 0) -> bytes:
    return frame(End(), channel)


# ---- performatives that no codec would write


def listed(code: int, *fields: bytes) -> bytes:
    """Return a performative of encoded fields."""
    items = b"".join(fields)
    head = bytes((0, 0x53, code))
    if len(items) < 255:
        return head + bytes((0xC0, len(items) + 1, len(fields))) + items
    sizes = (len(items) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big")
    return head + b"\xd0" + sizes + items


def encoded(performative: Composite) -> bytes:
    return encode_performative(performative)


NULL: Final = b"\x40"
TRUE: Final = b"\x41"
FALSE: Final = b"\x42"
ZERO: Final = b"\x43"


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return b"\xa1" + bytes([len(raw)]) + raw


def symbol(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return b"\xa3" + bytes([len(raw)]) + raw


def uint(value: int) -> bytes:
    return b"\x70" + value.to_bytes(4, "big")
