"""What comes before an AMQP connection is open: protocol headers and SASL [AMQP 2.2, 5.3], sans-IO.

All that comes until then is bounded together. No AMQP frame is looked at before SASL is through.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from gateway.model.peers import Cause
from gateway.model.ports import Authenticator
from protocols.amqp.conditions import RESOURCE_LIMIT, ConnectionFaultError
from protocols.amqp.frames import HEAD_BYTES, SASL_FRAME, frame_size
from protocols.amqp.headers import AMQP_HEADER, SASL_HEADER, not_spoken
from protocols.amqp.sasl import FRAME_BYTES_MAX as SASL_BYTES_MAX
from protocols.amqp.sasl import Exchanges, SaslServer

if TYPE_CHECKING:
    from protocols.amqp.connection import AmqpConnection


class State(Enum):
    """What comes next on a connection; see `protocols.amqp.connection`."""

    HEADER = "header"
    SASL = "sasl"
    AMQP_HEADER = "amqp-header"
    OPEN = "open"
    OPENED = "opened"
    CLOSED = "closed"


class Entrance:
    """That of one connection.

    Attributes:
        need: how many bytes must be there before `take` can take one more step.
    """

    __slots__ = ("_authenticator", "_came", "_connection", "_exchanges", "_sasl", "need")

    def __init__(
        self, connection: AmqpConnection, authenticator: Authenticator, exchanges: Exchanges
    ) -> None:
        self._connection = connection
        self._authenticator = authenticator
        self._exchanges = exchanges
        self._sasl: SaslServer | None = None
        self._came = 0
        self.need = HEAD_BYTES

    def take(self, data: bytes, at: int, end: int) -> int:
        """Take a header or frame before open; returns its bytes, 0 when more must come.

        Raises ConnectionFaultError.
        """
        connection = self._connection
        state = connection.state
        self.need = HEAD_BYTES
        most = connection.limits.prelogin_bytes
        if state in (State.HEADER, State.AMQP_HEADER):
            size = HEAD_BYTES
        elif state is State.SASL and not self._sasl_wants():
            # A password is being checked: what comes meanwhile waits, up to the same limit.
            size = most + 1 if end - at > most else 0
            self.need = most + 1
        elif state is State.SASL:
            size = frame_size(data, at, SASL_BYTES_MAX)
        else:
            size = frame_size(data, at, connection.limits.max_frame_size)
        if self._came + size > most:
            raise ConnectionFaultError(
                RESOURCE_LIMIT, f"More than {most} bytes came before open; that is the limit."
            )
        if end - at < size:
            self.need = size
            return 0
        self._came += size
        if size and state in (State.HEADER, State.AMQP_HEADER):
            self._header(data[at : at + size])
        elif size and state is State.SASL:
            self._sasl_frame(data, at, at + size)
        elif size:
            connection.take_frame(data, at, at + size)
        return size

    def abandon(self) -> None:
        """The connection is over: nobody waits for the outcome of a login any more."""
        if self._sasl is not None:
            self._sasl.abandon()

    def _header(self, header: bytes) -> None:
        """Take a protocol header [AMQP 2.2]."""
        connection = self._connection
        limits = connection.limits
        if header == AMQP_HEADER:
            if connection.state is State.HEADER and not (
                limits.anonymous and self._authenticator.open
            ):
                connection.write(SASL_HEADER)
                connection.cut("login is needed, and came without SASL", Cause.LOGIN_REFUSED)
                return
            connection.write(AMQP_HEADER)
            connection.state = State.OPEN
        elif header == SASL_HEADER and connection.state is State.HEADER:
            connection.write(SASL_HEADER)
            anonymous = limits.anonymous and self._authenticator.open
            mechanisms = (*limits.sasl, *(("ANONYMOUS",) if anonymous else ()))
            self._sasl = SaslServer(
                self._authenticator, mechanisms, self._sasl_answered, exchanges=self._exchanges
            )
            connection.state = State.SASL
            self._write_sasl()
        else:
            connection.write(SASL_HEADER if connection.state is State.HEADER else AMQP_HEADER)
            connection.cut(not_spoken(header))

    def _sasl_wants(self) -> bool:
        """Whether another SASL frame may be read now."""
        return self._sasl is not None and self._sasl.wants_input

    def _sasl_frame(self, data: bytes, at: int, end: int) -> None:
        if data[at + 5] != SASL_FRAME:
            self._connection.cut("a frame other than SASL's came before login")
            return
        assert self._sasl is not None, "in state SASL"
        self._sasl.receive_body(data[at + 4 * data[at + 4] : end])
        self._write_sasl()

    def _write_sasl(self) -> None:
        assert self._sasl is not None, "SASL has begun"
        connection = self._connection
        for body in self._sasl.frames_to_send():
            head = (len(body) + HEAD_BYTES).to_bytes(4, "big") + b"\x02\x01\x00\x00"
            connection.write(head + body)
        if self._sasl.outcome is True:
            connection.user = self._sasl.user
            if connection.user is not None and self._authenticator.proves(connection.user):
                connection.open_links.user = connection.user
            self._sasl = None
            connection.state = State.AMQP_HEADER
        elif self._sasl.outcome is False:
            connection.cut(self._sasl.reason, Cause.LOGIN_REFUSED)

    def _sasl_answered(self) -> None:
        """The authenticator has answered, on a later turn: go on with what came meanwhile."""
        connection = self._connection
        if connection.state is not State.SASL:
            return
        self._write_sasl()
        connection.go_on(connection.now)
        connection.wake()
