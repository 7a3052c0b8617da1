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
from typing import Final, TypeVar

from twisted.internet.defer import Deferred, gatherResults

from gateway.model.address import check_name
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.streams.ports import RunBlocking, StreamsOwner, StreamStore
from gateway.streams.saver import Saver
from gateway.streams.sealing import Sealing
from gateway.streams.settings import StreamSettings
from gateway.streams.stream import Accepted, Stream
from gateway.streams.subscribers import Holder, Subscribers
from gateway.streams.subscription import Subscription
from gateway.streams.tap import Tap

_FILE: Final = "streams.json"
_VERSION: Final = 1

Result = TypeVar("Result")


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
        self._next_id = 1
        self._epochs: dict[str, int] = {}
        #: Where the logs of streams begin that were taken over, by their ids.
        self._bases: dict[int, int] = {}
        self._identity = ""
        self._identity_stored = False
        self._saver = Saver(blocking, lambda data: store.save(_FILE, data))
        self._sealing = Sealing(blocking, owner, settings, now_ms)
        self._subscribers = Subscribers(settings.subscriptions_max, now_ms)

    # -- start and stop ------------------------------------------------------------------------

    def load(self, make_identity: Callable[[], str] = str) -> None:
        """Open everything that is stored. Blocks; call it before listeners open, then `recover`.

        `make_identity` makes the id of a gateway that has none yet: the streams of one data
        directory, and of its copies, are told apart by it from those of another one.

        Raises StorageError's kinds from the store: damage is refused with file and offset.
        """
        data = self._store.load(_FILE)
        if data is None:
            self._identity = make_identity()
            return
        value = json.loads(data)
        if value.get("version") != _VERSION:
            raise ValueError(f"{_FILE} has version {value.get('version')!r}; this program knows 1")
        self._next_id = value["next_id"]
        self._epochs = dict(value["epochs"])
        self._identity = value.get("id", "")
        for fields in value["streams"]:
            stream = Stream(fields["id"], fields["name"], fields["address"], fields["epoch"], self)
            tap = self._adopt(stream)
            self._begin_at(tap, fields.get("base", 0))
            stored = self._store.load(f"{stream.stream_id}/subscriptions.json")
            if stored:
                self._subscribers.take_up(tap, stored)
        if not self._identity:
            self._identity = make_identity()
            self._store.save(_FILE, self._encode())
        self._identity_stored = True

    def _begin_at(self, tap: Tap, base: int) -> None:
        """Have an empty log begin where the history ends that its gateway has taken over."""
        if base:
            self._bases[tap.stream.stream_id] = base
            if not tap.log.segments():
                tap.log.next_offset = base

    @property
    def identity(self) -> str | None:
        """The id of these streams' gateway; None until it is on the device, with a first stream."""
        return (self._identity or None) if self._identity_stored else None

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
        waiting = [self._sealing.seal(tap) for tap in self._taps.values()]
        return gatherResults(waiting).addCallback(lambda _: None)

    def stop(self) -> Deferred[None]:
        """Seal every tail, then close the logs; call it when nothing is recorded any more."""

        def close(_: object) -> Deferred[list[None]]:
            closing = [self._sealing.on_log(tap, tap.log.close) for tap in self._taps.values()]
            return gatherResults(closing)

        return self.flush().addCallback(close).addCallback(lambda _: None)

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
        streams: list[dict[str, object]] = [
            {"id": s.stream_id, "name": s.name, "address": s.address, "epoch": s.epoch}
            for s in (tap.stream for tap in self._taps.values())
        ]
        for one in streams:
            if one["id"] in self._bases:
                one["base"] = self._bases[int(str(one["id"]))]
        value = {
            "version": _VERSION,
            "id": self._identity,
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
        return self._subscribers.find(name)

    def subscribed(self, name: str) -> list[Tap]:
        """Return all streams that the subscription `name` reads."""
        return self._subscribers.all(name)

    def tapped(self, fits: Callable[[str], bool]) -> list[Tap]:
        """Return the streams that stand for the addresses that `fits` takes, by their names."""
        found = (self.find_address(address) for address in self._by_address if fits(address))
        return sorted((t for t in found if t is not None), key=lambda tap: tap.stream.name)

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

        def done(_: object) -> Tap:
            self._identity_stored = True
            return tap

        return self._save().addCallback(done)

    def delete(self, name: str) -> Deferred[None]:
        """Delete a tap with its log and subscriptions. Raises RefusedError (not-found)."""
        tap = self.get(name)
        stream = tap.stream
        tap.deleted = True
        del self._taps[name], self._by_id[stream.stream_id]
        self._subscribers.forget(tap)
        self._index(stream.address)
        self._owner.taps_changed(stream.address)
        tap.wake()

        def forget(_: object) -> Deferred[None]:
            if stream.next_offset:
                self._owner.release(stream.stream_id, 0, stream.next_offset - 1)
            return self._sealing.on_log(tap, self._remove_files, tap)

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

    def use(self, settings: StreamSettings) -> None:
        """Bring other settings into force, for what is there too."""
        self.settings = self._sealing.settings = settings

    def lagging(self) -> list[str]:
        """Return what is told of streams whose archive is too far behind."""
        return [tap.lagging for tap in self.all() if tap.lagging is not None]

    def tick(self) -> None:
        """Seal old tails, end old pins, apply retention. Call it a few times a second."""
        now = self.now_ms()
        for tap in list(self._taps.values()):
            self._sealing.look_after(tap, now)

    def seal(self, stream: Stream) -> None:
        """Write what has gathered; part of `StreamPort`."""
        tap = self._by_id.get(stream.stream_id)
        if tap is not None:
            self._sealing.seal(tap)

    def advanced(self, stream: Stream) -> None:
        """Wake who waits for a higher head; part of `StreamPort`."""
        tap = self._by_id.get(stream.stream_id)
        if tap is not None and (tap.waiters or tap.watchers):
            tap.wake()

    def wait(self, tap: Tap) -> Deferred[None]:
        """See Tap."""
        return tap.wait()

    def wait_any(self, taps: Sequence[Tap]) -> Deferred[None]:
        """Return a Deferred that fires when one of `taps` has more; cancel it to stop waiting."""

        def over(result: object) -> object:
            for tap in taps:
                tap.ignore(waiter)
            return result

        waiter: Deferred[None] = Deferred()
        for tap in taps:
            tap.listen(waiter)
        return waiter.addBoth(over)

    # -- readers -------------------------------------------------------------------------------

    def attach(
        self,
        name: str,
        tap: Tap,
        starting: str,
        position: tuple[int, int] | None,
        *,
        role: str = "",
        selector: str = "",
    ) -> Deferred[Subscription]:
        """See Subscribers."""
        return self._subscribers.attach(name, tap, starting, position, role=role, selector=selector)

    def commit(self, name: str, epoch: int, offset: int, fence: int) -> Deferred[Subscription]:
        """See Subscribers."""
        return self._subscribers.commit(name, epoch, offset, fence)

    def attach_all(
        self,
        name: str,
        taps: Sequence[Tap],
        starting: str,
        positions: Mapping[str, tuple[int, int]],
        *,
        role: str = "",
        selector: str = "",
    ) -> Deferred[int]:
        """See Subscribers."""
        return self._subscribers.attach_all(
            name, taps, starting, positions, role=role, selector=selector
        )

    def join(
        self,
        name: str,
        taps: Sequence[Tap],
        starting: str,
        positions: Mapping[str, tuple[int, int]],
        *,
        fence: int,
        role: str = "",
        selector: str = "",
    ) -> Deferred[None]:
        """See Subscribers."""
        holder = Holder(fence, role, selector)
        return self._subscribers.join(name, taps, starting, positions, holder)

    def commit_all(
        self, name: str, ends: Mapping[str, tuple[int, int]], fence: int
    ) -> Deferred[dict[str, tuple[int, int]]]:
        """See Subscribers."""
        return self._subscribers.commit_all(name, ends, fence)

    def unsubscribe(self, name: str) -> Deferred[None]:
        """Delete a subscription. Raises RefusedError (not-found)."""
        return self._subscribers.remove(name)

    def pin(self, tap: Tap, pin: str, low: int, until_ms: int) -> None:
        """See Tap."""
        tap.pin(pin, low, until_ms)

    def run(self, function: Callable[..., Result], *args: object) -> Deferred[Result]:
        """Run a reading on a worker thread."""
        return self._blocking.run(function, *args)
