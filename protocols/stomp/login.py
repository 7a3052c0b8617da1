"""The login of a STOMP connection [STOMP 1.2 Connecting]: a machine ahead of the open one, sans-IO.

    stage       input                                 next
    CONNECT     CONNECT, nobody has to log in         LET_IN
    CONNECT     CONNECT with a login to be proved     CHECKING: what comes is kept until the answer
    CONNECT     anything else, no frame, too late     REFUSED
    CHECKING    the right, or the wrong password      LET_IN, REFUSED
    both        too many bytes                        REFUSED
    both        the connection ends                   LEFT: nobody waits for the answer any more
    LET_IN, REFUSED, LEFT                             the login is over

It is the parser's sink until a version is agreed on. The session is told of each step: it opens the
connection, or ends it with the last word that stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NoReturn

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.peers import Cause, Ending, ending_of
from gateway.model.ports import Authenticator
from gateway.model.principal import ANYBODY, Principal
from gateway.model.token import is_token
from protocols.stomp import frame
from protocols.stomp.frame import Head
from protocols.stomp.greeting import (
    Greeting,
    greet,
    login_held,
    login_too_late,
    no_common_version,
    too_much_before_login,
    wrong_login,
)
from protocols.stomp.heads import FrameError
from protocols.stomp.limits import StompLimits

_GREETINGS: Final = ("CONNECT", "STOMP")


class Stage(Enum):
    """How far the login is; see the module text."""

    CONNECT = "connect"
    CHECKING = "checking"
    LET_IN = "let-in"
    REFUSED = "refused"
    LEFT = "left"


class Input(Enum):
    """What can happen to it."""

    WELCOME = "welcome"
    LOGIN = "login"
    YES = "yes"
    NO = "no"
    BAD = "bad"
    LOST = "lost"


_NEXT: Final[Mapping[tuple[Stage, Input], Stage]] = {
    (Stage.CONNECT, Input.WELCOME): Stage.LET_IN,
    (Stage.CONNECT, Input.LOGIN): Stage.CHECKING,
    (Stage.CONNECT, Input.BAD): Stage.REFUSED,
    (Stage.CONNECT, Input.LOST): Stage.LEFT,
    (Stage.CHECKING, Input.YES): Stage.LET_IN,
    (Stage.CHECKING, Input.NO): Stage.REFUSED,
    (Stage.CHECKING, Input.BAD): Stage.REFUSED,
    (Stage.CHECKING, Input.LOST): Stage.LEFT,
    # The session ends a connection whose login was refused.
    (Stage.REFUSED, Input.LOST): Stage.REFUSED,
}


class Login:
    """That of one connection. Implements the parser's Sink.

    Attributes:
        stage: see the module text.
        greeting: what was agreed, once the stage is LET_IN.
        principal: for whom the peer acts, once the stage is LET_IN.
        ending: why it was refused, once the stage is REFUSED.
        last_word: the ERROR that says so; empty where an answer would help an attacker.
    """

    __slots__ = (
        "_admit",
        "_authenticator",
        "_began",
        "_came",
        "_limits",
        "_moved",
        "_name",
        "_owner",
        "_receipt",
        "ending",
        "greeting",
        "last_word",
        "principal",
        "stage",
    )

    def __init__(
        self,
        authenticator: Authenticator,
        limits: StompLimits,
        name: str,
        moved: Callable[[], None],
    ) -> None:
        """Begin; `moved` is called after each step but LEFT. `name` is the connection's."""
        self._owner: str | None = None
        self._admit: Callable[[], Principal] | None = None
        self._authenticator = authenticator
        self._limits = limits
        self._name = name
        self._moved = moved
        self._began: float | None = None
        self._came = 0
        self._receipt: bytes | None = None  # of the CONNECT that is being checked
        self.stage = Stage.CONNECT
        self.greeting: Greeting | None = None
        self.principal = ANYBODY
        self.ending: Ending | None = None
        self.last_word = b""

    def own(self, admit: Callable[[], Principal], user: str | None) -> None:
        """Take this user for the peer, by the certificate that it has shown to TLS.

        That counts for a CONNECT without a passcode, with that login or with none. Where a
        passcode comes it is checked, and nothing else counts.
        """
        self._admit, self._owner = admit, user

    @property
    def over(self) -> bool:
        """Whether nothing that comes changes the outcome any more."""
        return self.stage not in (Stage.CONNECT, Stage.CHECKING)

    # ---- time and size

    def begin(self, now: float) -> None:
        """The connection is there; its time to log in began with the first call."""
        if self._began is None:
            self._began = now

    def count(self, size: int) -> None:
        """Count bytes that came."""
        self._came += size

    def look_at_size(self) -> None:
        """Refuse a peer that has sent too much."""
        if self._came > self._limits.login_bytes_max and not self.over:
            self._refuse(Input.BAD, too_much_before_login(self._came, self._limits))

    def look_at_time(self, now: float) -> float | None:
        """Refuse a peer that has taken too long; returns when to look again.

        While its password is checked it waits for us: that takes as long as it takes.
        """
        self.begin(now)
        assert self._began is not None
        deadline = self._began + self._limits.login_seconds
        if self.stage is Stage.CONNECT and now >= deadline:
            ending = Ending(cause=Cause.TIMED_OUT)
            self._refuse(Input.BAD, login_too_late(self._limits), ending=ending)
        return None if self.over else max(deadline, now + 1.0)

    def leave(self) -> None:
        """The connection has ended: an answer that is still to come changes nothing."""
        self._step(Input.LOST)

    # ---- the parser's sink

    def frame(self, head: Head, body: bytes) -> None:
        """Take the first frame [protocols.stomp.parser.Sink]."""
        if head.command not in _GREETINGS:
            text = f"The first frame must be CONNECT or STOMP, not {head.command}."
            self._refuse(Input.BAD, Refusal(code=Code.BAD_FRAME, text=text), head.receipt)
            return
        try:
            greeting = greet(head.headers, self._limits, self._name)
        except RefusedError as error:
            self._refuse(Input.BAD, error.refusal, head.receipt)
            return
        if greeting is None:
            text = "No version of STOMP is spoken by both."
            ending = Ending(cause=Cause.PROTOCOL_ERROR, text=text)
            self._end(Input.BAD, ending, no_common_version(head.receipt))
        elif self._admit is not None and self._leaves_it(greeting):
            self._let_in(Input.WELCOME, greeting, self._admit())
        elif self._needs_nobody(greeting):
            self._let_in(Input.WELCOME, greeting, self._authenticator.anybody(greeting.user))
        elif greeting.user is None and not is_token(greeting.password):
            self._refuse(Input.BAD, wrong_login(None), head.receipt)
        else:
            self._receipt = head.receipt
            self._step(Input.LOGIN)
            self._moved()  # what came with the CONNECT is kept before anybody can answer
            self._ask(greeting, greeting.user or "")

    def _needs_nobody(self, greeting: Greeting) -> bool:
        """Whether who greets so is let in unasked: a token is looked at all the same."""
        asked = self._authenticator.proves(greeting.user or "") or is_token(greeting.password)
        return self._authenticator.open and not asked

    def _ask(self, greeting: Greeting, user: str) -> None:
        # Asked before: a wrong password may be the one that closes the door.
        held = 0.0 if is_token(greeting.password) else self._authenticator.held(user)
        self._authenticator.check(
            user, greeting.password, lambda principal: self._checked(greeting, principal, held)
        )

    def broken(self, error: FrameError) -> None:
        """The bytes are no frames [protocols.stomp.parser.Sink]."""
        if error.silent:
            ending = Ending(cause=Cause.PROTOCOL_ERROR, text=error.refusal.text)
            self._end(Input.BAD, ending, b"")
        else:
            self._refuse(Input.BAD, error.refusal, error.receipt)

    def run(self, route: object, bodies: list[bytes], receipts: list[bytes]) -> NoReturn:
        """Never called: there are no routes yet [protocols.stomp.parser.Sink]."""
        raise AssertionError("nothing has a route before the login")

    def amid(self) -> NoReturn:
        """Never called: there are no runs yet [protocols.stomp.parser.Sink]."""
        raise AssertionError("there are no runs before the login")

    def lead(self, head: Head) -> NoReturn:
        """Never called: there are no routes yet [protocols.stomp.parser.Sink]."""
        raise AssertionError("nothing is led anywhere before the login")

    # ---- outcomes

    def _leaves_it(self, greeting: Greeting) -> bool:
        """Whether a CONNECT leaves it to the peer's certificate who it is."""
        return not greeting.password and greeting.user in (None, "", self._owner)

    def _checked(self, greeting: Greeting, principal: Principal | None, held: float) -> None:
        """The authenticator has answered, on a later turn; see its `held`."""
        if self.over:
            return
        if principal is not None:
            self._let_in(Input.YES, greeting, principal)
        elif held and greeting.user is not None:
            self._refuse(Input.NO, login_held(greeting.user, held))
        else:
            self._refuse(Input.NO, wrong_login(greeting.user), self._receipt)

    def _let_in(self, what: Input, greeting: Greeting, principal: Principal) -> None:
        self._step(what)
        self.greeting = greeting
        self.principal = principal
        self._moved()

    def _refuse(
        self,
        what: Input,
        refusal: Refusal,
        receipt: bytes | None = None,
        *,
        ending: Ending | None = None,
    ) -> None:
        if ending is None:
            wrong = what is Input.NO or refusal.code is Code.NOT_AUTHORIZED
            cause = Cause.LOGIN_REFUSED if wrong else None
            ending = ending_of(refusal, cause)
        self._end(what, ending, frame.error(refusal, receipt))

    def _end(self, what: Input, ending: Ending, last_word: bytes) -> None:
        self._step(what)
        self.ending = ending
        self.last_word = last_word
        self._moved()

    def _step(self, what: Input) -> None:
        following = _NEXT.get((self.stage, what))
        assert following is not None, f"{what.value} in stage {self.stage.value}"
        self.stage = following
