"""Listeners: from an endpoint string to open ports and the connections behind them.

One `Listener` for each acceptor and for management: it opens late (after recovery), says where it
really listens, stops taking connections first and lets the open ones go afterwards.

    closed ──open──> opening ──> open ──stop_listening──> draining ──drain──> closed
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog
from twisted.internet import tcp
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IListeningPort, IProtocolFactory, IReactorTime
from twisted.internet.protocol import Factory
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.python.failure import Failure

from gateway import __version__
from gateway.config.endpoints import Endpoint
from gateway.config.tree import (
    ANYCAST_PREFIX,
    MULTICAST_PREFIX,
    Acceptor,
    Config,
    Sasl,
    StompDiskFull,
)
from gateway.config.tree import Wire as Protocol
from gateway.logs.connections import tell_closed, tell_opened
from gateway.logs.summing import Summed
from gateway.model.address import RoutingType
from gateway.model.budget import Budget
from gateway.model.objects import Objects
from gateway.model.peers import AcceptorFigures, Cause
from gateway.model.ports import Broker
from gateway.model.turn import Turn
from gateway.process.descriptors import ACCEPTS_AT_ONCE, Descriptors
from gateway.security.gate import PasswordGate, PeerGate
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.containers import Containers
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.sasl import BUILT_IN
from protocols.amqp.scram import scram_exchanges
from protocols.convert import amqp_to_stomp
from protocols.stomp.limits import StompLimits
from protocols.stomp.session import StompSession
from protocols.transport.reads import Reads
from protocols.transport.secure import SecureFactory
from protocols.transport.shell import PeerFacts, Speaker, Wire
from protocols.transport.sniff import Guess, sniff
from protocols.transport.strangers import decline
from protocols.transport.timers import Timers
from protocols.transport.tls import Tls
from protocols.transport.unread import Output

#: Connections that may wait to be accepted: Twisted's 50 overflow when a fleet comes back at once.
BACKLOG: Final = 1024
#: How long a STOMP consumer may hold deliveries and acknowledge none, where nothing is written.
STOMP_STUCK_MS: Final = 1_800_000
#: A century: what "never" is to STOMP's clock.
FOR_EVER_MS: Final = 100 * 365 * 86_400_000

_log = structlog.get_logger()


#: What the failures that an operator can do something about mean.
_TLS_FAILURES: Final = {
    "not-tls": "the client speaks no TLS; this listener does not speak anything else",
    "too-slow": "the handshake was not done in time",
    "unsupported-protocol": "the client offers only versions below this listener's minimum-version",
    "no-shared-cipher": "the client offers no cipher that this listener takes",
    "tlsv1-alert-unknown-ca": "the client does not trust who signed the certificate",
    "sslv3-alert-bad-certificate": "the client does not accept the certificate",
    "sslv3-alert-certificate-unknown": "the client does not accept the certificate",
    "sslv3-alert-handshake-failure": "the client broke it off and says no more; Proton does so when"
    " the certificate is not for the name that it connects to",
    "sslv3-alert-certificate-expired": "the client finds that the certificate has expired",
}
#: Returns what the next connection is spoken to with.
Contexts = Callable[[], ssl.SSLContext]


class ListenError(Exception):
    """A listener could not be opened; the text names it and why."""


KEY: Final = "connections-allowed"
STRANGERS_KEY: Final = "unauthenticated-connections-allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections an acceptor has, and how many of clients that are not known yet.

    `origins` are where the keys were written; those that were not have their default.
    """

    allowed: int = 10_000
    strangers: int = 100
    origins: Mapping[str, str] = field(default_factory=dict)

    def where(self, key: str) -> str:
        """Return where a limit was set."""
        return self.origins.get(key, "by default")


def connection_limits(config: Config, acceptor: Acceptor) -> ConnectionLimits:
    """Return an acceptor's limits of connections."""
    path = f"acceptors.{acceptor.name}."
    return ConnectionLimits(
        allowed=acceptor.connections_allowed,
        strangers=acceptor.unauthenticated_connections_allowed,
        origins={
            key: config.origins[path + key]
            for key in (KEY, STRANGERS_KEY)
            if path + key in config.origins
        },
    )


