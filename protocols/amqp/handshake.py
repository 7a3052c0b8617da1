"""What comes before an AMQP connection is open [AMQP 2.2, 2.4.1, 5.3], as a machine, sans-IO.

    stage        input             what follows
    HEADER       header 3 (SASL)   ours, and the mechanisms; SASL
    HEADER       header 0 (AMQP)   ours; OPEN. Where a login is needed that of SASL; REFUSED
    SASL         SASL frame        what the SASL server says; LOGGED_IN, LOGIN_FAILED at its end
    LOGGED_IN    header 0 (AMQP)   ours; OPEN
    OPEN         open              OPENED, if it may be taken
    OPENED, LOGIN_FAILED, REFUSED  nothing: the handshake is over

Every other header is answered with the one that would fit, and REFUSED; a frame that is not SASL's
is LOGIN_FAILED. All that comes is bounded together. No AMQP frame is looked at before SASL is
through. The connection writes what this machine says, and does what its stage asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, assert_never

from gateway.model.peers import Cause
from gateway.model.ports import Authenticator
from gateway.model.principal import ANYBODY
from protocols.amqp.conditions import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    ConnectionFaultError,
)
from protocols.amqp.frames import AMQP_FRAME, HEAD_BYTES, SASL_FRAME, decode_frame, frame_size
from protocols.amqp.headers import AMQP_HEADER, SASL_HEADER, not_spoken
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import Composite, Open
from protocols.amqp.sasl import Exchanges, SaslServer

#: The smallest max-frame-size that a peer may have [AMQP 2.7.1].
FRAME_MIN: Final = 512
#: Time-outs of a peer shorter than this would have us do little else than keep it alive.
_IDLE_MS_MIN: Final = 100


class Stage(Enum):
    """How far the handshake is; see the module text."""

    HEADER = "header"
    SASL = "sasl"
    LOGGED_IN = "logged-in"
    OPEN = "open"
    OPENED = "opened"
    LOGIN_FAILED = "login-failed"
    REFUSED = "refused"


class Handshake:
    """That of one connection.

    Attributes:
        stage: see the module text.
        need: how many bytes must be there before `take` can take one more step.
        principal: for whom the peer acts.
        opened: the peer's open, once the stage is OPENED.
        reason: why it failed or was refused, for the log.
        cause: what that was, for an operator.
    """

    __slots__ = (
        "_authenticator",
        "_came",
        "_exchanges",
        "_limits",
        "_out",
        "_sasl",
        "_wake",
        "cause",
        "need",
        "opened",
        "principal",
        "reason",
        "stage",
    )

    def __init__(
        self,
        authenticator: Authenticator,
        limits: AmqpLimits,
        exchanges: Exchanges,
        wake: Callable[[], None],
    ) -> None:
        """Begin; `wake` is called when the authenticator has answered, on a later turn."""
        self._authenticator = authenticator
        self._limits = limits
        self._exchanges = exchanges
        self._wake = wake
        self._sasl: SaslServer | None = None
        self._out: list[bytes] = []
        self._came = 0
        self.stage = Stage.HEADER
        self.need = HEAD_BYTES
        self.principal = ANYBODY
        self.opened: Open | None = None
        self.reason = ""
        self.cause = Cause.PROTOCOL_ERROR

    @property
    def speaks_amqp(self) -> bool:
        """Whether the headers are through: a close is understood from here on."""
        return self.stage in (Stage.OPEN, Stage.OPENED)

    @property
    def condition(self) -> str:
        """What it is to end the handshake at this stage."""
        return UNAUTHORIZED if self.stage in (Stage.SASL, Stage.LOGIN_FAILED) else FRAMING_ERROR

    def data_to_send(self) -> list[bytes]:
        """Return what is to be written now, and forget it."""
        out, self._out = self._out, []
        return out

    def abandon(self) -> None:
        """The connection is over: nobody waits for the outcome of a login any more."""
        if self._sasl is not None:
            self._sasl.abandon()

    def take(self, data: bytes, at: int, end: int) -> int:
        """Take a header or frame; returns its bytes, 0 when more must come.

        Raises ConnectionFaultError.
        """
        self.need = HEAD_BYTES
        size = self._size(data, at, end)
        most = self._limits.prelogin_bytes
        if self._came + size > most:
            raise ConnectionFaultError(
                RESOURCE_LIMIT, f"More than {most} bytes came before open; that is the limit."
            )
        if end - at < size:
            self.need = size
            return 0
        self._came += size
        if size:
            self._act(data, at, at + size)
        return size

    def _size(self, data: bytes, at: int, end: int) -> int:
        """Return how many bytes come next; 0 while what comes has to wait."""
        match self.stage:
            case Stage.HEADER | Stage.LOGGED_IN:
                return HEAD_BYTES
            case Stage.SASL if self._sasl is not None and self._sasl.wants_input:
                return frame_size(data, at, self._limits.sasl_frame_max)
            case Stage.SASL:
                # A password is being checked: what comes meanwhile waits, up to the same limit.
                self.need = self._limits.prelogin_bytes + 1
                return self.need if end - at >= self.need else 0
            case Stage.OPEN:
                return frame_size(data, at, self._limits.max_frame_size)
            case Stage.OPENED | Stage.LOGIN_FAILED | Stage.REFUSED:
                raise AssertionError("the handshake is over")
            case _:
                assert_never(self.stage)

    def _act(self, data: bytes, at: int, end: int) -> None:
        match self.stage:
            case Stage.HEADER:
                self._first_header(data[at:end])
            case Stage.LOGGED_IN:
                self._out.append(AMQP_HEADER)
                if data[at:end] == AMQP_HEADER:
                    self.stage = Stage.OPEN
                else:
                    self._refuse(not_spoken(data[at:end]))
            case Stage.SASL:
                self._sasl_frame(data, at, end)
            case Stage.OPEN:
                self._first_frame(data, at, end)
            case Stage.OPENED | Stage.LOGIN_FAILED | Stage.REFUSED:
                raise AssertionError("the handshake is over")
            case _:
                assert_never(self.stage)

    def _first_header(self, header: bytes) -> None:
        """Take the first protocol header [AMQP 2.2]."""
        anonymous = self._limits.anonymous and self._authenticator.open
        if header == AMQP_HEADER and anonymous:
            self.principal = self._authenticator.anybody(None)
            self._out.append(AMQP_HEADER)
            self.stage = Stage.OPEN
            return
        self._out.append(SASL_HEADER)
        if header == AMQP_HEADER:
            self._refuse("login is needed, and came without SASL", Cause.LOGIN_REFUSED)
        elif header == SASL_HEADER:
            mechanisms = (*self._limits.sasl, *(("ANONYMOUS",) if anonymous else ()))
            self._sasl = SaslServer(
                self._authenticator,
                mechanisms,
                self._answered,
                exchanges=self._exchanges,
                frame_max=self._limits.sasl_frame_max,
            )
            self.stage = Stage.SASL
            self._tell_sasl(self._sasl)
        else:
            self._refuse(not_spoken(header))

    def _refuse(self, reason: str, cause: Cause = Cause.PROTOCOL_ERROR) -> None:
        self.stage = Stage.REFUSED
        self.reason, self.cause = reason, cause

    # ---- SASL

    def _sasl_frame(self, data: bytes, at: int, end: int) -> None:
        if data[at + 5] != SASL_FRAME:
            self.stage = Stage.LOGIN_FAILED
            self.reason = "a frame other than SASL's came before login"
            return
        sasl = self._sasl
        assert sasl is not None, "in stage SASL"
        sasl.receive_body(data[at + 4 * data[at + 4] : end])
        self._tell_sasl(sasl)

    def _tell_sasl(self, sasl: SaslServer) -> None:
        """Pass on what the SASL server says, and its outcome if there is one."""
        for body in sasl.frames_to_send():
            head = (len(body) + HEAD_BYTES).to_bytes(4, "big") + b"\x02\x01\x00\x00"
            self._out.append(head + body)
        if sasl.outcome is True:
            assert sasl.principal is not None, "let in, and nobody"
            self.principal = sasl.principal
            self._sasl = None
            self.stage = Stage.LOGGED_IN
        elif sasl.outcome is False:
            self.stage = Stage.LOGIN_FAILED
            self.reason, self.cause = sasl.reason, Cause.LOGIN_REFUSED

    def _answered(self) -> None:
        """The authenticator has answered, on a later turn."""
        if self.stage is Stage.SASL and self._sasl is not None:
            self._tell_sasl(self._sasl)
            self._wake()

    # ---- open

    def _first_frame(self, data: bytes, at: int, end: int) -> None:
        if at + 4 * data[at + 4] == end and data[at + 5] == AMQP_FRAME:
            return  # an empty frame: the peer is alive
        performative, _ = decode_frame(data, at, end)
        self.opened = _check_open(int.from_bytes(data[at + 6 : at + 8], "big"), performative)
        self.stage = Stage.OPENED


def _check_open(channel: int, performative: Composite) -> Open:
    """Return the first frame of a peer as the open that it must be [AMQP 2.7.1].

    Raises ConnectionFaultError.
    """
    if not isinstance(performative, Open):
        raise ConnectionFaultError(
            ILLEGAL_STATE,
            f"The first frame must be an open; yours is {performative.layout.name}.",
        )
    if channel:
        raise ConnectionFaultError(
            FRAMING_ERROR, f"The open came on channel {channel}; its place is channel 0."
        )
    if performative.max_frame_size < FRAME_MIN:
        raise ConnectionFaultError(
            FRAMING_ERROR,
            f"max-frame-size {performative.max_frame_size} is below {FRAME_MIN} [AMQP 2.7.1].",
        )
    if not performative.container_id:
        raise ConnectionFaultError(NOT_ALLOWED, "The container-id is empty.")
    if performative.idle_time_out and performative.idle_time_out < _IDLE_MS_MIN:
        raise ConnectionFaultError(
            NOT_ALLOWED,
            f"idle-time-out {performative.idle_time_out} ms is below {_IDLE_MS_MIN} ms.",
        )
    return performative
