"""Messages of a queue whose definition was lost: they get a queue of their own. Pure.

Those of a queue that was deleted do not: they are in the journal until their segment goes.

A queue is defined in the batch of its first message, and again at the begin of each segment. When
that batch rots before the next segment begins, a salvage keeps the other messages but nobody knows
what their queue was called.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.model.address import RoutingType
from gateway.model.definitions import FIRST_QUEUE_ID, QueueDefinition
from gateway.model.message import STOMP, Message
from gateway.store.persistence import Restored

#: What an encoded AMQP section begins with [AMQP 1.6.4]; duplicate ids are kept like messages.
_SECTION = b"\x00"


def adopted_name(queue_id: int) -> str:
    """Return what the queue of a lost definition is called from now on."""
    return f"salvaged.{queue_id}"


def orphaned(numbers: Iterable[int], restored: Restored) -> list[int]:
    """Return which of `numbers`, that have messages, are queues that nothing defines or deletes."""
    known = restored.deleted | {definition.queue_id for definition in restored.queues}
    known.update(definition.ids_id for definition in restored.ids)
    return sorted(n for n in numbers if n >= FIRST_QUEUE_ID and n not in known)


def adopt(restored: Restored) -> list[QueueDefinition]:
    """Define a queue for all such messages; returns what was added to `restored`."""
    held = [n for n, messages in restored.messages.items() if any(map(_is_message, messages))]
    found = [
        QueueDefinition(
            queue_id=number,
            name=adopted_name(number),
            address=adopted_name(number),
            routing=RoutingType.ANYCAST,
        )
        for number in orphaned(held, restored)
    ]
    restored.queues += found
    return found


def _is_message(message: Message) -> bool:
    return bool(message.flags & STOMP) or message.body.startswith(_SECTION)
