"""What a queue is told about how to behave; the queue itself acts on it."""

from __future__ import annotations

from gateway.model.attributes import PLAIN, QueueAttributes
from gateway.queues.counted import Counted
from gateway.queues.start import Start


class Conduct(Counted):
    """Limits and attributes of one queue.

    Attributes:
        ring_size: most that may wait; -1 no limit.
        evicts_next: the ring's victim is what would be delivered next.
        max_consumers: -1 no limit.
        max_attempts: failed deliveries after which a message is dead; -1 never.
        paused: nothing is delivered.
        attributes: as `behave` was told; `exclusive` and `start` are of them, for quick reading.
    """

    __slots__ = (
        "attributes",
        "evicts_next",
        "exclusive",
        "max_attempts",
        "max_consumers",
        "paused",
        "ring_size",
        "start",
    )

    def __init__(self) -> None:
        super().__init__()
        self.ring_size = -1
        self.evicts_next = False
        self.max_consumers = -1
        self.max_attempts = 10
        self.paused = False
        self.attributes = PLAIN
        self.exclusive = False
        self.start: Start | None = None

    def behave(self, attributes: QueueAttributes) -> None:
        """Use these attributes from now on; a start that changes is waited for anew."""
        before, self.attributes = self.attributes, attributes
        self.exclusive = attributes.exclusive
        wanted = attributes.consumers_before_dispatch, attributes.delay_before_dispatch
        if wanted != (before.consumers_before_dispatch, before.delay_before_dispatch):
            self.start = Start(*wanted) if wanted[0] > 0 else None
