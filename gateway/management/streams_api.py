"""The HTTP calls of streams, below `/api/v1/streams`: operators' and the Spark reader's.

    POST   /streams {"name", "address"}                 make a tap (and the address)
    GET    /streams, /streams/{name}                    heads, floors, lag
    DELETE /streams/{name}                              with its log and subscriptions
    POST   /streams/{name}:find                         {"timestampMs"} -> {"epoch", "offset"}
    POST   /streams/subscriptions/{name}:attach         {"address", "startingOffsets" or
                                                         "startingTimestampMs", "position",
                                                         "selector"}
    POST   /streams/subscriptions/{name}:plan           {"start", "end" | "frozen", caps, "waitMs"}
    POST   /streams/subscriptions/{name}:commit         {"end", "fence"}; `:release` the same, idle
    DELETE /streams/subscriptions/{name}
    POST   /streams/heads                               {"address", "pin", "pinMs", "selector"}
    POST   /streams/read                                {"ranges", "columns", ...} -> Arrow IPC

Who reads needs `consume` at the address of each stream, and `create-durable-queue` where a stream
is made for it. What is named is refused without; of a pattern, and of all, the rest is left out.

A place is `{stream: [epoch, next offset]}`, as in Spark's checkpoint. A selector of `attach` is
fixed for the life of the subscription, one of `heads` is only looked at, one of `read` chooses the
rows. An answer of `read` is one whole Arrow IPC stream that ends in a trailer
(`gateway.streams.reading`); it may stop before the ranges do, and then says where to go on. It
knows no queue and no socket.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from gateway.decoding.view import View
from gateway.management.http import Request, Response, check_query, json_response
from gateway.management.json_body import read_fields
from gateway.management.listing import PAGING, page
from gateway.management.quotas_api import check_quota, count_quota
from gateway.management.router import Router
from gateway.management.stream_answers import shown_loss, shown_stream
from gateway.management.stream_bodies import (
    Attach,
    Commit,
    Find,
    Heads,
    NewStream,
    Plan,
    Position,
    Read,
    ReadRange,
)
from gateway.management.stream_patterns import (
    Patterns,
    Planned,
    check_readable,
    find_taps,
    readable,
)
from gateway.management.stream_reads import Read as UnderWay
from gateway.management.stream_reads import Reads
from gateway.model.errors import Code, RefusedError
from gateway.model.principal import Permission
from gateway.model.roles import Need
from gateway.quotas.meters import Meters
from gateway.selectors import compile_selector
from gateway.streams import plan, reading
from gateway.streams.finding import find_offset
from gateway.streams.plan import Piece
from gateway.streams.registry import StreamRegistry
from gateway.streams.subscription import EARLIEST, Place, Subscription
from gateway.streams.tap import Tap
from gateway.streams.view import make_view

#: A poll is held at most this long: a stopped reader's request must not linger.
WAIT_MS_MAX: Final = 2_000
PIN_MS_MAX: Final = 24 * 3_600_000
RANGES_MAX: Final = 10_000
#: The end of the year 9999 in ms: later ones are mistakes.
TIME_MS_MAX: Final = 253_402_300_799_999
#: Of an answer of `read`: columns made here, or rows as the log has them.
FORMS: Final = ("columns", "stored")


class StreamsApi:
    """The functions behind the routes."""

    def __init__(
        self,
        clock: IReactorTime,
        registry: StreamRegistry,
        name: str = "",
        meters: Meters | None = None,
    ) -> None:
        """`name` is the gateway's."""
        self._meters = meters
        self._clock = clock
        self._registry = registry
        self._name = name
        self._reads = Reads(clock)
        self._patterns = Patterns(clock, registry, self._planned)

    def install(self, router: Router) -> None:
        """Add the routes."""
        base = "/api/v1/streams"
        router.add("GET", base, self.list, need=Need.VIEW)
        router.add("POST", base, self.create, need=Need.MANAGE)
        router.add("POST", f"{base}/heads", self.heads, audited=False, need=Need.ADDRESS)
        router.add("POST", f"{base}/read", self.read, audited=False, need=Need.ADDRESS)
        router.add("GET", base + "/{name}", self.show, need=Need.VIEW)
        router.add("DELETE", base + "/{name}", self.delete, need=Need.MANAGE)
        router.add("POST", base + "/{name}:find", self.find, audited=False, need=Need.ADDRESS)
        one = base + "/subscriptions/{name}"
        router.add("DELETE", one, self.unsubscribe, need=Need.MANAGE)
        router.add("POST", one + ":attach", self.attach, need=Need.ADDRESS)
        router.add("POST", one + ":plan", self.plan, audited=False, need=Need.ADDRESS)
        router.add("POST", one + ":commit", self.commit, audited=False, need=Need.ADDRESS)
        router.add("POST", one + ":release", self.commit, audited=False, need=Need.ADDRESS)

    # -- operators -----------------------------------------------------------------------------

    def list(self, request: Request) -> Response:
        """All streams."""
        check_query(request, PAGING)
        return page(request, self._registry.all(), lambda tap: (tap.stream.name,), shown_stream)

    def show(self, _: Request, name: str) -> Response:
        """One stream; 404."""
        return json_response(200, shown_stream(self._registry.get(name)))

    def create(self, request: Request) -> Deferred[Response]:
        """Make a tap; 201 when it is durable, also when it was there already."""
        fields = read_fields(request, NewStream)
        made = self._registry.create(fields.name, fields.address)
        return made.addCallback(lambda tap: json_response(201, shown_stream(tap)))

    def delete(self, _: Request, name: str) -> Deferred[Response]:
        """Delete a stream with all it holds; 204, 404."""
        return self._registry.delete(name).addCallback(lambda _: Response(status=204))

    def find(self, request: Request, name: str) -> Deferred[Response]:
        """The offset of the first message accepted at or after a time, else the head; 404."""
        fields = read_fields(request, Find)
        _check_time(fields.timestamp_ms)
        tap = self._registry.get(name)
        check_readable(request.principal, [tap])
        under_way = self._reads.begin()
        found = find_offset(tap, fields.timestamp_ms, self._registry)
        epoch = tap.stream.epoch

        def over(result: int | Failure) -> int | Failure:
            under_way.end()
            return result

        found.addBoth(over)
        return found.addCallback(lambda at: json_response(200, {"epoch": epoch, "offset": at}))

    def unsubscribe(self, _: Request, name: str) -> Deferred[Response]:
        """Delete a subscription; 204, 404."""
        return self._registry.unsubscribe(name).addCallback(lambda _: Response(status=204))

    # -- the reader ----------------------------------------------------------------------------

    def attach(self, request: Request, name: str) -> Deferred[Response]:
        """Attach a reader: its floor and fence. Makes the tap and the subscription if missing."""
        fields = read_fields(request, Attach)
        _check_selector(fields.selector)
        _check_time(fields.starting_timestamp_ms)
        registry = self._registry
        if fields.address_pattern is not None and fields.address is None:
            return self._patterns.attach(name, fields, request.principal)
        if fields.address is None or fields.address_pattern is not None:
            raise RefusedError.of(
                Code.BAD_VALUE, "Give 'address' or 'addressPattern', and only one of them."
            )
        request.principal.check(Permission.CONSUME, fields.address)
        check_readable(request.principal, registry.subscribed(name))
        tap = registry.find_address(fields.address)
        if tap is not None:
            return self._begin(tap, name, fields)
        request.principal.check(Permission.CREATE_DURABLE_QUEUE, fields.address)
        made = registry.create(fields.address, fields.address)
        return made.addCallback(self._begin, name, fields)

    def _begin(self, tap: Tap, name: str, fields: Attach) -> Deferred[Response]:
        """Attach; a time to start at becomes an offset once, while there is no subscription."""
        since_ms = fields.starting_timestamp_ms
        if since_ms is None:
            return self._attach(fields.starting_offsets, tap, name, fields)
        if name in tap.subscriptions:
            return self._attach(EARLIEST, tap, name, fields)
        found = find_offset(tap, since_ms, self._registry)
        return found.addCallback(lambda at: self._attach(str(at), tap, name, fields))

    def _attach(self, starting: str, tap: Tap, name: str, fields: Attach) -> Deferred[Response]:
        if tap.deleted:
            raise RefusedError.of(
                Code.NOT_FOUND, f"The stream {tap.stream.name!r} was deleted meanwhile."
            )
        position = (fields.position or {}).get(tap.stream.name)
        made = self._registry.attach(
            name, tap, starting, position, role=fields.role, selector=fields.selector
        )

        def answer(known: Subscription) -> Response:
            stream, place = tap.stream.name, tap.place
            shown = {
                "subscription": known.name,
                "address": tap.stream.address,
                "fence": known.fence,
                "lifted": [stream] if known.lifted else [],
                "floor": {stream: [known.epoch, known.floor]},
                "first": {stream: [place.epoch, place.first]},
                "heads": {stream: [place.epoch, place.head]},
            }
            return json_response(200, shown)

        return made.addCallback(answer)

    def plan(self, request: Request, name: str) -> Response | Deferred[Response]:
        """How far a batch goes from `start`; waits up to `waitMs` while there is nothing."""
        fields = read_fields(request, Plan)
        check_readable(request.principal, self._registry.subscribed(name))
        if fields.address_pattern is not None:
            return self._patterns.plan(name, fields, request.principal)
        tap = self._subscribed(name)
        stream = tap.stream.name
        epoch, offset = fields.start.get(stream, (tap.place.epoch, tap.place.first))
        idle = fields.end is None and (epoch, offset) == (tap.place.epoch, tap.place.head)
        if not idle or fields.wait_ms <= 0:
            return self._plan(tap, (epoch, offset), fields)
        waiter = self._registry.wait(tap)
        timer = self._clock.callLater(min(fields.wait_ms, WAIT_MS_MAX) / 1000, waiter.cancel)

        def over(_: object) -> Response:
            if timer.active():
                timer.cancel()
            return self._plan(self._subscribed(name), (epoch, offset), fields)

        return waiter.addBoth(over)

    def _plan(self, tap: Tap, start: Position, fields: Plan) -> Response:
        return json_response(200, self._planned(tap, start, fields))

    def _planned(self, tap: Tap, start: Position, fields: Plan) -> Planned:
        name, place = tap.stream.name, tap.place
        epoch, offset = start
        loss = plan.find_loss(place, epoch, offset)
        low = plan.effective_start(place, epoch, offset)
        head = _frozen(place, (fields.frozen or {}).get(name))
        pieces = _pieces(tap, low, head)
        if fields.end is not None:
            ended_epoch, end = fields.end.get(name, (place.epoch, low))
            loss = loss or plan.find_loss(place, ended_epoch, end)
            end = min(max(end, low), place.head) if ended_epoch == place.epoch else low
        else:
            end = plan.find_end(
                pieces, low, head, rows_max=fields.max_messages, bytes_max=fields.max_bytes
            )
        return {
            "end": {name: [place.epoch, end]},
            "start": {name: [place.epoch, low]},
            "first": {name: [place.epoch, place.first]},
            "heads": {name: [place.epoch, place.head]},
            "bytes": {name: plan.count_bytes(pieces, low, end)},
            "losses": [shown_loss(name, loss)] if loss is not None else [],
        }

    def commit(self, request: Request, name: str) -> Deferred[Response]:
        """Lift the floors; 200 when that is durable, 409 for a reader that was replaced."""
        fields = read_fields(request, Commit)
        stream = self._subscribed(name).stream.name
        check_readable(request.principal, self._registry.subscribed(name))
        alone = len(self._registry.subscribed(name)) == 1
        if alone and stream not in fields.end:
            raise RefusedError.of(
                Code.BAD_VALUE, f"The commit of {name!r} does not name its stream {stream!r}."
            )
        done = self._registry.commit_all(name, fields.end, fields.fence)
        return done.addCallback(lambda floors: json_response(200, {"floor": floors}))

    def heads(self, request: Request) -> Response:
        """Places of one address, of those of a pattern or of all; with `pin` it stays `pinMs`."""
        fields = read_fields(request, Heads)
        _check_selector(fields.selector)
        registry, principal = self._registry, request.principal
        if fields.address_pattern is not None:
            taps = readable(principal, find_taps(registry, fields.address_pattern))
        elif fields.address is None:
            taps = readable(principal, registry.all())
        else:
            principal.check(Permission.CONSUME, fields.address)
            tap = registry.find_address(fields.address)
            if tap is None:
                raise RefusedError.of(
                    Code.NOT_FOUND,
                    f"No stream taps the address {fields.address!r}. Make one with POST "
                    "/api/v1/streams, or start a streaming query with it.",
                )
            taps = [tap]
        for tap in taps:
            self._pin(tap, fields.pin, fields.pin_ms)
        gateway = {"name": self._name, "id": registry.identity}
        return json_response(
            200, {"gateway": gateway, "items": [shown_stream(tap) for tap in taps]}
        )

    def read(self, request: Request) -> Deferred[Response]:
        """Rows of ranges as an Arrow IPC stream; 410 with `losses` for what is not there."""
        # Asked first: looking at what is asked for is work, too.
        under_way = self._reads.begin(reading.STORED_BYTES)
        try:
            return self._read(request, read_fields(request, Read), under_way)
        except BaseException:
            under_way.end()
            raise

    def _read(self, request: Request, fields: Read, under_way: UnderWay) -> Deferred[Response]:
        if not fields.ranges or len(fields.ranges) > RANGES_MAX:
            raise RefusedError.of(
                Code.BAD_VALUE,
                f"'ranges' has {len(fields.ranges)} entries; from 1 to {RANGES_MAX} are possible.",
            )
        view = _view(fields)
        _check_selector(fields.selector)
        check_quota(self._meters, request, inward=False)
        streams = dict.fromkeys(one.stream for one in fields.ranges)
        check_readable(request.principal, map(self._registry.get, streams))
        asked = _Asked()
        for index, one in enumerate(fields.ranges):
            tap = self._registry.get(one.stream)
            self._pin(tap, fields.pin, fields.pin_ms)
            if asked.beyond is None:
                asked.add(index, one, tap)
        if asked.losses and not fields.skip_losses:
            under_way.end()
            text = "Some of the messages asked for are not there any more; see 'losses'."
            shown = {"code": "lost", "message": text, "losses": asked.losses}
            return _done(json_response(410, shown))
        most = reading.STORED_BYTES if view is None else reading.SLICE_BYTES
        function = partial(
            reading.read_slice,
            skip_losses=fields.skip_losses,
            losses=asked.losses,
            selector=fields.selector,
            beyond=asked.beyond,
            bytes_max=min(most, under_way.bytes_max),
        )
        made = self._registry.run(function, view, asked.snapshots)
        rows = sum(max(0, one.end - one.start) for one in fields.ranges)

        def answer(pieces: list[bytes]) -> Response:
            count_quota(self._meters, request, rows, sum(map(len, pieces)), inward=False)
            return under_way.answer(pieces)

        def failed(failure: Failure) -> Failure:
            under_way.end()
            return failure

        return made.addCallbacks(answer, failed)

    def _pin(self, tap: Tap, pin: str | None, pin_ms: int) -> None:
        if pin:
            until = self._registry.now_ms() + min(max(pin_ms, 0), PIN_MS_MAX)
            self._registry.pin(tap, pin[:80], tap.place.first, until)

    def _subscribed(self, name: str) -> Tap:
        tap = self._registry.find_subscription(name)
        if tap is None:
            raise RefusedError.of(Code.NOT_FOUND, f"There is no subscription {name!r}.")
        return tap


