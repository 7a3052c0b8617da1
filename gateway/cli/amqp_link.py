"""One AMQP 1.0 connection with one link, seen from the client, sans-IO [AMQP 2].

What the commands need and no more: SASL, open, one session, one link that sends or receives. The
codec is the gateway's own, so that a plain install has a client.

    state         peer's frames that are expected
    SASL          its header, sasl-mechanisms, sasl-challenge, sasl-outcome
    OPENING       its header, open, begin, attach
    ATTACHED      flow, transfer, disposition
    CLOSING       anything; only close is looked at
    CLOSED        none

Bytes in by `receive_data`, bytes out by `data_to_send`; what happened is in `outcomes` and
`deliveries`, which the caller empties. It knows no socket and no clock but what `tick` is told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from gateway.cli.amqp_login import Mechanism, PeerError, choose
from gateway.model.amqp_types import DecodeError
from gateway.model.serial import MASK
from protocols.amqp.frames import EMPTY_FRAME, HEAD_BYTES, SASL_FRAME, frame
from protocols.amqp.headers import AMQP_HEADER, SASL_HEADER
from protocols.amqp.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    SASL_OK,
    Attach,
    Begin,
    Close,
    Composite,
    DeliveryState,
    Detach,
    Disposition,
    End,
    Error,
    FieldError,
    Flow,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
    decode_performative,
)

#: The largest frame that we read, and write.
FRAME_MAX: Final = 131_072
#: Silence of the peer after which it is taken for dead; twice what our open asks for.
IDLE_SECONDS: Final = 60.0
_WINDOW: Final = 0x7FFFFFFF
_OUTCOMES: Final = (
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
)
#: A TLS alert: who answers with it expects TLS [RFC 8446 5.1].
_TLS_ALERT: Final = 0x15


class State(Enum):
    """Where the conversation stands."""

    SASL = "sasl"
    OPENING = "opening"
    ATTACHED = "attached"
    CLOSING = "closing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that came."""

    number: int
    body: bytes
    settled: bool


#: The number of a message that was sent, and what became of it; None: settled without a word.
Outcome: TypeAlias = tuple[int, DeliveryState | None]


