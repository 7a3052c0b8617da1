"""The connections of one acceptor: how many there may be, which are open, and their end.

    a client comes ──room──> stranger ──is let in──> known ──> gone
           └──no room──> refused └──another one needs its place──> dismissed

Where there is no room, the stranger that has been here for longest goes. Known clients never have
to: without a stranger to dismiss the new connection is refused. A few at a time are told so, and
when to come again; the others are closed without a word. `drain` ends all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Factory
from twisted.internet.protocol import Protocol as TwistedProtocol

from gateway.config.tree import Acceptor, Config
from gateway.listening.counted import Counted
from gateway.listening.tls import Contexts, tell_tls_failed
from gateway.listening.turned_away import turn_away
from gateway.logs.connections import note_left, tell_closed, tell_opened
from gateway.logs.summing import Summed
from gateway.model.audit import SILENT, Auditor
from gateway.model.errors import Code, Refusal
from gateway.model.peers import AcceptorFigures, Cause
from gateway.model.principal import Principal, end_of
from gateway.model.turn import Turn
from gateway.process.descriptors import Descriptors
from gateway.quotas.meters import Meters
from gateway.time.ends import Ends
from protocols.stomp.session import StompSession
from protocols.transport.first_bytes import Decline
from protocols.transport.reads import Reads
from protocols.transport.shell import Wire
from protocols.transport.sniff import sniff
from protocols.transport.speaking import Session, Speaker
from protocols.transport.strangers import decline
from protocols.transport.timers import Timers
from protocols.transport.tls import Tls
from protocols.transport.unread import Output
from protocols.websocket.session import WebSocketSession

_log = structlog.get_logger()

KEY: Final = "connections-allowed"
#: How many are told at a time that there is no place for them.
TURNED_MAX: Final = 16
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
        meters: Meters | None = None,
        path: str = "",
        ends: Ends | None = None,
        auditor: Auditor = SILENT,
    ) -> None:
        """`contexts` are what TLS is spoken with; without them it is not.

        `descriptors` and `meters` are shared by all acceptors; `path` is the listener's in the
        configuration. `ends` watches what clients have logged in with.
        """
        self._counted = Counted(meters)
        self.name = name
        self._ends = ends
        self._ending: dict[str, Principal] = {}
        self.auditor = auditor
        self._path = path or f"acceptors.{name}"
        self._auditor = auditor
        self._stopping = False
        self.speakers: tuple[Speaker, ...] = ()
        self.output = Output()
        self.wires: dict[str, Wire] = {}
        self.opened = self.refused = self.dismissed = 0
        self.emptied: Callable[[], None] = _nothing
        self.limits = limits or ConnectionLimits()
        self._strangers: dict[str, Wire] = {}
        self._turned: set[Wire] = set()  # who has no place, and is told so
        self._turn = turn
        self._timers = timers
        self._reads = reads
        self._contexts = contexts
        self._descriptors = descriptors or Descriptors()
        self._refusals = Summed(timers.clock, self._tell_refused)
        # Their sum is the gate's to tell.
        self._failures = Summed(timers.clock, lambda count, seconds: None)
        self._endings = Summed(timers.clock, self._tell_ended)
        self._dismissals = Summed(timers.clock, self._tell_dismissed)

    @property
    def count(self) -> int:
        """How many connections are open, those that are about to close as well."""
        return len(self.wires) + len(self._turned)

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
        names = [_name_of(s) for s in sessions if s]
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

    def _tell_ended(self, count: int, seconds: float) -> None:
        _log.info("login.ended_more", acceptor=self.name, count=count, seconds=seconds)

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
        tls = None if self._contexts is None else Tls(self._contexts())
        if not self._refuses(addr):
            return self._make(tls, addr)
        told = self._descriptors.spare and len(self._turned) < TURNED_MAX
        return self._turn_away(tls, addr) if told else None

    def adopt(self, addr: IAddress | None, tls: Tls | None) -> Wire | str:
        """Return what goes on with a connection that another factory took, or why it may not."""
        if self._stopping:
            return "the gateway is shutting down"
        return self._refuses(addr) or self._make(tls, addr)

    def _refuses(self, addr: IAddress | None) -> str:
        """Return the limit that refuses one more connection, told to the log; empty: none."""
        limit = self._counted.refuses(addr) or self._make_room()
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
        return limit

    def _make(self, tls: Tls | None, addr: IAddress | None) -> Wire:
        self.opened += 1
        name = f"{self.name}-{self.opened}"
        self._counted.came(name, addr)
        wire = self._wire(name, self.speakers, decline, tls)
        self.wires[name] = self._strangers[name] = wire
        wire.on_tls_failed = self._tls_failed
        wire.on_stranger = self._declined
        wire.on_session = lambda one: tell_opened(
            self.name,
            name,
            one,
            self._known,
            self._failures,
            auditor=self._auditor,
            listener=self._path,
        )
        wire.on_lost = lambda one: self._lost(name, one)
        return wire

    def _wire(
        self, name: str, speakers: tuple[Speaker, ...], decline: Decline, tls: Tls | None
    ) -> Wire:
        return Wire(
            self._turn,
            self._timers,
            speakers,
            name,
            tell=_told,
            decline=decline,
            reads=self._reads,
            tls=tls,
            output=self.output,
        )

    def _turn_away(self, tls: Tls | None, addr: IAddress | None) -> Wire:
        """Hear who has no place, as far as it takes to tell it so, and when to come again.

        Where the limit was set is not for those who have not said who they are.
        """
        text = f"This listener has as many connections as it may, {KEY} is {self.limits.allowed}."
        if self._counted.full(addr):
            text = "Your address has as many connections here as it may."
        refusal = Refusal(code=Code.TOO_MANY, text=f"{text} Try again later.", transient=True)
        wire = self._wire(f"{self.name}-turned-away", (), turn_away(refusal), tls)
        self._turned.add(wire)
        wire.on_lost = self._turned_lost
        return wire

    def _turned_lost(self, wire: Wire) -> None:
        self._turned.discard(wire)
        self._tell_empty()

    def _tell_empty(self) -> None:
        if not self.count:
            self.emptied()

    def _known(self, name: str) -> None:
        """A client has said who it is, and was let in; or it is closed for its user's limit."""
        self._strangers.pop(name, None)
        wire = self.wires.get(name)
        if wire is None or wire.session is None:
            return
        self._counted.known(name, wire.session.seen)
        principal = wire.session.seen.principal
        if self._ends is not None and principal.until_ms is not None:
            self._ending[name] = principal
            self._ends.watch(principal, lambda: self._has_ended(name, principal))

    def _has_ended(self, name: str, principal: Principal) -> None:
        """What a client has logged in with has ended: so does its connection."""
        self._ending.pop(name, None)
        wire = self.wires.get(name)
        if wire is None or wire.session is None:
            return
        facts = {
            "user": principal.user,
            "by": principal.by.value,
            "issuer": principal.issuer,
            "peer": wire.peer().address,
        }
        if self._endings.whole():
            _log.info("login.ended", connection=name, **facts)
        self._auditor.note("token.ended", connection=name, **facts)
        seen = wire.session.seen
        if seen.ending is None:
            seen.dismiss(end_of(principal))

    def _tls_failed(self, wire: Wire, why: str) -> None:
        tell_tls_failed(self._path, wire.peer().address, why)

    def _declined(self, wire: Wire, what: str) -> None:
        _log.info(
            "connection.refused",
            acceptor=self.name,
            peer=wire.peer().address,
            reason="protocol",
            protocol=what,
            offered=" ".join(speaker.name or speaker.guess for speaker in self.speakers),
        )

    def _lost(self, name: str, wire: Wire) -> None:
        self.wires.pop(name, None)
        stranger = self._strangers.pop(name, None) is not None
        if self._ends is not None and (held := self._ending.pop(name, None)) is not None:
            self._ends.forget(held)
        dismissed = wire.ending is not None and wire.ending.cause is Cause.DISMISSED
        if not stranger and not dismissed:
            note_left(self._auditor, self._path, name, wire, self._timers.now())
        self._counted.gone(name)
        tell_closed(self.name, name, wire, self._timers.now(), self._failures)
        self._tell_empty()

    def stop(self) -> None:
        """Say good-bye in each protocol's words, and take nobody in any more."""
        self._stopping = True
        for wire in self._all():
            wire.stop()

    def _all(self) -> list[Wire]:
        return [*self.wires.values(), *self._turned]

    def abort(self) -> None:
        """Cut every connection that is still there."""
        for wire in self._all():
            transport: Any = wire.transport
            if transport is not None:
                transport.abortConnection()


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


def _told(data: bytes) -> str:
    """Return what the first bytes of a connection are, as the shell and its speakers name it."""
    return sniff(data).value


def _name_of(session: Session) -> str:
    """Return the protocol of a session: what is inside of a WebSocket, once that is known."""
    if isinstance(session, WebSocketSession):
        return "WS" if session.inner is None else _name_of(session.inner)
    return "STOMP" if isinstance(session, StompSession) else "AMQP"


def _nothing() -> None:
    """Stand for whoever does not want to know."""
