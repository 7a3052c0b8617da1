"""The gate as one peer meets it: the port that sessions ask, with the peer's address behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.model.errors import Refusal
from gateway.model.principal import By, Principal
from gateway.model.token import is_token
from gateway.model.verifier import Verifier
from gateway.security.realms import Done
from gateway.security.remote import Remote


class Gate(Protocol):
    """The gate of all peers, as one of them meets it; `gate.PasswordGate` is one."""

    @property
    def open(self) -> bool:
        """Whether anybody is let in."""

    def anybody(self, user: str | None) -> Principal:
        """Return for whom a peer acts that is let in unproved."""

    def let_in(self, principal: Principal, done: Done) -> None:
        """Answer yes, later."""

    def check_from(self, peer: Remote, user: str, password: str, done: Done) -> None:
        """Check a login from there."""

    def held_from(self, peer: Remote, user: str) -> float:
        """Return for how many seconds logins of a user from there are refused unseen."""

    def renew(
        self, principal: Principal, token: str, done: Callable[[Refusal | None], None]
    ) -> None:
        """Have a principal go on by a new token."""

    def decoy_shape(self, mechanism: str, user: str) -> tuple[int, int]:
        """Return bytes of salt and iterations for a name without verifier."""

    def verifier(self, mechanism: str, user: str) -> Verifier | None:
        """Return what the proof of a login is checked with."""

    def proved(self, peer: Remote, user: str, *, right: bool) -> Principal | None:
        """Count a SCRAM login; returns for whom it acts, if it is let in."""


class PeerGate:
    """The `Authenticator` of one peer, and its `Verifiers`.

    Attributes:
        accepted: told of each login by `check` that was let in; None: nobody is.
    """

    __slots__ = ("_address", "_anonymous", "_gate", "_holder", "accepted")

    def __init__(
        self,
        gate: Gate,
        address: Remote,
        *,
        anonymous: bool,
        holder: Principal | None = None,
    ) -> None:
        """`holder` is for whom the peer acts that has proved it already, by its request."""
        self.accepted: Callable[[Principal], None] | None = None
        self._holder = holder
        self._gate = gate
        self._address = address
        self._anonymous = anonymous

    @property
    def open(self) -> bool:
        return self._anonymous or self._holder is not None or self._gate.open

    def anybody(self, user: str | None) -> Principal:
        """See `Authenticator`."""
        return self._gate.anybody(user) if self._holder is None else self._holder

    def check(self, user: str, password: str, done: Done) -> None:
        """Check a login of this peer; `done` is called later."""
        if self._anonymous and not user and not is_token(password):
            self._gate.let_in(self.anybody(None), done)
        else:
            self._gate.check_from(self._address, user, password, self._telling(done))

    def _telling(self, done: Done) -> Done:
        accepted = self.accepted
        if accepted is None:
            return done

        def told(principal: Principal | None) -> None:
            if principal is not None:
                accepted(principal)
            done(principal)

        return told

    def held(self, user: str) -> float:
        """See `Authenticator`."""
        return self._gate.held_from(self._address, user)

    def proves(self, user: str) -> bool:
        """See `Authenticator`."""
        if self._holder is not None and user == self._holder.user:
            return False
        return bool(user) and not self._gate.open

    def renew(
        self, principal: Principal, token: str, done: Callable[[Refusal | None], None]
    ) -> None:
        """See `Renewer`."""
        self._gate.renew(principal, token, done)

    def decoy_shape(self, mechanism: str, user: str) -> tuple[int, int]:
        """See `Verifiers`."""
        return self._gate.decoy_shape(mechanism, user)

    def find(self, mechanism: str, user: str) -> Verifier | None:
        """Return the verifier of a user who has one."""
        return self._gate.verifier(mechanism, user)

    def told(self, user: str, *, right: bool) -> Principal | None:
        """Count a login of this peer by SCRAM; returns for whom it acts, if it is let in."""
        return self._gate.proved(self._address.by(By.SCRAM), user, right=right)
