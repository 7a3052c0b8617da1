"""Stored passwords: argon2id, some 35 ms and 19 MiB each, so only ever on a worker thread."""

from __future__ import annotations

from typing import Final

import argon2
from argon2.exceptions import InvalidHashError, VerificationError

from gateway.security.secret import Secret

#: OWASP's figures for argon2id: 19 MiB, two passes, one lane.
MEMORY_KIB: Final = 19456
PASSES: Final = 2
LANES: Final = 1
#: Longer ones cost memory before anybody is known; no person types them.
PASSWORD_BYTES_MAX: Final = 1024
#: What is checked for users who do not exist, so that they cost as much as those who do. The
#: password was chance and is forgotten.
NOBODY: Final = Secret(
    "$argon2id$v=19$m=19456,t=2,p=1$AejtVbVwbzDiaxKyshaz1w"
    "$MGHOHCOPx/09Xxn8DTfZAK3Nsl6kcGOXMMnQzSxbXPY"
)

_hasher: Final = argon2.PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES)


def hash_password(password: str) -> Secret:
    """Return what is stored for a password. Blocks for some 35 ms."""
    return Secret(_hasher.hash(password))


def verify_password(stored: Secret, password: str) -> bool:
    """Return whether `password` is the one of `stored`. Blocks; safe on any thread."""
    try:
        return _hasher.verify(stored.reveal(), password)
    except (VerificationError, InvalidHashError):
        return False


def is_of(stored: Secret | None, password: str) -> bool:
    """Whether a password is a user's; does the same work whether the user exists (None) or not."""
    too_long = len(password.encode("utf-8", "surrogatepass")) > PASSWORD_BYTES_MAX
    right = verify_password(NOBODY if stored is None else stored, password[:PASSWORD_BYTES_MAX])
    return right and stored is not None and not too_long


def hash_problem(stored: Secret) -> str | None:
    """Say why a stored hash cannot be used, or None."""
    try:
        argon2.extract_parameters(stored.reveal())
    except InvalidHashError:
        return "password is no argon2 hash that can be read; `sluicegate user add` makes one"
    return None
