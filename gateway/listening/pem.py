"""PEM files of certificates and private keys, read into what `cryptography` makes of them.

Raises CertificateError, with the part of the listener's settings that named the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.listening.contexts import CertificateError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----\r?\n?", re.DOTALL)


def read(path: Path, part: str) -> bytes:
    """Return what a file holds."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(part, f"{path} cannot be read: {error.strerror}") from None


def blocks_of(path: Path, part: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield label and text of each block of a PEM file."""
    text = read(path, part)
    yield from ((block[1], block[0]) for block in _BLOCK.finditer(text))
    if text.count(b"-----BEGIN ") > text.count(b"-----END "):
        raise CertificateError(part, f"{path} is not whole: what begins in it has no end")


def certificates_in(path: Path, part: str) -> Iterable[tuple[x509.Certificate, bytes]]:
    """Yield each certificate of a file, with its text."""
    from cryptography import x509  # noqa: PLC0415 - only who speaks TLS waits for it

    for label, pem in blocks_of(path, part):
        if label != b"CERTIFICATE":
            continue
        try:
            yield x509.load_pem_x509_certificate(pem), pem.rstrip() + b"\n"
        except ValueError:
            raise CertificateError(part, f"{path} holds a certificate that is damaged") from None


def public_keys_in(path: Path, part: str) -> Sequence[bytes]:
    """Return what the certificate of each private key in a file must have."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    found = []
    for label, pem in blocks_of(path, part):
        if not label.endswith(b"PRIVATE KEY"):
            continue
        if label.startswith(b"ENCRYPTED") or b"Proc-Type: 4,ENCRYPTED" in pem:
            raise CertificateError(
                part,
                f"{path} holds a key that is encrypted with a password, which nobody could type"
                " in; write it without: openssl pkey -in OLD -out NEW",
            )
        try:
            key = serialization.load_pem_private_key(pem, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise CertificateError(part, f"{path} holds a private key that is damaged") from None
        public = key.public_key()
        found.append(public.public_bytes(der(), serialization.PublicFormat.SubjectPublicKeyInfo))
    return found


def der() -> serialization.Encoding:
    """Return the form in which two certificates or keys are the same when their bytes are."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as above

    return serialization.Encoding.DER


def public_of(certificate: x509.Certificate) -> bytes:
    """Return the public key of a certificate."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as above

    return certificate.public_key().public_bytes(
        der(), serialization.PublicFormat.SubjectPublicKeyInfo
    )
