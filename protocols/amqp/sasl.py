"""The server's side of SASL on an AMQP connection, without bytes of frames [AMQP 5.3].

    state            input      action
    AWAIT_INIT       INIT       start the named mechanism
    AWAIT_RESPONSE   RESPONSE   hand it to the mechanism
    CHECKING         YES / NO   the authenticator's answer, on a later turn: outcome ok / auth
    PASSED, FAILED   -          nothing is left to say

Every other pair, and every frame that only a server may send, is a violation: outcome sys-perm,
FAILED. A mechanism that was not offered is a failed login: outcome auth, FAILED [AMQP 5.3.2]. The
mechanism decides what follows: a challenge (AWAIT_RESPONSE), a password to check (CHECKING), or the
end.

It knows no socket and no AMQP frame but SASL's. A password passes through as an argument; no
object here keeps it and no repr shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeAlias, assert_never

from gateway.model.amqp_types import DecodeError
from gateway.model.ports import Authenticator
from gateway.model.principal import Principal
from gateway.model.token import TOKEN_BYTES_MAX, is_token
from protocols.amqp.performatives import (
    SASL_AUTH,
    SASL_OK,
    SASL_SYS_PERM,
    Composite,
    FieldError,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    decode_performative,
    encode_performative,
)

#: Before login a peer gets no more than this in one frame; where tokens are taken it is more.
FRAME_BYTES_MAX: Final = 4096
TOKEN_FRAME_BYTES_MAX: Final = TOKEN_BYTES_MAX + 1024
_WRONG: Final = "wrong user name or password"
#: Rounds of challenge and response; SCRAM takes two, PLAIN without an initial response one.
_ROUNDS_MAX: Final = 4


class State(Enum):
    """Where the negotiation stands."""

    AWAIT_INIT = "await-init"
    AWAIT_RESPONSE = "await-response"
    CHECKING = "checking"
    PASSED = "passed"
    FAILED = "failed"


class Input(Enum):
    """What can happen to it."""

    INIT = "init"
    RESPONSE = "response"
    YES = "yes"
    NO = "no"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Challenge:
    """The mechanism wants a response to these bytes."""

    data: bytes


class Check:
    """The mechanism has a name and a password, or a token, for the authenticator.

    `told` is a challenge that tells a refusal, which the peer answers before its outcome comes.
    """

    __slots__ = ("password", "told", "user")

    def __init__(self, user: str, password: str, *, told: bytes | None = None) -> None:
        self.user = user
        self.password = password
        self.told = told


@dataclass(frozen=True, slots=True)
class Passed:
    """The peer acts for `principal`, None: for nobody known; `data` goes out with the outcome."""

    principal: Principal | None
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The peer is not let in; `reason` is for the log, never for the peer."""

    reason: str
    data: bytes | None = None


Step: TypeAlias = Challenge | Check | Passed | Refused


class Exchange(Protocol):
    """One mechanism's conversation."""

    def step(self, response: bytes | None) -> Step:
        """Take the initial response (None: there was none) or the next one; never raises."""


class Anonymous:
    """ANONYMOUS: whoever it is [RFC 4505]. Offer it only where that is meant."""

    __slots__ = ()

    def step(self, response: bytes | None) -> Step:
        return Passed(None)


class _Refusing:
    """The peer answers a challenge that has told it of a refusal: whatever it says, it is out."""

    __slots__ = ()

    def step(self, response: bytes | None) -> Step:
        return Refused(_WRONG)


class Plain:
    """PLAIN: authzid NUL authcid NUL password [RFC 4616]. Nobody acts for another one."""

    __slots__ = ()

    def step(self, response: bytes | None) -> Step:
        if response is None:
            return Challenge(b"")
        parts = response.split(b"\0")
        if len(parts) != 3:
            return Refused(f"PLAIN response with {len(parts) - 1} NULs, must have 2")
        try:
            user, password = parts[1].decode("utf-8"), parts[2].decode("utf-8")
        except UnicodeDecodeError:
            return Refused("PLAIN response is not UTF-8")
        if parts[0] and parts[0] != parts[1]:
            return Refused("PLAIN response whose user asks to act as another one")
        if not user and not is_token(password):  # a token has its user's name
            return Refused("PLAIN response without a user name")
        return Check(user, password)


class External:
    """EXTERNAL: TLS has told who it is [RFC 4422 A]. The authzid is taken and not used."""

    __slots__ = ("_identity",)

    def __init__(self, identity: Principal | None) -> None:
        self._identity = identity

    def step(self, response: bytes | None) -> Step:
        if self._identity is None:
            return Refused("EXTERNAL without a client certificate that names a user")
        return Passed(self._identity)


#: How the conversation of each mechanism begins.
Exchanges: TypeAlias = Mapping[str, Callable[[], Exchange]]
#: Mechanisms that need nothing but the authenticator.
BUILT_IN: Final[Exchanges] = {"PLAIN": Plain, "ANONYMOUS": Anonymous}


