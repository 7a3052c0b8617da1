"""All streams of a gateway: their definitions, logs, subscriptions and retention.

Lives on the reactor thread; whatever blocks goes through the `RunBlocking` port. It knows no file
format of the log, no protocol and no HTTP. State files below the streams' folder:

    streams.json              names, addresses and epochs of the streams, epochs of deleted names
    <id>/subscriptions.json   floors and fences of one stream

A change is on the device before its Deferred fires. What the registry holds in memory may be ahead
of a file that is being written; floors only rise, so nothing is lost when the write fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, gatherResults, succeed
from twisted.python.failure import Failure

from gateway.model.address import check_name
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.streams import retention, rows, subscription
from gateway.streams.ports import Log, RunBlocking, StreamsOwner, StreamStore
from gateway.streams.retention import Limits
from gateway.streams.stream import Accepted, Stream, Taken
from gateway.streams.subscription import Place, Subscription

_FILE: Final = "streams.json"
_VERSION: Final = 1
_LOST: Final = "expired_by_retention"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What holds for every stream.

    Attributes:
        retention: limits of each log.
        seal_after_ms: an unsealed tail is sealed at this age, so that it pins no journal file.
        volatile_after_ms: as before for what becomes visible only by sealing.
        streams_max: more taps than that are refused.
        subscriptions_max: of one stream.
    """

    retention: Limits = field(default_factory=Limits)
    seal_after_ms: int = 10_000
    volatile_after_ms: int = 200
    streams_max: int = 10_000
    subscriptions_max: int = 1_000


class Saver:
    """Writes one state file; calls that come while a write is under way share the next one."""

    def __init__(self, blocking: RunBlocking, write: Callable[[bytes], None]) -> None:
        self._blocking = blocking
        self._write = write
        self._busy = False
        self._waiting: list[Deferred[None]] = []
        self._encode: Callable[[], bytes] | None = None

    def save(self, encode: Callable[[], bytes]) -> Deferred[None]:
        """Write what `encode` returns when the write begins; fires when that is on the device."""
        done: Deferred[None] = Deferred()
        self._waiting.append(done)
        self._encode = encode
        if not self._busy:
            self._next()
        return done

    def _next(self) -> None:
        encode = self._encode
        if encode is None or not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._busy = True

        def finished(result: object) -> None:
            self._busy = False
            for done in waiting:
                if isinstance(result, Failure):
                    done.errback(result)
                else:
                    done.callback(None)
            self._next()

        self._blocking.run(self._write, encode()).addBoth(finished)


class Tap:
    """One stream with what belongs to it."""

    def __init__(self, stream: Stream, log: Log, saver: Saver) -> None:
        self.stream = stream
        self.log = log
        self.saver = saver
        self.subscriptions: dict[str, Subscription] = {}
        #: pin -> (lowest offset, broker time at which it ends)
        self.pins: dict[str, tuple[int, int]] = {}
        self.waiters: list[Deferred[None]] = []
        self.deleted = False
        #: Held by whatever changes the log: sealing, dropping, deleting.
        self.lock = DeferredLock()
        self.dropping = False

    @property
    def place(self) -> Place:
        stream = self.stream
        return Place(epoch=stream.epoch, first=stream.first_offset, head=stream.durable_offset)

    def floor(self) -> int | None:
        """Return the lowest offset that anybody may still ask for; None when nobody may."""
        floors = [s.floor for s in self.subscriptions.values() if s.epoch == self.stream.epoch]
        floors += [low for low, _ in self.pins.values()]
        return min(floors, default=None)

    def save(self) -> Deferred[None]:
        """Write the subscriptions."""
        return self.saver.save(lambda: subscription.encode(self.subscriptions.values()))


