"""Whether a configuration would leave the gateway open to strangers. Pure.

Two rules: a listener that others can reach needs users; and passwords cross a network only
encrypted. `allow-insecure = true` switches both off. What loopback and encryption mean for an
endpoint is `gateway.config.endpoints`.
"""

from __future__ import annotations

from gateway.config.endpoints import Endpoint
from gateway.config.errors import Problem
from gateway.config.tree import Config

_TLS = "a TLS endpoint (tls:DIRECTORY:port=N)"
_TRUSTED = "or allow-insecure = true if the network is trusted."


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
            text = f"{endpoint.shown} is reachable from other machines{why} {_TRUSTED}"
            problems.append(Problem(where=config.origins.get(path, ""), path=path, text=text))
    return problems


def _why_not(endpoint: Endpoint, *, has_users: bool, anonymous: bool) -> str | None:
    """Return what is wrong with an endpoint and the first of two ways out; None: nothing."""
    if endpoint.loopback:
        return None
    if not has_users:
        add = "`sluicegate user add NAME`" + ("" if endpoint.tls else f" with {_TLS}")
        return f", and no user is configured: anyone could come in. Two ways out: {add},"
    if not endpoint.tls:
        return f" without TLS: passwords would travel as plain text. Two ways out: {_TLS},"
    if anonymous:
        return " and allow-anonymous lets anyone in. Two ways out: allow-anonymous = false,"
    return None