class _Asked:
    """The ranges of a read: where their parts are, as far as one answer can have them.

    Attributes:
        beyond: [range, offset] of what is left out, None where all of it is in the snapshots.
    """

    def __init__(self) -> None:
        self.snapshots: list[reading.Snapshot] = []
        self.losses: list[dict[str, object]] = []
        self.beyond: list[int] | None = None
        self._left = reading.BLOCKS_MAX

    def add(self, index: int, one: ReadRange, tap: Tap) -> None:
        """Look where a range is, and what of it is lost."""
        loss = plan.find_loss(tap.place, one.epoch, one.start)
        loss = loss or plan.find_loss(tap.place, one.epoch, one.end)
        if loss is not None:
            self.losses.append(shown_loss(one.stream, loss))
        if one.epoch != tap.stream.epoch:
            return
        low = plan.effective_start(tap.place, one.epoch, one.start)
        if one.end <= low:
            return
        if self._left <= 0:
            self.beyond = [index, low]
            return
        found = reading.take_snapshot(
            index, tap.stream, tap.log, low, one.end, blocks_max=self._left
        )
        self.snapshots.append(found)
        self._left -= len(found.refs) + 1
        if found.cut:
            self.beyond = [index, found.end]


def _check_selector(selector: str) -> None:
    """Raise RefusedError (bad-selector) here, and not on the worker thread."""
    if selector:
        compile_selector(selector)


