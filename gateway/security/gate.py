"""The gate: checks logins off the reactor, at a bounded cost.

What a check passes, in this order:

    open gate (no users) ────────────────────────────────> let in
    a token (its form tells) ────────────────────────────> let in or refused, held back by none
    verified within the last minute (keyed hash) ────────> let in
    too many wrong passwords, see `throttle` ────────────> refused, nothing computed
    too many checks waiting ─────────────────────────────> refused, nothing computed
    a realm takes it (a directory's user) ───────────────> let in or refused
    argon2 on a worker thread (a dummy for unknown users) > let in or refused

A SCRAM login proves its password in two rounds of hashes, here on the reactor, and is held back by
the same count of wrong ones: who has to wait is refused at the end, whatever the proof.

A refusal that something was computed for comes at the next full quarter of a second after the
login: whether a user exists, and where it is known, cannot be told from its time.

The answer never comes inside the call. Threads, time and the end of the turn are handed in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from gateway.model.certificates import CertificateRule
from gateway.model.errors import Refusal
from gateway.model.principal import By, Judge, Principal
from gateway.model.verifier import SCRAM_MECHANISMS, Verifier
from gateway.security.bench import Bench
from gateway.security.certificates import CertificateUsers
from gateway.security.passwords import is_of
from gateway.security.peer_gate import PeerGate
from gateway.security.realms import (
    Done,
    Realm,
    Remembering,
    Surroundings,
    Tokens,
    Why,
    renewal_refusal,
)
from gateway.security.recent import Recent
from gateway.security.remote import Remote
from gateway.security.throttle import FailureThrottle
from gateway.security.users import User, Users
from gateway.security.verifiers import ITERATIONS, SALT_BYTES, SALT_BYTES_MAX

__all__ = ["PasswordGate", "PeerGate", "Realm", "Remembering", "Surroundings", "Why"]

#: Checks that may wait for one of the two threads: at 35 ms each that is a wait of about a second.
WAITING_MAX: Final = 64
#: Of those, checks of who has not come in by this user from there before: others have the rest.
STRANGERS_MAX: Final = 48
#: More than a check takes, where nothing waits.
EVEN_SECONDS: Final = 0.25
BUSY_SECONDS: Final = 1.0


class PasswordGate:
    """Checks logins of all peers; `for_peer` gives each connection its `Authenticator`.

    Attributes:
        tokens: asked before all others, where there are issuers of tokens; else None.
        realms: asked in this order before the users file; the first that takes a login judges it.
        certificates: whose the certificates of clients are; None: nobody's.
        judge: asked what principals may do, those of before as well; None: they may do everything.
        all_in_file: every user who logs in by a password stands in the users file; where one does
            not, there is no verifier of its password either.
        accepted, refused, waiting: figures, read only.
    """

    __slots__ = (
        "_bench", "_here", "_key", "_nonces", "_recent", "_shown", "_surroundings", "_throttle",
        "_users", "accepted", "all_in_file", "certificates", "decoy_key", "judge", "realms",
        "refused", "tokens", "waiting",
    )  # fmt: skip

    def __init__(self, users: Users, surroundings: Surroundings, key: bytes) -> None:
        """Keep the users; `key` is chance of this process, for the hashes of recent logins."""
        self.tokens: Tokens | None = None
        self.realms: tuple[Remembering, ...] = ()
        self.certificates: CertificateUsers | None = None
        self.judge: Judge | None = None
        self.all_in_file = True
        self._bench = Bench(self)
        self._here: WeakSet[Principal] = WeakSet()  # whose roles are those of the file
        self._shown: WeakKeyDictionary[Principal, bytes] = WeakKeyDictionary()  # by certificate
        self._surroundings = surroundings
        self._key = key
        self._throttle = FailureThrottle()
        self._recent = Recent(key)
        self._nonces = 0
        self.accepted = self.refused = self.waiting = 0
        self.use(users)

    def use(self, users: Users) -> None:
        """Know these users, and no others, from the next login on; also one that is under way.

        Who is here already has the roles from now on that its user has.
        """
        self._users = users
        # The same for as long as the users are: a salt that changes would tell who is made up.
        stored = "\0".join(sorted(user.password.reveal() for user in users.values()))
        self.decoy_key = hmac.digest(b"decoy", stored.encode(), hashlib.sha256)
        for one in tuple(self._here):
            roles = self.roles(one.account)
            if roles != one.roles:
                one.renew(roles, one.until_ms)

    @property
    def users(self) -> Users:
        """Who is known now."""
        return self._users

    @property
    def open(self) -> bool:
        """Whether no user is configured, no realm and no rule, so that anybody is let in."""
        ruled = self.certificates is not None and bool(self.certificates.rules)
        return not (self._users or self.realms or ruled or self.tokens is not None)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The SCRAM mechanisms for which every user has a verifier, best first.

        Clients take the best that is offered, and have no second try with another one.
        """
        if not self.all_in_file:
            return ()
        users = self._users.values()
        return tuple(m for m in SCRAM_MECHANISMS if users and all(m in u.verifiers for u in users))

    def nonce(self) -> str:
        """Return a text for one SCRAM login that nobody can foresee."""
        self._nonces += 1
        made = hmac.digest(self._key, b"nonce %d" % self._nonces, hashlib.sha256)
        return base64.b64encode(made).decode()

    def verifier(self, mechanism: str, user: str) -> Verifier | None:
        """Return what the proof of a login is checked with."""
        known = self._users.get(user)
        return None if known is None else known.verifiers.get(mechanism)

    def decoy_shape(self, mechanism: str, user: str) -> tuple[int, int]:
        """Return bytes of salt and iterations for a name without verifier; see `Verifiers`."""
        found = [u.verifiers[mechanism] for u in self._users.values() if mechanism in u.verifiers]
        if not found:
            return SALT_BYTES, ITERATIONS
        drawn = hmac.digest(self.decoy_key, b"shape" + user.encode("utf-8"), hashlib.sha256)
        like = found[int.from_bytes(drawn[:8], "big") % len(found)]
        return min(len(like.salt), SALT_BYTES_MAX), like.iterations

    def anybody(self, user: str | None) -> Principal:
        """See `Authenticator`."""
        return Principal(user, judge=self._bench)

    def principal(self, user: str, by: By) -> Principal:
        """Return for whom a user of the file acts who has proved to be it."""
        made = Principal(user, roles=self.roles(user), by=by, judge=self._bench)
        self._here.add(made)
        return made

    def certified(self, certificate: bytes | None, peer: str) -> Principal | None:
        """Return for whom a peer acts that has shown a certificate to TLS; None: for nobody."""
        if certificate is None or self.certificates is None or not self.certificates.rules:
            return None
        owner = self.certificates.owner(certificate, peer)
        if owner is None:
            return None
        made = Principal(
            owner.user,
            roles=self.roles(owner.user) if owner.roles is None else owner.roles,
            by=By.CERTIFICATE,
            until_ms=owner.until_ms,
            judge=self._bench,
        )
        if owner.roles is None:
            self._here.add(made)
        self._shown[made] = certificate
        return made

    def use_rules(self, rules: Sequence[CertificateRule]) -> None:
        """Judge certificates by other rules, also those of principals that are there.

        Whoever is another user by them, or none, keeps the roles: its connection is to be closed.
        """
        judges = self.certificates
        if judges is None or judges.rules == tuple(rules):
            return
        judges.rules = tuple(rules)
        for one, shown in tuple(self._shown.items()):
            owner = judges.look(shown)
            if owner is None or owner.user != one.user:
                continue
            roles = self.roles(owner.user) if owner.roles is None else owner.roles
            (self._here.add if owner.roles is None else self._here.discard)(one)
            if roles != one.roles:
                one.renew(roles, one.until_ms)

    def admit(self, principal: Principal, peer: str) -> Principal:
        """Count a login by certificate, which nothing is left to be checked of."""
        self.accepted += 1
        return principal

    def proved(self, peer: str, user: str, *, right: bool) -> Principal | None:
        """Count a SCRAM login; returns for whom it acts, if it is let in."""
        pair, now = (peer, user), self._surroundings.now()
        right = right and (self.open or user in self._users)  # or gone since the proof began
        if right and self._throttle.allows(pair, now):
            self._throttle.succeeded(pair)
            self.accepted += 1
            return self.principal(user, By.SCRAM)
        self.refused += 1
        if not right:
            self._throttle.failed(pair, now)
        self._surroundings.refused(user, peer, Why.THROTTLED if right else Why.WRONG)
        return None

    def roles(self, user: str) -> frozenset[str]:
        """Return the roles of a user; none for a user who does not exist."""
        found = self._users.get(user)
        return frozenset() if found is None else found.roles

    def for_peer(
        self,
        address: str,
        *,
        anonymous: bool = False,
        listener: str = "",
        protocol: str = "",
        holder: Principal | None = None,
    ) -> PeerGate:
        """Return the gate as one peer meets it.

        Args:
            address: of the peer, without a port.
            anonymous: let in who gives no user, though users are configured; a user who is given
                is checked all the same.
            listener: where it came in, for the audit trail.
            protocol: that it speaks there.
            holder: for whom the peer acts, where its request has proved that.
        """
        remote = Remote(address, listener, protocol)
        return PeerGate(self, remote, anonymous=anonymous, holder=holder)

    def proves(self, user: str) -> bool:
        """See `Authenticator`."""
        return bool(user) and not self.open

    def held(self, user: str) -> float:
        """See `Authenticator`."""
        return self.held_from("", user)

    def held_from(self, peer: str, user: str) -> float:
        """Return for how many seconds logins of a user from there are refused unseen; 0: none."""
        closed = self._throttle.closed_for((peer, user), self._surroundings.now())
        return closed or (BUSY_SECONDS if self._is_busy((peer, user)) else 0.0)

    def _is_busy(self, pair: tuple[str, str]) -> bool:
        """Whether too many checks wait for one more of this peer and user."""
        most = WAITING_MAX if self._throttle.knows(pair) else STRANGERS_MAX
        return self.waiting >= most

    def check(self, user: str, password: str, done: Done) -> None:
        """Check a login whose peer is not known apart."""
        self.check_from("", user, password, done)

    def check_from(self, peer: str, user: str, password: str, done: Done) -> None:
        """Check a login; `done` is called later with the answer."""
        if self.open:
            self.let_in(self.anybody(user), done)
            return
        pair = (peer, user)
        tokens = self.tokens
        if tokens is not None and tokens.takes(user, password):
            if self._has_place(pair, done):
                self._ask_tokens(tokens, pair, password, done)
            return
        for realm in self.realms:
            if realm.takes(user, password):
                found = realm.remembered(user, password)
                if found is not None:
                    self.let_in(self._judged(found), done)
                elif self._has_turn(pair, done):
                    self._ask(realm, pair, password, done)
                return
        known = self._users.get(user)
        mark = self._recent.mark(known, user, password)
        if self._recent.has(mark, self._surroundings.now()):
            self.let_in(self.principal(user, By.PASSWORD), done)
        elif self._has_turn(pair, done):
            self._verify(known, pair, password, mark, done)

    def _has_turn(self, pair: tuple[str, str], done: Done) -> bool:
        """Whether a login is looked at now; it is refused, later, if not."""
        if not self._throttle.allows(pair, self._surroundings.now()):
            self._refuse(pair, Why.THROTTLED, done)
            return False
        return self._has_place(pair, done)

    def _has_place(self, pair: tuple[str, str], done: Done) -> bool:
        """Whether a login may wait for its answer; it is refused, later, if not."""
        if self._is_busy(pair):
            self._refuse(pair, Why.BUSY, done)
            return False
        self.waiting += 1
        return True

    def _verify(
        self, known: User | None, pair: tuple[str, str], password: str, mark: bytes, done: Done
    ) -> None:
        user = pair[1]
        around = self._surroundings
        began = around.now()

        def verified(right: bool) -> None:  # noqa: FBT001 - the shape of Surroundings.verify
            self.waiting -= 1
            if right and self._still_so(known):
                self._throttle.succeeded(pair)
                self._recent.add(mark, around.now())
                self._answer(self.principal(user, By.PASSWORD), done)
            else:
                self._refuse_evenly(pair, Why.WRONG, began, done)

        stored = None if known is None else known.password
        around.verify(lambda: is_of(stored, password), verified)

    def _ask(self, realm: Realm, pair: tuple[str, str], secret: str, done: Done) -> None:
        """Have another realm judge; an answer that nobody could give counts for nothing."""
        began = self._surroundings.now()

        def judged(answer: Principal | Why) -> None:
            if answer is Why.WRONG:
                # As long as a user of the file would take, however much there is to do.
                self._surroundings.verify(lambda: is_of(None, secret), lambda _: refused(Why.WRONG))
            elif isinstance(answer, Principal):
                self.waiting -= 1
                self._throttle.succeeded(pair)
                self._answer(self._judged(answer), done)
            else:
                refused(answer)

        def refused(why: Why) -> None:
            self.waiting -= 1
            self._refuse_evenly(pair, why, began, done)

        realm.check(pair[1], secret, judged)

    def _ask_tokens(self, tokens: Tokens, pair: tuple[str, str], secret: str, done: Done) -> None:
        """Have a token judged; one that is wrong holds nobody back, since nobody guesses one."""

        def judged(answer: Principal | Why) -> None:
            self.waiting -= 1
            if isinstance(answer, Principal):
                self._answer(self._judged(answer), done)
            else:
                self._surroundings.refused(pair[1], pair[0], answer)
                self._answer(None, done)

        tokens.check(pair[1], secret, judged)

    def renew(
        self, principal: Principal, token: str, done: Callable[[Refusal | None], None]
    ) -> None:
        """Have a principal go on by a new token; `done` is told why not, later."""
        refusal = renewal_refusal(self.tokens, token, self.waiting, WAITING_MAX)
        if self.tokens is None or refusal is not None:
            self._surroundings.later(lambda: done(refusal))
            return
        self.waiting += 1

        def renewed(answer: Refusal | None) -> None:
            self.waiting -= 1
            done(answer)

        self.tokens.renew(principal, token, renewed)

    def _judged(self, principal: Principal) -> Principal:
        principal.judged_by(self._bench)
        return principal

    def _refuse_evenly(self, pair: tuple[str, str], why: Why, began: float, done: Done) -> None:
        """Refuse at a time that does not tell what was looked at since the login began."""
        peer, user = pair
        around = self._surroundings
        now = around.now()
        if why not in (Why.UNREACHABLE, Why.BUSY):
            self._throttle.failed(pair, now)
        around.refused(user, peer, why)
        wait = EVEN_SECONDS - (now - began) % EVEN_SECONDS
        around.after(wait, lambda: self._answer(None, done))

    def _still_so(self, known: User | None) -> bool:
        """Whether a user who was found right is still the same: other users may have been read."""
        now = None if known is None else self._users.get(known.name)
        return now is not None and known is not None and now.password == known.password

    def let_in(self, principal: Principal, done: Done) -> None:
        """Answer yes, later."""
        self._surroundings.later(lambda: self._answer(principal, done))

    def _refuse(self, pair: tuple[str, str], why: Why, done: Done) -> None:
        peer, user = pair
        self._surroundings.refused(user, peer, why)
        self._surroundings.later(lambda: self._answer(None, done))

    def _answer(self, principal: Principal | None, done: Done) -> None:
        if principal is None:
            self.refused += 1
        else:
            self.accepted += 1
        done(principal)