class Connections(Factory):
    """Makes a `Wire` for each connection of an acceptor and knows which are open.

    Figures (read only): `opened`, `refused`, and `dismissed`, who had to make room for others.
    `speakers` are set before the port is opened; `output` is what each new connection may leave
    unread.
    """

    noisy = False

    def __init__(
        self,
        name: str,
        turn: Turn,
        timers: Timers,
        reads: Reads,
        limits: ConnectionLimits | None = None,
        *,
        contexts: Contexts | None = None,
        descriptors: Descriptors | None = None,
    ) -> None:
        """`contexts` are what TLS is spoken with; without them it is not.

        `descriptors` are shared by all acceptors.
        """
        self.name = name
        self.speakers: tuple[Speaker, ...] = ()
        self.output = Output()
        self.wires: dict[str, Wire] = {}
        self.opened = self.refused = self.dismissed = 0
        self.emptied: Callable[[], None] = _nothing
        self.limits = limits or ConnectionLimits()
        self._strangers: dict[str, Wire] = {}
        self._turn = turn
        self._timers = timers
        self._reads = reads
        self._contexts = contexts
        self._descriptors = descriptors or Descriptors()
        self._refusals = Summed(timers.clock, self._tell_refused)
        # Their sum is the gate's to tell.
        self._failures = Summed(timers.clock, lambda count, seconds: None)
        self._dismissals = Summed(timers.clock, self._tell_dismissed)

    @property
    def count(self) -> int:
        """How many connections are open, those that are about to close as well."""
        return len(self.wires)

    def oldest_stranger(self) -> tuple[float, str] | None:
        """See `Crowd`."""
        for name, wire in self._strangers.items():
            return wire.since, name
        return None

    def dismiss(self, name: str, why: str) -> None:
        """See `Crowd`."""
        wire = self._strangers.pop(name)
        self.dismissed += 1
        if self._dismissals.whole():
            _log.warning(
                "connection.dismissed", acceptor=self.name, peer=wire.peer().address, reason=why
            )
        wire.cut(Cause.DISMISSED, why)

    def figures(self) -> AcceptorFigures:
        """Return how many connections it took, refused, and has open by protocol."""
        sessions = (wire.session for wire in self.wires.values())
        names = ["STOMP" if isinstance(s, StompSession) else "AMQP" for s in sessions if s]
        return AcceptorFigures(
            name=self.name, opened=self.opened, refused=self.refused, protocols=Counter(names)
        )

    def _make_room(self) -> str:
        """See to it that one more may stay; returns the limit where that cannot be."""
        limits = self.limits
        crowded = len(self._strangers) >= limits.strangers
        full = len(self.wires) >= limits.allowed
        if (crowded or full) and (oldest := self.oldest_stranger()) is not None:
            key, most = (STRANGERS_KEY, limits.strangers) if crowded else (KEY, limits.allowed)
            self.dismiss(oldest[1], f"{key} is {most} ({limits.where(key)}), and more have come")
        elif full:
            return f"{KEY} is {limits.allowed} ({limits.where(KEY)})"
        if self._descriptors.has_room():
            return ""
        share = self._descriptors.share
        most, clients = (0, 0) if share is None else (share.most, share.clients)
        return f"RLIMIT_NOFILE is {most}: {clients} connections of clients, all in use"

    def _tell_refused(self, count: int, seconds: float) -> None:
        _log.warning("connection.refused_more", acceptor=self.name, count=count, seconds=seconds)

    def _tell_dismissed(self, count: int, seconds: float) -> None:
        _log.warning("connection.dismissed_more", acceptor=self.name, count=count, seconds=seconds)

    def bound_output(self, config: Config, acceptor: Acceptor) -> None:
        """Bound by these settings what the next connections leave unread."""
        shared = self.output.shared
        shared.maximum = config.global_max_size // 4
        self.output = Output(
            bytes_max=acceptor.max_unread_size,
            seconds=acceptor.unread_timeout / 1000,
            shared=shared,
        )

    def buildProtocol(self, addr: IAddress | None) -> TwistedProtocol | None:
        limit = self._make_room()
        if limit:
            self.refused += 1
            if self._refusals.whole():
                peer = str(getattr(addr, "host", "-"))
                _log.warning(
                    "connection.refused",
                    acceptor=self.name,
                    peer=peer,
                    reason="too-many",
                    limit=limit,
                )
            return None
        self.opened += 1
        name = f"{self.name}-{self.opened}"
        tls = None if self._contexts is None else Tls(self._contexts())
        wire = Wire(
            self._turn,
            self._timers,
            self.speakers,
            name,
            tell=_told,
            decline=decline,
            reads=self._reads,
            tls=tls,
            output=self.output,
        )
        self.wires[name] = self._strangers[name] = wire
        wire.on_tls_failed = self._tls_failed
        wire.on_stranger = self._declined
        wire.on_session = lambda one: tell_opened(self.name, name, one, self._known, self._failures)
        wire.on_lost = lambda one: self._lost(name, one)
        return wire

    def _known(self, name: str) -> None:
        """A client has said who it is, and was let in."""
        self._strangers.pop(name, None)

    def _tls_failed(self, wire: Wire, why: str) -> None:
        tell_tls_failed(f"acceptors.{self.name}", wire.peer().address, why)

    def _declined(self, wire: Wire, what: str) -> None:
        _log.info(
            "connection.refused",
            acceptor=self.name,
            peer=wire.peer().address,
            reason="protocol",
            protocol=what,
            offered=" ".join(speaker.guess for speaker in self.speakers),
        )

    def _lost(self, name: str, wire: Wire) -> None:
        self.wires.pop(name, None)
        self._strangers.pop(name, None)
        tell_closed(self.name, name, wire, self._timers.now(), self._failures)
        if not self.wires:
            self.emptied()

    def stop(self) -> None:
        """Say good-bye in each protocol's words."""
        for wire in list(self.wires.values()):
            wire.stop()

    def abort(self) -> None:
        """Cut every connection that is still there."""
        for wire in list(self.wires.values()):
            transport: Any = wire.transport
            if transport is not None:
                transport.abortConnection()


