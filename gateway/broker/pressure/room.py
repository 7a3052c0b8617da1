"""Which addresses hold their senders back because there is no room, and when there is again.

    room ──a limit is reached, or an operator blocks──> held ──well below it, or let go──> room

An address that pages holds its senders back at its page limits alone. What makes room says so in
the turn; senders are let go at its end.
"""

from __future__ import annotations

from gateway.addresses.settings import FullPolicy, PageFullPolicy
from gateway.broker.directory.address import Address
from gateway.broker.pressure.admission import room_again
from gateway.broker.pressure.load import Load
from gateway.model.errors import Refusal
from gateway.model.turn import Turn


def pages_full(address: Address) -> Refusal | None:
    """Return why senders wait although their messages would go to pages, or None."""
    settings = address.settings
    if address.paging is None or settings.page_full_policy is PageFullPolicy.DROP:
        return None
    return address.paging.full(settings)


class Room:
    """See the module text."""

    __slots__ = ("_held", "_load", "_turn")

    def __init__(self, load: Load, turn: Turn) -> None:
        self._load = load
        self._turn = turn
        self._held: dict[str, Address] = {}  # by name

    def held_back(self, address: Address) -> Refusal | None:
        """Return why the address' senders have to wait, or None."""
        if address.uses_pages and not address.operator_block:
            return pages_full(address)
        return self._load.full_because(address)

    def watch(self, address: Address) -> None:
        """Hold the address' senders back when it is full, until there is room again."""
        refusal = self.held_back(address)
        if refusal is None or address.blocked is not None:
            return
        policy = address.settings.address_full_policy
        if policy is FullPolicy.DROP and not address.operator_block:
            return  # a sender that is never refused need not wait either
        address.hold(refusal)
        self._held[address.name] = address
        for producer in list(address.producers.values()):
            producer.block(refusal)

    def made(self) -> None:
        """See to it that senders who are held back are looked at."""
        if self._held:
            self._turn.at_end(self._look)

    def _look(self) -> None:
        """Let senders go where there is room again."""
        for address in list(self._held.values()):
            self.look_at(address)

    def look_at(self, address: Address) -> None:
        """Let the senders of an address go that are held back and need not be."""
        if address.gone:
            self._held.pop(address.name, None)
        elif address.blocked is not None and self._is_there_again(address):
            del self._held[address.name]
            address.blocked = None
            for producer in list(address.producers.values()):
                producer.unblock()

    def _is_there_again(self, address: Address) -> bool:
        if address.uses_pages:
            return self.held_back(address) is None
        if address.operator_block:
            return False
        drops = address.settings.address_full_policy is FullPolicy.DROP
        return drops or room_again(self._load.usage(address), address.settings)

    def block(self, address: Address, blocked: bool) -> None:  # noqa: FBT001 - says it by name
        """Hold an address' senders back on an operator's word, or let them go."""
        address.operator_block = blocked
        if blocked:
            self.watch(address)
        else:
            self._look()