def _check_time(since_ms: int | None) -> None:
    if since_ms is not None and not 0 <= since_ms <= TIME_MS_MAX:
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"The time {since_ms} is not from 0 to {TIME_MS_MAX} ms (1970 to the end of 9999).",
        )


def _view(fields: Read) -> View | None:
    """Return the view that was asked for; None for the stored form. Raises RefusedError."""
    if fields.form not in FORMS:
        raise RefusedError.of(
            Code.BAD_VALUE, f"'form' is {fields.form[:60]!r}; possible: {', '.join(FORMS)}."
        )
    if fields.form == "columns":
        return make_view(fields.columns, fields.headers, fields.body)
    if fields.columns:
        raise RefusedError.of(
            Code.BAD_VALUE, "The form 'stored' has columns of its own; name none."
        )
    return None


def _done(response: Response) -> Deferred[Response]:
    done: Deferred[Response] = Deferred()
    done.callback(response)
    return done


def _frozen(place: Place, frozen: Position | None) -> int:
    """Return the head a plan may go to: AvailableNow's target, reached when its life is over."""
    if frozen is None:
        return place.head
    return min(frozen[1], place.head) if frozen[0] == place.epoch else place.first


def _pieces(tap: Tap, start: int, end: int) -> list[Piece]:
    """Return what lies in [start, end) with sizes, in the log and in the tail."""
    stream = tap.stream
    stored = tap.log.blocks(start, min(end, stream.sealed_offset))
    pieces = [Piece(ref.first, ref.end, ref.size) for ref in stored]
    runs = stream.tail(max(start, stream.sealed_offset), end)
    return pieces + [Piece(run.base, run.end, run.size) for run in runs]
