"""A full disk, as senders meet it: who is held back, who is refused, who is told when it is over.

    disk-full-policy   credit      what comes all the same
    BLOCK              withheld    given back unharmed (transient refusal)
    FAIL               withheld    refused for good
    DROP               given       accepted and dropped
    a STOMP sender     -           refused, whatever the policy: its protocol knows no credit

Consumers, settlements, dead letters, moves and what was sent in a transaction before go on. Who
says that the disk is full is none of its business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gateway.addresses.settings import AddressSettings, DiskFullPolicy
from gateway.broker.directory.address import Address
from gateway.broker.pressure.load import Load
from gateway.model.errors import Refusal
from gateway.model.message import STOMP
from gateway.model.ports import ProducerOwner


class Relay:
    """Implements the Relay port: a sender that chooses an address for each message."""

    __slots__ = ("_gate", "_owner")

    def __init__(self, gate: DiskGate, owner: ProducerOwner) -> None:
        self._gate = gate
        self._owner = owner

    def blocked(self) -> Refusal | None:
        return self._gate.refusal

    def refuse(self, count: int) -> Refusal | None:
        refusal = self._gate.refusal
        if refusal is not None:
            self._gate.count(refusal, count)
        return refusal

    def credit(self, most: int, size: int) -> int:
        return most

    def close(self) -> None:
        self._gate.forget(self)

    def tell(self, refusal: Refusal | None) -> None:
        """Pass the news on."""
        if refusal is None:
            self._owner.producer_unblocked()
        else:
            self._owner.producer_blocked(refusal)


class DiskGate:
    """See the module text. `refusal`: why senders are refused now, None while there is room."""

    __slots__ = ("_addresses", "_load", "_relays", "refusal")

    def __init__(self, addresses: Mapping[str, Address], load: Load) -> None:
        self._addresses = addresses  # by name
        self._load = load
        self._relays: dict[int, Relay] = {}
        self.refusal: Refusal | None = None

    def set(self, refusal: Refusal | None) -> None:
        """The disk is full, or (None) is not any more; tells every sender that waits for it."""
        before, self.refusal = self.refusal, refusal
        if (before is None) == (refusal is None):
            return  # only the figures are new
        for address in list(self._addresses.values()):
            if address.blocked is not None:
                continue  # they wait for room there, and look at the disk when they are let go
            held = self.holds(address.settings)
            for producer in list(address.producers.values()):
                if held is not None:
                    producer.block(held)
                elif refusal is None:
                    producer.unblock()
        self.tell_relays(refusal)

    def look_again(self, address: Address) -> None:
        """The address has another policy: hold its senders back, or let them go, by that one."""
        if self.refusal is None or address.blocked is not None:
            return
        held = self.holds(address.settings)
        for producer in list(address.producers.values()):
            if held is None:
                producer.unblock()
            else:
                producer.block(held)

    def tell_relays(self, refusal: Refusal | None) -> None:
        """Tell senders without an address that they are held back, or (None) let go."""
        for relay in list(self._relays.values()):
            relay.tell(refusal)

    def holds(self, settings: AddressSettings) -> Refusal | None:
        """Return why an address with these settings gives no credit, or None."""
        refusal = self.refusal
        if refusal is None or settings.disk_full_policy is DiskFullPolicy.DROP:
            return None
        return self._for_policy(refusal, settings.disk_full_policy)

    def refuses(self, settings: AddressSettings, flags: int) -> Refusal | None:
        """Return why a message is not taken; None: there is room, or it is dropped."""
        if self.refusal is not None and flags & STOMP:
            return self.refusal
        return self.holds(settings)

    @staticmethod
    def _for_policy(refusal: Refusal, policy: DiskFullPolicy) -> Refusal:
        return replace(refusal, transient=False) if policy is DiskFullPolicy.FAIL else refusal

    def open_relay(self, owner: ProducerOwner) -> Relay:
        """See the Broker port."""
        relay = Relay(self, owner)
        self._relays[id(relay)] = relay
        return relay

    def forget(self, relay: Relay) -> None:
        """It sends no more."""
        self._relays.pop(id(relay), None)

    def count(self, refusal: Refusal, count: int) -> None:
        """Count refused messages."""
        self._load.refuse(refusal, count)

    @property
    def held(self) -> int:
        """How many senders with an address, and how many relays, are held back now."""
        if self.refusal is None:
            return 0
        addresses = self._addresses.values()
        named = sum(a.sender_count for a in addresses if self.holds(a.settings) is not None)
        return named + len(self._relays)
