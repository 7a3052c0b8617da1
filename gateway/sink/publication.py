"""One commit on its way: the rows of its stages to the broker, a slice in each turn.

    read a slice (thread) ──> room? ──no──> wait, ask again
                                │ yes
                                v
              messages and progress: one atomic unit of the journal ──> next slice
                                                                          │ none left
                                                                          v
                                                   committed, in a last unit ──> durable ──> done

So a kill leaves a journal that says to the row how far it is. Nothing that is published is handed
out before its unit is on disk: else a consumer could have a message that a crash takes back and the
next start publishes again.

While a slice does not fit as a whole it is halved, down to one row: the row that is refused is told
with its address. What may pass (a full address, an operator, the disk, a journal that is behind) is
waited for; anything else ends the publication, and the next commit call, or the next start, goes on
at that row. An address that refuses when it is full was asked before the batch began
(`gateway.sink.ways`): half a batch cannot be taken back, so that its rest waits there too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from twisted.internet.defer import Deferred

from gateway.broker import Gateway
from gateway.broker.routing.route import Route
from gateway.model.address import parse_destination
from gateway.model.definitions import StageRow
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import IDENTIFIED
from gateway.model.ports import Send
from gateway.model.principal import Principal
from gateway.model.run import Outcome, Run
from gateway.sink.form import Form
from gateway.sink.ledger import Commit, Ledger
from gateway.sink.places import Places
from gateway.sink.ports import Clock, Files, RunBlocking
from gateway.sink.reading import Slice, StageReader

#: Messages that are alike, and their way.
_Way: TypeAlias = tuple[Route, Run]
#: Sends on a way; returns the ticket.
_Sending: TypeAlias = Callable[[Route, Run], int]
#: Where a row is refused, None where there is no way there, and why.
_Refused: TypeAlias = tuple[Route | None, Refusal]

#: A refusal that may pass is asked again after this long, where nothing has told of room before.
PAUSE_SECONDS: Final = 0.05
#: Ways to addresses that are kept open.
ROUTES_MAX: Final = 256
#: Rows that are asked for one by one where a limit is near.
_NEAR_ROWS: Final = 100
#: Stands for the refusal that a limit near might bring.
_NEAR: Final = Refusal(code=Code.ADDRESS_FULL, text="A limit is near.", transient=True)


class Stopped(Exception):  # noqa: N818 - no error: the gateway stops
    """The gateway stops; the next start goes on."""


class Routes:
    """The ways that a publication sends on; implements the ProducerOwner port for all of them."""

    def __init__(
        self, broker: Gateway, woken: Callable[[], None], principal: Principal | None
    ) -> None:
        self._broker = broker
        self._woken = woken
        self._principal = principal
        self._open: OrderedDict[tuple[str, Form], Route] = OrderedDict()

    def to(self, address: str, form: Form) -> Route:
        """Return the way to an address. Raises RefusedError."""
        key = address, form
        route = self._open.get(key)
        if route is None:
            route = self._broker.open_producer(
                parse_destination(address), form.routing, self, principal=self._principal
            )
            # What comes was promised to nobody, so that an address that blocks says so.
            route.credited = False
            self._open[key] = route
            if len(self._open) > ROUTES_MAX:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(key)
        return route

    def close(self) -> None:
        """Close them all."""
        while self._open:
            self._open.popitem()[1].close()

    def producer_unblocked(self) -> None:
        """See the ProducerOwner port."""
        self._woken()

    def producer_blocked(self, refusal: Refusal) -> None:
        """See the ProducerOwner port: it is asked before each slice."""

    def producer_refused(self, refusal: Refusal) -> None:
        """See the ProducerOwner port: what is published next is judged anew, and told."""
        self.close()
        self._woken()


class Publication:
    """See the module text.

    Attributes:
        refusal: what it waits for now, None while it moves.
    """

    def __init__(
        self,
        producer: str,
        broker: Gateway,
        ledger: Ledger,
        *,
        files: Files,
        blocking: RunBlocking,
        clock: Clock,
        places: Places,
        file_of: Callable[[str, int, StageRow], str],
        principal: Principal | None = None,
    ) -> None:
        """`file_of` names the file of a stage, by producer, batch and what the intent says."""
        self.refusal: Refusal | None = None
        self._producer = producer
        self._broker = broker
        self._ledger = ledger
        self._files = files
        self._blocking = blocking
        self._clock = clock
        self._places = places
        self._file_of = file_of
        self._routes = Routes(broker, self._wake, principal)
        self._pause: Deferred[None] | None = None
        self._stopping = False

    def stop(self) -> None:
        """Publish nothing more."""
        self._stopping = True
        self._wake()

    async def run(self) -> int:
        """Publish what is left; returns the ticket behind which the batch is committed.

        Raises RefusedError for what does not pass, Stopped.
        """
        try:
            while (commit := self._commit()) is not None:
                if commit.stage == len(commit.stages):
                    return self._finish()
                await self._places.take()
                try:
                    gave_way = await self._go_on()
                finally:
                    self._places.give()
                if gave_way:
                    await self._pass_by()
            raise Stopped
        finally:
            self._routes.close()

    async def _go_on(self) -> bool:
        """Publish a stage, from where it is; returns whether it gave way to others."""
        commit = self._commit()
        if commit is None:
            return False
        stage = commit.stages[commit.stage]
        file = self._file_of(self._producer, commit.batch, stage)
        return not await self._stage(file, commit.row)

    async def _pass_by(self) -> None:
        """Pause without a place."""
        places = self._places
        places.waiting += 1
        try:
            await self._wait(places.pause(PAUSE_SECONDS))
        finally:
            places.waiting -= 1

    def _commit(self) -> Commit | None:
        """Return what is being published; None when somebody had the producer forgotten."""
        known = self._ledger.producers.get(self._producer)
        return None if known is None or self._stopping else known.commit

    def _finish(self) -> int:
        broker = self._broker
        definition = self._ledger.finish(self._producer, broker.now_ms())
        ticket = broker.store.define(definition)
        broker.turn.need_end()
        return ticket

    async def _stage(self, file: str, row: int) -> bool:
        """Publish a stage from a row on; returns whether it is at its end."""
        run = self._blocking.run
        most = self._ledger.settings.max_message_size
        try:
            reader = await run(StageReader, self._files, file, row, most)
        except OSError as error:
            raise _lost(file, error) from error
        ahead: Deferred[Slice | None] = run(reader.next)
        try:
            while (found := await ahead) is not None:
                ahead = run(reader.next)  # made while this one is published
                if not await self._all(found):
                    return False
            return True
        finally:
            ahead.addBoth(lambda _: reader.close())

    async def _all(self, rows: Slice) -> bool:
        """Publish a slice: whole, or as much as fits, and the rest when there is room.

        Returns whether it is published; it is not where others want the place of one that waits.
        """
        rest: list[Slice] = [rows]  # the next one last
        while rest:
            if self._stopping:
                raise Stopped
            one = rest.pop()
            taken, refused = self._put(one)
            if taken:
                self.refusal = None
                await self._wait(0)
                rest += [one.cut(taken)[1]] if taken < one.rows else []
            elif one.rows > 1:
                first, behind = one.cut(min(_NEAR_ROWS, one.rows // 2))
                rest += [behind, first]
            else:
                await self._refused(one, *refused)
                if self._places.wanted:
                    return False
                rest.append(one)
        return True

    async def _refused(self, one: Slice, route: Route | None, refusal: Refusal) -> None:
        """Wait for what may pass. Raises RefusedError for what does not."""
        where = f"Row {one.first} of a partition, for {one.parts[0].address!r}: "
        told = replace(refusal, text=where + refusal.text)
        if route is None or not refusal.transient:
            raise RefusedError(replace(told, transient=False))
        self._broker.pressure.room.watch(route.target)
        self.refusal = told
        await self._wait(PAUSE_SECONDS)

    # ---- one slice

    def _put(self, rows: Slice) -> tuple[int, _Refused]:
        """Publish a slice with its progress, or the first rows of it.

        Returns how many, and who refuses the others; of none nothing is done.
        """
        sends: list[_Way] = []
        now_ms = self._broker.now_ms()
        for part in rows.parts:
            try:
                route = self._routes.to(part.address, rows.form)
            except RefusedError as error:
                return 0, (None, error.refusal)
            refusal = route.resolve() or route.blocked()
            if refusal is not None:
                return 0, (route, refusal)
            sends += [(route, run) for run in part.run(now_ms).runs()]
        first = sends[0][0]
        if all(route.fits(run, len(sends)) for route, run in sends):
            self._send(sends, rows.rows, _store)
        elif len(sends) == 1 and _pages(*sends[0]):
            return self._page(*sends[0])
        elif rows.rows > _NEAR_ROWS:
            return 0, (first, _NEAR)
        else:
            refused = self._foreseen(sends)
            if refused is not None:
                return 0, refused
            self._send(sends, rows.rows, _admit)
        return rows.rows, (first, _NEAR)

    def _page(self, route: Route, run: Run) -> tuple[int, _Refused]:
        """Send a run to the pages of its address, as far as there is room."""
        outcomes: list[Outcome] = []

        def send(way: Route, some: Run) -> int:
            outcomes.append(self._broker.routing.shared.pages.send(way, some, admitted=False))
            return outcomes[0].ticket

        taken = self._send([(route, run)], run.count, send, outcomes)
        self._broker.pressure.room.watch(route.target)
        return taken, (route, outcomes[0].refusal or _NEAR)

    def _foreseen(self, sends: Sequence[_Way]) -> _Refused | None:
        """Return who would refuse one of these, asked message by message."""
        singles: list[Send] = [
            (route, one.marked(one.flags & ~IDENTIFIED, one.expires))
            for route, run in sends
            for one in run.singles()
        ]
        refusal = self._broker.routing.forecast.refusal(singles)
        if refusal is None:
            return None
        return sends[0][0], refusal

    def _send(
        self, sends: Sequence[_Way], rows: int, send: _Sending, outcomes: Sequence[Outcome] = ()
    ) -> int:
        """Have messages and progress in one unit of the journal; returns how many rows.

        All of them, or as many as the one of `outcomes` says when `send` has put it there.
        """
        broker = self._broker
        forecast = broker.routing.forecast
        ticket = 0
        forecast.begin_atomic()
        try:
            for route, run in sends:
                route.hold()
                if run.flags & IDENTIFIED:
                    # What the address knows already counts as published.
                    outcome = broker.routing.duplicates.send(route, run)
                    assert outcome.refusal is None, "refused though it was found to fit"
                    ticket = max(ticket, outcome.ticket)
                else:
                    ticket = max(ticket, send(route, route.stamped(run) if route.stamps else run))
            if outcomes and outcomes[0].refusal is not None:
                rows = outcomes[0].taken
            if rows:
                progress = self._ledger.advance(self._producer, rows)
                ticket = max(ticket, broker.store.define(progress))
        finally:
            forecast.end_atomic(ticket)
        broker.turn.need_end()
        return rows

    # ---- waiting

    async def _wait(self, seconds: float) -> None:
        """Go on in another turn, or before when there is room."""
        pause: Deferred[None] = Deferred()
        self._pause = pause
        self._clock.callLater(seconds, lambda: None if pause.called else pause.callback(None))
        await pause
        self._pause = None

    def _wake(self) -> None:
        pause = self._pause
        if pause is not None and not pause.called and self.refusal is not None:
            # In a turn of its own: whoever tells of room is in the middle of something.
            self._clock.callLater(0, lambda: None if pause.called else pause.callback(None))


def _store(route: Route, run: Run) -> int:
    """Store what leaves every limit unreached; returns the ticket."""
    return route.store_run(run)


def _admit(route: Route, run: Run) -> int:
    """Send what was found to be taken, message by message; returns the ticket."""
    return route.send_admitted(run)


def _pages(route: Route, run: Run) -> bool:
    """Whether all of a run goes to the pages of one address, and nowhere else."""
    alone = route.fan is None and not run.flags & IDENTIFIED
    return alone and route.target.uses_pages and route.target.paging is not None


def _lost(file: str, error: OSError) -> RefusedError:
    return RefusedError.of(
        Code.NOT_FOUND,
        f"The stage {file} cannot be read ({error.strerror}); the rest of its batch cannot be "
        "published. Forget the producer (DELETE /api/v1/sink/producers/NAME) to commit again.",
    )
