"""What our open says, and what a begin must say to be taken [AMQP 2.7.1, 2.7.2]. Cold; pure."""

from __future__ import annotations

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
from protocols.amqp.performatives import Begin, Fields, Open


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
    """Raise ConnectionFaultError for a begin on a channel that cannot have a session."""
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
