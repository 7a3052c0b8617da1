"""Duplicate detection: a message whose id its address knows is accepted and not stored again.

    unknown ──message taken──> known ──as many newer ones as the cache has places──> unknown

Each address remembers the last `id-cache-size` ids, for AMQP and STOMP together. In the store an
address' ids are the messages of a queue that nobody reads: an id is recorded in the batch of its
message, the oldest are removed, and compaction, recovery and the tools need to know nothing more.
An id is recorded also where its message never is, since it was consumed before it was written.

A transaction that holds a known id is refused as a whole; what it held stays unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from gateway.addresses.settings import AddressSettings, FullPolicy
from gateway.broker.directory.address import Address
from gateway.broker.ports.store import Store
from gateway.broker.ports.turns import Clock
from gateway.model.definitions import IdsDefinition
from gateway.model.errors import Code, Refusal
from gateway.model.identity import duplicate_key
from gateway.model.message import DEFAULT_PRIORITY, DURABLE, IDENTIFIED
from gateway.model.ports import Producer, Send
from gateway.model.run import Outcome, Run

#: Artemis' id-cache-size.
CACHE_SIZE: Final = 20_000


class Sender(Protocol):
    """What is needed of the route that a run came over."""

    sent: int

    @property
    def target(self) -> Address: ...

    def resolve(self) -> Refusal | None: ...

    def send(self, run: Run) -> Outcome: ...


class Known:
    """The ids of one address, oldest first; `ids_id` 0: they are not recorded.

    Attributes:
        ticket: of the newest id.
    """

    __slots__ = ("_first", "_keys", "_order", "definition", "ids_id", "ticket")

    def __init__(self, address: str, ids_id: int) -> None:
        self.ids_id = ids_id
        self.definition = IdsDefinition(ids_id=ids_id, address=address)
        self.ticket = 0
        self._keys: set[bytes] = set()
        self._order: deque[bytes] = deque()
        self._first = 1  # the seq of the oldest

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def restore(self, ids: Iterable[tuple[int, bytes]], highest: int) -> None:
        """Take what a start found, as (seq, key) in ascending seq."""
        found = list(ids)
        self._first = found[0][0] if found else highest + 1
        self._order = deque([key for _, key in found])
        self._keys = set(self._order)

    def add(self, keys: Sequence[bytes]) -> int:
        """Remember new keys; returns the seq of the first."""
        first = self._first + len(self._order)
        self._order.extend(keys)
        self._keys.update(keys)
        return first

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        """Go through the ids with their seqs."""
        return enumerate(self._order, self._first)

    def forget(self, size: int) -> tuple[int, int]:
        """Keep the newest `size`; returns the seqs of those that went, as (first, last)."""
        first = self._first
        while len(self._order) > size:
            self._keys.discard(self._order.popleft())
            self._first += 1
        return first, self._first - 1


class Duplicates:
    """See the module text.

    Attributes:
        size: ids that an address remembers whose settings say nothing about it.
        persists: whether they are recorded.
    """

    def __init__(
        self, store: Store, clock: Clock, take_id: Callable[[], int], synced: Callable[[], int]
    ) -> None:
        """`take_id` gives a number in the journal, `synced` the highest ticket on disk."""
        self._store = store
        self._clock = clock
        self._take_id = take_id
        self._synced = synced
        self._known: dict[str, Known] = {}
        self.size = CACHE_SIZE
        self.persists = True

    def size_for(self, settings: AddressSettings) -> int:
        """Return how many ids an address with these settings remembers; 0: it does not look."""
        return self.size if settings.id_cache_size is None else settings.id_cache_size

    def count(self, address: str) -> int:
        """Return how many ids an address remembers now."""
        known = self._known.get(address)
        return 0 if known is None else len(known)

    # ---- sends

    def send(self, route: Sender, run: Run) -> Outcome:
        """As `Producer.send` for a run whose messages have ids; known ones count as taken."""
        plain = run.marked(run.flags & ~IDENTIFIED, run.expires)
        refusal = route.resolve()
        if refusal is not None or not self.size_for(route.target.settings):
            return route.send(plain)
        address = route.target
        if run.count > 1 and (
            address.guarded and address.settings.address_full_policy is FullPolicy.DROP
        ):
            return self._send_singly(route, run)  # which of them was dropped is known so
        keys = [duplicate_key(body, run.flags) for body in run.bodies]
        known = self._known_at(address)
        places = _new_places(known, keys)
        again = run.count - len(places)
        address.duplicates += again
        route.sent += again
        before = known.ticket if again else 0
        ticket = before if before > self._synced() else 0
        if not places:
            return Outcome(ticket)
        fresh = plain.of([run.bodies[place] for place in places]) if again else plain
        self._store.begin_atomic()
        try:
            dropped = address.dropped
            outcome = route.send(fresh)
            taken = fresh.count if outcome.refusal is None else outcome.taken
            if address.dropped == dropped:
                fresh_keys = [keys[place] for place in places[:taken]]
                ticket = max(ticket, self._remember(known, address, fresh_keys))
        finally:
            self._store.end_atomic()
        ticket = max(ticket, outcome.ticket)
        if outcome.refusal is None:
            return Outcome(ticket)
        return Outcome(ticket, outcome.refusal, places[taken])

    def _send_singly(self, route: Sender, run: Run) -> Outcome:
        ticket = 0
        for place, one in enumerate(run.singles()):
            outcome = self.send(route, one)
            if outcome.refusal is not None:
                return Outcome(ticket, outcome.refusal, place)
            ticket = max(ticket, outcome.ticket)
        return Outcome(ticket)

    def _known_at(self, address: Address) -> Known:
        known = self._known.get(address.name)
        if known is None:
            recorded = self.persists and not address.temporary
            known = Known(address.name, self._take_id() if recorded else 0)
            self._known[address.name] = known
            if recorded:
                self._store.define(known.definition)
        return known

    def _remember(self, known: Known, address: Address, keys: Sequence[bytes | None]) -> int:
        """Remember ids and forget the oldest ones beyond the cache's size; returns the ticket."""
        new = [key for key in keys if key is not None]
        if not new:
            return 0
        self._record(known, new)
        self._forget(known, self.size_for(address.settings))
        return known.ticket

    def _record(self, known: Known, keys: Sequence[bytes]) -> None:
        first = known.add(keys)
        if known.ids_id:
            run = Run(keys, DEFAULT_PRIORITY | DURABLE)
            known.ticket = self._store.append(
                ((known.ids_id, first),), run, run.size, self._clock.now_ms()
            )

    def _forget(self, known: Known, size: int) -> None:
        first, last = known.forget(size)
        if known.ids_id and last >= first:
            self._store.replace(known.ids_id, first, last, last - first + 1)

    # ---- transactions

    def refusal(
        self, sends: Sequence[Send], target: Callable[[Producer], Address]
    ) -> Refusal | None:
        """Return why these cannot be sent together: an id is known, or comes twice."""
        seen: set[tuple[str, bytes]] = set()
        for producer, run in sends:
            if not run.flags & IDENTIFIED:
                continue
            address = target(producer)
            key = duplicate_key(run.bodies[0], run.flags)
            if key is None or not self.size_for(address.settings):
                continue
            known = self._known.get(address.name)
            if (address.name, key) in seen or (known is not None and key in known):
                address.duplicates += 1
                return Refusal(
                    code=Code.DUPLICATE_ID,
                    text=f"A message of the transaction has a duplicate id that address "
                    f"{address.name!r} knows already; nothing of the transaction was done.",
                )
            seen.add((address.name, key))
        return None

    def remember(self, address: Address, run: Run) -> int:
        """Remember the ids of messages that were sent in a transaction; returns the ticket."""
        if not self.size_for(address.settings):
            return 0
        keys = [duplicate_key(body, run.flags) for body in run.bodies]
        return self._remember(self._known_at(address), address, keys)

    # ---- what is remembered

    def clear(self, address: str) -> int:
        """Forget the ids of an address; returns the ticket."""
        known = self._known.pop(address, None)
        if known is None or not known.ids_id:
            return 0
        return self._store.undefine(known.definition)

    def names(self) -> dict[int, str]:
        """Return per number in the journal what people call it."""
        known = self._known.values()
        return {k.ids_id: f"duplicate ids of {k.definition.address}" for k in known if k.ids_id}

    def recall(self, ids_id: int) -> list[tuple[int, bytes, int]]:
        """Return (seq, key, flags) of all ids that have this number in the journal."""
        flags = DEFAULT_PRIORITY | DURABLE
        for known in self._known.values():
            if ids_id and known.ids_id == ids_id:
                return [(seq, key, flags) for seq, key in known.numbered()]
        return []

    def definitions(self) -> list[IdsDefinition]:
        """Return what each new journal segment begins with."""
        return [known.definition for known in self._known.values() if known.ids_id]

    def restore(
        self, definition: IdsDefinition, ids: Iterable[tuple[int, bytes]], highest: int
    ) -> None:
        """Take back what the store remembers of one address, unless it is to remember no more."""
        if not self.persists:
            self._store.undefine(definition)
            return
        found = list(ids)
        known = Known(definition.address, definition.ids_id)
        self._known[definition.address] = known
        if not found or found[-1][0] - found[0][0] + 1 == len(found):
            known.restore(found, highest)
            return
        # A salvage lost some from between: what is left is written once more, without holes.
        self._store.undefine(definition)
        known = self._known[definition.address] = Known(definition.address, self._take_id())
        self._store.define(known.definition)
        self._record(known, [key for _, key in found])

    def fit(self, address: str, settings: AddressSettings, most: int) -> bool:
        """Forget up to `most` ids that are too many by these settings; whether more are left."""
        known = self._known.get(address)
        if known is None:
            return False
        size = self.size_for(settings)
        self._forget(known, max(size, len(known) - most))
        return len(known) > size

    def trim(self, settings_of: Callable[[str], AddressSettings]) -> None:
        """Apply the sizes of the settings to what a start found."""
        for name, known in list(self._known.items()):
            self._forget(known, self.size_for(settings_of(name)))


def _new_places(known: Known, keys: Sequence[bytes | None]) -> list[int]:
    """Return the places of messages without an id, or with one that is new here."""
    new: set[bytes] = set()
    places = []
    for place, key in enumerate(keys):
        if key is None:
            places.append(place)
        elif key not in known and key not in new:
            places.append(place)
            new.add(key)
    return places
