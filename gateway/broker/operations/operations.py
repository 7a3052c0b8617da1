"""What happens to messages that wait, by name: pages, moves, effects and notices."""

from __future__ import annotations

from gateway.broker.directory.directory import Directory
from gateway.broker.operations.effects import QueueEffects
from gateway.broker.operations.moves import Mover
from gateway.broker.operations.notices import Notices
from gateway.broker.operations.pager import Pager
from gateway.broker.ports.turns import Clock, Dispatching
from gateway.broker.pressure.figures import Figures
from gateway.broker.pressure.pressure import Pressure
from gateway.broker.pressure.visible import Visible
from gateway.broker.routing.routing import Routing
from gateway.model.turn import Turn


class Operations:
    """See the module text.

    Attributes:
        effects: what follows when a queue changes.
        mover: moves what died or expired.
        pager: page mode.
    """

    __slots__ = ("effects", "mover", "pager")

    def __init__(
        self,
        directory: Directory,
        pressure: Pressure,
        routing: Routing,
        visible: Visible,
        figures: Figures,
        *,
        turn: Turn,
        clock: Clock,
        dispatch: Dispatching,
    ) -> None:
        self.pager = Pager(directory, pressure, turn, clock=clock, dispatch=dispatch)
        self.mover = Mover(directory, routing, figures)
        self.effects = QueueEffects(
            directory,
            pressure,
            self.pager,
            self.mover,
            visible,
            turn=turn,
            clock=clock,
            dispatch=dispatch,
        )
        routing.shared.pages, routing.shared.letters = self.pager, self.mover
        directory.effects = self.effects
        notices = Notices(directory.addresses, routing, clock)
        pressure.slow.announce = notices.consumer_slow
