"""The protocols of an acceptor: from its settings to the sessions of its connections.

One `Speaker` for each protocol of an acceptor builds the sessions of those connections whose first
bytes are that protocol's. Settings of the configuration become the limits of the protocols here,
and nowhere else: times in ms become seconds, and keys that are not written get defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from gateway import __version__
from gateway.config.tree import (
    ANYCAST_PREFIX,
    MANAGEMENT,
    MULTICAST_PREFIX,
    Acceptor,
    Config,
    Sasl,
    StompDiskFull,
    WsCompression,
)
from gateway.config.tree import Wire as Protocol
from gateway.model.address import RoutingType
from gateway.model.budget import Budget
from gateway.model.objects import Objects
from gateway.model.ports import Broker
from gateway.quotas.broker import QuotaBroker
from gateway.quotas.meters import Meters
from gateway.security.gate import PasswordGate, PeerGate
from protocols.amqp.bearer import bearer_exchanges
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.containers import Containers
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.sasl import (
    BUILT_IN,
    FRAME_BYTES_MAX,
    TOKEN_FRAME_BYTES_MAX,
    Exchange,
    External,
)
from protocols.amqp.scram import scram_exchanges
from protocols.convert import amqp_to_stomp
from protocols.stomp.limits import StompLimits
from protocols.stomp.session import StompSession
from protocols.transport.sniff import Guess
from protocols.transport.speaking import PeerFacts, Speaker
from protocols.websocket.limits import MANAGEMENT_PATHS, WebSocketLimits
from protocols.websocket.session import WebSocketSession

#: How long a STOMP consumer may hold deliveries and acknowledge none, where nothing is written.
STOMP_STUCK_MS: Final = 1_800_000
#: Browsers run the timers of a tab in the background once a minute: its heart-beats are as rare.
TAB_TTL_MS: Final = 65_000
#: Mechanisms that carry tokens.
TOKEN_SASL: Final = frozenset({Sasl.OAUTHBEARER, Sasl.XOAUTH2})
#: A century: what "never" is to STOMP's clock.
FOR_EVER_MS: Final = 100 * 365 * 86_400_000


def make_speakers(
    config: Config,
    acceptor: Acceptor,
    broker: Broker,
    gate: PasswordGate,
    unfinished: Budget | None = None,
    *,
    containers: Containers,
    objects: Objects,
    meters: Meters | None = None,
) -> tuple[Speaker, ...]:
    """Return what an acceptor needs for each protocol that it speaks.

    `unfinished` is what all its connections share, those of before as well; `containers`, `objects`
    and `meters` what all acceptors do.
    """
    making = _Making(
        config=config,
        acceptor=acceptor,
        broker=broker,
        gate=gate,
        unfinished=budget_of(config, acceptor) if unfinished is None else unfinished,
        containers=containers,
        objects=objects,
        meters=meters,
    )
    speakers = []
    if Protocol.AMQP in acceptor.protocols:
        speakers.append(making.amqp())
    if Protocol.STOMP in acceptor.protocols:
        speakers.append(making.stomp())
    if Protocol.WS in acceptor.protocols:
        speakers.append(making.websocket())
    return tuple(speakers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Making:
    """What the speakers of an acceptor are made of."""

    config: Config
    acceptor: Acceptor
    broker: Broker
    gate: PasswordGate
    unfinished: Budget
    containers: Containers
    objects: Objects
    meters: Meters | None

    @property
    def open_to_all(self) -> bool:
        return self.gate.open or self.acceptor.allow_anonymous

    def _known(self, peer: PeerFacts, protocol: Protocol) -> PeerGate:
        acceptor = self.acceptor
        return self.gate.for_peer(
            peer.address,
            anonymous=acceptor.allow_anonymous,
            listener=MANAGEMENT if acceptor.on_management else f"acceptors.{acceptor.name}",
            protocol=protocol.value,
            holder=peer.principal,
        )

    def _renewer(self, known: PeerGate) -> PeerGate | None:
        """Return what takes later tokens, where there is an issuer of any."""
        return None if self.gate.tokens is None else known

    def _broker(self, peer: PeerFacts, *, counts_senders: bool) -> Broker:
        """Return the broker as one connection meets it."""
        if self.meters is None:
            return self.broker
        return QuotaBroker(
            self.broker, self.meters, peer.address, peer.name, counts_senders=counts_senders
        )

    def amqp(self) -> Speaker:
        gate = self.gate
        limits = amqp_limits(
            self.config,
            self.acceptor,
            self.unfinished,
            anonymous=self.open_to_all,
            sasl=sasl_offer(self.acceptor, gate),
            tokens=gate.tokens is not None,
        )
        limits = replace(limits, objects=self.objects)
        written = self.acceptor.sasl_mechanisms
        offered = not written or Sasl.EXTERNAL in written
        external = replace(limits, sasl=(Sasl.EXTERNAL.value, *limits.sasl))

        def build(peer: PeerFacts) -> AmqpConnection:
            known = self._known(peer, Protocol.AMQP)
            exchanges: dict[str, Callable[[], Exchange]] = {
                **BUILT_IN,
                **scram_exchanges(known, gate.nonce, gate.decoy_key),
                **bearer_exchanges(),
            }
            owner = gate.certified(peer.certificate, peer.address) if offered else None
            if owner is not None:
                exchanges[Sasl.EXTERNAL.value] = lambda: External(gate.admit(owner, peer.address))
            ours = limits if owner is None else external
            return AmqpConnection(
                self._broker(peer, counts_senders=True),
                known,
                ours if peer.principal is None else replace(ours, anonymous=True),
                peer,
                exchanges,
                containers=self.containers,
                renewer=self._renewer(known),
            )

        return Speaker(guess=Guess.AMQP.value, build=build)

    def stomp(self, *, web: bool = False) -> Speaker:
        """Speak STOMP; to `web` pages with a window and with patience of their own."""
        floor = TAB_TTL_MS if web else 0
        limits = stomp_limits(self.config, self.acceptor, self.unfinished, ttl_floor_ms=floor)
        limits = replace(limits, objects=self.objects)
        if web:
            window = self.acceptor.stomp_ws_consumer_window_size
            limits = replace(limits, window_bytes=window, frames_apart=True)

        def build(peer: PeerFacts) -> StompSession:
            known, remote = self._known(peer, Protocol.STOMP), peer.address
            session = StompSession(
                self._broker(peer, counts_senders=False),
                known,
                limits,
                peer.name,
                amqp_to_stomp,
                remote=remote,
                renewer=self._renewer(known),
            )
            owner = self.gate.certified(peer.certificate, remote)
            if owner is not None and peer.principal is None:
                session.own(lambda: self.gate.admit(owner, remote), owner.user)
            return session

        return Speaker(guess=Guess.STOMP.value, build=build)

    def websocket(self) -> Speaker:
        """Carry the other protocols of the acceptor; all there are where it has no other."""
        inside = self.acceptor.protocols - {Protocol.WS} or frozenset(Protocol)
        carried = [self.amqp()] if Protocol.AMQP in inside else []
        carried += [self.stomp(web=True)] if Protocol.STOMP in inside else []
        by_name = {one.guess: one for one in carried}
        limits = websocket_limits(self.config, self.acceptor, open_to_all=self.open_to_all)
        return Speaker(
            guess=Guess.HTTP.value,
            build=lambda peer: WebSocketSession(
                by_name, limits, peer, self._known(peer, Protocol.WS)
            ),
            name=Protocol.WS.value,
        )


def websocket_limits(config: Config, acceptor: Acceptor, *, open_to_all: bool) -> WebSocketLimits:
    """Return an acceptor's settings for WebSocket."""
    here = MANAGEMENT if acceptor.on_management else f"acceptors.{acceptor.name}"
    limits = WebSocketLimits(
        message_bytes_max=max(acceptor.stomp_max_frame_payload_length, acceptor.max_frame_size),
        origins=acceptor.allowed_origins,
        open_to_all=open_to_all,
        ping_seconds=max(0, acceptor.ws_ping_interval) / 1000,
        deflate=acceptor.ws_compression is WsCompression.DEFLATE,
        origins_key=f"{here}.allowed-origins",
        token_cookie=acceptor.ws_token_cookie,
    )
    if not acceptor.on_management:
        return limits
    return replace(
        limits,
        paths=MANAGEMENT_PATHS,
        hosts=config.management.allowed_hosts,
        hosts_key=f"{here}.allowed-hosts",
    )


