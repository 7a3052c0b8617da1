"""All that holds senders back, by name: who reads one of them finds it here.

The gates are asked in the order in which they were found to matter: an address' own limits, the
store that does not keep up, the disk that is full.
"""

from __future__ import annotations

from gateway.broker.directory.directory import Directory
from gateway.broker.ports.turns import Clock, Dispatching
from gateway.broker.pressure.disk_gate import DiskGate
from gateway.broker.pressure.figures import Figures
from gateway.broker.pressure.fullness import Fullness
from gateway.broker.pressure.holds import Holds
from gateway.broker.pressure.lag import Lag
from gateway.broker.pressure.load import Limits, Load
from gateway.broker.pressure.room import Room
from gateway.broker.pressure.slow import SlowConsumers
from gateway.broker.pressure.store_gate import StoreGate
from gateway.model.turn import Turn


class Pressure:
    """The limits and the gates.

    Attributes:
        load: what the gateway holds, and may hold.
        room: addresses that are full.
        disk: the disk that is full.
        busy: the store that does not keep up.
        holds: what waits for the disk before it is handed out.
        lag: a disk that lags.
        slow: consumers that do not keep up.
        fullness: what people are told of all this.
    """

    __slots__ = ("busy", "disk", "fullness", "holds", "lag", "load", "room", "slow")

    def __init__(
        self,
        limits: Limits,
        figures: Figures,
        directory: Directory,
        *,
        turn: Turn,
        clock: Clock,
        dispatch: Dispatching,
    ) -> None:
        store = directory.store
        self.load = Load(limits, figures)
        self.room = Room(self.load, turn)
        self.disk = DiskGate(directory.addresses, self.load)
        self.holds = Holds(directory.addresses, store, dispatch)
        self.lag = Lag(store, self.holds)
        self.busy = StoreGate(directory.addresses, store, self.disk, self.lag)
        self.slow = SlowConsumers(directory, clock)
        self.fullness = Fullness(directory, self.load, self.busy)
