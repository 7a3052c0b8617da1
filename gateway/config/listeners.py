"""The listeners of a configuration, as TLS sees them. Pure."""

from __future__ import annotations

from gateway.config.endpoints import Endpoint
from gateway.config.tree import MANAGEMENT, Config, Wire


def tls_listeners(config: Config) -> list[tuple[str, Endpoint]]:
    """Return the path in the configuration and the endpoint of each listener that has TLS."""
    listeners = [(f"acceptors.{one.name}", one.endpoint) for one in config.acceptors]
    if config.management.enabled:
        listeners.append((MANAGEMENT, config.management.endpoint))
    return [(path, endpoint) for path, endpoint in listeners if endpoint.source is not None]


def alpn_of(config: Config, path: str) -> tuple[str, ...]:
    """Return the names by which a listener's protocols are agreed on in TLS [RFC 7301].

    STOMP has none, and clients of it name none.
    """
    if path == MANAGEMENT:
        return ("http/1.1",)
    spoken = next(a.protocols for a in config.acceptors if path == f"acceptors.{a.name}")
    names = (("amqp", Wire.AMQP), ("http/1.1", Wire.WS))
    return tuple(name for name, wire in names if wire in spoken)
