"""Other address settings and limits, brought to what is there while messages come and go.

What comes from now on, an address that is made or a message that dies, follows the new settings at
once. Those that exist follow a few at a time, so that a gateway with very many of them does not
stand still. A queue keeps what it was made with; page mode that has begun goes on until its pages
are consumed, whatever the policy says now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.addresses.match import SettingsTable
from gateway.addresses.settings import AddressSettings, Durability, FullPolicy
from gateway.broker.directory.address import Address
from gateway.broker.directory.conduct import follow
from gateway.broker.gateway import Gateway
from gateway.broker.pressure.load import Limits

#: Addresses of one step: some milliseconds where there are a hundred matches.
STEP: Final = 8
#: Duplicate ids that one step forgets: some milliseconds.
IDS_STEP: Final = 20_000


def resettle(gateway: Gateway, table: SettingsTable, limits: Limits) -> Iterator[None]:
    """Use other settings and limits from now on; each step brings them to some more addresses."""
    gateway.directory.settings = table
    moved = gateway.pressure.load.limit(limits)
    if moved:
        gateway.operations.pager.room_made()
    names = list(gateway.addresses)
    for start in range(0, len(names), STEP):
        for name in names[start : start + STEP]:
            address = gateway.addresses.get(name)
            if address is not None and not address.gone:
                _bring(gateway, address, table.for_address(name), moved=moved)
        yield
    for name in names:
        yield from _forget_ids(gateway, name)


def _bring(gateway: Gateway, address: Address, settings: AddressSettings, *, moved: bool) -> None:
    """Have one address follow; `moved`: the gateway's own limits are others than before."""
    before = address.settings
    if before != settings:
        address.apply_settings(settings)
        for queue in address.queues:
            follow(settings, queue, gateway.directory.serialized, gateway.store.relax)
            if settings.durability is not Durability.WRITE:
                gateway.store.tighten(queue.queue_id)
        if before.retroactive_message_count != settings.retroactive_message_count:
            gateway.routing.retro.look_at(address)
        if before.address_full_policy is not settings.address_full_policy:
            _refuse_who_waits(address)
        if before.disk_full_policy is not settings.disk_full_policy:
            gateway.pressure.disk.look_again(address)
    elif not moved:
        return
    if address.blocked is not None:
        # The text names the limit; who waits on is told the one that holds him now.
        address.blocked = gateway.pressure.room.held_back(address) or address.blocked
    gateway.operations.pager.settings_changed(address)


def _refuse_who_waits(address: Address) -> None:
    """Have senders that wait under another policy look again: where it fails they are refused."""
    if address.blocked is not None and address.settings.address_full_policy is FullPolicy.FAIL:
        for producer in list(address.producers.values()):
            producer.unblock()


def _forget_ids(gateway: Gateway, name: str) -> Iterator[None]:
    """Forget the oldest duplicate ids of an address that are too many now."""
    address = gateway.addresses.get(name)
    if address is None:
        return
    while gateway.routing.duplicates.fit(name, address.settings, IDS_STEP):
        yield