class StreamRegistry:
    """The streams by name, by address and by id; implements `StreamPort`."""

    def __init__(
        self,
        store: StreamStore,
        blocking: RunBlocking,
        owner: StreamsOwner,
        settings: StreamSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.now_ms = now_ms
        self._store = store
        self._blocking = blocking
        self._owner = owner
        self._taps: dict[str, Tap] = {}
        self._by_id: dict[int, Tap] = {}
        self._by_address: dict[str, tuple[Stream, ...]] = {}
        self._subscribed: dict[str, Tap] = {}
        self._next_id = 1
        self._epochs: dict[str, int] = {}
        self._saver = Saver(blocking, lambda data: store.save(_FILE, data))

    # -- start and stop ------------------------------------------------------------------------

    def load(self) -> None:
        """Open everything that is stored. Blocks; call it before listeners open, then `recover`.

        Raises StorageError's kinds from the store: damage is refused with file and offset.
        """
        data = self._store.load(_FILE)
        if data is None:
            return
        value = json.loads(data)
        if value.get("version") != _VERSION:
            raise ValueError(f"{_FILE} has version {value.get('version')!r}; this program knows 1")
        self._next_id = value["next_id"]
        self._epochs = dict(value["epochs"])
        for fields in value["streams"]:
            stream = Stream(fields["id"], fields["name"], fields["address"], fields["epoch"], self)
            tap = self._adopt(stream)
            stored = self._store.load(f"{stream.stream_id}/subscriptions.json")
            for known in subscription.decode(stored) if stored else ():
                tap.subscriptions[known.name] = known
                self._subscribed[known.name] = tap

    def recover(self, tails: Mapping[int, Sequence[Accepted]]) -> dict[str, list[tuple[int, int]]]:
        """Give each stream the tail that the journal kept; returns holes by stream name.

        Args:
            tails: stream id -> runs in order of offsets. What the log holds already is released,
                and so are tails of streams that were deleted.
        """
        holes: dict[str, list[tuple[int, int]]] = {}
        for tap in self._taps.values():
            stream, log = tap.stream, tap.log
            tail = tails.get(stream.stream_id, ())
            found = stream.recover(log.first_offset, log.next_offset, tail)
            if found:
                holes[stream.name] = found
            if tail and tail[0].base < log.next_offset:
                last = min(log.next_offset, tail[-1].end) - 1
                self._owner.release(stream.stream_id, tail[0].base, last)
        # A number that the journal knows is never given again: its stream may have come to nothing.
        self._next_id = max(self._next_id, 1 + max(tails, default=0))
        for stream_id, tail in tails.items():
            if stream_id not in self._by_id and tail:
                self._owner.release(stream_id, tail[0].base, tail[-1].end - 1)
        return holes

    def flush(self) -> Deferred[None]:
        """Seal every tail; fires when all are in the log (a failure stays in the journal)."""
        waiting = [self._seal(tap) for tap in self._taps.values()]
        return gatherResults(waiting).addCallback(lambda _: None)

    def stop(self) -> Deferred[None]:
        """Seal every tail, then close the logs; call it when nothing is recorded any more."""

        def close(_: object) -> Deferred[list[None]]:
            closing = [self._on_log(tap, tap.log.close) for tap in self._taps.values()]
            return gatherResults(closing)

        return self.flush().addCallback(close).addCallback(lambda _: None)

    def _on_log(self, tap: Tap, function: Callable[..., Result], *args: object) -> Deferred[Result]:
        """Run what changes a log on the worker thread, one at a time for each log."""
        return tap.lock.run(self._blocking.run, function, *args)

    def _adopt(self, stream: Stream) -> Tap:
        stream_id = stream.stream_id
        name = f"{stream_id}/subscriptions.json"
        saver = Saver(self._blocking, lambda data: self._store.save(name, data))
        tap = Tap(stream, self._store.open_log(stream_id), saver)
        self._taps[stream.name] = self._by_id[stream_id] = tap
        self._index(stream.address)
        return tap

    def _index(self, address: str) -> None:
        found = tuple(t.stream for t in self._taps.values() if t.stream.address == address)
        if found:
            self._by_address[address] = found
        else:
            self._by_address.pop(address, None)

    def _save(self) -> Deferred[None]:
        return self._saver.save(self._encode)

    def _encode(self) -> bytes:
        streams = [
            {"id": s.stream_id, "name": s.name, "address": s.address, "epoch": s.epoch}
            for s in (tap.stream for tap in self._taps.values())
        ]
        value = {
            "version": _VERSION,
            "next_id": self._next_id,
            "epochs": self._epochs,
            "streams": streams,
        }
        return json.dumps(value, indent=1, sort_keys=True).encode()

    # -- looking up ----------------------------------------------------------------------------

    def taps(self, address: str) -> tuple[Stream, ...]:
        """Return the streams that tap `address`; ask again after `StreamsOwner.taps_changed`."""
        return self._by_address.get(address, ())

    def all(self) -> list[Tap]:
        """Return all streams in order of their names."""
        return [self._taps[name] for name in sorted(self._taps)]

    def find(self, name: str) -> Tap | None:
        """Return the stream called `name`."""
        return self._taps.get(name)

    def get(self, name: str) -> Tap:
        """Return the stream called `name`; raises RefusedError (not-found)."""
        tap = self._taps.get(name)
        if tap is None:
            raise RefusedError.of(Code.NOT_FOUND, f"There is no stream {name!r}.")
        return tap

    def find_address(self, address: str) -> Tap | None:
        """Return the stream that stands for `address`: the one of its name, else the oldest."""
        named = self._taps.get(address)
        if named is not None and named.stream.address == address:
            return named
        streams = self._by_address.get(address, ())
        return self._by_id[streams[0].stream_id] if streams else None

    def find_subscription(self, name: str) -> Tap | None:
        """Return the stream that the subscription `name` reads."""
        return self._subscribed.get(name)

    # -- making and deleting -------------------------------------------------------------------

    def create(self, name: str, address: str) -> Deferred[Tap]:
        """Make a tap; what the address accepts from this call on is recorded.

        The Deferred fires when the definition is durable. The same tap again is no error.
        Raises RefusedError: bad-name, already-exists (for another address), too-many.
        """
        check_name(name, "stream")
        check_name(address, "address")
        known = self._taps.get(name)
        if known is not None:
            if known.stream.address != address:
                raise RefusedError.of(
                    Code.ALREADY_EXISTS,
                    f"The stream {name!r} taps the address {known.stream.address!r}, "
                    f"not {address!r}. Choose another name, or delete it first.",
                )
            return self._save().addCallback(lambda _: known)
        if len(self._taps) >= self.settings.streams_max:
            raise RefusedError.of(
                Code.TOO_MANY, f"There are {len(self._taps)} streams already; that is the limit."
            )
        self._owner.ensure_address(address)
        epoch = self._epochs.get(name, 0) + 1
        stream = Stream(self._next_id, name, address, epoch, self)
        self._next_id += 1
        self._epochs[name] = epoch
        tap = self._adopt(stream)
        self._owner.taps_changed(address)
        return self._save().addCallback(lambda _: tap)

    def delete(self, name: str) -> Deferred[None]:
        """Delete a tap with its log and subscriptions. Raises RefusedError (not-found)."""
        tap = self.get(name)
        stream = tap.stream
        tap.deleted = True
        del self._taps[name], self._by_id[stream.stream_id]
        for known in tap.subscriptions:
            self._subscribed.pop(known, None)
        tap.subscriptions.clear()
        self._index(stream.address)
        self._owner.taps_changed(stream.address)
        _fire(tap)

        def forget(_: object) -> Deferred[None]:
            if stream.next_offset:
                self._owner.release(stream.stream_id, 0, stream.next_offset - 1)
            return self._on_log(tap, self._remove_files, tap)

        return self._save().addCallback(forget)

    def _remove_files(self, tap: Tap) -> None:
        tap.log.delete()
        self._store.remove(f"{tap.stream.stream_id}/subscriptions.json")

    # -- the life of the tails -----------------------------------------------------------------

    def durable_up_to(self, ticket: int) -> None:
        """The journal has synced all up to `ticket`."""
        for tap in self._by_id.values():
            tap.stream.durable_up_to(ticket)

    def store_failed(self, refusal: Refusal) -> None:
        """The journal has stopped for good."""
        for tap in self._by_id.values():
            tap.stream.store_failed(refusal)

    def tick(self) -> None:
        """Seal old tails, end old pins, apply retention. Call it a few times a second."""
        now = self.now_ms()
        settings = self.settings
        for tap in list(self._taps.values()):
            stream = tap.stream
            oldest = stream.oldest_ms
            if oldest is not None:
                age = now - oldest
                if age >= settings.seal_after_ms or (
                    stream.volatile and age >= settings.volatile_after_ms
                ):
                    stream.ask_seal()
            if tap.pins:
                tap.pins = {pin: value for pin, value in tap.pins.items() if value[1] > now}
            if settings.retention.age_ms_max > 0:
                self._retain(tap)

    def seal(self, stream: Stream) -> None:
        """Write what has gathered; part of `StreamPort`."""
        tap = self._by_id.get(stream.stream_id)
        if tap is not None:
            self._seal(tap)

    def advanced(self, stream: Stream) -> None:
        """Wake who waits for a higher head; part of `StreamPort`."""
        tap = self._by_id.get(stream.stream_id)
        if tap is not None and tap.waiters:
            _fire(tap)

    def wait(self, tap: Tap) -> Deferred[None]:
        """Return a Deferred that fires when the head rises or the stream is deleted.

        Cancel it to stop waiting.
        """
        waiter: Deferred[None] = Deferred(tap.waiters.remove)
        tap.waiters.append(waiter)
        return waiter

    def _seal(self, tap: Tap) -> Deferred[None]:
        stream = tap.stream
        taken = stream.take()
        if taken is None:
            return succeed(None)

        def done(result: object) -> None:
            if isinstance(result, Failure):
                stream.seal_failed()
                self._failed(result, stream)
                return
            stream.sealed()
            if not tap.deleted:
                self._owner.release(stream.stream_id, taken.first, taken.end - 1)
                self._retain(tap)

        return self._on_log(tap, self._append, tap, taken).addBoth(done)

    def _append(self, tap: Tap, taken: Taken) -> None:
        if not tap.deleted:
            rows.append_taken(tap.log, taken)

    def _retain(self, tap: Tap) -> None:
        """Apply retention: the decision here, the unlinking on the worker thread."""
        stream = tap.stream
        drop = retention.decide(
            tap.log.segments(), tap.floor(), self.settings.retention, self.now_ms()
        )
        if drop.count == 0 or tap.dropping:
            return
        if drop.lost_end > drop.lost_first:
            lost_last = drop.lost_end - 1
            stream.lost_messages += drop.lost_end - drop.lost_first
            self._owner.stream_lost(stream.stream_id, drop.lost_first, lost_last, _LOST)
        stream.first_offset = tap.log.segments()[drop.count].first
        tap.dropping = True

        def done(result: object) -> None:
            tap.dropping = False
            if isinstance(result, Failure):
                self._failed(result, stream)

        self._on_log(tap, tap.log.drop, drop.count).addBoth(done)

    def _failed(self, failure: Failure, stream: Stream) -> None:
        error = failure.value
        if not isinstance(error, Exception):
            failure.raiseException()
        self._owner.stream_failed(stream.stream_id, error)

    # -- subscriptions -------------------------------------------------------------------------

    def attach(
        self, name: str, tap: Tap, starting: str, position: tuple[int, int] | None
    ) -> Deferred[Subscription]:
        """Attach a reader; `position` is (epoch, offset) of its checkpoint, where it has one.

        Raises RefusedError: bad-name, bad-value, in-use (the name reads another stream), too-many.
        """
        check_name(name, "subscription")
        other = self._subscribed.get(name)
        if other is not None and other is not tap:
            raise RefusedError.of(
                Code.IN_USE,
                f"The subscription {name!r} reads the address {other.stream.address!r}, "
                f"not {tap.stream.address!r}. Give this query a name of its own.",
            )
        known = tap.subscriptions.get(name)
        if known is None and len(tap.subscriptions) >= self.settings.subscriptions_max:
            raise RefusedError.of(
                Code.TOO_MANY,
                f"The stream {tap.stream.name!r} has {len(tap.subscriptions)} subscriptions; "
                "that is the limit. Delete those that nobody uses.",
            )
        place = tap.place
        offset = position[1] if position is not None and position[0] == place.epoch else None
        made = subscription.attach(
            name, known, place, starting=starting, position=offset, now_ms=self.now_ms()
        )
        tap.subscriptions[name] = made
        self._subscribed[name] = tap
        return tap.save().addCallback(lambda _: made)

    def commit(self, name: str, epoch: int, offset: int, fence: int) -> Deferred[Subscription]:
        """Lift a floor; fires when it is durable. Raises as `subscription.commit`."""
        tap, known = self._known(name)
        made = subscription.commit(
            known, tap.place, epoch=epoch, offset=offset, fence=fence, now_ms=self.now_ms()
        )
        tap.subscriptions[name] = made
        if made.floor == known.floor:
            return succeed(made)
        return tap.save().addCallback(lambda _: made)

    def unsubscribe(self, name: str) -> Deferred[None]:
        """Delete a subscription. Raises RefusedError (not-found)."""
        tap, _ = self._known(name)
        del tap.subscriptions[name], self._subscribed[name]
        return tap.save()

    def _known(self, name: str) -> tuple[Tap, Subscription]:
        tap = self._subscribed.get(name)
        if tap is None:
            raise RefusedError.of(Code.NOT_FOUND, f"There is no subscription {name!r}.")
        return tap, tap.subscriptions[name]

    def pin(self, tap: Tap, pin: str, low: int, until_ms: int) -> None:
        """Hold retention at `low` until `until_ms`; the same pin again prolongs it."""
        known = tap.pins.get(pin)
        tap.pins[pin] = (low if known is None else min(known[0], low), until_ms)

    def run(self, function: Callable[..., Result], *args: object) -> Deferred[Result]:
        """Run a reading on a worker thread."""
        return self._blocking.run(function, *args)


def _fire(tap: Tap) -> None:
    waiters, tap.waiters = tap.waiters, []
    for waiter in waiters:
        waiter.callback(None)
