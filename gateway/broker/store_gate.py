"""A disk that does not keep up: senders wait while too much waits for it.

    open ──more messages than store-task-limit, or too many bytes, wait──> held
    held ──nine tenths of that──> open

What comes on credit that was given before is taken: it only makes the wait longer. Consumers and
settlements go on. Whose address is full as well waits for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gateway.broker.address import Address
from gateway.broker.disk_gate import DiskGate
from gateway.broker.lag import Lag
from gateway.broker.ports import Store
from gateway.model.errors import Code, Refusal
from gateway.model.turn import Turn
from gateway.queues.queue import Queue


class Core(Protocol):
    """What the gate needs of the gateway."""

    disk: DiskGate
    lag: Lag
    touched: list[Queue]
    turn: Turn

    @property
    def store(self) -> Store: ...

    @property
    def addresses(self) -> Mapping[str, Address]: ...


class StoreGate:
    """See the module text. `refusal`: why senders wait, None while they need not; `times`: so far.

    Attributes:
        limit: what `store-task-limit` says, for the text.
    """

    __slots__ = ("_core", "limit", "refusal", "times")

    def __init__(self, core: Core) -> None:
        self._core = core
        self.limit = 0
        self.refusal: Refusal | None = None
        self.times = 0

    def flush(self) -> None:
        """End a turn: let the store write, and look whether that is too much for it."""
        self._core.store.flush()
        self._core.lag.look()
        if self._core.touched:  # by what it told; this turn's dispatch is over
            self._core.turn.after(self._core.turn.need_end)
        if self.refusal is None and self._core.store.congested:
            self._hold()

    def look(self) -> None:
        """Something became durable: let senders go on when there is room."""
        if self.refusal is not None and self._core.store.relieved:
            self._let_go()

    def _hold(self) -> None:
        self.times += 1
        self.refusal = refusal = Refusal(
            code=Code.STORE_BUSY,
            transient=True,
            text=f"More waits for the disk than it keeps up with; store-task-limit is {self.limit} "
            "messages. Sending goes on by itself once it has caught up.",
        )
        for address in list(self._core.addresses.values()):
            if address.blocked is None:
                for producer in list(address.producers.values()):
                    producer.block(refusal)
        self._core.disk.tell_relays(refusal)

    def _let_go(self) -> None:
        self.refusal = None
        disk = self._core.disk
        for address in list(self._core.addresses.values()):
            # Others are let go when their address, or the disk, has room.
            if address.blocked is None and disk.holds(address.settings) is None:
                for producer in list(address.producers.values()):
                    producer.unblock()
        if disk.refusal is None:
            disk.tell_relays(None)
