"""The sink joined: stages come, are sealed, and a commit publishes them.

A stage is on the device before its seal is answered, a batch before its commit is. Lives on the
reactor; whatever blocks goes through the `RunBlocking` port. It knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from gateway.broker import Gateway
from gateway.model.definitions import CommitDefinition, ProgressDefinition, StageRow
from gateway.model.errors import STOPPING, Code, Refusal, RefusedError
from gateway.model.principal import Principal
from gateway.sink.durable import when_durable
from gateway.sink.ledger import Known, Ledger, Next
from gateway.sink.places import Places
from gateway.sink.ports import Clock, Files, RunBlocking
from gateway.sink.publication import Publication, Stopped
from gateway.sink.reading import judge_file
from gateway.sink.settings import SinkSettings
from gateway.sink.staging import Stage, StageKey, Staging, owner_of, stage_key
from gateway.sink.ways import check_ways

Result = TypeVar("Result")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a batch is.

    Attributes:
        done: it is committed, and on the device.
        messages, total: rows that are published, of so many; 0 of 0 for a batch that was done
            before.
        refusal: what it waits for; None while it moves.
    """

    done: bool
    messages: int = 0
    total: int = 0
    refusal: Refusal | None = None


class _Running:
    """A publication, and those who wait for its end."""

    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self._waiters: list[Deferred[bool]] = []
        self._over = False
        self._error: BaseException | None = None

    def wait(self) -> Deferred[bool]:
        """Return what fires with True at the end, and fails as that does; `late` before it."""
        waiter: Deferred[bool] = Deferred()
        self._waiters.append(waiter)
        if self._over:
            self.end(self._error)
        return waiter

    def late(self, waiter: Deferred[bool]) -> None:
        """Wait no more: it fires with False."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            waiter.callback(False)

    def end(self, error: BaseException | None) -> None:
        """It is over; tells those who wait."""
        self._over, self._error = True, error
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if error is None:
                waiter.callback(True)
            else:
                waiter.errback(error)


class Sink:
    """See the module text. `committed` (read only): batches, since the start."""

    def __init__(
        self,
        broker: Gateway,
        files: Files,
        blocking: RunBlocking,
        clock: Clock,
        settings: SinkSettings,
        *,
        may_take: Callable[[int], bool],
    ) -> None:
        """`may_take` asks the disk's limit, on a thread."""
        self.ledger = Ledger(settings)
        self.staging = Staging(settings)
        self._broker = broker
        self._files = files
        self._blocking = blocking
        self._clock = clock
        self._durable = partial(when_durable, broker)
        self._may_take = may_take
        self._running: dict[str, _Running] = {}
        self._places = Places()
        self._stopping = False
        self.committed = 0

    def use(self, settings: SinkSettings) -> None:
        """Go on with other bounds."""
        self.ledger.settings = self.staging.settings = settings

    # ---- start and stop

    def restore(
        self, commits: Sequence[CommitDefinition], progress: Sequence[ProgressDefinition]
    ) -> None:
        """Take back what the journal remembers, and the stages that are there. Blocks."""
        self.ledger.restore(commits, progress)
        strange = self.staging.take_up(self._files.found(), self._clock.seconds())
        if strange:
            _log.warning("sink.files_strange", files=strange[:10], count=len(strange))

    def start(self) -> None:
        """Go on with what was being published when the last process ended."""
        for producer, known in list(self.ledger.producers.items()):
            if known.commit is not None:
                _log.info(
                    "sink.batch_resumed",
                    producer=producer,
                    batch=known.commit.batch,
                    published=known.commit.published,
                    total=known.commit.total,
                )
                self._run(producer)

    def stop(self) -> None:
        """Publish nothing more; the next start goes on."""
        self._stopping = True
        for running in list(self._running.values()):
            running.publication.stop()

    def tick(self) -> None:
        """Let expire what was not heard of for long enough. Call it every second or so."""
        kept = self._stages_in_use()
        for stage in self.staging.expired(self._clock.seconds(), kept):
            _log.info("sink.stage_expired", file=stage.file, bytes=stage.size)
            self._remove(stage)
        for definition in self.ledger.expire(self._broker.now_ms()):
            self._forget(definition)

    def _stages_in_use(self) -> set[StageKey]:
        return {
            key
            for producer, known in self.ledger.producers.items()
            for key in _keys(producer, known)
        }

    def _is_in_use(self, key: StageKey) -> bool:
        return any(
            key in _keys(producer, known)
            for producer, known in self.ledger.producers.items()
            if known.commit is not None
            and known.commit.batch == key.batch
            and owner_of(producer) == key.owner
        )

    def definitions(self) -> list[CommitDefinition | ProgressDefinition]:
        """Return what each new journal segment begins with."""
        return self.ledger.definitions()

    # ---- stages

    def write(self, key: StageKey, offset: int, data: bytes) -> Deferred[int]:
        """Take a piece of a stage; the answer is its size then. Raises RefusedError."""
        refusal = self._broker.pressure.disk.refusal
        if refusal is not None:
            raise RefusedError(refusal)
        known = self.staging.get(key)
        before = 0 if known is None else known.size
        stage = self.staging.piece(key, offset, len(data), self._clock.seconds())
        stage.writing = True

        def written(_: None) -> int:
            stage.writing = False
            return stage.size

        def failed(failure: Failure) -> Failure:
            stage.writing = False
            self.staging.shrink(stage, before)  # the piece may come again
            return failure

        done = self._blocking.run(self._write, key.name, offset, data)
        return _shielded(done.addCallbacks(written, failed))

    def _write(self, name: str, offset: int, data: bytes) -> None:
        """Write on a thread, where the limit of the disk allows it."""
        if not self._may_take(len(data)):
            raise RefusedError.of(
                Code.DISK_FULL,
                f"{len(data)} bytes more would pass the limit of the disk (min-disk-free, "
                "max-disk-usage); nothing is staged until there is room.",
                transient=True,
            )
        self._files.write(name, offset, data)

    def seal(self, key: StageKey, size: int, crc: int) -> Deferred[int]:
        """End a stage: judge it and have it on the device; the answer is its rows.

        Fails with RefusedError: not-found, bad-value, bad-name, too-large. What is refused for what
        it holds is deleted.
        """
        stage = self.staging.get(key)
        if stage is None or (stage.rows < 0 and stage.size != size):
            have = 0 if stage is None else stage.size
            raise RefusedError.of(
                Code.NOT_FOUND,
                f"The stage has {have} bytes here, not {size}: it has expired or was lost. Stage "
                "the partition again from its beginning.",
            )
        stage.seen = self._clock.seconds()
        if stage.rows >= 0:
            return succeed(stage.rows)
        if stage.writing:
            raise RefusedError.of(Code.STORE_BUSY, "The stage is being written.", transient=True)
        stage.writing = True
        return _shielded(Deferred.fromCoroutine(self._seal(stage, crc)))

    async def _seal(self, stage: Stage, crc: int) -> int:
        name = stage.key.name
        try:
            _check_sum(await self._blocking.run(self._files.checksum, name), crc)
            most = self.staging.settings.max_message_size
            judged = await self._blocking.run(judge_file, self._files, stage.file, most)
            whole = f"{name}-{judged.rows}"
            await self._blocking.run(self._files.seal, name, whole)
        except BaseException:
            stage.writing = False
            self._remove(stage)
            raise
        self.staging.sealed(stage, judged.rows, judged.addresses)
        stage.writing = False
        return judged.rows

    def abort(self, key: StageKey) -> bool:
        """Delete a stage; returns whether it was there. One that is being published stays."""
        stage = self.staging.get(key)
        if stage is None or stage.writing or self._is_in_use(key):
            return False
        self._remove(stage)
        return True

    def _remove(self, stage: Stage) -> None:
        self.staging.drop(stage)
        self._blocking.run(self._files.remove, stage.file).addErrback(_not_removed, stage.file)

    # ---- commits

    def commit(
        self,
        producer: str,
        batch: int,
        stages: Sequence[StageRow],
        *,
        passing: bool = False,
        principal: Principal | None = None,
        seconds: float = 0.0,
    ) -> Deferred[Standing]:
        """Publish a batch; the answer comes when that is durable, or after so many seconds.

        Fails with RefusedError: nothing is published when the batch had not begun, and what was is
        remembered when it had.
        """
        stage_key(producer, batch, 0, "0")
        done = self._commit(
            producer, batch, stages, passing=passing, principal=principal, seconds=seconds
        )
        return _shielded(Deferred.fromCoroutine(done))

    async def _commit(
        self,
        producer: str,
        batch: int,
        stages: Sequence[StageRow],
        *,
        passing: bool,
        principal: Principal | None,
        seconds: float,
    ) -> Standing:
        if self._stopping:
            raise RefusedError(STOPPING)
        step = self.ledger.ask(producer, batch)
        if step is Next.BEGIN:
            await self._check(producer, batch, stages, principal)
            step = self.ledger.ask(producer, batch)  # another call may have been faster
        if step is Next.DONE:
            self._clear(producer, range(batch, batch + 1))
            await self._durable(self._broker.store.unsynced)
            return Standing(done=True)
        if step is Next.BEGIN:
            self._begin(producer, batch, stages, passing=passing)
        return await self._outcome(producer, batch, seconds, principal)

    def _begin(
        self, producer: str, batch: int, stages: Sequence[StageRow], *, passing: bool
    ) -> None:
        """Intend to publish the batch. Raises RefusedError (too-many)."""
        broker = self._broker
        now_ms = broker.now_ms()
        for gone in self.ledger.make_room(producer, now_ms):
            self._forget(gone)
        for definition in self.ledger.begin(producer, batch, stages, now_ms, passing=passing):
            broker.store.define(definition)
        broker.turn.need_end()

    async def _check(
        self, producer: str, batch: int, stages: Sequence[StageRow], principal: Principal | None
    ) -> None:
        """Look whether all of a batch is there and has ways to go. Raises RefusedError.

        The addresses are made where they may be: what cannot be sent to is refused here.
        """
        owner, now = owner_of(producer), self._clock.seconds()
        found: list[Stage] = []
        partitions = [partition for partition, _, _ in stages]
        if len(set(partitions)) < len(partitions):
            twice = next(one for one in partitions if partitions.count(one) > 1)
            raise RefusedError.of(
                Code.BAD_VALUE,
                f"Batch {batch} of producer {producer!r} names partition {twice} twice; each one "
                "counts by one stage.",
            )
        for partition, attempt, rows in stages:
            stage = self.staging.get(StageKey(owner, batch, partition, attempt))
            if stage is None or stage.rows != rows or rows < 0:
                raise RefusedError.of(
                    Code.NOT_FOUND,
                    f"Batch {batch} of producer {producer!r}: the stage of partition {partition} "
                    f"with {rows} rows is not here; a stage is kept for "
                    f"{self.staging.settings.stage_expiry // 1000} s "
                    "(sink.stage-expiry). Run the batch again.",
                )
            stage.seen = now
            found.append(stage)
        await check_ways(
            found,
            self._broker,
            self._files,
            self._blocking,
            message_max=self.staging.settings.max_message_size,
            principal=principal,
        )

    def _run(self, producer: str, principal: Principal | None = None) -> _Running:
        """Have the batch of a producer published, if it is not under way."""
        running = self._running.get(producer)
        if running is None:
            publication = Publication(
                producer,
                self._broker,
                self.ledger,
                files=self._files,
                blocking=self._blocking,
                clock=self._clock,
                places=self._places,
                file_of=_file_of,
                principal=principal,
            )
            running = self._running[producer] = _Running(publication)
            Deferred.fromCoroutine(self._publish(producer, running)).addErrback(_fault, producer)
        return running

    async def _publish(self, producer: str, running: _Running) -> None:
        """Publish, and tell those who wait how it ended."""
        error: BaseException | None = None
        try:
            ticket = await running.publication.run()
            await self._durable(ticket)
            self.committed += 1
            known = self.ledger.producers.get(producer)
            if known is not None:
                self._clear(producer, range(known.committed + 1))
        except Stopped:
            error = RefusedError(STOPPING)
        except RefusedError as refused:
            error = refused
            _log.warning("sink.batch_refused", producer=producer, reason=str(refused))
        except BaseException as fault:
            error = fault
            raise
        finally:
            del self._running[producer]
            running.end(error)

    async def _outcome(
        self, producer: str, batch: int, seconds: float, principal: Principal | None
    ) -> Standing:
        """Wait for the end of a publication, but not longer than that; says how far it is."""
        commit = self.ledger.producers[producer].commit
        total = 0 if commit is None else commit.total
        running = self._run(producer, principal)
        waiter = running.wait()
        self._clock.callLater(seconds, lambda: running.late(waiter))
        if await waiter:
            return Standing(done=True, messages=total, total=total)
        known = self.ledger.producers.get(producer)
        commit = None if known is None else known.commit
        published = total if commit is None else commit.published
        return Standing(
            done=False, messages=published, total=total, refusal=running.publication.refusal
        )

    def _clear(self, producer: str, batches: range) -> None:
        """Delete stages that nobody will ask for."""
        for stage in self.staging.of_batches(owner_of(producer), batches):
            if not stage.writing:
                self._remove(stage)

    # ---- operators

    def forget(self, producer: str) -> Deferred[None]:
        """Forget a producer, and stop publishing for it; what is published stays.

        Raises RefusedError (not-found).
        """
        running = self._running.get(producer)
        if running is not None:
            running.publication.stop()
        definition = self.ledger.forget(producer)
        if definition is None:
            raise RefusedError.of(Code.NOT_FOUND, f"There is no producer {producer!r}.")
        return self._durable(self._forget(definition))

    def _forget(self, definition: CommitDefinition) -> int:
        ticket = self._broker.store.undefine(definition)
        self._broker.turn.need_end()
        self._clear(definition.producer, range(1 << 62))
        return ticket

    def waits_for(self, producer: str) -> Refusal | None:
        """Return what a publication waits for; None where it moves, or there is none."""
        running = self._running.get(producer)
        return None if running is None else running.publication.refusal

    @property
    def publishing(self) -> int:
        """How many batches are being published, or wait for it."""
        return len(self._running)


