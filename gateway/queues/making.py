"""Messages of a run, made for one queue. Hot: an object a message, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from gateway.model.message import EXPIRES, SCHEDULED, SHARED, Message, Share, SharedMessage
from gateway.model.run import MixedRun, Run


def made(run: Run, first: int, shares: Sequence[Share], origin: str) -> tuple[list[Message], int]:
    """Return the messages of a run with their flags; the first has seq `first`.

    `shares`, one for each body, belong to what other queues get as well; empty: to none.
    """
    flags, expires = run.flags, run.expires
    seqs = range(first, first + run.count)
    if shares:
        assert len(shares) == run.count, "a share for each"
        flags |= SHARED
        messages: list[Message] = list(map(SharedMessage, run.bodies, seqs, repeat(flags), shares))
    else:
        messages = list(map(Message, run.bodies, seqs, repeat(flags)))
    if expires:
        for message in messages:
            message.expires = expires
    if origin:
        for message in messages:
            message.origin = origin
    if flags & SCHEDULED:
        for message in messages:
            message.due = run.due
    return messages, flags


def made_mixed(run: MixedRun, first: int) -> list[Message]:
    """Return the messages of a run that differ in flags or expiry, and are for now."""
    messages = list(map(Message, run.bodies, range(first, first + run.count), run.flags))
    if any(run.expires):
        for message, expires in zip(messages, run.expires, strict=True):
            if message.flags & EXPIRES:
                message.expires = expires
    return messages