class Listener:
    """One listener; see the module text."""

    def __init__(
        self, reactor: IReactorTime, path: str, endpoint: Endpoint, factory: IProtocolFactory
    ) -> None:
        """Keep what is needed to open; `path` is its key in the configuration.

        Raises ListenError when Twisted cannot make an endpoint of the string.
        """
        self.path = path
        self.endpoint = endpoint
        self.factory = factory
        self._port: IListeningPort | None = None
        try:
            self._server = serverFromString(reactor, description(endpoint))
        except Exception as error:  # OpenSSL's own have no base of their own
            raise ListenError(f"{path}.endpoint: {endpoint.text}: {error}") from error

    def open(self) -> Deferred[None]:
        """Take connections; fails with ListenError."""

        def opened(port: IListeningPort) -> None:
            self._port = port
            accept_few(port)
            _log.info(
                "listener.opened",
                listener=self.path,
                address=self.address,
                tls=self.endpoint.tls,
            )

        def failed(failure: Failure) -> None:
            failure.trap(CannotListenError, OSError)
            cause = getattr(failure.value, "socketError", None) or failure.value
            reason = getattr(cause, "strerror", None) or str(cause)
            raise ListenError(f"{self.path}: {self.endpoint.shown} cannot be opened: {reason}")

        waiting: Deferred[Any] = maybeDeferred(self._server.listen, self.factory)
        return waiting.addCallbacks(opened, failed)

    @property
    def address(self) -> str:
        """Where it listens: host and port as opened, or the endpoint as shown."""
        host = self._port.getHost() if self._port is not None else None
        port = getattr(host, "port", None)
        if port is None:
            return self.endpoint.shown
        shown = self.endpoint.shown.rpartition(":")[0]
        return f"{shown}:{port}"

    def stop_listening(self) -> Deferred[None]:
        """Take no more connections; the open ones stay."""
        port, self._port = self._port, None
        stopped: Deferred[Any] = succeed(None)
        if port is not None:
            stopped = maybeDeferred(port.stopListening)
        return stopped.addCallback(lambda _: None)


