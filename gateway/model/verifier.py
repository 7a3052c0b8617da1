"""What is stored of a SCRAM password, and where a login finds it [RFC 5802]. Pure.

Who has a verifier can check a proof, and cannot make one: it lets nobody in. It is easier to guess
a password from than an argon2 hash is, so that a user has one only where somebody asked for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from gateway.model.principal import Principal

#: Best first.
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Verifier:
    """What is stored of a password [RFC 5802 3]."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class Verifiers(Protocol):
    """Where a peer's login finds verifiers, and tells how it went."""

    def decoy_shape(self, mechanism: str, user: str) -> tuple[int, int]:
        """Return bytes of salt and iterations for a user who does not exist.

        They are those of some user who does, always the same for a name: what others have in common
        must not tell who is made up. Salts have 64 bytes at most.
        """

    def find(self, mechanism: str, user: str) -> Verifier | None:
        """Return the verifier of a user who has one."""

    def told(self, user: str, *, right: bool) -> Principal | None:
        """Note whether the proof of a login was right; returns for whom it acts, if it is let in.

        A right one is not, while the peer has to wait after wrong ones.
        """