class ClientLink:
    """A link of its own connection; `sends` says which way it goes.

    Every method that reads bytes may raise PeerError: the conversation is over then.
    """

    def __init__(
        self,
        address: str,
        *,
        sends: bool,
        container_id: str,
        hostname: str,
        login: tuple[str, str] | None,
    ) -> None:
        """Prepare; `login` is user and password, None for ANONYMOUS."""
        self.state = State.SASL
        #: What the sender may send, or what the receiver has asked for and not got yet.
        self.credit = 0
        self.outcomes: list[Outcome] = []
        self.deliveries: list[Delivery] = []
        self._address = address
        self._sends = sends
        self._container_id = container_id
        self._hostname = hostname
        self._login = login
        self._mechanism: Mechanism | None = None
        #: Whether the peer has said nothing at all.
        self.silent = True
        self._in = b""
        self._headers = 1
        self._out = bytearray(SASL_HEADER)
        self._waiting: deque[bytes] = deque()
        self._window = 0
        self._next_in = 0
        self._next_out = 0
        self._delivery_count = 0
        self._frame_max = 512
        self._idle = 0.0
        self._last_in = self._last_out = -1.0
        self._parts: list[bytes] = []
        self._part_number = 0
        self._settled: list[tuple[int, DeliveryState]] = []

    # ---- bytes

    def data_to_send(self) -> bytes:
        """Return what is to be written now."""
        self._flush()
        out = bytes(self._out)
        self._out.clear()
        return out

    def receive_data(self, data: bytes) -> None:
        """Take what was read."""
        self.silent = False
        self._in += data
        while self.state is not State.CLOSED:
            if self._headers:
                if len(self._in) < len(AMQP_HEADER):
                    if self._in and not AMQP_HEADER.startswith(self._in[:4]):
                        raise _not_amqp(self._in)
                    return
                self._take_header()
                continue
            size = int.from_bytes(self._in[:4], "big")
            if len(self._in) < HEAD_BYTES:
                return
            if not HEAD_BYTES <= size <= FRAME_MAX:
                raise PeerError("bad-frame", f"a frame of {size} bytes came")
            if len(self._in) < size:
                return
            content, self._in = self._in[:size], self._in[size:]
            self._take_frame(content)

    def tick(self, now: float) -> float:
        """Keep the connection alive; returns when to call again. Raises PeerError.

        `now` and the answer are seconds of one clock that does not jump.
        """
        self._last_in = now if self._last_in < 0 else self._last_in
        self._last_out = now if self._last_out < 0 else self._last_out
        if now - self._last_in >= IDLE_SECONDS:
            raise PeerError("not-connected", f"nothing came for {IDLE_SECONDS:.0f} s")
        due = self._last_in + IDLE_SECONDS
        if self._idle and self.state in (State.OPENING, State.ATTACHED):
            if now - self._last_out >= self._idle / 2:
                self._out += EMPTY_FRAME
                self._last_out = now
            due = min(due, self._last_out + self._idle / 2)
        return due

    def heard(self, now: float) -> None:
        """Note that bytes came."""
        self._last_in = now

    def spoke(self, now: float) -> None:
        """Note that bytes went out."""
        self._last_out = now

    def _take_header(self) -> None:
        header, self._in = self._in[:8], self._in[8:]
        wanted = SASL_HEADER if self.state is State.SASL else AMQP_HEADER
        if header != wanted:
            raise _not_amqp(header)
        self._headers = 0

    def _take_frame(self, content: bytes) -> None:
        start = content[4] * 4
        if not HEAD_BYTES <= start <= len(content):
            raise PeerError("bad-frame", f"a frame with an offset of {start} bytes came")
        if start == len(content):
            return
        try:
            performative, payload = decode_performative(content, start, len(content))
        except (DecodeError, FieldError) as error:
            raise PeerError("bad-frame", f"a frame came that cannot be read: {error}") from None
        self._take(performative, content[payload:])

    # ---- what came

    def _take(self, performative: Composite, payload: bytes) -> None:
        match performative:
            case SaslMechanisms():
                self._mechanism = choose(performative.sasl_server_mechanisms, self._login)
                response = self._mechanism.first
                init = SaslInit(
                    mechanism=self._mechanism.name,
                    initial_response=response,
                    hostname=self._hostname,
                )
                self._out += frame(init, kind=SASL_FRAME)
            case SaslChallenge():
                answer = self._asked().answer(performative.challenge)
                self._out += frame(SaslResponse(response=answer), kind=SASL_FRAME)
            case SaslOutcome():
                self._decide(performative)
            case Open():
                self._frame_max = min(performative.max_frame_size, FRAME_MAX)
                self._idle = (performative.idle_time_out or 0) / 1000
            case Begin():
                self._window = performative.incoming_window
                self._next_in = performative.next_outgoing_id
            case Attach():
                node = performative.target if self._sends else performative.source
                if node is not None and self.state is State.OPENING:
                    self.state = State.ATTACHED
                self._delivery_count = performative.initial_delivery_count or 0
            case Flow():
                self._take_flow(performative)
            case Transfer():
                self._take_transfer(performative, payload)
            case Disposition():
                self._take_disposition(performative)
            case Detach() | End() | Close():
                self._take_end(performative)

    def _asked(self) -> Mechanism:
        if self._mechanism is None:
            raise PeerError("bad-frame", "a SASL frame came before the mechanisms")
        return self._mechanism

    def _decide(self, outcome: SaslOutcome) -> None:
        mechanism = self._asked()
        if outcome.code != SASL_OK:
            raise PeerError("not-authorized", "")
        mechanism.check(outcome.additional_data)
        self.state = State.OPENING
        self._headers = 1
        self._out += AMQP_HEADER
        opened = Open(
            container_id=self._container_id,
            hostname=self._hostname,
            max_frame_size=FRAME_MAX,
            channel_max=0,
            idle_time_out=int(IDLE_SECONDS * 500),
        )
        begun = Begin(next_outgoing_id=0, incoming_window=_WINDOW, outgoing_window=_WINDOW)
        self._out += frame(opened) + frame(begun) + frame(self._attach())

    def _attach(self) -> Attach:
        if self._sends:
            return Attach(
                name=self._container_id,
                handle=0,
                role=ROLE_SENDER,
                source=Source(outcomes=_OUTCOMES),
                target=Target(address=self._address),
                initial_delivery_count=0,
            )
        return Attach(
            name=self._container_id,
            handle=0,
            role=ROLE_RECEIVER,
            source=Source(address=self._address, outcomes=_OUTCOMES),
            target=Target(),
        )

    def _take_flow(self, flow: Flow) -> None:
        behind = (self._next_out - (flow.next_incoming_id or 0)) & MASK
        self._window = max(0, flow.incoming_window - behind)
        if flow.handle is not None and self._sends and flow.link_credit is not None:
            sent = (self._delivery_count - (flow.delivery_count or 0)) & MASK
            self.credit = max(0, flow.link_credit - sent)
        if flow.echo:
            self._say_flow()
        self._pump()

    def _take_transfer(self, transfer: Transfer, payload: bytes) -> None:
        self._next_in = (self._next_in + 1) & MASK
        if not self._parts:
            if transfer.delivery_id is None:
                raise PeerError("bad-frame", "a message without a delivery-id came")
            self._part_number = transfer.delivery_id
            self._delivery_count = (self._delivery_count + 1) & MASK
            self.credit -= 1
        self._parts.append(payload)
        if transfer.aborted:
            self._parts.clear()
        elif not transfer.more:
            body = b"".join(self._parts)
            self._parts.clear()
            self.deliveries.append(Delivery(self._part_number, body, bool(transfer.settled)))

    def _take_disposition(self, disposition: Disposition) -> None:
        if not self._sends or disposition.role is not ROLE_RECEIVER:
            return
        last = disposition.first if disposition.last is None else disposition.last
        count = ((last - disposition.first) & MASK) + 1
        if count > self._next_out:
            raise PeerError("bad-frame", "messages were settled that were never sent")
        state = disposition.state
        if state is None and not disposition.settled:
            return
        self.outcomes += [((disposition.first + n) & MASK, state) for n in range(count)]
        if not disposition.settled:
            ours = Disposition(
                role=ROLE_SENDER, first=disposition.first, last=last, settled=True, state=state
            )
            self._out += frame(ours)

    def _take_end(self, ended: Detach | End | Close) -> None:
        if ended.error is not None:
            raise _told(ended.error)
        if self.state is not State.CLOSING:
            what = {Detach: "the link", End: "the session"}.get(type(ended), "the connection")
            raise PeerError("closed", f"the gateway closed {what} without a reason")
        if isinstance(ended, Close):
            self.state = State.CLOSED

    # ---- what is wanted

    @property
    def sendable(self) -> bool:
        """Whether a message may be sent now."""
        return self.state is State.ATTACHED and self.credit > 0 and not self._waiting

    def send(self, message: bytes) -> int:
        """Send a message, which takes one of the credit; returns its number."""
        number = self._delivery_count
        self._delivery_count = (number + 1) & MASK
        self.credit -= 1
        self._waiting += self._transfers(number, message)
        self._pump()
        return number

    def _transfers(self, number: int, message: bytes) -> Iterator[bytes]:
        """Cut a message into frames."""
        first, at, size = True, 0, len(message)
        while first or at < size:
            more = _transfer(number, first=first, more=True)
            after = min(at + self._frame_max - len(frame(more)), size)
            head = more if after < size else _transfer(number, first=first, more=False)
            yield frame(head, payload=message[at:after])
            first, at = False, after

    def _pump(self) -> None:
        while self._waiting and self._window > 0:
            self._out += self._waiting.popleft()
            self._window -= 1
            self._next_out = (self._next_out + 1) & MASK

    def ask(self, credit: int) -> None:
        """Have the peer send up to `credit` messages from now on."""
        self.credit = credit
        self._flush()
        self._say_flow()

    def _say_flow(self) -> None:
        link = not self._sends and self.state is State.ATTACHED
        flow = Flow(
            next_incoming_id=self._next_in,
            incoming_window=_WINDOW,
            next_outgoing_id=self._next_out,
            outgoing_window=_WINDOW,
            handle=0 if link else None,
            delivery_count=self._delivery_count if link else None,
            link_credit=self.credit if link else None,
        )
        self._out += frame(flow)

    def settle(self, number: int, state: DeliveryState) -> None:
        """Settle a message that came."""
        self._settled.append((number, state))

    def _flush(self) -> None:
        """Write outcomes of neighbours as one frame."""
        settled, self._settled = self._settled, []
        at = 0
        while at < len(settled):
            first, state = settled[at]
            count = 1
            while at + count < len(settled) and settled[at + count] == (first + count, state):
                count += 1
            last = first + count - 1
            disposition = Disposition(
                role=ROLE_RECEIVER, first=first, last=last, settled=True, state=state
            )
            self._out += frame(disposition)
            at += count

    def close(self) -> None:
        """Say goodbye; the peer's close makes it CLOSED."""
        if self.state in (State.OPENING, State.ATTACHED):
            self._flush()
            self._out += frame(Close())
            self.state = State.CLOSING
        elif self.state is State.SASL:
            self.state = State.CLOSED


