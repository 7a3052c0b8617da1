"""What an open and a begin must say to be taken, and what ours say [AMQP 2.7.1, 2.7.2]. Cold; pure.

Raises ConnectionFaultError.
"""

from __future__ import annotations

from typing import Final

from gateway.model.amqp_types import Symbol
from protocols.amqp.attaching import DELAYED_DELIVERY
from protocols.amqp.conditions import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    ConnectionFaultError,
)
from protocols.amqp.containers import SOLE_CONNECTION
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import Begin, Composite, Fields, Open
from protocols.amqp.session import HANDLE_MAX, INCOMING_WINDOW, OUTGOING_WINDOW, AmqpSession

#: The smallest max-frame-size that a peer may have [AMQP 2.7.1].
FRAME_MIN: Final = 512
#: Time-outs of a peer shorter than this would have us do little else than keep it alive.
_IDLE_MS_MIN: Final = 100


def check_open(channel: int, performative: Composite) -> Open:
    """Return the first frame of a peer as the open that it must be."""
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


def our_open(limits: AmqpLimits, *, failed: bool = False) -> Open:
    """Return what the gateway says of itself; `failed`: a close comes next, nothing else will."""
    told: Fields = {Symbol("amqp:connection-establishment-failed"): True} if failed else {}
    return Open(
        container_id=limits.container_id,
        max_frame_size=limits.max_frame_size,
        channel_max=limits.channel_max,
        idle_time_out=limits.idle_ms // 2 or None,
        offered_capabilities=("ANONYMOUS-RELAY", DELAYED_DELIVERY, "SHARED-SUBS", SOLE_CONNECTION),
        properties={
            "product": "sluicegate",
            "version": limits.version,
            "x-durability": limits.durability,
            **told,
        },
    )


def check_begin(channel: int, begin: Begin, channel_max: int, *, used: bool) -> None:
    """Refuse a begin on a channel that cannot have a session."""
    if channel > channel_max:
        raise ConnectionFaultError(
            FRAMING_ERROR,
            f"Channel {channel} is above the channel-max of {channel_max} [AMQP 2.7.1].",
        )
    if begin.remote_channel is not None:
        raise ConnectionFaultError(
            NOT_ALLOWED,
            f"A begin answers channel {begin.remote_channel}, on which nothing was begun.",
        )
    if used:
        raise ConnectionFaultError(ILLEGAL_STATE, f"Channel {channel} has a session already.")


def our_begin(session: AmqpSession) -> Begin:
    """Return the answer to a begin."""
    return Begin(
        remote_channel=session.channel,
        next_outgoing_id=session.next_outgoing_id,
        incoming_window=INCOMING_WINDOW,
        outgoing_window=OUTGOING_WINDOW,
        handle_max=HANDLE_MAX,
    )
