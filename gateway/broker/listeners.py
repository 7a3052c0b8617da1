"""Who waits for the store: told once each time, and asked to come again for what is left.

What is told is `durable_up_to` when a batch is on disk, and `consumed` with tickets of which
consumers have left nothing to store; those that wait stay here then.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.broker.ports.store import Store
from gateway.model.errors import Refusal
from gateway.model.ports import DurableListener
from gateway.model.turn import Turn


class Listeners:
    """See the module text."""

    __slots__ = ("_all_known", "_store", "_turn", "_waiting")

    def __init__(self, store: Store, turn: Turn) -> None:
        self._store = store
        self._turn = turn
        self._waiting: dict[int, DurableListener] = {}
        self._all_known = False  # they will hear that everything is on disk

    @property
    def waiting(self) -> bool:
        """Whether there is anybody."""
        return bool(self._waiting)

    def add(self, listener: DurableListener) -> None:
        """Tell `listener` of the next batch, or of the end of this turn when none is to come."""
        self._waiting[id(listener)] = listener
        self._turn.need_end()  # which gives the store its batch
        if not self._all_known and not self._store.unsynced:
            # No batch is to come that would tell it: what it waits for was synced before.
            self._all_known = True
            self._turn.at_end(self._tell_all_is_durable)

    def _tell_all_is_durable(self) -> None:
        if self._waiting and not self._store.unsynced:
            self.tell(self._store.ticket - 1)
        self._all_known = False

    def tell(self, ticket: int) -> None:
        """All up to this ticket is on disk."""
        waiting, self._waiting = self._waiting, {}
        for listener in waiting.values():
            listener.durable_up_to(ticket)

    def consumed(self, tickets: Sequence[int]) -> None:
        """Nothing is left of these tickets."""
        for listener in list(self._waiting.values()):
            listener.consumed(tickets)

    def fail(self, refusal: Refusal) -> None:
        """Nothing will be durable any more."""
        waiting, self._waiting = self._waiting, {}
        for listener in waiting.values():
            listener.store_failed(refusal)
