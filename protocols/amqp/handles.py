"""The links of one session, by their handles [AMQP 2.6.2-2.6.6]: attached, detached, stolen. Cold.

    free     -- the peer attaches                -> attached; leaving when we refuse
    attached -- the peer detaches                -> free
    attached -- we detach, or it is stolen       -> leaving
    leaving  -- the peer detaches                -> free

A frame on a leaving handle was under way when we detached its link, and is passed over.
"""

from __future__ import annotations

from typing import Final, Protocol

from gateway.model.errors import RefusedError
from protocols.amqp.attaching import attach_incoming, attach_outgoing
from protocols.amqp.conditions import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    STOLEN,
    UNATTACHED_HANDLE,
    ConnectionFaultError,
    SessionFaultError,
    error_of,
)
from protocols.amqp.connection_port import ConnectionPort
from protocols.amqp.incoming import IncomingLink
from protocols.amqp.outgoing import OutgoingLink
from protocols.amqp.performatives import ROLE_SENDER, Attach, Detach, Error
from protocols.amqp.ports import Link, SessionPort

#: The largest handle that a session may have [security defaults].
HANDLE_MAX: Final = 255


class AttachingSession(SessionPort, Protocol):
    """A session, as the table of its links sees it."""

    def flush_accepted(self) -> None:
        """Write the ranges that are accepted: they come before the end of their link."""

    def flush_flows(self) -> None:
        """Write credit and window updates."""

    def forget_frames(self, link: Link) -> None:
        """A link is gone: what still waits to be sent on it is not sent."""


class Handles:
    """See the module text.

    Attributes:
        links: those that are attached; the session reads the same table.
    """

    __slots__ = ("_connection", "_handle_max", "_leaving", "_session", "links")

    def __init__(
        self, session: AttachingSession, connection: ConnectionPort, handle_max: int
    ) -> None:
        """Begin without links; `handle_max` is the largest handle that the peer takes."""
        self._session = session
        self._connection = connection
        self._handle_max = min(HANDLE_MAX, handle_max)
        self.links: dict[int, IncomingLink | OutgoingLink] = {}
        self._leaving: set[int] = set()  # we detached them and the peer did not yet

    def leaving(self, handle: int) -> bool:
        """Whether we detached the link of a handle, and the peer may not know it."""
        return handle in self._leaving

    # ---- the peer's word

    def attach(self, attach: Attach) -> None:
        """Open a link, or refuse it. Raises SessionFaultError, ConnectionFaultError."""
        handle = attach.handle
        if handle > self._handle_max:
            raise ConnectionFaultError(
                FRAMING_ERROR,
                f"Handle {handle} is above the handle-max of {self._handle_max} [AMQP 2.7.2].",
            )
        if handle in self.links or handle in self._leaving:
            raise SessionFaultError(
                HANDLE_IN_USE, f"Handle {handle} is in use; detach its link first."
            )
        connection, session = self._connection, self._session
        connection.steal(attach.name, incoming=attach.role is ROLE_SENDER)
        try:
            connection.open_links.check(attach)
            link = (
                attach_incoming(session, attach)
                if attach.role is ROLE_SENDER
                else attach_outgoing(session, attach)
            )
        except RefusedError as error:
            self._refuse_attach(attach, error_of(error.refusal))
            return
        self.links[handle] = link
        connection.open_links.opened(link)
        if connection.closing:
            # The answer did not fit the peer's frames: the link is there, and its connection not.
            self.close(lost=False)
        elif isinstance(link, IncomingLink):
            link.grant()
            session.flush_flows()

    def _refuse_attach(self, attach: Attach, error: Error) -> None:
        """Answer with a null terminus, then detach with the reason [AMQP 2.6.3]."""
        incoming = attach.role is ROLE_SENDER
        source = attach.source if incoming else None
        target = None if incoming else attach.target
        self._session.write_frame(
            Attach(
                name=attach.name,
                handle=attach.handle,
                role=not attach.role,
                source=source,
                target=target,
                initial_delivery_count=None if incoming else 0,
            )
        )
        self._session.write_frame(Detach(handle=attach.handle, closed=True, error=error))
        self._leaving.add(attach.handle)
        self._connection.seen.mistaken(error)

    def detach(self, detach: Detach) -> None:
        """The peer ends a link. Raises SessionFaultError where there is none."""
        link = self.links.get(detach.handle)
        if link is None:
            if detach.handle not in self._leaving:
                raise SessionFaultError(
                    UNATTACHED_HANDLE,
                    f"A detach came for handle {detach.handle}, on which nothing is attached.",
                )
            self._leaving.discard(detach.handle)
            return
        self._session.flush_accepted()
        error = self._end(link, closed=detach.closed)
        self._session.write_frame(Detach(handle=link.handle, closed=detach.closed, error=error))

    # ---- our word

    def end_with(self, link: Link, error: Error) -> None:
        """End a link that its peer has not ended: what it holds it may have seen."""
        self._session.flush_accepted()
        self._end(link, closed=False, lost=True)
        self._session.write_frame(Detach(handle=link.handle, closed=True, error=error))
        self._leaving.add(link.handle)

    def stolen(self, name: str, *, incoming: bool) -> bool:
        """Detach a link of this name if it is here: the peer attached it anew [AMQP 2.6.1]."""
        for link in self.links.values():
            if link.name == name and isinstance(link, IncomingLink) is incoming:
                told = f"Link {name!r} was attached again."
                self.end_with(link, Error(condition=STOLEN, description=told))
                if isinstance(link, OutgoingLink) and link.lingers:
                    self._connection.transactions.robbed(link)
                return True
        return False

    def close(self, *, lost: bool) -> None:
        """End all links; `lost`: not by the peer's word, who may have seen what it holds."""
        links = list(self.links.values())
        for link in links:
            link.end(closed=False, lost=lost)
            self._drop(link)
        # Behind all links: none of them is told that a node which goes with another one is gone.
        for link in links:
            self._connection.nodes.detached(link.temporary)

    # ---- for both

    def _end(self, link: Link, *, closed: bool, lost: bool = False) -> Error | None:
        """End a link; `closed`: for good, so that a durable subscription goes as well."""
        error = link.end(closed=closed, lost=lost)
        self._drop(link)
        self._connection.nodes.detached(link.temporary)
        return error

    def _drop(self, link: Link) -> None:
        if self.links.pop(link.handle, None) is not None:
            # What lingers for a transaction goes on to count: the peer decides for how long.
            if not (isinstance(link, OutgoingLink) and link.lingers):
                self._connection.open_links.gone(link)
            self._connection.shapes.clear()
            self._session.forget_frames(link)

    def unfinished_in(self, name: bytes) -> bool:
        """Whether a delivery of several frames is under way in a transaction of this name."""
        links = self.links.values()
        return any(isinstance(one, IncomingLink) and one.posting_in == name for one in links)

    def subscribes(self, name: str) -> bool:
        """Whether a link of this name has a durable subscription to itself."""
        links = self.links.values()
        return any(o.name == name and isinstance(o, OutgoingLink) and o.sole for o in links)
