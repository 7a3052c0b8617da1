"""Who is connected, by container: what one container's connections owe one another. Cold.

A link is known by its container, name and direction: attached again on its connection it is stolen
[AMQP 2.6.1]. On another connection of its container and user only a durable subscription of its own
is, so that a client which comes back after a cut does not wait until its old connection is found
dead. Other links are left alone: Proton's Container opens all its connections under one
container-id, and names links by their address, so that two of its receivers would rob each other.

A client that desires `sole-connection-for-container` says what happens when there are others:
`refuse-connection` (the default) or `close-existing`. Others need not have desired it. With another
user's connections the new one is refused in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from gateway.model.amqp_types import Symbol, Value
from gateway.model.principal import Principal
from protocols.amqp.conditions import INVALID_FIELD, RESOURCE_LOCKED, ConnectionFaultError
from protocols.amqp.performatives import Error, Open
from protocols.amqp.session import AmqpSession

SOLE_CONNECTION: Final = "sole-connection-for-container"
#: The property of an open that says what the new connection does to others, and its values.
POLICY: Final = "sole-connection-enforcement-policy"
REFUSE_CONNECTION: Final = 0
CLOSE_EXISTING: Final = 1


class ContainedConnection(Protocol):
    """A connection, as others of its container see it."""

    @property
    def principal(self) -> Principal:
        """For whom it acts."""

    @property
    def container(self) -> str:
        """How its peer calls itself."""

    @property
    def sessions(self) -> Mapping[int, AmqpSession]:
        """Those that are begun, by channel."""

    def fail(self, error: Error) -> None:
        """Close it with a condition."""

    @property
    def wake(self) -> Callable[[], None]:
        """Has written what there is to write."""


class Containers:
    """The open connections of all acceptors."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[str, list[ContainedConnection]] = {}

    def enter(self, connection: ContainedConnection, opened: Open) -> None:
        """A connection says open. Raises ConnectionFaultError when it is not to be there."""
        name = opened.container_id
        others = self._open.get(name, [])
        if SOLE_CONNECTION in opened.desired_capabilities:
            policy = _policy_of(opened)
            strangers = any(not _same_user(connection, other) for other in others)
            if others and (policy == REFUSE_CONNECTION or strangers):
                raise _refused(name)
            for other in list(others):
                other.fail(_displaced(name))
                other.wake()
        self._open.setdefault(name, []).append(connection)

    def leave(self, connection: ContainedConnection) -> None:
        """A connection is over; one that never was there changes nothing."""
        here = self._open.get(connection.container, [])
        if connection in here:
            here.remove(connection)
            if not here:
                del self._open[connection.container]

    def steal(self, connection: ContainedConnection, name: str, *, incoming: bool) -> None:
        """Detach a link that a connection attaches, where it is attached already.

        What it held is back in its queue when this returns.
        """
        if any(s.handles.stolen(name, incoming=incoming) for s in connection.sessions.values()):
            return
        for other in self._open.get(connection.container, []) if not incoming else ():
            if other is connection or not _same_user(connection, other):
                continue
            for session in other.sessions.values():
                if session.handles.subscribes(name) and session.handles.stolen(
                    name, incoming=False
                ):
                    other.wake()
                    return


def _same_user(one: ContainedConnection, other: ContainedConnection) -> bool:
    """Whether both logged in as one user; those without a name are one."""
    return (one.principal.user or None) == (other.principal.user or None)


def _policy_of(opened: Open) -> int:
    value = (opened.properties or {}).get(POLICY, REFUSE_CONNECTION)
    if isinstance(value, bool) or value not in (REFUSE_CONNECTION, CLOSE_EXISTING):
        raise ConnectionFaultError(
            INVALID_FIELD,
            f"The property {POLICY!r} is {value!r}; it is 0 (refuse-connection) or 1 "
            "(close-existing).",
        )
    return int(value)


def _refused(name: str) -> ConnectionFaultError:
    fault = ConnectionFaultError(
        INVALID_FIELD,
        f"Container {name!r} is connected already, and this connection desires to be its only "
        f"one ({SOLE_CONNECTION}); close the other one first.",
    )
    info: dict[str, Value] = {Symbol("invalid-field"): Symbol("container-id")}
    fault.error = replace(fault.error, info=info)
    return fault


def _displaced(name: str) -> Error:
    return Error(
        condition=RESOURCE_LOCKED,
        description=f"Container {name!r} has opened another connection that is to be its only one.",
        info={Symbol("sole-connection-enforcement"): True},
    )