class SaslServer:
    """One negotiation.

    Attributes:
        state: see the module text.
        outcome: None while open, then whether the peer is let in. When False, send what is
            there to send and close.
        principal: for whom it acts, once `outcome` is True.
        mechanism: the chosen one, for the log.
        reason: why not, for the log; empty unless `outcome` is False.
    """

    __slots__ = (
        "_authenticator",
        "_exchange",
        "_exchanges",
        "_frame_max",
        "_out",
        "_rounds",
        "_told",
        "_wake",
        "mechanism",
        "principal",
        "reason",
        "state",
    )

    def __init__(
        self,
        authenticator: Authenticator,
        mechanisms: Sequence[str],
        wake: Callable[[], None],
        *,
        exchanges: Exchanges = BUILT_IN,
        frame_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Offer `mechanisms`, best first; `exchanges` says how each begins.

        `wake` is called when the authenticator's answer has put something into `frames_to_send`.
        """
        self._authenticator = authenticator
        self._exchanges = {name: exchanges[name] for name in mechanisms}
        self._wake = wake
        self._exchange: Exchange | None = None
        self._frame_max = frame_max
        self._told: bytes | None = None
        self._rounds = 0
        self.state = State.AWAIT_INIT
        self.principal: Principal | None = None
        self.mechanism = ""
        self.reason = ""
        offer = SaslMechanisms(sasl_server_mechanisms=tuple(mechanisms))
        self._out = [encode_performative(offer)]

    def __repr__(self) -> str:
        return f"SaslServer({self.state.value}, mechanism={self.mechanism!r}, {self.principal!r})"

    @property
    def wants_input(self) -> bool:
        """Whether another frame may be read now: not while a password is being checked."""
        return self.state is not State.CHECKING

    @property
    def outcome(self) -> bool | None:
        return {State.PASSED: True, State.FAILED: False}.get(self.state)

    def frames_to_send(self) -> list[bytes]:
        """Return the frame bodies to send now, each an encoded performative, and forget them."""
        out, self._out = self._out, []
        return out

    def receive_body(self, body: bytes) -> None:
        """Take the body of one SASL frame: refuses what is too long or cannot be decoded."""
        if len(body) > self._frame_max:
            self._violation(f"SASL frame of {len(body)} bytes, the limit is {self._frame_max}")
            return
        try:
            performative, end = decode_performative(body, 0, len(body))
        except (DecodeError, FieldError) as error:
            self._violation(f"SASL frame: {error}")
            return
        if end != len(body):
            self._violation(f"SASL frame with {len(body) - end} bytes of payload")
            return
        self.receive_frame(performative)

    def receive_frame(self, performative: Composite) -> None:
        """Take one decoded SASL frame; anything out of place ends the negotiation."""
        if isinstance(performative, SaslInit):
            self._advance(Input.INIT, performative)
        elif isinstance(performative, SaslResponse):
            self._advance(Input.RESPONSE, performative)
        else:
            self._advance(Input.FOREIGN, performative)

    def abandon(self) -> None:
        """The connection is gone: an answer still to come changes nothing."""
        if self.outcome is None:
            self.state = State.FAILED
            self.reason = "connection lost during SASL"

    def _advance(self, happened: Input, frame: Composite | None) -> None:
        action = _TABLE.get((self.state, happened))
        if action is not None:
            action(self, frame)
        elif self.outcome is None:
            name = frame.layout.name if frame is not None else happened.value
            self._violation(f"{name} in state {self.state.value}")

    def _begin(self, frame: Composite | None) -> None:
        assert isinstance(frame, SaslInit)
        make = self._exchanges.get(frame.mechanism)
        if make is None:
            self.reason = f"mechanism {frame.mechanism!r} was not offered"
            self._finish(State.FAILED, SASL_AUTH, None)
            return
        self.mechanism = str(frame.mechanism)
        self._exchange = make()
        self._take(self._exchange.step(frame.initial_response))

    def _continue(self, frame: Composite | None) -> None:
        assert isinstance(frame, SaslResponse)
        assert self._exchange is not None
        self._rounds += 1
        if self._rounds > _ROUNDS_MAX:
            self._violation(f"more than {_ROUNDS_MAX} rounds of {self.mechanism}")
            return
        self._take(self._exchange.step(frame.response))

    def _take(self, step: Step) -> None:
        match step:
            case Challenge():
                self.state = State.AWAIT_RESPONSE
                self._out.append(encode_performative(SaslChallenge(challenge=step.data)))
            case Check():
                self.state = State.CHECKING
                self._told = step.told
                self._authenticator.check(step.user, step.password, self._answered)
            case Passed():
                self._finish(State.PASSED, SASL_OK, step.data)
                self.principal = step.principal or self._authenticator.anybody(None)
            case Refused():
                self.reason = step.reason
                self._finish(State.FAILED, SASL_AUTH, step.data)
            case _:
                assert_never(step)

    def _answered(self, principal: Principal | None) -> None:
        if self.state is State.CHECKING:
            self.principal = principal
            self._advance(Input.NO if principal is None else Input.YES, None)
            self._wake()

    def _let_in(self, _frame: Composite | None) -> None:
        self._finish(State.PASSED, SASL_OK, None)

    def _turn_away(self, _frame: Composite | None) -> None:
        if self._told is not None:
            self._exchange = _Refusing()
            self._take(Challenge(self._told))
            return
        self.reason = _WRONG
        self._finish(State.FAILED, SASL_AUTH, None)

    def _violation(self, reason: str) -> None:
        if self.outcome is None:
            self.reason = reason
            self._finish(State.FAILED, SASL_SYS_PERM, None)

    def _finish(self, state: State, code: int, data: bytes | None) -> None:
        self.state = state
        self._exchange = None
        self._out.append(encode_performative(SaslOutcome(code=code, additional_data=data)))


_TABLE: Final[dict[tuple[State, Input], Callable[[SaslServer, Composite | None], None]]] = {
    (State.AWAIT_INIT, Input.INIT): SaslServer._begin,  # noqa: SLF001 - the class's own table
    (State.AWAIT_RESPONSE, Input.RESPONSE): SaslServer._continue,  # noqa: SLF001
    (State.CHECKING, Input.YES): SaslServer._let_in,  # noqa: SLF001
    (State.CHECKING, Input.NO): SaslServer._turn_away,  # noqa: SLF001
}
