"""The realm of tokens: who comes in by one, and who goes on by a later one.

    a token ──its form, issuer, header──> key asked for ──signature, claims──> a Principal
       └───────────────────────────────any of it wrong──────────────────────> a Why

Implements `gateway.security.gate.Tokens`. A token passes through as an argument: nothing keeps it,
logs it or shows it. Pure: keys, time and the end of the turn are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from gateway.config.tokens import IssuerConfig
from gateway.model.audit import SILENT, Auditor
from gateway.model.errors import Code, Refusal
from gateway.model.principal import By, Judge, Principal
from gateway.model.token import is_token
from gateway.security.gate import Why
from gateway.tokens.judging import (
    Holder,
    JudgedError,
    check_signature,
    header_of,
    issuer_of,
    judge_claims,
)
from gateway.tokens.keys import SigningKey
from gateway.tokens.reading import Parts, TokenError, read_parts
from gateway.tokens.rolling import Keys

Answer = Callable[[Principal | Why], None]


class Surroundings(Protocol):
    """What the realm needs of the process around it."""

    def now_ms(self) -> int:
        """Return the date that tokens are judged by, in ms since 1970."""

    def later(self, action: Callable[[], None]) -> None:
        """Run `action` on a later turn of the reactor."""

    def refused(self, issuer: str, why: Why, text: str) -> None:
        """Tell the log why a token was refused."""


class _Judged:
    """What came of one token: a holder, or why not."""

    __slots__ = ("holder", "issuer", "text", "why")

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.holder: Holder | None = None
        self.why = Why.UNTRUSTED
        self.text = ""


class TokenRealm:
    """See the module text.

    Attributes:
        judge: returns who judges what its principals may do.
        auditor: told of tokens that were refused, and of those that renew others.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._issuers: Mapping[str, IssuerConfig] = {}  # by `iss`
        self._keys: Mapping[str, Keys] = {}  # by name
        self.judge: Callable[[], Judge | None] = _nobody
        self.auditor: Auditor = SILENT

    def use(self, issuers: Mapping[str, tuple[IssuerConfig, Keys]]) -> None:
        """Believe these issuers, by name, and no others, from the next token on."""
        self._issuers = {one.issuer: one for one, _ in issuers.values()}
        self._keys = {name: keys for name, (_, keys) in issuers.items()}

    @property
    def issuers(self) -> frozenset[str]:
        """Names of the issuers that are believed."""
        return frozenset(self._keys)

    def takes(self, user: str, secret: str) -> bool:
        """See Realm: whatever has the form of a token is one, and no password."""
        return bool(self._keys) and is_token(secret)

    def check(self, user: str, secret: str, done: Answer) -> None:
        """See Realm; a user who is named must be the token's."""

        def judged(found: _Judged) -> None:
            holder = found.holder
            if holder is not None and user not in ("", holder.user):
                found.text, holder = "the login names another user than the token", None
            if holder is None:
                self._tell(found, user)
                done(found.why)
                return
            done(
                Principal(
                    holder.user,
                    roles=holder.roles,
                    by=By.TOKEN,
                    until_ms=holder.until_ms,
                    judge=self.judge(),
                    issuer=found.issuer,
                )
            )

        self._judge(secret, judged)

    def renew(
        self, principal: Principal, secret: str, done: Callable[[Refusal | None], None]
    ) -> None:
        """Have a principal go on by a new token of the same user; `done` is called later."""
        refusal = cannot_renew(principal)
        if refusal is not None:
            self._around.later(lambda: done(refusal))
            return

        def judged(found: _Judged) -> None:
            holder = found.holder
            if holder is None:
                self._tell(found, principal.user or "")
                done(_refusal_of(found.why))
            elif (found.issuer, holder.user) != (principal.issuer, principal.user):
                found.text = "it is another user's, and renews nobody else"
                self._tell(found, principal.user or "")
                done(_not_its_own())
            else:
                done(renew_by(principal, holder.roles, holder.until_ms, self.auditor))

        self._judge(secret, judged)

    # ---- inside

    def _judge(self, secret: str, judged: Callable[[_Judged], None]) -> None:
        """Judge a token; `judged` is called later, also where the answer is there at once."""
        found = _Judged("")

        def answer() -> None:
            self._around.later(lambda: judged(found))

        try:
            parts = read_parts(secret)
            issuer = issuer_of(parts, self._issuers)
            found.issuer = issuer.name
            algorithm, kid = header_of(parts, issuer)
        except TokenError as error:
            found.text = str(error)
            answer()
            return

        def key_found(key: SigningKey | Why) -> None:
            self._with_key(found, (secret, parts, algorithm), issuer, key)
            answer()

        self._keys[issuer.name].ask(kid, algorithm, key_found)

    def _with_key(
        self,
        found: _Judged,
        token: tuple[str, Parts, str],
        issuer: IssuerConfig,
        key: SigningKey | Why,
    ) -> None:
        secret, parts, algorithm = token
        if isinstance(key, Why):
            found.why = key
            unreachable = key is Why.UNREACHABLE
            found.text = "its issuer's keys cannot be had" if unreachable else "its key is unknown"
            return
        try:
            check_signature(secret, algorithm, key)
            found.holder = judge_claims(parts, issuer, self._around.now_ms())
        except JudgedError as error:
            found.why, found.text = error.why, str(error)
        except TokenError as error:
            found.text = str(error)

    def _tell(self, found: _Judged, user: str) -> None:
        self._around.refused(found.issuer, found.why, found.text)
        self.auditor.note(
            "token.refused",
            issuer=found.issuer,
            user=user,
            why=found.why.value,
            reason=found.text,
        )


def cannot_renew(principal: Principal) -> Refusal | None:
    """Say why a principal goes on by no token at all; None: it may."""
    if principal.by is not By.TOKEN:
        text = "This connection did not come in by a token, so that none renews it."
        return Refusal(code=Code.NOT_AUTHORIZED, text=text)
    if principal.ended:
        text = "The token of this connection has ended, and nothing renews it; log in again."
        return Refusal(code=Code.TOKEN_EXPIRED, text=text)
    return None


def renew_by(
    principal: Principal, roles: frozenset[str], until_ms: int, auditor: Auditor
) -> Refusal | None:
    """Have a principal go on with other roles until another date; returns why not."""
    refusal = cannot_renew(principal)
    if refusal is None:
        principal.renew(roles, until_ms)
        auditor.note(
            "token.renewed",
            issuer=principal.issuer,
            user=principal.user,
            roles=sorted(roles),
            until_ms=until_ms,
        )
    return refusal


def _refusal_of(why: Why) -> Refusal:
    if why is Why.UNREACHABLE:
        text = "The new token could not be checked: its issuer cannot be reached. Try again."
        return Refusal(code=Code.NOT_AUTHORIZED, text=text)
    if why is Why.EXPIRED:
        text = "The new token has ended already; get a later one from its issuer."
        return Refusal(code=Code.TOKEN_EXPIRED, text=text)
    text = "The new token is not taken; the gateway's log says why. The one of before goes on."
    return Refusal(code=Code.NOT_AUTHORIZED, text=text)


def _not_its_own() -> Refusal:
    text = "The new token is another user's; a connection is renewed by its own user alone."
    return Refusal(code=Code.NOT_AUTHORIZED, text=text)


def _nobody() -> Judge | None:
    """Stand for the gate until it is there."""
    return None