def make_speakers(
    config: Config,
    acceptor: Acceptor,
    broker: Broker,
    gate: PasswordGate,
    unfinished: Budget | None = None,
    *,
    containers: Containers,
    objects: Objects,
) -> tuple[Speaker, ...]:
    """Return what an acceptor needs for each protocol that it speaks.

    `unfinished` is what all its connections share, those of before as well; `containers` and
    `objects` what all acceptors do.
    """
    open_to_all = gate.open or acceptor.allow_anonymous
    if unfinished is None:
        unfinished = budget_of(config, acceptor)
    speakers = []

    def authenticator(peer: PeerFacts) -> PeerGate:
        return gate.for_peer(peer.address, anonymous=acceptor.allow_anonymous)

    if Protocol.AMQP in acceptor.protocols:
        sasl = sasl_offer(acceptor, gate)
        amqp = amqp_limits(config, acceptor, unfinished, anonymous=open_to_all, sasl=sasl)
        amqp = replace(amqp, objects=objects)
        speakers.append(
            Speaker(
                guess=Guess.AMQP.value,
                build=lambda peer: AmqpConnection(
                    broker,
                    (known := authenticator(peer)),
                    amqp,
                    peer,
                    {**BUILT_IN, **scram_exchanges(known, gate.nonce, gate.decoy_key)},
                    containers=containers,
                ),
            )
        )
    if Protocol.STOMP in acceptor.protocols:
        stomp = replace(stomp_limits(config, acceptor, unfinished), objects=objects)
        speakers.append(
            Speaker(
                guess=Guess.STOMP.value,
                build=lambda peer: StompSession(
                    broker,
                    authenticator(peer),
                    stomp,
                    peer.name,
                    amqp_to_stomp,
                    remote=peer.address,
                ),
            )
        )
    return tuple(speakers)


