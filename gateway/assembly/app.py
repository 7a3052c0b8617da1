"""The composition root: one function that builds the whole gateway from reactor and configuration.

    build(reactor, config) -> GatewayService
        core         data directory lock, journal and recovery, broker, streams
        acceptors    one listener each, opened when recovery is done
        management   the HTTP listener
        upkeep       expiry scans, ticks of the streams

Starting goes down this list and is complete when every listener is open (`ready`). Stopping goes
the other way: no new connections, good-byes, HTTP last, then the journal is synced and closed.
Whatever is not determined by its inputs is made here and in `ambient`, and handed down.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Final, cast

import structlog
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.task import LoopingCall, deferLater
from twisted.python.failure import Failure

from gateway import __version__
from gateway.assembly.access import (
    HttpLogins,
    Logins,
    make_directory,
    make_gate,
    make_issuing,
    read_certificates,
)
from gateway.assembly.adopting import adopt_history
from gateway.assembly.ambient import (
    make_chance,
    make_clock,
    make_date,
    make_key,
    wait_little,
    wall_ms,
)
from gateway.assembly.auditing import Auditing
from gateway.config.tree import MANAGEMENT, Config, LoggingConfig, management_acceptor
from gateway.core.core import EX_IOERR, Core, Failing, Fatal, Reactor, make_core
from gateway.core.declared import declare
from gateway.core.upkeep import chores, periods, tidy
from gateway.listening.connections import Connections, connection_limits, drain
from gateway.listening.listeners import Listener, ListenError
from gateway.listening.speakers import budget_of, make_speakers
from gateway.listening.tls import secured
from gateway.logs.quotas import QuotaTeller
from gateway.management.allowing import Allowing
from gateway.management.api import add_routes
from gateway.management.audit import tell_change
from gateway.management.config_api import ConfigApi
from gateway.management.connections_api import ConnectionsApi
from gateway.management.quotas_api import QuotasApi
from gateway.management.router import Router
from gateway.management.sink_api import SinkApi
from gateway.management.streams_api import StreamsApi
from gateway.management.token_api import TokenApi
from gateway.management.views import JournalFigures, Sources
from gateway.management.wire import ApiSite, wire_settings
from gateway.model.audit import Auditor
from gateway.model.principal import Principal
from gateway.model.turn import Turn
from gateway.process.descriptors import Descriptors
from gateway.process.figures import lag_histogram, process_figures
from gateway.process.last_resort import cause_of
from gateway.queues.ages import Ages
from gateway.quotas.ends import spares
from gateway.quotas.meters import Meters
from gateway.reload.applying import doors
from gateway.reload.reloads import Again, Reloads
from gateway.reload.users_file import LOOK_SECONDS
from gateway.security.around import ReactorSurroundings
from gateway.security.permits import Permits
from gateway.security.refusals import PermissionLog, use_permissions
from gateway.store.hanging import StoreWatch
from gateway.time.ends import END_LOOK_SECONDS
from gateway.time.lag import ReactorLag
from gateway.time.recurring import Recurring
from protocols.amqp.containers import Containers
from protocols.transport.departures import Departures
from protocols.transport.patience import Patience
from protocols.transport.reads import Reads
from protocols.transport.timers import Timers
from protocols.transport.unread import Backlogs
from storage.files import RealFiles

#: How long connections may take to read our good-byes.
DRAIN_SECONDS: Final = 5.0
#: How long requests under way may take when the gateway stops.
HTTP_DRAIN_SECONDS: Final = 1.0
#: Streams look after their tails a few times a second.
STREAM_TICK_SECONDS: Final = 0.1
#: How often it is looked whether staged batches have expired.
SINK_TICK_SECONDS: Final = 1.0
#: A journal that was quiet for so long is covered: rot of its last batch is told from a torn tail.
COVER_SECONDS: Final = 1.0
#: How often it is noted which messages have come, for the age of the oldest one.
AGE_LOOK_SECONDS: Final = 1.0
#: How often certificates are looked at where no client comes: for those that are about to end.
CERTIFICATE_LOOK_SECONDS: Final = 3600.0
#: How often it is looked whether the disk hangs.
WATCH_SECONDS: Final = 1.0

#: How often it is looked whether a scrub is due, or a repair may go on.
SCRUB_LOOK_SECONDS: Final = 1.0
#: How often it is looked which quotas are reached, and which have room again.
QUOTA_LOOK_SECONDS: Final = 1.0

EX_UNAVAILABLE: Final = 69
EX_SOFTWARE: Final = 70

_log = structlog.get_logger()


class GatewayService(MultiService):
    """The whole gateway as a Twisted service; see the module text.

    Attributes:
        config: what is in force: what it was built from, or has taken over since.
        core: None until `startService`.
        acceptors: the listeners of messaging protocols; `groups` are their connections.
        permits: judges what principals may do; its refusals go through `permission_log`.
        ready: recovery is done and all listeners are open.
        on_ready: called once when it becomes so.
        reloads: reads the configuration again.
        web: WebSockets of the management listener.
        budgets: of unfinished messages, by acceptor.
        certificates: those of the listeners that speak TLS, by path in the configuration.
        auditor: is told of logins, refusals and changes; `audit` keeps what it is told.
    """

    def __init__(
        self,
        reactor: Reactor,
        config: Config,
        fatal: Fatal,
        again: Again | None = None,
        *,
        alarm: Failing | None = None,
    ) -> None:
        """Build everything that needs no disk; raises ConfigError, ListenError."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.config = config
        self.core: Core | None = None
        self.ready = False
        self.on_ready: Callable[[], None] = _nothing
        self._reactor = reactor
        self._fatal = fatal
        self._alarm = alarm
        self._around = ReactorSurroundings(reactor)
        self.audit = Auditing(reactor, config, wall_ms, lambda text: fatal(EX_IOERR, text))
        self.auditor = self._around.auditor = self.audit.auditor
        self.permission_log = PermissionLog(reactor, self.auditor)
        self.permits = Permits(config.security_settings, self.permission_log.tell)
        self.clock = make_clock()
        date = make_date(self.clock)
        self.gate = make_gate(config, self._around, make_key(), date)
        if self.gate.certificates is not None:
            self.gate.certificates.auditor = self.auditor
        self.directory = make_directory(reactor, config, self.gate, make_key())
        self.tokens, self.ends = make_issuing(reactor, config, self.gate, date)
        self.tokens.realm.auditor = self.auditor
        self._turn = Turn(lambda action: reactor.callLater(0, action))
        self._turn.end = lambda: self._guarded(self._turn.run)
        self._timers = Timers(reactor)
        self._reads = Reads(Departures(reactor), Patience(self._turn.after), Backlogs(reactor))
        self._lag = ReactorLag(reactor, lag_histogram())
        self.allowing = Allowing(lambda: self.gate.judge is not None)
        self._router = _router(self.allowing, self.auditor)
        logins = HttpLogins(self.gate, self.auditor, wall_ms)
        self.site = ApiSite(
            reactor, self._router, logins.for_peer, wire_settings(config), self.ends
        )
        self.site.certified = self._certified
        self.reloads = self._make_reloads(again or Again(read=lambda: config, relog=_no_log))
        self.containers = Containers()
        self.budgets = {a.name: budget_of(config, a) for a in config.acceptors}
        self._recurring = Recurring(reactor, self._work_failed)
        self._watching: LoopingCall | None = None
        self._opening: Deferred[None] | None = None
        self._stopping = False
        self._descriptors = Descriptors()
        self.meters = Meters(reactor.seconds, reactor.callLater)
        self.meters.use(config.quotas)
        self.meters.auditor = self.auditor
        self.certificates = read_certificates(
            config, seconds=reactor.seconds, now_ms=self.clock.now_ms
        )
        self.groups: Sequence[Connections] = self._make_groups()
        self.web = self._make_web()
        self._descriptors.crowds = self._everybody()
        self.acceptors = [
            Listener(reactor, f"acceptors.{a.name}", a.endpoint, group)
            for a, group in zip(config.acceptors, self.groups, strict=True)
        ]
        self.management: Listener | None = None
        if config.management.enabled:
            path, endpoint = MANAGEMENT, config.management.endpoint
            site: IProtocolFactory = self.site
            if path in self.certificates:
                site = secured(reactor, path, site, self.certificates[path].context)
            self.management = Listener(reactor, path, endpoint, site)

    def _make_reloads(self, again: Again) -> Reloads:
        reloads = Reloads(self._reactor, self, again, self.clock.now_ms)
        reloads.auditor = reloads.users.auditor = self.auditor
        return reloads

    def _make_groups(self) -> list[Connections]:
        secrets = {path: one.context for path, one in self.certificates.items()}
        return [
            Connections(
                a.name,
                self._turn,
                self._timers,
                self._reads,
                connection_limits(self.config, a),
                contexts=secrets.get(f"acceptors.{a.name}"),
                descriptors=self._descriptors,
                ends=self.ends,
                meters=self.meters,
                auditor=self.auditor,
            )
            for a in self.config.acceptors
        ]

    def _make_web(self) -> Connections:
        """Return the WebSockets that the management listener takes."""
        acceptor = management_acceptor(self.config)
        self.budgets[acceptor.name] = budget_of(self.config, acceptor)
        return Connections(
            acceptor.name,
            self._turn,
            self._timers,
            self._reads,
            connection_limits(self.config, acceptor),
            descriptors=self._descriptors,
            meters=self.meters,
            path=MANAGEMENT,
            ends=self.ends,
            auditor=self.auditor,
        )

    def _certified(self, certificate: bytes | None, peer: str) -> Principal | None:
        owner = self.gate.certified(certificate, peer)
        return None if owner is None else self.gate.admit(owner, peer)

    def _everybody(self) -> list[Connections]:
        return [*self.groups, self.web]

    # ---- start

    def startService(self) -> None:
        """Recover, then open the listeners. Raises what `make_core` and `declare` raise."""
        super().startService()  # type: ignore[no-untyped-call]
        config = self.config
        adopt_history(config)
        self.core = core = make_core(
            self._reactor,
            config,
            self._turn,
            self._fatal,
            make_chance(self.clock),
            alarm=self._alarm,
            guard=self._guarded,
        )
        journal = core.store.journal
        wait_little(self._reactor, lambda: not journal.writing, self._reads)
        _log.info("gateway.started", version=__version__, data=config.data_directory)
        _log.info("store.recovered", **core.recovered)
        core.disk.start()
        use_permissions(self.gate, self.permits, config.security_settings)
        self._around.start()
        if self.directory is not None:
            self.directory.start()
        core.broker.pressure.slow.spares = spares
        self.serve(config)
        self.auditor.note("gateway.started", version=__version__, data=config.data_directory)
        declare(core, config)
        tidy(core.broker, config)
        for group, acceptor in doors(self, config):
            budget = self.budgets[acceptor.name]
            group.bound_output(config, acceptor)
            group.speakers = make_speakers(
                config,
                acceptor,
                core.broker,
                self.gate,
                budget,
                containers=self.containers,
                objects=core.broker.directory.objects,
                meters=self.meters,
            )
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
        self._share_descriptors()
        for listener in self._listeners():
            await listener.open()
        self._start_recurring(core)
        self._lag.start()
        self.ready = True
        self.reloads.ready()
        secure = [one.address for one in self._listeners() if one.endpoint.tls]
        _log.info(
            "gateway.ready",
            acceptors=" ".join(one.address for one in self.acceptors),
            **({"tls": " ".join(secure)} if secure else {}),
        )
        self.on_ready()

    def _start_recurring(self, core: Core) -> None:
        recurring, journal = self._recurring, core.store.journal
        recurring.start(self.ends.look, END_LOOK_SECONDS)
        recurring.start(core.registry.tick, STREAM_TICK_SECONDS)
        recurring.start(core.sink.tick, SINK_TICK_SECONDS)
        core.sink.start()
        recurring.start(journal.cover, COVER_SECONDS)
        watch = StoreWatch(
            journal, self._reactor.seconds, lambda text: journal.failed(OSError(text))
        )
        self._watching = recurring.start(watch.look, WATCH_SECONDS)
        recurring.start(core.scrubber.look, SCRUB_LOOK_SECONDS)
        for certificates in self.certificates.values():
            recurring.start(certificates.look, CERTIFICATE_LOOK_SECONDS)
        recurring.start(self.reloads.users.look, LOOK_SECONDS)
        recurring.start(QuotaTeller(self.meters).look, QUOTA_LOOK_SECONDS)
        recurring.start(journal.sync, periods(self.config)["sync-interval"], "sync-interval")
        for work, key, seconds in chores(core.broker, core.disk, lambda: self.config, self._later):
            recurring.start(work, seconds, key)

    def _share_descriptors(self) -> None:
        """Say how many connections there is room for; raises ListenError when for none."""
        listeners = len(self._listeners())
        try:
            share = self._descriptors.measure(listeners=listeners)
        except OSError as error:
            raise ListenError(f"No connection can be taken: {error}.") from None
        self.site.share = share.management
        _log.info(
            "descriptors.shared",
            limit=share.most,
            clients=share.clients,
            management=share.management,
        )

    def _not_opened(self, failure: Failure) -> None:
        """A listener or a stream could not be had: the gateway does not run half."""
        if not self._stopping:
            _log.error("gateway.failed", error=failure.getErrorMessage())
            self._fatal(EX_UNAVAILABLE, failure.getErrorMessage())

    def _listeners(self) -> list[Listener]:
        # Management comes last: whoever sees it ready may use all others.
        return [*self.acceptors, *([self.management] if self.management else [])]

    def serve(self, config: Config) -> None:
        """Bring what the configuration says of the management API into force."""
        self.site.use(wire_settings(config))
        self.allowing.roles = config.api_roles.roles()
        self.audit.follow(config, users=not self.gate.open)
        self.site.adopt = self.web.adopt if config.management.websocket else None

    def pace(self, key: str, seconds: float) -> None:
        """Do what a key of the configuration says how often at another distance; 0: no more."""
        self._recurring.pace(key, seconds)

    def _work_failed(self, failure: Failure) -> None:
        _log.error(
            "gateway.failed", error=failure.getErrorMessage(), traceback=failure.getTraceback()
        )
        self._fatal(EX_SOFTWARE, f"The gateway met a fault of its own: {failure.getErrorMessage()}")

    def _later(self, action: Callable[[], None]) -> None:
        """Go on with long work in the next turn, unless the gateway is stopping."""

        def go_on() -> None:
            if not self._stopping:
                self._guarded(action)

        self._reactor.callLater(0, go_on)

    def _guarded(self, action: Callable[[], None]) -> None:
        """End a turn. One that breaks off is never ended: everybody would wait for it for ever."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - whatever it is, the turn is half done
            if self._alarm is not None:
                self._alarm(error)
            starved = isinstance(error, MemoryError)
            if not starved:
                _log.error("gateway.failed", error=str(error), traceback=Failure().getTraceback())
            text = f"The gateway cannot finish what it was doing: {cause_of(error)}."
            self._fatal(EX_IOERR if starved else EX_SOFTWARE, text)

    def _add_routes(self, core: Core) -> None:
        files, directory = RealFiles(), self.config.data_directory
        sources = Sources(
            gateway=core.broker,
            not_ready=self.not_ready,
            journal=cast("JournalFigures", core.store.journal),
            free_bytes=lambda: files.free_bytes(directory),
            disk=core.disk,
            clock=self.clock,
            acceptors=lambda: [group.figures() for group in self._everybody()],
            certificates=lambda: {n: c.seconds_left() for n, c in self.certificates.items()},
            logins=Logins(self.gate, self._around),
            audit=self.audit,
            ages=self._ages(core),
            python=platform.python_version(),
            process=process_figures,
            histograms=(core.syncs, self._lag.late),
            streams=core.registry,
            sink=core.sink,
            scrubber=core.scrubber,
            reactor=self._reactor,
            meters=self.meters,
        )
        add_routes(self._router, sources, with_metrics=self.config.metrics.enabled)
        StreamsApi(self._reactor, core.registry, self.config.name, self.meters).install(
            self._router
        )
        SinkApi(core.sink, self.meters).add_routes(self._router)
        ConfigApi(self.reloads).add_routes(self._router)
        QuotasApi(self.meters).add_routes(self._router)
        connections = ConnectionsApi(
            self._everybody(), self._reactor, self.clock.now_ms, self.meters
        )
        connections.add_routes(self._router)
        TokenApi(self._everybody(), self.tokens.realm.auditor).add_routes(self._router)

    def not_ready(self) -> str | None:
        """Return why messages cannot be sent and received, or None when they can."""
        if self._stopping:
            return "The gateway is stopping."
        return None if self.ready else "The gateway is opening its listeners."

    def _ages(self, core: Core) -> Ages:
        """Return what knows how old messages are, and have it look."""
        ages = Ages(lambda: core.broker.queues, self._reactor.seconds)
        ages.look()
        self._recurring.start(ages.look, AGE_LOOK_SECONDS)
        return ages

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
        _log.info("gateway.stopping", connections=sum(group.count for group in self._everybody()))
        if self._opening is not None and not self._opening.called:
            self._opening.cancel()
        for listener in self.acceptors:
            await listener.stop_listening()
        await drain(self._reactor, self._everybody(), DRAIN_SECONDS)
        self._recurring.stop(but=self._watching)
        self._lag.stop()
        await self._stop_management()
        self._around.stop()
        if self.directory is not None:
            self.directory.stop()
        await core.close()
        if self._watching is not None and self._watching.running:
            self._watching.stop()  # not before: a disk that hangs now must end, too
        self.core = None
        clean = core.store.journal.failure is None
        self.auditor.note("gateway.stopped", clean=clean)
        self.audit.close()
        _log.info("gateway.stopped", clean=clean)

    async def _stop_management(self) -> None:
        if self.management is None:
            return
        await self.management.stop_listening()
        self.site.close_connections()
        deadline = self._reactor.seconds() + HTTP_DRAIN_SECONDS
        while self.site.channels and self._reactor.seconds() < deadline:
            await deferLater(self._reactor, 0.02)
        self.site.close_connections(force=True)


def build(
    reactor: Reactor,
    config: Config,
    fatal: Fatal,
    again: Again | None = None,
    *,
    alarm: Failing | None = None,
) -> GatewayService:
    """Return the gateway as a service, not started; `fatal` is told when it cannot go on.

    `alarm` hears of that before, from any thread: it ends the process where nothing else can.
    `again` has the configuration once more; without it a reload finds it as it is.

    Raises ConfigError (also for an exposure that the configuration does not allow) and ListenError.
    """
    return GatewayService(reactor, config, fatal, again, alarm=alarm)


def _router(allowing: Allowing, auditor: Auditor) -> Router:
    """Return a table of routes that asks for roles, and tells of changes."""
    router = Router()
    router.on_change = lambda change: tell_change(change, auditor)
    router.allow = allowing
    allowing.auditor = auditor
    return router


def _no_log(logging: LoggingConfig) -> None:
    """Stand for a log that is not ours."""


def _nothing() -> None:
    """Stand for whoever does not want to know."""
