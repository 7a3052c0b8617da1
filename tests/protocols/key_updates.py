"""A TLS 1.3 client that asks for new keys as often as it likes [RFC 8446 4.6.3].

No library lets a client do so; this one seals its records itself, with the secret that its library
writes down for debuggers.
"""

from __future__ import annotations

import struct
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

_APPLICATION, _HANDSHAKE = 23, 22
#: key_update, of one byte: update_requested.
_ASK = b"\x18\x00\x00\x01\x01"


class KeyUpdates:
    """Seals what a client says after its handshake, in place of its library.

    The suite has to be TLS_AES_256_GCM_SHA384, which both libraries like best.
    """

    def __init__(self, key_log: Path) -> None:
        """Go on where the handshake that wrote `key_log` ended; nothing was said since."""
        lines = [line.split() for line in key_log.read_text("ascii").splitlines()]
        found = [bytes.fromhex(line[2]) for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0"]
        self._use(found[-1])

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._key = AESGCM(_expand(secret, b"key", 32))
        self._iv = _expand(secret, b"iv", 12)
        self._sequence = 0

    def seal(self, data: bytes) -> bytes:
        """Return a record of plain text."""
        return self._record(data, _APPLICATION)

    def ask(self) -> bytes:
        """Return a record that takes new keys and asks the server for new ones, too."""
        record = self._record(_ASK, _HANDSHAKE)
        self._use(_expand(self._secret, b"traffic upd", 48))
        return record

    def _record(self, data: bytes, kind: int) -> bytes:
        inner = data + bytes([kind])
        head = struct.pack(">BHH", _APPLICATION, 0x0303, len(inner) + 16)
        number = self._sequence.to_bytes(12, "big")
        nonce = bytes(a ^ b for a, b in zip(self._iv, number, strict=True))
        self._sequence += 1
        return head + self._key.encrypt(nonce, inner, head)


def _expand(secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label with an empty context [RFC 8446 7.1]."""
    name = b"tls13 " + label
    info = struct.pack(">HB", length, len(name)) + name + b"\0"
    return HKDFExpand(hashes.SHA384(), length, info).derive(secret)
