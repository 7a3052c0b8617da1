"""Logins that were right a while ago: a client that comes again costs no hash of a password."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from gateway.security.users import User

REMEMBER_SECONDS: Final = 60.0
REMEMBERED_MAX: Final = 4096


class Recent:
    """Keyed hashes of logins with the time until which they count."""

    __slots__ = ("_key", "_until")

    def __init__(self, key: bytes) -> None:
        """Remember nothing yet; `key` is chance of this process."""
        self._key = key
        self._until: dict[bytes, float] = {}

    def mark(self, known: User | None, user: str, password: str) -> bytes:
        """Return a keyed hash of login and stored hash: it tells nothing without the key."""
        stored = "" if known is None else known.password.reveal()
        text = f"{user}\x00{stored}\x00{password}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text, hashlib.sha256)

    def has(self, mark: bytes, now: float) -> bool:
        """Whether a login was right a while ago."""
        until = self._until.get(mark)
        if until is None:
            return False
        if now < until:
            return True
        del self._until[mark]
        return False

    def add(self, mark: bytes, now: float) -> None:
        """Remember a right login; the one that is known longest makes room."""
        if len(self._until) >= REMEMBERED_MAX:
            del self._until[next(iter(self._until))]
        self._until[mark] = now + REMEMBER_SECONDS
