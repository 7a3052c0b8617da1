"""A disk that does not keep up: senders wait while too much waits for it.

    open ──more messages than store-task-limit, or too many bytes, wait──> held
    held ──nine tenths of that──> open

What comes on credit that was given before is taken: it only makes the wait longer. Consumers and
settlements go on. Whose address is full as well waits for both.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.broker.directory.address import Address
from gateway.broker.ports.store import Store
from gateway.broker.pressure.disk_gate import DiskGate
from gateway.broker.pressure.lag import Lag
from gateway.model.errors import Code, Refusal


class StoreGate:
    """See the module text. `refusal`: why senders wait, None while they need not; `times`: so far.

    Attributes:
        limit: what `store-task-limit` says, for the text.
    """

    __slots__ = ("_addresses", "_disk", "_lag", "_store", "limit", "refusal", "times")

    def __init__(
        self, addresses: Mapping[str, Address], store: Store, disk: DiskGate, lag: Lag
    ) -> None:
        self._addresses = addresses  # by name
        self._store = store
        self._disk = disk
        self._lag = lag
        self.limit = 0
        self.refusal: Refusal | None = None
        self.times = 0

    def flush(self) -> None:
        """End a turn: let the store write, and look whether that is too much for it."""
        self._store.flush()
        self._lag.look()
        if self.refusal is None and self._store.congested:
            self._hold()

    def look(self) -> None:
        """Something became durable: let senders go on when there is room."""
        if self.refusal is not None and self._store.relieved:
            self._let_go()

    def _hold(self) -> None:
        self.times += 1
        self.refusal = refusal = Refusal(
            code=Code.STORE_BUSY,
            transient=True,
            text=f"More waits for the disk than it keeps up with; store-task-limit is {self.limit} "
            "messages. Sending goes on by itself once it has caught up.",
        )
        for address in list(self._addresses.values()):
            if address.blocked is None:
                for producer in list(address.producers.values()):
                    producer.block(refusal)
        self._disk.tell_relays(refusal)

    def _let_go(self) -> None:
        self.refusal = None
        disk = self._disk
        for address in list(self._addresses.values()):
            # Others are let go when their address, or the disk, has room.
            if address.blocked is None and disk.holds(address.settings) is None:
                for producer in list(address.producers.values()):
                    producer.unblock()
        if disk.refusal is None:
            disk.tell_relays(None)
