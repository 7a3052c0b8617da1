"""What the gateway's heart is made of, by name; `gateway.broker.gateway` makes and joins the parts.

Slots, since beyond thirty attributes an object's methods are looked up anew at each call (measured
with AMQP messages one by one: a tenth of all that is done for a message).
"""

from __future__ import annotations


class Parts:
    """The names alone."""

    __slots__ = (
        "_blocked",
        "_clock_ms",
        "_make_name",
        "_now_ms",
        "_recovering",
        "branches",
        "busy",
        "chance",
        "directory",
        "disk",
        "duplicates",
        "durable",
        "failure",
        "figures",
        "forecast",
        "fullness",
        "holds",
        "lag",
        "listeners",
        "memory",
        "memory_max",
        "messages",
        "messages_max",
        "mover",
        "pager",
        "reaper",
        "received",
        "retro",
        "settings",
        "slow",
        "store",
        "streams",
        "timetable",
        "touched",
        "turn",
        "visible",
    )
