"""The core, made: data directory lock, journal and recovery, broker, streams, joined to one object.

Everything that remembers is here. What opens ports is `app`, what the configuration declares is
brought in by `declared`.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from twisted.internet.defer import Deferred

from gateway import __version__
from gateway.broker import Gateway, Limits
from gateway.broker.ports.streams import Granted, Matches, Tap
from gateway.config.errors import ConfigError, Problem
from gateway.config.objects import object_limits
from gateway.config.tree import Config
from gateway.core.blocking import Threads
from gateway.core.retained import stream_settings
from gateway.core.sinking import sink_settings
from gateway.core.upkeep import watch_of
from gateway.disk.watching import DiskWatch, ballast_for, make_room, size_problem
from gateway.model.definitions import FIRST_QUEUE_ID, Definition, StreamDefinition
from gateway.model.histogram import Histogram
from gateway.model.ports import Consumer
from gateway.model.stream_start import StreamStart
from gateway.model.turn import Turn
from gateway.process.figures import sync_histogram
from gateway.process.last_resort import cause_of
from gateway.sink.sink import Sink
from gateway.store.compacting import compaction_rule, serialized_types, set_up_journal
from gateway.store.lagging import watch_lag
from gateway.store.lingering import Linger
from gateway.store.orphans import adopt
from gateway.store.paged_recovery import QUARANTINE
from gateway.store.persistence import JournalStore, Restored, open_journal
from gateway.store.restart import restore_pages, restore_routing, stream_runs
from gateway.store.scrub_plan import Stored, make_scrubber
from gateway.store.scrubber import Scrubber
from gateway.store.timed_files import TimedFiles
from gateway.streams.registry import StreamRegistry
from gateway.streams.replays import Jump, Replays
from gateway.time.alarm import Alarm
from storage.ballast import Ballast
from storage.files import RealFiles
from storage.lock import DirectoryLock
from storage.page_reads import ThreadPages
from storage.pages import PageReader, PageWriter
from storage.segments import Segments
from storage.silent import never
from storage.stage_files import StageFiles
from storage.stream_files import StreamFiles
from storage.writer import ThreadWriter
from storage.writing import Writer

#: The folder of stages, below that of the streams.
STAGES: Final = "staged"

#: What a turn takes of a connection or two, before anybody can be told that the disk is full.
TURN_BYTES: Final = 512 << 10

Result = TypeVar("Result")
#: One object that implements several of Twisted's interfaces; no type says so.
Reactor = Any
#: status for the process, one line for people.
Fatal = Callable[[int, str], None]
#: hears of a fault, on any thread, and takes nothing that could be refused.
Failing = Callable[[BaseException], None]
#: calls what may not fail half way.
Guard = Callable[[Callable[[], None]], None]
EX_IOERR: Final = 74

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What no input determines: the wall clock in ms, chance, names, salts."""

    now_ms: Callable[[], int]
    fraction: Callable[[], float]
    name: Callable[[], str]
    salt: Callable[[], bytes]


def _call(action: Callable[[], None]) -> None:
    action()


