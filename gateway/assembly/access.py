"""The gate and the certificates of the listeners, read from files before any of them opens.

All faults of a kind are told together, with the key of the configuration that they are about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import structlog

from gateway.config.access import LdapConfig
from gateway.config.errors import ConfigError, Problem
from gateway.config.exposure import exposure_problems
from gateway.config.listeners import alpn_of, tls_listeners
from gateway.config.lockout import lockout_problem, other_realms
from gateway.config.tree import MANAGEMENT, Config
from gateway.core.core import Reactor
from gateway.directory.realm import DirectoryRealm
from gateway.directory.settings import DirectorySettings
from gateway.listening.certificates import Certificates
from gateway.listening.contexts import CertificateError
from gateway.model.audit import Auditor
from gateway.model.principal import Principal
from gateway.reload.applying import use_issuers
from gateway.security.around import ReactorSurroundings, load_users
from gateway.security.certificates import CertificateUsers
from gateway.security.gate import PasswordGate, PeerGate
from gateway.security.users import UsersError
from gateway.time.ends import Ends
from gateway.tokens.issuing import Issuing

#: A user who asks over HTTP from one address is on record once in so long.
TOLD_AGAIN_MS: Final = 3_600_000
TOLD_MAX: Final = 4096

_log = structlog.get_logger()


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


class HttpLogins:
    """The gate as HTTP meets it, whose every request logs in: one line an hour for each who does.

    `for_peer` gives each request its `Authenticator`.
    """

    def __init__(self, gate: PasswordGate, auditor: Auditor, now_ms: Callable[[], int]) -> None:
        self._gate = gate
        self._auditor = auditor
        self._now_ms = now_ms
        self._told: dict[tuple[str | None, str], int] = {}

    def for_peer(self, address: str) -> PeerGate:
        """Return the gate as one peer meets it."""
        found = self._gate.for_peer(address, listener=MANAGEMENT, protocol="HTTP")
        found.accepted = lambda principal: self._accepted(principal, address)
        return found

    def _accepted(self, principal: Principal, address: str) -> None:
        who, now = (principal.user, address), self._now_ms()
        if not principal.proved or abs(now - self._told.get(who, 0)) < TOLD_AGAIN_MS:
            return
        if len(self._told) >= TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._told[who] = now
        self._auditor.note(
            "login.accepted",
            user=principal.user,
            remote=address,
            listener=MANAGEMENT,
            protocol="HTTP",
            by=principal.by.value,
        )


def make_gate(
    config: Config,
    around: ReactorSurroundings,
    key: bytes,
    now_ms: Callable[[], int] | None = None,
) -> PasswordGate:
    """Read the users and judge who could reach what; `key` is chance of this process.

    `now_ms` is the date; without it no certificate of a client is anybody's.

    Raises ConfigError, also for an exposure that the configuration does not allow.
    """
    path = config.users_file
    try:
        users = load_users(path, required=config.users_file_required)
    except UsersError as error:
        raise ConfigError([Problem(where=path, path="", text=str(error))]) from None
    problems = exposure_problems(config, has_users=bool(users) or other_realms(config))
    if problems:
        raise ConfigError(problems)
    locked_out = lockout_problem(config, [user.roles for user in users.values()])
    if locked_out is not None:
        _log.warning("roles.no_administrator", roles=config.api_roles.roles().administrators())
    gate = PasswordGate(users, around, key)
    if now_ms is not None:
        rules = config.certificate_users
        gate.certificates = CertificateUsers(rules, now_ms=now_ms, refused=around.nobodys)
    return gate


def make_directory(
    reactor: Reactor, config: Config, gate: PasswordGate, key: bytes
) -> DirectoryRealm | None:
    """Return what asks the directory of the configuration, and have the gate ask it last.

    None without one. Raises ConfigError: a file that cannot be read, or no library.
    """
    ldap = config.ldap
    if not ldap.url:
        return None
    try:
        # Not needed by a gateway without a directory.
        from gateway.directory.asking import Directory  # noqa: PLC0415
    except ImportError:
        text = "needs the library ldap3: pip install 'sluicegate[ldap]'"
        raise ConfigError([_ldap_problem(config, "url", text)]) from None
    try:
        directory = Directory(directory_settings(ldap))
    except (OSError, ValueError) as error:
        missing = ldap.password_file and error.args and "password" in str(error.args[0])
        at_fault = getattr(error, "filename", None) == ldap.password_file or missing
        key_of = "password-file" if at_fault else "ca-file"
        text = f"cannot be used: {error}"
        raise ConfigError([_ldap_problem(config, key_of, text)]) from None
    realm = DirectoryRealm(
        reactor,
        directory,
        lambda user: user in gate.users,
        key,
        threads=ldap.threads,
        cache_seconds=ldap.cache_time / 1000,
        cache_size=ldap.cache_size,
    )
    gate.realms = (*gate.realms, realm)
    gate.all_in_file = False
    return realm


def _ldap_problem(config: Config, key: str, text: str) -> Problem:
    path = f"ldap.{key}"
    return Problem(where=config.origins.get(path, ""), path=path, text=text)


def directory_settings(ldap: LdapConfig) -> DirectorySettings:
    """Return what the configuration says of asking a directory."""
    host, port = ldap.address()
    return DirectorySettings(
        host=host,
        port=port,
        tls=ldap.secure_from_start,
        start_tls=ldap.start_tls,
        ca_file=ldap.ca_file,
        bind_dn=ldap.bind_dn,
        password_file=ldap.password_file,
        user_dn_template=ldap.user_dn_template,
        search_base=ldap.search_base,
        search_filter=ldap.search_filter,
        user_attribute=ldap.user_attribute,
        group_base=ldap.group_base,
        group_filter=ldap.group_filter,
        group_attribute=ldap.group_attribute,
        roles=ldap.roles,
        connect_ms=ldap.connect_timeout,
        answer_ms=ldap.answer_timeout,
    )


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
) -> dict[str, Certificates]:
    """Return those of each listener that speaks TLS, by its path in the configuration.

    Raises ConfigError with the faults of all certificates.
    """
    found: dict[str, Certificates] = {}
    problems = []
    for path, endpoint in tls_listeners(config):
        if endpoint.source is None:
            continue
        try:
            found[path] = Certificates(
                endpoint.source,
                path,
                seconds=seconds,
                now_ms=now_ms,
                alpn=alpn_of(config, path),
                host=endpoint.host,
            )
        except CertificateError as error:
            key = endpoint.source.key_of(path, error.part)
            where = config.origins.get(key, "")
            problems.append(Problem(where=where, path=key, text=str(error)))
    if problems:
        raise ConfigError(problems)
    return found
