"""The channels of one AMQP connection, and the sessions on them [AMQP 2.5].

free  -- the peer begins        -> begun
begun -- the peer ends          -> free, and told so
begun -- the peer breaks a rule -> ended by us: what still comes is ignored
ended -- the peer ends          -> free
"""

from __future__ import annotations

from typing import Protocol

from protocols.amqp.conditions import NOT_ALLOWED, ConnectionFaultError, SessionFaultError
from protocols.amqp.connection_port import ConnectionPort
from protocols.amqp.opening import check_begin
from protocols.amqp.peer import AmqpPeer
from protocols.amqp.performatives import Begin, Composite, End, Transfer
from protocols.amqp.session import AmqpSession


class ChannelsConnection(ConnectionPort, Protocol):
    """A connection, as the table of its channels sees it.

    Attributes:
        channel_max: the largest channel number that was agreed on.
    """

    channel_max: int

    @property
    def seen(self) -> AmqpPeer:
        """What an operator sees of it."""


class Channels:
    """See the module text.

    Attributes:
        sessions: those that are begun; the connection reads the same table.
    """

    __slots__ = ("_connection", "sessions")

    def __init__(self, connection: ChannelsConnection) -> None:
        self._connection = connection
        self.sessions: dict[int, AmqpSession] = {}

    def begin(self, channel: int, begin: Begin) -> None:
        """Begin a session. Raises ConnectionFaultError."""
        connection = self._connection
        check_begin(channel, begin, connection.channel_max, used=channel in self.sessions)
        session = AmqpSession(connection, channel, begin)
        self.sessions[channel] = session
        session.begin()

    def take(
        self, channel: int, performative: Composite, data: bytes, *, at: int, payload: int, end: int
    ) -> None:
        """Take a frame for a session, which is at `data[at:end]`. Raises ConnectionFaultError."""
        session = self.sessions.get(channel)
        if session is None:
            raise ConnectionFaultError(
                NOT_ALLOWED, f"A frame came on channel {channel}, on which no session was begun."
            )
        if isinstance(performative, End):
            self._end(channel, session)
            return
        if session.ended:
            return
        try:
            session.receive(performative, data[payload:end])
        except SessionFaultError as fault:
            session.end(fault.error)
            self._connection.seen.mistaken(fault.error)
            return
        if isinstance(performative, Transfer) and session.repeats(performative.handle):
            self._connection.shapes.learn(data, at, performative, payload, end)

    def _end(self, channel: int, session: AmqpSession) -> None:
        self._connection.seen.session_over(self.sessions.pop(channel))
        if not session.ended:
            session.end(None)

    def unfinished_in(self, name: bytes) -> bool:
        """Whether a delivery of several frames is under way in a transaction of this name."""
        return any(session.handles.unfinished_in(name) for session in self.sessions.values())

    def flush_accepted(self) -> None:
        """Write what sessions have accepted."""
        connection = self._connection
        if connection.sessions_due:
            due, connection.sessions_due = connection.sessions_due, []
            for session in due:
                session.flush_accepted()

    def resume(self) -> None:
        """There is room again for what sessions send."""
        for session in self.sessions.values():
            session.resume()
            session.finish_drains()

    def close(self, *, lost: bool) -> None:
        """End all links; `lost`: not by the peer's word, which may have seen what they hold."""
        for session in self.sessions.values():
            session.handles.close(lost=lost)

    def forget(self) -> None:
        """The connection is gone, and its sessions with it; their counts stay."""
        for session in self.sessions.values():
            self._connection.seen.session_over(session)
        self.sessions.clear()
