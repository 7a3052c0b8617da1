"""SCRAM-SHA-256 and SCRAM-SHA-512 for `SaslServer` [RFC 5802, RFC 7677], on scramp's server.

The verifier of a user comes from a lookup, the nonce from the caller. A user that does not exist,
or has no verifier, gets a salt of its own all the same, made from `decoy_key`: the first round
must not tell names. No channel binding: the `-PLUS` mechanisms are not offered.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

from scramp import ScramException, ScramMechanism

from gateway.model.verifier import SCRAM_MECHANISMS, Verifiers
from protocols.amqp.sasl import Challenge, Exchange, Passed, Refused, Step


class Scram:
    """One SCRAM conversation: client-first, server-first, client-final, server-final."""

    __slots__ = ("_decoy_key", "_known", "_name", "_server", "_user", "_verifiers")

    def __init__(self, name: str, verifiers: Verifiers, *, nonce: str, decoy_key: bytes) -> None:
        """Begin a conversation.

        Args:
            name: one of SCRAM_MECHANISMS.
            verifiers: looked into once.
            nonce: fresh and unguessable, printable ASCII without a comma.
            decoy_key: secret of this gateway; the same for its whole life.
        """
        self._name = name
        self._verifiers = verifiers
        self._decoy_key = decoy_key
        self._user = ""
        self._known = False
        self._server = ScramMechanism(name).make_server(self._find, s_nonce=nonce)

    def step(self, response: bytes | None) -> Step:
        if response is None:
            return Challenge(b"")
        if self._user:
            return self._prove(response)
        try:
            self._server.set_client_first(response.decode("utf-8"))
            return Challenge(self._server.get_server_first().encode("utf-8"))
        except (ScramException, ValueError) as error:
            return Refused(f"{self._name}: {type(error).__name__}")

    def _prove(self, response: bytes) -> Step:
        """Take the client's proof; whatever is wrong with it counts as a wrong password."""
        try:
            self._server.set_client_final(response.decode("utf-8"))
            final = self._server.get_server_final().encode("utf-8")
        except (ScramException, ValueError) as error:
            self._verifiers.told(self._user, right=False)
            return Refused(f"{self._name}: {type(error).__name__}")
        # A decoy's keys are no password's, so the proof has failed already; this says so twice.
        principal = self._verifiers.told(self._user, right=self._known)
        if principal is not None:
            return Passed(principal, final)
        return Refused(f"{self._name}: not let in")

    def _find(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        self._user = user
        found = self._verifiers.find(self._name, user)
        self._known = found is not None
        if found is not None:
            return found.salt, found.stored_key, found.server_key, found.iterations
        digest = hashlib.sha256 if self._name == "SCRAM-SHA-256" else hashlib.sha512
        named = self._name.encode() + user.encode("utf-8")
        made = hmac.digest(self._decoy_key, named, digest)
        salt = hmac.digest(self._decoy_key, b"salt" + named, hashlib.sha512)
        size, iterations = self._verifiers.decoy_shape(self._name, user)
        return salt[:size], made, made, iterations


def scram_exchanges(
    verifiers: Verifiers, nonce: Callable[[], str], decoy_key: bytes
) -> dict[str, Callable[[], Exchange]]:
    """Return what `SaslServer(exchanges=...)` needs to offer both SCRAM mechanisms."""

    def make(name: str) -> Callable[[], Exchange]:
        return lambda: Scram(name, verifiers, nonce=nonce(), decoy_key=decoy_key)

    return {name: make(name) for name in SCRAM_MECHANISMS}