def _transfer(number: int, *, first: bool, more: bool) -> Transfer:
    """Return the performative of a message's first frame, or of a later one."""
    if not first:
        return Transfer(handle=0, more=more)
    tag = number.to_bytes(4, "big")
    return Transfer(handle=0, delivery_id=number, delivery_tag=tag, message_format=0, more=more)


def _told(error: Error) -> PeerError:
    """Return what the peer says went wrong, under the gateway's own code where it gives one."""
    code = (error.info or {}).get("x-reason") or error.condition
    return PeerError(str(code), str(error.description or error.condition))


def refusal(state: DeliveryState | None) -> PeerError:
    """Return why a message was rejected."""
    error = getattr(state, "error", None)
    return _told(error) if error is not None else PeerError("refused", "no reason was given")


def _not_amqp(start: bytes) -> PeerError:
    if start[0] == _TLS_ALERT:
        return PeerError("not-connected", "it expects TLS", attempt="--url amqps://HOST:PORT")
    if start[:4] == b"AMQP" and len(start) >= len(AMQP_HEADER):
        said = "-".join(str(part) for part in start[5:8])
        kind = {0: "AMQP", 2: "AMQP over TLS", 3: "SASL"}.get(start[4], "AMQP")
        text = f"it wants {kind} {said}, not AMQP 1.0 with SASL"
        return PeerError("not-connected", text)
    return PeerError("not-connected", "what answers there is no AMQP 1.0")