def _shielded(done: Deferred[Result]) -> Deferred[Result]:
    """Return what fires as `done` does; a client that leaves cancels this one alone."""
    told: Deferred[Result] = Deferred()
    done.chainDeferred(told)
    return told


def _check_sum(found: int, crc: int) -> None:
    if found != crc:
        raise RefusedError.of(
            Code.BAD_VALUE, "The stage's bytes are not those that its checksum is of."
        )


def _keys(producer: str, known: Known) -> list[StageKey]:
    """Return the stages that a producer's batch is being published from."""
    if known.commit is None:
        return []
    owner = owner_of(producer)
    return [StageKey(owner, known.commit.batch, one[0], one[1]) for one in known.commit.stages]


def _file_of(producer: str, batch: int, stage: StageRow) -> str:
    partition, attempt, rows = stage
    return f"{StageKey(owner_of(producer), batch, partition, attempt).name}-{rows}.arrow"


def _not_removed(failure: object, file: str) -> None:
    """Tell of a file that stays; the next start finds it and lets it expire."""
    _log.warning("sink.file_stays", file=file, error=str(failure))


def _fault(failure: object, producer: str) -> None:
    """Tell of a fault of ours: the next commit call, or start, goes on."""
    _log.error("sink.publication_failed", producer=producer, error=str(failure))