def budget_of(config: Config, acceptor: Acceptor) -> Budget:
    """Return what all connections of an acceptor may hold of unfinished messages."""
    return Budget(max(config.global_max_size // 4, 2 * acceptor.max_message_size))


def sasl_offer(acceptor: Acceptor, gate: PasswordGate) -> tuple[str, ...]:
    """Return the mechanisms that an acceptor offers to users, best first."""
    written = acceptor.sasl_mechanisms
    return tuple(m.value for m in Sasl if m in written) or (*gate.mechanisms, Sasl.PLAIN.value)


def amqp_limits(
    config: Config,
    acceptor: Acceptor,
    unfinished: Budget | None = None,
    *,
    anonymous: bool,
    sasl: tuple[str, ...] = (Sasl.PLAIN.value,),
) -> AmqpLimits:
    """Return an acceptor's settings for AMQP."""
    kinds = (RoutingType.ANYCAST, RoutingType.MULTICAST)
    prefixes = zip(acceptor.prefixes(), kinds, strict=True)
    return AmqpLimits(
        max_frame_size=acceptor.max_frame_size,
        max_message_size=acceptor.max_message_size,
        unfinished=unfinished or budget_of(config, acceptor),
        unfinished_seconds=acceptor.unfinished_timeout / 1000,
        unfinished_bytes_per_second=acceptor.unfinished_min_rate,
        stuck_seconds=_stuck_seconds(acceptor, -1),
        amqp_credits=acceptor.amqp_credits,
        amqp_low_credits=acceptor.amqp_low_credits,
        use_modified=acceptor.amqp_use_modified_for_transient_delivery_errors,
        duplicate_detection=acceptor.amqp_duplicate_detection,
        drain_on_refusal=acceptor.amqp_drain_on_transient_delivery_errors,
        quiesce_ms=acceptor.amqp_link_quiesce_timeout,
        idle_ms=acceptor.amqp_idle_timeout,
        prefixes=tuple((prefix, kind) for prefix, kind in prefixes if prefix),
        anonymous=anonymous,
        sasl=sasl,
        transaction_seconds=config.transaction_timeout / 1000,
        container_id=config.name,
        version=__version__,
        durability=config.durability.value,
    )


def stomp_limits(
    config: Config, acceptor: Acceptor, unfinished: Budget | None = None
) -> StompLimits:
    """Return an acceptor's settings for STOMP."""
    anycast, multicast = acceptor.prefixes(ANYCAST_PREFIX, MULTICAST_PREFIX)
    return StompLimits(
        body_bytes_max=acceptor.max_message_size,
        unfinished=unfinished or budget_of(config, acceptor),
        unconfirmed_bytes_max=acceptor.max_unread_size,
        frame_seconds=acceptor.unfinished_timeout / 1000,
        frame_bytes_per_second=acceptor.unfinished_min_rate,
        stuck_seconds=_stuck_seconds(acceptor, STOMP_STUCK_MS),
        ttl_ms=FOR_EVER_MS if acceptor.connection_ttl < 0 else acceptor.connection_ttl,
        ttl_min_ms=acceptor.connection_ttl_min,
        ttl_max_ms=max(0, acceptor.connection_ttl_max),
        ttl_modifier=acceptor.heart_beat_to_connection_ttl_modifier,
        window_bytes=acceptor.stomp_consumer_window_size,
        transaction_seconds=config.transaction_timeout / 1000,
        default_persistent=config.stomp_default_persistent,
        disk_full_pause=acceptor.stomp_disk_full is StompDiskFull.PAUSE,
        server_name=None if acceptor.disable_stomp_server_header else f"Sluicegate/{__version__}",
        anycast_prefixes=(anycast,) if anycast else (),
        multicast_prefixes=(multicast,) if multicast else (),
        durability=config.durability.value,
    )


def accept_few(port: IListeningPort) -> None:
    """Have a port take so few connections in a turn as there are descriptors kept for.

    Those that make room for them are closed by then.
    """
    if not isinstance(port, tcp.Port):
        return
    read: Callable[[], object] = port.doRead

    def read_few() -> None:
        port.numberAccepts = min(port.numberAccepts, ACCEPTS_AT_ONCE)
        read()

    setattr(port, "doRead", read_few)  # noqa: B010


def _stuck_seconds(acceptor: Acceptor, unwritten_ms: int) -> float:
    """Return the time of consumers that settle nothing; 0 never."""
    written = acceptor.consumer_stuck_timeout
    return max(0, unwritten_ms if written is None else written) / 1000


def drain(reactor: IReactorTime, groups: Sequence[Connections], seconds: float) -> Deferred[None]:
    """Say good-bye to all connections; fires when they are gone. After `seconds` they are cut."""
    done: Deferred[None] = Deferred()

    def look() -> None:
        if not done.called and not any(group.count for group in groups):
            done.callback(None)

    def cut() -> None:
        for group in groups:
            group.abort()

    timer = reactor.callLater(seconds, cut)

    def finish(result: None) -> None:
        if timer.active():
            timer.cancel()

    for group in groups:
        group.emptied = look
        group.stop()
    look()
    return done.addCallback(finish)


def secured(
    clock: IReactorTime, path: str, factory: IProtocolFactory, contexts: Contexts
) -> IProtocolFactory:
    """Return a factory of Twisted's own kind that speaks TLS; `path` is its listener's key."""
    return SecureFactory(
        clock, factory, contexts, lambda peer, why: tell_tls_failed(path, peer, why)
    )


def tell_tls_failed(listener: str, peer: str, why: str) -> None:
    """Log that a connection ended because TLS with it could not go on."""
    meaning = _TLS_FAILURES.get(why)
    more = {} if meaning is None else {"meaning": meaning}
    _log.info("tls.failed", listener=listener, peer=peer, reason=why, **more)


def description(endpoint: Endpoint) -> str:
    """Return the endpoint string for Twisted, with our backlog where none was written."""
    text = endpoint.string
    if endpoint.kind in ("tcp", "tcp6", "ssl", "tls") and ":backlog=" not in text:
        return f"{text}:backlog={BACKLOG}"
    return text


def _told(data: bytes) -> str:
    """Return what the first bytes of a connection are, as the shell and its speakers name it."""
    return sniff(data).value


def _nothing() -> None:
    """Stand for whoever does not want to know."""