def budget_of(config: Config, acceptor: Acceptor) -> Budget:
    """Return what all connections of an acceptor may hold of unfinished messages."""
    return Budget(max(config.global_max_size // 4, 2 * acceptor.max_message_size))


def sasl_offer(acceptor: Acceptor, gate: PasswordGate) -> tuple[str, ...]:
    """Return the mechanisms that an acceptor offers to users, best first."""
    written = acceptor.sasl_mechanisms
    # EXTERNAL is for those who have shown a certificate, and tokens need an issuer.
    unusable = {Sasl.EXTERNAL} if gate.tokens is not None else {Sasl.EXTERNAL, *TOKEN_SASL}
    usable = [m for m in Sasl if m not in unusable]
    offered = tuple(m.value for m in usable if m in written)
    tokens = tuple(m.value for m in usable if m in TOKEN_SASL)
    return offered if written else (*gate.mechanisms, Sasl.PLAIN.value, *tokens)


def amqp_limits(
    config: Config,
    acceptor: Acceptor,
    unfinished: Budget | None = None,
    *,
    anonymous: bool,
    sasl: tuple[str, ...] = (Sasl.PLAIN.value,),
    tokens: bool = False,
) -> AmqpLimits:
    """Return an acceptor's settings for AMQP; with `tokens` a login may be one."""
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
        sasl_frame_max=TOKEN_FRAME_BYTES_MAX if tokens else FRAME_BYTES_MAX,
        transaction_seconds=config.transaction_timeout / 1000,
        container_id=config.name,
        version=__version__,
        durability=config.durability.value,
    )


def stomp_limits(
    config: Config,
    acceptor: Acceptor,
    unfinished: Budget | None = None,
    *,
    ttl_floor_ms: int = 0,
) -> StompLimits:
    """Return an acceptor's settings for STOMP; no client's silence ends in less than the floor."""
    anycast, multicast = acceptor.prefixes(ANYCAST_PREFIX, MULTICAST_PREFIX)
    ttl = acceptor.connection_ttl
    return StompLimits(
        body_bytes_max=acceptor.max_message_size,
        unfinished=unfinished or budget_of(config, acceptor),
        unconfirmed_bytes_max=acceptor.max_unread_size,
        frame_seconds=acceptor.unfinished_timeout / 1000,
        frame_bytes_per_second=acceptor.unfinished_min_rate,
        stuck_seconds=_stuck_seconds(acceptor, STOMP_STUCK_MS),
        ttl_ms=FOR_EVER_MS if ttl < 0 else max(ttl, ttl_floor_ms),
        ttl_min_ms=max(acceptor.connection_ttl_min, ttl_floor_ms),
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


def _stuck_seconds(acceptor: Acceptor, unwritten_ms: int) -> float:
    """Return the time of consumers that settle nothing; 0 never."""
    written = acceptor.consumer_stuck_timeout
    return max(0, unwritten_ms if written is None else written) / 1000