class Core:
    """The parts that remember, joined: journal, broker, streams.

    Implements the streams' `StreamsOwner` and the broker's `Streams`. `recovered` says what a start
    found: queues, messages, streams, and how the last run ended.
    """

    def __init__(
        self, lock: DirectoryLock, store: JournalStore, broker: Gateway, ballast: Ballast
    ) -> None:
        self.store = store
        self.broker = broker
        self.ballast = ballast
        self.disk: DiskWatch
        self.recovered: dict[str, object] = {}
        self.registry: StreamRegistry
        self.replays: Replays
        self.sink: Sink
        self.stage_threads: Threads
        self.alarm: Alarm
        self.syncs: Histogram
        self.scrubber: Scrubber
        self._lock = lock
        self.threads: Threads
        self._defined: dict[int, StreamDefinition] = {}

    def taps_on(self, address: str) -> Sequence[Tap]:
        """See the broker's Streams port."""
        return self.registry.taps(address)

    def durable_up_to(self, ticket: int) -> None:
        """See the broker's Streams port."""
        self.registry.durable_up_to(ticket)

    def replay(
        self, address: str, consumer: Consumer, start: StreamStart, matches: Matches | None
    ) -> Granted:
        """See the broker's Streams port."""
        return self.replays.open(address, consumer, start, matches)

    def use_streams(self, registry: StreamRegistry, replays: Replays, threads: Threads) -> None:
        """Join the streams to the broker."""
        self.registry = registry
        self.replays = replays
        self.threads = threads
        self.broker.streams = self
        self.broker.directory.taps_on = self.taps_on

    def definitions(self) -> list[Definition]:
        """Return all that each new journal segment begins with."""
        broker = self.broker
        return [
            *broker.directory.snapshot(),
            *self._defined.values(),
            *broker.operations.pager.definitions(),
            *broker.routing.duplicates.definitions(),
            *broker.branches.definitions(),
            *self.sink.definitions(),
        ]

    # the streams' owner

    def release(self, stream_id: int, first: int, last: int) -> None:
        """See StreamsOwner."""
        self.store.release_stream(stream_id, first, last)

    def ensure_address(self, address: str) -> None:
        """See StreamsOwner."""
        if address not in self.broker.addresses:
            self.broker.directory.make_address(address)

    def taps_changed(self, address: str) -> None:
        """See StreamsOwner: producers look again, and the journal knows the streams' numbers."""
        found = self.broker.addresses.get(address)
        if found is not None:
            found.taps = self.registry.taps(address)
            found.version += 1
        alive = {tap.stream.stream_id: tap.stream for tap in self.registry.all()}
        for stream_id in self._defined.keys() - alive.keys():
            self.store.undefine(self._defined.pop(stream_id))
        for stream_id in alive.keys() - self._defined.keys():
            stream = alive[stream_id]
            self._defined[stream_id] = StreamDefinition(
                stream_id=stream_id, name=stream.name, address=stream.address, epoch=stream.epoch
            )
            self.store.define(self._defined[stream_id])
        self.broker.turn.need_end()

    def stream_failed(self, stream_id: int, error: Exception) -> None:
        """See StreamsOwner."""
        _log.error("stream.seal_failed", stream_id=stream_id, error=str(error))

    def stream_lost(self, stream_id: int, first: int, last: int, reason: str) -> None:
        """See StreamsOwner."""
        _log.warning(
            "stream.messages_lost", stream_id=stream_id, first=first, last=last, reason=reason
        )

    def archive_lags(self, stream: str, text: str | None, waiting: int, bytes_max: int) -> None:
        """See StreamsOwner."""
        if text is not None:
            _log.warning(
                "stream.archive_lagging",
                stream=stream,
                waiting_bytes=waiting,
                retention_bytes=bytes_max,
                reason=text,
            )
        else:
            _log.info("stream.archive_caught_up", stream=stream)

    async def close(self) -> None:
        """Seal the streams, sync and close the journal, give the directory back."""
        self.alarm.stop()
        self.scrubber.stop()
        self.sink.stop()
        try:
            if self.store.journal.failure is None:
                await self.registry.stop()
            closed: Deferred[None] = Deferred()
            self.store.journal.close(lambda: closed.callback(None))
            await closed
        finally:
            self.threads.stop()
            self.stage_threads.stop()
            self.store.close_pages()
            self._lock.release()


def _tell_jump(jump: Jump) -> None:
    """Say that a replay goes on behind what retention had dropped."""
    _log.warning(
        "stream.replay_jumped",
        stream=jump.stream,
        address=jump.address,
        connection=jump.consumer.connection,
        consumer=jump.consumer.name,
        first=jump.first,
        end=jump.end,
    )


