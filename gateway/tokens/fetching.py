"""Key sets over the network, and from files: bounded in size and time, https, no redirect followed.

    discovery   GET the description ──its issuer is the one meant──> GET its jwks_uri
    jwks-url    GET the key set

Plain http is taken of this machine only, also where a description says another place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import structlog
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError
from twisted.internet.error import ConnectError
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.ssl import Certificate as TwistedCertificate
from twisted.internet.ssl import trustRootFromCertificates
from twisted.python.failure import Failure
from twisted.web.client import Agent, BrowserLikePolicyForHTTPS, ResponseDone
from twisted.web.http_headers import Headers

from gateway.config.tokens import IssuerConfig, url_problem
from gateway.tokens.keys import SET_BYTES_MAX, SigningKey, read_keys, secret_key
from gateway.tokens.reading import TokenError, read_object
from gateway.tokens.rolling import FixedKeys, Keys, RollingKeys

CONNECT_SECONDS: Final = 5.0
#: For one document, from the connection to its last byte.
FETCH_SECONDS: Final = 10.0
DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"

_log = structlog.get_logger()


def make_keys(reactor: Any, issuer: IssuerConfig) -> Keys:  # noqa: ANN401 - several zope interfaces
    """Return where the keys of an issuer are asked for. Reads its files, so that it blocks.

    Raises TokenError for a file that cannot be used; the text begins with its key.
    """
    if issuer.secret_file is not None:
        data = _read("secret-file", issuer.secret_file)
        try:
            return FixedKeys((secret_key(data, issuer.algorithms),))
        except TokenError as error:
            raise TokenError(f"secret-file: {issuer.secret_file}: {error}") from None
    if issuer.jwks_file is not None:
        data = _read("jwks-file", issuer.jwks_file)
        try:
            return FixedKeys(read_keys(data))
        except TokenError as error:
            raise TokenError(f"jwks-file: {issuer.jwks_file}: {error}") from None
    agent = Agent(reactor, _policy(issuer), connectTimeout=CONNECT_SECONDS)

    def failed(why: str, kept: int) -> None:
        _log.warning("keys.not_fetched", issuer=issuer.name, error=why, keys_kept=kept)

    return RollingKeys(Fetching(reactor, agent, issuer), reactor.seconds, failed)


def _read(key: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(SET_BYTES_MAX + 1)
    except OSError as error:
        raise TokenError(f"{key}: {path} cannot be read: {error.strerror}") from None
    return data


def _policy(issuer: IssuerConfig) -> BrowserLikePolicyForHTTPS:
    if issuer.ca_file is None:
        return BrowserLikePolicyForHTTPS()
    parts = _read("ca-file", issuer.ca_file).split(_BEGIN)[1:]
    try:
        roots = [TwistedCertificate.loadPEM(_BEGIN + part) for part in parts]
    except Exception as error:  # noqa: BLE001 - of OpenSSL, whose errors have no class of their own
        raise TokenError(f"ca-file: {issuer.ca_file} is no PEM ({type(error).__name__})") from None
    if not roots:
        raise TokenError(f"ca-file: {issuer.ca_file} holds no certificate")
    return BrowserLikePolicyForHTTPS(trustRootFromCertificates(roots))


class Fetching:
    """Fetches the keys of one issuer; see `gateway.tokens.rolling.Fetch`."""

    def __init__(self, reactor: Any, agent: Agent, issuer: IssuerConfig) -> None:  # noqa: ANN401
        self._reactor = reactor
        self._agent = agent
        self._issuer = issuer

    def __call__(self, done: Callable[[Sequence[SigningKey] | str], None]) -> None:
        """Fetch; `done` is told the keys, or why there are none."""
        fetched = Deferred.fromCoroutine(self._fetch())
        fetched.addErrback(_why)
        fetched.addCallback(done)
        fetched.addErrback(_broke)

    async def _fetch(self) -> Sequence[SigningKey]:
        issuer = self._issuer
        url = issuer.jwks_url
        if url is None:
            url = await self._discover(issuer)
        keys = read_keys(await self._get(url))
        _log.info("keys.fetched", issuer=issuer.name, keys=len(keys))
        return keys

    async def _discover(self, issuer: IssuerConfig) -> str:
        where = issuer.discovery or issuer.issuer.rstrip("/") + DISCOVERY_PATH
        said = read_object(await self._get(where))
        if said.get("issuer") != issuer.issuer:
            raise TokenError("the description is of another issuer")
        url = said.get("jwks_uri")
        problem = "is missing" if not isinstance(url, str) else url_problem(url)
        if problem is not None:
            raise TokenError(f"the jwks_uri of the description {problem}")
        return cast("str", url)

    async def _get(self, url: str) -> bytes:
        headers = Headers({"Accept": ["application/json"], "User-Agent": ["Sluicegate"]})
        asked = self._agent.request(b"GET", url.encode("ascii", "replace"), headers)
        asked.addTimeout(FETCH_SECONDS, self._reactor)
        response: Any = await asked
        body = _Body(response.length)
        if response.code != 200:
            body.refuse(f"{url} answered {response.code}")
        response.deliverBody(body)
        return await body.whole.addTimeout(FETCH_SECONDS, self._reactor)


class _Body(Protocol):
    """A body of bounded size; what is larger is cut."""

    def __init__(self, length: object) -> None:
        self._data = bytearray()
        self._refused = ""
        self.whole: Deferred[bytes] = Deferred(self._cancelled)
        if isinstance(length, int) and length > SET_BYTES_MAX:
            self._refused = f"the answer has {length} bytes; the limit is {SET_BYTES_MAX}"

    def refuse(self, why: str) -> None:
        """Take nothing of it."""
        self._refused = why

    def connectionMade(self) -> None:
        if self._refused:
            self._cut()

    def dataReceived(self, data: bytes) -> None:
        if self._refused:
            return
        self._data += data
        if len(self._data) > SET_BYTES_MAX:
            self._refused = f"the answer has more than {SET_BYTES_MAX} bytes"
            self._cut()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.whole.called:
            return
        if self._refused:
            self.whole.errback(TokenError(self._refused))
        elif reason.check(ResponseDone) is None:
            self.whole.errback(TokenError("the answer broke off"))
        else:
            self.whole.callback(bytes(self._data))

    def _cut(self) -> None:
        transport: Any = self.transport
        # A response gives a transport that can only be paused, over one that can be cut.
        cut = getattr(transport, "abortConnection", None) or transport.loseConnection
        cut()

    def _cancelled(self, _whole: Deferred[bytes]) -> None:
        self._refused = "the answer took too long"
        if self.transport is not None:
            self._cut()


def _why(failure: Failure) -> str:
    """Say why there are no keys; a fault of ours is one as well, for nobody may come in by it."""
    if failure.check(DeferredTimeoutError, CancelledError) is not None:
        return f"there was no answer within {FETCH_SECONDS:g} s"
    if failure.check(TokenError, ConnectError) is not None:
        return str(failure.value)
    reasons = getattr(failure.value, "reasons", None)
    if reasons:  # a connection that ended, which Twisted tells as a list of failures
        return "; ".join(str(one.value) for one in reasons)
    return f"{type(failure.value).__name__}: {failure.getErrorMessage()}"


def _broke(failure: Failure) -> None:
    """Whoever waited for the keys has failed."""
    _log.error("gateway.failed", error=failure.getErrorMessage(), traceback=failure.getTraceback())
