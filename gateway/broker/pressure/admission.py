"""The one admission point: may this address take another message? Pure; no side effect.

    limit      the address' max-size-bytes / max-size-messages, or the gateway's memory, whichever
               is reached first
    full       size >= limit: the message that reaches a limit is taken, the next one is not
    room again size < limit for FAIL; for BLOCK less than the limit by a tenth of it, at most one
               page: at the limit itself senders would flap

    reject threshold
               beyond it an address with BLOCK refuses what AMQP senders still send on credit that
               they have; STOMP senders have none, they are not read

An address with PAGE goes on with its pages: see `gateway.broker.operations.pager`.

Any way in asks here: AMQP, STOMP, transactions, dead letters, expiry, management.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gateway.addresses.settings import AddressSettings, FullPolicy
from gateway.model.errors import Code, Refusal
from gateway.model.message import STOMP

#: Most bytes below a limit at which held senders are let go: Artemis' page-size-bytes.
PAGE_BYTES: Final = 10 << 20


class Admission(Enum):
    """What is to be done with a message."""

    STORE = "store"
    BLOCK = "block"  # store what came on credit already given, and give no more
    PAGE = "page"  # to page files, and all that follows as well
    DROP = "drop"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an address and the whole gateway hold now."""

    size_bytes: int
    messages: int
    global_bytes: int
    global_bytes_max: int
    global_messages: int = 0
    global_messages_max: int = -1


def full_because(name: str, usage: Usage, settings: AddressSettings) -> Refusal | None:
    """Return which limit is reached, in words, or None when there is room."""
    if 0 <= settings.max_size_bytes <= usage.size_bytes:
        return _full(
            f"Address {name!r} is full: it holds {usage.size_bytes} bytes and "
            f"max-size-bytes is {settings.max_size_bytes}."
        )
    if 0 <= settings.max_size_messages <= usage.messages:
        return _full(
            f"Address {name!r} is full: it holds {usage.messages} messages and "
            f"max-size-messages is {settings.max_size_messages}."
        )
    if usage.global_bytes_max <= usage.global_bytes:
        return Refusal(
            code=Code.MEMORY_FULL,
            transient=True,
            text=f"The gateway holds {usage.global_bytes} bytes of messages and "
            f"global-max-size is {usage.global_bytes_max}. "
            "Consume some, or raise global-max-size.",
        )
    if 0 <= usage.global_messages_max <= usage.global_messages:
        return Refusal(
            code=Code.MEMORY_FULL,
            transient=True,
            text=f"The gateway holds {usage.global_messages} messages and "
            f"global-max-messages is {usage.global_messages_max}. "
            "Consume some, or raise global-max-messages.",
        )
    return None


def room_again(usage: Usage, settings: AddressSettings) -> bool:
    """Return whether senders that were held back may go on."""
    hold = admit_always(settings.address_full_policy)
    return all(
        limit < 0 or use < limit - (min(limit // 10, PAGE_BYTES) if hold else 0)
        for use, limit in (
            (usage.size_bytes, settings.max_size_bytes),
            (usage.messages, settings.max_size_messages),
            (usage.global_bytes, usage.global_bytes_max),
            (usage.global_messages, usage.global_messages_max),
        )
    )


def headroom(usage: Usage, settings: AddressSettings) -> int | None:
    """Return how many bytes fit below the nearest limit; None where none is passed.

    Only BLOCK takes what was promised before: FAIL and DROP end at the limit, PAGE goes on on disk.
    """
    if settings.address_full_policy is not FullPolicy.BLOCK:
        return None
    room = usage.global_bytes_max - usage.global_bytes
    if settings.max_size_bytes >= 0:
        room = min(room, settings.max_size_bytes - usage.size_bytes)
    return max(0, room)


def promise(room: int, others: Sequence[int], most: int, each: int) -> tuple[int, int]:
    """Return how many messages of `each` bytes a sender is promised, and how many bytes that is.

    An equal share of the room, as far as the others were not promised more of it before; at least
    one message, at most `most`.
    """
    share = min(room // (len(others) + 1), room - sum(others))
    count = max(1, min(most, share // each))
    return count, count * each


def _full(text: str) -> Refusal:
    return Refusal(
        code=Code.ADDRESS_FULL,
        text=text + " Consume some, or raise the limit in its address-settings.",
        transient=True,
    )


def admit_always(policy: FullPolicy) -> bool:
    """Return whether a full address takes what still comes, and holds back by credit alone."""
    return policy is FullPolicy.BLOCK


def judge(
    name: str, usage: Usage, settings: AddressSettings, flags: int
) -> tuple[Admission, Refusal | None]:
    """Decide on one message of a client; returns why it is not simply stored as well."""
    limit = settings.rejects_above
    if 0 <= limit < usage.size_bytes and not flags & STOMP:
        return Admission.FAIL, _full(
            f"Address {name!r} is full: it holds {usage.size_bytes} bytes and "
            f"max-size-bytes-reject-threshold is {limit}."
        )
    refusal = full_because(name, usage, settings)
    return admit(refusal, settings.address_full_policy), refusal


def admit(refusal: Refusal | None, policy: FullPolicy) -> Admission:
    """Decide on one message, given why the address is full (None: it is not)."""
    if refusal is None:
        return Admission.STORE
    match policy:
        case FullPolicy.DROP:
            return Admission.DROP
        case FullPolicy.FAIL:
            return Admission.FAIL
        case FullPolicy.BLOCK:
            return Admission.BLOCK
        case FullPolicy.PAGE:
            return Admission.PAGE
