"""How much may lie on an address' pages, and how much of it a queue may have in memory. Pure.

pages full   more page files than floor(page-limit-bytes / page-size-bytes), or a queue with
             page-limit-messages that are not acknowledged. The page that is one too many exists
             and holds one message. Room that is made counts at once.
reading      while all of: held bytes < max-read-page-bytes, held messages <
             max-read-page-messages, and the same for what waits in memory and prefetch-page-*.
             Held is what waits and what is in delivery, wherever it came from. A limit <= 0 is
             off.
searching    while less than max-read-page-* was taken from the middle of the pages for selectors,
             or is in delivery, whatever waits unwanted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.addresses.settings import AddressSettings
from gateway.model.errors import Code, Refusal

#: Messages and bytes that a queue reads ahead, whatever its limits allow: more would be work for
#: one turn that others wait for.
STEP_MESSAGES: Final = 2048
STEP_BYTES: Final = 1 << 20
#: With all limits off: Artemis' older rule.
OLD_RULE_MESSAGES: Final = 1000


class Room(NamedTuple):
    """What may still be read into memory."""

    messages: int
    size: int


def pages_allowed(settings: AddressSettings) -> int | None:
    """Return how many pages the address may have, None without a limit."""
    if settings.page_limit_bytes < 0:
        return None
    return settings.page_limit_bytes // settings.page_size_bytes


def pages_full(
    name: str, settings: AddressSettings, *, pages: int, most_messages: int
) -> Refusal | None:
    """Return which limit its pages have reached, in words, or None.

    `most_messages` is what the queue with the most messages on pages has there.
    """
    assert min(pages, most_messages) >= 0, "fewer than no pages"
    allowed = pages_allowed(settings)
    if allowed is not None and pages > allowed:
        return _full(
            f"The pages of address {name!r} are full: there are {pages}, and page-limit-bytes "
            f"{settings.page_limit_bytes} allows {allowed} of page-size-bytes "
            f"{settings.page_size_bytes}."
        )
    if 0 <= settings.page_limit_messages <= most_messages:
        return _full(
            f"The pages of address {name!r} are full: a queue has {most_messages} messages there "
            f"and page-limit-messages is {settings.page_limit_messages}."
        )
    return None


def _full(text: str) -> Refusal:
    return Refusal(
        code=Code.PAGE_FULL,
        text=text + " Consume some, or raise the limit in its address-settings.",
        transient=True,
    )


def searching_room(settings: AddressSettings, *, taken: int, taken_bytes: int) -> Room:
    """Return what selectors may take from the middle of a queue's pages that hold so much.

    What waits in memory and no selector wants does not count: it would stall them for ever.
    """
    assert taken >= 0, "fewer than none were taken"
    room = Room(STEP_MESSAGES, STEP_BYTES)
    if settings.max_read_page_messages > 0:
        room = Room(min(room.messages, settings.max_read_page_messages - taken), room.size)
    if settings.max_read_bytes > 0:
        room = Room(room.messages, min(room.size, settings.max_read_bytes - taken_bytes))
    return Room(max(0, room.messages), max(0, room.size))


def reading_room(
    settings: AddressSettings, *, waiting: int, held: int, held_bytes: int, ring: bool
) -> Room:
    """Return what a queue may read that holds so much; `waiting` of its `held` are not delivered.

    Of the bytes only the sum is known; what waits has its share of them.
    """
    messages, size = settings.max_read_page_messages, settings.max_read_bytes
    ahead_messages, ahead_size = settings.prefetch_messages, settings.prefetch_bytes
    if max(messages, size, ahead_messages, ahead_size) <= 0:
        messages = OLD_RULE_MESSAGES
        size = max(0, settings.max_size_bytes)
        size = size or 2 * settings.page_size_bytes
    assert 0 <= waiting <= held, "more waits than is held"
    waiting_bytes = held_bytes * waiting // held if held else 0
    # A ring lets go of what it has read.
    room = 1 << 30 if ring else STEP_MESSAGES - waiting
    room_bytes = STEP_BYTES if waiting < STEP_MESSAGES or ring else 0
    for limit, use in ((messages, held), (ahead_messages, waiting)):
        if limit > 0:
            room = min(room, limit - use)
    for limit, use in ((size, held_bytes), (ahead_size, waiting_bytes)):
        if limit > 0:
            room_bytes = min(room_bytes, limit - use)
    return Room(max(0, min(room, STEP_MESSAGES)), max(0, room_bytes))
