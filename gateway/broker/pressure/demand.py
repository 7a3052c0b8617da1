"""What a batch wants of an address, and whether one that refuses has room for all of it. Pure.

    address-full-policy FAIL               limits of the address, and of the gateway's memory
    PAGE, and page-full-policy FAIL        limits of its pages
    all others                             nothing is asked: they wait, drop, or page

What is counted is never more than what the messages will take (their heads are not made yet), so
that no batch is refused that would have had room. One that finds less room on its way than there
was at its beginning waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gateway.addresses.settings import AddressSettings, FullPolicy, PageFullPolicy
from gateway.broker.directory.address import Address
from gateway.broker.pressure.admission import Usage
from gateway.broker.pressure.load import OVERHEAD_BYTES
from gateway.model.errors import Code, Refusal
from gateway.paging.limits import pages_allowed
from gateway.paging.paging import MESSAGE_BYTES, Paging
from gateway.queues.queue import Queue


@dataclass(slots=True)
class Demand:
    """What is for one address.

    Attributes:
        first: the number of its first row in its stage.
        rows: how many rows.
        size: bytes of their bodies.
        largest: bytes of the largest one.
    """

    first: int
    rows: int = 0
    size: int = 0
    largest: int = 0

    def add(self, rows: int, size: int, largest: int) -> None:
        """Count more."""
        self.rows += rows
        self.size += size
        self.largest = max(self.largest, largest)


def joined(demands: Iterable[Demand]) -> Demand:
    """Return what several stages want of one address."""
    whole = Demand(0)
    for one in demands:
        whole.add(one.rows, one.size, one.largest)
    return whole


def no_room(
    address: Address, queues: Sequence[Queue], usage: Usage, demand: Demand
) -> Refusal | None:
    """Return why an address has no room for all of a batch, or None; `queues` take what comes.

    The refusal is transient where room may come, and final where the batch is too large for it.
    """
    settings = address.settings
    if not demand.rows or not _refuses(settings) or not _fills(queues):
        return None
    limit = _limit_met(settings, usage, address.paging, demand, len(queues))
    if limit is None:
        return None
    text = (
        f"Address {address.name!r} has no room for the {demand.rows} messages of the batch: it "
        f"holds {usage.messages}, of {usage.size_bytes} bytes, and {limit}. None is published."
    )
    empty = replace(usage, size_bytes=0, messages=0, global_bytes=0, global_messages=0)
    may_pass = _limit_met(settings, empty, None, demand, len(queues)) is None
    way = "Consume some, or raise the limit."
    if not may_pass:
        way = "Write smaller batches (maxMessagesPerTrigger of the source), or raise the limit."
    pages = settings.address_full_policy is FullPolicy.PAGE
    code = Code.PAGE_FULL if pages else Code.ADDRESS_FULL
    return Refusal(code=code, text=f"{text} {way}", transient=may_pass)


def _refuses(settings: AddressSettings) -> bool:
    if settings.address_full_policy is FullPolicy.PAGE:
        return settings.page_full_policy is PageFullPolicy.FAIL
    return settings.address_full_policy is FullPolicy.FAIL


def _fills(queues: Sequence[Queue]) -> bool:
    """Whether each message stays in one of the queues: none lets go of an earlier one for it."""
    return bool(queues) and all(q.ring_size < 0 and not q.replaces for q in queues)


def _limit_met(
    settings: AddressSettings, usage: Usage, paging: Paging | None, demand: Demand, queues: int
) -> str | None:
    """Return the limit that the last message meets when all before it are there, or None."""
    before, size = demand.rows - 1, demand.size - demand.largest
    if settings.address_full_policy is FullPolicy.PAGE:
        return _page_limit_met(settings, usage, paging, (before, size), queues)
    memory = size + OVERHEAD_BYTES * before
    for name, limit, use in (
        ("max-size-bytes", settings.max_size_bytes, usage.size_bytes + memory),
        ("max-size-messages", settings.max_size_messages, usage.messages + before),
        ("global-max-size", usage.global_bytes_max, usage.global_bytes + memory),
        ("global-max-messages", usage.global_messages_max, usage.global_messages + before),
    ):
        if 0 <= limit <= use:
            return f"{name} is {limit}"
    return None


def _page_limit_met(
    settings: AddressSettings,
    usage: Usage,
    paging: Paging | None,
    coming: tuple[int, int],
    queues: int,
) -> str | None:
    """As `_limit_met`, of pages: `coming` are the messages before the last, and their bytes."""
    count, size = coming
    files = charge = most = 0
    if paging is not None:
        files, charge, most = paging.page_files, paging.charge, paging.most_messages
    else:
        # What memory takes before the address pages: at most so many, and so large.
        room = _below(settings.max_size_messages, usage.messages)
        room_bytes = _below(settings.max_size_bytes, usage.size_bytes)
        count = max(0, count - min(room, room_bytes // OVERHEAD_BYTES + 1))
        size = max(0, size - room_bytes)
    if 0 <= settings.page_limit_messages <= most + count // queues:
        return f"page-limit-messages is {settings.page_limit_messages}"
    allowed = pages_allowed(settings)
    files += (charge + size + MESSAGE_BYTES * count) // settings.page_size_bytes
    if allowed is not None and files > allowed:
        return f"page-limit-bytes is {settings.page_limit_bytes}"
    return None


def _below(limit: int, use: int) -> int:
    """Return how much is left below a limit; without one more than anything has."""
    return max(0, limit - use) if limit >= 0 else 1 << 62
