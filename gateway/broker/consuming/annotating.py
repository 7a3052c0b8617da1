"""Annotations that a consumer adds to messages it gives back [AMQP 3.4.5, `modified`].

They are merged into the message-annotations; one of the same name is replaced. Only this queue's
message changes: copies in other queues keep the bytes that they had in common, and from then on
each pays for its own. The change is in memory: the journal and pages have the message as it was
sent. A dead letter is another message, and is stored with what was merged.

Ignored, since the outcome itself must still hold: for messages from STOMP, which have no
annotations; in a queue that keeps its messages, which others are shown as well; where the sections
cannot be read; and where the message would grow beyond its limit, or the gateway beyond its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.broker.pressure.load import Load
from gateway.model.amqp_types import DecodeError, EncodeError, Value
from gateway.model.message import PAGED, SHARED, STOMP, Message
from gateway.model.sections import peek, with_annotations
from gateway.queues.queue import Queue


def annotate(
    load: Load, queue: Queue, messages: list[Message], add: Mapping[str, Value], size_max: int
) -> None:
    """Merge annotations into messages in delivery; `size_max`: bytes of one, no more."""
    if queue.keeps:
        return
    for message in queue.out.unmarked(messages):
        if message.flags & STOMP:
            continue
        try:
            body = with_annotations(message.body, add)
            if len(body) > max(size_max, len(message.body)):
                continue
            _ = peek(body).message_annotations  # together they may be too many to be read
        except (DecodeError, EncodeError):
            continue
        _replace(load, queue, message, body)


def _replace(load: Load, queue: Queue, message: Message, body: bytes) -> None:
    """Give a message other bytes, and account for them, if the gateway has room for more."""
    growth = charge = len(body) - len(message.body)
    parts = bool(message.flags & SHARED and message.share[0] > 1)
    if parts and not message.flags & PAGED:
        charge = len(body)  # the others go on paying for what they had in common
    if charge > 0 and load.memory + charge > load.memory_max:
        return
    message.body = body
    queue.counts.size_bytes += growth
    if message.flags & PAGED:
        return  # it counts on its page, until it is gone
    account = queue.account
    assert account is not None, "a queue without address"
    if message.flags & SHARED:
        message.share[0] -= 1
        message.flags &= ~SHARED
    load.memory += charge
    account.size_bytes += charge
    load.messages += parts
    account.messages += parts
