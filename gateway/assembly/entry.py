"""Who may come in, what they may do, and the record of it: made before anything opens."""

from __future__ import annotations

from collections.abc import Callable

from gateway.assembly.access import HttpLogins, Logins, make_directory, make_gate, make_issuing
from gateway.assembly.ambient import make_date, make_key, wall_ms
from gateway.assembly.auditing import Auditing
from gateway.config.tree import Config
from gateway.core.core import Reactor
from gateway.management.allowing import Allowing
from gateway.model.principal import Principal
from gateway.security.around import ReactorSurroundings
from gateway.security.permits import Permits
from gateway.security.refusals import PermissionLog, use_permissions
from gateway.time.clock import BrokerClock


class Entry:
    """The gate with its realms, the judges, and the audit that hears of both.

    Attributes:
        audit: keeps what `auditor` is told.
        gate: judges logins.
        permits: judges what principals may do.
        allowing: judges calls of the API.
        directory: users of an LDAP directory; None: there is none.
        tokens: issuers and their keys.
        ends: ends what tokens and certificates let in, when their time has come.
        logins: the gate's figures.
        http: the gate as HTTP meets it.
    """

    def __init__(
        self, reactor: Reactor, config: Config, clock: BrokerClock, failed: Callable[[str], None]
    ) -> None:
        """Read users, keys and rules; `failed` is told when the audit must end the gateway.

        Raises ConfigError.
        """
        self._around = ReactorSurroundings(reactor)
        self.audit = Auditing(reactor, config, wall_ms, failed)
        self.auditor = self._around.auditor = self.audit.auditor
        self.permits = Permits(config.security_settings, PermissionLog(reactor, self.auditor).tell)
        date = make_date(clock)
        self.gate = make_gate(config, self._around, make_key(), date)
        if self.gate.certificates is not None:
            self.gate.certificates.auditor = self.auditor
        self.directory = make_directory(reactor, config, self.gate, make_key())
        self.tokens, self.ends = make_issuing(reactor, config, self.gate, date)
        self.tokens.realm.auditor = self.auditor
        self.allowing = Allowing(lambda: self.gate.judge is not None)
        self.allowing.auditor = self.auditor
        self.logins = Logins(self.gate, self._around)
        self.http = HttpLogins(self.gate, self.auditor, wall_ms)

    def start(self, config: Config) -> None:
        """Have permissions judged, and start the threads."""
        use_permissions(self.gate, self.permits, config.security_settings)
        self._around.start()
        if self.directory is not None:
            self.directory.start()

    def stop(self) -> None:
        """End the threads."""
        self._around.stop()
        if self.directory is not None:
            self.directory.stop()

    def follow(self, config: Config) -> None:
        """Bring what a configuration says of roles and the audit into force."""
        self.allowing.roles = config.api_roles.roles()
        self.audit.follow(config, users=not self.gate.open)

    def certified(self, certificate: bytes | None, peer: str) -> Principal | None:
        """Return for whom a peer of HTTP acts by its certificate; None: for nobody."""
        owner = self.gate.certified(certificate, peer)
        return None if owner is None else self.gate.admit(owner, peer)
