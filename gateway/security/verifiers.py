"""SCRAM verifiers in the users file: made from a password, written and read.

    scram-sha-256 = "SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>"

Salt and keys are base64. The key's name in the file is the mechanism's in small letters.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Final

from scramp import ScramException, ScramMechanism

from gateway.model.verifier import SCRAM_MECHANISMS, Verifier

#: More cost a client more time at each login; a password that is chance needs none.
ITERATIONS: Final = 100_000
#: Fewer are refused by careful clients [RFC 7677 4].
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 10_000_000
#: The name in the users file -> the mechanism.
KEYS: Final = {name.lower(): name for name in SCRAM_MECHANISMS}
_SHAPE: Final = re.compile(r"(SCRAM-SHA-\d+)\$(\d{1,9}):([^$:]+)\$([^$:]+):([^$:]+)")
#: What `make_verifier` takes, and the least and the most that a users file may hold.
SALT_BYTES: Final = 32
_SALT_BYTES_MIN: Final = 8
SALT_BYTES_MAX: Final = 64


def make_verifier(mechanism: str, password: str) -> Verifier:
    """Return a verifier of a password, with a salt of its own. Blocks for some 50 ms.

    Raises ValueError when the password has characters that SCRAM cannot take [RFC 4013].
    """
    try:
        salt, stored_key, server_key, iterations = ScramMechanism(mechanism).make_auth_info(
            password, iteration_count=ITERATIONS
        )
    except ScramException as error:
        raise ValueError(str(error)) from None
    return Verifier(salt=salt, stored_key=stored_key, server_key=server_key, iterations=iterations)


def render_verifier(mechanism: str, verifier: Verifier) -> str:
    """Return what stands in the users file."""
    salt, stored, server = (
        base64.b64encode(part).decode()
        for part in (verifier.salt, verifier.stored_key, verifier.server_key)
    )
    return f"{mechanism}${verifier.iterations}:{salt}${stored}:{server}"


def parse_verifier(mechanism: str, text: object) -> Verifier:
    """Return the verifier that stands in the users file; raises ValueError, which shows none."""
    found = _SHAPE.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[1] != mechanism:
        raise ValueError(f"is no {mechanism} verifier; `sluicegate user add --scram` makes one")
    try:
        salt, stored, server = (
            base64.b64decode(part, validate=True) for part in found.groups()[2:]
        )
    except binascii.Error:
        raise ValueError("is not base64 where it must be") from None
    size = hashlib.new(mechanism.removeprefix("SCRAM-").replace("-", "")).digest_size
    if not _SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX:
        raise ValueError(
            f"has a salt of {len(salt)} bytes; it has {_SALT_BYTES_MIN} to {SALT_BYTES_MAX}"
        )
    if not len(stored) == len(server) == size:
        raise ValueError(f"needs two keys of {size} bytes")
    iterations = int(found[2])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(
            f"has {iterations} iterations; they lie between {ITERATIONS_MIN} and {ITERATIONS_MAX}"
        )
    return Verifier(salt=salt, stored_key=stored, server_key=server, iterations=iterations)