def make_core(
    reactor: Reactor,
    config: Config,
    turn: Turn,
    fatal: Fatal,
    chance: Chance,
    *,
    alarm: Failing | None = None,
    guard: Guard = _call,
) -> Core:
    """Take the data directory, recover what it holds, and return the core, ready for sessions.

    `alarm` hears of a fault of the store before `fatal` does, from any thread. `guard` calls what
    the disk's threads have for the reactor, and knows what to do when that fails.

    Blocks until recovery is done. Raises LockedError (another process), StorageError's other kinds
    (damage, unknown formats) and OSError (no room, no permission).
    """
    files = RealFiles()
    files.mkdir(config.data_directory)
    lock = DirectoryLock(config.data_directory, f"process {os.getpid()} (sluicegate {__version__})")
    try:
        journal, restored = open_journal(
            files,
            config.journal_directory,
            config.journal_file_size,
            compaction_rule(config),
            paging=config.paging_directory,
        )
        size, ballast = config.journal_file_size, _ballast(files, config)
        timed = TimedFiles(sync_histogram(), reactor.seconds)
        segments = Segments(timed, config.journal_directory, chance.salt, ballast)
        # A full disk is found here, before anybody has been promised anything.
        make_room(segments, ballast, size, lambda: files.free_bytes(config.journal_directory))
        set_up_journal(journal, config)
        store = JournalStore(journal, PageReader(files, config.paging_directory))
        ahead = PageReader(files, config.paging_directory)
        store.fetches = ThreadPages(ahead, reactor.callFromThread)
        broker = _make_broker(config, turn, store, chance)
        core = Core(lock, store, broker, ballast)
        core.syncs = timed.took
        core.alarm = Alarm(reactor, chance.now_ms, broker.on_time)
        broker.dispatch.timetable.alarm = core.alarm.set
        _bring_back(reactor, core, config, restored, make_name=chance.name)
    except BaseException:
        lock.release()
        raise
    store.snapshot = core.definitions
    core.disk = watch_of(config, broker, ballast, core.threads, reactor.seconds)
    core.disk.failed = lambda error: fatal(EX_IOERR, f"The disk cannot be measured: {error}.")
    ballast.on_asked = lambda: reactor.callFromThread(core.disk.ran_out)
    pages = PageWriter(files, config.paging_directory, chance.salt, ballast)
    post = partial(reactor.callFromThread, guard)
    writer = ThreadWriter(journal, segments, post, size, pages=pages, alarm=alarm)
    _join_disk(core, writer, segments, size)
    _start_journal(core, writer, fatal, alarm)
    set_up_store(reactor, core, config)
    core.scrubber = _make_scrubber(reactor, core, config, files)
    return core


def _bring_back(
    reactor: Reactor,
    core: Core,
    config: Config,
    restored: Restored,
    *,
    make_name: Callable[[], str],
) -> None:
    """Give the core its streams and its sink, and all that was found. Blocks."""
    _recover(reactor, core, restored, config, make_name)
    try:
        _make_sink(reactor, core, config, restored)
    except BaseException:
        core.threads.stop()
        core.stage_threads.stop()
        raise


def _make_sink(reactor: Reactor, core: Core, config: Config, restored: Restored) -> None:
    """Give the core its sink, with what a start found of it. Blocks."""
    core.stage_threads = Threads(reactor, name="stages")
    core.sink = Sink(
        core.broker,
        StageFiles(RealFiles(), f"{config.data_directory}/streams/{STAGES}"),
        core.stage_threads,
        reactor,
        sink_settings(config),
        may_take=lambda size: core.disk.may_take(size),  # noqa: PLW0108 - it is made later
    )
    core.sink.restore(restored.commits, restored.progress)


def _ballast(files: RealFiles, config: Config) -> Ballast:
    """Return the ballast; raises ConfigError when a full disk could not be drained with any."""
    directory, size = config.journal_directory, config.journal_file_size
    _, total, _ = files.space(directory)
    problem = size_problem(total, size, directory)
    if problem is not None and config.ballast_size:
        where = config.origins.get("journal-file-size", "")
        raise ConfigError([Problem(where=where, path="journal-file-size", text=problem)])
    return ballast_for(files, directory, config.ballast_size, size)


def _make_broker(config: Config, turn: Turn, store: JournalStore, chance: Chance) -> Gateway:
    """Return the broker as it is configured, without what was stored."""
    broker = Gateway(
        turn=turn,
        settings=config.address_settings,
        store=store,
        limits=Limits(
            global_max_size=config.global_max_size,
            global_max_messages=config.global_max_messages,
        ),
        now_ms=chance.now_ms,
        make_name=chance.name,
    )
    broker.directory.serialized = serialized_types(config)
    broker.directory.objects.limits = object_limits(config)
    broker.operations.effects.chance = chance.fraction
    broker.branches.wildcards = config.wildcard_routing
    broker.routing.duplicates.size = config.id_cache_size
    broker.routing.duplicates.persists = config.persist_id_cache
    return broker


def set_up_store(reactor: Reactor, core: Core, config: Config) -> None:
    """Say when senders wait for the disk, and what the disk may wait for; also once more."""
    broker, journal = core.broker, core.store.journal
    broker.pressure.busy.limit = journal.task_limit = config.store_task_limit
    journal.compaction.rule = compaction_rule(config)
    watch_lag(broker.pressure.lag, journal, config, now=reactor.seconds, later=reactor.callLater)
    journal.lingers = never
    if config.store_linger:
        journal.lingers = Linger(
            config.store_linger / 1000,
            awaited=lambda: broker.awaited,
            delivered=lambda: broker.figures.delivered,
            now=reactor.seconds,
            later=reactor.callLater,
            flush=journal.flush,
        )


