"""The HTTP listener: twisted.web around the router.

`ApiResource` is one leaf: it takes every request, judges host, origin and user (`access`), asks the
router and sends what comes back, now or later. An `Exchange` is one request on its way:

    judged ──> authenticating ──> answering ──> sending ──> over
       └─refused──────┴───────────────┴──────────^   any ──client gone──> over

`over` is reached once, from anywhere; what comes after it (a late password check, a Deferred that
fires when its client has left) is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, cast

import structlog
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from gateway.config.tree import Config
from gateway.logs.summing import Summed
from gateway.management import access
from gateway.management.api_request import ApiRequest
from gateway.management.channel import Channel
from gateway.management.chunks import ChunkSender, Rounds, close_chunks
from gateway.management.door import Adopt, Door
from gateway.management.http import (
    ProblemError,
    Request,
    Response,
    error_response,
    problem_response,
    refusal_response,
)
from gateway.management.router import Router
from gateway.management.token_api import ROUTE as TOKEN_ROUTE
from gateway.model.ports import Authenticator
from gateway.model.principal import ANYBODY, Principal, end_of
from gateway.time.ends import Ends
from protocols.websocket.limits import MANAGEMENT_PATHS

#: The gate as the peer with this address meets it.
Authenticators = Callable[[str], Authenticator]
#: For whom a peer acts that has shown a certificate to TLS, and its address; None: for nobody.
Certified = Callable[[bytes | None, str], Principal | None]
#: The first two tell a supervisor, which has no password, whether the process lives; the others
#: what a WebSocket needs.
OPEN_PATHS: Final = frozenset({"/livez", "/readyz", *MANAGEMENT_PATHS})

#: What changes nothing is not gone on with when nobody waits for its answer any more.
LOOKING: Final = frozenset({"GET", "HEAD"})

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSettings:
    """What the listener is told.

    Attributes:
        allowed_hosts: names for the `Host` header beside loopback's and the connection's own
            address: lower case, without port, IPv6 in brackets.
        allow_insecure: take passwords over plain TCP from other machines.
        request_seconds: within which a request must arrive whole; also how long a connection idles.
        answer_seconds: within which a function must have its answer; what changes something goes
            on behind that, and ends when its client leaves before.
        connections_max: open at once; for one more the one that does nothing for longest goes.
        connections_key: which setting that is.
        token_cookie: what may hold the token that renews a connection; empty: none.
    """

    allowed_hosts: frozenset[str] = frozenset()
    allow_insecure: bool = False
    request_seconds: float = 30.0
    answer_seconds: float = 120.0
    connections_max: int = 256
    connections_key: str = "management.connections-allowed"
    token_cookie: str = ""


def wire_settings(config: Config) -> WireSettings:
    """Return what the configuration says of the listener."""
    management = config.management
    return WireSettings(
        allowed_hosts=management.allowed_hosts,
        allow_insecure=config.allow_insecure,
        connections_max=management.connections_allowed,
        token_cookie=management.ws_token_cookie,
        connections_key=f"management.connections-allowed, set "
        f"{config.origins.get('management.connections-allowed', 'by default')}",
    )


class ApiSite(Site):
    """The protocol factory of the listener."""

    protocol = Channel  # type: ignore[assignment]
    requestFactory = ApiRequest

    def __init__(
        self,
        clock: IReactorTime,
        router: Router,
        for_peer: Authenticators,
        settings: WireSettings,
        ends: Ends | None = None,
    ) -> None:
        resource = self._api = ApiResource(clock, router, for_peer, settings)
        resource.ends = ends
        super().__init__(  # type: ignore[no-untyped-call]
            resource,
            reactor=clock,
            timeout=settings.request_seconds,
            parsePOSTFormSubmission=False,
        )
        #: Those that are open, the one that was used last at the end.
        self.channels: dict[Channel, None] = {}
        #: What takes WebSockets; None: nothing does.
        self.adopt: Adopt | None = None
        #: What descriptors allow; None while nobody has said.
        self.share: int | None = None
        self.dismissed = 0
        self._refusals = Summed(clock, self._tell_refused)

    @property
    def certified(self) -> Certified:
        """What knows whose the certificates of clients are."""
        return self._api.certified

    @certified.setter
    def certified(self, certified: Certified) -> None:
        self._api.certified = certified

    def use(self, settings: WireSettings) -> None:
        """Judge requests by other settings from the next one on."""
        self._api.settings = settings

    def buildProtocol(self, addr: IAddress | None) -> Any:  # noqa: ANN401 - Twisted's proxy type
        settings = self._api.settings
        most, key = settings.connections_max, settings.connections_key
        if self.share is not None and self.share < most:
            most, key = self.share, "RLIMIT_NOFILE"
        if len(self.channels) >= most and not self._make_room():
            if self._refusals.whole():
                _log.warning("http.connection_refused", limit=most, key=key)
            return None
        http: Channel = super().buildProtocol(addr)  # type: ignore[no-untyped-call]
        return http if self.adopt is None else Door(http, self.adopt)

    def _make_room(self) -> bool:
        """Cut who does nothing, or is slowest to ask or to read; False: all are being answered."""
        for useless in (attrgetter("idle"), attrgetter("asking"), attrgetter("stalled")):
            for channel in self.channels:
                if useless(channel):
                    del self.channels[channel]
                    self.dismissed += 1
                    channel.abort()
                    return True
        return False

    def used(self, channel: Channel) -> None:
        """A request has come whole: this connection is the last to make room for another one."""
        if channel in self.channels:
            del self.channels[channel]
            self.channels[channel] = None

    def _tell_refused(self, count: int, seconds: float) -> None:
        _log.warning("http.connection_refused_more", count=count, seconds=seconds)

    def startFactory(self) -> None:
        """Twisted would start its access log here, with a timer a second; ours is structlog."""

    def stopFactory(self) -> None:
        """See `startFactory`."""

    def log(self, request: object) -> None:
        """Say nothing: the exchange tells its end itself."""

    def refused(self, channel: Channel, problem: ProblemError) -> None:
        """Tell that a peer was refused before its request was whole."""
        peer = str(getattr(channel.getPeer(), "host", "-"))  # type: ignore[no-untyped-call]
        _log.debug("http.request_refused", peer=peer, status=problem.status, code=problem.code)

    def close_connections(self, *, force: bool = False) -> None:
        """End the idle connections politely, with `force` all of them at once."""
        for channel in list(self.channels):
            if force:
                channel.abort()
            elif channel.idle:
                channel.loseConnection()


class ApiResource(Resource):
    """The one leaf that answers everything."""

    isLeaf = True

    def __init__(
        self,
        clock: IReactorTime,
        router: Router,
        for_peer: Authenticators,
        settings: WireSettings,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.clock = clock
        self.rounds = Rounds(clock)
        self.router = router
        self.for_peer = for_peer
        self.settings = settings
        #: What watches the ends of tokens that requests come with.
        self.ends: Ends | None = None
        self.certified: Certified = _nobody

    def render(self, request: ApiRequest) -> int:
        Exchange(self, request).start()
        return NOT_DONE_YET


class Exchange:
    """One request and its answer; see the module text."""

    __slots__ = (
        "_began",
        "_deadline",
        "_over",
        "_principal",
        "_resource",
        "_sender",
        "_waiting",
        "_wire",
    )

    def __init__(self, resource: ApiResource, wire: ApiRequest) -> None:
        self._resource = resource
        self._wire = wire
        self._began = float(resource.clock.seconds())
        self._over = False
        self._sender: ChunkSender | None = None
        self._principal = ANYBODY
        self._waiting: Deferred[Response] | None = None
        self._deadline: IDelayedCall | None = None

    def start(self) -> None:
        """Judge the request and set out for its answer."""
        self._wire.notifyFinish().addErrback(self._client_gone)
        try:
            request = self._wire.read()
            allowed = self._resource.settings.allowed_hosts | {self._wire.own_name}
            access.check_host(request.headers["host"], allowed)
            access.check_origin(request.method, request.headers["host"], request.headers)
            access.check_no_token(request.query)
            authenticator = self._resource.for_peer(self._wire.peer)
            if request.path in OPEN_PATHS:
                self._answer(request)
            elif authenticator.open:
                self._principal = authenticator.anybody(None)
                self._answer(request)
            else:
                self._authenticate(request, authenticator)
        except ProblemError as problem:
            self._send(problem_response(problem))

    def _authenticate(self, request: Request, authenticator: Authenticator) -> None:
        private = access.is_loopback(self._wire.peer) or self._wire.secure
        if not (private or self._resource.settings.allow_insecure):
            raise access.insecure()
        cookie = self._resource.settings.token_cookie if request.path == TOKEN_ROUTE else ""
        if "authorization" not in request.headers:
            # Who gives a login is judged by that, also where it is wrong.
            owner = self._resource.certified(self._wire.certificate, self._wire.peer)
            if owner is not None:
                self._principal = owner
                self._watch_end(owner)
                self._answer(request)
                return
        user, password = access.credentials(request.headers, cookie)

        def checked(principal: Principal | None) -> None:
            if self._over:
                return
            if principal is not None:
                self._principal = principal
                self._watch_end(principal)
                self._answer(request)
            else:
                refused = access.unauthorized() if user else access.not_let_in()
                self._send(problem_response(refused))

        authenticator.check(user, password, checked)

    def _watch_end(self, principal: Principal) -> None:
        """See to it that an answer that takes long ends with what its client came in by."""
        ends = self._resource.ends
        if ends is not None and principal.until_ms is not None:
            ends.watch(principal, self._login_ended)

    def _login_ended(self) -> None:
        if self._over:
            return
        if self._sender is None:
            waiting = self._waiting
            self._send(refusal_response(end_of(self._principal)))
            if waiting is not None:
                waiting.cancel()  # behind the answer: it is not its failure that is told
            return
        self._over = True
        self._sender.stopProducing()
        _log.info("login.ended", user=self._principal.user, peer=self._wire.peer)
        self._wire.connection.abort()

    def _answer(self, request: Request) -> None:
        whole = Request(
            method=request.method,
            path=request.path,
            query=request.query,
            headers=request.headers,
            body=request.body,
            principal=self._principal,
            peer=self._wire.peer,
        )
        try:
            answer = self._resource.router.dispatch(whole)
        except Exception:  # noqa: BLE001 - a fault of ours costs one request, not the listener
            self._fault(Failure())
            return
        if isinstance(answer, Response):
            self._send(answer)
            return
        self._waiting = answer
        seconds, clock = self._resource.settings.answer_seconds, self._resource.clock
        if request.method in LOOKING:
            answer.addTimeout(seconds, clock)
        else:
            self._deadline = clock.callLater(seconds, self._answer_late)
        answer.addCallbacks(self._send, self._failed)
        answer.addErrback(self._fault)

    def _failed(self, failure: Failure) -> None:
        """Turn the failure of a function that took its time into an answer."""
        if self._over and failure.check(CancelledError):
            return
        if failure.check(DeferredTimeoutError):
            self._answer_late()
            return
        response = error_response(cast("Exception", failure.value))
        if response is None:
            self._fault(failure)
        else:
            self._send(response)

    def _answer_late(self) -> None:
        """Keep the client waiting no longer; what it has asked to be done goes on."""
        self._waiting = None
        seconds = self._resource.settings.answer_seconds
        message = f"There was no answer within {seconds:g} s; it may still take effect."
        self._send(problem_response(ProblemError(503, "timed-out", message)))

    def _fault(self, failure: Failure) -> None:
        """Answer a fault of ours: the cause goes to the log, not to the client."""
        _log.error(
            "http.request_failed",
            method=self._wire.verb,
            path=self._wire.shown_path,
            error=failure.getErrorMessage(),
            traceback=failure.getTraceback(),
        )
        message = "The gateway failed to answer; its log has the cause."
        self._send(problem_response(ProblemError(500, "internal-error", message)))

    # ---- out

    def _send(self, response: Response) -> None:
        self._waiting = None
        self._end_deadline()
        if self._over:
            close_chunks(response.body)
            return
        if isinstance(response.body, bytes):
            self._send_head(response, len(response.body))
            self._wire.say(response.body)
            self._done(None)
        else:
            self._send_chunks(response, response.body)

    def _send_head(self, response: Response, length: int | None) -> None:
        headers = dict(response.headers)
        if response.status != 204:
            headers["Content-Type"] = response.content_type
            if length is not None:
                headers["Content-Length"] = str(length)
        self._wire.begin(response.status, headers)

    def _send_chunks(self, response: Response, chunks: Iterator[bytes]) -> None:
        """Send as the client reads. The first piece is made before the status is: it may fail."""
        head_only = self._wire.method == b"HEAD"
        try:
            first = b"" if head_only else next(chunks, b"")
        except Exception as error:  # noqa: BLE001 - a refusal or a fault, told apart below
            refusal = error_response(error)
            if refusal is None:
                self._fault(Failure())
            else:
                self._send(refusal)
            return
        self._send_head(response, response.length)
        if head_only:
            close_chunks(chunks)
            self._wire.say(b"")
            self._done(None)
            return
        if response.cuttable is not None:
            response.cuttable(self._wire.connection.abort)
        self._sender = ChunkSender(self._resource.rounds, self._wire, chunks, self._done)
        self._sender.start(first)

    def _done(self, fault: Exception | None) -> None:
        self._over = True
        self._forget_end()
        wire = self._wire
        _log.debug(
            "http.request_answered",
            method=wire.verb,
            path=wire.shown_path,
            status=wire.code,
            peer=wire.peer,
            user=self._principal.user,
            seconds=round(float(self._resource.clock.seconds()) - self._began, 6),
        )
        if fault is None:
            wire.end()
            return
        _log.error("http.answer_cut", path=wire.shown_path, error=repr(fault))
        # Ending the chunks properly would make a short answer look complete.
        wire.connection.abort()

    def _forget_end(self) -> None:
        if self._resource.ends is not None and self._principal.until_ms is not None:
            self._resource.ends.forget(self._principal)

    def _end_deadline(self) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = None

    def _client_gone(self, failure: Failure) -> None:
        if self._over:
            return
        self._over = True
        self._forget_end()
        self._end_deadline()
        if self._sender is not None:
            self._sender.stopProducing()
        if self._waiting is not None:
            self._waiting.cancel()
        _log.debug("http.client_lost", path=self._wire.shown_path)


def _nobody(certificate: bytes | None, peer: str) -> None:
    """Stand for whoever knows whose certificates are."""
