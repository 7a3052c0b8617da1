"""Certificates for tests: an authority, what it issues, and what is wrong in one way each.

    authority = Authority(folder)
    pair = authority.issue("a.example", "*.b.example")     PEM files of a certificate and its key
    context = authority.client()                            trusts the authority, checks names

Keys are ECDSA P-256: made in less than a millisecond.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import itertools
import ssl
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.trial.self_signed import KeyPair

_FROM: Final = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_TO: Final = dt.datetime(2120, 1, 1, tzinfo=dt.UTC)
_PEM: Final = serialization.Encoding.PEM
_count = itertools.count()


class Authority:
    """Signs certificates; `intermediate`: through another one, so that a chain is needed.

    Attributes:
        root: PEM file of the certificate that clients trust.
        chain: PEM file of the certificates between that one and those issued; empty without any.
    """

    def __init__(self, folder: Path, *, intermediate: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("Test authority")
        certificate = _sign(self._name, self._key, self._name, self._key, path_length=1)
        self.root = folder / "root.pem"
        self.root.write_bytes(certificate.public_bytes(_PEM))
        self.chain = folder / "chain.pem"
        self.chain.write_bytes(b"")
        if intermediate:
            above, above_key = self._name, self._key
            self._name, self._key = (
                _named("Test intermediate"),
                ec.generate_private_key(ec.SECP256R1()),
            )
            between = _sign(self._name, self._key, above, above_key, path_length=0)
            self.chain.write_bytes(between.public_bytes(_PEM))

    def issue(
        self,
        *names: str,
        folder: Path | None = None,
        stem: str | None = None,
        until: dt.datetime = _TO,
        password: bytes | None = None,
    ) -> KeyPair:
        """Write `STEM.pem` and `STEM.key`: a certificate for these DNS names and addresses.

        Without names it is for localhost and 127.0.0.1. Files that are there are replaced.
        """
        names = names or ("localhost", "127.0.0.1")
        folder = folder or self.folder
        folder.mkdir(parents=True, exist_ok=True)
        stem = stem or f"server-{next(_count)}"
        key = ec.generate_private_key(ec.SECP256R1())
        made = _sign(_named(names[0]), key, self._name, self._key, names=names, until=until)
        pair = KeyPair(folder / f"{stem}.pem", folder / f"{stem}.key")
        pair.certificate.write_bytes(made.public_bytes(_PEM))
        write_key(pair.key, key, password)
        return pair

    def client(self) -> ssl.SSLContext:
        """Return what a client that trusts this authority, and no other, speaks TLS with."""
        return ssl.create_default_context(cafile=str(self.root))


def write_key(file: Path, key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> None:
    """Write a private key, encrypted where a password is given."""
    hidden = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    file.touch(mode=0o600)
    file.write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, hidden))


def serial_of(der: bytes | None) -> int:
    """Return the serial number of a certificate as a client got it."""
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def serial_in(file: Path) -> int:
    """Return the serial number of the first certificate of a PEM file."""
    return x509.load_pem_x509_certificate(file.read_bytes()).serial_number


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _sign(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    names: tuple[str, ...] = (),
    path_length: int | None = None,
    until: dt.datetime = _TO,
) -> x509.Certificate:
    authority = path_length is not None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=path_length), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_place(name) for name in names]), critical=False
        )
    return builder.sign(issuer_key, hashes.SHA256())


def _place(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
