"""The gate and the certificates of the listeners, read from files before any of them opens.

All faults of a kind are told together, with the key of the configuration that they are about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from gateway.config.errors import ConfigError, Problem
from gateway.config.exposure import exposure_problems
from gateway.config.lockout import lockout_problem, other_realms
from gateway.config.tree import Config, tls_listeners
from gateway.core.core import Reactor
from gateway.listening.certificates import CertificateError, Certificates
from gateway.listening.tls import Contexts
from gateway.reload.applying import use_issuers
from gateway.security.around import ReactorSurroundings, load_users
from gateway.security.gate import PasswordGate
from gateway.security.users import UsersError
from gateway.time.ends import Ends
from gateway.tokens.issuing import Issuing


class Logins:
    """Implements `views.LoginFigures`: the gate counts who is let in, its log who is not."""

    def __init__(self, gate: PasswordGate, around: ReactorSurroundings) -> None:
        self._gate = gate
        self._around = around

    @property
    def accepted(self) -> int:
        return self._gate.accepted

    @property
    def refusals(self) -> Mapping[str, int]:
        return self._around.refusals


def make_gate(config: Config, around: ReactorSurroundings, key: bytes) -> PasswordGate:
    """Read the users and judge who could reach what; `key` is chance of this process.

    Raises ConfigError, also for an exposure that the configuration does not allow.
    """
    path = config.users_file
    try:
        users = load_users(path, required=config.users_file_required)
    except UsersError as error:
        raise ConfigError([Problem(where=path, path="", text=str(error))]) from None
    problems = exposure_problems(config, has_users=bool(users) or other_realms(config))
    locked_out = lockout_problem(config, (user.roles for user in users.values()))
    if locked_out is not None:
        problems.append(locked_out)
    if problems:
        raise ConfigError(problems)
    return PasswordGate(users, around, key)


def make_issuing(
    reactor: Reactor, config: Config, gate: PasswordGate, now_ms: Callable[[], int]
) -> tuple[Issuing, Ends]:
    """Return what believes the issuers of the configuration, and what watches the ends of logins.

    The gate asks the first. Raises ConfigError with the faults of their files.
    """
    issuing = Issuing(reactor, now_ms)
    issuing.realm.judge = lambda: gate.judge
    use_issuers(gate, issuing, issuing.read(config.tokens, config.origins))
    later = partial(reactor.callLater, 0)
    return issuing, Ends(now_ms, reactor.seconds, later)


def read_certificates(
    config: Config, *, seconds: Callable[[], float], now_ms: Callable[[], int]
) -> dict[str, Contexts]:
    """Return the contexts of each listener that speaks TLS, by its path in the configuration.

    Raises ConfigError with the faults of all certificates.
    """
    found: dict[str, Contexts] = {}
    problems = []
    for path, endpoint in tls_listeners(config):
        if endpoint.source is None:
            continue
        try:
            made = Certificates(endpoint.source, path, seconds=seconds, now_ms=now_ms)
        except CertificateError as error:
            key = endpoint.source.key_of(path, error.part)
            where = config.origins.get(key, "")
            problems.append(Problem(where=where, path=key, text=str(error)))
        else:
            found[path] = made.context
    if problems:
        raise ConfigError(problems)
    return found
