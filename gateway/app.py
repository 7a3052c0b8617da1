"""The composition root: one function that builds the whole gateway from reactor and configuration.

    build(reactor, config) -> GatewayService
        core         data directory lock, journal and recovery, broker, streams
        acceptors    one listener each, opened when recovery is done
        management   the HTTP listener
        upkeep       expiry scans, ticks of the streams

Starting goes down this list and is complete when every listener is open (`ready`). Stopping goes
the other way: no new connections, good-byes, HTTP last, then the journal is synced and closed.
Whatever is not determined by its inputs (clock, chance, threads) is made here and handed down.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

import structlog
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from gateway import __version__
from gateway.alarm import Alarm
from gateway.broker import Gateway, Limits
from gateway.broker.ports import Tap
from gateway.compacting import compaction_rule, set_up_journal
from gateway.config.errors import ConfigError, Problem
from gateway.config.exposure import exposure_problems
from gateway.config.tree import AddressConfig, Config, QueueConfig
from gateway.disk_watch import DiskWatch, ballast_for, make_room
from gateway.listeners import Connections, Listener, drain, make_speakers
from gateway.management.api import add_routes
from gateway.management.router import Router
from gateway.management.streams_api import StreamsApi
from gateway.management.views import JournalFigures, Sources
from gateway.management.wire import ApiSite, WireSettings
from gateway.model.address import RoutingType
from gateway.model.definitions import AddressDefinition, Definition, StreamDefinition
from gateway.model.turn import Turn
from gateway.persistence import JournalStore, Restored, open_journal
from gateway.restart import restore_pages, stream_runs
from gateway.security.around import ReactorSurroundings, load_users
from gateway.security.gate import PasswordGate
from gateway.security.users import UsersError
from gateway.streams.registry import StreamRegistry, StreamSettings
from gateway.upkeep import chores, tidy, watch_of
from gateway.waits import shorten_waits
from protocols.shell import Timers
from storage.arrow_log import StreamFiles
from storage.ballast import Ballast
from storage.files import RealFiles
from storage.lock import DirectoryLock
from storage.pages import PageReader, PageWriter
from storage.segments import Segments
from storage.writer import ThreadWriter

#: How long connections may take to read our good-byes.
DRAIN_SECONDS: Final = 5.0
#: How long requests under way may take when the gateway stops.
HTTP_DRAIN_SECONDS: Final = 1.0
#: Streams look after their tails a few times a second.
STREAM_TICK_SECONDS: Final = 0.1
#: A journal that was quiet for so long is covered: rot of its last batch is told from a torn tail.
COVER_SECONDS: Final = 1.0
#: Queues are numbered from here on, streams below: the journal knows both by number alone.
FIRST_QUEUE_ID: Final = 1 << 32
#: Reading streams takes turns on these; more would take cores from the messages.
BLOCKING_THREADS: Final = 2

Result = TypeVar("Result")
#: One object that implements several of Twisted's interfaces; no type says so.
Reactor = Any
#: status for the process, one line for people.
Fatal = Callable[[int, str], None]
EX_UNAVAILABLE: Final = 69
EX_SOFTWARE: Final = 70
EX_IOERR: Final = 74

_log = structlog.get_logger()


# ---- the core: everything that remembers


class Threads:
    """Runs what blocks (the streams' `RunBlocking` port) on threads of its own."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._pool = ThreadPool(0, BLOCKING_THREADS, "blocking")
        self._pool.start()

    def run(self, function: Callable[..., Result], *args: object) -> Deferred[Result]:
        """Run `function` on a thread; the answer comes on the reactor."""
        return deferToThreadPool(self._reactor, self._pool, function, *args)

    def stop(self) -> None:
        """End the threads when they are done with what they have."""
        self._pool.stop()


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
        self.alarm: Alarm
        self._lock = lock
        self.threads: Threads
        self._defined: dict[int, StreamDefinition] = {}

    def taps_on(self, address: str) -> Sequence[Tap]:
        """See the broker's Streams port."""
        return self.registry.taps(address)

    def durable_up_to(self, ticket: int) -> None:
        """See the broker's Streams port."""
        self.registry.durable_up_to(ticket)

    def use_streams(self, registry: StreamRegistry, threads: Threads) -> None:
        """Join the streams to the broker."""
        self.registry = registry
        self.threads = threads
        self.broker.streams = self
        self.broker.directory.taps_on = self.taps_on

    def definitions(self) -> list[Definition]:
        """Return all that each new journal segment begins with."""
        broker = self.broker
        return [
            *broker.directory.snapshot(),
            *self._defined.values(),
            *broker.pager.definitions(),
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

    async def close(self) -> None:
        """Seal the streams, sync and close the journal, give the directory back."""
        self.alarm.stop()
        try:
            if self.store.journal.failure is None:
                await self.registry.stop()
            closed: Deferred[None] = Deferred()
            self.store.journal.close(lambda: closed.callback(None))
            await closed
        finally:
            self.threads.stop()
            self.store.close_pages()
            self._lock.release()


def make_core(reactor: Reactor, config: Config, turn: Turn, fatal: Fatal) -> Core:
    """Take the data directory, recover what it holds, and return the core, ready for sessions.

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
        ballast = ballast_for(files, config.journal_directory, config.ballast_size)
        segments = Segments(files, config.journal_directory, lambda: os.urandom(16), ballast)
        # A full disk is found here, before anybody has been promised anything.
        make_room(segments, ballast, config.journal_file_size)
        set_up_journal(journal, config)
        store = JournalStore(journal, PageReader(files, config.paging_directory))
        broker = Gateway(
            turn=turn,
            settings=config.address_settings,
            store=store,
            limits=Limits(
                global_max_size=config.global_max_size,
                global_max_messages=config.global_max_messages,
            ),
            now_ms=lambda: time.time_ns() // 1_000_000,
            make_name=lambda: str(uuid.uuid4()),
        )
        core = Core(lock, store, broker, ballast)
        core.alarm = Alarm(reactor, lambda: time.time_ns() // 1_000_000, broker.on_time)
        broker.timetable.alarm = core.alarm.set
        broker.chance = random.random
        _recover(reactor, core, restored, StreamFiles(files, f"{config.data_directory}/streams"))
    except BaseException:
        lock.release()
        raise
    store.snapshot = core.definitions
    core.disk = watch_of(config, broker, ballast, core.threads, reactor.seconds)
    core.disk.failed = lambda error: fatal(EX_IOERR, f"The disk cannot be measured: {error}.")
    ballast.on_asked = lambda: reactor.callFromThread(core.disk.ran_out)
    pages = PageWriter(files, config.paging_directory, lambda: os.urandom(16), ballast)
    _start_journal(reactor, core, segments, config.journal_file_size, fatal, pages=pages)
    return core


def _start_journal(
    reactor: Reactor,
    core: Core,
    segments: Segments,
    segment_bytes: int,
    fatal: Fatal,
    *,
    pages: PageWriter,
) -> None:
    """Give the journal its thread, and its answers their way."""
    journal = core.store.journal

    def failed(error: BaseException) -> None:
        text = f"The journal cannot be written: {error}."
        _log.error("store.failed", error=str(error))
        core.broker.store_failed(text)
        fatal(EX_IOERR, text)

    journal.on_durable = core.broker.durable_up_to
    journal.on_failed = failed
    post = reactor.callFromThread
    journal.start(ThreadWriter(journal, segments, post, segment_bytes, pages=pages))
    shorten_waits(reactor, lambda: not journal.writing, time.perf_counter)


def _recover(reactor: Reactor, core: Core, restored: Restored, files: StreamFiles) -> None:
    """Bring back addresses, queues, messages and streams."""
    broker, directory = core.broker, core.broker.directory
    threads = Threads(reactor)
    core.use_streams(StreamRegistry(files, threads, core, StreamSettings(), broker.now_ms), threads)
    try:
        core.registry.load()
    except BaseException:
        threads.stop()
        raise
    for address in restored.addresses:
        directory.restore_address(address)
    for definition in restored.queues:
        queue = directory.restore_queue(definition)
        queue.restore(restored.messages.get(definition.queue_id, []))
        queue.next_seq = max(queue.next_seq, restored.highest.get(definition.queue_id, 0) + 1)
        broker.restored(queue)
    broker.recovered()
    directory.next_id = max(restored.next_id, FIRST_QUEUE_ID)
    restore_pages(broker, restored)
    tails = {
        number: stream_runs(messages, restored.accepted[number])
        for number, messages in restored.messages.items()
        if number < FIRST_QUEUE_ID
    }
    core.registry.recover(tails)
    for tap in core.registry.all():
        core.taps_changed(tap.stream.address)
    core.recovered = {
        "queues": len(restored.queues),
        "messages": sum(queue.message_count for queue in broker.queues.values()),
        "streams": len(core.registry.all()),
        "records": restored.records,
        "clean": restored.clean,
        "torn_bytes": restored.torn_bytes,
    }


# ---- what the configuration declares


def declare(core: Core, config: Config) -> None:
    """Make or change the addresses and queues that the configuration names.

    What it writes wins over what was changed while running; what it does not write stays. Raises
    ConfigError where it contradicts what is stored.
    """
    problems = []
    for address in config.addresses:
        _declare_address(core, address)
        for queue in address.queues:
            text = _declare_queue(core, address.name, queue)
            if text is not None:
                path = f"addresses.{address.name}"
                where = config.origins.get(path, "")
                problems.append(Problem(where=where, path=path, text=text))
    if problems:
        raise ConfigError(problems)


def _declare_address(core: Core, wanted: AddressConfig) -> None:
    directory = core.broker.directory
    address = core.broker.addresses.get(wanted.name)
    if address is None:
        directory.make_address(wanted.name, wanted.routing_types)
    elif not wanted.routing_types <= address.routing_types or address.auto_created:
        address.routing_types |= wanted.routing_types
        address.auto_created = False
        address.version += 1
        types = address.routing_types
        core.store.define(AddressDefinition(name=wanted.name, routing_types=types))
    else:
        return
    _log.info("address.configured", address=wanted.name)


def _declare_queue(core: Core, address: str, wanted: QueueConfig) -> str | None:
    """Make or change one queue; returns what contradicts the stored one."""
    directory = core.broker.directory
    routing = wanted.routing_type or RoutingType.ANYCAST
    queue = core.broker.queues.get(wanted.name)
    if queue is None:
        directory.create_queue(
            wanted.name,
            address,
            routing,
            durable=wanted.durable,
            ring_size=wanted.ring_size,
            max_consumers=wanted.max_consumers,
            selector=wanted.filter or "",
            attributes=wanted.attributes,
        )
        _log.info("address.configured", address=address, queue=wanted.name)
        return None
    if (queue.address, queue.routing, queue.durable) != (address, routing, wanted.durable):
        return (
            f"queue {wanted.name} is stored as {queue.routing.value} of address {queue.address},"
            f" {'durable' if queue.durable else 'not durable'}; delete it or change the file"
        )
    queue.auto_created = False
    ring = wanted.ring_size if wanted.ring_size != queue.ring_size else None
    most = wanted.max_consumers if wanted.max_consumers != queue.max_consumers else None
    selector = wanted.filter if wanted.filter != queue.filter_text else None
    more = {n: v for n, v in wanted.attributes.items() if getattr(queue.attributes, n) != v}
    if ring is not None or most is not None or selector is not None or more:
        directory.update_queue(
            wanted.name, ring_size=ring, max_consumers=most, selector=selector, attributes=more
        )
        _log.info("address.configured", address=address, queue=wanted.name)
    return None


# ---- the service


class GatewayService(MultiService):
    """The whole gateway as a Twisted service; see the module text.

    Attributes:
        config: what it was built from.
        core: None until `startService`.
        acceptors: the listeners of messaging protocols; `groups` are their connections.
        ready: recovery is done and all listeners are open.
        on_ready: called once when it becomes so.
    """

    def __init__(self, reactor: Reactor, config: Config, fatal: Fatal) -> None:
        """Build everything that needs no disk; raises ConfigError, ListenError."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.config = config
        self.core: Core | None = None
        self.ready = False
        self.on_ready: Callable[[], None] = _nothing
        self._reactor = reactor
        self._fatal = fatal
        self._around = ReactorSurroundings(reactor)
        self.gate = _make_gate(config, self._around)
        self._turn = Turn(lambda action: reactor.callLater(0, action))
        self._timers = Timers(reactor)
        self._router = Router()
        self._site = ApiSite(
            reactor,
            self._router,
            self.gate.for_peer,
            WireSettings(
                allowed_hosts=config.management.allowed_hosts,
                allow_insecure=config.allow_insecure,
            ),
        )
        self._loops: list[LoopingCall] = []
        self._opening: Deferred[None] | None = None
        self._stopping = False
        self.groups = [Connections(a.name, self._turn, self._timers) for a in config.acceptors]
        self.acceptors = [
            Listener(reactor, f"acceptors.{a.name}", a.endpoint, group)
            for a, group in zip(config.acceptors, self.groups, strict=True)
        ]
        self.management: Listener | None = None
        if config.management.enabled:
            endpoint = config.management.endpoint
            self.management = Listener(reactor, "management", endpoint, self._site)

    # ---- start

    def startService(self) -> None:
        """Recover, then open the listeners. Raises what `make_core` and `declare` raise."""
        super().startService()  # type: ignore[no-untyped-call]
        config = self.config
        self.core = core = make_core(self._reactor, config, self._turn, self._fatal)
        _log.info("gateway.started", version=__version__, data=config.data_directory)
        _log.info("store.recovered", **core.recovered)
        core.disk.start()
        self._around.start()
        declare(core, config)
        tidy(core.broker, config)
        for acceptor, group in zip(config.acceptors, self.groups, strict=True):
            group.speakers = make_speakers(config, acceptor, core.broker, self.gate)
        self._add_routes(core)
        # Not before the reactor runs: only then does it hear the signals that stop it.
        self._reactor.callWhenRunning(self._start_opening, core)

    def _start_opening(self, core: Core) -> None:
        if self._stopping:
            return
        self._opening = Deferred.fromCoroutine(self._open(core))
        self._opening.addErrback(self._not_opened)

    async def _open(self, core: Core) -> None:
        for stream in self.config.streams:
            await core.registry.create(stream.name, stream.address)
        for listener in self._listeners():
            await listener.open()
        self._loop(core.registry.tick, STREAM_TICK_SECONDS)
        self._loop(core.store.journal.cover, COVER_SECONDS)
        for work, seconds in chores(core.broker, core.disk, self.config):
            self._loop(work, seconds)
        self.ready = True
        _log.info("gateway.ready", acceptors=" ".join(one.address for one in self.acceptors))
        self.on_ready()

    def _not_opened(self, failure: Failure) -> None:
        """A listener or a stream could not be had: the gateway does not run half."""
        if not self._stopping:
            _log.error("gateway.failed", error=failure.getErrorMessage())
            self._fatal(EX_UNAVAILABLE, failure.getErrorMessage())

    def _listeners(self) -> list[Listener]:
        # Management comes last: whoever sees it ready may use all others.
        return [*self.acceptors, *([self.management] if self.management else [])]

    def _loop(self, function: Callable[[], object], seconds: float) -> None:
        loop = LoopingCall(function)
        loop.clock = self._reactor
        self._loops.append(loop)
        loop.start(seconds, now=False).addErrback(self._loop_failed)

    def _loop_failed(self, failure: Failure) -> None:
        _log.error(
            "gateway.failed", error=failure.getErrorMessage(), traceback=failure.getTraceback()
        )
        self._fatal(EX_SOFTWARE, f"The gateway met a fault of its own: {failure.getErrorMessage()}")

    def _add_routes(self, core: Core) -> None:
        files, directory = RealFiles(), self.config.data_directory
        sources = Sources(
            gateway=core.broker,
            not_ready=self.not_ready,
            journal=cast("JournalFigures", core.store.journal),
            free_bytes=lambda: files.free_bytes(directory),
            disk=core.disk,
            connections=self.connections,
            streams=core.registry,
        )
        add_routes(self._router, sources, with_metrics=self.config.metrics.enabled)
        StreamsApi(self._reactor, core.registry).install(self._router)

    def not_ready(self) -> str | None:
        """Return why messages cannot be sent and received, or None when they can."""
        if self._stopping:
            return "The gateway is stopping."
        return None if self.ready else "The gateway is opening its listeners."

    def connections(self) -> dict[str, int]:
        """Return how many connections each protocol has."""
        return dict(Counter(name for group in self.groups for name in group.protocols()))

    # ---- stop

    def stopService(self) -> Deferred[None]:
        """Stop in order; fires when everything is on disk and closed."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._stopping = True
        self.ready = False
        core = self.core
        if core is None:
            return
        _log.info("gateway.stopping", connections=sum(group.count for group in self.groups))
        if self._opening is not None and not self._opening.called:
            self._opening.cancel()
        for listener in self.acceptors:
            await listener.stop_listening()
        await drain(self._reactor, self.groups, DRAIN_SECONDS)
        for loop in self._loops:
            loop.stop()
        await self._stop_management()
        self._around.stop()
        await core.close()
        self.core = None
        _log.info("gateway.stopped", clean=core.store.journal.failure is None)

    async def _stop_management(self) -> None:
        if self.management is None:
            return
        await self.management.stop_listening()
        self._site.close_connections()
        deadline = self._reactor.seconds() + HTTP_DRAIN_SECONDS
        while self._site.channels and self._reactor.seconds() < deadline:
            await deferLater(self._reactor, 0.02)
        self._site.close_connections(force=True)


def build(reactor: Reactor, config: Config, fatal: Fatal) -> GatewayService:
    """Return the gateway as a service, not started; `fatal` is told when it cannot go on.

    Raises ConfigError (also for an exposure that the configuration does not allow) and ListenError.
    """
    return GatewayService(reactor, config, fatal)


def _make_gate(config: Config, around: ReactorSurroundings) -> PasswordGate:
    """Read the users and judge who could reach what."""
    path = config.users_file
    try:
        users = load_users(path, required=config.users_file_required)
    except UsersError as error:
        raise ConfigError([Problem(where=path, path="", text=str(error))]) from None
    problems = exposure_problems(config, has_users=bool(users))
    if problems:
        raise ConfigError(problems)
    return PasswordGate(users, around, os.urandom(32))


def _nothing() -> None:
    """Stand for whoever does not want to know."""
