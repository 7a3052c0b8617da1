"""A certificate that signs itself, for a gateway that lives as long as a bench run or a test.

A gateway that serves people gets one from an authority. This one is for `localhost` and the
loopback addresses.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path
from typing import Final, NamedTuple

#: No clock is asked: what is made for a minute need not end with it.
_FROM: Final = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_TO: Final = dt.datetime(2120, 1, 1, tzinfo=dt.UTC)


class KeyPair(NamedTuple):
    """Two PEM files."""

    certificate: Path
    key: Path


def self_signed(folder: Path) -> KeyPair:
    """Write `certificate.pem` and `key.pem` (RSA, 2,048 bits, as most have) into a folder."""
    # 60 ms that nobody else should wait for.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    places = [
        x509.DNSName("localhost"),
        *(x509.IPAddress(ipaddress.ip_address(one)) for one in ("127.0.0.1", "::1")),
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_TO)
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = KeyPair(folder / "certificate.pem", folder / "key.pem")
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    made.key.touch(mode=0o600)
    made.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return made
