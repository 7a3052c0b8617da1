"""Whether a configuration would leave the gateway open to strangers. Pure.

Two rules: a listener that others can reach needs users; and passwords cross a network only
encrypted. `allow-insecure = true` switches both off. What loopback and encryption mean for an
endpoint is `gateway.config.endpoints`.
"""

from __future__ import annotations

from gateway.config.endpoints import Endpoint
from gateway.config.errors import Problem
from gateway.config.tree import Config

WAYS_OUT = (
    "Two ways out: `sluicegate user add NAME` with a TLS endpoint (tls:DIRECTORY:port=N),"
    " or allow-insecure = true if the network is trusted."
)


def exposure_problems(config: Config, *, has_users: bool) -> list[Problem]:
    """Return one problem for each listener that must not be opened like this."""
    if config.allow_insecure:
        return []
    listeners: list[tuple[str, Endpoint, bool]] = [
        (f"acceptors.{acceptor.name}.endpoint", acceptor.endpoint, acceptor.allow_anonymous)
        for acceptor in config.acceptors
    ]
    if config.management.enabled:
        listeners.append(("management.endpoint", config.management.endpoint, False))
    problems = []
    for path, endpoint, anonymous in listeners:
        why = _why_not(endpoint, has_users=has_users, anonymous=anonymous)
        if why is not None:
            text = f"{endpoint.shown} {why} {WAYS_OUT}"
            problems.append(Problem(where=config.origins.get(path, ""), path=path, text=text))
    return problems


def _why_not(endpoint: Endpoint, *, has_users: bool, anonymous: bool) -> str | None:
    if endpoint.loopback:
        return None
    if not has_users:
        return "is reachable from other machines, and no user is configured: anyone could come in."
    if not endpoint.tls:
        return "is reachable from other machines without TLS: passwords would travel as plain text."
    if anonymous:
        return "is reachable from other machines and allow-anonymous lets anyone in."
    return None
