"""One stream with what belongs to it: log, subscriptions, pins, and readers that wait."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, DeferredLock

from gateway.streams import subscription
from gateway.streams.ports import Log
from gateway.streams.saver import Saver
from gateway.streams.stream import Stream
from gateway.streams.subscription import ARCHIVE, ARCHIVED, Place, Subscription


class Tap:
    """See the module text.

    Attributes:
        subscriptions: by name.
        pins: pin -> (lowest offset, broker time in ms at which it ends).
        waiters: readers that wait for a higher head.
        watchers: called each time that the head rises, and when the stream is deleted.
        replays: consumers that replay it.
        replayed: messages that were shown to them, since the start.
        deleted: nothing of it is written any more.
        lock: held by whatever changes the log: sealing, dropping, deleting.
        dropping: retention has chosen what goes, and that is not gone yet.
        lagging: the archive is so far behind that the bound of bytes is near; see `Sealing`.
    """

    def __init__(self, stream: Stream, log: Log, saver: Saver) -> None:
        self.stream = stream
        self.log = log
        self.saver = saver
        self.subscriptions: dict[str, Subscription] = {}
        self.pins: dict[str, tuple[int, int]] = {}
        self.waiters: list[Deferred[None]] = []
        self.watchers: list[Callable[[], None]] = []
        self.replays = 0
        self.replayed = 0
        self.deleted = False
        self.lock = DeferredLock()
        self.dropping = False
        self.lagging: str | None = None

    @property
    def place(self) -> Place:
        """What a subscription is judged by."""
        stream = self.stream
        return Place(epoch=stream.epoch, first=stream.first_offset, head=stream.durable_offset)

    def floor(self) -> int | None:
        """Return the lowest offset that anybody may still ask for; None when nobody may."""
        known = [s for s in self.subscriptions.values() if s.epoch == self.stream.epoch]
        archived = self.archived()
        # A reader of the archive's table asks here for nothing that the table has.
        floors = [
            s.floor if archived is None or s.role != ARCHIVED else max(s.floor, archived)
            for s in known
        ]
        floors += [low for low, _ in self.pins.values()]
        return min(floors, default=None)

    def archived(self) -> int | None:
        """Return the offset below which an archive has everything; None without an archive."""
        known = self.subscriptions.values()
        floors = [s.floor for s in known if s.role == ARCHIVE and s.epoch == self.stream.epoch]
        return min(floors, default=None)

    def save(self) -> Deferred[None]:
        """Write the subscriptions."""
        return self.saver.save(lambda: subscription.encode(self.subscriptions.values()))

    def pin(self, pin: str, low: int, until_ms: int) -> None:
        """Hold retention at `low` until `until_ms`; the same pin again prolongs it."""
        known = self.pins.get(pin)
        self.pins[pin] = (low if known is None else min(known[0], low), until_ms)

    def end_pins(self, now_ms: int) -> None:
        """Forget the pins whose time is over."""
        if self.pins:
            self.pins = {pin: value for pin, value in self.pins.items() if value[1] > now_ms}

    def wait(self) -> Deferred[None]:
        """Return a Deferred that fires when the head rises or the stream is deleted.

        Cancel it to stop waiting.
        """
        waiter: Deferred[None] = Deferred(self.waiters.remove)
        self.waiters.append(waiter)
        return waiter

    def listen(self, waiter: Deferred[None]) -> None:
        """Have a Deferred of the caller's fire as `wait`'s does, unless another stream was first.

        `ignore` takes it away again.
        """
        self.waiters.append(waiter)

    def ignore(self, waiter: Deferred[None]) -> None:
        """Take back `listen`."""
        if waiter in self.waiters:
            self.waiters.remove(waiter)

    def wake(self) -> None:
        """Fire for all that wait."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.called:
                waiter.callback(None)
        for watcher in list(self.watchers):
            watcher()
