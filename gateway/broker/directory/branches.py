"""Where else the messages of an address go: diverts, and queues of wildcard addresses.

    divert             a copy that says where it comes from goes to other addresses; an exclusive
                       one keeps the message from going anywhere else
    wildcard address   its queues get what is sent to any address that fits its name

What concerns an address is kept with it, so that a send to an address without branches asks
nothing. It is worked out when somebody is about to send there, and while somebody does, whenever
diverts or wildcards change: a change costs as much as there are addresses with senders, and not as
there are addresses.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.addresses.pattern_tree import PatternTree
from gateway.addresses.wildcards import is_wildcard
from gateway.broker.directory.address import Address, Blockable
from gateway.broker.directory.divert import Divert
from gateway.broker.ports.store import Store
from gateway.model.definitions import DivertDefinition
from gateway.model.errors import Code, RefusedError
from gateway.queues.queue import Queue


class Branches:
    """See the module text.

    Attributes:
        diverts: by name.
        wildcards: whether queues of wildcard addresses get what fits.
        epoch: grows with every change.
        unnamed: diverts of the configuration that it does not name any more since it was read
            again; they work until the gateway stops, or are deleted.
    """

    def __init__(self, queues: Mapping[str, Queue], store: Store) -> None:
        self._queues = queues  # by name
        self._store = store
        self._wild: dict[str, Address] = {}
        self._heard: set[str] = set()  # those of them that have queues
        self._patterns = PatternTree()  # of these
        self._sent_to: dict[str, Address] = {}  # what has senders
        self._changes = 0
        self.diverts: dict[str, Divert] = {}
        self.wildcards = True
        self.epoch = 0
        self.unnamed: frozenset[str] = frozenset()

    def use_wildcards(self, on: bool) -> None:  # noqa: FBT001 - says it by name
        """Have queues of wildcard addresses get what fits from now on, or no more."""
        if on is not self.wildcards:
            self.wildcards = on
            self._changed()

    # ---- what happens to addresses

    def made(self, address: Address) -> None:
        """An address was made or brought back."""
        if is_wildcard(address.name):
            self._wild[address.name] = address

    def gone(self, name: str) -> None:
        """An address was deleted."""
        if self._wild.pop(name, None) is not None and name in self._heard:
            self._hear(name, on=False)

    def begins(self, address: Address, key: int, producer: Blockable) -> None:
        """A producer is about to send to an address, and hears of changes until `ends`."""
        address.producers[key] = producer
        self._sent_to[address.name] = address
        self.look_at(address)

    def ends(self, address: Address, key: int) -> bool:
        """A producer has left; returns whether it was there.

        Changes do not concern the address when it was the last.
        """
        there = address.producers.pop(key, None) is not None
        if not address.producers and self._sent_to.get(address.name) is address:
            del self._sent_to[address.name]
        return there

    def queues_changed(self, address: Address) -> None:
        """An address has got or lost a queue."""
        name = address.name
        if name in self._wild and (name in self._heard) != bool(address.queues):
            # A subscriber more or less changes nothing for those who send.
            self._hear(name, on=bool(address.queues))

    def _hear(self, pattern: str, *, on: bool) -> None:
        """A wildcard address has queues from now on, or no more."""
        (self._heard.add if on else self._heard.discard)(pattern)
        (self._patterns.add if on else self._patterns.discard)(pattern)
        self._changed()

    def _changed(self) -> None:
        self._changes += 1
        for address in list(self._sent_to.values()):
            self.look_at(address)

    def look_at(self, address: Address) -> None:
        """Work out what branches off at an address, if something has changed since."""
        if address.branched_at == self._changes:
            return
        address.branched_at = self._changes
        name = address.name
        wild: list[Address] = []
        # What a temporary address gets is for the connection that made it, and for nobody else.
        if self.wildcards and name not in self._wild and not address.temporary:
            wild = [self._wild[pattern] for pattern in self._patterns.fitting(name)]
        diverts = [divert for divert in self.diverts.values() if divert.concerns(name)]
        if (tuple(diverts), tuple(wild)) != (address.diverts, address.wild):
            self.epoch += 1
            address.branch(tuple(diverts), tuple(wild))

    # ---- diverts

    def diverted(self, address: str) -> bool:
        """Whether what is sent to an address goes by some divert."""
        return any(divert.concerns(address) for divert in self.diverts.values())

    def find(self, name: str) -> Divert:
        """Return a divert. Raises RefusedError (not-found)."""
        divert = self.diverts.get(name)
        if divert is None:
            raise RefusedError.of(Code.NOT_FOUND, f"Divert {name!r} does not exist.")
        return divert

    def is_origin(self, address: str, name: str) -> bool:
        """Whether a message that says it was at `name` of an address came by a divert."""
        if name not in self.diverts:
            return False
        queue = self._queues.get(name)  # queues and diverts may have the same name
        return queue is None or queue.address != address

    def create(self, definition: DivertDefinition, *, configured: bool = False) -> int:
        """Make a divert; returns the ticket.

        One of the configuration takes the place of another of its name, and is not stored. Raises
        RefusedError (already-exists, bad-value, bad-selector).
        """
        name = definition.name
        known = self.diverts.get(name)
        if known is not None and known.definition == definition and known.configured == configured:
            return 0 if configured else self._store.define(definition)
        if known is not None and not configured:
            raise RefusedError.of(Code.ALREADY_EXISTS, f"Divert {name!r} exists already.")
        divert = self.check(definition, configured=configured)
        self.diverts[name] = divert
        self._changed()
        if not configured:
            return self._store.define(definition)
        if known is not None and not known.configured:
            self._store.undefine(known.definition)
        return 0

    def check(self, definition: DivertDefinition, *, configured: bool) -> Divert:
        """Return the divert, not at work. Raises RefusedError as `create` does."""
        name = definition.name
        queue = self._queues.get(name)
        if queue is not None and Divert(definition).concerns(queue.address):
            raise RefusedError.of(
                Code.ALREADY_EXISTS,
                f"Queue {name!r} is on address {queue.address!r}; give the divert another name, "
                "or nobody could tell what comes from the one and what from the other.",
            )
        if definition.address in definition.forwarding:
            raise RefusedError.of(
                Code.BAD_VALUE,
                f"Divert {name!r} leads from address {definition.address!r} back to it.",
            )
        return Divert(definition, configured=configured)

    def delete(self, name: str) -> int:
        """Delete a divert; returns the ticket. Raises RefusedError (not-found, in-use)."""
        divert = self.find(name)
        if divert.configured and name not in self.unnamed:
            raise RefusedError.of(
                Code.IN_USE,
                f"Divert {name!r} is from the configuration; take it out there, or it would be "
                "back with the next start.",
            )
        del self.diverts[name]
        self._changed()
        if divert.configured:
            return 0
        return self._store.undefine(divert.definition)

    def restore(self, definition: DivertDefinition) -> None:
        """Bring back a divert that the store remembers."""
        self.diverts[definition.name] = Divert(definition)
        self._changed()

    def definitions(self) -> list[DivertDefinition]:
        """Return what each new journal segment begins with."""
        return [d.definition for d in self.diverts.values() if not d.configured]
