"""Introduces AMQP to the shell: how a connection that begins with an AMQP header is spoken to."""

from __future__ import annotations

from gateway.model.ports import Authenticator, Broker
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.limits import AmqpLimits
from protocols.shell import PeerFacts, Session, Speaker
from protocols.sniff import Guess


def amqp_speaker(broker: Broker, authenticator: Authenticator, limits: AmqpLimits) -> Speaker:
    """Return what an acceptor needs to speak AMQP."""

    def build(peer: PeerFacts) -> Session:
        return AmqpConnection(broker, authenticator, limits, peer)

    return Speaker(guess=Guess.AMQP, build=build)
