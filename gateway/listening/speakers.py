"""The protocols of an acceptor: from its settings to the sessions of its connections.

One `Speaker` for each protocol of an acceptor builds the sessions of those connections whose first
bytes are that protocol's. Settings of the configuration become the limits of the protocols here,
and nowhere else: times in ms become seconds, and keys that are not written get defaults.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway import __version__
from gateway.config.tree import (
    ANYCAST_PREFIX,
    MULTICAST_PREFIX,
    Acceptor,
    Config,
    Sasl,
    StompDiskFull,
)
from gateway.config.tree import Wire as Protocol
from gateway.model.address import RoutingType
from gateway.model.budget import Budget
from gateway.model.objects import Objects
from gateway.model.ports import Broker
from gateway.security.gate import PasswordGate, PeerGate
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.containers import Containers
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.sasl import BUILT_IN
from protocols.amqp.scram import scram_exchanges
from protocols.convert import amqp_to_stomp
from protocols.stomp.limits import StompLimits
from protocols.stomp.session import StompSession
from protocols.transport.sniff import Guess
from protocols.transport.speaking import PeerFacts, Speaker

#: How long a STOMP consumer may hold deliveries and acknowledge none, where nothing is written.
STOMP_STUCK_MS: Final = 1_800_000
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


def _stuck_seconds(acceptor: Acceptor, unwritten_ms: int) -> float:
    """Return the time of consumers that settle nothing; 0 never."""
    written = acceptor.consumer_stuck_timeout
    return max(0, unwritten_ms if written is None else written) / 1000