def _make_scrubber(reactor: Reactor, core: Core, config: Config, files: RealFiles) -> Scrubber:
    """Return what reads all that is stored now and then."""
    stored = Stored(
        files=files,
        broker=core.broker,
        journal=core.store.journal,
        streams=core.registry,
        journal_directory=config.journal_directory,
        paging_directory=config.paging_directory,
        quarantine=posixpath.join(config.data_directory, QUARANTINE),
    )
    threads = Threads(reactor, 1, "scrub")
    period = config.scrub_period / 1000
    return make_scrubber(stored, threads, reactor, rate=config.scrub_rate, period=period)


def _join_disk(core: Core, writer: ThreadWriter, segments: Segments, size: int) -> None:
    """Have the disk monitor know what will be written, and be asked before a file is made ahead."""
    journal = core.store.journal

    def busy() -> tuple[int, int]:
        """Return the segment that the writer is at, and the bytes that it writes there."""
        if not journal.writing:
            return segments.current, 0
        batch = next(iter(journal.waiting()))
        return batch.segment, batch.bytes_bound + batch.page_bytes

    def promised() -> int:
        segment, going = busy()
        waiting = journal.waiting_bytes + (going if segment != segments.current else 0)
        # Where something waits another turn may take as much as this one before it is looked again.
        coming = waiting and waiting + TURN_BYTES
        files = max(1, -(-coming // size)) - segments.spares_ready
        return coming + max(0, files) * size

    core.disk.promised = promised
    writer.ask(core.disk.may_take, core.disk.scan)
    flush = core.broker.pressure.busy.flush

    def store() -> None:
        flush()
        core.disk.wrote(journal.bytes_written + journal.waiting_bytes + busy()[1])

    core.broker.turn.store = store


def _start_journal(core: Core, writer: Writer, fatal: Fatal, alarm: Failing | None) -> None:
    """Give the journal its writer, and its answers their way."""
    journal = core.store.journal

    def failed(error: BaseException) -> None:
        if alarm is not None:
            alarm(error)
        text = f"The journal cannot be written: {cause_of(error)}."
        _log.error("store.failed", error=cause_of(error))
        try:
            core.broker.store_failed(text)
        finally:
            fatal(EX_IOERR, text)

    journal.on_durable = core.broker.durable_up_to
    journal.on_consumed = core.broker.listeners.consumed
    journal.on_failed = failed
    journal.start(writer)


def _recover(
    reactor: Reactor,
    core: Core,
    restored: Restored,
    config: Config,
    make_name: Callable[[], str],
) -> None:
    """Bring back addresses, queues, messages and streams."""
    broker, directory = core.broker, core.broker.directory
    threads = Threads(reactor)
    files = StreamFiles(RealFiles(), f"{config.data_directory}/streams")
    settings = stream_settings(config)
    registry = StreamRegistry(files, threads, core, settings, broker.now_ms)
    replays = Replays(registry, broker.turn, seconds=reactor.seconds, on_jump=_tell_jump)
    core.use_streams(registry, replays, threads)
    try:
        core.registry.load(make_name)
    except BaseException:
        threads.stop()
        raise
    for orphan in adopt(restored):
        count = len(restored.messages[orphan.queue_id])
        _log.error("queue.adopted", queue=orphan.name, messages=count)
    for address in restored.addresses:
        directory.restore_address(address)
    for definition in restored.queues:
        queue = directory.restore_queue(definition)
        queue.restore(restored.messages.get(definition.queue_id, []))
        highest = restored.highest.get(definition.queue_id, 0)
        queue.counts.next_seq = max(queue.next_seq, highest + 1)
        broker.restored(queue)
    broker.recovered()
    directory.next_id = max(restored.next_id, FIRST_QUEUE_ID)
    restore_pages(broker, restored)
    restore_routing(broker, restored)
    tails = {
        number: stream_runs(messages, restored.accepted[number])
        for number, messages in restored.messages.items()
        if number < FIRST_QUEUE_ID
    }
    core.registry.recover(tails)
    for tap in core.registry.all():
        core.ensure_address(tap.stream.address)  # not there where its stream was taken over
        core.taps_changed(tap.stream.address)
    core.recovered = {
        "queues": len(restored.queues),
        "messages": sum(queue.message_count for queue in broker.queues.values()),
        "streams": len(core.registry.all()),
        "records": restored.records,
        "clean": restored.clean,
        "torn_bytes": restored.torn_bytes,
    }
