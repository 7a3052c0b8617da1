"""The issuers of the configuration and their keys, at a start and at each reload; and the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from gateway.config.errors import ConfigError, Problem
from gateway.config.tokens import IssuerConfig
from gateway.logs.summing import Summed
from gateway.security.gate import Why
from gateway.tokens.fetching import make_keys
from gateway.tokens.reading import TokenError
from gateway.tokens.realm import TokenRealm
from gateway.tokens.rolling import Keys

Issuers = Mapping[str, tuple[IssuerConfig, Keys]]

_log = structlog.get_logger()


class ReactorSurroundings:
    """Implements the realm's Surroundings: the reactor's turns, a date, the log."""

    def __init__(self, reactor: Any, now_ms: Callable[[], int]) -> None:  # noqa: ANN401 - several
        self._reactor = reactor
        self._now_ms = now_ms
        # Their sum is the gate's to tell.
        self._told = Summed(reactor, lambda count, seconds: None)

    def now_ms(self) -> int:
        """See the port."""
        return self._now_ms()

    def later(self, action: Callable[[], None]) -> None:
        """See the port."""
        self._reactor.callLater(0, action)

    def refused(self, issuer: str, why: Why, text: str) -> None:
        """See the port."""
        if self._told.whole():
            _log.warning("token.refused", issuer=issuer, reason=why.value, error=text)


class Issuing:
    """Those that are believed now.

    Attributes:
        realm: judges their tokens.
    """

    def __init__(self, reactor: Any, now_ms: Callable[[], int]) -> None:  # noqa: ANN401 - several
        self._reactor = reactor
        self._there: Issuers = {}
        self.realm = TokenRealm(ReactorSurroundings(reactor, now_ms))

    def read(self, issuers: Sequence[IssuerConfig], origins: Mapping[str, str]) -> Issuers:
        """Return issuers with their keys: those of before where nothing has changed.

        Files are read again. Blocks. Raises ConfigError with all that is wrong.
        """
        found: dict[str, tuple[IssuerConfig, Keys]] = {}
        problems = []
        for issuer in issuers:
            before = self._there.get(issuer.name)
            fetched = issuer.jwks_file is None and issuer.secret_file is None
            if before is not None and before[0] == issuer and fetched:
                found[issuer.name] = before
                continue
            try:
                found[issuer.name] = issuer, make_keys(self._reactor, issuer)
            except TokenError as error:
                key, _, text = str(error).partition(": ")
                path = f"tokens.{issuer.name}.{key}"
                problems.append(Problem(where=origins.get(path, ""), path=path, text=text))
        if problems:
            raise ConfigError(problems)
        return found

    def use(self, issuers: Issuers) -> None:
        """Believe these, and no others, from now on."""
        self._there = issuers
        self.realm.use(issuers)
