"""Builds STOMP sessions for the shared Twisted shell; all that is particular to STOMP on a wire."""

from __future__ import annotations

from collections.abc import Callable

from gateway.model.ports import Authenticator, Broker
from protocols.shell import PeerFacts, Speaker
from protocols.sniff import Guess
from protocols.stomp.limits import StompLimits
from protocols.stomp.message_frames import Convert
from protocols.stomp.session import StompSession


def stomp_sessions(
    broker: Broker, authenticator: Authenticator, limits: StompLimits, convert: Convert
) -> Callable[[PeerFacts], StompSession]:
    """Return what makes a session for each peer; `convert` is `protocols.convert.amqp_to_stomp`."""

    def build(peer: PeerFacts) -> StompSession:
        return StompSession(broker, authenticator, limits, peer.name, convert)

    return build


def stomp_speaker(
    broker: Broker, authenticator: Authenticator, limits: StompLimits, convert: Convert
) -> Speaker:
    """Return STOMP for an acceptor's list of protocols."""
    return Speaker(guess=Guess.STOMP, build=stomp_sessions(broker, authenticator, limits, convert))
