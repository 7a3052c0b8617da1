"""Certificates of clients for tests: what an authority signs, whatever is wrong with it.

maker = Maker(folder)                       root and intermediate, and lists of what they revoked
ann = maker.client(named("ann"))            PEM of a certificate, its chain and its key
context = ann.context(server_authority)     a client that shows it
"""

from __future__ import annotations

import datetime as dt
import itertools
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from tests.certificates import Authority, write_key

PEM: Final = serialization.Encoding.PEM
FROM: Final = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
TO: Final = dt.datetime(2120, 1, 1, tzinfo=dt.UTC)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_count = itertools.count()


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def named(common: str, *, organization: str = "Example") -> x509.Name:
    """Return a subject: `CN=COMMON,O=ORGANIZATION` in the form of RFC 4514."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signs: a name, its key, and the certificates from it up to the root, without that."""

    name: x509.Name
    key: Key
    chain: tuple[x509.Certificate, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """What a client shows: a file with certificate and chain, and one with the key."""

    certificate: Path
    key: Path
    made: x509.Certificate

    def context(self, server: Authority) -> ssl.SSLContext:
        """Return what a client that shows it, and trusts a server's authority, speaks TLS with.

        Raises ssl.SSLError for what no client could show.
        """
        context = server.client()
        context.set_ciphers("ALL:@SECLEVEL=0")  # a client shows whatever it likes
        context.load_cert_chain(self.certificate, self.key)
        return context


def sign(
    subject: x509.Name,
    public: object,
    signer: Signer,
    *,
    names: Sequence[x509.GeneralName] = (),
    since: dt.datetime = FROM,
    until: dt.datetime = TO,
    authority: bool = False,
    path_length: int | None = None,
    extensions: Iterable[tuple[x509.ExtensionType, bool]] = (),
    serial: int | None = None,
) -> x509.Certificate:
    """Return a certificate; `extensions` come with whether each is critical."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.name)
        .public_key(public)
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=path_length), critical=True)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName(names), critical=not len(subject)
        )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(signer.key, hashes.SHA256())


class Maker:
    """An authority of clients, with an intermediate one below; see the module text.

    Attributes:
        root, between: who signs.
        authorities: PEM file of the root.
        lists: PEM file of the lists of both.
        key: that of every client, unless another one is given.
    """

    def __init__(self, folder: Path, name: str = "Clients") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.key = new_key()
        top = named(f"{name} root")
        root_key = new_key()
        self.root_made = sign(
            top, root_key.public_key(), Signer(top, root_key), authority=True, path_length=8
        )
        self.root = Signer(top, root_key)
        self._listed: list[Signer] = []
        self.between = self.below(self.root, f"{name} between")
        self.authorities = folder / "authorities.pem"
        self.authorities.write_bytes(self.root_made.public_bytes(PEM))
        self.lists = folder / "lists.pem"
        self.revoke()

    def below(self, signer: Signer, name: str, *, listed: bool = True, **more: object) -> Signer:
        """Return an authority below another one; `listed`: it has a list when lists are written."""
        key = new_key()
        more = {"authority": True, **more}
        made = sign(named(name), key.public_key(), signer, **more)
        found = Signer(named(name), key, (made, *signer.chain))
        if listed:
            self._listed.append(found)
        return found

    def client(
        self,
        subject: x509.Name,
        *names: x509.GeneralName,
        signer: Signer | None = None,
        key: Key | None = None,
        **more: object,
    ) -> Shown:
        """Write what a client shows, signed by the intermediate authority unless told otherwise."""
        signer, key = signer or self.between, key or self.key
        return self.write(
            sign(subject, key.public_key(), signer, names=names, **more), signer.chain, key
        )

    def write(
        self, made: x509.Certificate, chain: Iterable[x509.Certificate], key: Key | None = None
    ) -> Shown:
        """Write a certificate with what stands above it."""
        number = next(_count)
        certificate = self.folder / f"client-{number}.pem"
        file = self.folder / f"client-{number}.key"
        certificate.write_bytes(b"".join(one.public_bytes(PEM) for one in (made, *chain)))
        write_key(file, key or self.key)
        return Shown(certificate, file, made)

    def revoke(
        self,
        *serials: int,
        root: Sequence[int] = (),
        until: dt.datetime = TO,
    ) -> None:
        """Write the lists anew: what the authorities below have revoked, what the root has."""
        lists = [(self.root, root), *((one, serials) for one in self._listed)]
        text = b"".join(revoking(signer, gone, until) for signer, gone in lists)
        fresh = self.lists.with_suffix(".new")
        fresh.write_bytes(text)
        fresh.replace(self.lists)


def revoking(signer: Signer, serials: Sequence[int], until: dt.datetime = TO) -> bytes:
    """Return the list of what a signer has revoked, in PEM."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(signer.name)
        .last_update(FROM)
        .next_update(until)
    )
    for serial in serials:
        gone = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(FROM).build()
        builder = builder.add_revoked_certificate(gone)
    return builder.sign(signer.key, hashes.SHA256()).public_bytes(PEM)
