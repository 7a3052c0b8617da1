"""A client's side of SASL [AMQP 5.3]: ANONYMOUS, EXTERNAL, PLAIN, and SCRAM with scramp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

#: Strongest first; with SCRAM the password does not leave this machine.
_PREFERRED: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


class PeerError(Exception):
    """What a peer refused or broke: a stable code, a text for people, and what to try."""

    def __init__(self, code: str, text: str, *, attempt: str | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.attempt = attempt


class Mechanism:
    """One that has nothing to say after its first response; `first` is that."""

    def __init__(self, name: str, first: bytes) -> None:
        self.name = name
        self.first = first

    def answer(self, challenge: bytes) -> bytes:
        """Return the response to a challenge; raises PeerError."""
        raise PeerError("not-authorized", f"{self.name} came with a challenge of {challenge!r}")

    def check(self, last: bytes | None) -> None:
        """Check what came with the outcome; raises PeerError."""


class Scram(Mechanism):
    """SCRAM: the peer proves, too, that it knows the password [RFC 5802]."""

    def __init__(self, name: str, user: str, password: str) -> None:
        """Begin; raises PeerError for a password that SCRAM cannot carry."""
        from scramp import ScramClient, ScramException  # noqa: PLC0415 - slow, for logins only

        self._failures = (ScramException, ValueError)
        self._answered = self._proved = False
        try:
            self._client: Any = ScramClient([name], user, password)
            first = self._client.get_client_first().encode()
        except self._failures as error:
            raise PeerError("not-authorized", f"{name}: {error}") from None
        super().__init__(name, first)

    def answer(self, challenge: bytes) -> bytes:
        if self._answered:
            self.check(challenge)
            return b""
        self._answered = True
        try:
            self._client.set_server_first(challenge.decode())
            return str(self._client.get_client_final()).encode()
        except self._failures as error:
            raise PeerError("not-authorized", f"{self.name}: {error}") from None

    def check(self, last: bytes | None) -> None:
        if last and not self._proved:
            try:
                self._client.set_server_final(last.decode())
            except self._failures as error:
                raise PeerError("not-authorized", f"{self.name}: {error}") from None
            self._proved = True
        if not self._proved:
            raise PeerError("not-authorized", f"{self.name}: no proof of who the gateway is came")


def choose(offered: Sequence[str], login: tuple[str, str] | None) -> Mechanism:
    """Return the best mechanism that a peer offers; raises PeerError when none can be used."""
    names = ", ".join(offered)
    if login is None:
        if "EXTERNAL" in offered:
            return Mechanism("EXTERNAL", b"")  # by the certificate that was shown
        if "ANONYMOUS" not in offered:
            raise PeerError("not-authorized", f"it wants a login, by {names}")
        return Mechanism("ANONYMOUS", b"sluicegate")
    user, password = login
    for name in _PREFERRED:
        if name not in offered:
            continue
        if name == "PLAIN":
            return Mechanism(name, f"\0{user}\0{password}".encode())
        return Scram(name, user, password)
    raise PeerError("not-authorized", f"it offers none of {', '.join(_PREFERRED)}, but {names}")
